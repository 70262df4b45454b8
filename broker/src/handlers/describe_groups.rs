//! DescribeGroups: states and members of groups.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use ottla_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use super::operations;
use crate::driver::collect::collect;
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::group::GroupView;

/// From this version on a group that is not there is an error (KIP-1043); before, it is dead.
const ABSENT_IS_ERROR_FROM: i16 = 6;

/// What was seen of a group.
type Seen = Result<Option<GroupView>, ErrorCode>;

/// Asks each group's shard; answers when all have.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: DescribeGroupsRequest<'_>,
    reply: Reply,
) {
    let ids: Vec<String> = request.groups.iter().map(|id| (*id).to_owned()).collect();
    let operations = operations::if_asked(request.include_authorized_operations, operations::GROUP);
    let asked = ids.clone();
    let put = collect(ids.len(), move |seen: Vec<Seen>| answer(reply, &asked, &seen, operations));
    for (place, id) in ids.iter().enumerate() {
        let put = put.clone();
        let done = Box::new(move |seen| put(place, seen));
        node.coordinator.look(node, id, |groups| groups.describe(id), done);
    }
}

fn answer(reply: Reply, ids: &[String], seen: &[Seen], operations: i32) {
    let absent_is_error = reply.version() >= ABSENT_IS_ERROR_FROM;
    let absent: Vec<String> = ids.iter().map(|id| format!("there is no group {id:?}")).collect();
    let groups = ids.iter().zip(&absent).zip(seen).map(|((id, absent), seen)| {
        let mut group = DescribedGroup {
            group_id: id,
            authorized_operations: if reply.version() >= 3 {
                operations
            } else {
                operations::NOT_ASKED
            },
            ..DescribedGroup::default()
        };
        match seen {
            Ok(Some(view)) => describe(&mut group, view),
            Ok(None) if absent_is_error => {
                group.error_code = ErrorCode::GROUP_ID_NOT_FOUND;
                group.error_message = Some(absent);
                group.group_state = "Dead";
            }
            Ok(None) => group.group_state = "Dead",
            Err(error) => group.error_code = *error,
        }
        group
    });
    let groups = groups.collect();
    reply.answer(&DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() });
}

fn describe<'a>(group: &mut DescribedGroup<'a>, view: &'a GroupView) {
    group.group_state = view.phase.text();
    group.protocol_type = &view.protocol_type;
    group.protocol_data = &view.protocol;
    let members = view.members.iter().map(|member| DescribedGroupMember {
        member_id: &member.id,
        group_instance_id: member.instance_id.as_deref(),
        client_id: &member.client_id,
        client_host: &member.client_host,
        member_metadata: &member.metadata,
        member_assignment: &member.assignment,
    });
    group.members = members.collect();
}
