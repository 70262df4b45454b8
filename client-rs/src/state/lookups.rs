//! Asking the coordinator which offsets are committed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use ottla_protocol::ErrorCode;

use super::pace::{Pace, soonest};
use super::token::{Token, Tokens};
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::hash::HashMap;

/// An offset as the coordinator keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) offset: i64,
    /// −1 if unknown.
    pub(crate) leader_epoch: i32,
    /// What was kept beside it.
    pub(crate) metadata: Option<Arc<str>>,
}

/// An OffsetFetch answer.
#[derive(Debug, Clone)]
pub(crate) struct LookupAnswer {
    pub(crate) error: ErrorCode,
    pub(crate) partitions: Vec<(TopicPartition, Committed, ErrorCode)>,
}

impl LookupAnswer {
    /// What counts in place of an answer about a topic that is gone meanwhile.
    pub(crate) const fn of_another_topic() -> Self {
        Self { error: ErrorCode::UNKNOWN_TOPIC_ID, partitions: Vec::new() }
    }
}

/// Why a lookup failed.
#[derive(Debug, Clone)]
pub(crate) enum LookupFault {
    /// The coordinator refused.
    Code(ErrorCode, Option<TopicPartition>),
    /// The time was over; the last fault, if there was one.
    TimedOut(Option<Error>),
}

/// Names one lookup.
pub(crate) type LookupId = u64;

/// Per partition what is committed, if anything is.
pub(crate) type LookupResult = Result<HashMap<TopicPartition, Option<Committed>>, LookupFault>;

/// What the owner must pass on.
#[derive(Debug)]
pub(crate) enum LookupEvent {
    /// This lookup has ended.
    Done(LookupId, LookupResult),
    /// The coordinator is gone or has moved.
    CoordinatorLost,
    /// The coordinator answered as one.
    CoordinatorAlive,
    /// The coordinator does not know a topic as it was named: metadata should be asked for.
    Refresh,
}

#[derive(Debug)]
struct Lookup {
    id: LookupId,
    partitions: Vec<TopicPartition>,
    deadline: Option<Instant>,
    asked: Option<Token>,
    retry_at: Instant,
    attempt: u32,
    cause: Option<Error>,
}

/// The machine that looks committed offsets up.
#[derive(Debug)]
pub(crate) struct Lookups {
    pace: Pace,
    open: Vec<Lookup>,
    events: VecDeque<LookupEvent>,
}

impl Lookups {
    /// A machine with nothing to look up.
    pub(crate) const fn new(pace: Pace) -> Self {
        Self { pace, open: Vec::new(), events: VecDeque::new() }
    }

    /// Looks the partitions up, trying until the deadline; for ever if there is none.
    pub(crate) fn push(
        &mut self,
        id: LookupId,
        partitions: Vec<TopicPartition>,
        deadline: Option<Instant>,
        now: Instant,
    ) {
        self.open.push(Lookup {
            id,
            partitions,
            deadline,
            asked: None,
            retry_at: now,
            attempt: 0,
            cause: None,
        });
    }

    /// Nobody wants to know any more.
    pub(crate) fn cancel(&mut self, id: LookupId) {
        self.open.retain(|lookup| lookup.id != id);
    }

    /// Whether the coordinator is needed.
    pub(crate) const fn wants_coordinator(&self) -> bool {
        !self.open.is_empty()
    }

    /// A request to the coordinator, if one is due. A partition for which
    /// `waits` holds is not asked about yet.
    pub(crate) fn poll_request(
        &mut self,
        waits: impl Fn(&TopicPartition) -> bool,
        tokens: &mut Tokens,
        now: Instant,
    ) -> Option<(Token, Vec<TopicPartition>)> {
        let due = self.open.iter_mut().find(|lookup| {
            let due = lookup.asked.is_none() && lookup.retry_at <= now;
            due && !lookup.partitions.iter().any(&waits)
        })?;
        let token = *due.asked.insert(tokens.next());
        Some((token, due.partitions.clone()))
    }

