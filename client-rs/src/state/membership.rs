//! One member of a classic consumer group: joins, beats, makes way for a rebalance, leaves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::{ErrorCode, left_out};

use super::assignor::{Basis, Layout, Member, NO_GENERATION, Share, Strategy};
use super::pace::{Pace, soonest};
use super::token::{Token, Tokens};
use crate::record::TopicPartition;

pub(crate) mod answers;
mod release;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use words::{
    App, Holdings, Identity, JoinAnswer, MemberAsk, MemberEvent, SyncAnswer, Which,
};

/// What a member is told once.
#[derive(Debug, Clone)]
pub(crate) struct MemberConfig {
    /// `group.instance.id`: a member with one keeps its place over a restart (KIP-345).
    pub(crate) instance_id: Option<Arc<str>>,
    /// `heartbeat.interval.ms`.
    pub(crate) heartbeat_interval: Duration,
    /// `max.poll.interval.ms`, also the time a rebalance may take.
    pub(crate) poll_interval: Duration,
    /// `partition.assignment.strategy`, the preferred first.
    pub(crate) strategies: Vec<Strategy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Rejoin,
    Stop,
    Park,
}

#[derive(Debug, Clone)]
struct Release {
    until: Instant,
    then: Then,
    which: Which,
    /// What is assigned once the rest is given up, of the present generation.
    adopts: Option<Vec<TopicPartition>>,
}

/// The generation whose partitions the member keeps while it joins anew.
#[derive(Debug, Clone)]
struct Kept {
    identity: Identity,
    /// Whether the coordinator still takes commits of it.
    may_commit: bool,
}

/// The topics that a leader watches.
#[derive(Debug, Clone)]
struct Led {
    topics: Vec<Arc<str>>,
    /// What it saw of them last.
    layout: Option<Layout>,
    /// By what the shares were made that it left as they were (KIP-814).
    basis: Option<Basis>,
}

impl Led {
    /// Whether the group is to share out anew.
    fn is_changed(&self, layout: &Layout) -> bool {
        match (&self.layout, self.basis) {
            (Some(known), _) => !layout.is_like(known),
            (None, Some(basis)) => !basis.is_of_layout(layout) && !left_out("basis_counts"),
            // Another kind of client led under this name before: nobody knows by what it shared out.
            (None, None) => true,
        }
    }
}

