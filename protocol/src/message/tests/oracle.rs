//! The same bytes, read and written again by a codec that others wrote from Kafka's definitions.

use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, Message as TheirMessage};

use super::{Numbers, SEEDS, Sample, encoded};
use crate::message::Message;
use crate::messages::*;

/// What the other codec writes after it has read `bytes`; none if it has no such version.
fn rewritten<M: Decodable + Encodable + TheirMessage>(
    bytes: &[u8],
    version: i16,
) -> Option<Vec<u8>> {
    if !(M::VERSIONS.min..=M::VERSIONS.max).contains(&version) {
        return None;
    }
    let mut rest = bytes;
    let read = M::decode(&mut rest, version).unwrap();
    assert!(rest.is_empty(), "{} bytes are left over", rest.len());
    let mut written = Vec::new();
    read.encode(&mut written, version).unwrap();
    Some(written)
}

macro_rules! same_bytes {
    ($($name:ident)*) => { $({
        let mut compared = 0;
        for version in $name::VERSIONS {
            for seed in SEEDS {
                let bytes = encoded(&$name::sample(version, &mut Numbers::seeded(seed)), version);
                let Some(theirs) = rewritten::<theirs::$name>(&bytes, version) else { break };
                assert_eq!(bytes, theirs, "{} {version}, seed {seed}", stringify!($name));
                compared += 1;
            }
        }
        assert!(compared > 0, "{} was never compared", stringify!($name));
    })* };
}

#[test]
fn requests_have_the_bytes_of_another_codec() {
    same_bytes!(
        ProduceRequest FetchRequest ListOffsetsRequest MetadataRequest OffsetCommitRequest
        OffsetFetchRequest FindCoordinatorRequest JoinGroupRequest HeartbeatRequest
        LeaveGroupRequest SyncGroupRequest ApiVersionsRequest CreateTopicsRequest
        DeleteTopicsRequest InitProducerIdRequest DescribeGroupsRequest ListGroupsRequest
        DeleteRecordsRequest OffsetForLeaderEpochRequest
        DescribeConfigsRequest AlterConfigsRequest DescribeLogDirsRequest CreatePartitionsRequest
        DeleteGroupsRequest IncrementalAlterConfigsRequest OffsetDeleteRequest
        DescribeClusterRequest DescribeProducersRequest ListConfigResourcesRequest
        DescribeTopicPartitionsRequest
    );
}

#[test]
fn responses_have_the_bytes_of_another_codec() {
    same_bytes!(
        ProduceResponse FetchResponse ListOffsetsResponse MetadataResponse OffsetCommitResponse
        OffsetFetchResponse FindCoordinatorResponse JoinGroupResponse HeartbeatResponse
        LeaveGroupResponse SyncGroupResponse ApiVersionsResponse CreateTopicsResponse
        DeleteTopicsResponse InitProducerIdResponse
        DescribeGroupsResponse ListGroupsResponse DeleteRecordsResponse
        OffsetForLeaderEpochResponse DescribeConfigsResponse AlterConfigsResponse
        DescribeLogDirsResponse CreatePartitionsResponse DeleteGroupsResponse
        IncrementalAlterConfigsResponse OffsetDeleteResponse DescribeClusterResponse
        DescribeProducersResponse ListConfigResourcesResponse DescribeTopicPartitionsResponse
    );
}

#[test]
fn what_consumers_tell_each_other_has_the_bytes_of_another_codec() {
    same_bytes!(ConsumerProtocolSubscription ConsumerProtocolAssignment);
}

#[test]
fn control_records_of_the_metadata_log_have_the_bytes_of_another_codec() {
    same_bytes!(KRaftVersionRecord SnapshotHeaderRecord SnapshotFooterRecord);
    // The other codec takes the field called Version for the version of the structs below it.
    for seed in SEEDS {
        for version in LeaderChangeMessage::VERSIONS {
            let sample = LeaderChangeMessage::sample(version, &mut Numbers::seeded(seed));
            let bytes = encoded(&LeaderChangeMessage { version, ..sample }, version);
            assert_eq!(rewritten::<theirs::LeaderChangeMessage>(&bytes, version), Some(bytes));
        }
        let sample = VotersRecord::sample(0, &mut Numbers::seeded(seed));
        let bytes = encoded(&VotersRecord { version: 0, ..sample }, 0);
        assert_eq!(rewritten::<theirs::VotersRecord>(&bytes, 0), Some(bytes));
    }
}
