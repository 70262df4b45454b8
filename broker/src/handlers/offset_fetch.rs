//! OffsetFetch: how far groups have come.

use std::sync::{Arc, Mutex, PoisonError};

use ottla_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use ottla_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse};
use ottla_protocol::{ErrorCode, Uuid};

use crate::node::{Node, TopicMap};
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::offsets::{Committed, Offsets, PartitionName};

/// From this version on an error for the whole group has a field of its own.
const GROUP_ERROR_FROM: i16 = 2;

/// From this version on many groups are asked about at a time (KIP-709).
const MANY_FROM: i16 = 8;

/// From this version on topics are named by their ids (KIP-848).
const IDS_FROM: i16 = 10;

/// Asks each group's shard; answers when all have.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: OffsetFetchRequest<'_>,
    reply: Reply,
) {
    let asked = asked(&request, info.version);
    if asked.is_empty() {
        reply.answer(&OffsetFetchResponse::default());
        return;
    }
    let by_id = info.version >= IDS_FROM;
    let known = node.topics.load();
    let groups = asked.iter().map(|_| None).collect();
    let collecting = Collecting { open: asked.len(), groups, reply: Some(reply) };
    let collecting = Arc::new(Mutex::new(collecting));
    for (at, group) in asked.into_iter().enumerate() {
        let group = Arc::new(group);
        let (collecting, asked) = (collecting.clone(), group.clone());
        let done = Box::new(move |found: Result<Vec<FoundTopic>, ErrorCode>| {
            let found = match found {
                Ok(topics) => Found { id: asked.id.clone(), error: ErrorCode::NONE, topics },
                Err(error) => asked.refused(error),
            };
            let whole = {
                let mut collecting = collecting.lock().unwrap_or_else(PoisonError::into_inner);
                collecting.put(at, found)
            };
            if let Some((groups, reply)) = whole {
                answer(reply, &groups);
            }
        });
        let read = |offsets: &Offsets| group.look_up(offsets, by_id, &known);
        node.coordinator.offsets(node, &group.id, read, done);
    }
}

/// Answers of groups, until the last one is there.
struct Collecting {
    open: usize,
    groups: Vec<Option<Found>>,
    reply: Option<Reply>,
}

impl Collecting {
    fn put(&mut self, at: usize, found: Found) -> Option<(Vec<Found>, Reply)> {
        if let Some(place) = self.groups.get_mut(at) {
            *place = Some(found);
        }
        self.open = self.open.saturating_sub(1);
        if self.open > 0 {
            return None;
        }
        let groups = std::mem::take(&mut self.groups).into_iter().flatten().collect();
        Some((groups, self.reply.take()?))
    }
}

/// A group that is asked about.
struct AskedGroup {
    id: String,
    /// None: all that it has.
    topics: Option<Vec<AskedTopic>>,
}

struct AskedTopic {
    name: String,
    id: Uuid,
    indexes: Vec<i32>,
}

/// What is answered about a group.
struct Found {
    id: String,
    error: ErrorCode,
    topics: Vec<FoundTopic>,
}

struct FoundTopic {
    name: Arc<str>,
    id: Uuid,
    partitions: Vec<FoundPartition>,
}

struct FoundPartition {
    index: i32,
    error: ErrorCode,
    committed: Option<Committed>,
}

fn asked(request: &OffsetFetchRequest<'_>, version: i16) -> Vec<AskedGroup> {
    if version < MANY_FROM {
        let topics = request.topics.as_ref().map(|topics| {
            let topics = topics.iter().map(|topic| AskedTopic {
                name: topic.name.to_owned(),
                id: Uuid::ZERO,
                indexes: topic.partition_indexes.clone(),
            });
            topics.collect()
        });
        return vec![AskedGroup { id: request.group_id.to_owned(), topics }];
    }
    let groups = request.groups.iter().map(|group| {
        let topics = group.topics.as_ref().map(|topics| {
            let topics = topics.iter().map(|topic| AskedTopic {
                name: topic.name.to_owned(),
                id: topic.topic_id,
                indexes: topic.partition_indexes.clone(),
            });
            topics.collect()
        });
        AskedGroup { id: group.group_id.to_owned(), topics }
    });
    groups.collect()
}

