//! One member of a classic consumer group: joins, beats, makes way for a rebalance, leaves.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::ErrorCode;

use super::assignor::{self, Member, Share};
use super::pace::{Pace, soonest};
use super::token::{Token, Tokens};
use crate::record::TopicPartition;

mod answers;
#[cfg(test)]
mod tests;

/// What a member is told once.
#[derive(Debug, Clone)]
pub(crate) struct MemberConfig {
    /// `group.instance.id`: a member with one keeps its place over a restart (KIP-345).
    pub(crate) instance_id: Option<Arc<str>>,
    /// `heartbeat.interval.ms`.
    pub(crate) heartbeat_interval: Duration,
    /// `max.poll.interval.ms`, also the time a rebalance may take.
    pub(crate) poll_interval: Duration,
}

/// A question to the coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemberAsk {
    /// JoinGroup.
    Join { member_id: String, topics: Vec<Arc<str>> },
    /// SyncGroup; only the leader sends shares.
    Sync { identity: Identity, shares: Vec<Share> },
    /// Heartbeat.
    Heartbeat { identity: Identity },
    /// LeaveGroup.
    Leave { member_id: String },
}

/// Under which name and generation a member speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) member_id: String,
    pub(crate) generation: i32,
}

/// JoinGroup's answer.
#[derive(Debug, Clone)]
pub(crate) struct JoinAnswer {
    pub(crate) error: ErrorCode,
    pub(crate) identity: Identity,
    pub(crate) leader: String,
    /// KIP-814: a leader that came back is told to leave the shares as they are.
    pub(crate) skip_assignment: bool,
    pub(crate) members: Vec<Member>,
}

/// SyncGroup's answer.
#[derive(Debug, Clone)]
pub(crate) struct SyncAnswer {
    pub(crate) error: ErrorCode,
    pub(crate) partitions: Vec<TopicPartition>,
}

/// What the member's owner must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemberEvent {
    /// These partitions are the member's now. `follows`: nobody else can have read in between
    /// what it had before, since this generation is the next after that one.
    Assigned { generation: i32, partitions: Vec<TopicPartition>, follows: bool },
    /// Deliver nothing more, commit what is finished, then call `handle_released`.
    Release,
    /// The member's partitions are another's already: drop them, commit nothing.
    Lost,
    /// The application did not ask for records for that long; `Release` follows.
    PollMissed { after: Duration },
    /// The coordinator is gone or has moved.
    CoordinatorLost,
    /// The coordinator answered as one.
    CoordinatorAlive,
    /// The coordinator refuses this member. `for_good`: asking again cannot help.
    Refused { code: ErrorCode, api: &'static str, for_good: bool },
}

/// What the application is doing, as far as the group must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum App {
    /// It waits for records.
    Waiting,
    /// It works on what it was given since then, or has not asked yet.
    Busy { since: Instant },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Rejoin,
    Stop,
    Park,
}

#[derive(Debug, Clone, Copy)]
struct Release {
    until: Instant,
    then: Then,
}

/// The partition counts a leader shared out by.
#[derive(Debug, Clone)]
struct Led {
    topics: Vec<Arc<str>>,
    counts: Option<BTreeMap<Arc<str>, i32>>,
}

#[derive(Debug, Clone)]
struct Joined {
    identity: Identity,
    subscription: u32,
    led: Option<Led>,
}

#[derive(Debug)]
enum Stage {
    /// Nothing is subscribed, or the member has left.
    Out,
    /// Left since the application stopped asking; joins at its next poll.
    Parked,
    Unjoined {
        retry_at: Instant,
    },
    Joining {
        token: Token,
        subscription: u32,
    },
    /// Leads, and waits for the partition counts of the group's topics.
    Leading {
        joined: Joined,
        members: Vec<Member>,
    },
    Syncing {
        joined: Joined,
        shares: Vec<Share>,
        asked: Option<Token>,
    },
    Stable {
        joined: Joined,
        beat_at: Instant,
        asked: Option<Token>,
        release: Option<Release>,
    },
    Leaving {
        member_id: String,
        asked: Option<Token>,
        then: Then,
    },
    Failed,
}

/// The member's machine.
#[derive(Debug)]
pub(crate) struct Membership {
    config: MemberConfig,
    pace: Pace,
    topics: Vec<Arc<str>>,
    /// Counts changes of `topics`.
    subscription: u32,
    member_id: String,
    stage: Stage,
    /// The generation whose partitions are kept, undelivered, over a rebalance.
    kept: Option<i32>,
    app: App,
    attempt: u32,
    events: VecDeque<MemberEvent>,
}

