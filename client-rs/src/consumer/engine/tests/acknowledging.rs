//! Records that the program finishes itself, each when it is done with it.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::record::HEADER_LEN;

use super::script::{Script, part};
use crate::consumer::batch::Batch;
use crate::consumer::promise::Promise;
use crate::error::{Error, ErrorKind};

const EXPLICIT: &[(&str, &str)] =
    &[("acknowledgement.mode", "explicit"), ("enable.auto.commit", "false")];

/// A member that reads a log of so many records, in batches of ten.
fn reading(records: i64) -> Script {
    let mut script = Script::new(EXPLICIT);
    (0..records / 10).for_each(|_| script.append(0, 10));
    script.subscribe();
    script
}

/// Another member reads the same log, from where the group has come to.
fn next_of(script: Script) -> Script {
    let mut next = Script::new(EXPLICIT);
    (next.logs, next.epoch) = (script.logs, script.epoch);
    (next.committed, next.texts) = (script.committed, script.texts);
    next.subscribe();
    next
}

/// All that there is to read.
fn take_all(script: &mut Script) -> Vec<Batch> {
    std::iter::from_fn(|| script.take(1_000)).collect()
}

fn offsets(batches: &[Batch]) -> Vec<i64> {
    batches.iter().flat_map(Batch::records).map(|record| record.offset).collect()
}

/// The program is done with the records at these offsets, in this order.
fn acknowledge(script: &Script, batches: &[Batch], offsets: &[i64]) -> Result<(), Error> {
    offsets.iter().try_for_each(|&offset| {
        let batch =
            batches.iter().find(|batch| offset <= batch.last_offset()).expect("it was given");
        let index = batch.shared.index_of(offset);
        script.face.acknowledge(&batch.shared, index..index + 1)
    })
}

/// Commits what is finished; where the group stands then.
fn commit(script: &mut Script) -> (Option<i64>, String) {
    let (promise, deadline) = (Promise::new(), script.now + Duration::from_mins(1));
    if script.face.commit_finished(deadline, Some(Arc::clone(&promise))).unwrap() {
        script.run();
        script.pass(Duration::from_secs(2));
        promise.wait(Duration::ZERO, "the commit").unwrap();
    }
    (script.committed.get(&0).copied(), script.texts.get(&0).cloned().unwrap_or_default())
}

#[test]
fn no_poll_finishes_a_record_but_the_program_does() {
    let mut script = reading(20);
    let batches = take_all(&mut script);
    assert_eq!(offsets(&batches), (0..20).collect::<Vec<_>>());
    assert_eq!(commit(&mut script), (Some(0), String::new()), "the beginning, and nothing more");
    acknowledge(&script, &batches, &[0, 1]).unwrap();
    assert_eq!(commit(&mut script), (Some(2), String::new()));
    let last = batches.last().unwrap();
    script.face.acknowledge(&last.shared, 0..last.shared.len()).unwrap();
    let (offset, text) = commit(&mut script);
    assert_eq!(offset, Some(if batches.len() == 1 { 20 } else { 2 }), "{text}");
}

#[test]
fn who_reads_on_is_given_what_is_unfinished_and_nothing_else() {
    let mut script = reading(40);
    let batches = take_all(&mut script);
    acknowledge(&script, &batches, &[17, 3, 0, 4, 39, 18, 30, 2]).unwrap();
    assert_eq!(commit(&mut script), (Some(1), "ottla-finished-1:5:1+3,12+2,11+1,8+1".into()));
    let mut next = next_of(script);
    next.append(0, 3);
    next.release_held();
    next.run();
    let batches = take_all(&mut next);
    let finished = [0, 2, 3, 4, 17, 18, 30, 39];
    let expected: Vec<i64> = (0..43).filter(|offset| !finished.contains(offset)).collect();
    assert_eq!(offsets(&batches), expected);
    acknowledge(&next, &batches, &expected).unwrap();
    assert_eq!(commit(&mut next), (Some(43), String::new()));
}

#[test]
fn what_is_finished_is_kept_by_each_commit_until_it_is_come_to() {
    let mut script = reading(40);
    let batches = take_all(&mut script);
    acknowledge(&script, &batches, &[30, 31, 10]).unwrap();
    commit(&mut script);
    let mut next = next_of(script);
    let first = vec![next.take(5).unwrap()];
    acknowledge(&next, &first, &[1, 0]).unwrap();
    assert_eq!(commit(&mut next), (Some(2), "ottla-finished-1:5:8+1,19+2".into()));
    let third = &mut next_of(next);
    let rest = offsets(&take_all(third));
    assert_eq!((rest.len(), rest.contains(&10), rest.contains(&31)), (35, false, false));
}

