//! Committed offsets, and the starts of partitions, as Kafka's messages.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use ottla_protocol::messages::list_offsets_response::ListOffsetsResponse;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_commit_response::OffsetCommitResponse;
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::offset_fetch_response::OffsetFetchResponse;
use ottla_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use ottla_protocol::messages::offset_for_leader_epoch_response::OffsetForLeaderEpochResponse;
use ottla_protocol::{ApiKey, ErrorCode, Uuid};

use super::{GroupNames, by_topic, millis};
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::assignor::NO_GENERATION;
use crate::state::cluster::Cluster;
use crate::state::commits::{CommitAnswer, CommitAsk};
use crate::state::fetcher::{EpochAnswer, EpochAsk, EpochFound, StartAnswer, StartAsk, StartFound};
use crate::state::lookups::{Committed, LookupAnswer};
use crate::state::machine::{Answer, Body, body};

/// The topics of a question by name and id: answers may name either.
///
/// Cheap to clone: a request and whoever reads its answer share it.
#[derive(Debug, Clone)]
pub(in crate::consumer) struct TopicIds {
    /// In the order of their names.
    topics: Arc<[(Arc<str>, Uuid)]>,
    /// The places of those whose ids are known, in the order of these.
    by_id: Arc<[(Uuid, usize)]>,
}

impl TopicIds {
    /// The topics of these partitions, with the ids that are known.
    pub(in crate::consumer) fn of<'a>(
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
        cluster: &Cluster,
    ) -> Self {
        Self::with(partitions, |at| cluster.topic(&at.topic).map_or(Uuid::ZERO, |known| known.id))
    }

    /// The topics of these partitions, with the ids that those are of.
    pub(in crate::consumer) fn with<'a>(
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
        id: impl Fn(&TopicPartition) -> Uuid,
    ) -> Self {
        let mut topics: Vec<(Arc<str>, Uuid)> =
            partitions.into_iter().map(|at| (Arc::clone(&at.topic), id(at))).collect();
        topics.sort_unstable();
        topics.dedup_by(|other, first| other.0 == first.0);
        let ids = topics.iter().enumerate().map(|(place, &(_, id))| (id, place));
        let mut by_id: Vec<(Uuid, usize)> = ids.filter(|(id, _)| !id.is_zero()).collect();
        by_id.sort_unstable();
        Self { topics: topics.into(), by_id: by_id.into() }
    }

    /// Whether they still stand for the same topics. Of one whose id was not known, and is now, nobody
    /// can tell.
    pub(in crate::consumer) fn are_of(&self, cluster: &Cluster) -> bool {
        self.topics.iter().all(|(topic, id)| {
            cluster.topic(topic).is_none_or(|known| known.id.is_zero() || known.id == *id)
        })
    }

    /// Versions of an API up to `by_name`, and above it if the id of every topic is known.
    fn versions(&self, key: ApiKey, min: i16, by_name: i16) -> RangeInclusive<i16> {
        let known = self.by_id.len() == self.topics.len();
        min..=if known { *key.served().end() } else { by_name }
    }

    fn by_name(&self, topic: &str) -> Option<&(Arc<str>, Uuid)> {
        let place = self.topics.binary_search_by(|(name, _)| (**name).cmp(topic)).ok()?;
        self.topics.get(place)
    }

    fn id(&self, topic: &str) -> Uuid {
        self.by_name(topic).map_or(Uuid::ZERO, |&(_, id)| id)
    }

    /// The topic that an answer names by one or the other.
    fn name(&self, name: &str, id: Uuid) -> Option<&Arc<str>> {
        if !name.is_empty() {
            return self.by_name(name).map(|(name, _)| name);
        }
        let known = self.by_id.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        let &(_, place) = self.by_id.get(known)?;
        self.topics.get(place).map(|(name, _)| name)
    }
}

/// The first version of both APIs that names topics by their ids (KIP-848's companion).
const BY_ID: i16 = 10;

