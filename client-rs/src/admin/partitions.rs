//! Partitions: added to a topic, their records deleted, their producers described.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::ApiKey;
use ottla_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use ottla_protocol::messages::create_partitions_response::CreatePartitionsResponse;
use ottla_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use ottla_protocol::messages::delete_records_response::DeleteRecordsResponse;
use ottla_protocol::messages::describe_producers_request::{
    DescribeProducersRequest, TopicRequest,
};
use ottla_protocol::messages::describe_producers_response::DescribeProducersResponse;

use super::ask::{Ask, outcome};
use super::{Admin, Call, ChangeOptions, Results};
use crate::record::TopicPartition;
use crate::state::admin::Route;
use crate::state::machine::body;

/// How many partitions a topic is to have.
#[derive(Debug, Clone)]
pub struct NewPartitions {
    total: i32,
    assignments: Option<Vec<Vec<i32>>>,
}

impl NewPartitions {
    /// So many in all, which must be more than it has.
    pub const fn increase_to(total: i32) -> Self {
        Self { total, assignments: None }
    }

    /// The same with the brokers that hold each new partition, the preferred leader first.
    #[must_use]
    pub fn replicas(mut self, brokers: &[&[i32]]) -> Self {
        self.assignments = Some(brokers.iter().map(|brokers| brokers.to_vec()).collect());
        self
    }
}

/// What is left of a partition after records were deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeletedRecords {
    /// The offset of the first record that is left.
    pub low_watermark: i64,
}

/// A producer that has written to a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducerState {
    /// Its id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i32,
    /// The sequence number of its last record.
    pub last_sequence: i32,
    /// When it last wrote, in milliseconds since the epoch.
    pub last_timestamp: i64,
    /// The epoch of its transactions' coordinator; `None` if it never had a transaction.
    pub coordinator_epoch: Option<i32>,
    /// Where its open transaction began; `None` if none is open.
    pub current_transaction_start_offset: Option<i64>,
}

impl Admin {
    /// Adds partitions to topics. The records that are there stay where they are; keys go to other
    /// partitions from then on.
    ///
    /// `InvalidRequest` for a count that is not above what the topic has; `UnknownTopic` for one that
    /// does not exist.
    pub fn create_partitions(
        &self,
        topics: &[(&str, NewPartitions)],
    ) -> Call<Results<String, ()>, ChangeOptions> {
        let topics: Vec<_> =
            topics.iter().map(|(name, new)| ((*name).to_owned(), new.clone())).collect();
        self.each(move |options: ChangeOptions| create(topics, options.validate_only))
    }

    /// Deletes the records before an offset of each partition; −1 deletes all that are there.
    ///
    /// `OffsetOutOfRange` for an offset behind the end, or below −1; `InvalidPartition` and
    /// `UnknownTopic` for what does not exist.
    pub fn delete_records(
        &self,
        before: &[(TopicPartition, i64)],
    ) -> Call<Results<TopicPartition, DeletedRecords>> {
        let before = before.to_vec();
        self.each(move |()| delete_records(before))
    }

    /// The producers that have written to partitions, as far as their leaders remember.
    pub fn describe_producers(
        &self,
        partitions: &[TopicPartition],
    ) -> Call<Results<TopicPartition, Vec<ProducerState>>> {
        let partitions = partitions.to_vec();
        self.each(move |()| producers(partitions))
    }
}

fn create(topics: Vec<(String, NewPartitions)>, validate_only: bool) -> Ask<String, ()> {
    let items: Vec<_> = topics.iter().map(|(name, _)| (name.clone(), Route::Controller)).collect();
    let build = move |items: &[usize], timeout_ms| {
        let topics = super::pick(&topics, items);
        let versions = ApiKey::CreatePartitions.served();
        body(ApiKey::CreatePartitions, versions, move |frame| {
            let topics = topics.iter().map(|(name, new)| CreatePartitionsTopic {
                name,
                count: new.total,
                assignments: new.assignments.as_ref().map(|each| {
                    let each = each.iter().cloned();
                    each.map(|broker_ids| CreatePartitionsAssignment { broker_ids }).collect()
                }),
            });
            let topics = topics.collect();
            frame.put(&CreatePartitionsRequest { topics, timeout_ms, validate_only })
        })
    };
    let ask = Ask::new(ApiKey::CreatePartitions, items, build, |answer, asked| {
        let response = answer.decode::<CreatePartitionsResponse<'_>>()?;
        let rows = response
            .results
            .iter()
            .map(|row| (row.name, outcome(row.error_code, row.error_message, || ())));
        Ok(asked.named(response.throttle_time_ms, rows))
    });
    if validate_only { ask } else { ask.changing() }
}

