//! Reading ahead: which partitions to ask whom for, from where, and how much.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::record::Batch;
use ottla_protocol::{ErrorCode, Uuid, left_out};

use super::pace::{Pace, soonest};
use super::token::Token;
use crate::record::TopicPartition;
use crate::state::hash::HashMap;

pub(crate) mod answers;
mod ask;
mod epochs;
mod filing;
mod parts;
mod room;
mod session;
pub(crate) mod starts;
#[cfg(test)]
mod tests;
mod walk;
mod watch;

pub(crate) use ask::{FetchAsk, FetchLane, FetchPart};
pub(crate) use epochs::{EpochAnswer, EpochAsk, EpochFound};
use parts::{Asked, Desk, Lanes, Part, Parts};
pub(crate) use session::FetchTopics;
pub(crate) use starts::{Start, StartAnswer, StartAsk, StartFound};

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
    /// `metadata.max.age.ms`: so long a follower is read from before its leader is asked again.
    pub(crate) replica_age: Duration,
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

    /// Whether the cluster has that broker now.
    fn has_broker(&self, node: i32) -> bool;
}

/// A Fetch answer.
#[derive(Debug, Clone)]
pub(crate) struct FetchAnswer {
    pub(crate) error: ErrorCode,
    /// For how long the broker wants to be left alone (KIP-219).
    pub(crate) throttle: Duration,
    /// The session that the broker keeps of it; 0 if none (KIP-227).
    pub(crate) session: i32,
    pub(crate) parts: Vec<FetchedPart>,
}

/// One partition of a Fetch answer.
#[derive(Debug, Clone)]
pub(crate) struct FetchedPart {
    pub(crate) partition: TopicPartition,
    pub(crate) error: ErrorCode,
    pub(crate) high_watermark: i64,
    /// A replica that is nearer, from which to read instead (KIP-392).
    pub(crate) replica: Option<i32>,
    /// Producer id and first offset of each aborted transaction in the range.
    pub(crate) aborted: Vec<(i64, i64)>,
    pub(crate) records: Bytes,
    /// Bytes of the whole answer, whose memory the records hold.
    pub(crate) pinned: usize,
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
    /// Bytes of the answer whose memory the batches hold.
    pub(crate) pinned: usize,
    pub(crate) high_watermark: i64,
}

impl Fetched {
    /// Holds little more memory than it counts, for as long as it may take until it is read: what is
    /// less than half of its answer is copied out of it.
    pub(crate) fn let_go(&mut self) {
        if self.pinned / 2 > self.bytes {
            for batch in &mut self.batches {
                *batch = Bytes::copy_from_slice(batch);
            }
            self.pinned = self.bytes;
        }
    }

    /// How many records it has to show, as the batches' headers tell.
    pub(crate) fn records(&self) -> u64 {
        walk::records_from(self.start, self.batches.iter().map(|bytes| Batch::parse(bytes)))
    }
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
    /// Where the partition ends now; nothing new was read.
    End { partition: TopicPartition, position: u64, high_watermark: i64 },
    /// A new leader's log ends at `end` where it should have what was read up to `offset` (KIP-320).
    Diverged { partition: TopicPartition, position: u64, offset: i64, end: i64 },
    /// The topic was deleted, and another was created under its name.
    Recreated { partition: TopicPartition, position: u64 },
    /// Nothing came of the partition for long, and all that was under way for it is begun anew.
    Restarted { partition: TopicPartition, reason: String },
    /// So many records came for nothing: their partition was revoked or moved meanwhile.
    Dropped { records: u64 },
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
    /// A new leader is asked whether it has what was read up to there.
    Checking {
        offset: i64,
        asked: Option<Token>,
    },
}

#[derive(Debug)]
struct InFlight {
    broker: i32,
    lane: FetchLane,
    reserved: usize,
    /// As it stood in the request: 0 and −1 have all partitions answered.
    session_epoch: i32,
    /// The partitions that were named, and from where on. In a session more are asked for.
    named: BTreeMap<TopicPartition, i64>,
}

impl InFlight {
    /// How a partition says that it waits for this fetch.
    const fn asked_by(&self, token: Token) -> Asked {
        match self.lane {
            FetchLane::Main => Asked::Main(self.broker),
            FetchLane::Spare => Asked::Spare(token),
        }
    }
}

/// The fetcher's machine.
#[derive(Debug)]
pub(crate) struct Fetcher {
    config: FetchConfig,
    pace: Pace,
    parts: Parts,
    desk: Desk,
    lanes: BTreeMap<i32, Lanes>,
    /// Brokers that the cluster has no more, and of which something is still known here.
    gone: BTreeSet<i32>,
    /// Where the search for a broker to ask begins: behind the one that was asked last.
    next_broker: i32,
    /// Below how many bytes a partition is asked for, and for how many, when that was last looked at.
    terms: (usize, usize),
    in_flight: HashMap<Token, InFlight>,
    starts: HashMap<Token, Vec<(TopicPartition, u64)>>,
    checks: HashMap<Token, Vec<(TopicPartition, Leader)>>,
    reserved: usize,
    buffered: usize,
    /// The largest batch so far: less room is not worth a question.
    batch_bytes_seen: usize,
    /// A partition whose next batch found no room, and how much that needs. It comes first.
    starved: Option<(TopicPartition, usize)>,
    watch_at: Option<Instant>,
    events: VecDeque<FetchEvent>,
}

