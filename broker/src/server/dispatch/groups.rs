//! Requests about groups: what their log has of them is read first, by threads that may wait for it.

use std::sync::Arc;

use ottla_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest,
    LeaveGroupRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    SyncGroupRequest,
};
use ottla_protocol::{ApiKey, DecodeError};

use super::{RequestInfo, decode};
use crate::handlers;
use crate::node::Node;
use crate::server::outbox::Reply;

/// The APIs whose requests name groups.
pub(super) const SERVED: &[ApiKey] = &[
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::JoinGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::SyncGroup,
    ApiKey::DescribeGroups,
    ApiKey::DeleteGroups,
    ApiKey::OffsetDelete,
];

/// Hands a request to its handler once its groups can be asked.
pub(super) async fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    api: ApiKey,
    body: &[u8],
    reply: Reply,
) -> Result<(), DecodeError> {
    macro_rules! hand {
        ($module:ident, $request:ident, |$asked:ident| $groups:expr) => {{
            let $asked = decode::<$request<'_>>(body, info.version)?;
            let unloaded = node.coordinator.unloaded(node, $groups);
            if !unloaded.is_empty() {
                node.coordinator.load_aside(node, unloaded).await;
            }
            handlers::$module::handle(node, info, $asked, reply);
        }};
    }
    match api {
        ApiKey::OffsetCommit => {
            hand!(offset_commit, OffsetCommitRequest, |asked| [asked.group_id]);
        }
        ApiKey::OffsetFetch => hand!(offset_fetch, OffsetFetchRequest, |asked| {
            // One in old versions, any number in new ones.
            let one = asked.groups.is_empty().then_some(asked.group_id);
            asked.groups.iter().map(|group| group.group_id).chain(one)
        }),
        ApiKey::JoinGroup => {
            hand!(join_group, JoinGroupRequest, |asked| [asked.group_id]);
        }
        ApiKey::Heartbeat => {
            hand!(heartbeat, HeartbeatRequest, |asked| [asked.group_id]);
        }
        ApiKey::LeaveGroup => {
            hand!(leave_group, LeaveGroupRequest, |asked| [asked.group_id]);
        }
        ApiKey::SyncGroup => {
            hand!(sync_group, SyncGroupRequest, |asked| [asked.group_id]);
        }
        ApiKey::DescribeGroups => {
            hand!(describe_groups, DescribeGroupsRequest, |asked| asked.groups.iter().copied());
        }
        ApiKey::DeleteGroups => {
            hand!(delete_groups, DeleteGroupsRequest, |asked| asked.groups_names.iter().copied());
        }
        ApiKey::OffsetDelete => {
            hand!(offset_delete, OffsetDeleteRequest, |asked| [asked.group_id]);
        }
        // Of the APIs that are listed above only those are left.
        other => reply.close(format!("{other} has no handler")),
    }
    Ok(())
}
