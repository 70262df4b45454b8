//! The next fetch: whose turn it is, what it may bring, and what of it must be said.

use std::time::{Duration, Instant};

use super::session::SessionAsk;
use super::{FetchEvent, Fetcher, InFlight, Leader, Leaders, Part, Place};
use crate::record::TopicPartition;
use crate::state::token::{Token, Tokens};

/// Which connection a fetch takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchLane {
    /// The broker holds it until there is something to give.
    Main,
    /// The main one may be held at the broker, and these partitions have records waiting.
    Spare,
}

/// A Fetch request.
#[derive(Debug, Clone)]
pub(crate) struct FetchAsk {
    pub(crate) broker: i32,
    pub(crate) lane: FetchLane,
    pub(crate) max_wait: Duration,
    pub(crate) min_bytes: i32,
    pub(crate) max_bytes: usize,
    pub(crate) read_committed: bool,
    pub(crate) session: SessionAsk,
    /// Those that must be named; the session may know more.
    pub(crate) parts: Vec<FetchPart>,
}

/// One partition of a Fetch request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FetchPart {
    pub(crate) partition: TopicPartition,
    pub(crate) leader: Leader,
    pub(crate) offset: i64,
    pub(crate) max_bytes: usize,
}

impl Fetcher {
    /// A fetch to send, if one is due.
    pub(crate) fn poll_fetch(
        &mut self,
        leaders: &impl Leaders,
        tokens: &mut Tokens,
        now: Instant,
    ) -> Option<(Token, FetchAsk)> {
        if !self.has_room() {
            return None;
        }
        let (broker, lane) = self.choose(leaders, now)?;
        let token = tokens.next();
        let parts = self.gather(broker, lane, leaders, token, now);
        self.first = self.first.wrapping_add(1) % self.order.len().max(1);
        let wish = parts.iter().map(|part| part.max_bytes).fold(0, usize::saturating_add);
        // A batch larger than the budget needs all of it, and once a little more.
        let limit = self.starved.as_ref().map_or(self.config.max_bytes, |(_, need)| *need);
        let max_bytes = wish.min(limit.max(self.config.max_bytes));
        let reserved = max_bytes.min(self.free()).min(self.share(lane));
        self.reserved += reserved;
        // As much as one partition may give is enough: for more it might be waited in vain.
        let each = parts.iter().map(|part| part.max_bytes).max().unwrap_or(0);
        let asked = parts.iter().map(|part| (part.partition.clone(), part.offset)).collect();
        let lanes = self.lanes.entry(broker).or_default();
        lanes.retry_at = None;
        let (slot, max_wait, session, parts) = match lane {
            FetchLane::Main => {
                let (session, parts) = lanes.session.ask(parts);
                (&mut lanes.main, self.config.max_wait, session, parts)
            }
            FetchLane::Spare => (&mut lanes.spare, Duration::ZERO, SessionAsk::none(&parts), parts),
        };
        *slot = Some(token);
        let session_epoch = session.epoch;
        let sent = InFlight { broker, lane, reserved, session_epoch, parts: asked };
        self.in_flight.insert(token, sent);
        let max_bytes = if self.starved.is_some() { max_bytes } else { reserved };
        let enough = i32::try_from(each.min(max_bytes)).unwrap_or(i32::MAX);
        let (min_bytes, read_committed) =
            (self.config.min_bytes.min(enough), self.config.read_committed);
        let ask = FetchAsk {
            broker,
            lane,
            max_wait,
            min_bytes,
            max_bytes,
            read_committed,
            session,
            parts,
        };
        Some((token, ask))
    }

    /// Fetches of nothing that end the sessions which brokers keep (KIP-227).
    pub(crate) fn end_sessions(&mut self) -> Vec<FetchAsk> {
        let read_committed = self.config.read_committed;
        let ended = self.lanes.iter_mut().filter_map(|(&broker, lanes)| {
            Some(FetchAsk {
                broker,
                lane: FetchLane::Spare,
                max_wait: Duration::ZERO,
                min_bytes: 0,
                max_bytes: 0,
                read_committed,
                session: lanes.session.end()?,
                parts: Vec::new(),
            })
        });
        let mut ended: Vec<FetchAsk> = ended.collect();
        ended.sort_unstable_by_key(|ask| ask.broker);
        ended
    }