impl Membership {
    /// A member of nothing.
    pub(crate) const fn new(config: MemberConfig, pace: Pace, now: Instant) -> Self {
        Self {
            config,
            pace,
            topics: Vec::new(),
            subscription: 0,
            member_id: String::new(),
            stage: Stage::Out,
            kept: None,
            app: App::Busy { since: now },
            attempt: 0,
            events: VecDeque::new(),
        }
    }

    /// Replaces the topics to read; none of them leaves the group.
    pub(crate) fn subscribe(&mut self, mut topics: Vec<Arc<str>>, now: Instant) {
        topics.sort();
        topics.dedup();
        if topics == self.topics {
            return;
        }
        self.topics = topics;
        self.subscription = self.subscription.wrapping_add(1);
        if self.topics.is_empty() {
            self.stop(now);
            return;
        }
        match &self.stage {
            Stage::Out => {
                // The first poll may be late too: its time counts from here.
                self.app = App::Busy { since: now };
                self.stage = Stage::Unjoined { retry_at: now };
            }
            Stage::Stable { .. } => self.begin_release(Then::Rejoin, now),
            // A join under way is found out of date when it is done.
            _ => {}
        }
    }

    /// Leaves the group: the partitions are released first.
    fn stop(&mut self, now: Instant) {
        match &self.stage {
            Stage::Stable { .. } => self.begin_release(Then::Stop, now),
            Stage::Leaving { .. } | Stage::Out => {}
            Stage::Parked | Stage::Failed => self.stage = Stage::Out,
            _ => self.leave(Then::Stop, now),
        }
    }

    /// The partitions were given up, and what was finished is committed.
    pub(crate) fn handle_released(&mut self, now: Instant) {
        if let Stage::Stable { release: Some(release), joined, .. } = &self.stage {
            match release.then {
                Then::Rejoin => {
                    self.kept = Some(joined.identity.generation);
                    self.stage = Stage::Unjoined { retry_at: now };
                }
                then => self.leave(then, now),
            }
        }
    }

    /// What the application is doing now.
    pub(crate) const fn handle_app(&mut self, app: App) {
        self.app = app;
    }

