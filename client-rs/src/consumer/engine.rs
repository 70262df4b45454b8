//! The consumer's machine: membership, positions, fetches and commits, brought together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::face::{Command, CommittedOffsets, Drained, Face, Marks, fetched_share};
use super::promise::Promise;
use super::wire::GroupNames;
use crate::config::ConsumerConfig;
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::backoff::{Backoff, Random};
use crate::state::commits::{CommitEvent, CommitId, Commits};
use crate::state::coordinator::{Coordinator, CoordinatorAnswer, Found};
use crate::state::fetcher::{FetchConfig, Fetcher};
use crate::state::hash::HashMap;
use crate::state::lookups::{LookupEvent, LookupId, Lookups};
use crate::state::machine::{Context, Machine, Next, Reply};
use crate::state::membership::{App, MemberConfig, Membership};
use crate::state::offsets::{FoundOffsets, Offsets, OffsetsId};
use crate::state::pace::{Pace, soonest};
use crate::state::token::{Token, Tokens};

mod choice;
mod closing;
mod faults;
mod group;
mod pattern;
mod positions;
mod requests;
#[cfg(test)]
mod tests;

use closing::Closing;
pub(super) use faults::fenced;
use group::Release;
use pattern::Pattern;
use requests::Asked;

/// Longest that a failed lookup of committed offsets waits before it is tried again.
const LOOKUP_PAUSE: Duration = Duration::from_secs(1);
/// How long nothing must have been got before a call whose time is over says why.
const OBSTACLE_PATIENCE: Duration = Duration::from_secs(1);
/// The same before those are told who wait without an end.
const OBSTACLE_ALARM: Duration = Duration::from_secs(10);

/// What keeps the consumer from any partition, and since when.
#[derive(Debug)]
struct Obstacle {
    since: Instant,
    shown: bool,
    alarmed: bool,
}

/// The machine behind a consumer.
pub(super) struct Engine {
    config: ConsumerConfig,
    names: GroupNames,
    face: Arc<Face>,
    tokens: Tokens,
    coordinator: Coordinator,
    membership: Membership,
    commits: Commits,
    lookups: Lookups,
    fetcher: Fetcher,
    asked: HashMap<u64, Asked>,
    ids: u64,
    promises: HashMap<CommitId, Arc<Promise<()>>>,
    found: HashMap<LookupId, Arc<Promise<CommittedOffsets>>>,
    offsets: Offsets,
    offsets_found: HashMap<OffsetsId, Arc<Promise<FoundOffsets>>>,
    /// Assigned partitions whose committed offsets are being looked up, with their positions.
    placing: HashMap<LookupId, Vec<(TopicPartition, u64)>>,
    /// Assigned partitions whose topics are not heard of yet, with their positions.
    unplaced: Vec<(TopicPartition, u64)>,
    /// What the program has assigned itself; nothing while it has not.
    chosen: BTreeSet<TopicPartition>,
    /// That one of them does not exist.
    missing: Option<Error>,
    topics: Vec<Arc<str>>,
    /// What the names of the topics must match, if they are not given one by one.
    pattern: Option<Pattern>,
    pinned: BTreeSet<Arc<str>>,
    /// Partitions of each topic when it was first heard of; later ones begin at their beginning.
    first_counts: HashMap<Arc<str>, i32>,
    release: Option<Release>,
    /// The application will not ask again soon: a release does not wait for it.
    impatient: bool,
    closing: Option<Closing>,
    closed: Arc<Promise<()>>,
    auto_commit_at: Option<Instant>,
    /// Until when commits of what the program left are waited for before anything is read anew.
    left_until: Option<Instant>,
    polls_seen: u64,
    signs_seen: u64,
    was_waiting: bool,
    cluster_seen: u64,
    leaders_seen: u64,
    obstacle: Option<Obstacle>,
}

