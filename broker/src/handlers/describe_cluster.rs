//! DescribeCluster: the brokers, as a client reaches them.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use ottla_protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::operations;
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

/// Endpoints that may be asked for (KIP-919).
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// Answers with this broker, at the address that the client came by.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: DescribeClusterRequest,
    reply: Reply,
) {
    let endpoint_type = request.endpoint_type;
    let refused = match endpoint_type {
        BROKERS => None,
        CONTROLLERS => Some((
            ErrorCode::MISMATCHED_ENDPOINT_TYPE,
            "this listener is for clients; it does not tell where the controllers listen"
                .to_owned(),
        )),
        other => Some((
            ErrorCode::UNSUPPORTED_ENDPOINT_TYPE,
            format!("there are no endpoints of the type {other}"),
        )),
    };
    if let Some((error_code, message)) = refused {
        reply.answer(&DescribeClusterResponse {
            error_code,
            error_message: Some(&message),
            ..DescribeClusterResponse::default()
        });
        return;
    }
    let (host, port) = info.connection.advertised(node);
    let broker = DescribeClusterBroker {
        broker_id: node.node_id,
        host: &host,
        port,
        ..DescribeClusterBroker::default()
    };
    reply.answer(&DescribeClusterResponse {
        endpoint_type,
        cluster_id: &node.cluster_id,
        controller_id: node.node_id,
        brokers: vec![broker],
        cluster_authorized_operations: operations::if_asked(
            request.include_cluster_authorized_operations,
            operations::CLUSTER,
        ),
        ..DescribeClusterResponse::default()
    });
}
