//! Tests of the machine as a whole, in virtual time.

mod acknowledging;
mod assigning;
mod closing;
mod cooperative;
mod counting;
mod events;
mod finishing;
mod leading;
mod listening;
mod matching;
mod pausing;
mod positions;
mod refusals;
mod script;
mod waking;

use std::time::Duration;

use script::{Script, part};

use crate::consumer::face::{Command, Look};
use crate::error::ErrorKind;

/// confluentinc/confluent-kafka-python#1443: records read ahead came after a seek back.
#[test]
fn a_seek_back_gives_the_same_records_and_then_the_next() {
    let mut script = Script::reading(&[]);
    for _ in 0..10 {
        script.append(0, 100);
    }
    script.release_held();
    script.run();
    for round in 0..20 {
        let from = round * 5;
        let first = script.offsets(5);
        assert_eq!(first, (from..from + 5).collect::<Vec<_>>());
        script.face.seek(&part(0), from).unwrap();
        assert_eq!(script.face.position(&part(0)), Some(from));
        script.run();
        assert_eq!(script.offsets(5), first, "round {round}");
    }
}

#[test]
fn a_seek_does_not_wait_for_a_fetch_that_the_broker_holds() {
    let mut script = Script::reading(&[]);
    script.append(0, 10);
    script.release_held();
    script.run();
    assert_eq!(script.offsets(10).len(), 10);
    for round in 0..50 {
        script.face.set_paused(&[part(0)], true).unwrap();
        script.face.seek(&part(0), round % 10).unwrap();
        script.face.set_paused(&[part(0)], false).unwrap();
        script.run();
        assert_eq!(script.offsets(1), [round % 10], "no time has passed");
    }
}

/// confluentinc/librdkafka#2782: what was read before a partition went away must not move the
/// commit of the member that had it meanwhile.
#[test]
fn a_partition_that_was_another_members_begins_at_its_commit() {
    let mut script = Script::reading(&[]);
    script.append(0, 300);
    script.release_held();
    script.run();
    let old = script.take(100).unwrap();
    script.commit(&old);
    let queued = script.take(50).unwrap();
    // To another member, which reads to 200; then back.
    (script.share, script.rebalance) = (vec![1], true);
    script.pass(Duration::from_secs(4));
    assert_eq!(script.offsets(1000), Vec::<i64>::new(), "the poll lets the partition go");
    script.run();
    assert_eq!(script.face.partitions(), [part(1)]);
    script.committed.insert(0, 200);
    (script.share, script.rebalance) = (vec![0], true);
    script.pass(Duration::from_secs(4));
    script.run();
    assert_eq!(script.face.partitions(), [part(0)]);
    script.seen.clear();
    script.commit(&queued);
    script.commit(&old);
    assert_eq!(script.seen, Vec::<String>::new(), "marks of the lost lease go nowhere");
    assert_eq!(script.offsets(1000), (200..300).collect::<Vec<_>>());
    script.pass(Duration::from_secs(30));
    assert_eq!(script.committed[&0], 200, "what is not finished is not committed");
    assert_eq!(script.offsets(10), Vec::<i64>::new());
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 300);
}

#[test]
fn a_compacted_gap_is_passed_without_asking_twice() {
    let mut script = Script::new(&[]);
    script.append(0, 10);
    script.append(0, 10);
    script.append(0, 5);
    // Of the second batch only what lies before 15 is left.
    let log = script.logs.get_mut(&0).unwrap();
    let mut builder = ottla_protocol::record::BatchBuilder::default();
    builder.push(1, None, Some(b"10"), ottla_protocol::record::NO_HEADERS).unwrap();
    builder.skip(9);
    let seal = ottla_protocol::record::BatchSeal { base_offset: 10, ..Default::default() };
    log[1].2 = builder.finish(&seal).unwrap();
    script.committed.insert(0, 15);
    script.face.subscribe(Command::Subscribe(vec!["t".into()])).unwrap();
    script.run();
    assert_eq!(script.offsets(1000), (20..25).collect::<Vec<_>>());
    let fetches: Vec<_> = script.seen.iter().filter(|seen| seen.starts_with("fetch")).collect();
    assert_eq!(fetches, ["fetch 0:15", "fetch 0:20", "fetch 0:25"]);
}

