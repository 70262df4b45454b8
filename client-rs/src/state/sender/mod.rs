//! The producer's machine: which batches go out when, and what becomes of them.

mod answers;
pub(crate) mod batch;
mod deadlines;
mod dispatch;
mod flush;
pub(crate) mod identity;
mod loads;
mod produce;
mod queue;
mod topics;
pub(crate) mod verdict;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::ApiKey;
use ottla_protocol::record::Compression;

use self::batch::Batch;
use self::flush::Flushes;
use self::identity::Identity;
use self::produce::Part;
use self::queue::Limits;
use self::topics::{KnownTopic, Partition};
use super::accumulator::Accumulator;
use super::backoff::Backoff;
use super::machine::{Context, JobResult, Machine, Next, Reply};
use crate::config::ProducerConfig;
use crate::error::{Error, ErrorKind};
use crate::events::Event;
use crate::producer::stats::{add, number as counted};
use crate::record::TopicPartition;
use crate::state::hash::HashMap;

/// Compression of fewer bytes is done at once.
const INLINE_BYTES_MAX: usize = 8 * 1024;
/// Requests open to one broker.
const REQUESTS_MAX: usize = 64;

/// A broker that leads partitions of ours.
#[derive(Debug, Default)]
struct Node {
    in_flight: usize,
    muted_until: Option<Instant>,
    /// Requests made, which the partition to begin with rotates by.
    requests: usize,
    /// Since when it takes nothing of what waits for it.
    stalled_since: Option<Instant>,
}

impl Node {
    /// Whether it takes a request now.
    fn takes(&self, now: Instant) -> bool {
        self.muted_until.is_none_or(|until| until <= now) && self.in_flight < REQUESTS_MAX
    }
}

/// A request without an answer yet.
#[derive(Debug)]
struct Open {
    node: i32,
    parts: Vec<Part>,
    /// Bytes of the batches, and of their records before compression.
    bytes: (usize, usize),
}

/// The sending machine.
#[derive(Debug)]
pub(crate) struct Sender {
    config: ProducerConfig,
    face: Arc<Accumulator>,
    backoff: Backoff,
    partitions: Vec<Partition>,
    topics: HashMap<Arc<str>, KnownTopic>,
    /// Partitions with batches.
    active: BTreeSet<usize>,
    nodes: BTreeMap<i32, Node>,
    open: HashMap<u64, Open>,
    /// Of those, the ones of which nothing is written, with the end of their first batch's time.
    unbegun: BTreeMap<u64, Instant>,
    jobs: HashMap<u64, (usize, u64)>,
    tokens: u64,
    identity: Identity,
    cluster_version: Option<u64>,
    /// The id of the cluster that is written to.
    cluster_id: Option<String>,
    /// Brokers whose partitions senders were told to leave out.
    away: BTreeSet<i32>,
    /// Leaders were learnt since that was told.
    leaders_changed: bool,
    /// Batches taken and not resolved.
    outstanding: BTreeSet<u64>,
    flushes: Flushes,
    /// When a batch was seen begun, or an answer came, last.
    news_at: Option<Instant>,
    /// Until when what is only begun need not wake the machine.
    busy_until: Option<Instant>,
    close_by: Option<Instant>,
    ended: bool,
    taken: VecDeque<super::accumulator::batch::OpenBatch>,
}

impl Sender {
    pub(crate) fn new(config: ProducerConfig, face: Arc<Accumulator>) -> Self {
        let backoff = Backoff::new(config.common.retry_backoff);
        let identity = Identity::new(config.idempotent, backoff, config.common.request_timeout);
        Self {
            config,
            face,
            backoff,
            partitions: Vec::new(),
            topics: HashMap::default(),
            active: BTreeSet::new(),
            nodes: BTreeMap::new(),
            open: HashMap::default(),
            unbegun: BTreeMap::new(),
            jobs: HashMap::default(),
            tokens: 0,
            identity,
            cluster_version: None,
            cluster_id: None,
            away: BTreeSet::new(),
            leaders_changed: false,
            outstanding: BTreeSet::new(),
            flushes: Flushes::default(),
            news_at: None,
            busy_until: None,
            close_by: None,
            ended: false,
            taken: VecDeque::new(),
        }
    }