impl AskedGroup {
    fn look_up(&self, offsets: &Offsets, by_id: bool, known: &TopicMap) -> Vec<FoundTopic> {
        let Some(topics) = &self.topics else { return self.all(offsets, by_id, known) };
        let look_up = |topic: &AskedTopic| {
            let found = if by_id { known.of_id(topic.id) } else { None };
            if by_id && found.is_none() {
                return topic.refused(ErrorCode::UNKNOWN_TOPIC_ID);
            }
            let name = found.map_or_else(|| Arc::from(topic.name.as_str()), |t| t.name.clone());
            let partitions = topic.indexes.iter().map(|index| {
                let partition = PartitionName { topic: name.clone(), index: *index };
                let committed = offsets.get(&self.id, &partition).cloned();
                FoundPartition { index: *index, error: ErrorCode::NONE, committed }
            });
            FoundTopic { partitions: partitions.collect(), name: name.clone(), id: topic.id }
        };
        topics.iter().map(look_up).collect()
    }

    /// All offsets of the group; by id those of topics that are still there.
    fn all(&self, offsets: &Offsets, by_id: bool, known: &TopicMap) -> Vec<FoundTopic> {
        let mut topics: Vec<FoundTopic> = Vec::new();
        for (partition, committed) in offsets.of_group(&self.id) {
            let id = known.named(&partition.topic).map(|topic| topic.id);
            if by_id && id.is_none() {
                continue;
            }
            let found = FoundPartition {
                index: partition.index,
                error: ErrorCode::NONE,
                committed: Some(committed.clone()),
            };
            match topics.last_mut().filter(|last| last.name == partition.topic) {
                Some(last) => last.partitions.push(found),
                None => topics.push(FoundTopic {
                    name: partition.topic.clone(),
                    id: id.unwrap_or(Uuid::ZERO),
                    partitions: vec![found],
                }),
            }
        }
        topics
    }

    /// The answer with one error for all of it; the oldest clients look for it at the partitions.
    fn refused(&self, error: ErrorCode) -> Found {
        let topics = self.topics.iter().flatten().map(|topic| topic.refused(error));
        Found { id: self.id.clone(), error, topics: topics.collect() }
    }
}

impl AskedTopic {
    fn refused(&self, error: ErrorCode) -> FoundTopic {
        let partitions = self.indexes.iter();
        let partitions =
            partitions.map(|index| FoundPartition { index: *index, error, committed: None });
        FoundTopic {
            name: Arc::from(self.name.as_str()),
            id: self.id,
            partitions: partitions.collect(),
        }
    }
}

impl FoundPartition {
    fn offset(&self) -> i64 {
        self.committed.as_ref().map_or(-1, |committed| committed.offset)
    }

    fn leader_epoch(&self) -> i32 {
        self.committed.as_ref().map_or(-1, |committed| committed.leader_epoch)
    }

    fn metadata(&self) -> &str {
        self.committed.as_ref().map_or("", |committed| &*committed.metadata)
    }
}

fn answer(reply: Reply, groups: &[Found]) {
    if reply.version() >= MANY_FROM {
        let groups = groups.iter().map(many).collect();
        reply.answer(&OffsetFetchResponse { groups, ..OffsetFetchResponse::default() });
        return;
    }
    let Some(group) = groups.first() else {
        reply.answer(&OffsetFetchResponse::default());
        return;
    };
    let whole = reply.version() >= GROUP_ERROR_FROM && group.error != ErrorCode::NONE;
    let topics = group.topics.iter().filter(|_| !whole).map(|topic| {
        let partitions = topic.partitions.iter().map(|part| OffsetFetchResponsePartition {
            partition_index: part.index,
            committed_offset: part.offset(),
            committed_leader_epoch: part.leader_epoch(),
            metadata: Some(part.metadata()),
            error_code: part.error,
        });
        OffsetFetchResponseTopic { name: &topic.name, partitions: partitions.collect() }
    });
    let (topics, error_code) = (topics.collect(), group.error);
    reply.answer(&OffsetFetchResponse { topics, error_code, ..OffsetFetchResponse::default() });
}

fn many(group: &Found) -> OffsetFetchResponseGroup<'_> {
    let answered = group.topics.iter().filter(|_| group.error == ErrorCode::NONE);
    let topics = answered.map(|topic| {
        let partitions = topic.partitions.iter().map(|part| OffsetFetchResponsePartitions {
            partition_index: part.index,
            committed_offset: part.offset(),
            committed_leader_epoch: part.leader_epoch(),
            metadata: Some(part.metadata()),
            error_code: part.error,
        });
        OffsetFetchResponseTopics {
            name: &topic.name,
            topic_id: topic.id,
            partitions: partitions.collect(),
        }
    });
    OffsetFetchResponseGroup {
        group_id: &group.id,
        topics: topics.collect(),
        error_code: group.error,
    }
}
