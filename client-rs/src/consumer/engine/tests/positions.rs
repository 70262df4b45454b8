//! Positions that do not hold, and how far reading is behind.

use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

use super::script::{Script, part};
use crate::consumer::face::{Command, Look, WholeBatch};
use crate::consumer::promise::Promise;
use crate::error::{Error, ErrorKind};
use crate::state::fetcher::Start;

/// A member that has been given 20 of 30 records, batches of 10; the rest is read ahead.
fn reading(policy: &str) -> Script {
    let mut script = Script::new(&[("auto.offset.reset", policy)]);
    for _ in 0..3 {
        script.append(0, 10);
    }
    // A policy begins nothing here: the group has been here before.
    script.committed.insert(0, 0);
    script.face.subscribe(Command::Subscribe(vec!["t".into()])).unwrap();
    script.run();
    assert_eq!(script.offsets(1000), (0..10).collect::<Vec<_>>());
    assert_eq!(script.offsets(1000), (10..20).collect::<Vec<_>>());
    script
}

fn rest(script: &mut Script) -> Vec<i64> {
    script.pass(Duration::from_secs(3));
    let mut all = Vec::new();
    loop {
        let some = script.offsets(1000);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

fn fault(script: &mut Script) -> Error {
    script.pass(Duration::from_secs(3));
    match script.face.look(&WholeBatch { records_max: 9 }, None) {
        Err(error) => error,
        Ok(Look::Found(batch)) => panic!("{batch:?}"),
        Ok(_) => panic!("no error came"),
    }
}

#[test]
fn records_read_ahead_that_a_new_leader_never_had_are_not_given_out() {
    let mut script = reading("none");
    script.elect(0, 20);
    script.append(0, 5);
    assert_eq!(rest(&mut script), [20, 21, 22, 23, 24], "no record that was given out is gone");
    assert!(script.seen.contains(&"epoch 0:5".to_owned()), "{:?}", script.seen);
    let stats = script.face.stats();
    assert_eq!((stats.resets, stats.truncations), (0, 1));
}

#[test]
fn records_that_were_given_out_and_are_gone_are_told_and_a_seek_goes_on() {
    let mut script = reading("none");
    script.elect(0, 10);
    let error = fault(&mut script);
    assert_eq!(error.kind(), ErrorKind::DataLost);
    assert_eq!((error.topic(), error.partition()), (Some("t"), Some(0)));
    assert!(error.to_string().contains("records 10 to 19 of t-0"), "{error}");
    assert_eq!(rest(&mut script), Vec::<i64>::new(), "until the application says where");
    script.append(0, 5);
    script.face.seek(&part(0), 10).unwrap();
    assert_eq!(rest(&mut script), [10, 11, 12, 13, 14]);
}

#[test]
fn under_a_reset_policy_reading_goes_on_where_the_logs_part() {
    let mut script = reading("earliest");
    script.elect(0, 10);
    script.append(0, 5);
    assert_eq!(rest(&mut script), [10, 11, 12, 13, 14], "neither from 0 nor from the end");
    let stats = script.face.stats();
    assert_eq!((stats.resets, stats.truncations, stats.recreations), (1, 1, 0));
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 15);
}

#[test]
fn what_is_in_hand_before_the_logs_part_is_not_committed_before_the_next_poll() {
    let mut script = Script::new(&[("auto.offset.reset", "earliest")]);
    (0..2).for_each(|_| script.append(0, 5));
    // Both come in one fetch.
    let log = script.logs[&0].clone();
    let both: Vec<u8> = log.iter().flat_map(|(.., batch)| batch.to_vec()).collect();
    script.logs.insert(0, vec![(0, 10, both.into())]);
    script.subscribe();
    assert_eq!(script.offsets(2), [0, 1]);
    assert_eq!(script.offsets(6), [2, 3, 4, 5, 6, 7]);
    script.logs.insert(0, log);
    script.elect(0, 5);
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 2, "2 to 4 are being worked on");
    script.append(0, 5);
    assert_eq!(rest(&mut script), [5, 6, 7, 8, 9]);
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 10);
}

#[test]
fn a_topic_created_anew_is_read_from_its_beginning() {
    for policy in ["earliest", "latest"] {
        let mut script = reading(policy);
        script.recreate();
        script.append(0, 5);
        assert_eq!(rest(&mut script), [0, 1, 2, 3, 4], "{policy}: none of it was skipped before");
        let stats = script.face.stats();
        assert_eq!((stats.resets, stats.truncations, stats.recreations), (1, 0, 1));
    }
}

#[test]
fn what_was_read_of_a_topic_is_not_committed_for_the_one_created_anew() {
    let mut script = reading("earliest");
    let last = script.take(5).unwrap();
    script.committed.clear();
    script.seen.clear();
    script.recreate();
    // The commit is due when the new topic is heard of.
    script.pass(Duration::from_secs(6));
    let commits = script.seen.iter().filter(|seen| seen.starts_with("commit"));
    assert!(commits.clone().all(|commit| commit == "commit 0:0"), "{:?}", script.seen);
    assert_eq!(script.commit_refused(&last).unwrap(), ErrorKind::CommitFenced);
    script.append(0, 5);
    assert_eq!(rest(&mut script), [0, 1, 2, 3, 4]);
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 5);
}

