//! Offsets of partitions, by time or by leader epoch.

use std::sync::Arc;

use ottla_protocol::ApiKey;
use ottla_protocol::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use ottla_protocol::messages::list_offsets_response::ListOffsetsResponse;
use ottla_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use ottla_protocol::messages::offset_for_leader_epoch_response::OffsetForLeaderEpochResponse;

use super::ask::{Ask, outcome};
use super::partitions::{by_topic, to_leader};
use super::{Admin, Call, Results};
use crate::record::TopicPartition;
use crate::state::machine::body;

/// Requests of clients, which are no replica.
const NO_REPLICA: i32 = -1;
/// The first version that has isolation levels (KIP-98).
const ISOLATION_FROM: i16 = 2;

/// Which offset of a partition is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffsetSpec {
    /// The first that is there.
    Earliest,
    /// The one that the next record will have; with `ReadCommitted`, where the first open
    /// transaction begins.
    Latest,
    /// That of the first record of this time or later, in milliseconds since the epoch.
    Timestamp(i64),
    /// That of the record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// The first on the leader's own disks (KIP-405).
    EarliestLocal,
    /// The last in remote storage (KIP-1005).
    LatestTiered,
    /// The first that is not in remote storage yet (KIP-1023).
    EarliestPendingUpload,
}

impl OffsetSpec {
    /// As it stands in requests.
    const fn timestamp(self) -> i64 {
        match self {
            Self::Timestamp(millis) => millis,
            Self::Latest => -1,
            Self::Earliest => -2,
            Self::MaxTimestamp => -3,
            Self::EarliestLocal => -4,
            Self::LatestTiered => -5,
            Self::EarliestPendingUpload => -6,
        }
    }

    /// The first version of ListOffsets that has it.
    const fn since(self) -> i16 {
        match self {
            Self::Timestamp(_) | Self::Latest | Self::Earliest => 1,
            Self::MaxTimestamp => 7,
            Self::EarliestLocal => 8,
            Self::LatestTiered => 9,
            Self::EarliestPendingUpload => 11,
        }
    }
}

/// Which records count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IsolationLevel {
    /// All.
    #[default]
    ReadUncommitted,
    /// Those before the first open transaction.
    ReadCommitted,
}

/// What can be said of a call for offsets.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListOffsetsOptions {
    isolation_level: IsolationLevel,
}

impl<T: Clone> Call<T, ListOffsetsOptions> {
    /// Which records count. Default: all. Kafka: `isolationLevel`.
    pub fn isolation_level(self, level: IsolationLevel) -> Self {
        self.with(|options| options.isolation_level = level)
    }
}

/// An offset of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListOffsetsResultInfo {
    /// The offset; −1 if no record fits.
    pub offset: i64,
    /// The record's time in milliseconds since the epoch; −1 if none was asked for.
    pub timestamp: i64,
    /// The epoch of the leader that wrote there; `None` if that is not known.
    pub leader_epoch: Option<i32>,
}

/// Where a leader epoch ended in a partition's log (KIP-320).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EpochEndOffset {
    /// The largest epoch up to the one asked for; `None` if the log has none.
    pub leader_epoch: Option<i32>,
    /// The offset behind its last record; `None` if the log has no such epoch.
    pub end_offset: Option<i64>,
}

impl Admin {
    /// An offset of each of these partitions.
    ///
    /// `UnsupportedVersion` if a broker is too old for one of the kinds.
    pub fn list_offsets(
        &self,
        wanted: &[(TopicPartition, OffsetSpec)],
    ) -> Call<Results<TopicPartition, ListOffsetsResultInfo>, ListOffsetsOptions> {
        let wanted = wanted.to_vec();
        self.each(move |options: ListOffsetsOptions| list(wanted, options.isolation_level))
    }

    /// Where these leader epochs ended. Kafka's AdminClient has no such call.
    pub fn offsets_for_leader_epoch(
        &self,
        epochs: &[(TopicPartition, i32)],
    ) -> Call<Results<TopicPartition, EpochEndOffset>> {
        let epochs = epochs.to_vec();
        self.each(move |()| of_epochs(epochs))
    }
}

