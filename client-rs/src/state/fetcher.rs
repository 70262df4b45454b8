//! Reading ahead: which partitions to ask whom for, from where, and how much.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::{ErrorCode, Uuid};

use super::pace::{Pace, soonest};
use super::token::{Token, Tokens};
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::hash::HashMap;

mod answers;
mod starts;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use starts::{Start, StartAnswer, StartAsk};

/// What a fetcher is told once.
#[derive(Debug, Clone)]
pub(crate) struct FetchConfig {
    /// `fetch.min.bytes`.
    pub(crate) min_bytes: i32,
    /// `fetch.max.bytes`.
    pub(crate) max_bytes: usize,
    /// `max.partition.fetch.bytes`.
    pub(crate) partition_bytes: usize,
    /// `fetch.max.wait.ms`.
    pub(crate) max_wait: Duration,
    /// `fetch.buffer.memory`.
    pub(crate) budget: usize,
    /// `check.crcs`.
    pub(crate) check_crcs: bool,
    /// `isolation.level`.
    pub(crate) read_committed: bool,
}

/// The leader of a partition, as the metadata know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) node: i32,
    /// −1 if unknown.
    pub(crate) epoch: i32,
    /// Zero if the cluster is too old to have any.
    pub(crate) topic_id: Uuid,
}

/// Who leads what.
pub(crate) trait Leaders {
    /// The partition's leader, if it is known and there is one.
    fn leader(&self, partition: &TopicPartition) -> Option<Leader>;
}

/// Which connection a fetch takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchLane {
    /// The broker holds it until there is something to give.
    Main,
    /// The main one may be held at the broker, and these partitions have records waiting.
    Spare,
}

/// A Fetch request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FetchAsk {
    pub(crate) broker: i32,
    pub(crate) lane: FetchLane,
    pub(crate) max_wait: Duration,
    pub(crate) min_bytes: i32,
    pub(crate) max_bytes: usize,
    pub(crate) read_committed: bool,
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

/// A Fetch answer.
#[derive(Debug, Clone)]
pub(crate) struct FetchAnswer {
    pub(crate) error: ErrorCode,
    /// For how long the broker wants to be left alone (KIP-219).
    pub(crate) throttle: Duration,
    pub(crate) parts: Vec<FetchedPart>,
}

/// One partition of a Fetch answer.
#[derive(Debug, Clone)]
pub(crate) struct FetchedPart {
    pub(crate) partition: TopicPartition,
    pub(crate) error: ErrorCode,
    pub(crate) high_watermark: i64,
    /// Producer id and first offset of each aborted transaction in the range.
    pub(crate) aborted: Vec<(i64, i64)>,
    pub(crate) records: Bytes,
}

/// Records of one partition from one answer, still as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) partition: TopicPartition,
    /// Which position of the partition they were asked for at.
    pub(crate) position: u64,
    /// Whole batches to be shown to the application; the first may begin before `start`.
    pub(crate) batches: Vec<Bytes>,
    /// The offset that was asked for.
    pub(crate) start: i64,
    /// Where to read on: behind the last batch, whether it is shown or not.
    pub(crate) next: i64,
    /// What they take of the budget until they are handed over.
    pub(crate) bytes: usize,
    pub(crate) high_watermark: i64,
}

/// What went wrong with a partition.
#[derive(Debug, Clone)]
pub(crate) enum FetchFault {
    /// The batch at this offset is damaged.
    Corrupt { offset: i64, cause: ottla_protocol::record::BatchError },
    /// The broker refused.
    Code(ErrorCode),
}

/// What the owner must do or pass on.
#[derive(Debug, Clone)]
pub(crate) enum FetchEvent {
    /// Records to deliver.
    Data(Fetched),
    /// An error to deliver, behind what was fetched before it.
    Fault { partition: TopicPartition, position: u64, fault: FetchFault },
    /// There is no such offset in the log.
    OutOfRange { partition: TopicPartition, position: u64, offset: i64 },
    /// A start was looked up.
    Started { partition: TopicPartition, position: u64, offset: i64 },
    /// The metadata are out of date.
    Refresh,
}