impl Engine {
    /// A machine for this face; `closed` is resolved when it has ended.
    pub(super) fn new(
        config: ConsumerConfig,
        face: Arc<Face>,
        closed: Arc<Promise<()>>,
        random: &mut Random,
        now: Instant,
    ) -> Self {
        let backoff = Backoff::new(config.common.retry_backoff);
        let mut pace = || Pace::new(backoff, random.number());
        let member = MemberConfig {
            instance_id: config.instance_id.clone(),
            heartbeat_interval: config.heartbeat_interval,
            poll_interval: config.poll_interval,
            strategies: config.strategies.clone(),
        };
        let read_committed = config.read_committed;
        let fetch = FetchConfig {
            min_bytes: config.fetch_bytes_min,
            max_bytes: config.fetch_bytes_max,
            partition_bytes: config.partition_bytes_max,
            max_wait: config.fetch_wait_max,
            budget: fetched_share(config.memory_bytes),
            check_crcs: config.check_crcs,
            read_committed,
            replica_age: config.common.metadata_max_age,
        };
        Self {
            names: GroupNames {
                group: config.group.clone().unwrap_or_default(),
                instance_id: config.instance_id.clone(),
            },
            face,
            tokens: Tokens::default(),
            coordinator: Coordinator::new(pace(), now),
            membership: Membership::new(member, pace(), now),
            commits: Commits::new(pace()),
            lookups: Lookups::new(pace()),
            fetcher: Fetcher::new(fetch, pace()),
            config,
            asked: HashMap::default(),
            ids: 0,
            promises: HashMap::default(),
            found: HashMap::default(),
            offsets: Offsets::new(read_committed, pace()),
            offsets_found: HashMap::default(),
            placing: HashMap::default(),
            unplaced: Vec::new(),
            chosen: BTreeSet::new(),
            missing: None,
            topics: Vec::new(),
            pattern: None,
            pinned: BTreeSet::new(),
            first_counts: HashMap::default(),
            release: None,
            impatient: false,
            closing: None,
            closed,
            auto_commit_at: None,
            left_until: None,
            polls_seen: 0,
            signs_seen: 0,
            was_waiting: false,
            cluster_seen: 0,
            leaders_seen: 0,
            obstacle: None,
        }
    }

    const fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// What the application did since the last turn.
    fn see_app(&mut self, drained: &Drained, now: Instant) {
        let polled = drained.polls != self.polls_seen;
        let signed = std::mem::replace(&mut self.signs_seen, drained.signs) != drained.signs;
        if drained.waiting {
            self.membership.handle_app(App::Waiting);
        } else if polled || signed || self.was_waiting {
            self.membership.handle_app(App::Busy { since: now });
        }
        if polled {
            self.polls_seen = drained.polls;
            self.membership.handle_poll(now);
        }
        self.was_waiting = drained.waiting;
    }

    fn handle_command(&mut self, command: Command, cx: &mut Context<'_>) {
        match command {
            Command::Subscribe(topics) if self.closing.is_none() => self.subscribe(topics, cx),
            Command::SubscribePattern(pattern) if self.closing.is_none() => {
                self.subscribe_pattern(pattern, cx);
            }
            Command::Subscribe(_) | Command::SubscribePattern(_) => {}
            Command::Assign(assigned) => self.choose(assigned, cx),
            Command::Seek { partition, position, offset } => {
                self.fetcher.seek(&partition, position, offset);
            }
            Command::SetPaused { partition, paused } => {
                self.fetcher.set_paused(&partition, paused);
            }
            Command::Commit { marks, deadline, promise } => {
                self.handle_commit(marks, deadline, promise);
            }
            Command::Lookup { partitions, deadline, promise } => {
                let id = self.id();
                self.found.insert(id, promise);
                self.lookups.push(id, partitions, Some(deadline), cx.now);
            }
            Command::Offsets { wanted, deadline, promise } => {
                let id = self.id();
                for (partition, _) in &wanted {
                    cx.metadata.want(&partition.topic, cx.now);
                }
                self.offsets_found.insert(id, promise);
                self.offsets.push(id, wanted, deadline);
            }
            Command::Close { deadline } => self.begin_close(deadline, cx),
        }
    }

    fn handle_commit(
        &mut self,
        marks: Marks,
        deadline: Instant,
        promise: Option<Arc<Promise<()>>>,
    ) {
        match promise {
            Some(promise) => {
                let id = self.id();
                self.promises.insert(id, promise);
                self.commits.push_heard(id, marks, deadline);
            }
            None => self.commits.push(marks),
        }
    }

