//! Answers that are nothing but an error, in the form that each API has for it.

use ottla_protocol::frame::decode_request;
use ottla_protocol::messages::fetch_request::FetchRequest;
use ottla_protocol::messages::fetch_response::{
    FetchResponse, FetchableTopicResponse, PartitionData,
};
use ottla_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use ottla_protocol::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};
use ottla_protocol::messages::heartbeat_response::HeartbeatResponse;
use ottla_protocol::messages::init_producer_id_response::InitProducerIdResponse;
use ottla_protocol::messages::join_group_response::JoinGroupResponse;
use ottla_protocol::messages::leave_group_response::LeaveGroupResponse;
use ottla_protocol::messages::list_offsets_request::ListOffsetsRequest;
use ottla_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use ottla_protocol::messages::offset_commit_request::OffsetCommitRequest;
use ottla_protocol::messages::offset_commit_response::{
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::offset_fetch_response::{
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
};
use ottla_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderEpochRequest;
use ottla_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use ottla_protocol::messages::produce_request::ProduceRequest;
use ottla_protocol::messages::produce_response::{ProduceResponse, TopicProduceResponse};
use ottla_protocol::messages::sync_group_response::SyncGroupResponse;
use ottla_protocol::{ApiKey, ErrorCode};

use super::{Asked, failed};

/// The answer of an API's broker that does nothing but refuse.
pub(super) fn answer(asked: Asked, frame: &[u8], error_code: ErrorCode) -> Option<Vec<u8>> {
    match asked.api {
        ApiKey::Produce => produce(asked, frame, error_code),
        ApiKey::InitProducerId => asked.write(&InitProducerIdResponse {
            error_code,
            producer_id: -1,
            producer_epoch: -1,
            ..InitProducerIdResponse::default()
        }),
        ApiKey::Fetch => fetch(asked, frame, error_code),
        ApiKey::ListOffsets => list_offsets(asked, frame, error_code),
        ApiKey::OffsetForLeaderEpoch => epoch_ends(asked, frame, error_code),
        ApiKey::FindCoordinator => find_coordinator(asked, frame, error_code),
        ApiKey::JoinGroup => asked.write(&JoinGroupResponse {
            error_code,
            generation_id: -1,
            ..JoinGroupResponse::default()
        }),
        ApiKey::SyncGroup => {
            asked.write(&SyncGroupResponse { error_code, ..SyncGroupResponse::default() })
        }
        ApiKey::Heartbeat => {
            asked.write(&HeartbeatResponse { error_code, ..HeartbeatResponse::default() })
        }
        ApiKey::LeaveGroup => {
            asked.write(&LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() })
        }
        ApiKey::OffsetCommit => offset_commit(asked, frame, error_code),
        ApiKey::OffsetFetch => offset_fetch(asked, frame, error_code),
        _ => None,
    }
}

fn produce(asked: Asked, frame: &[u8], code: ErrorCode) -> Option<Vec<u8>> {
    let (_, request) = decode_request::<ProduceRequest<'_>>(frame).ok()?;
    let topics = request.topic_data.iter().map(|topic| TopicProduceResponse {
        name: topic.name,
        topic_id: topic.topic_id,
        partition_responses: topic
            .partition_data
            .iter()
            .map(|partition| failed(partition.index, code))
            .collect(),
    });
    asked.write(&ProduceResponse { responses: topics.collect(), ..ProduceResponse::default() })
}

fn fetch(asked: Asked, frame: &[u8], error_code: ErrorCode) -> Option<Vec<u8>> {
    let (_, request) = decode_request::<FetchRequest<'_>>(frame).ok()?;
    if is_of_session(error_code) {
        // Only a fetch in a session can be told that: it is the answer as a whole.
        return (request.session_epoch > 0)
            .then(|| FetchResponse { error_code, ..FetchResponse::default() })
            .and_then(|response| asked.write(&response));
    }
    let topics = request.topics.iter().map(|topic| FetchableTopicResponse {
        topic: topic.topic,
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|row| PartitionData {
                partition_index: row.partition,
                error_code,
                high_watermark: -1,
                last_stable_offset: -1,
                log_start_offset: -1,
                preferred_read_replica: -1,
                ..PartitionData::default()
            })
            .collect(),
    });
    asked.write(&FetchResponse { responses: topics.collect(), ..FetchResponse::default() })
}