pub(in crate::consumer) fn commit(
    names: &GroupNames,
    ids: TopicIds,
    ask: CommitAsk,
) -> Box<dyn Body> {
    let CommitAsk { identity, marks } = ask;
    let group = Arc::clone(&names.group);
    // A fixed name is a member's.
    let instance = names.instance_id.clone().filter(|_| identity.generation != NO_GENERATION);
    let min = if instance.is_some() { 7 } else { *ApiKey::OffsetCommit.served().start() };
    let versions = ids.versions(ApiKey::OffsetCommit, min, BY_ID - 1);
    let topics = by_topic(marks);
    body(ApiKey::OffsetCommit, versions, move |frame| {
        let by_id = frame.version >= BY_ID;
        let topics = topics.iter().map(|(topic, rows)| OffsetCommitRequestTopic {
            name: if by_id { "" } else { topic },
            topic_id: if by_id { ids.id(topic) } else { Uuid::ZERO },
            partitions: rows
                .iter()
                .map(|(partition, mark)| OffsetCommitRequestPartition {
                    partition_index: *partition,
                    committed_offset: mark.offset,
                    committed_leader_epoch: mark.leader_epoch,
                    committed_metadata: Some(mark.metadata.as_deref().unwrap_or_default()),
                })
                .collect(),
        });
        frame.put(&OffsetCommitRequest {
            group_id: &group,
            generation_id_or_member_epoch: identity.generation,
            member_id: &identity.member_id,
            group_instance_id: instance.as_deref(),
            topics: topics.collect(),
            ..OffsetCommitRequest::default()
        })
    })
}

pub(in crate::consumer) fn committed(
    answer: &Answer,
    ids: &TopicIds,
) -> Result<CommitAnswer, Error> {
    let response = answer.decode::<OffsetCommitResponse<'_>>()?;
    let mut partitions = Vec::new();
    for topic in &response.topics {
        let Some(name) = ids.name(topic.name, topic.topic_id) else { continue };
        partitions.extend(topic.partitions.iter().map(|row| {
            let partition = TopicPartition::new(Arc::clone(name), row.partition_index);
            (partition, row.error_code)
        }));
    }
    Ok(CommitAnswer { partitions })
}

pub(in crate::consumer) fn lookup(
    names: &GroupNames,
    ids: TopicIds,
    partitions: Vec<TopicPartition>,
    stable: Stable,
) -> Box<dyn Body> {
    let group = Arc::clone(&names.group);
    let require_stable = stable == Stable::Required;
    let min = if require_stable { 7 } else { *ApiKey::OffsetFetch.served().start() };
    let versions = ids.versions(ApiKey::OffsetFetch, min, BY_ID - 1);
    let topics = by_topic(partitions.into_iter().map(|partition| (partition, ())));
    body(ApiKey::OffsetFetch, versions, move |frame| {
        let rows = topics.iter().map(|(topic, rows)| {
            (topic, rows.iter().map(|&(partition, ())| partition).collect::<Vec<i32>>())
        });
        let mut request = OffsetFetchRequest { require_stable, ..OffsetFetchRequest::default() };
        if frame.version >= 8 {
            let by_id = frame.version >= BY_ID;
            let topics = rows.map(|(topic, partition_indexes)| OffsetFetchRequestTopics {
                name: if by_id { "" } else { topic },
                topic_id: if by_id { ids.id(topic) } else { Uuid::ZERO },
                partition_indexes,
            });
            request.groups = vec![OffsetFetchRequestGroup {
                group_id: &group,
                topics: Some(topics.collect()),
                ..OffsetFetchRequestGroup::default()
            }];
        } else {
            request.group_id = &group;
            let topics = rows.map(|(name, partition_indexes)| OffsetFetchRequestTopic {
                name,
                partition_indexes,
            });
            request.topics = Some(topics.collect());
        }
        frame.put(&request)
    })
}

/// Whether an offset that a transaction is about to change may be told (KIP-447).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::consumer) enum Stable {
    Required,
    NotRequired,
}

pub(in crate::consumer) fn looked_up(
    answer: &Answer,
    ids: &TopicIds,
) -> Result<LookupAnswer, Error> {
    let response = answer.decode::<OffsetFetchResponse<'_>>()?;
    let mut partitions = Vec::new();
    let Some(group) = response.groups.first().filter(|_| answer.version >= 8) else {
        for topic in &response.topics {
            let Some(name) = ids.name(topic.name, Uuid::ZERO) else { continue };
            partitions.extend(topic.partitions.iter().map(|row| {
                let found = (row.committed_offset, row.committed_leader_epoch, row.metadata);
                (TopicPartition::new(Arc::clone(name), row.partition_index), found, row.error_code)
            }));
        }
        let partitions = partitions.into_iter().map(committed_row).collect();
        return Ok(LookupAnswer { error: response.error_code, partitions });
    };
    for topic in &group.topics {
        let Some(name) = ids.name(topic.name, topic.topic_id) else { continue };
        partitions.extend(topic.partitions.iter().map(|row| {
            let found = (row.committed_offset, row.committed_leader_epoch, row.metadata);
            (TopicPartition::new(Arc::clone(name), row.partition_index), found, row.error_code)
        }));
    }
    let partitions = partitions.into_iter().map(committed_row).collect();
    Ok(LookupAnswer { error: group.error_code, partitions })
}

/// A partition with its offset, leader epoch and metadata, and its error.
type FoundRow<'a> = (TopicPartition, (i64, i32, Option<&'a str>), ErrorCode);

