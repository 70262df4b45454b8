//! A fetcher's partitions: how each of them stands, and by what it is found again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ottla_protocol::{ErrorCode, Uuid};

use super::session::Session;
use super::{Leader, Leaders, Place};
use crate::record::TopicPartition;
use crate::state::pace::Pace;
use crate::state::token::Token;

/// By which fetch a partition is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// By each main one of this broker's, until something is different about it: it stands there,
    /// whether one is under way just now or the next is still to be sent.
    Main(i32),
    /// By this one beside it.
    Spare(Token),
}

/// A partition.
#[derive(Debug)]
pub(super) struct Part {
    /// Changes with each jump of the position; answers for an older one are stale.
    pub(super) position: u64,
    pub(super) place: Place,
    pub(super) paused: bool,
    pub(super) buffered: usize,
    pub(super) asked: Option<Asked>,
    pub(super) retry_at: Option<Instant>,
    pub(super) attempt: u32,
    /// Moved by hand, new or known to have more, and not read up to its end since.
    pub(super) urgent: bool,
    /// Where it ends, as far as was told.
    pub(super) end: Option<i64>,
    /// Epoch of the record before its place; −1 if unknown.
    pub(super) read_epoch: i32,
    /// The newest leader epoch under which its place is known to be good.
    pub(super) good_epoch: i32,
    /// Zero as long as none is known.
    pub(super) topic_id: Uuid,
    /// The follower to read from, and until when.
    pub(super) replica: Option<(i32, Instant)>,
    /// The last answer that was no good.
    pub(super) cause: ErrorCode,
    /// When it last got an answer, or needed none. Where it stands, the broker's answers count too.
    pub(super) seen_at: Instant,
    pub(super) filed: Filed,
}

/// Where a partition is noted, by how it stood when it was touched last.
#[derive(Debug, Default)]
pub(super) struct Filed {
    /// Among those that a broker is to be asked for.
    pub(super) ready_at: Option<i32>,
    standing_at: Option<i32>,
    /// How many answers the main lane there had had when it came to stand in it.
    stood_after: u64,
    search: Option<Search>,
    timer: Option<Instant>,
    holds: bool,
    more: bool,
}

/// What must be found out before a partition can be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Search {
    Start,
    Epoch,
}

/// The two fetches that a broker may have at a time, and the partitions that are due there.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    pub(super) main: Option<Token>,
    pub(super) spare: Option<Token>,
    pub(super) attempt: u32,
    pub(super) retry_at: Option<Instant>,
    /// What the broker remembers of the main lane's fetches.
    pub(super) session: Session,
    /// How many partitions stand in the main lane.
    pub(super) standing: usize,
    /// How many answers the main lane has had, and when the last: all that stood in it before were
    /// seen then.
    pub(super) answers: u64,
    pub(super) seen_at: Option<Instant>,
    /// To be asked for by the next main fetch.
    pub(super) ready: BTreeSet<TopicPartition>,
    /// The same, or before it by the spare lane.
    pub(super) urgent: BTreeSet<TopicPartition>,
    /// What the broker was told of them may not hold any more.
    pub(super) review: BTreeSet<TopicPartition>,
    /// The first partition of the last spare fetch: the next begins behind it.
    pub(super) first: Option<TopicPartition>,
}

impl Lanes {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|retry_at| retry_at <= now)
    }

    /// Whether an answer is awaited, or something is to be asked for.
    pub(super) fn is_used(&self) -> bool {
        self.main.is_some() || self.spare.is_some() || self.has_any()
    }

    /// Whether a main fetch would ask for anything.
    pub(super) fn has_any(&self) -> bool {
        self.standing > 0 || !self.ready.is_empty() || !self.urgent.is_empty()
    }
}

