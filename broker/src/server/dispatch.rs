//! From a frame to its handler: header, version, decoding, and what closes a connection.

mod groups;

use std::sync::Arc;

use ottla_protocol::frame::{RequestHeader, decode_body_within};
use ottla_protocol::messages::{
    AlterConfigsRequest, ApiVersionsRequest, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    DescribeLogDirsRequest, DescribeProducersRequest, DescribeTopicPartitionsRequest, FetchRequest,
    FindCoordinatorRequest, IncrementalAlterConfigsRequest, InitProducerIdRequest,
    ListConfigResourcesRequest, ListGroupsRequest, ListOffsetsRequest, MetadataRequest,
    OffsetForLeaderEpochRequest,
};
use ottla_protocol::{ApiKey, DecodeError, Reader, Request};

use crate::driver::first::{First, first};
use crate::handlers;
use crate::node::Node;
use crate::server::connection::{ConnectionInfo, LAST_ANSWERS};
use crate::server::hangup::Hangup;
use crate::server::inbound::Frame;
use crate::server::outbox::{Outbox, Reply};

/// The APIs that this broker answers, by their numbers.
pub(crate) const SERVED: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::FindCoordinator,
    ApiKey::JoinGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::SyncGroup,
    ApiKey::DescribeGroups,
    ApiKey::ListGroups,
    ApiKey::ApiVersions,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::DeleteRecords,
    ApiKey::InitProducerId,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::DescribeConfigs,
    ApiKey::AlterConfigs,
    ApiKey::DescribeLogDirs,
    ApiKey::CreatePartitions,
    ApiKey::DeleteGroups,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::OffsetDelete,
    ApiKey::DescribeCluster,
    ApiKey::DescribeProducers,
    ApiKey::ListConfigResources,
    ApiKey::DescribeTopicPartitions,
];

/// The most memory that a request may become when it is decoded, beside its own bytes. Room for
/// more partitions than a broker can have, and too little for lists made of nothing.
const DECODED_BYTES: usize = 4 * 1024 * 1024;

/// The most characters of a client's name in a log line.
const SHOWN_CHARS: usize = 64;

/// What handlers may know of a request beside its body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestInfo<'a> {
    /// The connection that it came by.
    pub(crate) connection: &'a ConnectionInfo,
    /// The name that the client gives itself.
    pub(crate) client_id: Option<&'a str>,
    /// The version of request and answer.
    pub(crate) version: i16,
}

/// Decodes a request and hands it to its handler; an error is why the connection must end.
///
/// Kafka takes a connection's requests one by one, so that each sees what those before it have
/// done. Here a Produce alone may begin while others are open: appends have the order in which they
/// come. Any other request begins when all before it are answered, and the connection reads on when
/// it is answered itself.
pub(crate) async fn dispatch(
    node: &Arc<Node>,
    connection: &ConnectionInfo,
    frame: Frame,
    outbox: &Arc<Outbox>,
    hangup: &Hangup<'_>,
) -> Result<(), String> {
    let mut reader = Reader::new(&frame.bytes);
    let header = RequestHeader::decode(&mut reader)
        .map_err(|error| format!("the header of a request is malformed: {error}"))?;
    let version = header.api_version;
    let api = ApiKey::try_from(header.api_key).ok().filter(|api| SERVED.contains(api));
    let api = api.ok_or_else(|| {
        let client = shown(header.client_id);
        format!("the API {} v{version} is not served (client {client:?})", header.api_key)
    })?;
    if api != ApiKey::Produce && !before_are_answered(node, outbox, hangup).await {
        return Err(format!("{api} came behind a request that is not answered, from who is gone"));
    }
    let at = reader.position();
    let info = RequestInfo { connection, client_id: header.client_id, version };
    if !api.served().contains(&version) {
        if api == ApiKey::ApiVersions {
            // KIP-511: answered in the oldest form, whatever follows the header.
            let reply = outbox.open(api, 0, header.correlation_id);
            handlers::api_versions::unsupported(reply);
            return Ok(());
        }
        let client = shown(header.client_id);
        return Err(format!("{api} has no version {version} here (client {client:?})"));
    }
    let reply = outbox.open(api, version, header.correlation_id);
    let number = reply.number();
    let malformed = |error: DecodeError| {
        format!("{api} v{version} is malformed: {error}, counted from byte {at} of the frame")
    };
    let body = frame.bytes.get(at..).unwrap_or_default();
    match api {
        ApiKey::Produce => {
            let handled = handlers::produce::handle(node, connection, frame, at, reply);
            return match handled.map_err(malformed)? {
                None => Ok(()),
                Some(to_open) => to_open.finish(node).await.map_err(malformed),
            };
        }
        ApiKey::Fetch => {
            let request = decode::<FetchRequest<'_>>(body, version).map_err(malformed)?;
            if let Some(waiting) = handlers::fetch::handle(node, info, &request, reply) {
                drop(request);
                // Or consumers that wait would keep everybody's requests out of the budget.
                drop(frame);
                waiting.finish(node, hangup).await;
            }
            return Ok(());
        }
        api if groups::SERVED.contains(&api) => {
            groups::handle(node, info, api, body, reply).await.map_err(malformed)?;
        }
        other => plain(node, info, other, body, reply).map_err(malformed)?,
    }
    // A join may wait long, and must not keep others out of the budget.
    drop(frame);
    // After a hang-up the connection ends when it is read.
    let _either = first(outbox.answered(number), hangup.noticed()).await;
    Ok(())
}

