//! DeleteRecords: partitions begin at a later offset, and what lies below is gone.

use std::sync::{Arc, Mutex, PoisonError};

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::delete_records_request::DeleteRecordsPartition;
use ottla_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use ottla_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};

use crate::driver::partition::{Partition, StartAt, StartError};
use crate::driver::upkeep::delete_records;
use crate::node::{Node, Topic};
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

/// The offset that stands for the high watermark.
const HIGH_WATERMARK: i64 = -1;

/// Moves each partition's log start, and answers when all are noted for good.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: DeleteRecordsRequest<'_>,
    reply: Reply,
) {
    let known = node.topics.load();
    let mut pending = Pending { topics: Vec::new(), open: 1, reply: Some(reply) };
    let mut asked = Vec::new();
    for topic in &request.topics {
        let found = known.named(topic.name);
        let mut parts = Vec::with_capacity(topic.partitions.len());
        for part in &topic.partitions {
            let partition = may_delete(found, part);
            let error = partition.as_ref().err().copied().unwrap_or(ErrorCode::NONE);
            if let Ok(partition) = partition {
                let place = (pending.topics.len(), parts.len());
                asked.push((partition.clone(), part.offset, place));
            }
            parts.push(DeleteRecordsPartitionResult {
                partition_index: part.partition_index,
                low_watermark: -1,
                error_code: error,
            });
        }
        pending.topics.push((topic.name.to_owned(), parts));
    }
    pending.open += asked.len();
    let pending = Arc::new(Mutex::new(pending));
    for (partition, offset, place) in asked {
        let to =
            if offset == HIGH_WATERMARK { StartAt::HighWatermark } else { StartAt::Offset(offset) };
        let waiting = pending.clone();
        let done = Box::new(move |outcome| settle(&waiting, Some((place, outcome))));
        delete_records(node, &partition, to, done);
    }
    settle(&pending, None);
}

/// The partition, if records of it may be deleted at all.
fn may_delete<'a>(
    topic: Option<&'a Arc<Topic>>,
    part: &DeleteRecordsPartition,
) -> Result<&'a Arc<Partition>, ErrorCode> {
    let topic = topic.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    if topic.internal {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    let partition = topic.partition(part.partition_index);
    let partition = partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    // Kafka's ReplicaManager: only where cleanup.policy has delete.
    if topic.config.retention.is_none() {
        return Err(ErrorCode::POLICY_VIOLATION);
    }
    Ok(partition)
}

/// A request whose partitions are not all settled.
struct Pending {
    topics: Vec<(String, Vec<DeleteRecordsPartitionResult>)>,
    /// Partitions that are not settled, and one for the handler itself.
    open: usize,
    reply: Option<Reply>,
}

type Settled = ((usize, usize), Result<i64, StartError>);

/// Takes the outcome of a partition, or the end of the handler; answers with the last.
fn settle(pending: &Mutex<Pending>, settled: Option<Settled>) {
    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(((topic, at), outcome)) = settled
        && let Some(part) = pending.topics.get_mut(topic).and_then(|(_, parts)| parts.get_mut(at))
    {
        match outcome {
            Ok(start) => part.low_watermark = start,
            Err(error) => part.error_code = error.code(),
        }
    }
    pending.open -= 1;
    if pending.open > 0 {
        return;
    }
    let Some(reply) = pending.reply.take() else { return };
    let topics = pending.topics.iter();
    let topics = topics
        .map(|(name, parts)| DeleteRecordsTopicResult { name, partitions: parts.clone() })
        .collect();
    reply.answer(&DeleteRecordsResponse { topics, ..DeleteRecordsResponse::default() });
}
