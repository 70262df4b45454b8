//! DescribeTopicPartitions: topics page by page, a cursor telling where the next one begins (KIP-966).

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use ottla_protocol::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};

use super::operations;
use crate::node::{Node, Topic, TopicMap};
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::topics::check_name;

/// Most partitions of one answer. Kafka: `max.request.partition.size.limit`.
const PARTITIONS_MAX: usize = 2000;

/// Answers with the topics asked for, or all, by name, from the cursor on.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: DescribeTopicPartitionsRequest<'_>,
    reply: Reply,
) {
    let known = node.topics.load();
    let all = request.topics.is_empty();
    let (first, from) = match &request.cursor {
        Some(cursor) => (cursor.topic_name, usize::try_from(cursor.partition_index)),
        None => ("", Ok(0)),
    };
    let Ok(from) = from else {
        reply.close("the cursor of DescribeTopicPartitions is before the first partition".into());
        return;
    };
    let names: BTreeSet<&str> = if all {
        known.iter().map(|topic| &*topic.name).collect()
    } else {
        request.topics.iter().map(|topic| topic.name).collect()
    };
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let mut page = Page {
        node,
        known: &known,
        left: limit.clamp(1, PARTITIONS_MAX),
        response: DescribeTopicPartitionsResponse::default(),
    };
    for name in names.range(first..) {
        let from = if *name == first { from } else { 0 };
        if !page.add(name, from) {
            break;
        }
    }
    reply.answer(&page.response);
}

/// An answer in the making.
struct Page<'a> {
    node: &'a Node,
    known: &'a TopicMap,
    /// Partitions that still go into it.
    left: usize,
    response: DescribeTopicPartitionsResponse<'a>,
}

impl<'a> Page<'a> {
    /// Adds a topic from one of its partitions on; false if the page is full before its end.
    fn add(&mut self, name: &'a str, from: usize) -> bool {
        if self.left == 0 {
            self.end_before(name, from);
            return false;
        }
        let mut described = DescribeTopicPartitionsResponseTopic {
            name: Some(name),
            topic_authorized_operations: operations::TOPIC,
            ..DescribeTopicPartitionsResponseTopic::default()
        };
        let Some(topic) = self.known.named(name) else {
            described.error_code = check_name(name)
                .map_or_else(|refusal| refusal.code, |()| ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            self.response.topics.push(described);
            return true;
        };
        described.topic_id = topic.id;
        described.is_internal = topic.internal;
        described.partitions = partitions(self.node, topic, from, self.left);
        let count = described.partitions.len();
        self.left -= count;
        self.response.topics.push(described);
        let next = from.saturating_add(count);
        if next < topic.partitions.len() {
            self.end_before(name, next);
            return false;
        }
        true
    }

    fn end_before(&mut self, name: &'a str, partition: usize) {
        let partition_index = i32::try_from(partition).unwrap_or(i32::MAX);
        self.response.next_cursor = Some(Cursor { topic_name: name, partition_index });
    }
}

fn partitions(
    node: &Node,
    topic: &Topic,
    from: usize,
    most: usize,
) -> Vec<DescribeTopicPartitionsResponsePartition> {
    let partitions = topic.partitions.iter().skip(from).take(most);
    let partitions = partitions.map(|partition| DescribeTopicPartitionsResponsePartition {
        partition_index: partition.index(),
        leader_id: node.node_id,
        leader_epoch: partition.leader_epoch(),
        replica_nodes: vec![node.node_id],
        isr_nodes: vec![node.node_id],
        eligible_leader_replicas: Some(Vec::new()),
        last_known_elr: Some(Vec::new()),
        ..DescribeTopicPartitionsResponsePartition::default()
    });
    partitions.collect()
}
