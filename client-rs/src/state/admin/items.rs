//! An item of a call: where it is asked, how often it was, and what became of it.

use std::time::{Duration, Instant};

use ottla_protocol::{ApiKey, ErrorCode};

use super::Route;
use super::codes::UNKNOWN_MAX;
use super::coordinators::Coordinators;
use crate::error::{Error, ErrorKind};
use crate::record::{TopicPartition, check_partition};
use crate::state::machine::{Context, Target};

/// How far an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It is asked when it is time, and its broker is known.
    Waiting { retry_at: Instant },
    /// A request of it is on its way; whether it changes something, and some of it is written.
    Asked { begun: bool },
    /// Its result is told.
    Over,
}

/// What is asked of one broker.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) route: Route,
    pub(super) state: State,
    /// Requests that it went into.
    pub(super) attempts: u32,
    /// Requests in a row that failed.
    pub(super) failures: u32,
    /// Answers in a row by which there is no such topic.
    pub(super) unknown: u32,
    /// It goes into one request only with those of the same number.
    pub(super) apart: u64,
    /// The state of the metadata that was last counted there.
    seen: u64,
    /// A broker may have begun it without saying how it ended.
    pub(super) begun: bool,
    /// Why it is not over.
    pub(super) cause: Option<Error>,
}

/// What is known of the broker that an item is for.
pub(super) enum Place {
    /// It is this one.
    At(Target),
    /// It is being found.
    Unknown,
    /// There is none.
    Never(Error),
}

impl Item {
    pub(super) const fn new(route: Route, now: Instant) -> Self {
        Self {
            route,
            state: State::Waiting { retry_at: now },
            attempts: 0,
            failures: 0,
            unknown: 0,
            apart: 0,
            seen: 0,
            begun: false,
            cause: None,
        }
    }

    /// One that is never asked.
    pub(super) const fn refused(now: Instant) -> Self {
        let mut item = Self::new(Route::Any, now);
        item.state = State::Over;
        item
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        matches!(self.state, State::Waiting { retry_at } if retry_at <= now)
    }

    pub(super) const fn retry_at(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { retry_at } => Some(retry_at),
            State::Asked { .. } | State::Over => None,
        }
    }

    /// Asks again at that time.
    pub(super) fn again(&mut self, cause: Error, retry_at: Instant) {
        self.state = State::Waiting { retry_at };
        self.failures = self.failures.saturating_add(1);
        self.cause = Some(cause);
    }

    /// A final error, with how it came to it.
    pub(super) fn blame(&self, error: Error, age: Duration) -> Error {
        let error = if self.attempts > 0 { error.with_attempt(self.attempts, age) } else { error };
        self.warn(error)
    }

    /// An error that says so if what was asked may be done all the same.
    pub(super) fn warn(&self, error: Error) -> Error {
        if self.begun || matches!(self.state, State::Asked { begun: true }) {
            error.with_hint("an attempt of this call got no answer: what it asked may be done")
        } else {
            error
        }
    }

    /// Finds its broker, in a call that began at that time.
    pub(super) fn place(
        &mut self,
        begun: Instant,
        coordinators: &mut Coordinators,
        cx: &mut Context<'_>,
    ) -> Place {
        let fresh = cx.metadata.answered_at().is_some_and(|at| at >= begun);
        match &self.route {
            Route::Any => Place::At(Target::Any),
            Route::Coordinator(group) => {
                if let Some(node) = coordinators.node(group, cx.now) {
                    return Place::At(Target::Node(node));
                }
                if let Some(cause) = coordinators.cause(group) {
                    self.cause = Some(cause.clone());
                }
                Place::Unknown
            }
            Route::Controller => match cx.metadata.cluster().controller {
                Some(node) => Place::At(Target::Node(node)),
                // Brokers of today pass on what only a controller may do (KIP-590).
                None if fresh => Place::At(Target::Any),
                None => refresh(cx),
            },
            Route::Broker(node) if cx.metadata.cluster().brokers.contains_key(node) => {
                Place::At(Target::Node(*node))
            }
            Route::Broker(node) if fresh => {
                let text = format!("the cluster has no broker {node}");
                Place::Never(Error::new(ErrorKind::InvalidArgument, text))
            }
            Route::Broker(_) => refresh(cx),
            Route::Leader(partition) => {
                let partition = partition.clone();
                self.leader(&partition, fresh, cx)
            }
        }
    }

    fn leader(&mut self, at: &TopicPartition, fresh: bool, cx: &mut Context<'_>) -> Place {
        // Metadata is asked for all topics together, and one name must not spoil that.
        if let Err(error) = check_partition(at) {
            return Place::Never(error);
        }
        cx.metadata.want(&at.topic, cx.now);
        let cluster = cx.metadata.cluster();
        let Some(topic) = cluster.topics.get(&at.topic) else { return Place::Unknown };
        let about = |error: Error| error.with_topic(&at.topic).with_partition(at.partition);
        if topic.error.is_error() {
            let code = topic.error;
            if cluster.version > self.seen {
                self.seen = cluster.version;
                self.unknown = self.unknown.saturating_add(1);
            }
            let unknown = code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            let error = about(Error::from_kafka(code, None));
            if !code.is_retriable() || (unknown && self.unknown >= UNKNOWN_MAX) {
                return Place::Never(error);
            }
            self.cause = Some(error);
            return refresh(cx);
        }
        let index = usize::try_from(at.partition).ok();
        match index.and_then(|index| topic.partitions.get(index)).map(|known| known.leader) {
            Some(Some(leader)) => Place::At(Target::Node(leader)),
            Some(None) => {
                self.cause = Some(about(Error::from_kafka(ErrorCode::LEADER_NOT_AVAILABLE, None)));
                refresh(cx)
            }
            None if fresh => {
                let count = topic.partitions.len();
                let text = format!("the topic has partitions 0 to {}", count.saturating_sub(1));
                Place::Never(about(Error::new(ErrorKind::InvalidPartition, text)))
            }
            None => refresh(cx),
        }
    }
}

fn refresh(cx: &mut Context<'_>) -> Place {
    cx.metadata.request_refresh(cx.now);
    Place::Unknown
}

/// The error of an item that was still open at the deadline of its call.
pub(super) fn timed_out(
    item: Option<&Item>,
    api: ApiKey,
    metadata: Option<&Error>,
    age: Duration,
) -> Error {
    let text = format!("no result within {} ms", age.as_millis());
    let error = Error::new(ErrorKind::Timeout, text).with_api(api);
    let cause = item.and_then(|item| item.cause.as_ref()).or(metadata);
    let error = match cause {
        Some(cause) => error.with_source(cause.clone()),
        None => error,
    };
    match item {
        Some(item) => item.blame(error, age),
        None => error,
    }
}
