//! AlterConfigs: all options of a resource at once; what is not named goes back to its default.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use ottla_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};

use crate::driver::controller::{Ask, Refusal};
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::configs::{Alteration, Change};
use crate::state::metadata::Resource;

/// What became of one resource's changes.
pub(super) type Outcome = (Resource, Result<(), Refusal>);

/// Hands all resources to the controller; answered when the options act.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: AlterConfigsRequest<'_>,
    reply: Reply,
) {
    let asked = request.resources.iter().map(|asked| {
        let resource = Resource { kind: asked.resource_type, name: Arc::from(asked.resource_name) };
        let changes = asked.configs.iter();
        let changes = changes
            .map(|one| (one.name.to_owned(), Change::Set(one.value.map(str::to_owned))))
            .collect();
        (resource.clone(), Ok(Alteration { resource, changes, replaces: true }))
    });
    let asked = asked.collect();
    let ask = if request.validate_only { Ask::CheckOnly } else { Ask::Create };
    alter(node, asked, ask, move |outcomes| answer(reply, &outcomes));
}

/// Asks the controller about the resources that are named once, and gives the outcomes in order.
pub(super) fn alter(
    node: &Arc<Node>,
    asked: Vec<(Resource, Result<Alteration, Refusal>)>,
    ask: Ask,
    done: impl FnOnce(Vec<Outcome>) + Send + 'static,
) {
    let mut times: BTreeMap<&Resource, usize> = BTreeMap::new();
    for (resource, _) in &asked {
        *times.entry(resource).or_default() += 1;
    }
    let twice: Vec<bool> = asked.iter().map(|(one, _)| times.get(one) != Some(&1)).collect();
    let mut rows = Vec::with_capacity(asked.len());
    let mut alterations = Vec::new();
    for ((resource, wanted), twice) in asked.into_iter().zip(twice) {
        let row = match wanted {
            _ if twice => {
                let message = "the request names this resource more than once";
                Some(Err(Refusal::new(ErrorCode::INVALID_REQUEST, message)))
            }
            Err(refusal) => Some(Err(refusal)),
            Ok(alteration) => {
                alterations.push(alteration);
                None
            }
        };
        rows.push((resource, row));
    }
    let done = Box::new(move |outcomes: Vec<Result<(), Refusal>>| {
        let mut next = outcomes.into_iter();
        let rows = rows.into_iter().map(|(resource, row)| {
            // One outcome for each that was handed over, in order.
            let lost = || Refusal::new(ErrorCode::UNKNOWN_SERVER_ERROR, "no outcome");
            let outcome = row.or_else(|| next.next()).unwrap_or_else(|| Err(lost()));
            (resource, outcome)
        });
        done(rows.collect());
    });
    node.controller.alter_configs(node, &alterations, ask, done);
}

fn answer(reply: Reply, outcomes: &[Outcome]) {
    let responses = outcomes.iter().map(|(resource, outcome)| AlterConfigsResourceResponse {
        error_code: outcome.as_ref().err().map_or(ErrorCode::NONE, |refusal| refusal.code),
        error_message: outcome.as_ref().err().map(|refusal| refusal.message.as_str()),
        resource_type: resource.kind,
        resource_name: &resource.name,
    });
    let responses = responses.collect();
    reply.answer(&AlterConfigsResponse { responses, ..AlterConfigsResponse::default() });
}