fn delete_records(before: Vec<(TopicPartition, i64)>) -> Ask<TopicPartition, DeletedRecords> {
    let items: Vec<_> = before.iter().map(|(at, _)| to_leader(at)).collect();
    let build = move |items: &[usize], timeout_ms| {
        let topics = by_topic(super::pick(&before, items));
        body(ApiKey::DeleteRecords, ApiKey::DeleteRecords.served(), move |frame| {
            let topics = topics.iter().map(|(name, rows)| {
                let rows = rows.iter();
                let partitions = rows.map(|&(partition_index, offset)| DeleteRecordsPartition {
                    partition_index,
                    offset,
                });
                DeleteRecordsTopic { name, partitions: partitions.collect() }
            });
            frame.put(&DeleteRecordsRequest { topics: topics.collect(), timeout_ms })
        })
    };
    let ask = Ask::new(ApiKey::DeleteRecords, items, build, |answer, asked| {
        let response = answer.decode::<DeleteRecordsResponse<'_>>()?;
        let mut rows = Vec::new();
        for topic in &response.topics {
            let name: Arc<str> = Arc::from(topic.name);
            rows.extend(topic.partitions.iter().map(|row| {
                let value = || DeletedRecords { low_watermark: row.low_watermark };
                let at = TopicPartition::new(Arc::clone(&name), row.partition_index);
                (at, outcome(row.error_code, None, value))
            }));
        }
        Ok(asked.rows(response.throttle_time_ms, rows))
    });
    ask.changing()
}

fn producers(partitions: Vec<TopicPartition>) -> Ask<TopicPartition, Vec<ProducerState>> {
    let items: Vec<_> = partitions.iter().map(to_leader).collect();
    let build = move |items: &[usize], _| {
        let wanted = super::pick(&partitions, items).into_iter().map(|at| (at, ()));
        let topics = by_topic(wanted);
        body(ApiKey::DescribeProducers, ApiKey::DescribeProducers.served(), move |frame| {
            let topics = topics.iter().map(|(name, rows)| TopicRequest {
                name,
                partition_indexes: rows.iter().map(|&(partition, ())| partition).collect(),
            });
            frame.put(&DescribeProducersRequest { topics: topics.collect() })
        })
    };
    Ask::new(ApiKey::DescribeProducers, items, build, |answer, asked| {
        let response = answer.decode::<DescribeProducersResponse<'_>>()?;
        let mut rows = Vec::new();
        for topic in &response.topics {
            let name: Arc<str> = Arc::from(topic.name);
            for row in &topic.partitions {
                let states = || row.active_producers.iter().map(ProducerState::of).collect();
                let at = TopicPartition::new(Arc::clone(&name), row.partition_index);
                rows.push((at, outcome(row.error_code, row.error_message, states)));
            }
        }
        Ok(asked.rows(response.throttle_time_ms, rows))
    })
}

impl ProducerState {
    fn of(row: &ottla_protocol::messages::describe_producers_response::ProducerState) -> Self {
        Self {
            producer_id: row.producer_id,
            producer_epoch: row.producer_epoch,
            last_sequence: row.last_sequence,
            last_timestamp: row.last_timestamp,
            coordinator_epoch: Some(row.coordinator_epoch).filter(|&epoch| epoch >= 0),
            current_transaction_start_offset: Some(row.current_txn_start_offset)
                .filter(|&offset| offset >= 0),
        }
    }
}

/// A partition as an item of its leader's.
pub(super) fn to_leader(partition: &TopicPartition) -> (TopicPartition, Route) {
    (partition.clone(), Route::Leader(partition.clone()))
}

/// What belongs to one topic each, by name.
pub(super) fn by_topic<T>(
    rows: impl IntoIterator<Item = (TopicPartition, T)>,
) -> BTreeMap<Arc<str>, Vec<(i32, T)>> {
    let mut topics: BTreeMap<Arc<str>, Vec<(i32, T)>> = BTreeMap::new();
    for (at, row) in rows {
        topics.entry(at.topic).or_default().push((at.partition, row));
    }
    topics
}
