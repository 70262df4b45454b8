//! The next fetch: whose turn it is, what it may bring, and what of it must be said.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::parts::Asked;
use super::session::{SessionAsk, take_turns};
use super::{Fetcher, InFlight, Leader, Leaders, Place};
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
        self.sort_news(leaders, now);
        if !self.has_room() {
            return None;
        }
        let (broker, lane) = self.choose(now)?;
        self.next_broker = broker.wrapping_add(1);
        let token = tokens.next();
        let (session, parts, wish) = match lane {
            FetchLane::Main => self.gather_main(broker, leaders),
            FetchLane::Spare => self.gather_spare(broker, token, leaders),
        };
        // A batch larger than the budget needs all of it, and once a little more.
        let limit = self.starved.as_ref().map_or(self.config.max_bytes, |(_, need)| *need);
        let max_bytes = wish.min(limit.max(self.config.max_bytes));
        let reserved = max_bytes.min(self.free()).min(self.share(lane));
        self.reserved += reserved;
        // As much as one partition may give is enough: for more it might be waited in vain.
        let each = self.starved.as_ref().map_or(self.terms.1, |(_, need)| *need);
        let named = parts.iter().map(|part| (part.partition.clone(), part.offset)).collect();
        let lanes = self.lanes.entry(broker).or_default();
        lanes.retry_at = None;
        let (slot, max_wait) = match lane {
            FetchLane::Main => (&mut lanes.main, self.config.max_wait),
            FetchLane::Spare => (&mut lanes.spare, Duration::ZERO),
        };
        *slot = Some(token);
        let session_epoch = session.epoch;
        let sent = InFlight { broker, lane, reserved, session_epoch, named };
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
    const fn share(&self, lane: FetchLane) -> usize {
        match lane {
            FetchLane::Main if self.desk.more > 0 => {
                let half = self.config.budget / 2;
                if half > 0 { half } else { 1 }
            }
            FetchLane::Main | FetchLane::Spare => self.config.budget,
        }
    }

    /// Whether there is room for an answer that is worth its question. A partition whose batch found
    /// none waits for as much as it needs, and all others behind it.
    pub(super) fn has_room(&self) -> bool {
        let needed = match &self.starved {
            Some((_, need)) => (*need).min(self.config.budget),
            None => self.terms.1.max(1).min(self.config.budget / 2).max(1),
        };
        self.free() >= needed
    }

    /// The next broker that has something to be asked for now, and by which lane.
    pub(super) fn choose(&self, now: Instant) -> Option<(i32, FetchLane)> {
        if let Some((starved, _)) = &self.starved {
            let node = self.parts.get(starved)?.filed.ready_at?;
            let lanes = self.lanes.get(&node)?;
            // Its batch is there: the session of the others, who wait for it, is left as it is.
            let free = lanes.is_due(now) && lanes.spare.is_none();
            return free.then_some((node, FetchLane::Spare));
        }
        let (before, after) = (..self.next_broker, self.next_broker..);
        let mut nodes = self.lanes.range(after).chain(self.lanes.range(before));
        nodes.find_map(|(&node, lanes)| {
            if !lanes.is_due(now) {
                return None;
            }
            if lanes.main.is_none() {
                return lanes.has_any().then_some((node, FetchLane::Main));
            }
            // A fetch that the broker holds must not delay records that are there.
            let more = lanes.spare.is_none() && !lanes.urgent.is_empty();
            more.then_some((node, FetchLane::Spare))
        })
    }

    /// The broker's next main fetch: what is to be said of its session, the partitions that must be
    /// named, and how many bytes all together may bring.
    fn gather_main(
        &mut self,
        broker: i32,
        leaders: &impl Leaders,
    ) -> (SessionAsk, Vec<FetchPart>, usize) {
        let lanes = self.lanes.entry(broker).or_default();
        let mut ready = std::mem::take(&mut lanes.urgent);
        ready.append(&mut lanes.ready);
        let review = std::mem::take(&mut lanes.review);
        let max_bytes = self.terms.1;
        let mut parts = Vec::with_capacity(ready.len());
        for partition in ready {
            parts.extend(self.mark_asked(&partition, Asked::Main(broker), max_bytes, leaders));
        }
        let mut gone = Vec::new();
        for partition in review {
            let part = self.parts.get(&partition);
            let Some(part) = part.filter(|part| part.stands_at() == Some(broker)) else {
                gone.push(partition);
                continue;
            };
            if let (Place::At(offset), Some(leader)) = (part.place, leaders.leader(&partition)) {
                parts.push(FetchPart { partition, leader, offset, max_bytes });
            }
        }
        let lanes = self.lanes.entry(broker).or_default();
        let wish = max_bytes.saturating_mul(lanes.standing);
        let (session, parts) = lanes.session.ask(parts, gone);
        (session, parts, wish)
    }

    /// The broker's next fetch beside its main one: what is known to have more, or the one partition
    /// that all others wait for.
    fn gather_spare(
        &mut self,
        broker: i32,
        token: Token,
        leaders: &impl Leaders,
    ) -> (SessionAsk, Vec<FetchPart>, usize) {
        let (due, max_bytes) = if let Some((starved, need)) = &self.starved {
            (BTreeSet::from([starved.clone()]), *need)
        } else {
            let lanes = self.lanes.entry(broker).or_default();
            (std::mem::take(&mut lanes.urgent), self.terms.1)
        };
        let mut parts = Vec::with_capacity(due.len());
        for partition in due {
            parts.extend(self.mark_asked(&partition, Asked::Spare(token), max_bytes, leaders));
        }
        take_turns(&mut parts, &mut self.lanes.entry(broker).or_default().first);
        let wish = max_bytes.saturating_mul(parts.len());
        (SessionAsk::none(&parts), parts, wish)
    }

    fn mark_asked(
        &mut self,
        partition: &TopicPartition,
        asked: Asked,
        max_bytes: usize,
        leaders: &impl Leaders,
    ) -> Option<FetchPart> {
        let leader = leaders.leader(partition);
        let part = self.parts.get_mut(partition)?;
        let found = if let Place::At(offset) = part.place {
            leader.map(|leader| (offset, leader))
        } else {
            None
        };
        if let Some((_, leader)) = found {
            if part.topic_id.is_zero() {
                part.topic_id = leader.topic_id;
            }
            part.asked = Some(asked);
        }
        self.touch(partition);
        let (offset, leader) = found?;
        Some(FetchPart { partition: partition.clone(), leader, offset, max_bytes })
    }
}
