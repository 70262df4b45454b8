//! Where a partition begins, ends, or passes a point in time: asked of its leader.

use std::time::Instant;

use ottla_protocol::ErrorCode;

use super::{FetchEvent, FetchFault, Fetcher, Leader, Leaders, Place};
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::hash::HashMap;
use crate::state::token::{Token, Tokens};

/// Where to begin a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// At its first record.
    Earliest,
    /// Behind its last record.
    Latest,
    /// At the first record of that time or later, in ms since the epoch; behind the last if there
    /// is none.
    Time(i64),
}

impl Start {
    /// As it stands in a ListOffsets request.
    pub(crate) const fn timestamp(self) -> i64 {
        match self {
            Self::Latest => -1,
            Self::Earliest => -2,
            Self::Time(millis) => millis,
        }
    }
}

/// A ListOffsets request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartAsk {
    pub(crate) broker: i32,
    pub(crate) read_committed: bool,
    pub(crate) parts: Vec<(TopicPartition, Leader, Start)>,
}

/// What an answer tells of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartFound {
    pub(crate) partition: TopicPartition,
    pub(crate) error: ErrorCode,
    /// −1 if there is none.
    pub(crate) offset: i64,
    /// Of the record found by its time, in ms since the epoch; else −1.
    pub(crate) timestamp: i64,
    /// Epoch of the record at the offset; −1 if unknown.
    pub(crate) epoch: i32,
}

/// A ListOffsets answer.
#[derive(Debug, Clone)]
pub(crate) struct StartAnswer {
    pub(crate) parts: Vec<StartFound>,
}

/// Whether asking a leader again may help, after this code in a ListOffsets answer.
pub(crate) fn passes(code: ErrorCode) -> bool {
    code.is_retriable() || code == ErrorCode::UNKNOWN_SERVER_ERROR
}

impl Fetcher {
    /// A question after starts to send, if one is due.
    pub(crate) fn poll_starts(
        &mut self,
        leaders: &impl Leaders,
        tokens: &mut Tokens,
        now: Instant,
    ) -> Option<(Token, StartAsk)> {
        let mut ask: Option<(Token, StartAsk)> = None;
        let mut positions = Vec::new();
        self.tick(now);
        for partition in self.desk.seeking.clone() {
            let Some(part) = self.parts.get_mut(&partition) else { continue };
            let Place::Seeking { start, asked: asked @ None } = &mut part.place else { continue };
            let Some(leader) = leaders.leader(&partition) else {
                self.handle_leaderless(&partition, now);
                continue;
            };
            let (token, ask) = ask.get_or_insert_with(|| {
                let read_committed = self.config.read_committed;
                let ask = StartAsk { broker: leader.node, read_committed, parts: Vec::new() };
                (tokens.next(), ask)
            });
            if ask.broker == leader.node {
                *asked = Some(*token);
                ask.parts.push((partition.clone(), leader, *start));
                positions.push((partition.clone(), part.position));
                self.touch(&partition);
            }
        }
        if let Some((token, _)) = &ask {
            self.starts.insert(*token, positions);
        }
        ask
    }

    /// Takes the answer to the question with `token`.
    pub(crate) fn handle_starts(
        &mut self,
        token: Token,
        answer: Result<StartAnswer, Error>,
        now: Instant,
    ) {
        let Some(asked) = self.starts.remove(&token) else { return };
        let answer = answer.map(|answer| answer.parts).unwrap_or_default();
        let answer: HashMap<_, _> = answer.iter().map(|row| (&row.partition, row)).collect();
        for (partition, position) in asked {
            let whose = partition.clone();
            let part = self.parts.get_mut(&partition);
            let Some(part) = part.filter(|part| part.position == position) else { continue };
            let start = match part.place {
                Place::Seeking { start, asked: Some(asked) } if asked == token => start,
                // A stale answer: revoked or sought while the question was open.
                _ => continue,
            };
            part.place = Place::Seeking { start, asked: None };
            let found = answer.get(&partition);
            match found.map(|found| (found.offset, found.error)) {
                Some((offset, ErrorCode::NONE)) if offset >= 0 => {
                    part.place = Place::At(offset);
                    (part.attempt, part.seen_at, part.cause) = (0, now, ErrorCode::NONE);
                    self.events.push_back(FetchEvent::Started { partition, position, offset });
                }
                Some((_, ErrorCode::NONE)) if matches!(start, Start::Time(_)) => {
                    // Nothing is that young.
                    part.place = Place::Seeking { start: Start::Latest, asked: None };
                }
                verdict => {
                    part.pause(&mut self.pace, now);
                    let code = verdict.map_or(ErrorCode::NONE, |(_, code)| code);
                    part.cause = code;
                    if code.is_error() && !passes(code) {
                        let fault = FetchFault::Code(code);
                        self.events.push_back(FetchEvent::Fault { partition, position, fault });
                    } else {
                        self.events.push_back(FetchEvent::Refresh);
                    }
                }
            }
            self.touch(&whose);
        }
    }
}