    /// Passes on what the machines have to say to each other and to the face, until they are quiet.
    fn settle(&mut self, cx: &mut Context<'_>) {
        loop {
            if let Some(event) = self.membership.poll_event() {
                self.handle_member(event, cx);
            } else if let Some(event) = self.commits.poll_event() {
                self.handle_committed(event, cx);
            } else if let Some(event) = self.lookups.poll_event() {
                self.handle_looked_up(event, cx);
            } else if let Some(event) = self.offsets.poll_event() {
                self.handle_offsets(event, cx);
            } else if let Some(event) = self.fetcher.poll_event() {
                self.handle_fetcher(event, cx);
            } else if !self.advance_release(cx.now) {
                break;
            }
        }
    }

    fn coordinator_found(
        &mut self,
        token: Token,
        answer: Result<CoordinatorAnswer, Error>,
        now: Instant,
    ) {
        if let Found::Refused(code) = self.coordinator.handle_answer(token, answer, now) {
            let error = faults::refused(code, "FindCoordinator", &self.names.group);
            self.face.push_error(error);
        }
    }

    fn handle_committed(&mut self, event: CommitEvent, cx: &mut Context<'_>) {
        let now = cx.now;
        match event {
            CommitEvent::Done(id, result) => {
                if let Some(promise) = self.promises.remove(&id) {
                    promise.resolve(result.map_err(faults::commit));
                }
            }
            CommitEvent::Unheard(code, partition) => {
                tracing::warn!(%code, %partition, "offset could not be committed");
                if let Some(closing) = &mut self.closing {
                    let fault = faults::commit_refused(code, &partition);
                    closing.fault.get_or_insert(fault);
                }
            }
            CommitEvent::TextRefused(partition) => tracing::warn!(
                %partition,
                "the coordinator takes no text of such a length beside an offset \
                 (offset.metadata.max.bytes): what is finished behind committed offsets is not \
                 kept, and read again by who reads on from there"
            ),
            CommitEvent::Settled(settled) => self.face.settle(&settled),
            CommitEvent::CoordinatorLost => self.coordinator.handle_lost(now),
            CommitEvent::CoordinatorAlive => self.coordinator.handle_alive(),
            CommitEvent::Fenced(code, generation) => {
                self.membership.handle_fenced(code, generation, now);
            }
            CommitEvent::Refresh => cx.metadata.request_refresh(now),
            CommitEvent::Rebalance(generation) => {
                self.membership.handle_rebalance(generation, now);
            }
        }
    }

    fn handle_looked_up(&mut self, event: LookupEvent, cx: &mut Context<'_>) {
        match event {
            LookupEvent::Done(id, result) => match self.placing.remove(&id) {
                Some(parts) => self.place(parts, result, cx),
                None => {
                    if let Some(promise) = self.found.remove(&id) {
                        promise.resolve(result.map_err(faults::lookup));
                    }
                }
            },
            LookupEvent::CoordinatorLost => self.coordinator.handle_lost(cx.now),
            LookupEvent::CoordinatorAlive => self.coordinator.handle_alive(),
            LookupEvent::Refresh => cx.metadata.request_refresh(cx.now),
        }
    }

    fn handle_timeouts(&mut self, now: Instant) {
        self.membership.handle_timeout(now);
        self.commits.handle_timeout(now);
        self.lookups.handle_timeout(now);
        self.offsets.handle_timeout(now);
        if self.auto_commit_at.is_some_and(|at| at <= now) {
            self.auto_commit_at = Some(now + self.config.auto_commit_interval.max(AUTO_COMMIT_MIN));
            if self.release.is_none() {
                self.commits.push(self.face.newly_finished());
            }
        }
    }

    /// Tells what stands in the way, once it has for a while.
    fn see_obstacle(&mut self, cx: &Context<'_>) {
        let Some((error, patience)) = self.find_obstacle(cx) else {
            if self.obstacle.take().is_some_and(|obstacle| obstacle.shown) {
                self.face.set_obstacle(None);
            }
            return;
        };
        let obstacle =
            self.obstacle.get_or_insert(Obstacle { since: cx.now, shown: false, alarmed: false });
        let stood = cx.now.saturating_duration_since(obstacle.since);
        if stood >= patience {
            obstacle.shown = true;
            self.face.set_obstacle(Some(error.clone()));
        }
        if stood >= OBSTACLE_ALARM && !obstacle.alarmed {
            obstacle.alarmed = true;
            self.face.push_error(error);
        }
    }

