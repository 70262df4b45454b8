//! What became of a batch: stored once, for all its records, and told to those who wait.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use super::guard::lock;
use super::parker::Sleeper;
use crate::error::Error;
use crate::process::Process;
use crate::record::Delivery;

/// The times of a batch's records: an entry where a time differs from that of the record before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times(Vec<(u32, i64)>);

impl Times {
    /// Notes the time of the record at `index`, the next one.
    #[inline]
    pub(crate) fn push(&mut self, index: u32, time: i64) {
        if self.0.last().is_none_or(|&(_, last)| last != time) {
            self.0.push((index, time));
        }
    }

    /// The time of a record.
    pub(crate) fn at(&self, index: u32) -> i64 {
        let after = self.0.partition_point(|&(first, _)| first <= index);
        after.checked_sub(1).and_then(|run| self.0.get(run)).map_or(-1, |&(_, time)| time)
    }
}

/// How a batch ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is stored.
    Stored {
        /// Offset of the first record; −1 if it is not known.
        base_offset: i64,
        /// The broker's time, if the topic's records get that; else −1.
        append_time: i64,
        /// The records' own times.
        times: Times,
    },
    /// It is not, or not for certain.
    Failed(Error),
    /// Its records have gone on to other batches.
    Forwarded(Forward),
}

/// Where each record of a batch went.
#[derive(Debug, Default)]
pub(crate) struct Forward {
    targets: Vec<Arc<Completion>>,
    /// Of each record: which of `targets`, and its index there.
    places: Vec<(u32, u32)>,
}

impl Forward {
    /// Notes where the next record went.
    pub(crate) fn push(&mut self, target: &Arc<Completion>, index: u32) {
        let known = self.targets.iter().rposition(|known| Arc::ptr_eq(known, target));
        let place = known.unwrap_or_else(|| {
            self.targets.push(Arc::clone(target));
            self.targets.len() - 1
        });
        self.places.push((u32::try_from(place).unwrap_or(u32::MAX), index));
    }

    fn get(&self, index: u32) -> Option<(&Arc<Completion>, u32)> {
        let &(target, index) = self.places.get(usize::try_from(index).ok()?)?;
        Some((self.targets.get(usize::try_from(target).ok()?)?, index))
    }
}

/// One batch, as those see it who hold a token of one of its records.
pub(crate) struct Completion {
    id: u64,
    topic: Arc<str>,
    partition: i32,
    outcome: OnceLock<Outcome>,
    waiters: Mutex<Vec<Waiter>>,
    process: Process,
}

struct Waiter {
    /// The record waited for, should they part.
    index: u32,
    who: Who,
}

/// Who is told.
#[derive(Clone)]
pub(crate) enum Who {
    /// A task or thread, woken.
    Sleeper(Sleeper),
    /// A queue, which gets the batch as its caller knows it.
    Queue(Arc<Completions>, Arc<Completion>),
}

impl Who {
    fn tell(self) {
        match self {
            Self::Sleeper(sleeper) => sleeper.wake(),
            Self::Queue(queue, batch) => queue.push(batch),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sleeper(one), Self::Sleeper(two)) => one.is_same(two),
            (Self::Queue(one, batch), Self::Queue(two, other)) => {
                Arc::ptr_eq(one, two) && Arc::ptr_eq(batch, other)
            }
            _ => false,
        }
    }
}

impl Completion {
    /// Of a batch of a partition.
    pub(crate) fn new(id: u64, topic: &Arc<str>, partition: i32) -> Arc<Self> {
        let (topic, outcome, waiters) = (Arc::clone(topic), OnceLock::new(), Mutex::default());
        let process = Process::current();
        Arc::new(Self { id, topic, partition, outcome, waiters, process })
    }

    /// Of records whose partitions are not chosen yet.
    pub(crate) fn staged(id: u64, topic: &Arc<str>) -> Arc<Self> {
        Self::new(id, topic, -1)
    }

    /// The batch's number in its producer.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    pub(crate) const fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// The partition; −1 if that is chosen for each record by itself.
    pub(crate) const fn partition(&self) -> i32 {
        self.partition
    }

    /// The process it is sent by: in no other one will its end be known.
    pub(crate) const fn process(&self) -> Process {
        self.process
    }