    const fn limits(config: &ProducerConfig) -> Limits {
        Limits {
            in_flight_max: config.in_flight_max,
            retries: config.retries,
            delivery_timeout: config.delivery_timeout,
        }
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// Takes over what other threads have put there, who go on meanwhile.
    fn take_in(&mut self, cx: &mut Context<'_>, meanwhile: impl FnOnce()) {
        // First, so that all that a flush is to wait for is seen by the look that follows.
        self.take_commands(cx);
        meanwhile();
        self.collect(cx);
    }

    /// Looks at what senders have put there.
    fn collect(&mut self, cx: &mut Context<'_>) {
        let mut slots = Vec::new();
        self.face.take_ready(&mut slots);
        if !slots.is_empty() {
            self.news_at = Some(cx.now);
        }
        let mut last: Option<Arc<str>> = None;
        for slot in slots {
            if last.as_ref() != Some(&slot.topic) {
                cx.metadata.want(&slot.topic, cx.now);
                last = Some(Arc::clone(&slot.topic));
            }
            let Some(partition) = self.partitions.get_mut(slot.key) else { continue };
            partition.open = slot.take_full(&mut self.taken);
            self.take_over(slot.key, cx);
            // News that an earlier look has seen already leave nothing to do.
            if self.partitions.get(slot.key).is_some_and(|partition| !partition.is_idle()) {
                self.active.insert(slot.key);
            }
        }
    }

    /// Queues what was taken from a slot.
    fn take_over(&mut self, key: usize, cx: &mut Context<'_>) {
        while let Some(open) = self.taken.pop_front() {
            let mut batch = Batch::new(open);
            let counters = &self.face.counters;
            let records = u64::try_from(batch.records()).unwrap_or(0);
            add(&counters.batches, 1);
            add(&counters.records, records);
            add(&counters.bytes, counted(batch.raw_len()));
            self.outstanding.insert(batch.id());
            if self.config.codec.compression() != Compression::None {
                self.pack(&mut batch, key, cx);
            }
            if let Some(partition) = self.partitions.get_mut(key) {
                partition.queue.push(batch);
            }
        }
    }

    /// Compresses a batch, elsewhere if that takes long.
    fn pack(&mut self, batch: &mut Batch, key: usize, cx: &mut Context<'_>) {
        let (codec, body) = (self.config.codec, batch.body());
        let most = batch.raw_len().next_power_of_two().min(batch.charged());
        let mut packed = self.face.memory.buffer(most);
        let compress = move || -> Option<Vec<u8>> {
            codec.compress(body.iter().map(Bytes::as_ref), &mut packed).ok()?;
            Some(packed)
        };
        if batch.raw_len() <= INLINE_BYTES_MAX {
            if let Some(packed) = compress() {
                batch.pack(packed, codec, &self.face.memory);
            }
            return;
        }
        let token = self.token();
        batch.packing = true;
        self.jobs.insert(token, (key, batch.id()));
        cx.run(token, move || Box::new(compress()));
    }

    /// Ends batches whose time is over, and numbers anew those behind a gap.
    fn expire_and_settle(&mut self, cx: &mut Context<'_>) {
        let metadata_error = cx.metadata.last_error().cloned();
        let cluster = Arc::clone(cx.metadata.cluster());
        let keys: Vec<usize> = self.active.iter().copied().collect();
        let mut renew = false;
        for key in keys {
            let Some(partition) = self.partitions.get_mut(key) else { continue };
            if partition
                .open
                .is_some_and(|open| open.opened_at + self.config.delivery_timeout <= cx.now)
            {
                partition.slot.take_all(&mut self.taken);
                partition.open = None;
                self.take_over(key, cx);
            }
            let numbering = self.identity.numbering();
            let identity_error = self.identity.last_error();
            let Some(partition) = self.partitions.get_mut(key) else { continue };
            let led = partition.leader.is_some();
            let (topic, number) = (Arc::clone(&partition.topic), partition.number);
            let timeout = self.config.delivery_timeout;
            let now = cx.now;
            // Why a partition that was known has no leader any more: its topic is refused to us.
            let refused = || {
                let code = cluster.topics.get(&topic).filter(|_| !led)?.error;
                code.is_error().then(|| Error::from_kafka(code, None).with_api(ApiKey::Metadata))
            };
            partition.queue.expire(now, |batch| {
                let refused = refused();
                let source = refused.as_ref().or(batch.last_error.as_ref());
                let source = source.or(identity_error).or(metadata_error.as_ref());
                expired(batch, &topic, number, timeout, now, (source, led))
            });
            renew |= !partition.queue.settle(numbering);
            if let Some((producer_id, epoch)) = partition.queue.bumped.take() {
                add(&self.face.counters.epoch_bumps, 1);
                let partition = TopicPartition::new(Arc::clone(&topic), number);
                let bumped = || Event::EpochBumped { partition, producer_id, epoch };
                self.face.events.tell(bumped);
            }
            self.finish(key);
        }
        if renew {
            self.identity.renew();
        }
    }
}

/// The error of a batch that was not delivered in time.
fn expired(
    batch: &Batch,
    topic: &Arc<str>,
    partition: i32,
    timeout: Duration,
    now: Instant,
    (source, led): (Option<&Error>, bool),
) -> Error {
    let text = format!("not delivered within `delivery.timeout.ms` of {}", timeout.as_millis());
    let age = now.saturating_duration_since(batch.opened_at);
    let error = Error::new(ErrorKind::DeliveryTimeout, text)
        .with_topic(topic)
        .with_partition(partition)
        .with_attempt(batch.attempts, age);
    match source {
        Some(source) => error.with_source(source.clone()),
        None if !led => error.with_hint("the partition has no leader"),
        None => error,
    }
}

impl Machine for Sender {
    fn turn(&mut self, cx: &mut Context<'_>) -> Next {
        if self.ended {
            return Next::Ended;
        }
        self.face.memory.grant();
        let room_at = self.face.memory.expire(cx.now);
        self.unmute(cx.now);
        self.take_in(cx, || {});
        self.learn(cx);
        self.withdraw_overdue(cx);
        self.expire_and_settle(cx);
        if self.wants_identity() {
            self.ask_identity(cx);
        }
        self.produce(cx);
        self.tell_loads(cx.now);
        self.finish_flushes();
        if self.close_by.is_some_and(|_| self.close(cx)) {
            return Next::Ended;
        }
        self.see_busy(cx.now);
        self.next_deadline(cx.now, room_at).map_or(Next::Wait, Next::At)
    }

