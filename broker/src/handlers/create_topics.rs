//! CreateTopics: answered when the topics can be produced to.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use ottla_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use ottla_protocol::{ErrorCode, Uuid};

use crate::config::describe::Described;
use crate::driver::controller::{Ask, Created, Refusal, TopicRequest, broker_options};
use crate::node::Node;
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::metadata::Image;

/// Hands all topics that are named once to the controller.
pub(crate) fn handle(
    node: &Arc<Node>,
    _info: RequestInfo<'_>,
    request: CreateTopicsRequest<'_>,
    reply: Reply,
) {
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for topic in &request.topics {
        if !seen.insert(topic.name) {
            twice.insert(topic.name.to_owned());
        }
    }
    let once = request.topics.iter().filter(|topic| !twice.contains(topic.name));
    let requests: Vec<_> = once.map(topic_request).collect();
    let asked = requests.clone();
    let ask = if request.validate_only { Ask::CheckOnly } else { Ask::Create };
    let answering = node.clone();
    let done = Box::new(move |outcomes: Vec<Result<Created, Refusal>>| {
        answer(&answering, reply, &asked, &outcomes, &twice);
    });
    node.controller.create_topics(node, &requests, ask, done);
}

fn topic_request(topic: &CreatableTopic<'_>) -> TopicRequest {
    let assignments = topic.assignments.iter();
    let assignments = assignments.map(|one| (one.partition_index, one.broker_ids.clone()));
    let configs = topic.configs.iter();
    let configs = configs.map(|one| (one.name.to_owned(), one.value.map(str::to_owned)));
    TopicRequest {
        name: topic.name.to_owned(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: assignments.collect(),
        configs: configs.collect(),
    }
}

fn answer(
    node: &Node,
    reply: Reply,
    asked: &[TopicRequest],
    outcomes: &[Result<Created, Refusal>],
    twice: &BTreeSet<String>,
) {
    // The options that each new topic begins with; they must outlive the answer that shows them.
    let image = node.controller.image();
    let options = asked.iter().zip(outcomes).map(|(request, outcome)| match outcome {
        Ok(_created) => effective(node, &image, request),
        Err(_refusal) => Vec::new(),
    });
    let options: Vec<_> = options.collect();
    let mut topics: Vec<_> = asked
        .iter()
        .zip(outcomes)
        .zip(&options)
        .map(|((request, outcome), options)| result(request, outcome, options))
        .collect();
    topics.extend(twice.iter().map(|name| CreatableTopicResult {
        name,
        error_code: ErrorCode::INVALID_REQUEST,
        error_message: Some("the request names this topic more than once"),
        ..CreatableTopicResult::default()
    }));
    reply.answer(&CreateTopicsResponse { topics, ..CreateTopicsResponse::default() });
}

fn effective(node: &Node, image: &Image, request: &TopicRequest) -> Vec<Described> {
    let own = request.configs.iter();
    let own = own.filter_map(|(name, value)| {
        Some((Arc::from(name.as_str()), Arc::from(value.as_deref()?.trim())))
    });
    broker_options(node, image).describe_topic(Some(&own.collect()))
}

fn result<'a>(
    request: &'a TopicRequest,
    outcome: &'a Result<Created, Refusal>,
    options: &'a [Described],
) -> CreatableTopicResult<'a> {
    let created = match outcome {
        Ok(created) => created,
        Err(refusal) => {
            return CreatableTopicResult {
                name: &request.name,
                topic_id: Uuid::ZERO,
                error_code: refusal.code,
                error_message: Some(&refusal.message),
                ..CreatableTopicResult::default()
            };
        }
    };
    let configs = options.iter().map(|option| CreatableTopicConfigs {
        name: option.name,
        value: option.value.as_deref(),
        config_source: option.source,
        ..CreatableTopicConfigs::default()
    });
    CreatableTopicResult {
        name: &request.name,
        topic_id: created.id,
        num_partitions: created.partitions,
        replication_factor: created.replication_factor,
        configs: Some(configs.collect()),
        ..CreatableTopicResult::default()
    }
}
