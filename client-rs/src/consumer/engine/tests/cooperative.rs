//! Partitions that are read on while the group rebalances (KIP-429).

use std::time::Duration;

use super::script::{Script, part};
use crate::consumer::face::Command;
use crate::error::ErrorKind;

fn reading(share: &[i32]) -> Script {
    reading_with(share, "true")
}

fn reading_with(share: &[i32], auto_commit: &str) -> Script {
    let mut script = Script::new(&[
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("enable.auto.commit", auto_commit),
    ]);
    script.share = share.to_vec();
    script.subscribe();
    script
}

#[test]
fn only_what_goes_to_another_member_stops() {
    let mut script = reading(&[0, 1]);
    script.append(0, 30);
    script.append(1, 30);
    script.release_held();
    script.run();
    let first = script.take(10).unwrap();
    let (keeps, goes) = match first.partition() {
        0 => (0, 1),
        _ => (1, 0),
    };
    script.seen.clear();
    // The join is held by the coordinator: other members are slow.
    (script.share, script.rebalance, script.holds_joins) = (vec![keeps], true, true);
    script.pass(Duration::from_secs(4));
    assert!(script.seen.contains(&"join".to_owned()));
    script.commit(&first);
    assert_eq!(script.committed[&keeps], 10, "commits do not wait behind the join");
    assert_eq!(script.offsets(10), (10..20).collect::<Vec<_>>(), "records come meanwhile");
    assert_eq!(script.face.partitions(), [part(0), part(1)]);
    script.seen.clear();
    script.holds_joins = false;
    script.release_joins();
    script.run();
    assert_eq!(script.face.partitions(), [part(keeps)]);
    script.seen.retain(|seen| !seen.starts_with("fetch"));
    // It has not read any of that, but found where it begins.
    let given_up = [format!("commit {goes}:0"), "join".to_owned()];
    assert_eq!(script.seen, given_up, "again, so that another gets what was given up");
    assert_eq!(script.offsets(10), (20..30).collect::<Vec<_>>());
    assert_eq!(script.offsets(10), Vec::<i64>::new(), "what was ready of {goes} is dropped");
    let again = format!("fetch {keeps}:0");
    assert!(!script.seen.contains(&again), "what was fetched is kept");
}

#[test]
fn what_was_finished_of_a_partition_that_goes_is_committed_before_it_is_anothers() {
    let mut script = reading(&[0, 1]);
    script.append(0, 10);
    script.release_held();
    script.run();
    assert_eq!(script.offsets(10).len(), 10);
    (script.share, script.rebalance) = (vec![1], true);
    script.seen.clear();
    script.pass(Duration::from_secs(4));
    script.seen.retain(|seen| !seen.starts_with("fetch"));
    assert_eq!(script.seen, ["join"], "the records given out are still worked on");
    assert_eq!(script.face.partitions(), [part(0), part(1)]);
    assert_eq!(script.offsets(10), Vec::<i64>::new());
    script.run();
    script.seen.retain(|seen| !seen.starts_with("fetch"));
    assert_eq!(script.seen, ["join", "commit 0:10", "join"]);
    assert_eq!(script.face.partitions(), [part(1)]);
}

/// confluentinc/librdkafka#2782: a stale mark must not move the commit of the member between.
#[test]
fn a_partition_away_and_back_begins_at_the_commit_made_meanwhile() {
    for auto_commit in ["true", "false"] {
        let mut script = reading(&[0, 1]);
        script.append(0, 300);
        script.release_held();
        script.run();
        let old = script.take(100).unwrap();
        script.commit(&old);
        let queued = script.take(50).unwrap();
        (script.share, script.rebalance) = (vec![1], true);
        script.pass(Duration::from_secs(4));
        assert_eq!(script.offsets(1000), Vec::<i64>::new(), "the poll lets it go");
        script.pass(Duration::from_secs(4));
        assert_eq!(script.face.partitions(), [part(1)]);
        script.committed.insert(0, 200);
        (script.share, script.rebalance) = (vec![0, 1], true);
        script.pass(Duration::from_secs(4));
        script.seen.clear();
        assert_eq!(script.commit_refused(&old).unwrap(), ErrorKind::CommitFenced, "{auto_commit}");
        assert_eq!(script.commit_refused(&queued).unwrap(), ErrorKind::CommitFenced);
        let commits = script.seen.iter().filter(|seen| seen.starts_with("commit 0"));
        assert_eq!(commits.count(), 0, "marks of the lost lease go nowhere");
        assert_eq!(script.offsets(1000), (200..300).collect::<Vec<_>>());
        script.offsets(1);
        script.pass(Duration::from_secs(6));
        assert_eq!(script.committed[&0], 300);
    }
}

/// Between its leaving and its coming back another member has read on.
#[test]
fn who_subscribes_anew_while_it_leaves_begins_at_what_is_committed() {
    for auto_commit in ["true", "false"] {
        let mut script = reading_with(&[0], auto_commit);
        script.append(0, 30);
        script.release_held();
        script.run();
        let first = script.take(10).unwrap();
        script.commit(&first);
        assert_eq!(script.take(5).unwrap().len(), 5);
        script.seen.clear();
        script.face.unsubscribe().unwrap();
        script.face.subscribe(Command::Subscribe(vec!["t".into()])).unwrap();
        script.committed.insert(0, 20);
        script.run();
        script.release_held();
        script.run();
        script.seen.retain(|seen| !seen.starts_with("fetch"));
        assert_eq!(script.seen, ["leave", "join"], "with auto-commit {auto_commit}");
        assert_eq!(script.face.partitions(), [part(0)]);
        assert_eq!(script.offsets(100), (20..30).collect::<Vec<_>>());
    }
}

#[test]
fn closing_in_the_middle_of_a_join_commits_and_leaves_without_its_answer() {
    let mut script = reading(&[0]);
    script.append(0, 10);
    script.release_held();
    script.run();
    script.offsets(10);
    script.offsets(10);
    (script.rebalance, script.holds_joins) = (true, true);
    script.pass(Duration::from_secs(4));
    script.seen.clear();
    script.face.command_close(script.now + Duration::from_secs(5));
    script.run();
    assert!(script.ended);
    script.seen.retain(|seen| !seen.starts_with("fetch"));
    assert_eq!(script.seen, ["commit 0:10", "leave"]);
    assert!(script.closed.wait(Duration::ZERO, "it").is_ok());
}