    /// The application asks for records, and so wants to be a member again if it left.
    pub(crate) fn handle_poll(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Parked) {
            self.stage = Stage::Unjoined { retry_at: now + self.parked_wait() };
        }
    }

    /// Whether the member left since the application stopped asking.
    pub(crate) const fn is_parked(&self) -> bool {
        matches!(self.stage, Stage::Parked)
    }

    /// Whether the partition counts of the group's topics are waited for.
    pub(crate) const fn is_leading(&self) -> bool {
        matches!(self.stage, Stage::Leading { .. })
    }

    /// The commit of `generation` was refused since the member is no longer known by it.
    pub(crate) fn handle_fenced(&mut self, code: ErrorCode, generation: i32, now: Instant) {
        match self.identity() {
            Some(identity) if identity.generation == generation => self.lose(code, now),
            // A stale answer: the member has moved on.
            _ => {}
        }
    }

    /// The coordinator said REBALANCE_IN_PROGRESS to another question.
    pub(crate) fn handle_rebalance(&mut self, generation: i32, now: Instant) {
        if self.identity().is_some_and(|identity| identity.generation == generation) {
            self.begin_release(Then::Rejoin, now);
        }
    }

    /// Partition counts of the topics that [`Self::led_topics`] named.
    pub(crate) fn handle_counts(&mut self, counts: &BTreeMap<Arc<str>, i32>, now: Instant) {
        match &mut self.stage {
            Stage::Leading { joined, members } => {
                let shares = assignor::range(members, counts);
                let mut joined = joined.clone();
                if let Some(led) = &mut joined.led {
                    led.counts = Some(counts.clone());
                }
                self.stage = Stage::Syncing { joined, shares, asked: None };
            }
            Stage::Stable { joined: Joined { led: Some(led), .. }, release: None, .. } => {
                let changed = led.counts.as_ref().is_some_and(|known| known != counts);
                led.counts = Some(counts.clone());
                if changed {
                    self.begin_release(Then::Rejoin, now);
                }
            }
            _ => {}
        }
    }

    /// Topics whose partition counts this member must know as leader, if it is one.
    pub(crate) fn led_topics(&self) -> Option<&[Arc<str>]> {
        match &self.stage {
            Stage::Leading { joined, .. }
            | Stage::Syncing { joined, .. }
            | Stage::Stable { joined, .. } => joined.led.as_ref().map(|led| led.topics.as_slice()),
            _ => None,
        }
    }

    /// Under which name offsets are committed; `None` while the group is on the move.
    pub(crate) const fn identity(&self) -> Option<&Identity> {
        match &self.stage {
            Stage::Stable { joined, .. } => Some(&joined.identity),
            _ => None,
        }
    }

    /// Whether a question to the coordinator is due or will be, so that it is worth finding.
    pub(crate) const fn wants_coordinator(&self) -> bool {
        !matches!(self.stage, Stage::Out | Stage::Parked | Stage::Failed)
    }

    /// Whether nothing is left to be said to the group.
    pub(crate) const fn is_out(&self) -> bool {
        matches!(self.stage, Stage::Out | Stage::Failed)
    }

    /// A question to the coordinator, if one is due.
    pub(crate) fn poll_request(
        &mut self,
        tokens: &mut Tokens,
        now: Instant,
    ) -> Option<(Token, MemberAsk)> {
        match &mut self.stage {
            Stage::Unjoined { retry_at } if *retry_at <= now => {
                let token = tokens.next();
                self.stage = Stage::Joining { token, subscription: self.subscription };
                let (member_id, topics) = (self.member_id.clone(), self.topics.clone());
                Some((token, MemberAsk::Join { member_id, topics }))
            }
            Stage::Syncing { joined, shares, asked: asked @ None } => {
                let token = *asked.insert(tokens.next());
                let (identity, shares) = (joined.identity.clone(), shares.clone());
                Some((token, MemberAsk::Sync { identity, shares }))
            }
            Stage::Stable { joined, beat_at, asked: asked @ None, .. } if *beat_at <= now => {
                let token = *asked.insert(tokens.next());
                *beat_at = now + self.config.heartbeat_interval;
                Some((token, MemberAsk::Heartbeat { identity: joined.identity.clone() }))
            }
            Stage::Leaving { member_id, asked: asked @ None, .. } => {
                let token = *asked.insert(tokens.next());
                Some((token, MemberAsk::Leave { member_id: member_id.clone() }))
            }
            _ => None,
        }
    }

    /// What the owner must do next.
    pub(crate) fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] or [`Self::poll_request`] is worth a call again.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let (first, second) = match &self.stage {
            Stage::Unjoined { retry_at } => (Some(*retry_at), None),
            Stage::Stable { beat_at, asked, release, .. } => {
                let beat = asked.is_none().then_some(*beat_at);
                (beat, release.map(|release| release.until))
            }
            _ => (None, None),
        };
        soonest(now, [first, second, self.poll_due()])
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Stage::Stable { release: Some(release), .. } = &self.stage
            && release.until <= now
        {
            // The coordinator has gone on without this member by now.
            let then = release.then;
            self.events.push_back(MemberEvent::Lost);
            self.kept = None;
            match then {
                Then::Rejoin => self.stage = Stage::Unjoined { retry_at: now },
                then => self.leave(then, now),
            }
        }
        if let (Some(due), App::Busy { since }) = (self.poll_due(), self.app)
            && due <= now
        {
            let after = now.saturating_duration_since(since);
            self.events.push_back(MemberEvent::PollMissed { after });
            match &self.stage {
                Stage::Stable { .. } => self.begin_release(Then::Park, now),
                _ => self.leave(Then::Park, now),
            }
        }
    }

    /// When the application must have asked again, if it must.
    fn poll_due(&self) -> Option<Instant> {
        let App::Busy { since } = self.app else { return None };
        let counts = match &self.stage {
            Stage::Out | Stage::Parked | Stage::Leaving { .. } | Stage::Failed => false,
            Stage::Stable { release: Some(release), .. } => release.then == Then::Rejoin,
            _ => true,
        };
        counts.then_some(since + self.config.poll_interval)
    }

    fn parked_wait(&mut self) -> Duration {
        match self.attempt {
            0 => Duration::ZERO,
            attempt => self.pace.delay(attempt),
        }
    }

    fn begin_release(&mut self, then: Then, now: Instant) {
        if let Stage::Stable { release, .. } = &mut self.stage {
            match release {
                Some(Release { then: Then::Rejoin, until }) => {
                    *release = Some(Release { until: *until, then });
                }
                Some(_) => return,
                None => *release = Some(Release { until: now + self.config.poll_interval, then }),
            }
            self.events.push_back(MemberEvent::Release);
        }
    }

    /// Says goodbye if the group knows this member, and waits for its answer.
    fn leave(&mut self, then: Then, now: Instant) {
        if self.kept.take().is_some() {
            self.events.push_back(MemberEvent::Lost);
        }
        let member_id = std::mem::take(&mut self.member_id);
        // A static member keeps its place until its session ends (KIP-345).
        if member_id.is_empty() || self.config.instance_id.is_some() {
            self.left(then, now);
        } else {
            self.stage = Stage::Leaving { member_id, asked: None, then };
        }
    }

    fn left(&mut self, then: Then, now: Instant) {
        self.attempt = 0;
        self.stage = match then {
            _ if self.topics.is_empty() => Stage::Out,
            Then::Park => Stage::Parked,
            // Subscribed anew while it was leaving.
            _ => Stage::Unjoined { retry_at: now },
        };
    }
}
