//! OffsetDelete: committed offsets of a group go, but for topics that its members read.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use ottla_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use crate::node::{Node, TopicMap};
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::offsets::PartitionName;

/// Checks the partitions, and hands what is left to the group.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: OffsetDeleteRequest<'_>,
    reply: Reply,
) {
    let (topics, partitions) = sort(&request, &node.topics.load());
    let done = Box::new(move |codes: Result<Vec<ErrorCode>, ErrorCode>| match codes {
        Ok(codes) => answer(reply, &topics, &codes),
        Err(error_code) => {
            reply.answer(&OffsetDeleteResponse { error_code, ..OffsetDeleteResponse::default() });
        }
    });
    // Also without partitions: whether the group is there is part of the answer.
    node.coordinator.delete_offsets(node, request.group_id, &partitions, done);
}

/// A topic as asked for, with its partitions: refused at once, or left to the group.
type Asked = (String, Vec<(i32, Option<ErrorCode>)>);

fn sort(request: &OffsetDeleteRequest<'_>, known: &TopicMap) -> (Vec<Asked>, Vec<PartitionName>) {
    let mut partitions = Vec::new();
    let topics = request.topics.iter().map(|asked| {
        let topic = known.named(asked.name);
        let indexes = asked.partitions.iter().map(|part| {
            let index = part.partition_index;
            let Some(topic) = topic.filter(|topic| topic.partition(index).is_some()) else {
                return (index, Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
            };
            partitions.push(PartitionName { topic: topic.name.clone(), index });
            (index, None)
        });
        (asked.name.to_owned(), indexes.collect())
    });
    (topics.collect(), partitions)
}

fn answer(reply: Reply, topics: &[Asked], codes: &[ErrorCode]) {
    let mut next = codes.iter().copied();
    let topics = topics.iter().map(|(name, partitions)| {
        let partitions = partitions.iter().map(|(index, refused)| OffsetDeleteResponsePartition {
            partition_index: *index,
            // One code for each that was handed over, in order.
            error_code: refused.or_else(|| next.next()).unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR),
        });
        OffsetDeleteResponseTopic { name, partitions: partitions.collect() }
    });
    let topics = topics.collect();
    reply.answer(&OffsetDeleteResponse { topics, ..OffsetDeleteResponse::default() });
}
