//! What an application is told of its partitions as they come and go.

use std::time::Duration;

use super::script::{Script, part};
use crate::consumer::face::{Look, Rebalance};

fn listening(options: &[(&str, &str)]) -> Script {
    let mut script = Script::new(options);
    script.face.listen();
    script.append(0, 30);
    script.subscribe();
    script
}

fn started(script: &mut Script) -> Rebalance {
    match script.look(10) {
        Look::Rebalance(one) => {
            script.note(&one);
            one
        }
        _ => panic!("nothing is told: {:?}", script.told),
    }
}

#[test]
fn partitions_are_told_of_before_their_records_and_before_they_go() {
    let mut script = listening(&[]);
    script.run();
    assert!(script.face.position(&part(0)).is_some(), "records wait");
    assert_eq!(script.offsets(10), (0..10).collect::<Vec<_>>(), "the same poll goes on");
    assert_eq!(script.told, ["Assigned [0]"]);
    (script.share, script.rebalance) = (vec![1], true);
    script.pass(Duration::from_secs(4));
    assert_eq!(script.offsets(10), Vec::<i64>::new());
    script.offsets(10);
    assert_eq!(script.told, ["Assigned [0]", "Revoked [0]", "Assigned [1]"]);
    assert_eq!(script.committed[&0], 10);
}

#[test]
fn records_wait_until_their_partition_is_told_of_whoever_polls() {
    let mut script = listening(&[]);
    let assigned = started(&mut script);
    script.pass(Duration::from_secs(2));
    // Another thread polls meanwhile.
    assert!(matches!(script.look(10), Look::Nothing));
    script.face.end_telling(assigned.id);
    assert_eq!(script.offsets(10), (0..10).collect::<Vec<_>>());
}

#[test]
fn all_is_given_up_and_taken_anew_unless_the_group_is_cooperative() {
    for (strategy, told) in [
        ("range", vec!["Assigned [0, 1]", "Revoked [0, 1]", "Assigned [0, 2]"]),
        ("cooperative-sticky", vec!["Assigned [0, 1]", "Revoked [1]", "Assigned [2]"]),
    ] {
        let mut script = Script::new(&[("partition.assignment.strategy", strategy)]);
        script.face.listen();
        script.share = vec![0, 1];
        script.subscribe();
        assert!(script.take(10).is_none());
        (script.share, script.rebalance) = (vec![0, 2], true);
        for _ in 0..8 {
            script.pass(Duration::from_secs(1));
            script.take(10);
        }
        assert_eq!(script.told, told, "{strategy}");
    }
}

#[test]
fn the_group_waits_for_the_listener_which_may_still_commit() {
    let mut script = listening(&[("enable.auto.commit", "false")]);
    let batch = script.take(10).unwrap();
    script.take(5);
    (script.share, script.rebalance) = (vec![1], true);
    script.pass(Duration::from_secs(4));
    // The batch in hand is finished by this poll.
    assert!(matches!(script.look(10), Look::Nothing));
    script.run();
    let revoked = started(&mut script);
    assert_eq!(script.told.last().unwrap(), "Revoked [0]");
    script.seen.clear();
    script.pass(Duration::from_mins(1));
    assert!(!script.seen.contains(&"join".to_owned()), "{:?}", script.seen);
    script.commit(&batch);
    assert_eq!(script.committed[&0], 10);
    assert!(!matches!(script.look(10), Look::Rebalance(_) | Look::Found(_)), "one at a time");
    script.face.end_telling(revoked.id);
    script.run();
    assert!(script.seen.contains(&"join".to_owned()));
    assert_eq!(script.face.partitions(), [part(1)]);
}

#[test]
fn a_listener_that_takes_too_long_is_no_longer_waited_for() {
    let mut script = listening(&[("max.poll.interval.ms", "10000")]);
    script.take(10).unwrap();
    (script.share, script.rebalance) = (vec![1], true);
    script.pass(Duration::from_secs(4));
    assert!(matches!(script.look(10), Look::Nothing));
    script.run();
    let revoked = started(&mut script);
    script.seen.clear();
    script.pass(Duration::from_secs(11));
    assert!(!script.face.partitions().contains(&part(0)), "given up without it");
    script.face.end_telling(revoked.id);
    script.run();
    script.pass(Duration::from_secs(2));
    script.take(10);
    script.pass(Duration::from_secs(2));
    script.take(10);
    assert_eq!(script.told, ["Assigned [0]", "Revoked [0]", "Assigned [1]"], "nothing twice");
}

