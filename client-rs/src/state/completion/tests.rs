//! What those are told who wait for a batch, alone or by a queue.

use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;

use super::*;
use crate::error::ErrorKind;

#[derive(Default)]
struct Count(AtomicU32);

impl std::task::Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn task() -> (Arc<Count>, Who) {
    let count = Arc::new(Count::default());
    (Arc::clone(&count), Who::Sleeper(Sleeper::Task(Waker::from(count))))
}

const fn stored(base_offset: i64) -> Outcome {
    Outcome::Stored { base_offset, append_time: -1 }
}

/// Of the record of this index, which was sent at 100.
const fn stamp(index: u32) -> Stamp {
    Stamp { index, timestamp: 100 }
}

fn offset(batch: &Completion, index: u32) -> i64 {
    batch.result(stamp(index)).expect("resolved").expect("stored").offset
}

#[test]
fn records_get_their_own_offsets_and_times() {
    let batch = Completion::new(1, &"t".into(), 3);
    assert!(batch.result(stamp(0)).is_none());
    assert!(!batch.is_known(0));
    batch.resolve(stored(40));
    assert!(batch.is_known(0));
    let third = batch.result(Stamp { index: 2, timestamp: 90 }).unwrap().unwrap();
    assert_eq!((third.partition, third.offset, third.timestamp), (3, 42, 90));
    assert_eq!(batch.result(stamp(1)).unwrap().unwrap().timestamp, 100);
}

#[test]
fn a_duplicate_and_an_append_time_hold_for_the_whole_batch() {
    let batch = Completion::new(1, &"t".into(), 0);
    batch.resolve(Outcome::Stored { base_offset: -1, append_time: 7 });
    let delivery = batch.result(stamp(2)).unwrap().unwrap();
    assert_eq!((delivery.offset, delivery.timestamp), (-1, 7));
}

#[test]
fn an_offset_at_the_end_of_all_numbers_is_no_panic() {
    let batch = Completion::new(1, &"t".into(), 0);
    batch.resolve(stored(i64::MAX));
    assert_eq!(offset(&batch, 1), i64::MAX);
}

#[test]
fn one_task_that_waits_for_all_records_of_a_batch_is_woken_once() {
    let batch = Completion::new(1, &"t".into(), 0);
    let (count, who) = task();
    for index in 0..1000 {
        assert!(batch.register(index, who.clone()));
    }
    assert_eq!(batch.resolve(stored(0)), 1);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(!batch.register(0, who), "nothing to wait for any more");
}

#[test]
fn those_who_wait_for_staged_records_are_passed_on_with_them() {
    let topic: Arc<str> = "t".into();
    let staged = Completion::staged(1, &topic);
    let (first, second) = (task(), task());
    assert!(staged.register(0, first.1));
    assert!(staged.register(1, second.1.clone()));
    let (left, right) = (Completion::new(2, &topic, 0), Completion::new(3, &topic, 1));
    let mut forward = Forward::default();
    forward.push(&left, 0);
    forward.push(&right, 5);
    forward.push(&left, 1);
    staged.resolve(Outcome::Forwarded(forward));
    assert!(staged.result(stamp(0)).is_none() && !staged.is_known(0));
    left.resolve(stored(10));
    assert_eq!(first.0.0.load(Ordering::SeqCst), 1);
    assert_eq!(second.0.0.load(Ordering::SeqCst), 0);
    assert_eq!((offset(&staged, 0), offset(&staged, 2)), (10, 11));
    assert_eq!((staged.is_known(0), staged.is_known(1)), (true, false));
    assert!(staged.register(1, second.1), "late comers wait at the real batch");
    right.resolve(stored(20));
    assert_eq!(offset(&staged, 1), 25);
    assert!(second.0.0.load(Ordering::SeqCst) >= 1);
}