fn committed_row((partition, found, code): FoundRow<'_>) -> (TopicPartition, Committed, ErrorCode) {
    let (offset, leader_epoch, metadata) = found;
    let metadata = metadata.filter(|text| !text.is_empty()).map(Arc::from);
    (partition, Committed { offset, leader_epoch, metadata }, code)
}

pub(in crate::consumer) fn starts(ask: StartAsk, timeout: Duration) -> Box<dyn Body> {
    let served = ApiKey::ListOffsets.served();
    let min = if ask.read_committed { 2 } else { *served.start() };
    let isolation_level = i8::from(ask.read_committed);
    let rows = ask.parts.into_iter().map(|(partition, leader, start)| (partition, (leader, start)));
    let topics = by_topic(rows);
    body(ApiKey::ListOffsets, min..=*served.end(), move |frame| {
        let topics = topics.iter().map(|(topic, rows)| ListOffsetsTopic {
            name: topic,
            partitions: rows
                .iter()
                .map(|&(partition_index, (leader, start))| ListOffsetsPartition {
                    partition_index,
                    current_leader_epoch: leader.epoch,
                    timestamp: start.timestamp(),
                })
                .collect(),
        });
        frame.put(&ListOffsetsRequest {
            // Consumers are no replica.
            replica_id: -1,
            isolation_level,
            topics: topics.collect(),
            timeout_ms: millis(timeout),
        })
    })
}

pub(in crate::consumer) fn started(answer: &Answer) -> Result<StartAnswer, Error> {
    let response = answer.decode::<ListOffsetsResponse<'_>>()?;
    let mut parts = Vec::new();
    for topic in &response.topics {
        let name: Arc<str> = Arc::from(topic.name);
        parts.extend(topic.partitions.iter().map(|row| {
            let partition = TopicPartition::new(Arc::clone(&name), row.partition_index);
            StartFound {
                partition,
                error: row.error_code,
                offset: row.offset,
                timestamp: row.timestamp,
                epoch: row.leader_epoch,
            }
        }));
    }
    Ok(StartAnswer { parts })
}

/// Where epochs end, in the versions that tell the leader which epoch is known (KIP-320).
pub(in crate::consumer) fn epochs(ask: EpochAsk) -> Box<dyn Body> {
    let rows = ask.parts.into_iter().map(|(partition, leader, epoch)| (partition, (leader, epoch)));
    let topics = by_topic(rows);
    let served = ApiKey::OffsetForLeaderEpoch.served();
    // A consumer says that it is one from version 3 on; before, only brokers may ask.
    body(ApiKey::OffsetForLeaderEpoch, 3..=*served.end(), move |frame| {
        let topics = topics.iter().map(|(topic, rows)| OffsetForLeaderTopic {
            topic,
            partitions: rows
                .iter()
                .map(|&(partition, (leader, leader_epoch))| OffsetForLeaderPartition {
                    partition,
                    current_leader_epoch: leader.epoch,
                    leader_epoch,
                })
                .collect(),
        });
        frame.put(&OffsetForLeaderEpochRequest { replica_id: -1, topics: topics.collect() })
    })
}

pub(in crate::consumer) fn epochs_found(answer: &Answer) -> Result<EpochAnswer, Error> {
    let response = answer.decode::<OffsetForLeaderEpochResponse<'_>>()?;
    let mut parts = Vec::new();
    for topic in &response.topics {
        let name: Arc<str> = Arc::from(topic.topic);
        parts.extend(topic.partitions.iter().map(|row| EpochFound {
            partition: TopicPartition::new(Arc::clone(&name), row.partition),
            error: row.error_code,
            epoch: row.leader_epoch,
            end: row.end_offset,
        }));
    }
    Ok(EpochAnswer { parts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::cluster::Topic;

    #[test]
    fn a_topic_asked_by_its_name_alone_may_be_another_once_its_id_is_known() {
        let mut cluster = Cluster::default();
        let asked = [TopicPartition::new("t", 0)];
        let unknown = TopicIds::of(&asked, &cluster);
        assert!(unknown.are_of(&cluster), "nothing is known of it still");
        for (id, is_same) in [(Uuid::ZERO, true), (Uuid([7; 16]), false)] {
            let (name, partitions) = (Arc::from("t"), Vec::new());
            let topic = Topic { name, id, error: ErrorCode::NONE, partitions, racks: None };
            cluster.topics.insert("t".into(), Arc::new(topic));
            assert_eq!(unknown.are_of(&cluster), is_same, "{id:?}");
            assert!(TopicIds::of(&asked, &cluster).are_of(&cluster));
        }
    }
}
