//! OffsetForLeaderEpoch: where the records of a leader epoch end, so that a client sees whether what
//! it read is still part of the log (KIP-320).

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use ottla_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use ottla_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use crate::handlers::fetch::check_epoch;
use crate::node::{Node, Topic};
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

/// Answers each partition by itself.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: OffsetForLeaderEpochRequest<'_>,
    reply: Reply,
) {
    let known = node.topics.load();
    let topics = request.topics.iter().map(|asked| {
        let topic = known.named(asked.topic);
        let partitions = asked.partitions.iter().map(|part| {
            let mut answer =
                EpochEndOffset { partition: part.partition, ..EpochEndOffset::default() };
            match end_of(topic, part) {
                Ok(Some((epoch, end))) => (answer.leader_epoch, answer.end_offset) = (epoch, end),
                // An epoch that this log knows nothing of: -1 and -1.
                Ok(None) => {}
                Err(error) => answer.error_code = error,
            }
            answer
        });
        OffsetForLeaderTopicResult { topic: asked.topic, partitions: partitions.collect() }
    });
    let topics = topics.collect();
    reply.answer(&OffsetForLeaderEpochResponse {
        topics,
        ..OffsetForLeaderEpochResponse::default()
    });
}

fn end_of(
    topic: Option<&Arc<Topic>>,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(i32, i64)>, ErrorCode> {
    let partition = topic.and_then(|topic| topic.partition(asked.partition));
    let partition = partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    check_epoch(asked.current_leader_epoch, partition.leader_epoch())?;
    let log = partition.log().map_err(|error| error.code())?;
    if asked.leader_epoch < 0 {
        return Ok(None);
    }
    if asked.leader_epoch == partition.leader_epoch() {
        // The epoch that goes on, whether or not it has brought a record yet.
        return Ok(Some((asked.leader_epoch, log.log_end())));
    }
    Ok(log.end_of_epoch(asked.leader_epoch))
}