/// What is to be done about partitions, so that nothing looks through all of them.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// Changed since it was last decided where they are to be fetched.
    pub(super) news: BTreeSet<TopicPartition>,
    /// Their starts are to be asked for.
    pub(super) seeking: BTreeSet<TopicPartition>,
    /// The ends of their epochs are to be asked for.
    pub(super) checking: BTreeSet<TopicPartition>,
    /// When pauses are over, and replicas to be chosen anew.
    timers: BTreeSet<(Instant, TopicPartition)>,
    /// How many have something for the application to take.
    pub(super) holding: usize,
    /// How many may have more to give, and are not asked for.
    pub(super) more: usize,
}

impl Desk {
    /// A partition whose time has come.
    pub(super) fn pop_timer(&mut self, now: Instant) -> Option<TopicPartition> {
        let (at, _) = self.timers.first()?;
        if *at > now {
            return None;
        }
        self.timers.pop_first().map(|(_, partition)| partition)
    }

    /// The first time that is still to come. What has come is popped at each poll.
    pub(super) fn next_timer(&self, now: Instant) -> Option<Instant> {
        self.timers.iter().map(|(at, _)| *at).find(|&at| at > now)
    }

    fn search(&mut self, search: Search) -> &mut BTreeSet<TopicPartition> {
        match search {
            Search::Start => &mut self.seeking,
            Search::Epoch => &mut self.checking,
        }
    }
}

impl Part {
    /// One without a place to begin at yet.
    pub(super) fn new(position: u64, now: Instant) -> Self {
        Self {
            position,
            place: Place::Unknown,
            paused: false,
            buffered: 0,
            asked: None,
            retry_at: None,
            attempt: 0,
            urgent: true,
            end: None,
            read_epoch: -1,
            good_epoch: -1,
            topic_id: Uuid::ZERO,
            replica: None,
            cause: ErrorCode::NONE,
            seen_at: now,
            filed: Filed::default(),
        }
    }

    /// Leaves it alone for a pause that grows from one failure to the next.
    pub(super) fn pause(&mut self, pace: &mut Pace, now: Instant) {
        self.retry_at = Some(now + pace.delay(self.attempt));
        self.attempt = self.attempt.saturating_add(1);
    }

    /// In whose main lane it stands.
    pub(super) const fn stands_at(&self) -> Option<i32> {
        match self.asked {
            Some(Asked::Main(node)) => Some(node),
            Some(Asked::Spare(_)) | None => None,
        }
    }

    /// The offset to fetch from, if it is time to. A pause that is over has been taken off.
    pub(super) fn wanted(&self, refill_below: usize) -> Option<i64> {
        let Place::At(offset) = self.place else { return None };
        let free = !self.paused && self.buffered < refill_below && self.retry_at.is_none();
        free.then_some(offset)
    }

    /// The broker to read from: the replica that the leader named, while that stands, or the leader.
    pub(super) fn source(&mut self, leader: Leader, leaders: &impl Leaders, now: Instant) -> i32 {
        let standing =
            self.replica.filter(|&(node, until)| until > now && leaders.has_broker(node));
        self.replica = standing;
        standing.map_or(leader.node, |(node, _)| node)
    }

    /// When it last got an answer, or needed none.
    pub(super) fn seen_at(&self, lanes: &BTreeMap<i32, Lanes>) -> Instant {
        self.stands_at()
            .and_then(|node| lanes.get(&node))
            .map_or(self.seen_at, |it| self.seen_in(it))
    }

    fn seen_in(&self, lanes: &Lanes) -> Instant {
        let seen = lanes.seen_at.filter(|_| lanes.answers > self.filed.stood_after);
        seen.map_or(self.seen_at, |at| at.max(self.seen_at))
    }

