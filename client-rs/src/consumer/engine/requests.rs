//! What the machines ask, sent out; and the answers, brought back to who asked.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::Uuid;

use super::Engine;
use crate::consumer::wire::fetch::{self, Hint};
use crate::consumer::wire::offsets::{self, Stable, TopicIds};
use crate::consumer::wire::{self, JoinTerms};
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::cluster::Cluster;
use crate::state::commits::CommitAnswer;
use crate::state::fetcher::{FetchAnswer, FetchLane, FetchTopics, Leader, Leaders};
use crate::state::lookups::LookupAnswer;
use crate::state::machine::{Answer, Body, Context, Lane, Reply, Request, Target};
use crate::state::membership::MemberAsk;
use crate::state::token::Token;

/// Beyond the rebalance timeout the coordinator answers a join in any case, but for the way.
const JOIN_SLACK: Duration = Duration::from_secs(5);

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Asked {
    Coordinator(Token),
    Join(Token),
    Sync(Token),
    Heartbeat(Token),
    Leave(Token),
    Commit(Token, TopicIds),
    Lookup(Token, TopicIds),
    Starts(Token),
    Epochs(Token),
    Offsets(Token),
    Fetch(Token, Arc<FetchTopics>),
    SessionEnd,
}

impl Leaders for Cluster {
    fn leader(&self, partition: &TopicPartition) -> Option<Leader> {
        let topic = self.topic(&partition.topic)?;
        let known = topic.partitions.get(usize::try_from(partition.partition).ok()?)?;
        let node = known.leader?;
        Some(Leader { node, epoch: known.leader_epoch, topic_id: topic.id })
    }

    fn has_broker(&self, node: i32) -> bool {
        self.brokers.contains_key(&node)
    }
}

impl Engine {
    /// Sends out all that is due.
    pub(super) fn ask(&mut self, cx: &mut Context<'_>) {
        self.ask_coordinator(cx);
        self.ask_leaders(cx);
    }

    fn ask_coordinator(&mut self, cx: &mut Context<'_>) {
        if !self.wants_coordinator() {
            return;
        }
        let Some(node) = self.coordinator.node() else {
            if let Some(token) = self.coordinator.poll_request(&mut self.tokens, cx.now) {
                let body = wire::find_coordinator(&self.names);
                self.send(Asked::Coordinator(token), Target::Any, Lane::Rest, body, cx);
            }
            return;
        };
        let to = Target::Node(node);
        if let Some((token, ask)) = self.membership.poll_request(&mut self.tokens, cx.now) {
            self.ask_group(token, ask, to, cx);
        }
        // A join may be held on the coordinator's own connection, and holds up what is behind it.
        let held = self.asked.values().any(|asked| matches!(asked, Asked::Join(_)));
        let lane = if held { Lane::Rest } else { Lane::Coordinator };
        let identity = self.identity().map(Cow::into_owned);
        let identity = identity.as_ref();
        if let Some((token, ask)) = self.commits.poll_request(identity, &mut self.tokens, cx.now) {
            let partitions = ask.marks.iter().map(|(partition, _)| partition);
            let cluster = cx.metadata.cluster();
            // Of the topic that was read, also when nobody asks about it any more.
            let ids = TopicIds::with(partitions, |at| {
                let read = self.fetcher.topic_id(at);
                read.or_else(|| Some(cluster.topic(&at.topic)?.id)).unwrap_or(Uuid::ZERO)
            });
            let body = offsets::commit(&self.names, ids.clone(), ask);
            self.send(Asked::Commit(token, ids), to, lane, body, cx);
        }
        // What the program left, and may now read anew, is committed before it is asked about.
        let patient = self.left_until.is_some_and(|until| until > cx.now);
        while let Some((token, partitions)) = self.lookups.poll_request(
            |partition| patient && self.commits.is_left_open(partition),
            &mut self.tokens,
            cx.now,
        ) {
            let ids = TopicIds::of(&partitions, cx.metadata.cluster());
            let stable =
                if self.config.read_committed { Stable::Required } else { Stable::NotRequired };
            let body = offsets::lookup(&self.names, ids.clone(), partitions, stable);
            self.send(Asked::Lookup(token, ids), to, lane, body, cx);
        }
    }

    fn ask_group(&mut self, token: Token, ask: MemberAsk, to: Target, cx: &mut Context<'_>) {
        let (asked, lane, body) = match ask {
            MemberAsk::Join { member_id, topics, holdings } => {
                let terms = JoinTerms {
                    session: self.config.session_timeout,
                    rebalance: self.config.poll_interval,
                    strategies: &self.config.strategies,
                    rack: &self.config.rack,
                };
                let body = wire::join(&self.names, terms, member_id, &topics, &holdings);
                (Asked::Join(token), Lane::Coordinator, body)
            }
            MemberAsk::Sync { identity, strategy, shares } => {
                let body = wire::sync(&self.names, identity, strategy, &shares);
                (Asked::Sync(token), Lane::Coordinator, body)
            }
            MemberAsk::Heartbeat { identity } => {
                let body = wire::heartbeat(&self.names, identity);
                (Asked::Heartbeat(token), Lane::Coordinator, Ok(body))
            }
            // A join may still be held on the coordinator's own connection.
            MemberAsk::Leave { member_id } => {
                (Asked::Leave(token), Lane::Rest, Ok(wire::leave(&self.names, member_id)))
            }
        };
        match body {
            Ok(body) => self.send(asked, to, lane, body, cx),
            // What cannot be written, such as a topic name too long, is never going to be.
            Err(error) => self.face.end(error),
        }
    }

