//! ListConfigResources: what has options that can be asked for (KIP-1142).

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_config_resources_response::ConfigResource;
use ottla_protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};

use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;

/// Before this version only the subscriptions to clients' metrics are listed; there are none.
const TYPES_FROM: i16 = 1;

/// Types of resources, in Kafka's numbers: `ConfigResource.Type`.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// Answers with the topics and this broker.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: ListConfigResourcesRequest,
    reply: Reply,
) {
    if info.version < TYPES_FROM {
        reply.answer(&ListConfigResourcesResponse::default());
        return;
    }
    let types = request.resource_types;
    let known = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];
    if types.iter().any(|one| !known.contains(one)) {
        let error_code = ErrorCode::UNSUPPORTED_VERSION;
        reply.answer(&ListConfigResourcesResponse {
            error_code,
            ..ListConfigResourcesResponse::default()
        });
        return;
    }
    let wanted = |kind| types.is_empty() || types.contains(&kind);
    let topics = node.topics.load();
    let mut names: Vec<&str> = topics.iter().map(|topic| &*topic.name).collect();
    names.sort_unstable();
    let broker = node.node_id.to_string();
    let topics = names.into_iter().filter(|_| wanted(TOPIC)).map(|name| (name, TOPIC));
    let brokers = [BROKER].into_iter().filter(|kind| wanted(*kind));
    let all = topics.chain(brokers.map(|kind| (broker.as_str(), kind)));
    let config_resources =
        all.map(|(resource_name, resource_type)| ConfigResource { resource_name, resource_type });
    let config_resources = config_resources.collect();
    reply.answer(&ListConfigResourcesResponse {
        config_resources,
        ..ListConfigResourcesResponse::default()
    });
}