fn list(
    wanted: Vec<(TopicPartition, OffsetSpec)>,
    level: IsolationLevel,
) -> Ask<TopicPartition, ListOffsetsResultInfo> {
    let items: Vec<_> = wanted.iter().map(|(at, _)| to_leader(at)).collect();
    let committed = level == IsolationLevel::ReadCommitted;
    let build = move |items: &[usize], timeout_ms| {
        let rows = super::pick(&wanted, items);
        let served = ApiKey::ListOffsets.served();
        let oldest = if committed { ISOLATION_FROM } else { *served.start() };
        let first = rows.iter().map(|(_, spec)| spec.since()).fold(oldest, i16::max);
        let topics = by_topic(rows);
        body(ApiKey::ListOffsets, first..=*served.end(), move |frame| {
            let topics = topics.iter().map(|(name, rows)| ListOffsetsTopic {
                name,
                partitions: rows
                    .iter()
                    .map(|&(partition_index, spec)| ListOffsetsPartition {
                        partition_index,
                        // Whichever leader there is may answer.
                        current_leader_epoch: -1,
                        timestamp: spec.timestamp(),
                    })
                    .collect(),
            });
            frame.put(&ListOffsetsRequest {
                replica_id: NO_REPLICA,
                isolation_level: i8::from(committed),
                topics: topics.collect(),
                timeout_ms,
            })
        })
    };
    Ask::new(ApiKey::ListOffsets, items, build, |answer, asked| {
        let response = answer.decode::<ListOffsetsResponse<'_>>()?;
        let mut rows = Vec::new();
        for topic in &response.topics {
            let name: Arc<str> = Arc::from(topic.name);
            rows.extend(topic.partitions.iter().map(|row| {
                let value = || ListOffsetsResultInfo {
                    offset: row.offset,
                    timestamp: row.timestamp,
                    leader_epoch: Some(row.leader_epoch).filter(|&epoch| epoch >= 0),
                };
                let at = TopicPartition::new(Arc::clone(&name), row.partition_index);
                (at, outcome(row.error_code, None, value))
            }));
        }
        Ok(asked.rows(response.throttle_time_ms, rows))
    })
}

fn of_epochs(epochs: Vec<(TopicPartition, i32)>) -> Ask<TopicPartition, EpochEndOffset> {
    let items: Vec<_> = epochs.iter().map(|(at, _)| to_leader(at)).collect();
    let build = move |items: &[usize], _| {
        let topics = by_topic(super::pick(&epochs, items));
        let versions = ApiKey::OffsetForLeaderEpoch.served();
        body(ApiKey::OffsetForLeaderEpoch, versions, move |frame| {
            let topics = topics.iter().map(|(topic, rows)| OffsetForLeaderTopic {
                topic,
                partitions: rows
                    .iter()
                    .map(|&(partition, leader_epoch)| OffsetForLeaderPartition {
                        partition,
                        current_leader_epoch: -1,
                        leader_epoch,
                    })
                    .collect(),
            });
            let topics = topics.collect();
            frame.put(&OffsetForLeaderEpochRequest { replica_id: NO_REPLICA, topics })
        })
    };
    Ask::new(ApiKey::OffsetForLeaderEpoch, items, build, |answer, asked| {
        let response = answer.decode::<OffsetForLeaderEpochResponse<'_>>()?;
        let mut rows = Vec::new();
        for topic in &response.topics {
            let name: Arc<str> = Arc::from(topic.topic);
            rows.extend(topic.partitions.iter().map(|row| {
                let value = || EpochEndOffset {
                    leader_epoch: Some(row.leader_epoch).filter(|&epoch| epoch >= 0),
                    end_offset: Some(row.end_offset).filter(|&offset| offset >= 0),
                };
                let at = TopicPartition::new(Arc::clone(&name), row.partition);
                (at, outcome(row.error_code, None, value))
            }));
        }
        Ok(asked.rows(response.throttle_time_ms, rows))
    })
}
