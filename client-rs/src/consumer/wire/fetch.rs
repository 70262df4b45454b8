//! Fetches as Kafka's messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::fetch_request::{
    FetchPartition, FetchRequest, FetchTopic, ForgottenTopic,
};
use ottla_protocol::messages::fetch_response::{FetchResponse, PartitionData};
use ottla_protocol::{ApiKey, Uuid};

use super::{by_topic, millis};
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::fetcher::{FetchAnswer, FetchAsk, FetchTopics, FetchedPart, Leader};
use crate::state::machine::{Answer, Body, body};

/// The last version that names topics (KIP-516).
const BY_NAME: i16 = 12;

/// A leader that an answer names in the place of the one that was asked (KIP-951).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::consumer) struct Hint {
    pub(in crate::consumer) partition: TopicPartition,
    pub(in crate::consumer) leader: i32,
    pub(in crate::consumer) epoch: i32,
    /// Where that broker listens, if the answer tells.
    pub(in crate::consumer) address: Option<(String, i32)>,
}

/// The first version that has sessions (KIP-227).
const SESSIONS: i16 = 7;

/// A fetch of a client that stands in that rack, and the topics that its answer may name.
pub(in crate::consumer) fn fetch(
    ask: FetchAsk,
    rack: &Arc<str>,
) -> (Box<dyn Body>, Arc<FetchTopics>) {
    let FetchAsk { session, .. } = ask;
    let served = ApiKey::Fetch.served();
    let min = if session.epoch > 0 || session.id != 0 { SESSIONS } else { *served.start() };
    let versions = min..=if session.by_id { *served.end() } else { BY_NAME };
    let (rack, names) = (Arc::clone(rack), Arc::clone(&session.topics));
    let forgotten = by_id(session.forgotten);
    let rows = ask
        .parts
        .iter()
        .map(|part| (part.partition.clone(), (part.leader, part.offset, part.max_bytes)));
    let topics = by_topic(rows);
    let id = |rows: &[(i32, (Leader, i64, usize))]| {
        rows.first().map_or(Uuid::ZERO, |(_, (leader, ..))| leader.topic_id)
    };
    let body = body(ApiKey::Fetch, versions, move |frame| {
        let by_id = frame.version > BY_NAME;
        let topics = topics.iter().map(|(topic, rows)| FetchTopic {
            topic: if by_id { "" } else { topic },
            topic_id: if by_id { id(rows) } else { Uuid::ZERO },
            partitions: rows
                .iter()
                .map(|&(partition, (leader, fetch_offset, max_bytes))| FetchPartition {
                    partition,
                    current_leader_epoch: leader.epoch,
                    fetch_offset,
                    partition_max_bytes: i32::try_from(max_bytes).unwrap_or(i32::MAX),
                    ..FetchPartition::default()
                })
                .collect(),
        });
        let forgotten = forgotten.iter().map(|((topic, topic_id), partitions)| ForgottenTopic {
            topic: if by_id { "" } else { topic },
            topic_id: if by_id { *topic_id } else { Uuid::ZERO },
            partitions: partitions.clone(),
        });
        frame.put(&FetchRequest {
            max_wait_ms: millis(ask.max_wait),
            min_bytes: ask.min_bytes,
            max_bytes: i32::try_from(ask.max_bytes).unwrap_or(i32::MAX),
            isolation_level: i8::from(ask.read_committed),
            session_id: session.id,
            session_epoch: session.epoch,
            topics: topics.collect(),
            forgotten_topics_data: forgotten.collect(),
            rack_id: &rack,
            ..FetchRequest::default()
        })
    });
    (body, names)
}

/// Partitions by the names and ids of their topics: two topics of one name may follow each other.
fn by_id(partitions: Vec<(TopicPartition, Uuid)>) -> BTreeMap<(Arc<str>, Uuid), Vec<i32>> {
    let mut topics = BTreeMap::<_, Vec<i32>>::new();
    for (partition, id) in partitions {
        topics.entry((partition.topic, id)).or_default().push(partition.partition);
    }
    topics
}

/// The answer, its records as slices of the frame, and the leaders it names.
pub(in crate::consumer) fn fetched(
    answer: &Answer,
    topics: &FetchTopics,
) -> Result<(FetchAnswer, Vec<Hint>), Error> {
    let response = answer.decode::<FetchResponse<'_>>()?;
    let mut parts = Vec::new();
    let mut hints = Vec::new();
    for topic in &response.responses {
        let by_id = answer.version > BY_NAME;
        let name = if by_id { topics.by_id(topic.topic_id) } else { topics.by_name(topic.topic) };
        let Some(name) = name else { continue };
        for row in &topic.partitions {
            let partition = TopicPartition::new(Arc::clone(name), row.partition_index);
            if row.current_leader.leader_id >= 0 && row.current_leader.leader_epoch >= 0 {
                hints.push(hint(&partition, row, &response));
            }
            parts.push(part(partition, row, answer));
        }
    }
    let throttle = u64::try_from(response.throttle_time_ms).unwrap_or(0);
    let throttle = Duration::from_millis(throttle);
    let (error, session) = (response.error_code, response.session_id);
    Ok((FetchAnswer { error, throttle, session, parts }, hints))
}

fn hint(partition: &TopicPartition, row: &PartitionData<'_>, response: &FetchResponse<'_>) -> Hint {
    let leader = row.current_leader.leader_id;
    let node = response.node_endpoints.iter().find(|node| node.node_id == leader);
    Hint {
        partition: partition.clone(),
        leader,
        epoch: row.current_leader.leader_epoch,
        address: node.map(|node| (node.host.to_owned(), node.port)),
    }
}

fn part(partition: TopicPartition, row: &PartitionData<'_>, answer: &Answer) -> FetchedPart {
    let aborted = row.aborted_transactions.iter().flatten();
    FetchedPart {
        partition,
        error: row.error_code,
        high_watermark: row.high_watermark,
        replica: Some(row.preferred_read_replica).filter(|&node| node >= 0),
        aborted: aborted.map(|row| (row.producer_id, row.first_offset)).collect(),
        pinned: answer.body.len(),
        records: row.records.bytes().map(|bytes| answer.body.slice_ref(bytes)).unwrap_or_default(),
    }
}
