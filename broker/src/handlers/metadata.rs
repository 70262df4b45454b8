//! Metadata: topics, their partitions and the address of this broker; creates topics when asked to.

use std::sync::{Arc, Mutex, PoisonError};

use ottla_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_protocol::messages::{MetadataRequest, MetadataResponse};
use ottla_protocol::{ErrorCode, Uuid};

use crate::driver::controller::NewTopic;
use crate::node::{Node, Topic, TopicMap};
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

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
    let asked = asked(&request, info.version);
    let (host, port) = info.connection.advertised(node);
    let answer = Answering { node: node.clone(), asked, host, port, refused: Vec::new() };
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

enum AskedTopic {
    Name(String),
    Id(Uuid),
}

fn asked(request: &MetadataRequest<'_>, version: i16) -> Asked {
    let Some(topics) = &request.topics else { return Asked::All };
    if topics.is_empty() && version < NULL_IS_ALL_FROM {
        return Asked::All;
    }
    let topics = topics.iter().map(|topic| match topic.name {
        Some(name) => AskedTopic::Name(name.to_owned()),
        None if version >= IDS_FROM => AskedTopic::Id(topic.topic_id),
        None => AskedTopic::Name(String::new()),
    });
    Asked::Some(topics.collect())
}

/// An answer in the making.
struct Answering {
    node: Arc<Node>,
    asked: Asked,
    host: String,
    port: i32,
    /// Topics that could not be created.
    refused: Vec<(String, ErrorCode)>,
}

/// Creates topics, and answers when the last one is there or refused.
fn create(node: &Arc<Node>, missing: Vec<String>, answer: Answering, reply: Reply) {
    struct Creating {
        open: usize,
        answer: Option<(Answering, Reply)>,
    }
    let creating = Creating { open: missing.len(), answer: Some((answer, reply)) };
    let creating = Arc::new(Mutex::new(creating));
    for name in missing {
        let waiting = creating.clone();
        let topic = NewTopic {
            name: name.clone(),
            partitions: -1,
            replication_factor: -1,
            configs: Vec::new(),
        };
        node.controller.create_topic(
            node,
            topic,
            Box::new(move |created| {
                let mut creating = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                creating.open -= 1;
                let last = creating.open == 0;
                if let Some((answer, _)) = &mut creating.answer {
                    match created {
                        Ok(()) => {}
                        // Somebody else was faster.
                        Err(refused) if refused.code == ErrorCode::TOPIC_ALREADY_EXISTS => {}
                        Err(refused) => {
                            tracing::info!(topic = name, error = %refused.message,
                                "a topic that a client asked for is not created");
                            answer.refused.push((name, refused.code));
                        }
                    }
                }
                let done = if last { creating.answer.take() } else { None };
                drop(creating);
                if let Some((answer, reply)) = done {
                    answer.send(reply);
                }
            }),
        );
    }
}

impl Answering {
    /// The names asked for that are no topics.
    fn missing(&self) -> Vec<String> {
        let Asked::Some(topics) = &self.asked else { return Vec::new() };
        let known = self.node.topics.load();
        let mut missing: Vec<String> = Vec::new();
        for topic in topics {
            if let AskedTopic::Name(name) = topic
                && known.named(name).is_none()
                && !missing.contains(name)
            {
                missing.push(name.clone());
            }
        }
        missing
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
                let absent = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
                (known.named(name), Some(name.as_str()), Uuid::ZERO, absent)
            }
            AskedTopic::Id(id) => (known.of_id(*id), None, *id, ErrorCode::UNKNOWN_TOPIC_ID),
        };
        if let Some(topic) = topic {
            return self.describe(topic);
        }
        let refused = self.refused.iter().find(|(other, _)| Some(other.as_str()) == name);
        MetadataResponseTopic {
            error_code: refused.map_or(absent, |(_, code)| *code),
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
            partitions: partitions.collect(),
            ..MetadataResponseTopic::default()
        }
    }
}