/// Where the next fetch of a partition begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Not known: the committed offset is being looked up, or the application must say.
    Unknown,
    /// To be asked of the leader.
    Seeking {
        start: Start,
        asked: Option<Token>,
    },
    At(i64),
}

#[derive(Debug)]
struct Part {
    /// Changes with each jump of the position; answers for an older one are stale.
    position: u64,
    place: Place,
    paused: bool,
    buffered: usize,
    asked: Option<Token>,
    retry_at: Option<Instant>,
    attempt: u32,
    /// Moved by hand or new, and not read up to its end since.
    urgent: bool,
}

#[derive(Debug)]
struct InFlight {
    broker: i32,
    lane: FetchLane,
    reserved: usize,
    parts: Vec<(TopicPartition, u64, i64)>,
}

#[derive(Debug, Default)]
struct Lanes {
    main: Option<Token>,
    spare: Option<Token>,
    attempt: u32,
    retry_at: Option<Instant>,
}

/// The fetcher's machine.
#[derive(Debug)]
pub(crate) struct Fetcher {
    config: FetchConfig,
    pace: Pace,
    parts: HashMap<TopicPartition, Part>,
    /// In the order in which they are asked for; the first moves on with each fetch.
    order: Vec<TopicPartition>,
    first: usize,
    lanes: HashMap<i32, Lanes>,
    in_flight: HashMap<Token, InFlight>,
    starts: HashMap<Token, Vec<(TopicPartition, u64)>>,
    reserved: usize,
    buffered: usize,
    events: VecDeque<FetchEvent>,
}

impl Fetcher {
    /// A fetcher of nothing.
    pub(crate) fn new(config: FetchConfig, pace: Pace) -> Self {
        Self {
            config,
            pace,
            parts: HashMap::default(),
            order: Vec::new(),
            first: 0,
            lanes: HashMap::default(),
            in_flight: HashMap::default(),
            starts: HashMap::default(),
            reserved: 0,
            buffered: 0,
            events: VecDeque::new(),
        }
    }

    /// Takes a partition on, without a place to begin at yet.
    pub(crate) fn assign(&mut self, partition: TopicPartition, position: u64) {
        self.remove(&partition);
        let part = Part {
            position,
            place: Place::Unknown,
            paused: false,
            buffered: 0,
            asked: None,
            retry_at: None,
            attempt: 0,
            urgent: true,
        };
        self.order.push(partition.clone());
        self.parts.insert(partition, part);
    }

    /// Gives a partition up; answers about it are stale from now on.
    pub(crate) fn remove(&mut self, partition: &TopicPartition) {
        if let Some(part) = self.parts.remove(partition) {
            self.buffered -= part.buffered;
            self.order.retain(|other| other != partition);
        }
    }

    /// Begins at that offset, unless the partition was moved meanwhile.
    pub(crate) fn place(&mut self, partition: &TopicPartition, position: u64, offset: i64) {
        if self.is_unplaced(partition, position) {
            self.jump(partition, position, Place::At(offset));
        }
    }

    /// Begins where the leader finds `start`, unless the partition was moved meanwhile.
    pub(crate) fn place_start(&mut self, partition: &TopicPartition, position: u64, start: Start) {
        if self.is_unplaced(partition, position) {
            self.jump(partition, position, Place::Seeking { start, asked: None });
        }
    }

    fn is_unplaced(&self, partition: &TopicPartition, position: u64) -> bool {
        let part = self.parts.get(partition);
        part.is_some_and(|part| part.position == position && part.place == Place::Unknown)
    }

    /// Reads on from that offset; what was fetched for another position is of no use any more.
    pub(crate) fn seek(&mut self, partition: &TopicPartition, position: u64, offset: i64) {
        self.jump(partition, position, Place::At(offset));
    }