    /// Notes where it is to be found from now on.
    pub(super) fn file(
        &mut self,
        partition: &TopicPartition,
        lanes: &mut BTreeMap<i32, Lanes>,
        desk: &mut Desk,
    ) {
        if let Some(lanes) = self.filed.ready_at.take().and_then(|node| lanes.get_mut(&node)) {
            lanes.ready.remove(partition);
            lanes.urgent.remove(partition);
        }
        self.file_standing(partition, lanes);
        let holds = !self.paused && self.buffered > 0;
        recount(&mut self.filed.holds, holds, &mut desk.holding);
        let more = self.urgent && self.asked.is_none() && !self.paused;
        recount(&mut self.filed.more, more, &mut desk.more);
        let search = match self.place {
            _ if self.retry_at.is_some() => None,
            Place::Seeking { asked: None, .. } => Some(Search::Start),
            Place::Checking { asked: None, .. } => Some(Search::Epoch),
            _ => None,
        };
        let before = std::mem::replace(&mut self.filed.search, search);
        if before != search {
            if let Some(before) = before {
                desk.search(before).remove(partition);
            }
            if let Some(search) = search {
                desk.search(search).insert(partition.clone());
            }
        }
        let until = self.replica.map(|(_, until)| until);
        let timer = self.retry_at.into_iter().chain(until).min();
        let before = std::mem::replace(&mut self.filed.timer, timer);
        if before != timer {
            if let Some(before) = before {
                desk.timers.remove(&(before, partition.clone()));
            }
            if let Some(timer) = timer {
                desk.timers.insert((timer, partition.clone()));
            }
        }
        desk.news.insert(partition.clone());
    }

    /// What no longer stands in a lane is to be taken out of what its broker was told.
    fn file_standing(&mut self, partition: &TopicPartition, lanes: &mut BTreeMap<i32, Lanes>) {
        let now = self.stands_at();
        let before = std::mem::replace(&mut self.filed.standing_at, now);
        if before == now {
            return;
        }
        if let Some(lanes) = before.and_then(|node| lanes.get_mut(&node)) {
            lanes.standing -= 1;
            lanes.review.insert(partition.clone());
            self.seen_at = self.seen_in(lanes);
        }
        if let Some(node) = now {
            let lanes = lanes.entry(node).or_default();
            lanes.standing += 1;
            self.filed.stood_after = lanes.answers;
        }
    }

    /// Strikes it out everywhere.
    pub(super) fn strike(
        &mut self,
        partition: &TopicPartition,
        lanes: &mut BTreeMap<i32, Lanes>,
        desk: &mut Desk,
    ) {
        (self.place, self.paused, self.asked) = (Place::Unknown, true, None);
        (self.retry_at, self.replica) = (None, None);
        self.file(partition, lanes, desk);
        desk.news.remove(partition);
    }
}

fn recount(before: &mut bool, now: bool, count: &mut usize) {
    match (std::mem::replace(before, now), now) {
        (false, true) => *count += 1,
        (true, false) => *count -= 1,
        _ => {}
    }
}

/// All partitions, in order. In tests it counts how often one of them is looked at.
#[derive(Debug, Default)]
pub(super) struct Parts {
    all: BTreeMap<TopicPartition, Part>,
    #[cfg(test)]
    pub(super) looks: std::cell::Cell<usize>,
}

impl Parts {
    fn note(&self, looks: usize) {
        #[cfg(test)]
        self.looks.set(self.looks.get() + looks);
        #[cfg(not(test))]
        let _ = (self, looks);
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, partition: &TopicPartition) -> Option<&Part> {
        self.note(1);
        self.all.get(partition)
    }

    pub(super) fn get_mut(&mut self, partition: &TopicPartition) -> Option<&mut Part> {
        self.note(1);
        self.all.get_mut(partition)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &Part)> {
        self.all.iter()
    }

    /// Looks at every one.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&TopicPartition, &mut Part)> {
        self.note(self.all.len());
        self.all.iter_mut()
    }

    pub(super) fn insert(&mut self, partition: TopicPartition, part: Part) {
        self.all.insert(partition, part);
    }

    pub(super) fn remove(&mut self, partition: &TopicPartition) -> Option<Part> {
        self.all.remove(partition)
    }
}
