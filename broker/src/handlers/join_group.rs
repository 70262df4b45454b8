//! JoinGroup: a member comes in, or comes back; answered when the generation begins.

use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::messages::join_group_response::JoinGroupResponseMember;
use ottla_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use ottla_protocol::{ErrorCode, Uuid};

use crate::driver::folder::random_id;
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::group::{Answer, JoinAnswer, JoinRequest, MemberSetup, Protocol};

/// Before this version there is one timeout for both.
const REBALANCE_TIMEOUT_FROM: i16 = 1;

/// From this version on a new member is sent away with its id first (KIP-394).
const ID_REQUIRED_FROM: i16 = 4;

/// From this version on the protocol's name may be null.
const NULL_PROTOCOL_FROM: i16 = 7;

/// From this version on a leader can be told to keep the assignment.
const SKIP_ASSIGNMENT_FROM: i16 = 9;

/// Hands the request to its group.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: JoinGroupRequest<'_>,
    reply: Reply,
) {
    let Ok(fresh) = random_id() else {
        let refused = refused(ErrorCode::UNKNOWN_SERVER_ERROR, request.member_id);
        answer(reply, &refused);
        return;
    };
    let protocols: Vec<_> = request
        .protocols
        .iter()
        .map(|protocol| Protocol {
            name: Arc::from(protocol.name),
            metadata: Bytes::copy_from_slice(protocol.metadata),
        })
        .collect();
    let client_host = format!("/{}", info.connection.peer.ip().to_canonical());
    let join = JoinRequest {
        member_id: request.member_id,
        member: MemberSetup {
            instance_id: request.group_instance_id,
            client_id: info.client_id.unwrap_or_default(),
            client_host: &client_host,
            rebalance_timeout_ms: if info.version >= REBALANCE_TIMEOUT_FROM {
                request.rebalance_timeout_ms
            } else {
                request.session_timeout_ms
            },
            session_timeout_ms: request.session_timeout_ms,
            protocols: &protocols,
        },
        protocol_type: request.protocol_type,
        id_required: info.version >= ID_REQUIRED_FROM,
        can_skip_assignment: info.version >= SKIP_ASSIGNMENT_FROM,
        fresh: &hyphenated(fresh),
    };
    let member_id = request.member_id.to_owned();
    let done = Box::new(move |given| match given {
        Ok(Answer::Join(join)) => answer(reply, &join),
        Ok(_) => answer(reply, &refused(ErrorCode::UNKNOWN_SERVER_ERROR, &member_id)),
        Err(error) => answer(reply, &refused(error, &member_id)),
    });
    node.coordinator.join(node, request.group_id, &join, done);
}

fn refused(error: ErrorCode, member_id: &str) -> JoinAnswer {
    JoinAnswer::refused(error, Arc::from(member_id))
}

/// A fresh id in the form that Kafka's member ids end with.
fn hyphenated(id: Uuid) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in id.0.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

fn answer(reply: Reply, join: &JoinAnswer) {
    let members = join.members.iter().map(|member| JoinGroupResponseMember {
        member_id: &member.id,
        group_instance_id: member.instance_id.as_deref(),
        metadata: &member.metadata,
    });
    let missing = if reply.version() >= NULL_PROTOCOL_FROM { None } else { Some("") };
    let response = JoinGroupResponse {
        error_code: join.error,
        generation_id: join.generation,
        protocol_type: join.protocol_type.as_deref(),
        protocol_name: join.protocol.as_deref().or(missing),
        leader: &join.leader,
        skip_assignment: join.skip_assignment,
        member_id: &join.member_id,
        members: members.collect(),
        ..JoinGroupResponse::default()
    };
    reply.answer(&response);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_id_reads_like_a_uuid() {
        let bytes = [1, 0x23, 0x45, 0x67, 0x89, 0xab, 0x4d, 0xef, 0x80, 1, 2, 3, 4, 5, 6, 255];
        assert_eq!(hyphenated(Uuid(bytes)), "01234567-89ab-4def-8001-0203040506ff");
    }
}