    /// Reads on from where the leader finds `start`.
    pub(crate) fn seek_start(&mut self, partition: &TopicPartition, position: u64, start: Start) {
        self.jump(partition, position, Place::Seeking { start, asked: None });
    }

    fn jump(&mut self, partition: &TopicPartition, position: u64, place: Place) {
        if let Some(part) = self.parts.get_mut(partition) {
            if part.position != position {
                self.buffered -= part.buffered;
                part.buffered = 0;
            }
            part.position = position;
            part.place = place;
            part.asked = None;
            part.retry_at = None;
            part.urgent = true;
        }
    }

    /// Fetches no more of a partition, or goes on.
    pub(crate) fn set_paused(&mut self, partition: &TopicPartition, paused: bool) {
        if let Some(part) = self.parts.get_mut(partition) {
            part.paused = paused;
            part.urgent |= !paused && part.buffered == 0;
        }
    }

    /// The application has taken records over, or they were dropped.
    pub(crate) fn consumed(&mut self, partition: &TopicPartition, position: u64, bytes: usize) {
        if let Some(part) = self.parts.get_mut(partition).filter(|part| part.position == position) {
            let bytes = bytes.min(part.buffered);
            part.buffered -= bytes;
            self.buffered -= bytes;
        }
    }

    /// Below how many buffered bytes a partition is asked for again: half its share.
    pub(crate) fn refill_below(&self) -> usize {
        (self.config.budget / self.parts.len().max(1) / 2).max(1)
    }

    /// Most bytes to ask for at a time, so that all partitions together stay within the budget.
    fn part_bytes_max(&self) -> usize {
        self.config.partition_bytes.min(self.refill_below())
    }

    /// A fetch to send, if one is due.
    pub(crate) fn poll_fetch(
        &mut self,
        leaders: &impl Leaders,
        tokens: &mut Tokens,
        now: Instant,
    ) -> Option<(Token, FetchAsk)> {
        let room = self.config.budget.saturating_sub(self.buffered + self.reserved);
        if room == 0 {
            return None;
        }
        let (broker, lane) = self.choose(leaders, now)?;
        let refill_below = self.refill_below();
        let max_bytes = self.part_bytes_max();
        let mut parts = Vec::new();
        let token = tokens.next();
        for index in 0..self.order.len() {
            let Some(partition) = self.order.get((self.first + index) % self.order.len()) else {
                break;
            };
            let Some(part) = self.parts.get_mut(partition) else { continue };
            let Some(offset) = part.wanted(refill_below, now) else { continue };
            let Some(leader) = leaders.leader(partition).filter(|leader| leader.node == broker)
            else {
                continue;
            };
            match lane {
                FetchLane::Main => {}
                FetchLane::Spare if part.urgent => {}
                FetchLane::Spare => continue,
            }
            part.asked = Some(token);
            part.retry_at = None;
            parts.push(FetchPart { partition: partition.clone(), leader, offset, max_bytes });
        }
        self.first = self.first.wrapping_add(1) % self.order.len().max(1);
        let wish = max_bytes.saturating_mul(parts.len());
        let reserved = wish.min(self.config.max_bytes).min(room);
        self.reserved += reserved;
        let positions = |part: &FetchPart| {
            let position = self.parts.get(&part.partition).map_or(0, |known| known.position);
            (part.partition.clone(), position, part.offset)
        };
        let sent =
            InFlight { broker, lane, reserved, parts: parts.iter().map(positions).collect() };
        self.in_flight.insert(token, sent);
        let lanes = self.lanes.entry(broker).or_default();
        lanes.retry_at = None;
        let (slot, max_wait) = match lane {
            FetchLane::Main => (&mut lanes.main, self.config.max_wait),
            FetchLane::Spare => (&mut lanes.spare, Duration::ZERO),
        };
        *slot = Some(token);
        let ask = FetchAsk {
            broker,
            lane,
            max_wait,
            min_bytes: self.config.min_bytes,
            max_bytes: reserved,
            read_committed: self.config.read_committed,
            parts,
        };
        Some((token, ask))
    }

