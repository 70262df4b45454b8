//! IncrementalAlterConfigs: options are set, deleted, and lists gain and lose words (KIP-339).

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use ottla_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use ottla_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::alter_configs::{Outcome, alter};
use crate::driver::controller::{Ask, Refusal};
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::configs::{Alteration, Change};
use crate::state::metadata::Resource;

/// Hands all resources to the controller; answered when the options act.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: IncrementalAlterConfigsRequest<'_>,
    reply: Reply,
) {
    let asked = request.resources.iter().map(alteration).collect();
    let ask = if request.validate_only { Ask::CheckOnly } else { Ask::Create };
    alter(node, asked, ask, move |outcomes| answer(reply, &outcomes));
}

/// What is asked for a resource, or why nobody can do it.
fn alteration(asked: &AlterConfigsResource<'_>) -> (Resource, Result<Alteration, Refusal>) {
    let resource = Resource { kind: asked.resource_type, name: Arc::from(asked.resource_name) };
    let changes: Result<Vec<_>, _> = asked.configs.iter().map(change).collect();
    let changes =
        changes.map(|changes| Alteration { resource: resource.clone(), changes, replaces: false });
    (resource, changes)
}

fn change(asked: &AlterableConfig<'_>) -> Result<(String, Change), Refusal> {
    let value = asked.value.map(str::to_owned);
    let change = match asked.config_operation {
        0 => Change::Set(value),
        1 => Change::Delete,
        2 => Change::Append(value),
        3 => Change::Subtract(value),
        other => {
            let message = format!("{other} is no operation on an option");
            return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
        }
    };
    Ok((asked.name.to_owned(), change))
}

fn answer(reply: Reply, outcomes: &[Outcome]) {
    let responses = outcomes.iter().map(|(resource, outcome)| AlterConfigsResourceResponse {
        error_code: outcome.as_ref().err().map_or(ErrorCode::NONE, |refusal| refusal.code),
        error_message: outcome.as_ref().err().map(|refusal| refusal.message.as_str()),
        resource_type: resource.kind,
        resource_name: &resource.name,
    });
    let responses = responses.collect();
    reply.answer(&IncrementalAlterConfigsResponse {
        responses,
        ..IncrementalAlterConfigsResponse::default()
    });
}
