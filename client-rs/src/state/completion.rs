//! What became of a batch: stored once, for all its records, and told to those who wait.

mod outcome;
mod queue;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::accumulator::memory::{Charge, Memory};
use super::parker::Sleeper;
use super::sync::{Mutex, OnceLock, lock};
use crate::error::Error;
use crate::process::Process;
use crate::record::Delivery;

pub(crate) use self::outcome::{Forward, Outcome};
pub use self::queue::{Completed, Completions};

/// What a record got as it was sent: its place in its batch, and its time.
///
/// A [`Completed`] batch is asked by it what became of the record. The batch itself keeps no times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Its index in the batch.
    pub index: u32,
    /// Its own time: milliseconds since the epoch.
    pub timestamp: i64,
}

/// One batch, as those see it who hold a token of one of its records.
pub(crate) struct Completion {
    id: u64,
    topic: Arc<str>,
    partition: i32,
    outcome: OnceLock<Outcome>,
    waiters: Mutex<Vec<Waiter>>,
    process: Process,
    /// Known before the outcome is.
    weight: OnceLock<Weight>,
}

/// What a batch that has ended counts for in `buffer.memory` while a queue holds it.
#[derive(Debug)]
struct Weight {
    memory: Arc<Memory>,
    bytes: usize,
    records: usize,
}

/// What is kept of a batch in a queue, and of a record, by those who are to be told: about so much.
const BATCH_OVERHEAD: usize = 256;
/// Its stamp, and what was given along.
const RECORD_OVERHEAD: usize = size_of::<(Stamp, *const ())>();

impl Weight {
    /// All of the batch.
    fn whole(&self) -> Arc<Charge> {
        let each = self.records.saturating_mul(RECORD_OVERHEAD);
        Arc::new(self.memory.charge(self.bytes.saturating_add(each).saturating_add(BATCH_OVERHEAD)))
    }

    /// One record's part of it.
    fn share(&self) -> Arc<Charge> {
        let each = self.bytes.div_ceil(self.records.max(1));
        Arc::new(self.memory.charge(each.saturating_add(RECORD_OVERHEAD + BATCH_OVERHEAD)))
    }
}

struct Waiter {
    /// The records waited for, should they part: from the first to the last.
    records: RangeInclusive<u32>,
    who: Who,
}

impl Waiter {
    /// Whether the records are still in a row with this one.
    fn is_next_to(&self, index: u32) -> bool {
        (*self.records.start()..=self.records.end().saturating_add(1)).contains(&index)
    }

    fn add(&mut self, index: u32) {
        self.records = index.min(*self.records.start())..=index.max(*self.records.end());
    }

    /// Waits wherever its records went; whether all of them are still open there.
    fn go_on(&self, forward: &Forward) -> bool {
        let ended = self.records.clone().filter(|&index| {
            let on = forward.get(index);
            !on.is_some_and(|(target, index)| target.register(index, self.who.clone()))
        });
        ended.count() == 0
    }
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
    /// `charge` is what the batch counts for in queues; made when the first one gets it.
    fn tell(self, charge: &mut Option<Arc<Charge>>, weight: Option<&Weight>) {
        match self {
            Self::Sleeper(sleeper) => sleeper.wake(),
            Self::Queue(queue, batch) => {
                if charge.is_none() {
                    *charge = weight.map(Weight::whole);
                }
                queue.push(batch, charge.clone());
            }
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
        let weight = OnceLock::new();
        Arc::new(Self { id, topic, partition, outcome, waiters, process, weight })
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
    pub(crate) fn result(&self, stamp: Stamp) -> Option<Result<Delivery, Error>> {
        let Stamp { index, timestamp } = stamp;
        match self.outcome.get()? {
            Outcome::Stored { base_offset, append_time } => Some(Ok(Delivery {
                topic: Arc::clone(&self.topic),
                partition: self.partition,
                offset: match *base_offset {
                    // What the broker says may be any number.
                    base @ 0.. => base.saturating_add(i64::from(index)),
                    _ => -1,
                },
                timestamp: if *append_time < 0 { timestamp } else { *append_time },
            })),
            Outcome::Failed(error) => Some(Err(error.clone())),
            Outcome::Forwarded(forward) => {
                let (target, index) = forward.get(index)?;
                target.result(Stamp { index, timestamp })
            }
        }
    }

    /// Whether it is known what became of a record.
    pub(crate) fn is_known(&self, index: u32) -> bool {
        match self.outcome.get() {
            None => false,
            Some(Outcome::Stored { .. } | Outcome::Failed(_)) => true,
            Some(Outcome::Forwarded(forward)) => {
                forward.get(index).is_some_and(|(target, index)| target.is_known(index))
            }
        }
    }

    /// The partition of a record; −1 if that is not chosen yet.
    fn partition_of(&self, index: u32) -> i32 {
        match self.outcome.get() {
            Some(Outcome::Forwarded(forward)) => {
                forward.get(index).map_or(-1, |(target, index)| target.partition_of(index))
            }
            _ => self.partition,
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
        // One who waits for many records of a batch is told once.
        match waiters.last_mut().filter(|last| last.who.is_same(&who)) {
            Some(last) if self.partition >= 0 || last.is_next_to(index) => last.add(index),
            _ => waiters.push(Waiter { records: index..=index, who }),
        }
        true
    }

    /// Has the batch counted in `buffer.memory` for as long as its end waits in a queue to be told.
    /// Called before it ends.
    pub(crate) fn weigh(&self, memory: &Arc<Memory>, bytes: usize, records: u64) {
        let records = usize::try_from(records).unwrap_or(usize::MAX);
        self.weight.get_or_init(|| Weight { memory: Arc::clone(memory), bytes, records });
    }

    /// What one record that has ended counts for while a queue holds it.
    pub(crate) fn share(&self, index: u32) -> Option<Arc<Charge>> {
        if let Some(Outcome::Forwarded(forward)) = self.outcome.get() {
            let (target, index) = forward.get(index)?;
            return target.share(index);
        }
        self.weight.get().map(Weight::share)
    }

    /// Sets how the batch ended, once, and tells all who wait; how many that were.
    pub(crate) fn resolve(&self, outcome: Outcome) -> usize {
        if self.outcome.set(outcome).is_err() {
            debug_assert!(false, "a batch ends once");
            return 0;
        }
        let waiters = std::mem::take(&mut *lock(&self.waiters));
        let (mut told, mut charge) = (0, None);
        for waiter in waiters {
            // Records that have gone on take along those who wait for them.
            let gone_on = match self.outcome.get() {
                Some(Outcome::Forwarded(forward)) => waiter.go_on(forward),
                _ => false,
            };
            if !gone_on {
                waiter.who.tell(&mut charge, self.weight.get());
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
