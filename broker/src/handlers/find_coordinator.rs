//! FindCoordinator: who looks after a group. It is this broker; the offsets topic is made if need be.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::find_coordinator_response::Coordinator;
use ottla_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};

use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

/// From this version on many keys are asked for at a time.
const MANY_FROM: i16 = 4;

/// What a key names.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// Answers with this broker's address, once it can keep groups.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: FindCoordinatorRequest<'_>,
    reply: Reply,
) {
    let keys: Vec<String> = if info.version >= MANY_FROM {
        request.coordinator_keys.iter().map(|key| (*key).to_owned()).collect()
    } else {
        vec![request.key.to_owned()]
    };
    let (host, port) = info.connection.advertised(node);
    let here = Here { node_id: node.node_id, host, port };
    match request.key_type {
        GROUP => {
            let done = Box::new(move |created: Result<(), _>| {
                let refused = created.err().map(|refusal: crate::state::topics::Refusal| {
                    (ErrorCode::COORDINATOR_NOT_AVAILABLE, refusal.message)
                });
                answer(reply, &keys, &here, refused);
            });
            node.controller.create_offsets_topic(node, done);
        }
        // There are no transactions yet, and InitProducerId says so at once. An error here would
        // be asked about again and again: clients take it for a broker that is not ready.
        TRANSACTION => answer(reply, &keys, &here, None),
        other => {
            let message = format!("there is no coordinator of the type {other}");
            answer(reply, &keys, &here, Some((ErrorCode::INVALID_REQUEST, message)));
        }
    }
}

/// This broker, as the client knows it.
struct Here {
    node_id: i32,
    host: String,
    port: i32,
}

fn answer(reply: Reply, keys: &[String], here: &Here, refused: Option<(ErrorCode, String)>) {
    let (error_code, error_message) = match &refused {
        Some((code, message)) => (*code, Some(message.as_str())),
        None => (ErrorCode::NONE, None),
    };
    let (node_id, host, port) = if refused.is_none() {
        (here.node_id, here.host.as_str(), here.port)
    } else {
        (-1, "", -1)
    };
    if reply.version() >= MANY_FROM {
        let coordinators = keys.iter().map(|key| Coordinator {
            key,
            node_id,
            host,
            port,
            error_code,
            error_message,
        });
        let coordinators = coordinators.collect();
        reply.answer(&FindCoordinatorResponse {
            coordinators,
            ..FindCoordinatorResponse::default()
        });
        return;
    }
    reply.answer(&FindCoordinatorResponse {
        error_code,
        error_message,
        node_id,
        host,
        port,
        ..FindCoordinatorResponse::default()
    });
}
