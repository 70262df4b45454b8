//! Plain questions to a broker that are no part of what is compared.

use std::time::{Duration, Instant};

use super::codec::{Spec, encode};
use super::connection::Connection;
use super::request::Options;
use super::run::Peer;
use super::value::{Path, Value};

/// The longest that a broker is asked again until it says what is waited for.
pub(super) const UNTIL_LIMIT: Duration = Duration::from_secs(20);
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(15);

/// A connection to ask by.
pub(super) struct Asking<'a> {
    spec: &'a Spec,
    connection: Connection,
}

impl<'a> Asking<'a> {
    pub(super) fn open(spec: &'a Spec, peer: &Peer) -> Result<Self, String> {
        let connection = Connection::open(peer.address).map_err(|stop| stop.to_string())?;
        Ok(Self { spec, connection })
    }

    pub(super) fn ask(&mut self, api: &str, version: i16, fields: &Value) -> Result<Value, String> {
        let message = self.spec.request(api)?;
        let body = encode(message, version, fields)?;
        let id = self.connection.next_id();
        let flexible = version >= message.first_flexible;
        let key = self.spec.key(api)?;
        let frame = Options::default().frame(key, version, id, flexible, body)?;
        self.connection.send(&frame);
        let frame = self.connection.receive().map_err(|found| format!("{api}: {found:?}"))?;
        self.spec.decode(api, version, frame.get(4..).unwrap_or_default())
    }

    /// Asks again until the answer is as wanted.
    pub(super) fn until(
        &mut self,
        api: &str,
        version: i16,
        fields: &Value,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, String> {
        let end = Instant::now() + UNTIL_LIMIT;
        loop {
            let answer = self.ask(api, version, fields)?;
            if wanted(&answer) {
                return Ok(answer);
            }
            if Instant::now() >= end {
                return Err(format!("{api} says for ever: {}", answer.shown()));
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// Makes a topic; it must be made.
    pub(super) fn create(&mut self, topic: &Value) -> Result<(), String> {
        let fields = record([
            ("Topics", Value::List(vec![topic.clone()])),
            ("TimeoutMs", Value::Number(10_000)),
        ]);
        let answer = self.ask("CreateTopics", 7, &fields)?;
        let created = Path::parse("Topics[0].ErrorCode")?;
        if answer.at(&created) == Some(&Value::text("NONE")) {
            return Ok(());
        }
        Err(format!("the topic is refused: {}", answer.shown()))
    }

    /// The id of a topic once all its partitions answer.
    pub(super) fn until_served(
        &mut self,
        name: &Value,
        partitions: &Value,
    ) -> Result<Value, String> {
        let wanted = record([
            ("Topics", Value::List(vec![record([("Name", name.clone())])])),
            ("AllowAutoTopicCreation", Value::Bool(false)),
        ]);
        let error = Path::parse("Topics[0].ErrorCode")?;
        let is_there = |answer: &Value| answer.at(&error) == Some(&Value::text("NONE"));
        let described = self.until("Metadata", 12, &wanted, is_there)?;
        let count = match partitions {
            Value::Number(count) if *count > 0 => *count,
            _ => 1,
        };
        let asked = (0..count).map(|at| {
            record([("PartitionIndex", Value::Number(at)), ("Timestamp", Value::Number(-1))])
        });
        let topic = record([("Name", name.clone()), ("Partitions", Value::List(asked.collect()))]);
        let fields =
            record([("ReplicaId", Value::Number(-1)), ("Topics", Value::List(vec![topic]))]);
        let served = |answer: &Value| {
            !answer.to_string().contains("UNKNOWN_TOPIC")
                && !answer.to_string().contains("NOT_LEADER")
        };
        self.until("ListOffsets", 7, &fields, served)?;
        let id = described.at(&Path::parse("Topics[0].TopicId")?).cloned();
        id.ok_or_else(|| "Metadata tells no id".to_owned())
    }
}

/// A struct of these fields.
pub(super) fn record<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Struct(fields.map(|(name, value)| (name.to_owned(), value)).into())
}