#[test]
fn a_rebalance_waits_for_the_work_in_hand_and_commits_it() {
    let mut script = Script::reading(&[]);
    script.append(0, 30);
    script.append(1, 30);
    script.release_held();
    script.run();
    assert_eq!(script.offsets(10), (0..10).collect::<Vec<_>>());
    (script.share, script.rebalance) = (vec![0, 1], true);
    script.seen.clear();
    script.pass(Duration::from_mins(1));
    script.seen.retain(|seen| !seen.starts_with("fetch"));
    assert_eq!(script.seen, Vec::<String>::new(), "the records given out are still worked on");
    assert_eq!(script.face.partitions().len(), 1);
    assert_eq!(script.offsets(10), Vec::<i64>::new(), "nothing is given while it is shared out");
    let commits: Vec<_> = script.seen.iter().take(2).collect();
    assert_eq!(commits, ["commit 0:10", "join"]);
    script.run();
    let mut got = script.offsets(1000);
    got.extend(script.offsets(1000));
    got.sort_unstable();
    let mut wanted: Vec<i64> = (10..30).chain(0..30).collect();
    wanted.sort_unstable();
    assert_eq!(got, wanted, "what was kept goes on behind the work done, without a record twice");
    let again = script.seen.iter().filter(|seen| seen.contains("0:0") || seen.contains("0:10"));
    assert_eq!(again.count(), 1, "what was fetched is kept: {:?}", script.seen);
}

#[test]
fn the_work_in_hand_can_be_committed_while_a_rebalance_waits_for_it() {
    let mut script = Script::reading(&[("enable.auto.commit", "false")]);
    script.append(0, 30);
    script.release_held();
    script.run();
    let batch = script.take(10).unwrap();
    script.rebalance = true;
    script.pass(Duration::from_secs(4));
    script.commit(&batch);
    assert_eq!(script.committed[&0], 10);
    assert!(!script.seen.contains(&"join 2".to_owned()));
}

#[test]
fn a_member_the_group_forgot_commits_nothing_of_it() {
    let mut script = Script::reading(&[]);
    script.append(0, 30);
    script.release_held();
    script.run();
    script.offsets(10);
    script.offsets(10);
    script.forgotten = true;
    script.committed.insert(0, 25);
    script.pass(Duration::from_secs(4));
    assert_eq!(script.committed[&0], 25);
    assert_eq!(script.offsets(1000), (25..30).collect::<Vec<_>>());
    script.offsets(1);
    script.pass(Duration::from_secs(6));
    assert_eq!(script.committed[&0], 30);
}

#[test]
fn an_open_record_is_not_committed_at_close_and_a_finished_one_is() {
    for (polls_again, committed) in [(false, 10), (true, 20)] {
        let mut script = Script::reading(&[]);
        script.append(0, 20);
        script.release_held();
        script.run();
        script.offsets(10);
        script.offsets(10);
        if polls_again {
            script.offsets(10);
        }
        let deadline = script.now + Duration::from_secs(5);
        script.face.command_close(deadline);
        script.run();
        assert!(script.ended);
        assert_eq!(script.committed[&0], committed);
        assert_eq!(script.seen.last().unwrap(), "leave");
        assert!(script.closed.wait(Duration::ZERO, "it").is_ok());
        assert_eq!(script.face.ended().unwrap().kind(), ErrorKind::Closed);
    }
}

