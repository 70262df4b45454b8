//! ListGroups: the groups that this broker looks after.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_groups_response::ListedGroup;
use ottla_protocol::messages::{ListGroupsRequest, ListGroupsResponse};

use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::groups::GroupSummary;

/// The only type of groups that there is here (KIP-848 brings another).
const CLASSIC: &str = "classic";

/// Answers with all groups in the states and of the types asked for, which are in any case.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: ListGroupsRequest<'_>,
    reply: Reply,
) {
    let states: Vec<String> = request.states_filter.iter().map(|one| one.to_lowercase()).collect();
    let types = &request.types_filter;
    if !types.is_empty() && !types.iter().any(|one| one.eq_ignore_ascii_case(CLASSIC)) {
        reply.answer(&ListGroupsResponse::default());
        return;
    }
    let done = Box::new(move |listed: Result<Vec<GroupSummary>, ErrorCode>| match listed {
        Ok(groups) => answer(reply, &groups, &states),
        Err(error_code) => {
            reply.answer(&ListGroupsResponse { error_code, ..ListGroupsResponse::default() });
        }
    });
    node.coordinator.list(node, done);
}

fn answer(reply: Reply, groups: &[GroupSummary], states: &[String]) {
    let wanted = |group: &&GroupSummary| {
        let state = group.phase.text();
        states.is_empty() || states.iter().any(|one| one.eq_ignore_ascii_case(state))
    };
    let listed = groups.iter().filter(wanted).map(|group| ListedGroup {
        group_id: &group.id,
        protocol_type: &group.protocol_type,
        group_state: group.phase.text(),
        group_type: CLASSIC,
    });
    let listed = listed.collect();
    reply.answer(&ListGroupsResponse { groups: listed, ..ListGroupsResponse::default() });
}
