//! Metadata: topics, their partitions and the address of this broker; creates topics when asked to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_protocol::messages::{MetadataRequest, MetadataResponse};
use ottla_protocol::{ErrorCode, Uuid};

use super::operations;
use crate::driver::controller::{Ask, Created, Refusal, TopicRequest};
use crate::node::{Node, Topic, TopicMap};
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::topics::check_name;

/// In version 0 an empty list means all topics, later null does.
const NULL_IS_ALL_FROM: i16 = 1;

/// Topic ids may be asked for from this version on; before, the field is not to be trusted.
const IDS_FROM: i16 = 12;

/// Answers with what is asked for, after creating what a producer asks for and is not there.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: MetadataRequest<'_>,
    reply: Reply,
) {
    if info.version < IDS_FROM && names_by_id(&request) {
        refuse(reply, &request);
        return;
    }
    let asked = asked(&request, info.version);
    let (host, port) = info.connection.advertised(node);
    let answer = Answering {
        node: node.clone(),
        asked,
        host,
        port,
        refused: BTreeMap::new(),
        topic_operations: operations::if_asked(
            request.include_topic_authorized_operations,
            operations::TOPIC,
        ),
        cluster_operations: operations::if_asked(
            request.include_cluster_authorized_operations,
            operations::CLUSTER,
        ),
    };
    let missing = if request.allow_auto_topic_creation && node.settings.auto_create_topics {
        answer.missing()
    } else {
        Vec::new()
    };
    if missing.is_empty() {
        answer.send(reply);
        return;
    }
    create(node, missing, answer, reply);
}

/// What a request asks about.
enum Asked {
    All,
    Some(Vec<AskedTopic>),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum AskedTopic {
    Name(String),
    Id(Uuid),
}

fn asked(request: &MetadataRequest<'_>, version: i16) -> Asked {
    let Some(topics) = &request.topics else { return Asked::All };
    if topics.is_empty() && version < NULL_IS_ALL_FROM {
        return Asked::All;
    }
    // As Kafka: one id in the request, and its names are not looked at.
    let by_id = topics.iter().any(|topic| !topic.topic_id.is_zero());
    let topics = topics.iter().filter_map(|topic| match topic.name {
        Some(name) if !by_id => Some(AskedTopic::Name(name.to_owned())),
        None if !by_id => Some(AskedTopic::Id(Uuid::ZERO)),
        _ => Some(AskedTopic::Id(topic.topic_id)).filter(|_| !topic.topic_id.is_zero()),
    });
    // Each is answered once, however often it is named.
    Asked::Some(topics.collect::<BTreeSet<_>>().into_iter().collect())
}

/// Whether any topic is named by an id, or not at all.
fn names_by_id(request: &MetadataRequest<'_>) -> bool {
    let topics = request.topics.as_deref().unwrap_or_default();
    topics.iter().any(|topic| topic.name.is_none() || !topic.topic_id.is_zero())
}

/// Before a certain version ids may stand in a request, and cannot be asked by (KIP-516).
fn refuse(reply: Reply, request: &MetadataRequest<'_>) {
    let topics = request.topics.iter().flatten().map(|topic| MetadataResponseTopic {
        error_code: ErrorCode::INVALID_REQUEST,
        name: Some(topic.name.unwrap_or_default()),
        topic_id: topic.topic_id,
        ..MetadataResponseTopic::default()
    });
    let topics = topics.collect();
    reply.answer(&MetadataResponse { topics, ..MetadataResponse::default() });
}

/// An answer in the making.
struct Answering {
    node: Arc<Node>,
    asked: Asked,
    host: String,
    port: i32,
    /// Topics that could not be created.
    refused: BTreeMap<String, ErrorCode>,
    /// What the client may do, if it wants to know (KIP-430).
    topic_operations: i32,
    cluster_operations: i32,
}

/// Creates topics, all in one decision, and answers when they are there or refused.
fn create(node: &Arc<Node>, missing: Vec<String>, mut answer: Answering, reply: Reply) {
    let mut requests = Vec::with_capacity(missing.len());
    for name in missing {
        match check_name(&name) {
            Ok(()) => requests.push(TopicRequest {
                name,
                partitions: -1,
                replication_factor: -1,
                ..TopicRequest::default()
            }),
            // No matter for the controller, whose decisions come one at a time.
            Err(refusal) => answer.note_refused(name, refusal),
        }
    }
    if requests.is_empty() {
        answer.send(reply);
        return;
    }
    let names: Vec<_> = requests.iter().map(|request| request.name.clone()).collect();
    let done = Box::new(move |outcomes: Vec<Result<Created, Refusal>>| {
        for (name, outcome) in names.into_iter().zip(outcomes) {
            match outcome {
                Ok(_created) => {}
                // Somebody else was faster.
                Err(refused) if refused.code == ErrorCode::TOPIC_ALREADY_EXISTS => {}
                Err(refused) => answer.note_refused(name, refused),
            }
        }
        answer.send(reply);
    });
    node.controller.create_topics(node, &requests, Ask::Create, done);
}

impl Answering {
    /// The names asked for that are no topics, each once.
    fn missing(&self) -> Vec<String> {
        let Asked::Some(topics) = &self.asked else { return Vec::new() };
        let known = self.node.topics.load();
        let missing: BTreeSet<&str> = topics
            .iter()
            .filter_map(|topic| match topic {
                AskedTopic::Name(name) => Some(name.as_str()),
                AskedTopic::Id(_) => None,
            })
            .filter(|name| known.named(name).is_none())
            .collect();
        missing.into_iter().map(str::to_owned).collect()
    }