#[test]
fn a_close_without_a_coordinator_ends_at_its_deadline_and_says_so() {
    let mut script = Script::reading(&[]);
    script.append(0, 20);
    script.release_held();
    script.run();
    script.offsets(10);
    script.offsets(10);
    script.rebalance = true;
    script.forgotten = false;
    // Nothing is answered any more.
    script.face.command_close(script.now + Duration::from_secs(2));
    script.turn_alone();
    assert!(!script.ended);
    script.now += Duration::from_secs(2);
    script.turn_alone();
    assert!(script.ended);
    let error = script.closed.wait(Duration::ZERO, "it").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[test]
fn a_late_poll_gives_the_partitions_up_and_the_next_one_gets_them_back() {
    let mut script = Script::reading(&[("max.poll.interval.ms", "10000")]);
    script.append(0, 30);
    script.release_held();
    script.run();
    script.offsets(10);
    script.offsets(10);
    script.seen.clear();
    script.pass(Duration::from_secs(12));
    let told: Vec<_> = script.seen.iter().filter(|seen| !seen.starts_with("fetch")).collect();
    assert_eq!(told.last().unwrap().as_str(), "leave");
    assert_eq!(script.committed[&0], 10, "the finished work is committed before");
    assert!(script.face.partitions().is_empty());
    script.pass(Duration::from_mins(1));
    assert_eq!(script.offsets(10), Vec::<i64>::new());
    script.run();
    assert_eq!(script.offsets(10), (10..20).collect::<Vec<_>>());
}

#[test]
fn an_offset_cut_from_the_log_goes_by_the_reset_policy() {
    for (reset, wanted) in [("earliest", Some(20)), ("latest", Some(30)), ("none", None)] {
        let mut script = Script::new(&[("auto.offset.reset", reset)]);
        script.append(0, 20);
        script.append(0, 10);
        script.log_starts.insert(0, 20);
        script.committed.insert(0, 3);
        script.face.subscribe(Command::Subscribe(vec!["t".into()])).unwrap();
        script.run();
        if wanted.is_none() {
            let want = crate::consumer::face::OneRecord;
            let Err(error) = script.face.look(&want, None) else { panic!("an error is due") };
            assert_eq!(error.kind(), ErrorKind::OffsetOutOfRange);
            assert_eq!((error.topic(), error.partition()), (Some("t"), Some(0)));
            script.face.seek(&part(0), 25).unwrap();
            script.run();
            assert_eq!(script.offsets(9), (25..30).collect::<Vec<_>>());
        } else {
            script.append(0, 1);
            script.release_held();
            script.run();
            assert_eq!(script.offsets(1000).first().copied(), wanted);
        }
    }
}

#[test]
fn a_partition_that_came_after_the_group_begins_at_its_beginning() {
    let mut script = Script::new(&[("auto.offset.reset", "latest")]);
    script.append(0, 5);
    script.face.subscribe(Command::Subscribe(vec!["t".into()])).unwrap();
    script.run();
    assert_eq!(script.offsets(10), Vec::<i64>::new(), "it begins at the end of what was there");
    script.logs.insert(4, Vec::new());
    script.append(4, 7);
    (script.share, script.rebalance) = (vec![0, 4], true);
    script.pass(Duration::from_secs(4));
    script.run();
    assert_eq!(script.offsets(10), (0..7).collect::<Vec<_>>());
}

#[test]
fn a_lost_connection_costs_nothing_but_the_time_to_ask_again() {
    let mut script = Script::reading(&[]);
    script.append(0, 5);
    script.disconnect();
    script.run();
    assert_eq!(script.offsets(10), Vec::<i64>::new());
    script.pass(Duration::from_secs(2));
    assert_eq!(script.offsets(10), (0..5).collect::<Vec<_>>());
}

#[test]
fn pausing_keeps_what_was_fetched() {
    let mut script = Script::reading(&[]);
    script.append(0, 10);
    script.release_held();
    script.run();
    assert_eq!(script.offsets(3), [0, 1, 2]);
    script.face.set_paused(&[part(0)], true).unwrap();
    script.run();
    assert_eq!(script.offsets(3), Vec::<i64>::new());
    script.seen.clear();
    script.face.set_paused(&[part(0)], false).unwrap();
    assert_eq!(script.offsets(3), [3, 4, 5]);
    assert_eq!(script.offsets(30), [6, 7, 8, 9]);
    assert!(!script.seen.iter().any(|seen| seen.contains("0:0")), "{:?}", script.seen);
}

#[test]
fn a_damaged_record_is_an_error_that_a_seek_passes() {
    let mut script = Script::new(&[("check.crcs", "false")]);
    script.append(0, 5);
    script.append(0, 5);
    let log = script.logs.get_mut(&0).unwrap();
    let mut bytes = log[0].2.to_vec();
    bytes[61] = 0x7e;
    log[0].2 = bytes.into();
    script.face.subscribe(Command::Subscribe(vec!["t".into()])).unwrap();
    script.run();
    for _ in 0..2 {
        let want = crate::consumer::face::OneRecord;
        let Err(error) = script.face.look(&want, None) else { panic!("an error is due") };
        assert_eq!(error.kind(), ErrorKind::CorruptBatch);
        assert_eq!((error.topic(), error.partition()), (Some("t"), Some(0)));
        assert!(error.to_string().contains("offset 0 of t-0"), "{error}");
        script.run();
    }
    script.face.seek(&part(0), 5).unwrap();
    script.run();
    assert_eq!(script.offsets(9), (5..10).collect::<Vec<_>>());
}

#[test]
fn a_topic_that_does_not_exist_is_told_to_who_waits() {
    let mut script = Script::new(&[]);
    script.share = Vec::new();
    script.face.subscribe(Command::Subscribe(vec!["nope".into()])).unwrap();
    script.run();
    let want = crate::consumer::face::OneRecord;
    assert!(script.face.take(&want, Duration::ZERO, |_| ()).unwrap().is_none(), "not at once");
    script.pass(Duration::from_secs(2));
    let error = script.face.take(&want, Duration::ZERO, |_| ()).unwrap_err();
    assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some("nope")));
    script.pass(Duration::from_secs(10));
    assert!(script.face.look(&want, None).is_err(), "told once to who waits without an end");
    assert!(script.face.look(&want, None).is_ok());
}