const fn is_of_session(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::FETCH_SESSION_ID_NOT_FOUND
            | ErrorCode::INVALID_FETCH_SESSION_EPOCH
            | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
    )
}

fn epoch_ends(asked: Asked, frame: &[u8], error_code: ErrorCode) -> Option<Vec<u8>> {
    let (_, request) = decode_request::<OffsetForLeaderEpochRequest<'_>>(frame).ok()?;
    let topics = request.topics.iter().map(|topic| OffsetForLeaderTopicResult {
        topic: topic.topic,
        partitions: topic
            .partitions
            .iter()
            .map(|row| EpochEndOffset {
                partition: row.partition,
                error_code,
                leader_epoch: -1,
                end_offset: -1,
            })
            .collect(),
    });
    asked.write(&OffsetForLeaderEpochResponse { topics: topics.collect(), ..<_>::default() })
}

fn list_offsets(asked: Asked, frame: &[u8], error_code: ErrorCode) -> Option<Vec<u8>> {
    let (_, request) = decode_request::<ListOffsetsRequest<'_>>(frame).ok()?;
    let topics = request.topics.iter().map(|topic| ListOffsetsTopicResponse {
        name: topic.name,
        partitions: topic
            .partitions
            .iter()
            .map(|row| ListOffsetsPartitionResponse {
                partition_index: row.partition_index,
                error_code,
                timestamp: -1,
                offset: -1,
                leader_epoch: -1,
            })
            .collect(),
    });
    asked.write(&ListOffsetsResponse { topics: topics.collect(), ..ListOffsetsResponse::default() })
}

fn find_coordinator(asked: Asked, frame: &[u8], error_code: ErrorCode) -> Option<Vec<u8>> {
    if asked.version < 4 {
        let nobody =
            FindCoordinatorResponse { error_code, node_id: -1, port: -1, ..<_>::default() };
        return asked.write(&nobody);
    }
    let (_, request) = decode_request::<FindCoordinatorRequest<'_>>(frame).ok()?;
    let rows = request.coordinator_keys.iter().map(|key| Coordinator {
        key,
        node_id: -1,
        port: -1,
        error_code,
        ..Coordinator::default()
    });
    asked.write(&FindCoordinatorResponse { coordinators: rows.collect(), ..<_>::default() })
}

fn offset_commit(asked: Asked, frame: &[u8], error_code: ErrorCode) -> Option<Vec<u8>> {
    let (_, request) = decode_request::<OffsetCommitRequest<'_>>(frame).ok()?;
    let topics = request.topics.iter().map(|topic| OffsetCommitResponseTopic {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|row| OffsetCommitResponsePartition {
                partition_index: row.partition_index,
                error_code,
            })
            .collect(),
    });
    asked.write(&OffsetCommitResponse { topics: topics.collect(), ..<_>::default() })
}

/// For the group as a whole, but where only a partition can be told that.
fn offset_fetch(asked: Asked, frame: &[u8], error_code: ErrorCode) -> Option<Vec<u8>> {
    if asked.version < 8 {
        let whole = OffsetFetchResponse { error_code, ..OffsetFetchResponse::default() };
        return asked.write(&whole);
    }
    let (_, request) = decode_request::<OffsetFetchRequest<'_>>(frame).ok()?;
    let of_each =
        matches!(error_code, ErrorCode::UNSTABLE_OFFSET_COMMIT | ErrorCode::UNKNOWN_TOPIC_ID);
    let groups = request.groups.iter().map(|group: &OffsetFetchRequestGroup<'_>| {
        let topics = group.topics.iter().flatten().filter(|_| of_each);
        OffsetFetchResponseGroup {
            group_id: group.group_id,
            topics: topics.map(|topic| refused_topic(topic, error_code)).collect(),
            error_code: if of_each { ErrorCode::NONE } else { error_code },
        }
    });
    asked.write(&OffsetFetchResponse { groups: groups.collect(), ..<_>::default() })
}

fn refused_topic<'a>(
    topic: &OffsetFetchRequestTopics<'a>,
    error_code: ErrorCode,
) -> OffsetFetchResponseTopics<'a> {
    let rows =
        topic.partition_indexes.iter().map(|&partition_index| OffsetFetchResponsePartitions {
            partition_index,
            committed_offset: -1,
            committed_leader_epoch: -1,
            metadata: Some(""),
            error_code,
        });
    OffsetFetchResponseTopics {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: rows.collect(),
    }
}
