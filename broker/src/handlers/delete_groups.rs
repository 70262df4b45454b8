//! DeleteGroups: groups that nobody is in go, with their offsets.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::delete_groups_response::DeletableGroupResult;
use ottla_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use crate::driver::collect::collect;
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

/// Deletes each for itself; answered when all are decided and stored.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: DeleteGroupsRequest<'_>,
    reply: Reply,
) {
    let ids: Vec<String> = request.groups_names.iter().map(|id| (*id).to_owned()).collect();
    let asked = ids.clone();
    let put = collect(ids.len(), move |codes: Vec<ErrorCode>| answer(reply, &asked, &codes));
    for (place, id) in ids.iter().enumerate() {
        let put = put.clone();
        node.coordinator.delete_group(node, id, Box::new(move |code| put(place, code)));
    }
}

fn answer(reply: Reply, ids: &[String], codes: &[ErrorCode]) {
    let results = ids.iter().zip(codes).map(|(group_id, error_code)| DeletableGroupResult {
        group_id,
        error_code: *error_code,
        error_message: match *error_code {
            ErrorCode::GROUP_ID_NOT_FOUND => Some("there is no such group"),
            ErrorCode::NON_EMPTY_GROUP => Some("the group has members; they must leave first"),
            _ => None,
        },
    });
    let results = results.collect();
    reply.answer(&DeleteGroupsResponse { results, ..DeleteGroupsResponse::default() });
}
