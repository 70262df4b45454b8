//! Where partitions begin, end, or pass a point in time, for a program that asks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use ottla_protocol::{ApiKey, ErrorCode};

use super::fetcher::{Leaders, Start, StartAnswer, StartAsk, starts};
use super::pace::{Pace, soonest};
use super::token::{Token, Tokens};
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::hash::HashMap;

/// An offset, and what is known of the record there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundOffset {
    pub(crate) offset: i64,
    /// −1 if it was not asked for.
    pub(crate) timestamp: i64,
    /// −1 if unknown.
    pub(crate) epoch: i32,
}

/// Names one question.
pub(crate) type OffsetsId = u64;

/// What was found for each partition; nothing where no record is that young.
pub(crate) type FoundOffsets = HashMap<TopicPartition, Option<FoundOffset>>;

/// What the owner must do or pass on.
#[derive(Debug)]
pub(crate) enum OffsetsEvent {
    /// This question has ended.
    Done(OffsetsId, Result<FoundOffsets, Error>),
    /// The metadata are out of date.
    Refresh,
}

#[derive(Debug)]
struct Open {
    start: Start,
    asked: Option<Token>,
    retry_at: Option<Instant>,
    attempt: u32,
}

#[derive(Debug)]
struct Question {
    id: OffsetsId,
    deadline: Instant,
    open: BTreeMap<TopicPartition, Open>,
    found: FoundOffsets,
    cause: Option<Error>,
}

/// The machine that looks offsets up.
#[derive(Debug)]
pub(crate) struct Offsets {
    pace: Pace,
    read_committed: bool,
    questions: Vec<Question>,
    events: VecDeque<OffsetsEvent>,
}

impl Offsets {
    /// A machine that nobody has asked yet.
    pub(crate) const fn new(read_committed: bool, pace: Pace) -> Self {
        Self { pace, read_committed, questions: Vec::new(), events: VecDeque::new() }
    }

    /// Looks these up, trying until the deadline.
    pub(crate) fn push(
        &mut self,
        id: OffsetsId,
        wanted: impl IntoIterator<Item = (TopicPartition, Start)>,
        deadline: Instant,
    ) {
        let open = |start| Open { start, asked: None, retry_at: None, attempt: 0 };
        let open = wanted.into_iter().map(|(partition, start)| (partition, open(start)));
        let (open, found) = (open.collect(), HashMap::default());
        self.questions.push(Question { id, deadline, open, found, cause: None });
        self.finish();
    }

    /// A request to a leader, if one is due.
    pub(crate) fn poll_request(
        &mut self,
        leaders: &impl Leaders,
        tokens: &mut Tokens,
        now: Instant,
    ) -> Option<(Token, StartAsk)> {
        for question in &mut self.questions {
            let mut ask: Option<(Token, StartAsk)> = None;
            for (partition, open) in &mut question.open {
                if open.asked.is_some() || open.retry_at.is_some_and(|at| at > now) {
                    continue;
                }
                let Some(leader) = leaders.leader(partition) else {
                    open.pause(&mut self.pace, now);
                    let text = format!("the cluster names no leader of {partition}");
                    let error = Error::new(ErrorKind::UnknownTopic, text);
                    question.cause = Some(at(error, partition));
                    self.events.push_back(OffsetsEvent::Refresh);
                    continue;
                };
                let (token, ask) = ask.get_or_insert_with(|| {
                    let read_committed = self.read_committed;
                    let ask = StartAsk { broker: leader.node, read_committed, parts: Vec::new() };
                    (tokens.next(), ask)
                });
                if ask.broker == leader.node {
                    open.asked = Some(*token);
                    ask.parts.push((partition.clone(), leader, open.start));
                }
            }
            if ask.is_some() {
                return ask;
            }
        }
        None
    }

    /// Takes the answer to the request with `token`.
    pub(crate) fn handle_answer(
        &mut self,
        token: Token,
        answer: Result<StartAnswer, Error>,
        now: Instant,
    ) {
        let asked = |open: &Open| open.asked == Some(token);
        let has_it = |question: &&mut Question| question.open.values().any(asked);
        // A stale answer: its question has ended.
        let Some(question) = self.questions.iter_mut().find(has_it) else { return };
        let (found, fault) = match answer {
            Ok(answer) => (answer.parts, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut found: HashMap<TopicPartition, _> =
            found.into_iter().map(|row| (row.partition.clone(), row)).collect();
        let mut refused = None;
        question.open.retain(|partition, open| {
            if !asked(open) {
                return true;
            }
            open.asked = None;
            let row = found.remove(partition);
            let code = row.as_ref().map(|row| row.error);
            match (row, code) {
                (Some(row), Some(ErrorCode::NONE)) => {
                    let (offset, timestamp, epoch) = (row.offset, row.timestamp, row.epoch);
                    let found = FoundOffset { offset, timestamp, epoch };
                    let found = Some(found).filter(|found| found.offset >= 0);
                    question.found.insert(partition.clone(), found);
                    return false;
                }
                (_, Some(code)) => {
                    let error = Error::from_kafka(code, None).with_api(ApiKey::ListOffsets);
                    let error = at(error, partition);
                    if !starts::passes(code) {
                        refused.get_or_insert(error);
                        return true;
                    }
                    question.cause = Some(error);
                }
                (_, None) => question.cause = fault.clone().or_else(|| question.cause.take()),
            }
            open.pause(&mut self.pace, now);
            true
        });
        if !question.open.is_empty() {
            self.events.push_back(OffsetsEvent::Refresh);
        }
        if let Some(error) = refused {
            let id = question.id;
            self.questions.retain(|question| question.id != id);
            self.events.push_back(OffsetsEvent::Done(id, Err(error)));
        }
        self.finish();
    }

    fn finish(&mut self) {
        let events = &mut self.events;
        self.questions.retain_mut(|question| {
            if question.open.is_empty() {
                let found = std::mem::take(&mut question.found);
                events.push_back(OffsetsEvent::Done(question.id, Ok(found)));
            }
            !question.open.is_empty()
        });
    }

    /// Ends the questions whose time is over.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let events = &mut self.events;
        self.questions.retain_mut(|question| {
            let over = question.deadline <= now;
            if over {
                let error = Error::new(ErrorKind::Timeout, "looking offsets up took too long");
                let error = match question.cause.take() {
                    Some(cause) => error.with_source(cause),
                    None => error,
                };
                events.push_back(OffsetsEvent::Done(question.id, Err(error)));
            }
            !over
        });
    }

    /// What the owner must do or pass on.
    pub(crate) fn poll_event(&mut self) -> Option<OffsetsEvent> {
        self.events.pop_front()
    }

    /// When a poll for requests, or the time itself, is worth a call again.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let open = self.questions.iter().flat_map(|question| question.open.values());
        let retries = open.filter(|open| open.asked.is_none()).map(|open| open.retry_at);
        let deadlines = self.questions.iter().map(|question| Some(question.deadline));
        soonest(now, retries.chain(deadlines))
    }
}

impl Open {
    fn pause(&mut self, pace: &mut Pace, now: Instant) {
        self.retry_at = Some(now + pace.delay(self.attempt));
        self.attempt = self.attempt.saturating_add(1);
    }
}

fn at(error: Error, partition: &TopicPartition) -> Error {
    error.with_topic(&partition.topic).with_partition(partition.partition)
}

#[cfg(test)]
mod tests;
