//! DeleteTopics: answered when the topics are out of the metadata; their folders go right after.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::messages::delete_topics_response::DeletableTopicResult;
use ottla_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use ottla_protocol::{ErrorCode, Uuid};

use crate::driver::controller::Refusal;
use crate::node::{Node, Topic};
use crate::server::dispatch::RequestInfo;
use crate::server::outbox::Reply;
use crate::state::topics::TopicKey;

/// From this version on topics can be named by their ids.
const IDS_FROM: i16 = 6;

/// From this version on there is a code for a broker that deletes no topics.
const DISABLED_FROM: i16 = 3;

/// Hands the topics to the controller.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: DeleteTopicsRequest<'_>,
    reply: Reply,
) {
    let asked = asked(&request, info.version);
    let refused = |(name, id, key): &Asked| check(node, info.version, name.as_deref(), *id, key);
    let mut rows: Vec<Row> = Vec::with_capacity(asked.len());
    let mut keys = Vec::new();
    let mut times = times(node, &asked);
    for one in asked {
        // As Kafka: what is named more than once is answered once, and stays.
        let Some((topic, times)) = times.remove(&identity(node, &one.2)) else { continue };
        let mut row = Row { name: one.0.clone(), id: one.1, outcome: None };
        if let Some(refusal) = refused(&one) {
            row.outcome = Some(Err(refusal));
        } else if times > 1 {
            let message = "the request names this topic more than once";
            row.outcome = Some(Err(Refusal::new(ErrorCode::INVALID_REQUEST, message)));
            if let Some(topic) = topic {
                (row.name, row.id) = (Some(topic.name.to_string()), topic.id);
            }
        } else {
            keys.push(one.2);
        }
        rows.push(row);
    }
    let done = Box::new(move |outcomes: Vec<Result<(Arc<str>, Uuid), Refusal>>| {
        let mut outcomes = outcomes.into_iter();
        for row in rows.iter_mut().filter(|row| row.outcome.is_none()) {
            row.outcome = outcomes.next();
        }
        answer(reply, &rows);
    });
    node.controller.delete_topics(node, &keys, done);
}

/// A topic as asked for: its name, its id, and which of them counts.
type Asked = (Option<String>, Uuid, TopicKey);

/// A topic's id, where there is one of this name or id.
fn identity(node: &Node, key: &TopicKey) -> TopicKey {
    match key {
        TopicKey::Name(name) => {
            let topic = node.topics.named(name);
            topic.map_or_else(|| key.clone(), |topic| TopicKey::Id(topic.id))
        }
        TopicKey::Id(_) => key.clone(),
    }
}

/// How often each topic is named; and the topic itself, where it is named by name and by id.
fn times(node: &Node, asked: &[Asked]) -> BTreeMap<TopicKey, (Option<Arc<Topic>>, usize)> {
    let mut times = BTreeMap::new();
    for (name, _, key) in asked {
        let (topic, count) = times.entry(identity(node, key)).or_insert((None, 0));
        *topic = name.as_deref().and_then(|name| node.topics.named(name)).or_else(|| topic.take());
        *count += 1;
    }
    times
}

struct Row {
    name: Option<String>,
    id: Uuid,
    outcome: Option<Result<(Arc<str>, Uuid), Refusal>>,
}

fn asked(request: &DeleteTopicsRequest<'_>, version: i16) -> Vec<Asked> {
    if version < IDS_FROM {
        let names = request.topic_names.iter();
        let by_name = |name: &&str| {
            (Some((*name).to_owned()), Uuid::ZERO, TopicKey::Name((*name).to_owned()))
        };
        return names.map(by_name).collect();
    }
    let topics = request.topics.iter().map(|topic| {
        let key = match topic.name {
            Some(name) => TopicKey::Name(name.to_owned()),
            None => TopicKey::Id(topic.topic_id),
        };
        (topic.name.map(str::to_owned), topic.topic_id, key)
    });
    topics.collect()
}

fn check(
    node: &Node,
    version: i16,
    name: Option<&str>,
    id: Uuid,
    key: &TopicKey,
) -> Option<Refusal> {
    let invalid = |message: &str| Some(Refusal::new(ErrorCode::INVALID_REQUEST, message));
    if name.is_some() && !id.is_zero() {
        return invalid("a topic is named by its name or by its id, not by both");
    }
    if *key == TopicKey::Id(Uuid::ZERO) {
        return invalid("neither a name nor an id is given");
    }
    if node.settings.delete_topics {
        return None;
    }
    let message = "topics cannot be deleted: the broker's option delete.topic.enable is false";
    let code = if version >= DISABLED_FROM {
        ErrorCode::TOPIC_DELETION_DISABLED
    } else {
        ErrorCode::INVALID_REQUEST
    };
    Some(Refusal::new(code, message))
}

fn answer(reply: Reply, rows: &[Row]) {
    let responses = rows.iter().map(|row| match &row.outcome {
        Some(Ok((name, id))) => DeletableTopicResult {
            name: Some(name),
            topic_id: *id,
            ..DeletableTopicResult::default()
        },
        Some(Err(refusal)) => DeletableTopicResult {
            name: row.name.as_deref(),
            topic_id: row.id,
            error_code: refusal.code,
            error_message: Some(&refusal.message),
        },
        None => DeletableTopicResult {
            name: row.name.as_deref(),
            topic_id: row.id,
            error_code: ErrorCode::UNKNOWN_SERVER_ERROR,
            ..DeletableTopicResult::default()
        },
    });
    let responses = responses.collect();
    reply.answer(&DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() });
}
