//! ListOffsets: first, last and newest offsets, and offsets by time.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_offsets_request::ListOffsetsPartition;
use ottla_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use ottla_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
use ottla_storage::{ReadError, TimedOffset};

use crate::driver::partition::Partition;
use crate::handlers::fetch::check_epoch;
use crate::node::{Node, Topic};
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

/// Answers each partition by itself.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: ListOffsetsRequest<'_>,
    reply: Reply,
) {
    let known = node.topics.load();
    // As Kafka: a topic of which no partition is named is not answered, and a partition that is
    // named twice is answered once.
    let named = request.topics.iter().filter(|asked| !asked.partitions.is_empty());
    let topics = named.map(|asked| {
        let topic = known.named(asked.name);
        let mut times = BTreeMap::<i32, usize>::new();
        for part in &asked.partitions {
            *times.entry(part.partition_index).or_default() += 1;
        }
        let once = asked.partitions.iter().filter_map(|part| {
            let times = times.remove(&part.partition_index)?;
            Some((part, times > 1))
        });
        let partitions = once.map(|(part, twice)| {
            let mut answer = ListOffsetsPartitionResponse {
                partition_index: part.partition_index,
                ..ListOffsetsPartitionResponse::default()
            };
            let found = if twice {
                Err(ErrorCode::INVALID_REQUEST)
            } else {
                offset_of(topic, part, info.version)
            };
            match found {
                Ok(found) => {
                    (answer.offset, answer.timestamp) = (found.offset, found.timestamp);
                    if info.version >= EPOCHS_FROM {
                        answer.leader_epoch = found.leader_epoch;
                    }
                }
                Err(error) => answer.error_code = error,
            }
            answer
        });
        ListOffsetsTopicResponse { name: asked.name, partitions: partitions.collect() }
    });
    let topics = topics.collect();
    reply.answer(&ListOffsetsResponse { topics, ..ListOffsetsResponse::default() });
}

/// The answer where there is no such offset.
const NOTHING: TimedOffset = TimedOffset { offset: -1, timestamp: -1, leader_epoch: -1 };

fn offset_of(
    topic: Option<&Arc<Topic>>,
    asked: &ListOffsetsPartition,
    version: i16,
) -> Result<TimedOffset, ErrorCode> {
    let partition = topic.and_then(|topic| topic.partition(asked.partition_index));
    let partition = partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    check_epoch(asked.current_leader_epoch, partition.leader_epoch())?;
    let log = partition.log().map_err(|error| error.code())?;
    let since = |(_, first): (i64, i16)| {
        if version >= first { Ok(()) } else { Err(ErrorCode::UNSUPPORTED_VERSION) }
    };
    match asked.timestamp {
        LATEST => Ok(TimedOffset {
            leader_epoch: partition.leader_epoch(),
            ..log.latest(partition.high_watermark())
        }),
        EARLIEST => {
            let earliest = log.earliest();
            // Nothing was written yet: what will be is of the leader's own epoch.
            let leader_epoch = if earliest.leader_epoch < 0 && log.log_end() == log.log_start() {
                partition.leader_epoch()
            } else {
                earliest.leader_epoch
            };
            Ok(TimedOffset { leader_epoch, ..earliest })
        }
        special if special == MAX_TIMESTAMP.0 => {
            since(MAX_TIMESTAMP)?;
            found(partition, log.max_timestamp(partition.high_watermark()))
        }
        special if special == EARLIEST_LOCAL.0 => {
            since(EARLIEST_LOCAL)?;
            // Nothing is tiered, so all that there is is local.
            Ok(log.earliest())
        }
        special if special == LATEST_TIERED.0 => since(LATEST_TIERED).map(|()| NOTHING),
        special if special == EARLIEST_PENDING_UPLOAD.0 => {
            since(EARLIEST_PENDING_UPLOAD).map(|()| NOTHING)
        }
        unknown if unknown < 0 => Err(ErrorCode::UNSUPPORTED_VERSION),
        timestamp => found(partition, log.offset_for_time(timestamp, partition.high_watermark())),
    }
}

/// The answer of a search.
fn found(
    partition: &Partition,
    outcome: Result<Option<TimedOffset>, ReadError>,
) -> Result<TimedOffset, ErrorCode> {
    outcome.map(|found| found.unwrap_or(NOTHING)).map_err(|error| {
        partition.handle_read_error(&error);
        ErrorCode::KAFKA_STORAGE_ERROR
    })
}