#[test]
fn finished_records_at_the_end_of_a_log_are_committed_though_none_comes_after_them() {
    let mut script = reading(20);
    let batches = take_all(&mut script);
    acknowledge(&script, &batches, &[18, 19]).unwrap();
    assert_eq!(commit(&mut script), (Some(0), "ottla-finished-1:5:18+2".into()));
    let mut next = next_of(script);
    let batches = take_all(&mut next);
    assert_eq!(offsets(&batches), (0..18).collect::<Vec<_>>());
    acknowledge(&next, &batches, &offsets(&batches)).unwrap();
    assert_eq!(commit(&mut next), (Some(20), String::new()));
}

#[test]
fn what_is_never_shown_is_waited_for_by_nobody() {
    let mut script = Script::new(EXPLICIT);
    script.append(0, 10);
    script.append_control(0);
    script.append(0, 10);
    // All of it comes in one fetch.
    let bytes: Vec<u8> = script.logs[&0].iter().flat_map(|(.., batch)| batch.to_vec()).collect();
    script.logs.insert(0, vec![(0, 21, bytes.into())]);
    script.subscribe();
    let batches = take_all(&mut script);
    assert_eq!(offsets(&batches), (0..10).chain(11..21).collect::<Vec<_>>());
    acknowledge(&script, &batches, &(11..21).collect::<Vec<_>>()).unwrap();
    // Each by itself, the last of them in memory of its own.
    acknowledge(&script, &batches, &(0..9).collect::<Vec<_>>()).unwrap();
    assert_eq!(commit(&mut script), (Some(9), "ottla-finished-1:5:2+10".into()));
    let last = batches[0].record(9).unwrap().detached();
    script.face.acknowledge(&last.shared, 0..1).unwrap();
    assert_eq!(commit(&mut script), (Some(21), String::new()));
    script.append_control(0);
    script.release_held();
    script.run();
    assert!(script.take(10).is_none(), "there is nothing to give");
    assert_eq!(commit(&mut script), (Some(22), String::new()));
}

#[test]
fn what_another_has_or_what_was_read_before_a_seek_is_not_finished() {
    let mut script = reading(20);
    let batches = take_all(&mut script);
    acknowledge(&script, &batches, &[5]).unwrap();
    script.face.seek(&part(0), 8).unwrap();
    script.run();
    acknowledge(&script, &batches, &[9]).unwrap();
    assert_eq!(commit(&mut script), (Some(8), String::new()), "the program went there");
    let again = take_all(&mut script);
    assert_eq!(offsets(&again), (8..20).collect::<Vec<_>>());
    acknowledge(&script, &again, &[9]).unwrap();
    // Who had it before the seek may still be at work on it, and so may who has it now.
    acknowledge(&script, &batches, &[12]).unwrap();
    assert_eq!(commit(&mut script), (Some(8), "ottla-finished-1:5:1+1".into()));
    (script.share, script.rebalance) = (vec![1], true);
    script.pass(Duration::from_secs(4));
    assert!(script.take(1).is_none(), "the poll lets the partition go");
    script.run();
    assert_eq!(script.face.partitions(), [part(1)]);
    let refused = acknowledge(&script, &again, &[8]).expect_err("it is another's");
    assert_eq!(refused.kind(), ErrorKind::CommitFenced);
    (script.share, script.rebalance) = (vec![0], true);
    script.pass(Duration::from_secs(4));
    assert_eq!(script.face.partitions(), [part(0)]);
    let refused = acknowledge(&script, &again, &[8]).expect_err("it was another's meanwhile");
    assert_eq!(refused.kind(), ErrorKind::CommitFenced);
}

#[test]
fn a_partition_that_is_finished_in_too_many_pieces_waits_for_its_first_ones() {
    let mut script = reading(2_000);
    let mut batches = vec![script.take(1_100).unwrap()];
    while offsets(&batches).len() < 1_100 {
        batches.push(script.take(1_100 - offsets(&batches).len()).unwrap());
    }
    let odd: Vec<i64> = (0..512).map(|at| at * 2 + 1).collect();
    acknowledge(&script, &batches, &odd).unwrap();
    script.run();
    assert!(script.take(10).is_none(), "512 stretches are open, and one more behind them");
    let (offset, text) = commit(&mut script);
    assert_eq!((offset, text.matches('+').count()), (Some(0), 512));
    acknowledge(&script, &batches, &[0, 2]).unwrap();
    script.run();
    script.release_held();
    script.run();
    assert_eq!(script.offsets(2), [1_100, 1_101]);
}

#[test]
fn what_stands_in_the_place_of_finished_records_after_a_log_was_cut_short_is_given() {
    let mut script = reading(40);
    let batches = take_all(&mut script);
    acknowledge(&script, &batches, &[35, 25]).unwrap();
    commit(&mut script);
    script.elect(0, 20);
    script.append(0, 20);
    let mut next = next_of(script);
    assert_eq!(offsets(&take_all(&mut next)), (0..40).collect::<Vec<_>>());
}

