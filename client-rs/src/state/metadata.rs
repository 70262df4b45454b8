//! What is asked of the cluster and when: topics in use only, one request at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use ottla_protocol::messages::metadata_response::MetadataResponse;
use ottla_protocol::{ApiKey, ErrorCode, left_out};

use super::backoff::{Backoff, Random};
use super::cluster::{Cluster, Partition, Topic};
use super::machine::{Lane, Reply, Request, Target, body};
use crate::config::{Address, CommonConfig};
use crate::error::{Error, ErrorKind};
use crate::state::hash::HashMap;

mod merge;
mod racks;
mod resolving;
mod stray;
#[cfg(test)]
mod tests;

use merge::merge;
use racks::Racks;
use resolving::Resolving;
pub(crate) use stray::{Stray, other_cluster};

/// Topics of one request; more are asked about by the next.
const TOPICS_MAX: usize = 10_000;
/// The first version that says whether an unknown topic may be created.
const VERSION_MIN: i16 = 4;

/// What is known of the cluster, and the questions that keep it so.
#[derive(Debug)]
pub(crate) struct Metadata {
    settings: Settings,
    cluster: Arc<Cluster>,
    wanted: HashMap<Arc<str>, Wanted>,
    /// Whether all topics are asked about, to know their names.
    watch: NameWatch,
    /// The names of all topics but Kafka's own, sorted; `None` before they were told.
    names: Option<Arc<[Arc<str>]>>,
    /// Since when what is known counts as wrong or too little.
    stale_since: Option<Instant>,
    /// Since when there are topics that no request has named.
    added_since: Option<Instant>,
    /// The cluster could not be asked, or asked to be left alone until then.
    mute_until: Option<Instant>,
    /// What was found missing is not asked for again before then.
    retry_at: Option<Instant>,
    /// When all was last answered.
    answered_at: Option<Instant>,
    /// The open request.
    open: Option<u64>,
    open_for_all: bool,
    tokens: u64,
    /// The first request of those that together ask about all topics.
    round: u64,
    /// Some are still to be asked about in this round.
    in_round: bool,
    /// Requests in a row after which something was still missing.
    failures: u32,
    last_error: Option<Error>,
    /// Since when no request has brought anything.
    failing_since: Option<Instant>,
    /// The cluster that was known before it was looked for anew.
    left: Option<String>,
    stray: Option<Stray>,
    resolving: Resolving,
}

#[derive(Debug)]
struct Settings {
    max_age: Duration,
    max_idle: Duration,
    timeout: Duration,
    backoff: Backoff,
    auto_create: bool,
    keeps_racks: bool,
    cluster_check: bool,
    rebootstrap_after: Option<Duration>,
}

/// Whose names are told, whether they are asked about or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameWatch {
    /// Nobody's.
    Off,
    /// Those of all topics but Kafka's own.
    Ordinary,
    /// Those of all topics.
    All,
}

#[derive(Debug)]
struct Wanted {
    used_at: Instant,
    pinned: bool,
    /// The last request that named it; 0 if none has.
    asked: u64,
}

impl Metadata {
    /// Nothing known, nothing asked.
    pub(crate) fn new(config: &CommonConfig) -> Self {
        Self {
            settings: Settings {
                max_age: config.metadata_max_age,
                max_idle: config.metadata_max_idle,
                timeout: config.request_timeout,
                backoff: Backoff::new(config.retry_backoff),
                auto_create: config.allow_auto_create,
                keeps_racks: config.keeps_racks,
                cluster_check: config.cluster_check,
                rebootstrap_after: config.rebootstrap_after,
            },
            cluster: Arc::default(),
            wanted: HashMap::default(),
            watch: NameWatch::Off,
            names: None,
            stale_since: None,
            added_since: None,
            mute_until: None,
            retry_at: None,
            answered_at: None,
            open: None,
            open_for_all: false,
            tokens: 0,
            round: 0,
            in_round: false,
            failures: 0,
            last_error: None,
            failing_since: None,
            left: None,
            stray: None,
            resolving: Resolving::new(config.resolve_timeout, config.bootstrap.len()),
        }
    }

    /// Notes what became of a request, the client's own or its machine's; the error by which the
    /// client ends, if nobody's address can be looked up.
    pub(crate) fn note_reply(&mut self, reply: &Reply, now: Instant) -> Option<Error> {
        self.resolving.note(reply.as_ref().err().map(|fault| &fault.error), now)
    }

