//! DescribeConfigs: options of topics and of this broker, and where their values come from.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_configs_request::DescribeConfigsResource;
use ottla_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use ottla_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use crate::config::describe::Described;
use crate::driver::controller::{Refusal, broker_options, check_broker_name};
use crate::node::{Node, OFFSETS_TOPIC};
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::metadata::{Image, Resource};
use crate::state::topics::check_name;

/// Answers each resource by itself.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: DescribeConfigsRequest<'_>,
    reply: Reply,
) {
    let image = node.controller.image();
    let described: Vec<_> =
        request.resources.iter().map(|resource| describe(node, &image, resource)).collect();
    let results = request.resources.iter().zip(&described).map(|(resource, described)| {
        let mut result = DescribeConfigsResult {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            ..DescribeConfigsResult::default()
        };
        match described {
            Ok(options) => {
                let options = options.iter().map(|option| shown(option, &request));
                result.configs = options.collect();
            }
            Err(refusal) => {
                result.error_code = refusal.code;
                result.error_message = Some(&refusal.message);
            }
        }
        result
    });
    let results = results.collect();
    reply.answer(&DescribeConfigsResponse { results, ..DescribeConfigsResponse::default() });
}

/// The options asked for; no keys, or none named, are all of them.
fn describe(
    node: &Node,
    image: &Image,
    asked: &DescribeConfigsResource<'_>,
) -> Result<Vec<Described>, Refusal> {
    let options = broker_options(node, image);
    let name = asked.resource_name;
    let mut described = match asked.resource_type {
        Resource::TOPIC => {
            if name != OFFSETS_TOPIC {
                check_name(name)?;
            }
            let topic = image.topic(name).ok_or_else(|| {
                let message = format!("there is no topic {name:?}");
                Refusal::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message)
            })?;
            options.describe_topic(image.topic_overrides(&topic.name).map(|own| &**own))
        }
        Resource::BROKER => {
            check_broker_name(node, name)?;
            if name.is_empty() { options.describe_defaults() } else { options.describe_broker() }
        }
        other => {
            let message = format!("resources of the type {other} have no options here");
            return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
        }
    };
    let keys = asked.configuration_keys.as_ref().filter(|keys| !keys.is_empty());
    if let Some(keys) = keys {
        let keys: BTreeSet<&str> = keys.iter().copied().collect();
        described.retain(|option| keys.contains(option.name));
    }
    Ok(described)
}

fn shown<'a>(
    option: &'a Described,
    request: &DescribeConfigsRequest<'_>,
) -> DescribeConfigsResourceResult<'a> {
    let synonyms = option.synonyms.iter().filter(|_| request.include_synonyms);
    let synonyms = synonyms.map(|synonym| DescribeConfigsSynonym {
        name: synonym.name,
        value: synonym.value.as_deref(),
        source: synonym.source,
    });
    DescribeConfigsResourceResult {
        name: option.name,
        value: option.value.as_deref(),
        read_only: option.read_only,
        config_source: option.source,
        // No option holds a secret yet.
        is_sensitive: false,
        synonyms: synonyms.collect(),
        config_type: option.kind,
        documentation: request.include_documentation.then_some(option.doc),
    }
}