#[test]
fn a_log_cut_short_while_it_is_read_keeps_what_is_in_hand_unfinished() {
    let mut script = reading(40);
    let batches = vec![script.take(15).unwrap()];
    let first = offsets(&batches).len();
    acknowledge(&script, &batches, &[3]).unwrap();
    script.elect(0, 30);
    script.append(0, 10);
    script.pass(Duration::from_secs(1));
    let rest = take_all(&mut script);
    assert_eq!(offsets(&rest).len() + first, 40);
    acknowledge(&script, &rest, &offsets(&rest)).unwrap();
    assert_eq!(commit(&mut script).0, Some(0), "three in hand are unfinished, and more");
    let others: Vec<i64> = offsets(&batches).into_iter().filter(|&offset| offset != 3).collect();
    acknowledge(&script, &batches, &others).unwrap();
    assert_eq!(commit(&mut script), (Some(40), String::new()));
}

#[test]
fn what_is_in_hand_before_a_log_was_cut_short_is_committed_only_when_it_is_finished() {
    let mut script = Script::new(EXPLICIT);
    (0..4).for_each(|_| script.append(0, 4));
    script.subscribe();
    let mut batches = Vec::new();
    while offsets(&batches).len() < 12 {
        batches.push(script.take(4).unwrap());
    }
    acknowledge(&script, &batches, &[0, 3]).unwrap();
    script.elect(0, 8);
    script.append(0, 12);
    script.pass(Duration::from_secs(1));
    // The last of what is in hand is gone, whatever the program does with it.
    acknowledge(&script, &batches, &[9, 10, 11]).unwrap();
    assert_eq!(commit(&mut script), (Some(1), "ottla-finished-1:5:2+1".into()));
    let rest = take_all(&mut script);
    assert_eq!(offsets(&rest), (8..20).collect::<Vec<_>>());
    acknowledge(&script, &batches, &[1, 2, 4, 5, 6]).unwrap();
    assert_eq!(commit(&mut script), (Some(7), String::new()));
    // What it holds of the log before is not what stands there now.
    acknowledge(&script, &batches, &[7, 8]).unwrap();
    assert_eq!(commit(&mut script), (Some(8), String::new()));
    acknowledge(&script, &rest, &offsets(&rest)).unwrap();
    assert_eq!(commit(&mut script), (Some(20), String::new()));
}

/// A broker need not look at the offsets within a batch that it stores as it came.
#[test]
fn records_whose_offsets_do_not_ascend_are_given_once_and_finished_without_harm() {
    let mut script = Script::new(&[EXPLICIT[0], EXPLICIT[1], ("check.crcs", "false")]);
    script.append(0, 3);
    let mut batch = script.logs[&0][0].2.to_vec();
    batch[23..27].copy_from_slice(&9_i32.to_be_bytes());
    let mut at = HEADER_LEN;
    for delta in [9, 8, 5] {
        batch[at + 3] = 2 * delta;
        at += 1 + usize::from(batch[at] / 2);
    }
    script.logs.insert(0, vec![(0, 10, batch.into())]);
    script.committed.insert(0, 0);
    script.texts.insert(0, "ottla-finished-1:5:5+1".into());
    script.subscribe();
    let batches: Vec<Batch> = std::iter::from_fn(|| script.take(1)).take(9).collect();
    assert_eq!(offsets(&batches), [9, 8], "and 5 was finished before");
    for batch in &batches {
        script.face.acknowledge(&batch.shared, 0..3).unwrap();
        script.face.acknowledge(&batch.shared, 1..2).unwrap();
    }
    assert_eq!(commit(&mut script), (Some(10), String::new()));
}

#[test]
fn a_coordinator_that_takes_no_such_text_is_told_the_offset_alone() {
    let mut script = reading(20);
    script.text_bytes_max = 10;
    let batches = take_all(&mut script);
    acknowledge(&script, &batches, &[0, 5]).unwrap();
    assert_eq!(commit(&mut script), (Some(1), String::new()));
    acknowledge(&script, &batches, &[7, 1]).unwrap();
    assert_eq!(commit(&mut script), (Some(2), String::new()));
    let refused = script.seen.iter().filter(|seen| seen.contains("refused")).count();
    assert_eq!(refused, 1, "it is tried once: {:?}", script.seen);
}

#[test]
fn where_polls_finish_records_nothing_is_acknowledged() {
    let mut script = Script::reading(&[]);
    script.append(0, 10);
    script.release_held();
    script.run();
    let batch = script.take(5).unwrap();
    let refused = script.face.acknowledge(&batch.shared, 0..1).expect_err("the mode is implicit");
    assert_eq!(refused.kind(), ErrorKind::InvalidState);
}
