//! OffsetCommit: a group, or a client without one, notes how far it has come.

use std::sync::Arc;

use ottla_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use ottla_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use ottla_protocol::{ErrorCode, Uuid};

use crate::node::{Node, TopicMap};
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::groups::{CommitOffset, CommitRequest};
use crate::state::offsets::PartitionName;

/// From this version on topics are named by their ids (KIP-848).
const IDS_FROM: i16 = 10;

/// Checks the topics, and hands what is left to the group.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: OffsetCommitRequest<'_>,
    reply: Reply,
) {
    let known = node.topics.load();
    let (answering, offsets) = sort(&request, info.version, &known, reply);
    if offsets.is_empty() {
        answering.send(&Ok(Vec::new()));
        return;
    }
    let commit = CommitRequest {
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        generation: request.generation_id_or_member_epoch,
        retention_ms: Some(request.retention_time_ms).filter(|kept| *kept >= 0),
        offsets,
    };
    let done = Box::new(move |codes| answering.send(&codes));
    node.coordinator.commit(node, request.group_id, &commit, done);
}

/// An answer in the making.
struct Answering {
    topics: Vec<Topic>,
    reply: Reply,
}

struct Topic {
    name: Arc<str>,
    id: Uuid,
    /// With an error at once, or with the next of the group's codes.
    partitions: Vec<(i32, Option<ErrorCode>)>,
}

/// Parts what a group is asked to commit from what is no partition.
fn sort<'a>(
    request: &'a OffsetCommitRequest<'a>,
    version: i16,
    known: &TopicMap,
    reply: Reply,
) -> (Answering, Vec<CommitOffset<'a>>) {
    let mut offsets = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for asked in &request.topics {
        let (found, absent) = if version >= IDS_FROM {
            (known.of_id(asked.topic_id), ErrorCode::UNKNOWN_TOPIC_ID)
        } else {
            (known.named(asked.name), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
        };
        let mut partitions = Vec::with_capacity(asked.partitions.len());
        for part in &asked.partitions {
            let index = part.partition_index;
            let refused = match found {
                None => Some(absent),
                Some(topic) if topic.partition(index).is_none() => {
                    Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
                }
                Some(topic) => {
                    offsets.push(CommitOffset {
                        partition: PartitionName { topic: topic.name.clone(), index },
                        topic_id: topic.id,
                        offset: part.committed_offset,
                        leader_epoch: part.committed_leader_epoch,
                        metadata: part.committed_metadata.unwrap_or_default(),
                    });
                    None
                }
            };
            partitions.push((index, refused));
        }
        let name = found.map_or_else(|| Arc::from(asked.name), |topic| topic.name.clone());
        topics.push(Topic { name, id: asked.topic_id, partitions });
    }
    (Answering { topics, reply }, offsets)
}

impl Answering {
    fn send(self, codes: &Result<Vec<ErrorCode>, ErrorCode>) {
        let mut next = codes.as_ref().ok().into_iter().flatten();
        let whole = codes.as_ref().err().copied();
        let mut code_of = |refused: Option<ErrorCode>| {
            refused.or(whole).unwrap_or_else(|| {
                // One code for each offset that was handed over, in order.
                next.next().copied().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR)
            })
        };
        let mut topics = Vec::with_capacity(self.topics.len());
        // As Kafka: a topic of which no partition is named is not answered.
        for topic in self.topics.iter().filter(|topic| !topic.partitions.is_empty()) {
            let partitions = topic.partitions.iter().map(|(index, refused)| {
                let error_code = code_of(*refused);
                OffsetCommitResponsePartition { partition_index: *index, error_code }
            });
            topics.push(OffsetCommitResponseTopic {
                name: &topic.name,
                topic_id: topic.id,
                partitions: partitions.collect(),
            });
        }
        self.reply.answer(&OffsetCommitResponse { topics, ..OffsetCommitResponse::default() });
    }
}