    /// Looks at what has changed of leaders, and of topics that were created anew.
    pub(super) fn see_leaders(&mut self, cx: &Context<'_>) {
        let cluster = cx.metadata.cluster();
        if self.leaders_seen != cluster.version {
            self.leaders_seen = cluster.version;
            self.fetcher.handle_leaders(&**cluster);
        }
    }

    fn ask_leaders(&mut self, cx: &mut Context<'_>) {
        // What the machines have said since may have changed it.
        self.see_leaders(cx);
        let cluster = Arc::clone(cx.metadata.cluster());
        self.fetcher.handle_timeout(&*cluster, cx.now);
        while let Some((token, ask)) = self.fetcher.poll_checks(&*cluster, &mut self.tokens, cx.now)
        {
            let to = Target::Node(ask.broker);
            self.send(Asked::Epochs(token), to, Lane::Rest, offsets::epochs(ask), cx);
        }
        while let Some((token, ask)) =
            self.offsets.poll_request(&*cluster, &mut self.tokens, cx.now)
        {
            let to = Target::Node(ask.broker);
            let body = offsets::starts(ask, self.config.common.request_timeout);
            self.send(Asked::Offsets(token), to, Lane::Rest, body, cx);
        }
        while let Some((token, ask)) = self.fetcher.poll_starts(&*cluster, &mut self.tokens, cx.now)
        {
            let to = Target::Node(ask.broker);
            let body = offsets::starts(ask, self.config.common.request_timeout);
            self.send(Asked::Starts(token), to, Lane::Rest, body, cx);
        }
        // Who closes gives out nothing more.
        while self.closing.is_none()
            && let Some((token, ask)) = self.fetcher.poll_fetch(&*cluster, &mut self.tokens, cx.now)
        {
            let to = Target::Node(ask.broker);
            let lane = match ask.lane {
                FetchLane::Main => Lane::Fetch,
                FetchLane::Spare => Lane::Rest,
            };
            let (body, topics) = fetch::fetch(ask, &self.config.rack);
            self.send(Asked::Fetch(token, topics), to, lane, body, cx);
        }
    }

    /// Tells the brokers that what they keep of this consumer's fetches is of no more use; how many.
    pub(super) fn end_sessions(&mut self, cx: &mut Context<'_>) -> usize {
        let asks = self.fetcher.end_sessions();
        let count = asks.len();
        for ask in asks {
            let to = Target::Node(ask.broker);
            let (body, _) = fetch::fetch(ask, &self.config.rack);
            // Not behind a fetch that the broker holds.
            self.send(Asked::SessionEnd, to, Lane::Rest, body, cx);
        }
        count
    }

    fn send(
        &mut self,
        asked: Asked,
        to: Target,
        lane: Lane,
        body: Box<dyn Body>,
        cx: &mut Context<'_>,
    ) {
        let usual = self.config.common.request_timeout;
        let timeout = match &asked {
            Asked::Join(_) | Asked::Sync(_) => usual.max(self.config.poll_interval + JOIN_SLACK),
            Asked::Heartbeat(_) => usual.min(self.config.session_timeout),
            Asked::Fetch(..) => usual + self.config.fetch_wait_max,
            _ => usual,
        };
        let token = self.id();
        self.asked.insert(token, asked);
        cx.send(Request { to, lane, token, timeout, body });
    }