    /// Keeps what the answer says about a topic that cannot be created.
    fn note_refused(&mut self, name: String, refused: Refusal) {
        // One line a request, whatever number of names it has.
        if self.refused.is_empty() {
            tracing::info!(topic = name, error = %refused.message,
                "a topic that a client asked for is not created");
        }
        self.refused.insert(name, refused.code);
    }

    fn send(&self, reply: Reply) {
        let known = self.node.topics.load();
        let topics = match &self.asked {
            Asked::All => {
                let mut all: Vec<_> = known.iter().collect();
                all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
                all.into_iter().map(|topic| self.describe(topic)).collect()
            }
            Asked::Some(topics) => {
                topics.iter().map(|topic| self.describe_asked(&known, topic)).collect()
            }
        };
        let response = MetadataResponse {
            brokers: vec![MetadataResponseBroker {
                node_id: self.node.node_id,
                host: &self.host,
                port: self.port,
                ..MetadataResponseBroker::default()
            }],
            cluster_id: Some(&self.node.cluster_id),
            controller_id: self.node.node_id,
            cluster_authorized_operations: self.cluster_operations,
            topics,
            ..MetadataResponse::default()
        };
        reply.answer(&response);
    }

    fn describe_asked<'a>(
        &'a self,
        known: &'a TopicMap,
        asked: &'a AskedTopic,
    ) -> MetadataResponseTopic<'a> {
        let (topic, name, id, absent) = match asked {
            AskedTopic::Name(name) => {
                let absent = if check_name(name).is_ok() {
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                } else {
                    ErrorCode::INVALID_TOPIC_EXCEPTION
                };
                (known.named(name), Some(name.as_str()), Uuid::ZERO, absent)
            }
            AskedTopic::Id(id) => (known.of_id(*id), None, *id, ErrorCode::UNKNOWN_TOPIC_ID),
        };
        if let Some(topic) = topic {
            return self.describe(topic);
        }
        let refused = name.and_then(|name| self.refused.get(name));
        MetadataResponseTopic {
            error_code: refused.copied().unwrap_or(absent),
            name,
            topic_id: id,
            ..MetadataResponseTopic::default()
        }
    }

    fn describe<'a>(&self, topic: &'a Topic) -> MetadataResponseTopic<'a> {
        let me = self.node.node_id;
        let partitions = topic.partitions.iter().map(|partition| MetadataResponsePartition {
            partition_index: partition.index(),
            leader_id: me,
            leader_epoch: partition.leader_epoch(),
            replica_nodes: vec![me],
            isr_nodes: vec![me],
            ..MetadataResponsePartition::default()
        });
        MetadataResponseTopic {
            name: Some(&topic.name),
            topic_id: topic.id,
            is_internal: topic.internal,
            topic_authorized_operations: self.topic_operations,
            partitions: partitions.collect(),
            error_code: ErrorCode::NONE,
        }
    }
}
