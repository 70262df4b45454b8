//! ListOffsets: first, last and newest offsets, and offsets by time.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_offsets_request::ListOffsetsPartition;
use ottla_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use ottla_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
use ottla_storage::{LogReader, ReadError, TimedOffset, Wait};

use crate::driver::aside::hand_aside;
use crate::driver::partition::Partition;
use crate::handlers::fetch::check_epoch;
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

/// Times that are none, and the version from which a client may ask for them.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: (i64, i16) = (-3, 7);
const EARLIEST_LOCAL: (i64, i16) = (-4, 8);
const LATEST_TIERED: (i64, i16) = (-5, 9);
const EARLIEST_PENDING_UPLOAD: (i64, i16) = (-6, 11);

/// From this version on the answer tells leader epochs (KIP-320).
const EPOCHS_FROM: i16 = 4;

/// Answers each partition by itself; beside the network's threads if a log has to be opened, or to
/// be searched on the disk.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: ListOffsetsRequest<'_>,
    reply: Reply,
) {
    let asked = resolve(node, &request);
    let version = info.version;
    let found: Option<Vec<_>> = find_all(&asked, version, Wait::No).collect();
    if let Some(found) = found {
        answer(reply, &asked, found);
        return;
    }
    node.reads.note_cold();
    hand_aside(move || {
        // With leave to wait each search ends. Were one not to, its client would ask again.
        let found = find_all(&asked, version, Wait::Disk);
        let found = found.map(|found| found.unwrap_or(Err(ErrorCode::KAFKA_STORAGE_ERROR)));
        answer(reply, &asked, found.collect());
    });
}

/// A topic that is asked about.
struct AskedTopic {
    name: String,
    partitions: Vec<Asked>,
}

/// A partition that is asked about, and what.
struct Asked {
    part: ListOffsetsPartition,
    partition: Result<Arc<Partition>, ErrorCode>,
}

/// Looks up what is asked for. As Kafka: a topic of which no partition is named is not answered, and
/// a partition that is named twice is answered once.
fn resolve(node: &Node, request: &ListOffsetsRequest<'_>) -> Vec<AskedTopic> {
    let known = node.topics.load();
    let named = request.topics.iter().filter(|asked| !asked.partitions.is_empty());
    let topics = named.map(|asked| {
        let topic = known.named(asked.name);
        let mut times = BTreeMap::<i32, usize>::new();
        for part in &asked.partitions {
            *times.entry(part.partition_index).or_default() += 1;
        }
        let once = asked.partitions.iter().filter_map(|part| {
            let times = times.remove(&part.partition_index)?;
            let partition = topic.and_then(|topic| topic.partition(part.partition_index));
            let partition = if times > 1 {
                Err(ErrorCode::INVALID_REQUEST)
            } else {
                partition.cloned().ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
            };
            Some(Asked { part: part.clone(), partition })
        });
        AskedTopic { name: asked.name.to_owned(), partitions: once.collect() }
    });
    topics.collect()
}

type Outcome = Result<TimedOffset, ErrorCode>;

/// What each partition answers, in order; `None` where that takes a wait which is ruled out.
fn find_all(
    asked: &[AskedTopic],
    version: i16,
    wait: Wait,
) -> impl Iterator<Item = Option<Outcome>> {
    let parts = asked.iter().flat_map(|topic| &topic.partitions);
    parts.map(move |asked| match &asked.partition {
        Ok(partition) => offset_of(partition, &asked.part, version, wait),
        Err(error) => Some(Err(*error)),
    })
}

fn answer(reply: Reply, asked: &[AskedTopic], found: Vec<Outcome>) {
    let with_epochs = reply.version() >= EPOCHS_FROM;
    let mut found = found.into_iter();
    let topics = asked.iter().map(|topic| {
        let parts = topic.partitions.iter().zip(found.by_ref()).map(|(asked, outcome)| {
            let mut answer = ListOffsetsPartitionResponse {
                partition_index: asked.part.partition_index,
                ..ListOffsetsPartitionResponse::default()
            };
            match outcome {
                Ok(found) => {
                    (answer.offset, answer.timestamp) = (found.offset, found.timestamp);
                    if with_epochs {
                        answer.leader_epoch = found.leader_epoch;
                    }
                }
                Err(error) => answer.error_code = error,
            }
            answer
        });
        ListOffsetsTopicResponse { name: &topic.name, partitions: parts.collect() }
    });
    let topics = topics.collect();
    reply.answer(&ListOffsetsResponse { topics, ..ListOffsetsResponse::default() });
}

/// The answer where there is no such offset.
const NOTHING: TimedOffset = TimedOffset { offset: -1, timestamp: -1, leader_epoch: -1 };

/// What one partition answers; `None` if that takes a wait which is ruled out.
fn offset_of(
    partition: &Partition,
    asked: &ListOffsetsPartition,
    version: i16,
    wait: Wait,
) -> Option<Outcome> {
    if let Err(error) = check_epoch(asked.current_leader_epoch, partition.leader_epoch()) {
        return Some(Err(error));
    }
    let log = match partition.log_within(wait)? {
        Ok(log) => log,
        Err(error) => return Some(Err(error.code())),
    };
    let since = |(_, first): (i64, i16)| {
        if version >= first { Ok(()) } else { Err(ErrorCode::UNSUPPORTED_VERSION) }
    };
    let upper = partition.high_watermark();
    Some(match asked.timestamp {
        LATEST => Ok(TimedOffset { leader_epoch: partition.leader_epoch(), ..log.latest(upper) }),
        EARLIEST => Ok(earliest(partition, log)),
        special if special == MAX_TIMESTAMP.0 => match (since(MAX_TIMESTAMP), wait) {
            (Err(error), _) => Err(error),
            (Ok(()), Wait::No) => return found(partition, log.max_timestamp_cached(upper)),
            (Ok(()), Wait::Disk) => return found(partition, log.max_timestamp(upper)),
        },
        // Nothing is tiered, so all that there is is local.
        special if special == EARLIEST_LOCAL.0 => since(EARLIEST_LOCAL).map(|()| log.earliest()),
        special if special == LATEST_TIERED.0 => since(LATEST_TIERED).map(|()| NOTHING),
        special if special == EARLIEST_PENDING_UPLOAD.0 => {
            since(EARLIEST_PENDING_UPLOAD).map(|()| NOTHING)
        }
        unknown if unknown < 0 => Err(ErrorCode::UNSUPPORTED_VERSION),
        time => {
            return match wait {
                Wait::No => found(partition, log.offset_for_time_cached(time, upper)),
                Wait::Disk => found(partition, log.offset_for_time(time, upper)),
            };
        }
    })
}

fn earliest(partition: &Partition, log: &LogReader) -> TimedOffset {
    let earliest = log.earliest();
    // Nothing was written yet: what will be is of the leader's own epoch.
    let leader_epoch = if earliest.leader_epoch < 0 && log.log_end() == log.log_start() {
        partition.leader_epoch()
    } else {
        earliest.leader_epoch
    };
    TimedOffset { leader_epoch, ..earliest }
}

/// The answer of a search; `None` if it would have to wait.
fn found(
    partition: &Partition,
    outcome: Result<Option<TimedOffset>, ReadError>,
) -> Option<Outcome> {
    match outcome {
        Ok(found) => Some(Ok(found.unwrap_or(NOTHING))),
        Err(ReadError::Cold) => None,
        Err(error) => {
            partition.handle_read_error(&error);
            Some(Err(ErrorCode::KAFKA_STORAGE_ERROR))
        }
    }
}