    fn handle_begun(&mut self, token: u64) {
        if self.unbegun.remove(&token).is_some() {
            let Some(open) = self.open.get(&token) else { return };
            if let Some(node) = self.nodes.get_mut(&open.node) {
                node.stalled_since = None;
            }
            let (counters, (bytes, raw_bytes)) = (&self.face.counters, open.bytes);
            add(&counters.requests, 1);
            add(&counters.batches_sent, counted(open.parts.len()));
            add(&counters.bytes_sent, counted(bytes));
            add(&counters.raw_bytes_sent, counted(raw_bytes));
        }
    }

    fn handle_response(&mut self, token: u64, reply: Reply, cx: &mut Context<'_>) {
        self.unbegun.remove(&token);
        if let Some(open) = self.open.remove(&token) {
            self.news_at = Some(cx.now);
            self.handle_produce(open, reply, cx);
        } else if self.identity.is_asked(token)
            && let Err(error) = self.identity.handle_response(&reply, cx.now, cx.random)
        {
            self.abort(&error, cx);
        }
    }

    fn handle_job(&mut self, token: u64, result: Option<JobResult>, _: &mut Context<'_>) {
        let Some((key, id)) = self.jobs.remove(&token) else { return };
        let packed = result.and_then(|result| result.downcast::<Option<Vec<u8>>>().ok());
        let batch = self.partitions.get_mut(key).and_then(|at| at.queue.waiting_mut(id));
        let Some(batch) = batch else { return };
        batch.packing = false;
        if let Some(packed) = packed.and_then(|packed| *packed) {
            batch.pack(packed, self.config.codec, &self.face.memory);
        }
    }

    fn is_busy(&self) -> bool {
        self.busy_until.is_some()
    }

    fn fail(&mut self, error: &Error) {
        self.end_all(error);
        self.end();
    }
}
