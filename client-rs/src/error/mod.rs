//! Errors: what went wrong, what the caller can do, and what may have happened to the records.

mod kind;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

use crate::record::TopicPartition;

pub use kind::{ErrorClass, ErrorKind};

/// What may have become of a record that was not reported as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It never left this client: sending it again cannot duplicate it.
    NotSent,
    /// It was written to a broker, and no final answer came: it may be stored.
    PossiblyPersisted,
    /// The broker refused it: it is not stored.
    Rejected,
}

impl Outcome {
    /// The outcome as one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotSent => "NotSent",
            Self::PossiblyPersisted => "PossiblyPersisted",
            Self::Rejected => "Rejected",
        }
    }
}

/// An error of a client. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    outcome: Option<Outcome>,
    code: Option<ErrorCode>,
    topic: Option<Arc<str>>,
    partition: Option<i32>,
    /// All of them, where it is about more than one.
    partitions: Vec<TopicPartition>,
    broker: Option<String>,
    api: Option<ApiKey>,
    attempt: Option<u32>,
    age: Option<Duration>,
    hint: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of a kind, with a text that is a sentence without its stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            outcome: None,
            code: None,
            topic: None,
            partition: None,
            partitions: Vec::new(),
            broker: None,
            api: None,
            attempt: None,
            age: None,
            hint: None,
            source: None,
        }))
    }

    /// The error of a code in a broker's answer; `text` is what the broker said beside it.
    pub(crate) fn from_kafka(code: ErrorCode, text: Option<&str>) -> Self {
        let message = match text {
            Some(text) if !text.is_empty() => format!("the broker answered {code}: {text}"),
            _ => format!("the broker answered {code}"),
        };
        Self::new(ErrorKind::from_kafka(code), message).change(|inner| inner.code = Some(code))
    }

    /// The same for a call of an admin client.
    pub(crate) fn from_kafka_for_admin(code: ErrorCode, text: Option<&str>) -> Self {
        let kind = ErrorKind::from_kafka_for_admin(code);
        Self::from_kafka(code, text).change(|inner| inner.kind = kind)
    }

    /// The error of a call on a client that was closed.
    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the client is closed")
    }

    /// The error of a panic that was caught before it got into another language.
    pub fn from_panic(payload: &(dyn Any + Send)) -> Self {
        let owned = payload.downcast_ref::<String>().map(String::as_str);
        let text = owned.or_else(|| payload.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("it tells nothing more");
        Self::new(ErrorKind::Internal, format!("a fault in the client: {text}"))
    }

    fn change(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The same with what a person can do about it.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        self.change(|inner| inner.hint = Some(hint.into()))
    }

    /// The same with its cause.
    #[must_use]
    pub fn with_source(self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.change(|inner| inner.source = Some(Arc::new(source)))
    }

    /// The same with its cause, of a type that only the program knows.
    #[must_use]
    pub(crate) fn with_foreign_source(self, source: Box<dyn StdError + Send + Sync>) -> Self {
        self.change(|inner| inner.source = Some(Arc::from(source)))
    }

    /// The same as another kind, where what was asked gives a broker's code another meaning.
    #[must_use]
    pub(crate) fn with_kind(self, kind: ErrorKind) -> Self {
        self.change(|inner| inner.kind = kind)
    }

    /// The same with what may have become of the record.
    #[must_use]
    pub(crate) fn with_outcome(self, outcome: Outcome) -> Self {
        self.change(|inner| inner.outcome = Some(outcome))
    }

    /// The same with the topic it is about.
    #[must_use]
    pub(crate) fn with_topic(self, topic: &Arc<str>) -> Self {
        self.change(|inner| inner.topic = Some(Arc::clone(topic)))
    }

    /// The same with the partition it is about.
    #[must_use]
    pub(crate) fn with_partition(self, partition: i32) -> Self {
        self.change(|inner| inner.partition = Some(partition))
    }

    /// The same with all partitions it is about.
    #[must_use]
    pub(crate) fn with_partitions(self, partitions: &[TopicPartition]) -> Self {
        let Some(first) = partitions.first() else { return self };
        let error = self.with_topic(&first.topic).with_partition(first.partition);
        error.change(|inner| inner.partitions = partitions.to_vec())
    }

    /// The same with the broker it came from or was meant for.
    #[must_use]
    pub(crate) fn with_broker(self, broker: impl fmt::Display) -> Self {
        self.change(|inner| inner.broker = Some(broker.to_string()))
    }

    /// The same with the API that was asked.
    #[must_use]
    pub(crate) fn with_api(self, api: ApiKey) -> Self {
        self.change(|inner| inner.api = Some(api))
    }

    /// The same with which attempt it was, counted from 1, and how long after the first.
    #[must_use]
    pub(crate) fn with_attempt(self, attempt: u32, age: Duration) -> Self {
        self.change(|inner| {
            inner.attempt = Some(attempt);
            inner.age = Some(age);
        })
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What the caller can do about it.
    pub fn class(&self) -> ErrorClass {
        self.0.kind.class()
    }

    /// Whether trying again may help.
    pub fn retriable(&self) -> bool {
        self.class() == ErrorClass::Retriable
    }

    /// What may have become of the record; `None` if the error is about none.
    pub fn outcome(&self) -> Option<Outcome> {
        self.0.outcome
    }

    /// Whether the record may be stored all the same.
    pub fn maybe_stored(&self) -> bool {
        self.0.outcome == Some(Outcome::PossiblyPersisted)
    }

    /// The error code in the broker's answer.
    pub fn kafka_code(&self) -> Option<i16> {
        self.0.code.map(i16::from)
    }

    /// The topic it is about.
    pub fn topic(&self) -> Option<&str> {
        self.0.topic.as_deref()
    }

    /// The partition it is about; the first, if there are more.
    pub fn partition(&self) -> Option<i32> {
        self.0.partition
    }

    /// All partitions that it is about: those of a commit that was fenced, the one of
    /// [`Self::topic`] and [`Self::partition`], or none.
    pub fn partitions(&self) -> Vec<TopicPartition> {
        let Inner { topic, partition, partitions, .. } = &*self.0;
        match (topic, partition) {
            (Some(topic), Some(partition)) if partitions.is_empty() => {
                vec![TopicPartition::new(Arc::clone(topic), *partition)]
            }
            _ => partitions.clone(),
        }
    }

    /// The broker it came from or was meant for.
    pub fn broker(&self) -> Option<&str> {
        self.0.broker.as_deref()
    }

    /// The API that was asked.
    pub fn api(&self) -> Option<&'static str> {
        self.0.api.map(ApiKey::name)
    }

    /// Which attempt it was, counted from 1.
    pub fn attempt(&self) -> Option<u32> {
        self.0.attempt
    }

    /// How long after the call it happened.
    pub fn age(&self) -> Option<Duration> {
        self.0.age
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The text of this error alone, without causes and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| -> &(dyn StdError + 'static) { source })
    }
}

impl fmt::Display for Error {
    /// The text, where it happened, the chain of causes, what may have become of the record, and
    /// the hint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        f.write_str(&inner.message)?;
        self.fmt_context(f)?;
        // A cause of our own tells its own causes, so the chain ends there.
        if let Some(source) = inner.source.as_deref() {
            write!(f, ": {source}")?;
            let mut deeper = if source.is::<Self>() { None } else { source.source() };
            while let Some(cause) = deeper {
                write!(f, ": {cause}")?;
                deeper = if cause.is::<Self>() { None } else { cause.source() };
            }
        }
        // A cause that tells the same need not be repeated.
        let cause = inner.source.as_deref().and_then(|source| source.downcast_ref::<Self>());
        let outcome =
            inner.outcome.filter(|_| cause.is_none_or(|at| at.outcome() != inner.outcome));
        match outcome {
            Some(Outcome::NotSent) => f.write_str("; not sent")?,
            Some(Outcome::PossiblyPersisted) => f.write_str("; it may have been stored")?,
            Some(Outcome::Rejected) | None => {}
        }
        match &inner.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl Error {
    /// ` [topic orders-3, broker 1, Produce, attempt 2 after 0.130 s]`, as far as it is known.
    fn fmt_context(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        let mut before = " [";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            f.write_str(std::mem::replace(&mut before, ", "))?;
            f.write_fmt(text)
        };
        match (&inner.topic, inner.partition) {
            (Some(topic), Some(partition)) => part(f, format_args!("topic {topic}-{partition}"))?,
            (Some(topic), None) => part(f, format_args!("topic {topic}"))?,
            (None, _) => {}
        }
        if let Some(broker) = &inner.broker {
            part(f, format_args!("broker {broker}"))?;
        }
        if let Some(api) = inner.api {
            part(f, format_args!("{api}"))?;
        }
        if let (Some(attempt), Some(age)) = (inner.attempt, inner.age) {
            part(f, format_args!("attempt {attempt} after {:.3} s", age.as_secs_f64()))?;
        }
        f.write_str(if before == ", " { "]" } else { "" })
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.0.kind.name())
    }
}
