//! What a producer has done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Outcome;
use crate::state::accumulator::memory::Memory;

/// What a producer has done since it was made.
///
/// Counted by the batch, so that a record costs nothing more. Each number by itself is true; two of
/// them may be a moment apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducerStats {
    /// Records taken from senders' batches.
    pub records: u64,
    /// Their bytes, encoded, before compression.
    pub bytes: u64,
    /// Batches they came in: `records` and `bytes` by it are how full a batch is.
    pub batches: u64,
    /// Produce requests that began to be written.
    pub requests: u64,
    /// Batches in these requests; one that was sent again counts each time.
    pub batches_sent: u64,
    /// Bytes of these batches as they were sent, compressed.
    pub bytes_sent: u64,
    /// Bytes of the records in them before compression.
    pub raw_bytes_sent: u64,
    /// Batches that were to be sent again.
    pub retries: u64,
    /// Batches that a broker found too large, and that went on in halves.
    pub splits: u64,
    /// Times that a partition's batches were numbered anew under another epoch, or another producer
    /// id, since it could not be told what the broker has of them (KIP-360).
    pub epoch_bumps: u64,
    /// Records stored.
    pub delivered: u64,
    /// Their bytes, as `bytes` counts them.
    pub delivered_bytes: u64,
    /// Records that failed: the sum of the three that follow.
    pub failed: u64,
    /// Of these, records of which nothing was sent.
    pub failed_not_sent: u64,
    /// Of these, records that may be stored all the same.
    pub failed_possibly_persisted: u64,
    /// Of these, records that a broker refused.
    pub failed_rejected: u64,
    /// The bytes of those that failed, as `bytes` counts them; of records that never had a
    /// partition, as they were kept.
    pub failed_bytes: u64,
    /// Tasks, threads and queues that were told of a batch.
    pub wakes: u64,
    /// Sends that had to wait for room in `buffer.memory`, and have ended.
    pub waits: u64,
    /// Milliseconds they waited, all together.
    pub waited_ms: u64,
    /// Milliseconds for which brokers asked to be left alone, in all answers (KIP-219).
    pub throttled_ms: u64,
    /// Bytes of `buffer.memory` in use now.
    pub memory_used: u64,
    /// Bytes of `buffer.memory` in all.
    pub memory_max: u64,
}

/// What the producer's threads count.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) records: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) batches_sent: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) raw_bytes_sent: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) splits: AtomicU64,
    pub(crate) epoch_bumps: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) delivered_bytes: AtomicU64,
    failed_not_sent: AtomicU64,
    failed_possibly_persisted: AtomicU64,
    failed_rejected: AtomicU64,
    failed_bytes: AtomicU64,
    pub(crate) wakes: AtomicU64,
    waits: AtomicU64,
    waited_us: AtomicU64,
}

/// Counts so many more.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counters {
    /// Records that failed, and what may have become of them.
    pub(crate) fn note_failed(&self, records: u64, bytes: usize, outcome: Option<Outcome>) {
        let of = match outcome {
            Some(Outcome::NotSent) => &self.failed_not_sent,
            Some(Outcome::Rejected) => &self.failed_rejected,
            // What is not known is not promised.
            Some(Outcome::PossiblyPersisted) | None => &self.failed_possibly_persisted,
        };
        add(of, records);
        add(&self.failed_bytes, number(bytes));
    }

    /// A send had to wait so long for room.
    pub(crate) fn note_wait(&self, time: Duration) {
        add(&self.waits, 1);
        add(&self.waited_us, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn read(&self, memory: &Memory, throttled_ms: u64) -> ProducerStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let not_sent = load(&self.failed_not_sent);
        let possibly_persisted = load(&self.failed_possibly_persisted);
        let rejected = load(&self.failed_rejected);
        ProducerStats {
            records: load(&self.records),
            bytes: load(&self.bytes),
            batches: load(&self.batches),
            requests: load(&self.requests),
            batches_sent: load(&self.batches_sent),
            bytes_sent: load(&self.bytes_sent),
            raw_bytes_sent: load(&self.raw_bytes_sent),
            retries: load(&self.retries),
            splits: load(&self.splits),
            epoch_bumps: load(&self.epoch_bumps),
            delivered: load(&self.delivered),
            delivered_bytes: load(&self.delivered_bytes),
            failed: not_sent.saturating_add(possibly_persisted).saturating_add(rejected),
            failed_not_sent: not_sent,
            failed_possibly_persisted: possibly_persisted,
            failed_rejected: rejected,
            failed_bytes: load(&self.failed_bytes),
            wakes: load(&self.wakes),
            waits: load(&self.waits),
            waited_ms: load(&self.waited_us) / 1000,
            throttled_ms,
            memory_used: number(memory.used()),
            memory_max: number(memory.total()),
        }
    }
}

/// A size as it is counted.
pub(crate) fn number(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
