//! Fetches as Kafka's messages.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::fetch_response::{FetchResponse, PartitionData};
use ottla_protocol::{ApiKey, Uuid};

use super::{by_topic, millis};
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::fetcher::{FetchAnswer, FetchAsk, FetchedPart, Leader};
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

/// The topics of a fetch by name and id.
#[derive(Debug)]
pub(in crate::consumer) struct FetchTopics(Vec<(Arc<str>, Uuid)>);

pub(in crate::consumer) fn fetch(ask: FetchAsk) -> (Box<dyn Body>, FetchTopics) {
    let ids_known = ask.parts.iter().all(|part| !part.leader.topic_id.is_zero());
    let served = ApiKey::Fetch.served();
    let versions = *served.start()..=if ids_known { *served.end() } else { BY_NAME };
    let rows = ask
        .parts
        .iter()
        .map(|part| (part.partition.clone(), (part.leader, part.offset, part.max_bytes)));
    let topics = by_topic(rows);
    let id = |rows: &[(i32, (Leader, i64, usize))]| {
        rows.first().map_or(Uuid::ZERO, |(_, (leader, ..))| leader.topic_id)
    };
    let known = topics.iter().map(|(topic, rows)| (Arc::clone(topic), id(rows))).collect();
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
        frame.put(&FetchRequest {
            max_wait_ms: millis(ask.max_wait),
            min_bytes: ask.min_bytes,
            max_bytes: i32::try_from(ask.max_bytes).unwrap_or(i32::MAX),
            isolation_level: i8::from(ask.read_committed),
            // KIP-227: epoch −1 asks for no session.
            session_id: 0,
            session_epoch: -1,
            topics: topics.collect(),
            ..FetchRequest::default()
        })
    });
    (body, FetchTopics(known))
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
        let same = |row: &&(Arc<str>, Uuid)| {
            if by_id { row.1 == topic.topic_id } else { *row.0 == *topic.topic }
        };
        let Some((name, _)) = topics.0.iter().find(same) else { continue };
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
    Ok((FetchAnswer { error: response.error_code, throttle, parts }, hints))
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
        aborted: aborted.map(|row| (row.producer_id, row.first_offset)).collect(),
        records: row.records.bytes().map(|bytes| answer.body.slice_ref(bytes)).unwrap_or_default(),
    }
}