    /// How the batch ended, if it has.
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.get()
    }

    /// What became of a record, if it is known.
    pub(crate) fn result(&self, index: u32) -> Option<Result<Delivery, Error>> {
        match self.outcome.get()? {
            Outcome::Stored { base_offset, append_time, times } => Some(Ok(Delivery {
                topic: Arc::clone(&self.topic),
                partition: self.partition,
                offset: if *base_offset < 0 { -1 } else { base_offset + i64::from(index) },
                timestamp: if *append_time < 0 { times.at(index) } else { *append_time },
            })),
            Outcome::Failed(error) => Some(Err(error.clone())),
            Outcome::Forwarded(forward) => {
                let (target, index) = forward.get(index)?;
                target.result(index)
            }
        }
    }

    /// Has somebody told when a record's result is known; false if it is already.
    pub(crate) fn register(&self, index: u32, who: Who) -> bool {
        match self.outcome.get() {
            None => {}
            Some(Outcome::Forwarded(forward)) => {
                return forward.get(index).is_some_and(|(at, index)| at.register(index, who));
            }
            Some(_) => return false,
        }
        let mut waiters = lock(&self.waiters);
        if self.outcome.get().is_some() {
            drop(waiters);
            return self.register(index, who);
        }
        // One who waits for many records of a batch is told once, if they cannot part.
        let told = self.partition >= 0 && waiters.last().is_some_and(|last| last.who.is_same(&who));
        if !told {
            waiters.push(Waiter { index, who });
        }
        true
    }

    /// Sets how the batch ended, once, and tells all who wait; how many that were.
    pub(crate) fn resolve(&self, outcome: Outcome) -> usize {
        if self.outcome.set(outcome).is_err() {
            debug_assert!(false, "a batch ends once");
            return 0;
        }
        let waiters = std::mem::take(&mut *lock(&self.waiters));
        let mut told = 0;
        for Waiter { index, who } in waiters {
            // Records that have gone on take along those who wait for them.
            let on = match self.outcome.get() {
                Some(Outcome::Forwarded(forward)) => forward.get(index),
                _ => None,
            };
            if !on.is_some_and(|(target, index)| target.register(index, who.clone())) {
                who.tell();
                told += 1;
            }
        }
        told
    }

    /// Whether nobody can ever ask what became of it, but `holders` that never do.
    pub(crate) fn is_unobserved(self: &Arc<Self>, holders: usize) -> bool {
        Arc::strong_count(self) <= holders
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("id", &self.id)
            .field("topic", &self.topic)
            .field("partition", &self.partition)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

/// A queue of batches that have ended, for a loop that settles many records at a time.
///
/// It holds only batches with records that were asked about by [`Sent::notify`](crate::Sent::notify).
pub struct Completions {
    wake: Box<dyn Fn() + Send + Sync>,
    batches: Mutex<VecDeque<Arc<Completion>>>,
}

impl Completions {
    /// An empty queue. `wake` is called when it gets its first batch after it was empty.
    ///
    /// That is mostly on the client's own thread, so it must be quick: write to an eventfd, wake a
    /// loop. It may be called once more than needed, never too seldom.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { wake: Box::new(wake), batches: Mutex::default() })
    }

    pub(crate) fn push(&self, batch: Arc<Completion>) {
        let first = {
            let mut batches = lock(&self.batches);
            batches.push_back(batch);
            batches.len() == 1
        };
        if first {
            (self.wake)();
        }
    }

    /// Takes up to `max` batches, oldest first. What is left brings no further wake.
    pub fn drain(&self, max: usize) -> Vec<Completed> {
        let mut batches = lock(&self.batches);
        let count = max.min(batches.len());
        batches.drain(..count).map(Completed).collect()
    }

    /// Whether no batch waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.batches).is_empty()
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions")
            .field("waiting", &lock(&self.batches).len())
            .finish_non_exhaustive()
    }
}

/// A batch that has ended.
#[derive(Debug, Clone)]
pub struct Completed(Arc<Completion>);

impl Completed {
    /// The batch's number, as [`Sent::batch_id`](crate::Sent::batch_id) gives it.
    pub fn batch_id(&self) -> u64 {
        self.0.id
    }

    /// What became of the record of this index.
    ///
    /// `None` if that is still open: records sent before their topic was known share a batch at
    /// first and part later, so such a batch comes more than once.
    pub fn result(&self, index: u32) -> Option<Result<Delivery, Error>> {
        self.0.result(index)
    }

    /// The batch's topic.
    pub fn topic(&self) -> &Arc<str> {
        &self.0.topic
    }

    /// The batch's partition; `None` if its records have gone to several.
    pub fn partition(&self) -> Option<i32> {
        Some(self.0.partition).filter(|&partition| partition >= 0)
    }

    /// Offset of the first record, if the whole batch is stored; −1 if that is not known.
    pub fn base_offset(&self) -> Option<i64> {
        match self.0.outcome.get()? {
            Outcome::Stored { base_offset, .. } => Some(*base_offset),
            Outcome::Failed(_) | Outcome::Forwarded(_) => None,
        }
    }

    /// The error, if the whole batch failed.
    pub fn error(&self) -> Option<&Error> {
        match self.0.outcome.get()? {
            Outcome::Failed(error) => Some(error),
            Outcome::Stored { .. } | Outcome::Forwarded(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
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

    fn stored(base_offset: i64) -> Outcome {
        let mut times = Times::default();
        for (index, time) in [(0, 100), (1, 100), (2, 90)] {
            times.push(index, time);
        }
        Outcome::Stored { base_offset, append_time: -1, times }
    }

    fn offset(batch: &Completion, index: u32) -> i64 {
        batch.result(index).expect("resolved").expect("stored").offset
    }

    #[test]
    fn records_get_their_own_offsets_and_times() {
        let batch = Completion::new(1, &"t".into(), 3);
        assert!(batch.result(0).is_none());
        batch.resolve(stored(40));
        let third = batch.result(2).unwrap().unwrap();
        assert_eq!((third.partition, third.offset, third.timestamp), (3, 42, 90));
        assert_eq!(batch.result(1).unwrap().unwrap().timestamp, 100);
    }

    #[test]
    fn a_duplicate_and_an_append_time_hold_for_the_whole_batch() {
        let batch = Completion::new(1, &"t".into(), 0);
        batch.resolve(Outcome::Stored { base_offset: -1, append_time: 7, times: Times::default() });
        let delivery = batch.result(2).unwrap().unwrap();
        assert_eq!((delivery.offset, delivery.timestamp), (-1, 7));
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
        assert!(staged.result(0).is_none());
        left.resolve(stored(10));
        assert_eq!(first.0.0.load(Ordering::SeqCst), 1);
        assert_eq!(second.0.0.load(Ordering::SeqCst), 0);
        assert_eq!((offset(&staged, 0), offset(&staged, 2)), (10, 11));
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
}