#[test]
fn the_hook_is_called_when_something_comes_and_not_again_before_a_poll_found_nothing() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    let calls = Arc::new(AtomicU32::new(0));
    let mut script = Script::reading(&[]);
    let counted = Arc::clone(&calls);
    script.face.set_on_ready(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    for _ in 0..3 {
        script.append(0, 5);
        script.release_held();
        script.run();
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    for _ in 0..3 {
        assert_eq!(script.offsets(100).len(), 5);
    }
    assert_eq!(script.offsets(100).len(), 0);
    script.append(0, 5);
    script.release_held();
    script.run();
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    script.face.wakeup();
    assert_eq!(calls.load(Ordering::SeqCst), 2, "signalled already");
}

#[test]
fn records_given_back_are_given_again_unless_their_partition_was_moved() {
    let mut script = Script::reading(&[]);
    script.append(0, 30);
    script.release_held();
    script.run();
    let batch = script.take(1000).unwrap();
    assert!(script.face.progress(&batch.shared, 4, 5));
    script.face.give_back(&batch.shared, 5);
    assert_eq!(script.face.position(&part(0)), Some(5));
    assert_eq!(script.offsets(3), (5..8).collect::<Vec<_>>());
    let rest = script.take(1000).unwrap();
    script.face.set_paused(&[part(0)], true).unwrap();
    assert!(!script.face.progress(&rest.shared, 10, 11));
    script.face.give_back(&rest.shared, 11);
    assert_eq!(script.offsets(1000), Vec::<i64>::new());
    script.face.set_paused(&[part(0)], false).unwrap();
    let rest = script.take(1000).unwrap();
    assert_eq!(rest.base_offset(), 11);
    script.face.seek(&part(0), 20).unwrap();
    assert!(!script.face.progress(&rest.shared, 12, 13));
    script.face.give_back(&rest.shared, 13);
    script.run();
    assert_eq!(script.offsets(1000), (20..30).collect::<Vec<_>>());
}

#[test]
fn a_rebalance_waits_for_the_record_in_hand_of_a_batch_that_is_handed_on() {
    let mut script = Script::reading(&[]);
    script.append(0, 30);
    script.release_held();
    script.run();
    let batch = script.take(1000).unwrap();
    assert!(script.face.progress(&batch.shared, 9, 10));
    script.rebalance = true;
    script.seen.clear();
    script.pass(Duration::from_secs(10));
    assert!(!script.seen.iter().any(|seen| seen.contains("join")), "{:?}", script.seen);
    // The program asks for the next one, and so is through with the tenth.
    assert!(!script.face.progress(&batch.shared, 10, 11));
    script.face.give_back(&batch.shared, 10);
    script.run();
    script.seen.retain(|seen| !seen.starts_with("fetch"));
    let first: Vec<_> = script.seen.iter().take(2).collect();
    assert_eq!(first, ["commit 0:10", "join"]);
    assert_eq!(
        script.offsets(1000),
        (10..30).collect::<Vec<_>>(),
        "none is lost, none comes twice"
    );
}

#[test]
fn after_an_unsubscribe_nothing_is_given_out_also_while_the_group_is_being_left() {
    let mut script = Script::reading(&[]);
    script.append(0, 30);
    script.release_held();
    script.run();
    assert_eq!(script.offsets(10), (0..10).collect::<Vec<_>>());
    script.face.unsubscribe().unwrap();
    assert!(matches!(script.look(10), Look::Nothing), "the machine has not heard of it yet");
    script.run();
    assert_eq!((script.committed[&0], script.face.partitions()), (10, vec![]));
    // Subscribed anew, reading goes on; also if the machine hears of both at once.
    script.subscribe();
    assert_eq!(script.offsets(10), (10..20).collect::<Vec<_>>());
    // What is in the program's hands then is not finished.
    script.face.unsubscribe().unwrap();
    script.subscribe();
    assert_eq!(script.offsets(10), (10..20).collect::<Vec<_>>());
}

#[test]
fn a_member_tells_its_group_where_it_stands() {
    for (rack, told) in [("", None), ("east", Some("east"))] {
        let script = Script::reading(&[("client.rack", rack)]);
        assert_eq!(script.joined_from.as_deref(), told);
    }
}