/// Waits until all requests before are answered; false if that takes too long for a client that
/// sends no more.
async fn before_are_answered(node: &Node, outbox: &Outbox, hangup: &Hangup<'_>) -> bool {
    match first(outbox.all_answered(), hangup.noticed()).await {
        First::A(()) => true,
        // It may still read. Produces end soon; a join that waits may take as long as it likes.
        First::B(()) => {
            let deadline = node.clock.now() + LAST_ANSWERS;
            node.clock.until(deadline, outbox.all_answered()).await.is_ok()
        }
    }
}

/// Reads a request's body.
pub(crate) fn decode<'a, R: Request<'a>>(body: &'a [u8], version: i16) -> Result<R, DecodeError> {
    decode_body_within(body, version, DECODED_BYTES)
}

/// The name that a client gives itself, as far as a log line has room for it.
fn shown(client_id: Option<&str>) -> String {
    client_id.unwrap_or_default().chars().take(SHOWN_CHARS).collect()
}

/// Requests whose handlers return at once; some are answered later.
fn plain(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    api: ApiKey,
    body: &[u8],
    reply: Reply,
) -> Result<(), DecodeError> {
    macro_rules! hand {
        ($module:ident, $request:ty) => {
            handlers::$module::handle(node, info, decode::<$request>(body, info.version)?, reply)
        };
    }
    match api {
        ApiKey::ListOffsets => hand!(list_offsets, ListOffsetsRequest<'_>),
        ApiKey::Metadata => hand!(metadata, MetadataRequest<'_>),
        ApiKey::FindCoordinator => hand!(find_coordinator, FindCoordinatorRequest<'_>),
        ApiKey::ApiVersions => hand!(api_versions, ApiVersionsRequest<'_>),
        ApiKey::CreateTopics => hand!(create_topics, CreateTopicsRequest<'_>),
        ApiKey::DeleteTopics => hand!(delete_topics, DeleteTopicsRequest<'_>),
        ApiKey::DeleteRecords => hand!(delete_records, DeleteRecordsRequest<'_>),
        ApiKey::InitProducerId => hand!(init_producer_id, InitProducerIdRequest<'_>),
        ApiKey::ListGroups => hand!(list_groups, ListGroupsRequest<'_>),
        ApiKey::OffsetForLeaderEpoch => {
            hand!(offset_for_leader_epoch, OffsetForLeaderEpochRequest<'_>);
        }
        ApiKey::DescribeConfigs => hand!(describe_configs, DescribeConfigsRequest<'_>),
        ApiKey::AlterConfigs => hand!(alter_configs, AlterConfigsRequest<'_>),
        ApiKey::DescribeLogDirs => hand!(describe_log_dirs, DescribeLogDirsRequest<'_>),
        ApiKey::CreatePartitions => hand!(create_partitions, CreatePartitionsRequest<'_>),
        ApiKey::IncrementalAlterConfigs => {
            hand!(incremental_alter_configs, IncrementalAlterConfigsRequest<'_>);
        }
        ApiKey::DescribeCluster => hand!(describe_cluster, DescribeClusterRequest),
        ApiKey::DescribeProducers => hand!(describe_producers, DescribeProducersRequest<'_>),
        ApiKey::ListConfigResources => hand!(list_config_resources, ListConfigResourcesRequest),
        ApiKey::DescribeTopicPartitions => {
            hand!(describe_topic_partitions, DescribeTopicPartitionsRequest<'_>);
        }
        // Of the served ones only those above are left; this one was looked up there.
        other => reply.close(format!("{other} has no handler")),
    }
    Ok(())
}
