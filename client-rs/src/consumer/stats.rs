//! What a consumer has done, in numbers.

/// What a consumer has done since it was made, and how it stands now.
///
/// Counted by the answer and by the batch, so that a record costs nothing more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStats {
    /// Records given out.
    pub records: u64,
    /// Bytes received as records, compressed as they were.
    pub bytes: u64,
    /// Fetch requests that were answered.
    pub fetches: u64,
    /// Of these answers, those without a record in them.
    pub empty_fetches: u64,
    /// Records that were fetched and not given out: their partition was revoked, moved, or cut short
    /// meanwhile, or is paused and others needed the room. Those that still count are fetched again.
    pub dropped_records: u64,
    /// Times that the group let this member in.
    pub joins: u64,
    /// Times that partitions were assigned by the group.
    pub rebalances: u64,
    /// Heartbeats that the coordinator answered.
    pub heartbeats: u64,
    /// Times that the group was left since no poll came within `max.poll.interval.ms`.
    pub late_polls: u64,
    /// Commit requests that the coordinator took, each of them for one partition or more.
    pub commits: u64,
    /// Commit requests that were not answered, or with an error for a partition. Those whose fault
    /// may pass are tried again.
    pub commits_failed: u64,
    /// Bytes fetched ahead and not given out yet, decompressed where that was begun.
    pub buffered: usize,
    /// Those of them that are decompressed, each record with its place; the others are as they were
    /// fetched.
    pub decoded: usize,
    /// Most that these may be: `fetch.buffer.memory`.
    pub buffered_max: usize,
    /// Bytes of the memory that answers of 64 KiB and more lie in: those being read, those fetched
    /// ahead, the last one given, and those of which the program still holds a record or a batch; each
    /// whole. What it is above `buffered` for long is the program's: see
    /// [`ConsumerRecord::detached`]. What was decompressed has memory of its own, and is not in it.
    ///
    /// [`ConsumerRecord::detached`]: crate::ConsumerRecord::detached
    pub pinned: usize,
    /// Offsets between what is given out next and the ends of the partitions, as far as answers
    /// told: the sum over those of which both are known.
    pub lag: u64,
    /// Partitions assigned now of which that is not known yet.
    pub lag_unknown: usize,
    /// Times that a partition was fetched anew because nothing had come of it for 30 seconds.
    pub restarts: u64,
    /// Times that a partition without a committed offset was begun by `auto.offset.reset`.
    pub starts: u64,
    /// Times that a position did not hold: out of the log's range, cut off under a new leader, or of
    /// a topic that was created anew.
    pub resets: u64,
    /// Times that a log was found cut short under a new leader (KIP-320), whether what was given out
    /// reached beyond its new end or not.
    pub truncations: u64,
    /// Times that the topic of a partition was found deleted and created anew (KIP-516).
    pub recreations: u64,
    /// Milliseconds for which brokers asked to be left alone, in all answers (KIP-219).
    pub throttled_ms: u64,
}
