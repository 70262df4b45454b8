//! SyncGroup: a member asks for its assignment; the leader brings all of them.

use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::group::{Answer, SyncAnswer, SyncRequest};

/// From this version on a member must say which protocol it was told (KIP-559).
const PROTOCOL_FROM: i16 = 5;

/// Hands the request to its group.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: SyncGroupRequest<'_>,
    reply: Reply,
) {
    let named = request.protocol_type.is_some() && request.protocol_name.is_some();
    if info.version >= PROTOCOL_FROM && !named {
        answer(reply, &SyncAnswer::refused(ErrorCode::INCONSISTENT_GROUP_PROTOCOL));
        return;
    }
    let assignments = request.assignments.iter();
    let assignments =
        assignments.map(|given| (given.member_id, Bytes::copy_from_slice(given.assignment)));
    let sync = SyncRequest {
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        generation: request.generation_id,
        protocol_type: request.protocol_type,
        protocol: request.protocol_name,
        assignments: assignments.collect(),
    };
    let done = Box::new(move |given| match given {
        Ok(Answer::Sync(sync)) => answer(reply, &sync),
        Ok(_) => answer(reply, &SyncAnswer::refused(ErrorCode::UNKNOWN_SERVER_ERROR)),
        Err(error) => answer(reply, &SyncAnswer::refused(error)),
    });
    node.coordinator.sync(node, request.group_id, &sync, done);
}

fn answer(reply: Reply, sync: &SyncAnswer) {
    reply.answer(&SyncGroupResponse {
        error_code: sync.error,
        protocol_type: sync.protocol_type.as_deref(),
        protocol_name: sync.protocol.as_deref(),
        assignment: &sync.assignment,
        ..SyncGroupResponse::default()
    });
}
