//! Heartbeat: a member says that it is alive, and learns whether its group is put together anew.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::group::Answer;

/// Hands the request to its group.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: HeartbeatRequest<'_>,
    reply: Reply,
) {
    let done = Box::new(move |given| {
        let error_code = match given {
            Ok(Answer::Heartbeat(error)) | Err(error) => error,
            Ok(_) => ErrorCode::UNKNOWN_SERVER_ERROR,
        };
        reply.answer(&HeartbeatResponse { error_code, ..HeartbeatResponse::default() });
    });
    let member = (request.member_id, request.group_instance_id);
    node.coordinator.heartbeat(node, request.group_id, member, request.generation_id, done);
}