    /// Takes the answer to the request with `token`.
    pub(crate) fn handle_answer(
        &mut self,
        token: Token,
        answer: Result<LookupAnswer, Error>,
        now: Instant,
    ) {
        let Some(index) = self.open.iter().position(|lookup| lookup.asked == Some(token)) else {
            // A stale answer: the lookup was cancelled.
            return;
        };
        let outcome = match answer {
            Ok(answer) => read(answer),
            Err(cause) => Outcome::Again { cause, coordinator_lost: true, unknown: false },
        };
        match outcome {
            Outcome::Done(result) => {
                let id = self.open.swap_remove(index).id;
                self.events.push_back(LookupEvent::CoordinatorAlive);
                self.events.push_back(LookupEvent::Done(id, result));
            }
            Outcome::Again { cause, coordinator_lost, unknown } => {
                let event = if coordinator_lost {
                    LookupEvent::CoordinatorLost
                } else {
                    LookupEvent::CoordinatorAlive
                };
                self.events.push_back(event);
                if unknown {
                    self.events.push_back(LookupEvent::Refresh);
                }
                if let Some(lookup) = self.open.get_mut(index) {
                    lookup.asked = None;
                    lookup.cause = Some(cause);
                    lookup.retry_at = now + self.pace.delay(lookup.attempt);
                    lookup.attempt = lookup.attempt.saturating_add(1);
                }
            }
        }
    }

    /// What the owner must pass on.
    pub(crate) fn poll_event(&mut self) -> Option<LookupEvent> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] or [`Self::poll_request`] is worth a call again.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let times = self.open.iter().flat_map(|lookup| {
            let retry = lookup.asked.is_none().then_some(lookup.retry_at);
            [retry, lookup.deadline]
        });
        soonest(now, times)
    }

    /// Ends the lookups whose time is over.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let events = &mut self.events;
        self.open.retain_mut(|lookup| {
            let over = lookup.deadline.is_some_and(|deadline| deadline <= now);
            if over {
                let fault = LookupFault::TimedOut(lookup.cause.take());
                events.push_back(LookupEvent::Done(lookup.id, Err(fault)));
            }
            !over
        });
    }
}

enum Outcome {
    Done(LookupResult),
    Again { cause: Error, coordinator_lost: bool, unknown: bool },
}

/// What an error code says of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    /// Find the coordinator, then ask again.
    Coordinator,
    /// Ask again after a while.
    Later,
    /// It cannot be looked up.
    Refused,
}

pub(crate) const fn verdict(code: ErrorCode) -> Verdict {
    match code {
        ErrorCode::NONE => Verdict::Good,
        ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => Verdict::Coordinator,
        // UNSTABLE_OFFSET_COMMIT: a transaction is about to decide the offset (KIP-447).
        code if code.is_retriable() => Verdict::Later,
        _ => Verdict::Refused,
    }
}

/// Whether the topic that was meant is another one now, or none.
pub(crate) const fn is_unknown_topic(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::UNKNOWN_TOPIC_ID | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}

fn read(answer: LookupAnswer) -> Outcome {
    let parts = answer.partitions.iter();
    let faults = parts.map(|(partition, _, code)| (*code, Some(partition)));
    for (code, partition) in std::iter::once((answer.error, None)).chain(faults) {
        let verdict = verdict(code);
        match verdict {
            Verdict::Good => {}
            Verdict::Later | Verdict::Coordinator => {
                let coordinator_lost = verdict == Verdict::Coordinator;
                let cause = Error::from_kafka(code, None);
                return Outcome::Again { cause, coordinator_lost, unknown: is_unknown_topic(code) };
            }
            Verdict::Refused => {
                return Outcome::Done(Err(LookupFault::Code(code, partition.cloned())));
            }
        }
    }
    let found = answer.partitions.into_iter().map(|(partition, committed, _)| {
        // −1 says that nothing is committed.
        (partition, (committed.offset >= 0).then_some(committed))
    });
    Outcome::Done(Ok(found.collect()))
}

#[cfg(test)]
mod tests;