    /// What is known now.
    pub(crate) const fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// When the cluster last answered.
    pub(crate) const fn answered_at(&self) -> Option<Instant> {
        self.answered_at
    }

    /// Whom a connection to a broker expects there: the cluster's id (KIP-1242).
    pub(crate) fn expected(&self) -> Option<&str> {
        self.cluster.id.as_deref().filter(|_| self.settings.cluster_check)
    }

    /// Forgets where the cluster's brokers are and which cluster it is: both are asked for anew at
    /// the addresses of the options (KIP-899, KIP-1102).
    pub(crate) fn rebootstrap(&mut self, now: Instant) {
        let cluster = Arc::make_mut(&mut self.cluster);
        if let Some(known) = cluster.id.take() {
            self.left = Some(known);
        }
        cluster.brokers.clear();
        cluster.controller = None;
        cluster.version += 1;
        self.request_refresh(now);
    }

    /// Brokers of another cluster that were met since the last call.
    pub(crate) const fn take_stray(&mut self) -> Option<Stray> {
        self.stray.take()
    }

    /// Why the last request brought nothing.
    pub(crate) const fn last_error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }

    /// Asks about all topics from now on, to tell their names, or about those wanted alone.
    pub(crate) fn watch_names(&mut self, watch: NameWatch, now: Instant) {
        let watches = watch != NameWatch::Off;
        if watches && self.watch == NameWatch::Off {
            self.added_since.get_or_insert(now);
        }
        self.watch = watch;
        self.names = self.names.take().filter(|_| watches);
    }

    /// The names that are watched, sorted, if they were told.
    pub(crate) fn names(&self) -> Option<Arc<[Arc<str>]>> {
        self.names.clone()
    }

    /// Asks about a topic until it was not wanted again for `metadata.max.idle.ms` (KIP-526).
    pub(crate) fn want(&mut self, topic: &Arc<str>, now: Instant) {
        if let Some(wanted) = self.wanted.get_mut(topic) {
            wanted.used_at = now;
        } else {
            self.wanted.insert(Arc::clone(topic), Wanted { used_at: now, pinned: false, asked: 0 });
            self.added_since.get_or_insert(now);
        }
    }

    /// Asks about a topic until [`Metadata::unpin`].
    pub(crate) fn pin(&mut self, topic: &Arc<str>, now: Instant) {
        self.want(topic, now);
        if let Some(wanted) = self.wanted.get_mut(topic) {
            wanted.pinned = true;
        }
    }

    /// Asks about a topic no longer, and forgets it.
    pub(crate) fn unpin(&mut self, topic: &str) {
        if self.wanted.remove(topic).is_some() && self.cluster.topics.contains_key(topic) {
            let cluster = Arc::make_mut(&mut self.cluster);
            cluster.topics.remove(topic);
            cluster.version += 1;
        }
    }

    /// Notes that what is known was found wrong or too little.
    pub(crate) fn request_refresh(&mut self, now: Instant) {
        self.stale_since.get_or_insert(now);
    }

    /// Notes a broker that another answer named: a coordinator, or a new leader.
    pub(crate) fn learn_broker(&mut self, id: i32, host: &str, port: i32) {
        let Some(address) = address(host, port).filter(|_| id >= 0) else { return };
        if self.cluster.brokers.get(&id) != Some(&address) {
            let cluster = Arc::make_mut(&mut self.cluster);
            cluster.brokers.insert(id, address);
            cluster.version += 1;
        }
    }

    /// Notes a leader that a broker's error named; whether it is news (KIP-951).
    pub(crate) fn learn_leader(
        &mut self,
        topic: &str,
        partition: i32,
        leader: i32,
        leader_epoch: i32,
    ) -> bool {
        let known = self.cluster.partition(topic, partition).copied();
        let news = known.is_some_and(|known| leader_epoch > known.leader_epoch);
        if !news || !self.cluster.brokers.contains_key(&leader) {
            return false;
        }
        let cluster = Arc::make_mut(&mut self.cluster);
        let place = cluster.topics.get_mut(topic).map(Arc::make_mut).and_then(|topic| {
            usize::try_from(partition).ok().and_then(|index| topic.partitions.get_mut(index))
        });
        if let Some(place) = place {
            *place = Partition { leader: Some(leader), leader_epoch };
            cluster.version += 1;
        }
        true
    }

    /// The request that is due, if one is.
    pub(crate) fn poll_request(&mut self, now: Instant) -> Option<Request> {
        if self.due_at().is_none_or(|due| due > now) {
            return None;
        }
        let max_idle = self.settings.max_idle;
        self.wanted.retain(|_, wanted| {
            wanted.pinned || now.saturating_duration_since(wanted.used_at) < max_idle
        });
        self.added_since = None;
        self.stale_since = None;
        self.tokens += 1;
        self.open = Some(self.tokens);
        // The names of all are asked for by naming none.
        let all = self.watch != NameWatch::Off;
        self.open_for_all = all;
        let topics = if all { Vec::new() } else { self.next_topics() };
        self.in_round &= !all;
        if self.in_round {
            self.added_since = Some(now);
        }
        let create = self.settings.auto_create;
        let versions = VERSION_MIN..=*ApiKey::Metadata.served().end();
        Some(Request {
            to: Target::Any,
            lane: Lane::Rest,
            token: self.tokens,
            timeout: self.settings.timeout,
            body: body(ApiKey::Metadata, versions, move |frame| {
                let named = topics.iter().map(|topic| MetadataRequestTopic {
                    name: Some(topic),
                    ..MetadataRequestTopic::default()
                });
                frame.put(&MetadataRequest {
                    // Null asks for all.
                    topics: (!all).then(|| named.collect()),
                    allow_auto_topic_creation: create,
                    ..MetadataRequest::default()
                })
            }),
        })
    }

    /// The topics of the next request: all, or so many of them as one takes, and those left over with
    /// the requests that follow at once. Those known least come first.
    fn next_topics(&mut self) -> Vec<Arc<str>> {
        if !self.in_round {
            self.round = self.tokens;
        }
        let open = self.wanted.iter().filter(|(_, wanted)| wanted.asked < self.round);
        let mut topics: Vec<Arc<str>> = open.map(|(topic, _)| Arc::clone(topic)).collect();
        topics.sort_by_key(|topic| self.cluster.topic(topic).is_some());
        self.in_round = topics.len() > TOPICS_MAX;
        topics.truncate(TOPICS_MAX);
        for topic in &topics {
            if let Some(wanted) = self.wanted.get_mut(topic) {
                wanted.asked = self.tokens;
            }
        }
        topics
    }

    /// When [`Metadata::poll_request`] will have something.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.due_at()
    }

    fn due_at(&self) -> Option<Instant> {
        if self.open.is_some() {
            return None;
        }
        // However short the age is that an answer may reach: there is a pause between two.
        let paused = |at: Instant| self.retry_at.map_or(at, |retry| retry.max(at));
        let aged = self.answered_at.map(|at| paused(at + self.settings.max_age));
        let stale = self.stale_since.map(paused);
        let due = [aged, stale, self.added_since].into_iter().flatten().min()?;
        Some(self.mute_until.map_or(due, |until| until.max(due)))
    }

    /// What became of the request; whether what is known has changed.
    pub(crate) fn handle_response(
        &mut self,
        token: u64,
        reply: Reply,
        now: Instant,
        random: &mut Random,
    ) -> bool {
        if self.open != Some(token) {
            return false;
        }
        self.open = None;
        let outcome = match &reply {
            Ok(answer) => answer.decode::<MetadataResponse<'_>>().and_then(|response| {
                self.check(&response, &answer.broker, now)?;
                self.apply(&response).map(|()| response.throttle_time_ms)
            }),
            Err(fault) => Err(fault.error.clone()),
        };
        match outcome {
            Ok(throttle_ms) => {
                self.answered_at = Some(now);
                self.last_error = None;
                self.failing_since = None;
                let throttle = u64::try_from(throttle_ms).ok().filter(|&millis| millis > 0);
                self.mute_until = throttle.map(|millis| now + Duration::from_millis(millis));
                if self.wanted.keys().all(|topic| self.is_settled(topic)) {
                    self.failures = 0;
                } else {
                    self.failures = self.failures.saturating_add(1);
                    self.stale_since = Some(now);
                }
                let pause = self.settings.backoff.pause(self.failures.max(1), random);
                self.retry_at = Some(now + pause);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "metadata request failed");
                // What it named is asked about again.
                self.in_round = false;
                self.failures = self.failures.saturating_add(1);
                self.last_error = Some(error);
                self.stale_since = Some(now);
                self.look_elsewhere(now);
                self.mute_until = Some(now + self.settings.backoff.pause(self.failures, random));
                false
            }
        }
    }

    /// Brokers that answer, and tell nothing for long, are asked no more (KIP-1102).
    fn look_elsewhere(&mut self, now: Instant) {
        let failing = now.duration_since(*self.failing_since.get_or_insert(now));
        if self.settings.rebootstrap_after.is_some_and(|after| after <= failing) {
            self.failing_since = None;
            self.rebootstrap(now);
        }
    }

    /// Whether asking again soon would tell no more about a topic.
    fn is_settled(&self, topic: &str) -> bool {
        self.cluster.topics.get(topic).is_some_and(|topic| {
            let led = topic.partitions.iter().all(|partition| partition.leader.is_some());
            if topic.error.is_error() { !passes(topic.error) } else { led }
        })
    }

    /// Leaves a broker that is of another cluster than the one that is known.
    fn check(
        &mut self,
        response: &MetadataResponse<'_>,
        broker: &str,
        now: Instant,
    ) -> Result<(), Error> {
        let recovers = self.settings.rebootstrap_after.is_some();
        if response.error_code == ErrorCode::REBOOTSTRAP_REQUIRED && recovers {
            self.rebootstrap(now);
        }
        let Some(found) = response.cluster_id else { return Ok(()) };
        if let Some(known) = self.expected().filter(|known| *known != found) {
            let (known, found) = (known.to_owned(), found.to_owned());
            let error = other_cluster(broker, &known, Some(&found)).with_api(ApiKey::Metadata);
            self.stray = Some(Stray::Left { broker: broker.to_owned(), known, found });
            self.rebootstrap(now);
            return Err(error);
        }
        if let Some(known) = self.left.take().filter(|known| *known != found) {
            self.stray = Some(Stray::Moved { known, found: found.to_owned() });
        }
        Ok(())
    }

    fn apply(&mut self, response: &MetadataResponse<'_>) -> Result<(), Error> {
        if response.error_code.is_error() {
            return Err(Error::from_kafka(response.error_code, None).with_api(ApiKey::Metadata));
        }
        let brokers: BTreeMap<i32, Address> = response
            .brokers
            .iter()
            .filter_map(|broker| Some((broker.node_id, address(broker.host, broker.port)?)))
            .collect();
        if brokers.is_empty() {
            let text = "the broker named no broker of its cluster";
            return Err(Error::new(ErrorKind::Protocol, text).with_api(ApiKey::Metadata));
        }
        if self.watch != NameWatch::Off && self.open_for_all {
            let all = self.watch == NameWatch::All;
            let shown = response.topics.iter().filter(|topic| all || !topic.is_internal);
            let mut names: Vec<Arc<str>> =
                shown.filter_map(|topic| topic.name.map(Arc::from)).collect();
            names.sort();
            self.names = Some(names.into());
        }
        let keeps = self.settings.keeps_racks;
        let racks = racks::told(&self.cluster, response, keeps);
        let mut kept = Some(&racks).filter(|racks| keeps && !racks.is_empty()).map(Racks::new);
        let mut topics: HashMap<Arc<str>, Arc<Topic>> = HashMap::default();
        for found in &response.topics {
            let Some((name, _)) = found.name.and_then(|name| self.wanted.get_key_value(name))
            else {
                continue;
            };
            let known = self.cluster.topics.get(name);
            topics.insert(Arc::clone(name), merge(known, name, found, kept.as_mut()));
        }
        // A topic that one answer does not name is not gone by that.
        for name in self.wanted.keys() {
            if let Some(known) = self.cluster.topics.get(name)
                && !left_out("absent_topic")
            {
                topics.entry(Arc::clone(name)).or_insert_with(|| Arc::clone(known));
            }
        }
        self.cluster = Arc::new(Cluster {
            version: self.cluster.version + 1,
            id: response.cluster_id.map(str::to_owned).or_else(|| self.cluster.id.clone()),
            controller: Some(response.controller_id).filter(|id| brokers.contains_key(id)),
            racks,
            brokers,
            topics,
        });
        Ok(())
    }
}

fn address(host: &str, port: i32) -> Option<Address> {
    let port = u16::try_from(port).ok().filter(|&port| port > 0)?;
    (!host.is_empty()).then(|| Address { host: host.to_owned(), port })
}

/// Whether asking again soon may tell more of a topic, after this code.
pub(crate) const fn passes(code: ErrorCode) -> bool {
    code.is_retriable()
}
