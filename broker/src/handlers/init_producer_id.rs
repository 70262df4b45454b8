//! InitProducerId: an id under which an idempotent producer's batches are told apart.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};

use crate::driver::controller::Refusal;
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

/// Gives a new id with epoch 0.
///
/// Also to a producer that names its id and epoch: without a transactional id there is nobody who
/// could tell whether it is still the only one, so it begins anew, as in Kafka.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: InitProducerIdRequest<'_>,
    reply: Reply,
) {
    if request.transactional_id == Some("") {
        refuse(reply, ErrorCode::INVALID_REQUEST);
        return;
    }
    if let Some(transactional_id) = request.transactional_id {
        tracing::warn!(
            peer = %info.connection.peer,
            client = info.client_id.unwrap_or_default(),
            transactional_id,
            "a producer asks for transactions, which this broker does not have yet; \
             set no transactional.id"
        );
        // The largest transaction timeout that this broker allows is none at all. Of the codes
        // that fit, this is the one that all clients take as final; others they ask again.
        refuse(reply, ErrorCode::INVALID_TRANSACTION_TIMEOUT);
        return;
    }
    if (request.producer_id < 0) != (request.producer_epoch < 0) {
        refuse(reply, ErrorCode::INVALID_REQUEST);
        return;
    }
    let done = Box::new(move |given: Result<i64, Refusal>| match given {
        Ok(producer_id) => reply.answer(&InitProducerIdResponse {
            producer_id,
            producer_epoch: 0,
            ..InitProducerIdResponse::default()
        }),
        Err(refusal) => refuse(reply, refusal.code),
    });
    node.controller.producer_id(node, done);
}

fn refuse(reply: Reply, error_code: ErrorCode) {
    reply.answer(&InitProducerIdResponse {
        error_code,
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    });
}