#[test]
fn what_the_group_took_away_is_lost_and_not_revoked() {
    let mut script = listening(&[]);
    script.take(10).unwrap();
    script.forgotten = true;
    script.seen.clear();
    script.pass(Duration::from_secs(4));
    script.take(10);
    assert_eq!(script.told, ["Assigned [0]", "Lost [0]", "Assigned [0]"]);
    assert!(!script.seen.iter().any(|seen| seen.starts_with("commit")), "{:?}", script.seen);
}

#[test]
fn what_comes_and_goes_before_it_is_told_is_not_told() {
    let mut script = listening(&[]);
    script.forgotten = true;
    script.pass(Duration::from_secs(4));
    script.forgotten = true;
    script.share = vec![1];
    script.pass(Duration::from_secs(4));
    script.take(10);
    assert_eq!(script.told, ["Assigned [1]"]);
}

/// confluentinc/confluent-kafka-dotnet#1224: told once, with the true figure, and alive afterwards.
#[test]
fn a_late_poll_loses_the_partitions_and_the_next_has_them_back() {
    let mut script = listening(&[("max.poll.interval.ms", "10000")]);
    assert_eq!(script.offsets(10), (0..10).collect::<Vec<_>>());
    script.offsets(10);
    script.pass(Duration::from_secs(9));
    assert_eq!(script.face.stats().late_polls, 0);
    script.pass(Duration::from_mins(10));
    assert_eq!(script.face.stats().late_polls, 1);
    assert!(script.face.partitions().is_empty());
    assert_eq!(script.face.stats().buffered, 0, "nothing is read ahead meanwhile");
    let again = script.offsets(10);
    assert_eq!(again, (10..20).collect::<Vec<_>>(), "what was in hand when it was late");
    assert_eq!(script.told, ["Assigned [0]", "Lost [0]", "Assigned [0]"]);
    assert_eq!(script.face.stats().late_polls, 1);
}

#[test]
fn a_first_poll_may_be_late_too() {
    let mut script = listening(&[("max.poll.interval.ms", "10000")]);
    script.pass(Duration::from_secs(11));
    assert_eq!(script.face.stats().late_polls, 1);
    assert_eq!(script.seen.last().unwrap(), "leave");
    script.take(10);
    assert_eq!(script.offsets(10), (0..10).collect::<Vec<_>>());
    assert_eq!(script.told, ["Assigned [0]"]);
}

/// Else the next rebalance does not wait for it, and its listener hears nothing of that.
#[test]
fn who_was_late_as_it_joined_is_told_in_time_afterwards() {
    let mut script = Script::new(&[("max.poll.interval.ms", "10000")]);
    script.face.listen();
    script.append(0, 30);
    script.holds_joins = true;
    script.subscribe();
    script.pass(Duration::from_secs(11));
    assert_eq!(script.face.stats().late_polls, 1);
    script.holds_joins = false;
    script.release_joins();
    for share in [0, 1] {
        (script.share, script.rebalance) = (vec![share], share > 0);
        for _ in 0..8 {
            script.pass(Duration::from_secs(1));
            script.take(10);
        }
    }
    assert_eq!(script.told, ["Assigned [0]", "Revoked [0]", "Assigned [1]"]);
}

#[test]
fn signs_of_life_count_as_polls_and_finish_nothing() {
    let mut script = listening(&[("max.poll.interval.ms", "10000")]);
    script.take(10).unwrap();
    for _ in 0..6 {
        script.pass(Duration::from_secs(8));
        script.face.keep_alive();
    }
    assert_eq!(script.face.stats().late_polls, 0);
    assert_eq!(script.committed.get(&0), Some(&0), "the records are still worked on");
    script.pass(Duration::from_secs(11));
    assert_eq!(script.face.stats().late_polls, 1);
    script.face.keep_alive();
    script.pass(Duration::from_secs(5));
    assert!(script.face.partitions().is_empty(), "only a poll comes back");
}
