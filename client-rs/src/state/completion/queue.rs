//! The queue of batches that have ended, from which a loop tells of many records at a time.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::{Completion, Outcome, Stamp};
use crate::error::Error;
use crate::record::Delivery;
use crate::state::accumulator::memory::Charge;
use crate::state::sync::{Mutex, lock};

/// A queue of batches that have ended, for a loop that settles many records at a time.
///
/// It holds only batches with records that were asked about by [`Sent::notify`](crate::Sent::notify).
/// These stay counted in `buffer.memory` until what [`Completions::drain`] gave is dropped: a program
/// that does not drain finds no room for further records.
pub struct Completions {
    wake: Box<dyn Fn() + Send + Sync>,
    /// `None` once it is closed.
    batches: Mutex<Option<VecDeque<Completed>>>,
}

impl Completions {
    /// An empty queue. `wake` is called when it gets its first batch after it was empty.
    ///
    /// That is mostly on the client's own thread, so it must be quick: write to an eventfd, wake a
    /// loop. It may be called once more than needed, never too seldom.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let batches = Mutex::new(Some(VecDeque::new()));
        Arc::new(Self { wake: Box::new(wake), batches })
    }

    pub(crate) fn push(&self, batch: Arc<Completion>, charge: Option<Arc<Charge>>) {
        let first = match &mut *lock(&self.batches) {
            Some(batches) => {
                batches.push_back(Completed { batch, _charge: charge });
                batches.len() == 1
            }
            None => false,
        };
        if first {
            (self.wake)();
        }
    }

    /// Takes up to `max` batches, oldest first. What is left brings no further wake.
    pub fn drain(&self, max: usize) -> Vec<Completed> {
        let mut batches = lock(&self.batches);
        let Some(batches) = &mut *batches else { return Vec::new() };
        let count = max.min(batches.len());
        batches.drain(..count).collect()
    }

    /// Drops what waits, and takes no more: nobody will ask for it.
    pub fn close(&self) {
        let dropped = lock(&self.batches).take();
        // Outside of the lock: their room goes to those who wait for it.
        drop(dropped);
    }

    /// Whether no batch waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.batches).as_ref().is_none_or(VecDeque::is_empty)
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions")
            .field("waiting", &lock(&self.batches).as_ref().map_or(0, VecDeque::len))
            .finish_non_exhaustive()
    }
}

/// A batch that has ended.
#[derive(Debug, Clone)]
pub struct Completed {
    pub(super) batch: Arc<Completion>,
    pub(super) _charge: Option<Arc<Charge>>,
}

impl Completed {
    /// The batch's number, as [`Sent::batch_id`](crate::Sent::batch_id) gives it.
    pub fn batch_id(&self) -> u64 {
        self.batch.id
    }

    /// What became of the record that got this stamp: see [`Sent::stamp`](crate::Sent::stamp).
    ///
    /// `None` if that is still open: records sent before their topic was known share a batch at
    /// first and part later, so such a batch comes more than once.
    pub fn result(&self, stamp: Stamp) -> Option<Result<Delivery, Error>> {
        self.batch.result(stamp)
    }

    /// The same for some records, by rising index, without a record before others of its partition
    /// that are still open: for those the batch comes once more. `told` gets each result; what stays
    /// open is left in `records`.
    ///
    /// Batches end while one looks, so that of two records of a partition the second may seem to
    /// have a result alone.
    pub fn take_results<T>(
        &self,
        records: &mut Vec<(Stamp, T)>,
        mut told: impl FnMut(T, Result<Delivery, Error>),
    ) {
        let mut behind: Vec<i32> = Vec::new();
        let mut open = Vec::new();
        for (stamp, opaque) in records.drain(..) {
            let partition = self.batch.partition_of(stamp.index);
            let is_behind = behind.contains(&partition);
            if let Some(result) = self.result(stamp).filter(|_| !is_behind) {
                told(opaque, result);
            } else {
                open.push((stamp, opaque));
                behind.extend(Some(partition).filter(|_| !is_behind));
            }
        }
        *records = open;
    }

    /// The batch's topic.
    pub fn topic(&self) -> &Arc<str> {
        &self.batch.topic
    }

    /// The batch's partition; `None` if its records have gone to several.
    pub fn partition(&self) -> Option<i32> {
        Some(self.batch.partition).filter(|&partition| partition >= 0)
    }

    /// Offset of the first record, if the whole batch is stored; −1 if that is not known.
    pub fn base_offset(&self) -> Option<i64> {
        match self.batch.outcome.get()? {
            Outcome::Stored { base_offset, .. } => Some(*base_offset),
            Outcome::Failed(_) | Outcome::Forwarded(_) => None,
        }
    }

    /// The error, if the whole batch failed.
    pub fn error(&self) -> Option<&Error> {
        match self.batch.outcome.get()? {
            Outcome::Failed(error) => Some(error),
            Outcome::Stored { .. } | Outcome::Forwarded(_) => None,
        }
    }
}