impl Fetcher {
    /// A fetcher of nothing.
    pub(crate) fn new(config: FetchConfig, pace: Pace) -> Self {
        Self {
            config,
            pace,
            parts: Parts::default(),
            desk: Desk::default(),
            lanes: BTreeMap::new(),
            gone: BTreeSet::new(),
            next_broker: 0,
            terms: (0, 0),
            in_flight: HashMap::default(),
            starts: HashMap::default(),
            checks: HashMap::default(),
            reserved: 0,
            buffered: 0,
            batch_bytes_seen: 0,
            starved: None,
            watch_at: None,
            events: VecDeque::new(),
        }
    }

    /// The topic that a partition taken on is of: where it is placed says nothing of another one.
    pub(crate) fn handle_topic(&mut self, partition: &TopicPartition, topic_id: Uuid) {
        if let Some(part) = self.parts.get_mut(partition) {
            part.topic_id = topic_id;
        }
    }

    /// The id of the topic that a partition is read of, if it is known.
    pub(crate) fn topic_id(&self, partition: &TopicPartition) -> Option<Uuid> {
        self.parts.get(partition).map(|part| part.topic_id).filter(|id| !id.is_zero())
    }

    /// Takes a partition on, without a place to begin at yet.
    pub(crate) fn assign(&mut self, partition: TopicPartition, position: u64, now: Instant) {
        self.remove(&partition);
        self.watch_at.get_or_insert(now + watch::PATIENCE);
        self.parts.insert(partition.clone(), Part::new(position, now));
        self.touch(&partition);
    }

    /// Gives a partition up; answers about it are stale from now on.
    pub(crate) fn remove(&mut self, partition: &TopicPartition) {
        if let Some(mut part) = self.parts.remove(partition) {
            self.buffered -= part.buffered;
            part.strike(partition, &mut self.lanes, &mut self.desk);
            self.feed(partition);
        }
    }

    /// The partition no longer waits for room.
    fn feed(&mut self, partition: &TopicPartition) {
        self.starved.take_if(|(starved, _)| starved == partition);
    }

    /// Begins at that offset, unless the partition was moved meanwhile. The epoch is that of the
    /// record before it; −1 if unknown.
    pub(crate) fn place(
        &mut self,
        partition: &TopicPartition,
        position: u64,
        offset: i64,
        epoch: i32,
    ) {
        if self.is_unplaced(partition, position) {
            self.jump(partition, position, Place::At(offset));
            if let Some(part) = self.parts.get_mut(partition) {
                part.read_epoch = epoch;
            }
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
        part.is_some_and(|part| {
            let waits = part.position == position && part.place == Place::Unknown;
            waits || left_out("late_offset_fetch")
        })
    }

    /// Reads on from that offset; what was fetched for another position is of no use any more.
    pub(crate) fn seek(&mut self, partition: &TopicPartition, position: u64, offset: i64) {
        self.jump(partition, position, Place::At(offset));
    }

    /// Reads nothing more until it is moved again.
    pub(crate) fn unplace(&mut self, partition: &TopicPartition, position: u64) {
        self.jump(partition, position, Place::Unknown);
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
            (part.read_epoch, part.good_epoch) = (-1, -1);
            self.feed(partition);
            self.touch(partition);
        }
    }

    /// Fetches no more of a partition, or goes on.
    pub(crate) fn set_paused(&mut self, partition: &TopicPartition, paused: bool) {
        self.change(partition, |part| {
            part.urgent |= part.paused && !paused && part.buffered == 0;
            part.paused = paused;
        });
        if paused {
            self.feed(partition);
        }
    }

    /// The application has taken records over, or they were dropped.
    pub(crate) fn consumed(&mut self, partition: &TopicPartition, position: u64, bytes: usize) {
        if let Some(part) = self.parts.get_mut(partition).filter(|part| part.position == position) {
            let bytes = bytes.min(part.buffered);
            part.buffered -= bytes;
            self.buffered -= bytes;
            self.touch(partition);
        }
    }

    /// What the owner must do or pass on.
    pub(crate) fn poll_event(&mut self) -> Option<FetchEvent> {
        self.events.pop_front()
    }

    /// When a poll for requests is worth a call again.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let lanes = self.lanes.values().map(|lanes| lanes.retry_at);
        soonest(now, lanes.chain([self.desk.next_timer(now), self.watch_at]))
    }
}