    /// Most of the budget that a fetch may take: of one that the broker may hold, half, if another
    /// partition has more to give as soon as the application has taken what it gave.
    fn share(&self, lane: FetchLane) -> usize {
        let more = |part: &Part| part.urgent && part.asked.is_none() && !part.paused;
        let held = lane == FetchLane::Main && self.starved.is_none();
        let halved = held && self.parts.values().any(more);
        if halved { (self.config.budget / 2).max(1) } else { self.config.budget }
    }

    /// Whether there is room for an answer that is worth its question. A partition whose batch found
    /// none waits for as much as it needs, and all others behind it.
    fn has_room(&self) -> bool {
        let needed = match &self.starved {
            Some((_, need)) => {
                if self.is_drained() {
                    return true;
                }
                (*need).min(self.config.budget)
            }
            None => self.part_bytes_max().max(1).min(self.config.budget / 2).max(1),
        };
        self.free() >= needed
    }

    /// The partitions of the next fetch of a broker, marked as asked.
    fn gather(
        &mut self,
        broker: i32,
        lane: FetchLane,
        leaders: &impl Leaders,
        token: Token,
        now: Instant,
    ) -> Vec<FetchPart> {
        let (refill_below, max_bytes) = (self.refill_below(), self.part_bytes_max());
        let mut parts = Vec::new();
        for index in 0..self.order.len() {
            let Some(partition) = self.order.get((self.first + index) % self.order.len()) else {
                break;
            };
            let need = match &self.starved {
                Some((starved, need)) if starved == partition => *need,
                Some(_) => continue,
                None => max_bytes,
            };
            let Some(part) = self.parts.get_mut(partition) else { continue };
            let Some(offset) = part.wanted(refill_below, now) else { continue };
            let Some(leader) = leaders.leader(partition) else { continue };
            let read_here = part.source(leader, leaders, now) == broker;
            if !read_here || part.turns_to_check(leader) {
                continue;
            }
            if lane == FetchLane::Spare && !part.urgent {
                continue;
            }
            if part.topic_id.is_zero() {
                part.topic_id = leader.topic_id;
            }
            part.asked = Some(token);
            part.retry_at = None;
            parts.push(FetchPart { partition: partition.clone(), leader, offset, max_bytes: need });
        }
        parts
    }

    /// The first broker that a wanted partition can be asked of now, and by which lane.
    fn choose(&mut self, leaders: &impl Leaders, now: Instant) -> Option<(i32, FetchLane)> {
        let refill_below = self.refill_below();
        for partition in &self.order {
            if self.starved.as_ref().is_some_and(|(starved, _)| starved != partition) {
                continue;
            }
            let Some(part) = self.parts.get_mut(partition) else { continue };
            if part.wanted(refill_below, now).is_none() {
                continue;
            }
            let Some(leader) = leaders.leader(partition) else {
                part.pause(&mut self.pace, now);
                self.events.push_back(FetchEvent::Refresh);
                continue;
            };
            if part.turns_to_check(leader) {
                continue;
            }
            let node = part.source(leader, leaders, now);
            let lanes = self.lanes.entry(node).or_default();
            if lanes.retry_at.is_some_and(|retry_at| retry_at > now) {
                continue;
            }
            if lanes.main.is_none() {
                return Some((node, FetchLane::Main));
            }
            // A fetch that the broker holds must not delay records that are there.
            if lanes.spare.is_none() && part.urgent {
                return Some((node, FetchLane::Spare));
            }
        }
        None
    }
}

impl Part {
    /// The offset to fetch from, if it is time to.
    fn wanted(&self, refill_below: usize, now: Instant) -> Option<i64> {
        let Place::At(offset) = self.place else { return None };
        let free = self.asked.is_none() && !self.paused && self.buffered < refill_below;
        (free && self.is_due(now)).then_some(offset)
    }

    /// The broker to read from: the replica that the leader named, while that stands, or the leader.
    pub(super) fn source(&mut self, leader: Leader, leaders: &impl Leaders, now: Instant) -> i32 {
        let standing =
            self.replica.filter(|&(node, until)| until > now && leaders.has_broker(node));
        self.replica = standing;
        standing.map_or(leader.node, |(node, _)| node)
    }
}