    /// Brings an answer to who asked.
    pub(super) fn handle_reply(&mut self, asked: Asked, reply: Reply, cx: &mut Context<'_>) {
        let now = cx.now;
        let reply = reply.map_err(|fault| fault.error);
        match asked {
            Asked::Coordinator(token) => self.found_coordinator(token, reply, cx),
            Asked::Join(token) => {
                let strategies = &self.config.strategies;
                let answer = reply.and_then(|answer| wire::joined(&answer, strategies));
                self.log_fault(&answer);
                self.tell_unread(&answer);
                if answer.as_ref().is_ok_and(|answer| answer.error.is_none()) {
                    self.face.count(|stats| stats.joins += 1);
                }
                self.membership.handle_join(token, answer, now);
            }
            Asked::Sync(token) => {
                let answer = reply.and_then(|answer| wire::synced(&answer));
                self.log_fault(&answer);
                self.tell_unread(&answer);
                self.membership.handle_sync(token, answer, now);
            }
            Asked::Heartbeat(token) => {
                let answer = reply.and_then(|answer| wire::heard(&answer));
                self.log_fault(&answer);
                if answer.is_ok() {
                    self.face.count(|stats| stats.heartbeats += 1);
                }
                self.membership.handle_heartbeat(token, answer, now);
            }
            Asked::Leave(token) => self.left(token, reply, now),
            Asked::Commit(token, ids) => {
                let answer = reply.and_then(|answer| offsets::committed(&answer, &ids));
                self.log_fault(&answer);
                self.count_commit(&answer);
                self.commits.handle_answer(token, answer, now);
            }
            Asked::Lookup(token, ids) => {
                let known = ids.are_of(cx.metadata.cluster());
                let answer = reply.and_then(|answer| offsets::looked_up(&answer, &ids));
                // What was committed for a topic says nothing of another of its name.
                let answer = if known { answer } else { Ok(LookupAnswer::of_another_topic()) };
                self.log_fault(&answer);
                self.lookups.handle_answer(token, answer, now);
            }
            Asked::Starts(token) => {
                let answer = reply.and_then(|answer| offsets::started(&answer));
                self.log_fault(&answer);
                self.fetcher.handle_starts(token, answer, now);
            }
            Asked::Epochs(token) => {
                let answer = reply.and_then(|answer| offsets::epochs_found(&answer));
                self.log_fault(&answer);
                self.fetcher.handle_checks(token, answer, now);
            }
            Asked::Offsets(token) => {
                let answer = reply.and_then(|answer| offsets::started(&answer));
                self.log_fault(&answer);
                self.offsets.handle_answer(token, answer, now);
            }
            Asked::Fetch(token, topics) => self.handle_fetched(token, &topics, reply, cx),
            Asked::SessionEnd => {
                if let Some(closing) = &mut self.closing {
                    closing.sessions = closing.sessions.saturating_sub(1);
                }
            }
        }
    }

    /// Whatever the coordinator says of it, the member is gone, at the latest with its session.
    fn left(&mut self, token: Token, reply: Result<Answer, Error>, now: Instant) {
        let answer = reply.and_then(|answer| wire::left(&answer));
        self.log_fault(&answer);
        if let Some(code) = answer.ok().filter(|code| code.is_error()) {
            tracing::info!(group = %self.names.group, %code, "the group did not let the member go");
        }
        self.membership.handle_leave(token, now);
    }

    fn handle_fetched(
        &mut self,
        token: Token,
        topics: &FetchTopics,
        reply: Result<Answer, Error>,
        cx: &mut Context<'_>,
    ) {
        let answer = reply.and_then(|answer| fetch::fetched(&answer, topics));
        self.log_fault(&answer);
        let answer = answer.map(|(answer, hints)| {
            for hint in &hints {
                learn(hint, cx);
            }
            self.count_fetch(&answer);
            answer
        });
        self.fetcher.handle_fetch(token, answer, cx.now);
    }

    fn found_coordinator(
        &mut self,
        token: Token,
        reply: Result<Answer, Error>,
        cx: &mut Context<'_>,
    ) {
        let answer = reply.and_then(|answer| wire::found_coordinator(&answer));
        self.log_fault(&answer);
        let answer = answer.map(|(found, host, port)| {
            if found.error.is_none() {
                cx.metadata.learn_broker(found.node, &host, port);
            }
            found
        });
        self.coordinator_found(token, answer, cx.now);
    }

    fn count_commit(&self, answer: &Result<CommitAnswer, Error>) {
        let taken = answer.as_ref().is_ok_and(|answer| {
            let mut codes = answer.partitions.iter().map(|(_, code)| code);
            codes.all(|code| code.is_none())
        });
        self.face.count(|stats| {
            let counter = if taken { &mut stats.commits } else { &mut stats.commits_failed };
            *counter += 1;
        });
    }

    fn count_fetch(&self, answer: &FetchAnswer) {
        let empty = answer.parts.iter().all(|part| part.records.is_empty());
        self.face.count(|stats| {
            stats.fetches += 1;
            stats.empty_fetches += u64::from(empty);
        });
    }

    /// An answer that cannot be read will not read better the next time: the application must know.
    fn tell_unread<T>(&self, answer: &Result<T, Error>) {
        if let Err(error) = answer
            && error.kind() == ErrorKind::Protocol
        {
            self.face.push_error(error.clone());
        }
    }

    fn log_fault<T>(&self, answer: &Result<T, Error>) {
        if let Err(error) = answer {
            tracing::debug!(group = %self.names.group, %error, "a request was not answered");
        }
    }
}

/// KIP-951: the broker that was asked names the leader it knows.
fn learn(hint: &Hint, cx: &mut Context<'_>) {
    let Hint { partition, leader, epoch, address } = hint;
    if let Some((host, port)) = address {
        cx.metadata.learn_broker(*leader, host, *port);
    }
    cx.metadata.learn_leader(&partition.topic, partition.partition, *leader, *epoch);
}