#[test]
fn a_queue_is_signalled_on_its_first_batch_only() {
    let topic: Arc<str> = "t".into();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let queue = Completions::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    for id in 0..3 {
        let batch = Completion::new(id, &topic, 0);
        for index in 0..10 {
            batch.register(index, Who::Queue(Arc::clone(&queue), Arc::clone(&batch)));
        }
        batch.resolve(Outcome::Failed(Error::new(ErrorKind::Internal, "x")));
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(queue.drain(2).iter().map(Completed::batch_id).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(queue.drain(9).len(), 1);
    assert!(queue.is_empty());
}

/// A program that looks while batches end may find a later one first.
#[test]
fn records_come_in_the_order_of_their_partition_though_batches_end_meanwhile() {
    let topic: Arc<str> = "t".into();
    let staged = Completion::staged(1, &topic);
    let [first, second] = [2, 3].map(|id| Completion::new(id, &topic, 0));
    let other = Completion::new(4, &topic, 1);
    let mut forward = Forward::default();
    for target in [&first, &second, &other] {
        forward.push(target, 0);
    }
    staged.resolve(Outcome::Forwarded(forward));
    second.resolve(stored(10));
    other.resolve(stored(20));
    let batch = Completed { batch: staged, _charge: None };
    let mut records = vec![(stamp(0), 'a'), (stamp(1), 'b'), (stamp(2), 'c')];
    let mut told = Vec::new();
    batch.take_results(&mut records, |opaque, _| told.push(opaque));
    assert_eq!(told, ['c']);
    assert_eq!(records, [(stamp(0), 'a'), (stamp(1), 'b')]);
    first.resolve(stored(9));
    batch.take_results(&mut records, |opaque, _| told.push(opaque));
    assert_eq!((&told[..], &records[..]), (&['c', 'a', 'b'][..], &[][..]));
}

#[test]
fn a_batch_counts_until_what_was_drained_is_dropped() {
    let memory = Memory::new(1 << 20);
    let queue = Completions::new(|| ());
    let staged = Completion::staged(1, &"t".into());
    let batch = Completion::new(2, &"t".into(), 0);
    batch.weigh(&memory, 1000, 10);
    let mut forward = Forward::default();
    (0..10).for_each(|index| forward.push(&batch, index));
    for known in [&staged, &batch] {
        // Each batch that the queue gets tells of the same records.
        known.register(3, Who::Queue(Arc::clone(&queue), Arc::clone(known)));
    }
    staged.resolve(Outcome::Forwarded(forward));
    assert_eq!(memory.used(), 0);
    batch.resolve(stored(0));
    let counted = 1000 + 10 * RECORD_OVERHEAD + BATCH_OVERHEAD;
    assert_eq!(memory.used(), counted, "once, though it is there twice");
    let drained = queue.drain(9);
    assert_eq!((drained.len(), memory.used()), (2, counted));
    drop(drained);
    assert_eq!(memory.used(), 0);
    // A record that is asked about late counts for its own part.
    queue.push(Arc::clone(&staged), staged.share(3));
    assert_eq!(memory.used(), 100 + RECORD_OVERHEAD + BATCH_OVERHEAD);
    queue.close();
    assert_eq!(memory.used(), 0);
    queue.push(Arc::clone(&batch), batch.share(3));
    assert_eq!((memory.used(), queue.drain(9).len()), (0, 0), "it takes no more");
}

#[test]
fn one_who_looks_again_and_again_for_a_staged_record_is_told_once() {
    let staged = Completion::staged(1, &"t".into());
    let (count, who) = task();
    for _ in 0..1000 {
        assert!(staged.register(0, who.clone()));
    }
    assert_eq!(staged.resolve(Outcome::Failed(Error::new(ErrorKind::Internal, "x"))), 1);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
}

/// Also when the batch is one of a partition, whose records part only if it is too large.
#[test]
fn one_who_waits_for_many_records_of_a_batch_that_is_parted_is_told_of_each_part() {
    let topic: Arc<str> = "t".into();
    for partition in [3, -1] {
        let whole = Completion::new(1, &topic, partition);
        let parts = [2, 3, 4].map(|id| Completion::new(id, &topic, 3));
        let (count, who) = task();
        // In any order: others wait for what comes between.
        for index in [2, 1, 4, 3] {
            assert!(whole.register(index, who.clone()));
        }
        let mut forward = Forward::default();
        for (part, index) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)] {
            forward.push(&parts[part], index);
        }
        assert_eq!(whole.resolve(Outcome::Forwarded(forward)), 0);
        for (part, wakes) in parts.iter().zip([1, 2, 2]) {
            part.resolve(stored(0));
            assert_eq!(count.0.load(Ordering::SeqCst), wakes, "partition {partition}");
        }
    }
}