    /// What keeps the consumer from any partition, or from where one begins; and how long it must
    /// before that is told.
    fn find_obstacle(&self, cx: &Context<'_>) -> Option<(Error, Duration)> {
        let nothing = !self.topics.is_empty() && self.face.is_empty();
        let of_cluster = match () {
            () if self.is_choosing() => {
                faults::unreachable(cx.metadata).or_else(|| self.missing.clone())
            }
            () if nothing => faults::obstacle(cx.metadata, &self.topics),
            () => None,
        };
        if let Some(error) = of_cluster {
            return Some((error, OBSTACLE_PATIENCE));
        }
        // One that moves, or is made, is away for some seconds.
        let waits = nothing || !self.placing.is_empty();
        let cause = self.coordinator.cause().filter(|_| waits)?;
        Some((faults::no_coordinator(cause, &self.names.group), OBSTACLE_ALARM))
    }

    fn next(&self, now: Instant) -> Next {
        let obstacle = self.obstacle.iter().flat_map(|obstacle| {
            [OBSTACLE_PATIENCE, OBSTACLE_ALARM].map(|wait| Some(obstacle.since + wait))
        });
        let times = [
            self.coordinator.poll_timeout(now).filter(|_| self.wants_coordinator()),
            self.membership.poll_timeout(now),
            self.commits.poll_timeout(now),
            self.lookups.poll_timeout(now),
            self.offsets.poll_timeout(now),
            self.fetcher.poll_timeout(now),
            self.auto_commit_at,
            self.left_until,
            self.release.as_ref().and_then(Release::until),
        ];
        let closing = self.closing.iter().flat_map(Closing::times);
        soonest(now, times.into_iter().chain(obstacle).chain(closing)).map_or(Next::Wait, Next::At)
    }

    /// A turn for what the application had asked for and done when it began.
    fn turn_for(&mut self, mut drained: Drained, cx: &mut Context<'_>) -> Next {
        self.see_app(&drained, cx.now);
        for (partition, position, bytes) in drained.consumed.drain(..) {
            self.fetcher.consumed(&partition, position, bytes);
        }
        for command in drained.commands.drain(..) {
            self.handle_command(command, cx);
        }
        self.handle_timeouts(cx.now);
        self.see_metadata(cx);
        // Before anything is asked: a commit names its topic by the id that is known now.
        self.see_leaders(cx);
        self.settle(cx);
        if self.membership.wants_layout() {
            // The answer to a join or a sync may be all that was missing.
            self.see_metadata(cx);
            self.settle(cx);
        }
        if self.advance_close(cx.now) {
            return Next::Ended;
        }
        self.see_obstacle(cx);
        self.make_room(drained.crowded, cx);
        self.ask(cx);
        self.settle(cx);
        if self.membership.is_parked() && self.face.attend() != self.polls_seen {
            // It asked between the look above and this one.
            self.membership.handle_poll(cx.now);
            self.ask(cx);
        }
        self.next(cx.now)
    }

    fn wants_coordinator(&self) -> bool {
        let commits = !self.commits.is_idle() && self.identity().is_some();
        self.membership.wants_coordinator() || commits || self.lookups.wants_coordinator()
    }
}

/// An interval of zero commits as often as this, and not in a loop.
const AUTO_COMMIT_MIN: Duration = Duration::from_millis(1);

impl Machine for Engine {
    fn turn(&mut self, cx: &mut Context<'_>) -> Next {
        let drained = self.face.drain();
        self.turn_for(drained, cx)
    }

    fn handle_response(&mut self, token: u64, reply: Reply, cx: &mut Context<'_>) {
        if let Some(asked) = self.asked.remove(&token) {
            self.handle_reply(asked, reply, cx);
        }
    }

    fn fail(&mut self, error: &Error) {
        self.face.end(error.clone());
        self.end_promises(error);
        self.closed.resolve(Err(error.clone()));
    }
}
