//! LeaveGroup: members go, by themselves or because an operator wants them out.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::leave_group_response::MemberResponse;
use ottla_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};

use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::group::{Answer, LeaveMember, LeaveOutcome, LeaveRequest};

/// From this version on many members leave at a time (KIP-345).
const MANY_FROM: i16 = 3;

/// Hands the request to its group.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: LeaveGroupRequest<'_>,
    reply: Reply,
) {
    let members = if info.version >= MANY_FROM {
        let members = request.members.iter().map(|member| LeaveMember {
            member_id: member.member_id,
            instance_id: member.group_instance_id,
        });
        members.collect()
    } else {
        vec![LeaveMember { member_id: request.member_id, instance_id: None }]
    };
    let done = Box::new(move |given| {
        let outcome = match given {
            Ok(Answer::Leave(outcome)) => outcome,
            Ok(_) => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
            Err(error) => Err(error),
        };
        answer(reply, outcome);
    });
    node.coordinator.leave(node, request.group_id, &LeaveRequest { members }, done);
}

fn answer(reply: Reply, outcome: Result<Vec<LeaveOutcome>, ErrorCode>) {
    let (mut error_code, outcomes) = match outcome {
        Ok(outcomes) => (ErrorCode::NONE, outcomes),
        Err(error) => (error, Vec::new()),
    };
    let many = reply.version() >= MANY_FROM;
    if let (false, Some(only)) = (many, outcomes.first()) {
        error_code = only.error;
    }
    let members = outcomes.iter().filter(|_| many).map(|outcome| MemberResponse {
        member_id: &outcome.member_id,
        group_instance_id: outcome.instance_id.as_deref(),
        error_code: outcome.error,
    });
    let members = members.collect();
    reply.answer(&LeaveGroupResponse { error_code, members, ..LeaveGroupResponse::default() });
}
