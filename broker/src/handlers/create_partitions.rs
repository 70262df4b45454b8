//! CreatePartitions: topics grow; answered when the new partitions can be produced to.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use ottla_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use crate::driver::controller::{Ask, Refusal};
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::topics::Growth;

/// Hands all topics that are named once to the controller.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: CreatePartitionsRequest<'_>,
    reply: Reply,
) {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in &request.topics {
        *times.entry(topic.name).or_default() += 1;
    }
    let twice = times.iter().filter(|(_, times)| **times > 1);
    let twice: Vec<String> = twice.map(|(name, _)| (*name).to_owned()).collect();
    let once = request.topics.iter().filter(|topic| times.get(topic.name) == Some(&1));
    let growths = once.map(|topic| Growth {
        name: topic.name.to_owned(),
        count: topic.count,
        assignments: topic.assignments.as_ref().map(|assignments| {
            assignments.iter().map(|assignment| assignment.broker_ids.clone()).collect()
        }),
    });
    let growths: Vec<_> = growths.collect();
    let names: Vec<_> = growths.iter().map(|growth| growth.name.clone()).collect();
    let ask = if request.validate_only { Ask::CheckOnly } else { Ask::Create };
    let done = Box::new(move |outcomes: Vec<Result<(), Refusal>>| {
        answer(reply, &names, &outcomes, &twice);
    });
    node.controller.create_partitions(node, &growths, ask, done);
}

fn answer(reply: Reply, names: &[String], outcomes: &[Result<(), Refusal>], twice: &[String]) {
    let mut results: Vec<_> = names
        .iter()
        .zip(outcomes)
        .map(|(name, outcome)| CreatePartitionsTopicResult {
            name,
            error_code: outcome.as_ref().err().map_or(ErrorCode::NONE, |refusal| refusal.code),
            error_message: outcome.as_ref().err().map(|refusal| refusal.message.as_str()),
        })
        .collect();
    results.extend(twice.iter().map(|name| CreatePartitionsTopicResult {
        name,
        error_code: ErrorCode::INVALID_REQUEST,
        error_message: Some("the request names this topic more than once"),
    }));
    reply.answer(&CreatePartitionsResponse { results, ..CreatePartitionsResponse::default() });
}
