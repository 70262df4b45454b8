//! Whether a new leader has what the one before it gave out (KIP-320), and whether its topic is still
//! the same (KIP-516).

use std::time::Instant;

use ottla_protocol::ErrorCode;

use super::answers::{Verdict, verdict};
use super::parts::Part;
use super::{FetchEvent, FetchFault, Fetcher, Leader, Leaders, Place};
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::hash::HashMap;
use crate::state::token::{Token, Tokens};

/// An OffsetForLeaderEpoch request: each partition with the epoch whose end is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EpochAsk {
    pub(crate) broker: i32,
    pub(crate) parts: Vec<(TopicPartition, Leader, i32)>,
}

/// What an answer tells of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EpochFound {
    pub(crate) partition: TopicPartition,
    pub(crate) error: ErrorCode,
    /// The largest epoch of the leader's log up to the one asked for; −1 if there is none.
    pub(crate) epoch: i32,
    /// Where that epoch ends; −1 if it is not known.
    pub(crate) end: i64,
}

/// An OffsetForLeaderEpoch answer.
#[derive(Debug, Clone)]
pub(crate) struct EpochAnswer {
    pub(crate) parts: Vec<EpochFound>,
}

impl Fetcher {
    /// Looks at what has changed of the cluster.
    ///
    /// Under a new leader epoch what was asked before is dropped: the old leader may have answered
    /// with records that the new one never had.
    pub(crate) fn handle_leaders(&mut self, leaders: &impl Leaders) {
        for (partition, part) in self.parts.iter_mut() {
            let Some(leader) = leaders.leader(partition) else { continue };
            let known = std::mem::replace(&mut part.topic_id, leader.topic_id);
            if known != leader.topic_id && !known.is_zero() && !leader.topic_id.is_zero() {
                (part.asked, part.end, part.replica) = (None, None, None);
                (part.read_epoch, part.good_epoch) = (-1, -1);
                match &mut part.place {
                    Place::Unknown => {}
                    // What is found is of the topic before.
                    Place::Seeking { asked, .. } => *asked = None,
                    place => {
                        *place = Place::Unknown;
                        let (partition, position) = (partition.clone(), part.position);
                        self.events.push_back(FetchEvent::Recreated { partition, position });
                    }
                }
                continue;
            }
            part.turns_to_check(leader);
        }
        let known = self.lanes.keys().copied();
        self.gone = known.filter(|&node| !leaders.has_broker(node)).collect();
        self.touch_all();
    }

    /// A question after the ends of epochs to send, if one is due.
    pub(crate) fn poll_checks(
        &mut self,
        leaders: &impl Leaders,
        tokens: &mut Tokens,
        now: Instant,
    ) -> Option<(Token, EpochAsk)> {
        let mut ask: Option<(Token, EpochAsk)> = None;
        let mut asked_of = Vec::new();
        self.tick(now);
        for partition in self.desk.checking.clone() {
            let Some(part) = self.parts.get_mut(&partition) else { continue };
            let Place::Checking { asked: asked @ None, .. } = &mut part.place else { continue };
            let Some(leader) = leaders.leader(&partition) else {
                self.handle_leaderless(&partition, now);
                continue;
            };
            let (token, ask) = ask.get_or_insert_with(|| {
                (tokens.next(), EpochAsk { broker: leader.node, parts: Vec::new() })
            });
            if ask.broker == leader.node {
                *asked = Some(*token);
                asked_of.push((partition.clone(), leader));
                ask.parts.push((partition.clone(), leader, part.read_epoch));
                self.touch(&partition);
            }
        }
        if let Some((token, _)) = &ask {
            self.checks.insert(*token, asked_of);
        }
        ask
    }

    /// Takes the answer to the question with `token`.
    pub(crate) fn handle_checks(
        &mut self,
        token: Token,
        answer: Result<EpochAnswer, Error>,
        now: Instant,
    ) {
        let Some(asked) = self.checks.remove(&token) else { return };
        // Brokers before the KIP cannot tell: what they have is taken for good.
        let untold =
            answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::UnsupportedVersion);
        let found = answer.map(|answer| answer.parts).unwrap_or_default();
        let found: HashMap<_, _> = found.iter().map(|row| (&row.partition, row)).collect();
        for (partition, leader) in asked {
            let whose = partition.clone();
            let Some(part) = self.parts.get_mut(&partition) else { continue };
            let offset = match part.place {
                Place::Checking { offset, asked: Some(asked) } if asked == token => offset,
                // A stale answer: revoked, sought, or asked of a newer leader meanwhile.
                _ => continue,
            };
            part.place = Place::Checking { offset, asked: None };
            let row = found.get(&partition).copied();
            match row.map(|row| (verdict(row.error), row)) {
                Some((Verdict::Good, row)) => {
                    // An end that the leader does not know is no loss.
                    let known = row.end >= 0 && row.epoch >= 0;
                    if known && row.end < offset {
                        part.place = Place::Unknown;
                        let (position, end) = (part.position, row.end);
                        let event = FetchEvent::Diverged { partition, position, offset, end };
                        self.events.push_back(event);
                    } else {
                        part.settle(offset, leader, now);
                    }
                }
                None if untold => part.settle(offset, leader, now),
                Some((Verdict::Told, row)) => {
                    part.cause = row.error;
                    part.pause(&mut self.pace, now);
                    let (position, fault) = (part.position, FetchFault::Code(row.error));
                    self.events.push_back(FetchEvent::Fault { partition, position, fault });
                }
                Some((Verdict::Later, row)) => {
                    part.cause = row.error;
                    part.pause(&mut self.pace, now);
                }
                Some((Verdict::Refresh | Verdict::OutOfRange, _)) | None => {
                    part.cause = row.map_or(ErrorCode::NONE, |row| row.error);
                    part.pause(&mut self.pace, now);
                    self.events.push_back(FetchEvent::Refresh);
                }
            }
            self.touch(&whose);
        }
    }
}

impl Part {
    /// Whether the place must be checked with this leader before anything is fetched; from now on it
    /// waits for that.
    pub(super) fn turns_to_check(&mut self, leader: Leader) -> bool {
        let Place::At(offset) = self.place else { return false };
        if leader.epoch <= self.good_epoch {
            return false;
        }
        // A read under the same epoch, or of no known one, leaves nothing to compare.
        if self.read_epoch < 0 || self.read_epoch >= leader.epoch {
            if self.good_epoch >= 0 {
                self.asked = None;
            }
            self.good_epoch = leader.epoch;
            return false;
        }
        self.place = Place::Checking { offset, asked: None };
        (self.asked, self.retry_at, self.attempt) = (None, None, 0);
        self.replica = None;
        true
    }

    /// The place is good under this leader.
    fn settle(&mut self, offset: i64, leader: Leader, now: Instant) {
        self.place = Place::At(offset);
        self.good_epoch = leader.epoch;
        (self.attempt, self.seen_at, self.cause) = (0, now, ErrorCode::NONE);
        self.urgent = true;
    }
}