#[derive(Debug, Clone)]
struct Joined {
    identity: Identity,
    strategy: Strategy,
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
    /// Leads, and waits to be told of the group's topics.
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
    },
    /// Leaves in the middle of its first join, whose answer brings the name to say goodbye under.
    /// KIP-394: the coordinator keeps a place for whom it has named, and the group waits for it.
    Unnamed {
        join: Token,
        then: Then,
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
    /// In order, each once.
    topics: Vec<Arc<str>>,
    /// Counts changes of `topics`.
    subscription: u32,
    member_id: String,
    stage: Stage,
    /// Set while partitions are kept over a rebalance: a cooperative member goes on reading them,
    /// another holds them back.
    kept: Option<Kept>,
    /// What is being given up.
    release: Option<Release>,
    /// What the member has, sorted.
    owned: Vec<TopicPartition>,
    /// What it was assigned last, sorted, and in which generation.
    assigned: Vec<TopicPartition>,
    assigned_in: i32,
    /// It has come back under its instance id, and its first share may be one of before.
    returned: bool,
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
            release: None,
            owned: Vec::new(),
            assigned: Vec::new(),
            assigned_in: NO_GENERATION,
            returned: false,
            app: App::Busy { since: now },
            attempt: 0,
            events: VecDeque::new(),
        }
    }

    /// Whether the member goes on reading while it joins. As in Kafka, only if every strategy that
    /// the group might choose allows it: none that does not ever hands on what is still read.
    fn is_cooperative(&self) -> bool {
        self.config.strategies.iter().all(|strategy| strategy.is_cooperative())
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
            Stage::Stable { .. } => self.make_way(now),
            // A join under way is found out of date when it is done.
            _ => {}
        }
    }

    /// Whether a topic is among those that the member reads.
    fn reads(&self, topic: &Arc<str>) -> bool {
        self.topics.binary_search(topic).is_ok()
    }

    /// Leaves the group: the partitions are released first.
    fn stop(&mut self, now: Instant) {
        match &self.stage {
            Stage::Unnamed { .. } | Stage::Leaving { .. } | Stage::Out => {}
            Stage::Parked | Stage::Failed => self.stage = Stage::Out,
            _ => self.release_and_leave(Then::Stop, now),
        }
    }

    fn adopt(&mut self, generation: i32, partitions: Vec<TopicPartition>, follows: bool) {
        self.owned.clone_from(&partitions);
        self.assigned.clone_from(&partitions);
        self.assigned_in = generation;
        self.events.push_back(MemberEvent::Assigned { generation, partitions, follows });
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

    /// Whether word of the group's topics is waited for: to share out by, or to see whether what was
    /// shared out before still holds.
    pub(crate) const fn wants_layout(&self) -> bool {
        match &self.stage {
            Stage::Leading { .. } => true,
            Stage::Stable { joined: Joined { led: Some(led), .. }, .. } => led.layout.is_none(),
            _ => false,
        }
    }

    /// The commit of `generation` was refused since the member is no longer known by it.
    pub(crate) fn handle_fenced(&mut self, code: ErrorCode, generation: i32, now: Instant) {
        match (&self.stage, &mut self.kept) {
            (Stage::Stable { joined, .. }, _) if joined.identity.generation == generation => {
                self.lose(code, now);
            }
            // The group has gone on: the answer to the join, which tells with whom, is on its way.
            (_, Some(kept)) if kept.identity.generation == generation => kept.may_commit = false,
            // A stale answer: the member has moved on.
            _ => {}
        }
    }

    /// The coordinator said REBALANCE_IN_PROGRESS to another question.
    pub(crate) fn handle_rebalance(&mut self, generation: i32, now: Instant) {
        if let Stage::Stable { joined, .. } = &self.stage
            && joined.identity.generation == generation
        {
            self.make_way(now);
        }
    }

    /// What there is of the topics that [`Self::led_topics`] named.
    pub(crate) fn handle_layout(&mut self, layout: Layout, now: Instant) {
        match &mut self.stage {
            Stage::Leading { joined, members } => {
                let shares = joined.strategy.assign(members, &layout);
                let mut joined = joined.clone();
                if let Some(led) = &mut joined.led {
                    led.layout = Some(layout);
                }
                self.stage = Stage::Syncing { joined, shares, asked: None };
            }
            Stage::Stable { joined: Joined { led: Some(led), .. }, .. }
                if self.release.is_none() =>
            {
                let changed = led.is_changed(&layout);
                led.layout = Some(layout);
                if changed {
                    self.make_way(now);
                }
            }
            _ => {}
        }
    }

    /// Topics that this member must know as leader, if it is one.
    pub(crate) fn led_topics(&self) -> Option<&[Arc<str>]> {
        match &self.stage {
            Stage::Leading { joined, .. }
            | Stage::Syncing { joined, .. }
            | Stage::Stable { joined, .. } => joined.led.as_ref().map(|led| led.topics.as_slice()),
            _ => None,
        }
    }

    /// Under which name offsets are committed; `None` while the coordinator takes none.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match (&self.stage, &self.kept) {
            (Stage::Stable { joined, .. }, _) => Some(&joined.identity),
            // Until all have joined, the generation before is in force.
            (Stage::Unjoined { .. } | Stage::Joining { .. }, Some(kept)) if kept.may_commit => {
                Some(&kept.identity)
            }
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

    /// Whether it leaves before it has learned the name to say goodbye under.
    pub(crate) const fn is_nameless(&self) -> bool {
        matches!(self.stage, Stage::Unnamed { .. })
    }

    /// Whether it is no member, and says nothing to the group.
    pub(crate) const fn has_left(&self) -> bool {
        matches!(self.stage, Stage::Out)
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
                Some((token, MemberAsk::Join { member_id, topics, holdings: self.holdings() }))
            }
            Stage::Syncing { joined, shares, asked: asked @ None } => {
                let token = *asked.insert(tokens.next());
                let (identity, shares) = (joined.identity.clone(), shares.clone());
                let strategy = joined.strategy;
                Some((token, MemberAsk::Sync { identity, strategy, shares }))
            }
            Stage::Stable { joined, beat_at, asked: asked @ None } if *beat_at <= now => {
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

    fn holdings(&self) -> Holdings {
        let reads_on = self.is_cooperative();
        let kept = self.kept.as_ref().map(|kept| kept.identity.generation);
        Holdings {
            owned: if reads_on { self.owned.clone() } else { Vec::new() },
            generation: kept.unwrap_or(NO_GENERATION),
            assigned: self.assigned.clone(),
            assigned_in: self.assigned_in,
        }
    }

    /// What the owner must do next.
    pub(crate) fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] or [`Self::poll_request`] is worth a call again.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let due = match &self.stage {
            Stage::Unjoined { retry_at } => Some(*retry_at),
            Stage::Stable { beat_at, asked: None, .. } => Some(*beat_at),
            _ => None,
        };
        let release = self.release.as_ref().map(|release| release.until);
        soonest(now, [due, release, self.poll_due()])
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.release.as_ref().is_some_and(|release| release.until <= now) {
            self.release_late(now);
        }
        if let (Some(due), App::Busy { since }) = (self.poll_due(), self.app)
            && due <= now
        {
            let after = now.saturating_duration_since(since);
            self.events.push_back(MemberEvent::PollMissed { after });
            self.release_and_leave(Then::Park, now);
        }
    }

    /// When the application must have asked again, if it must.
    fn poll_due(&self) -> Option<Instant> {
        let App::Busy { since } = self.app else { return None };
        let leaves = matches!(self.stage, Stage::Unnamed { .. } | Stage::Leaving { .. });
        let away = leaves || !self.wants_coordinator();
        (!away && !self.is_going()).then_some(since + self.config.poll_interval)
    }

    fn parked_wait(&mut self) -> Duration {
        match self.attempt {
            0 => Duration::ZERO,
            attempt => self.pace.delay(attempt),
        }
    }

    /// Says goodbye if the group knows this member, and waits for its answer.
    fn leave(&mut self, then: Then, now: Instant) {
        self.drop_held();
        let member_id = std::mem::take(&mut self.member_id);
        match self.stage {
            // A static member keeps its place until its session ends (KIP-345).
            _ if self.config.instance_id.is_some() => self.left(then, now),
            Stage::Joining { token: join, .. } if member_id.is_empty() => {
                self.stage = Stage::Unnamed { join, then };
            }
            _ if member_id.is_empty() => self.left(then, now),
            _ => self.stage = Stage::Leaving { member_id, asked: None, then },
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