#[test]
fn what_was_acknowledged_of_a_topic_is_not_finished_of_the_one_created_anew() {
    let mut script = Script::new(&[("acknowledgement.mode", "explicit")]);
    script.append(0, 10);
    script.subscribe();
    let batch = script.take(10).unwrap();
    script.face.acknowledge(&batch.shared, 0..10).unwrap();
    script.recreate();
    script.append(0, 5);
    assert_eq!(rest(&mut script), [0, 1, 2, 3, 4]);
    let refused = script.face.acknowledge(&batch.shared, 0..1).expect_err("it is gone");
    assert_eq!(refused.kind(), ErrorKind::CommitFenced);
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 0);
}

#[test]
fn without_a_policy_a_topic_created_anew_is_told() {
    let mut script = reading("none");
    script.recreate();
    script.append(0, 40);
    let error = fault(&mut script);
    assert_eq!(error.kind(), ErrorKind::DataLost);
    assert!(error.to_string().contains("read up to offset 20"), "{error}");
    assert_eq!(rest(&mut script), Vec::<i64>::new(), "offset 20 of the new one is another record");
}

/// confluentinc/librdkafka#4447: a name that could not be resolved became a reset of the offset.
#[test]
fn no_fault_of_the_network_moves_a_position() {
    let mut script = reading("earliest");
    for _ in 0..20 {
        script.disconnect();
        script.pass(Duration::from_secs(2));
    }
    assert_eq!(rest(&mut script), (20..30).collect::<Vec<_>>());
    assert_eq!(script.face.stats().resets, 0);
}

#[test]
fn the_lag_counts_what_was_not_given_out_yet() {
    let mut script = Script::reading(&[]);
    assert_eq!(script.face.lag(&part(3)), None, "not assigned");
    script.append(0, 10);
    script.append(0, 10);
    script.release_held();
    script.run();
    assert_eq!(script.face.lag(&part(0)), Some(20));
    script.offsets(4);
    assert_eq!(script.face.lag(&part(0)), Some(16));
    assert_eq!(rest(&mut script).len(), 16);
    assert_eq!(script.face.lag(&part(0)), Some(0));
}

#[test]
fn offsets_are_looked_up_also_of_partitions_that_are_not_assigned() {
    let mut script = Script::reading(&[]);
    script.append(3, 7);
    script.log_starts.insert(3, 2);
    let (promise, deadline) = (Promise::new(), script.now + Duration::from_mins(1));
    let known = std::sync::Arc::clone(&promise);
    let wanted = vec![(part(3), Start::Earliest), (part(0), Start::Latest)];
    script.face.command(Command::Offsets { wanted, deadline, promise: known }).unwrap();
    script.run();
    let found = promise.wait(Duration::ZERO, "the offsets").unwrap();
    let offset = |index| found[&part(index)].map(|found| found.offset);
    assert_eq!((offset(3), offset(0)), (Some(2), Some(0)));
}

/// A transaction ends with a record of its own, which most often comes by another fetch.
#[test]
fn what_is_never_shown_is_committed_with_what_was_read_before_it() {
    let mut script = Script::new(&[]);
    script.append(0, 10);
    script.append_control(0);
    script.subscribe();
    assert_eq!(rest(&mut script), (0..10).collect::<Vec<_>>());
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 11, "else the group is behind for ever");
    assert_eq!(script.face.lag(&part(0)), Some(0));
}

#[test]
fn a_new_place_is_committed_when_all_that_was_fetched_before_it_is_finished() {
    let mut script = reading("earliest");
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 10, "the second batch is worked on");
    // All but the first batch is gone, and no epoch tells: what comes next is out of range.
    script.cut(0, 10);
    script.pass(Duration::from_secs(6));
    assert_eq!(script.face.stats().resets, 1);
    assert_eq!(script.committed[&0], 10, "neither is what is ready finished");
    assert_eq!(script.offsets(5), (20..25).collect::<Vec<_>>());
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 20);
    assert_eq!(script.offsets(5), (25..30).collect::<Vec<_>>());
    assert_eq!(script.offsets(5), (0..5).collect::<Vec<_>>());
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 0, "from here on the new place counts");
    assert_eq!(script.offsets(5), (5..10).collect::<Vec<_>>());
    assert_eq!(script.face.position(&part(0)), Some(10));
    script.offsets(5);
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 10);
    assert_eq!(script.face.stats().dropped_records, 0);
}

#[test]
fn a_topic_that_was_not_shown_at_first_is_not_taken_for_a_new_one() {
    let mut script = Script::new(&[("auto.offset.reset", "latest")]);
    script.append(0, 10);
    script.refuse.push_back((ApiKey::Metadata, ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    script.subscribe();
    script.pass(Duration::from_secs(10));
    assert!(script.refuse.is_empty());
    script.append(0, 5);
    assert_eq!(rest(&mut script), (10..15).collect::<Vec<_>>());
}

#[test]
fn an_offset_found_while_nothing_was_known_of_the_topic_is_none_of_its_successor() {
    let mut script = Script::new(&[]);
    script.append(0, 10);
    script.committed.insert(0, 5);
    script.refuse.push_back((ApiKey::Metadata, ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    script.subscribe();
    script.run();
    assert!(script.refuse.is_empty());
    script.committed.clear();
    script.recreate();
    script.append(0, 10);
    script.pass(Duration::from_secs(10));
    assert_eq!(rest(&mut script), (0..10).collect::<Vec<_>>());
}