    /// The first broker that a wanted partition can be asked of now, and by which lane.
    fn choose(&mut self, leaders: &impl Leaders, now: Instant) -> Option<(i32, FetchLane)> {
        let refill_below = self.refill_below();
        for partition in &self.order {
            let Some(part) = self.parts.get_mut(partition) else { continue };
            if part.wanted(refill_below, now).is_none() {
                continue;
            }
            let Some(leader) = leaders.leader(partition) else {
                part.retry_at = Some(now + self.pace.delay(part.attempt));
                part.attempt = part.attempt.saturating_add(1);
                self.events.push_back(FetchEvent::Refresh);
                continue;
            };
            let lanes = self.lanes.entry(leader.node).or_default();
            if lanes.retry_at.is_some_and(|retry_at| retry_at > now) {
                continue;
            }
            if lanes.main.is_none() {
                return Some((leader.node, FetchLane::Main));
            }
            // A fetch that the broker holds must not delay records that are there.
            if lanes.spare.is_none() && part.urgent {
                return Some((leader.node, FetchLane::Spare));
            }
        }
        None
    }

    /// What the owner must do or pass on.
    pub(crate) fn poll_event(&mut self) -> Option<FetchEvent> {
        self.events.pop_front()
    }

    /// When a poll for requests is worth a call again.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let parts = self.parts.values().map(|part| part.retry_at);
        let lanes = self.lanes.values().map(|lanes| lanes.retry_at);
        soonest(now, parts.chain(lanes))
    }

    /// Takes the answer to the fetch with `token`.
    pub(crate) fn handle_fetch(
        &mut self,
        token: Token,
        answer: Result<FetchAnswer, Error>,
        now: Instant,
    ) {
        let Some(sent) = self.in_flight.remove(&token) else {
            // A stale answer: nothing is asked under this token any more.
            return;
        };
        self.reserved -= sent.reserved;
        let lanes = self.lanes.entry(sent.broker).or_default();
        match sent.lane {
            FetchLane::Main => lanes.main = None,
            FetchLane::Spare => lanes.spare = None,
        }
        let failed = answer.as_ref().map_or(true, |answer| answer.error.is_error());
        if failed {
            lanes.retry_at = Some(now + self.pace.delay(lanes.attempt));
            lanes.attempt = lanes.attempt.saturating_add(1);
        } else {
            lanes.attempt = 0;
            let throttle = answer.as_ref().map_or(Duration::ZERO, |answer| answer.throttle);
            lanes.retry_at = Some(now + throttle).filter(|_| !throttle.is_zero());
        }
        let mut answers: HashMap<TopicPartition, FetchedPart> = answer
            .map(|answer| answer.parts)
            .unwrap_or_default()
            .into_iter()
            .map(|part| (part.partition.clone(), part))
            .collect();
        for (partition, position, offset) in sent.parts {
            let answer = answers.remove(&partition);
            let current = self.parts.get_mut(&partition);
            let Some(part) = current.filter(|part| part.asked == Some(token)) else {
                // A stale answer: revoked, sought or paused away while the question was open.
                continue;
            };
            debug_assert_eq!(part.position, position, "a jump forgets what was asked");
            part.asked = None;
            if failed {
                self.events.push_back(FetchEvent::Refresh);
            } else if let Some(answer) = answer {
                self.handle_part(answer, offset, now);
            }
        }
    }
}

impl Part {
    /// The offset to fetch from, if it is time to.
    fn wanted(&self, refill_below: usize, now: Instant) -> Option<i64> {
        let Place::At(offset) = self.place else { return None };
        let free = self.asked.is_none() && !self.paused && self.buffered < refill_below;
        let due = self.retry_at.is_none_or(|retry_at| retry_at <= now);
        (free && due).then_some(offset)
    }
}
