//! What a fetch finds in the logs.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_storage::{ReadError, ReadRange, Wait};

use crate::driver::aside::aside;
use crate::driver::partition::Partition;
use crate::node::Node;
use crate::state::fetch_sessions::{PartitionRef, Told, TopicRef, Want};

/// How much a fetch may wait for and take, and as whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// It is another broker's, which has a copy, or says so.
    pub(super) is_follower: bool,
    pub(super) min_bytes: usize,
    pub(super) max_bytes: usize,
}

/// One partition that is fetched.
pub(super) struct Wanted {
    pub(super) asked: PartitionRef,
    pub(super) want: Want,
    /// An error where there is no such topic or partition.
    pub(super) partition: Result<Arc<Partition>, ErrorCode>,
}

/// What one partition had.
pub(super) struct Found {
    pub(super) error: ErrorCode,
    pub(super) high_watermark: i64,
    pub(super) log_start: i64,
    pub(super) range: Option<ReadRange>,
    /// Bytes that there were to be had of it, as far as its limit went.
    bytes: usize,
}

impl Found {
    fn failed(error: ErrorCode) -> Self {
        Self { error, high_watermark: -1, log_start: -1, range: None, bytes: 0 }
    }

    /// What an answer tells of it.
    pub(super) fn told(&self) -> Told {
        Told {
            high_watermark: self.high_watermark,
            log_start: self.log_start,
            error: self.error,
            has_records: self.range.is_some(),
        }
    }
}

/// What all of them had.
pub(super) struct AllFound {
    pub(super) parts: Vec<Found>,
    /// Bytes that there were to be had, as far as the limits went: what batches are whole may be
    /// less, and no wait brings more.
    bytes: usize,
    /// A partition that is there could not be read, or none is there.
    failed: bool,
    /// The read broke off, since it would have had to wait for the disk.
    pub(super) cold: bool,
}

impl AllFound {
    /// Whether there is something to answer at once.
    ///
    /// As in Kafka, what is not there ends no wait while there is something to wait for: a client
    /// that has one deleted topic among others would ask again and again.
    pub(super) fn is_enough(&self, limits: Limits) -> bool {
        self.failed || self.bytes >= limits.min_bytes
    }
}

/// Looks up the partitions that are asked for.
pub(super) fn resolve(node: &Node, wants: Vec<(PartitionRef, Want)>) -> Vec<Wanted> {
    let known = node.topics.load();
    let wanted = wants.into_iter().map(|(asked, want)| {
        let topic = match &asked.topic {
            TopicRef::Id(id) => known.of_id(*id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID),
            TopicRef::Name(name) => known.named(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        };
        let partition = topic.and_then(|topic| {
            let partition = topic.partition(asked.index).cloned();
            partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
        });
        Wanted { asked, want, partition }
    });
    wanted.collect()
}

/// Whether the client knows the leader that we are (KIP-320).
pub(in crate::handlers) fn check_epoch(known: i32, ours: i32) -> Result<(), ErrorCode> {
    match known {
        -1 => Ok(()),
        known if known < ours => Err(ErrorCode::FENCED_LEADER_EPOCH),
        known if known > ours => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
        _ => Ok(()),
    }
}

/// Reads all partitions, in order, as far as the limits go; on a thread of its own if it has to
/// wait for the disk.
pub(super) async fn read(node: &Node, wanted: &Arc<Vec<Wanted>>, limits: Limits) -> AllFound {
    let found = read_now(wanted, limits, Wait::No);
    if !found.cold {
        return found;
    }
    node.reads.note_cold();
    let asked = wanted.clone();
    let found = aside(move || read_now(&asked, limits, Wait::Disk)).await;
    found.unwrap_or_else(|error| {
        tracing::error!(%error, "a fetch broke off");
        let failed = wanted.iter().map(|_| Found::failed(ErrorCode::KAFKA_STORAGE_ERROR));
        AllFound { parts: failed.collect(), bytes: 0, failed: true, cold: false }
    })
}

/// Reads all partitions, in order, as far as the limits go.
pub(super) fn read_now(wanted: &[Wanted], limits: Limits, wait: Wait) -> AllFound {
    let mut parts = Vec::with_capacity(wanted.len());
    let (mut bytes, mut there, mut failed, mut present) = (0, 0, false, false);
    for part in wanted {
        let Ok(partition) = &part.partition else {
            let error = part.partition.as_ref().err().copied();
            parts.push(Found::failed(error.unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR)));
            continue;
        };
        present = true;
        let left = limits.max_bytes.saturating_sub(bytes);
        // KIP-74: the first batch of an answer comes whole whatever its size, or a consumer with
        // small limits would never get past it.
        let found = if limits.is_follower {
            Some(Found::failed(refuse_follower(partition, part.want)))
        } else {
            read_one(partition, part.want, left, bytes == 0, wait)
        };
        let Some(found) = found else {
            return AllFound { parts, bytes: there, failed: false, cold: true };
        };
        failed |= found.error != ErrorCode::NONE;
        there += found.bytes;
        bytes += found.range.as_ref().map_or(0, |range| range.len);
        parts.push(found);
    }
    AllFound { parts, bytes: there, failed: failed || !present, cold: false }
}

/// Why no broker may follow a partition that has one replica. Kafka: `Partition.fetchRecords`.
fn refuse_follower(partition: &Partition, want: Want) -> ErrorCode {
    let known = check_epoch(want.leader_epoch, partition.leader_epoch());
    known.err().unwrap_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)
}

/// What one partition has; `None` if it would have to wait for the disk and must not.
fn read_one(
    partition: &Partition,
    want: Want,
    left: usize,
    first_batch_whole: bool,
    wait: Wait,
) -> Option<Found> {
    if let Err(error) = check_epoch(want.leader_epoch, partition.leader_epoch()) {
        return Some(Found::failed(error));
    }
    let log = match partition.log_within(wait)? {
        Ok(log) => log,
        Err(error) => return Some(Found::failed(error.code())),
    };
    // Before the read: what comes later moves the high watermark, and the fetch then reads again.
    let high_watermark = partition.high_watermark();
    let log_start = log.log_start();
    let max_bytes = usize::try_from(want.max_bytes).unwrap_or(0).min(left);
    let found = |error, range: Option<ReadRange>, bytes| {
        let range = range.filter(|range| !range.is_empty());
        Some(Found { error, high_watermark, log_start, range, bytes })
    };
    if want.offset > high_watermark || want.offset < log_start {
        // As Kafka: who asks outside the log is not told where it begins and ends, and lists it.
        return Some(Found::failed(ErrorCode::OFFSET_OUT_OF_RANGE));
    }
    let read = match wait {
        Wait::No => log.read_cached(want.offset, max_bytes, high_watermark, first_batch_whole),
        Wait::Disk => log.read(want.offset, max_bytes, high_watermark, first_batch_whole),
    };
    match read {
        Err(ReadError::Cold) => None,
        Ok(range) => {
            let bytes = if range.more { range.len.max(max_bytes) } else { range.len };
            found(ErrorCode::NONE, Some(range), bytes)
        }
        Err(ReadError::OutOfRange { .. }) => Some(Found::failed(ErrorCode::OFFSET_OUT_OF_RANGE)),
        Err(error) => {
            partition.handle_read_error(&error);
            found(ErrorCode::KAFKA_STORAGE_ERROR, None, 0)
        }
    }
}
