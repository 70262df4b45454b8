//! The producer's machine: which batches go out when, and what becomes of them.

pub(crate) mod batch;
mod flush;
mod identity;
mod produce;
mod queue;
mod topics;
mod verdict;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::messages::produce_response::ProduceResponse;
use ottla_protocol::record::Compression;

use self::batch::Batch;
use self::flush::Flushes;
use self::identity::Identity;
use self::produce::{Part, ProduceBody};
use self::queue::{Ended, Limits, Numbering, Queue};
use self::topics::{KnownTopic, Partition};
use self::verdict::Verdict;
use super::accumulator::Accumulator;
use super::backoff::Backoff;
use super::completion::Outcome as Ending;
use super::machine::{
    Answer, Context, JobResult, Lane, LinkFault, Machine, Next, Reply, Request, Target,
};
use crate::config::ProducerConfig;
use crate::error::{Error, ErrorKind, Outcome};

/// Compression of fewer bytes is done at once.
const INLINE_BYTES_MAX: usize = 8 * 1024;
/// Requests open to one broker.
const REQUESTS_MAX: usize = 64;
/// How often room is handed on while somebody waits for it.
const MEMORY_TICK: Duration = Duration::from_millis(5);

/// A broker that leads partitions of ours.
#[derive(Debug, Default)]
struct Node {
    in_flight: usize,
    muted_until: Option<Instant>,
    /// Requests made, which the partition to begin with rotates by.
    requests: usize,
}

/// A request without an answer yet.
#[derive(Debug)]
struct Open {
    node: i32,
    parts: Vec<Part>,
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
    jobs: HashMap<u64, (usize, u64)>,
    tokens: u64,
    identity: Identity,
    cluster_version: Option<u64>,
    /// Batches taken and not resolved.
    outstanding: BTreeSet<u64>,
    flushes: Flushes,
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
            topics: HashMap::new(),
            active: BTreeSet::new(),
            nodes: BTreeMap::new(),
            open: HashMap::new(),
            jobs: HashMap::new(),
            tokens: 0,
            identity,
            cluster_version: None,
            outstanding: BTreeSet::new(),
            flushes: Flushes::default(),
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

    /// Looks at what senders have put there.
    fn collect(&mut self, cx: &mut Context<'_>) {
        let mut slots = Vec::new();
        self.face.take_ready(&mut slots);
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
            counters.batches.fetch_add(1, Ordering::Relaxed);
            counters.records.fetch_add(records, Ordering::Relaxed);
            let bytes = u64::try_from(batch.raw_len()).unwrap_or(0);
            counters.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.outstanding.insert(batch.id());
            if self.config.compression != Compression::None {
                self.pack(&mut batch, key, cx);
            }
            if let Some(partition) = self.partitions.get_mut(key) {
                partition.queue.push(batch);
            }
        }
    }

    /// Compresses a batch, elsewhere if that takes long.
    fn pack(&mut self, batch: &mut Batch, key: usize, cx: &mut Context<'_>) {
        let (codec, body) = (self.config.compression, batch.body());
        let mut packed = self.face.memory.buffer(batch.raw_len().next_power_of_two());
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

    /// Sends what is due, broker by broker.
    fn produce(&mut self, cx: &mut Context<'_>) {
        let mut members: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
        let mut leaderless = false;
        for &key in &self.active {
            match self.partitions.get(key).and_then(|partition| partition.leader) {
                Some(leader) => members.entry(leader).or_default().push(key),
                None => leaderless = true,
            }
        }
        if leaderless {
            cx.metadata.request_refresh(cx.now);
        }
        for (id, keys) in members {
            while self.produce_to(id, &keys, cx) {}
        }
    }

    /// One request to one broker; whether there was something to send.
    fn produce_to(&mut self, id: i32, keys: &[usize], cx: &mut Context<'_>) -> bool {
        let node = self.nodes.entry(id).or_default();
        if node.muted_until.is_some_and(|until| until > cx.now) || node.in_flight >= REQUESTS_MAX {
            return false;
        }
        node.muted_until = None;
        let idle = node.in_flight == 0;
        let first = node.requests.checked_rem(keys.len()).unwrap_or(0);
        let (before, after) = keys.split_at(first);
        let mut parts: Vec<(Part, Vec<Bytes>)> = Vec::new();
        let mut bytes = 0;
        for &key in after.iter().chain(before) {
            self.take_open(key, idle, cx);
            let numbering = self.identity.numbering();
            let Some(partition) = self.partitions.get_mut(key) else { continue };
            let Some(len) = partition.queue.next_len(cx.now, numbering) else { continue };
            if !parts.is_empty() && bytes + len > self.config.request_bytes_max {
                continue;
            }
            let again = partition.queue.retry_at().is_some();
            let Some(batch) = partition.queue.begin(numbering) else { continue };
            let (batch, pieces) = (batch.id(), batch.pieces());
            bytes += len;
            parts.push((partition.part(key, batch), pieces));
            self.face.counters.retries.fetch_add(u64::from(again), Ordering::Relaxed);
        }
        if parts.is_empty() {
            return false;
        }
        self.send(id, parts, cx);
        true
    }

    /// Takes a partition's open batch, if it is due and could go out.
    fn take_open(&mut self, key: usize, idle: bool, cx: &mut Context<'_>) {
        let Some(partition) = self.partitions.get_mut(key) else { return };
        let Some(open) = partition.open else { return };
        let numbered = self.identity.numbering() != Numbering::Unknown;
        let due = idle
            || self.close_by.is_some()
            || self.flushes.covers(open.id)
            || self.face.memory.is_awaited()
            || open.opened_at + self.config.linger <= cx.now;
        if due && numbered && partition.queue.is_drained() && partition.queue.takes_new() {
            partition.slot.take_all(&mut self.taken);
            partition.open = None;
            self.take_over(key, cx);
        }
    }

    fn send(&mut self, node: i32, mut parts: Vec<(Part, Vec<Bytes>)>, cx: &mut Context<'_>) {
        parts.sort_by(|(one, _), (two, _)| {
            (&one.topic, one.partition).cmp(&(&two.topic, two.partition))
        });
        let (parts, pieces): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let timeout = self.config.common.request_timeout;
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let body = ProduceBody::new(self.config.acks.number(), timeout_ms, &parts, pieces);
        let token = self.token();
        self.open.insert(token, Open { node, parts });
        if let Some(node) = self.nodes.get_mut(&node) {
            node.in_flight += 1;
            node.requests = node.requests.wrapping_add(1);
        }
        self.face.counters.requests.fetch_add(1, Ordering::Relaxed);
        let lane = Lane::Produce;
        cx.send(Request { to: Target::Node(node), lane, token, timeout, body: Box::new(body) });
    }

    fn handle_produce(&mut self, open: Open, reply: Reply, cx: &mut Context<'_>) {
        if let Some(node) = self.nodes.get_mut(&open.node) {
            node.in_flight = node.in_flight.saturating_sub(1);
        }
        match reply {
            Ok(_) if self.config.acks.number() == 0 => {
                for part in &open.parts {
                    let done = Verdict::Stored { base_offset: -1, append_time: -1 };
                    self.judge(part, done, cx);
                }
            }
            Ok(answer) => self.handle_answer(&open, &answer, cx),
            Err(fault) => {
                cx.metadata.request_refresh(cx.now);
                self.handle_fault(&open, &fault, cx);
            }
        }
    }

    fn handle_answer(&mut self, open: &Open, answer: &Answer, cx: &mut Context<'_>) {
        let response = match answer.decode::<ProduceResponse<'_>>() {
            Ok(response) => response,
            Err(error) => {
                let fault = LinkFault { error, written: true };
                return self.handle_fault(open, &fault, cx);
            }
        };
        let throttle = u64::try_from(response.throttle_time_ms).unwrap_or(0);
        if let Some(node) = self.nodes.get_mut(&open.node).filter(|_| throttle > 0) {
            // KIP-219: the broker has answered, and takes nothing more for so long.
            node.muted_until = Some(cx.now + Duration::from_millis(throttle));
        }
        for broker in &response.node_endpoints {
            cx.metadata.learn_broker(broker.node_id, broker.host, broker.port);
        }
        let mut place = (0, 0);
        for part in &open.parts {
            let found = produce::find(&response, part, &mut place);
            let verdict = produce::verdict(part, found);
            let refresh = found.is_some_and(|found| found.error_code.refresh().is_some());
            self.judge(part, verdict, cx);
            let leader = found.map(|found| &found.current_leader).filter(|leader| {
                let (id, epoch) = (leader.leader_id, leader.leader_epoch);
                cx.metadata.learn_leader(&part.topic, part.partition, id, epoch)
            });
            if leader.is_some() {
                if let Some(partition) = self.partitions.get_mut(part.key) {
                    partition.queue.retry_at_once(cx.now);
                }
            } else if refresh {
                cx.metadata.request_refresh(cx.now);
            }
        }
    }

    fn handle_fault(&mut self, open: &Open, fault: &LinkFault, cx: &mut Context<'_>) {
        for part in &open.parts {
            let error = fault.error.clone().with_topic(&part.topic).with_partition(part.partition);
            let written = fault.written;
            let hopeless = error.kind() == ErrorKind::UnsupportedVersion
                // What was written without asking for an answer is not sent twice.
                || (self.config.acks.number() == 0 && written);
            let verdict = match hopeless {
                true if written => Verdict::Reject(error.with_outcome(Outcome::PossiblyPersisted)),
                true => Verdict::Reject(error),
                false => Verdict::Lost { error, written },
            };
            self.judge(part, verdict, cx);
        }
    }

    /// Applies what became of a batch's attempt.
    fn judge(&mut self, part: &Part, verdict: Verdict, cx: &mut Context<'_>) {
        let fatal = match &verdict {
            Verdict::Fatal(error) => Some(error.clone()),
            _ => None,
        };
        let (backoff, random) = (self.backoff, &mut *cx.random);
        let (face, outstanding) = (&self.face, &mut self.outstanding);
        let Some(partition) = self.partitions.get_mut(part.key) else { return };
        let mut parted = false;
        let split = |batch: &Batch| {
            let halves = batch.split(&face.memory, || face.new_id());
            if let Some((halves, _)) = &halves {
                outstanding.extend(halves.iter().map(Batch::id));
                parted = true;
            }
            halves
        };
        let pause = |failures| backoff.pause(failures, random);
        partition.queue.handle(part.batch, verdict, cx.now, pause, split);
        if parted {
            // Who waits for the whole waits for the halves.
            self.flushes.extend(self.face.peek_id());
        }
        self.finish(part.key);
        if let Some(error) = fatal {
            self.end_all(&error);
        }
    }

    /// Tells those who wait for batches that have ended.
    fn finish(&mut self, key: usize) {
        let Some(partition) = self.partitions.get_mut(key) else { return };
        let ended = std::mem::take(&mut partition.queue.ended);
        if partition.is_idle() {
            self.active.remove(&key);
        }
        for Ended { completion, holders, records, ending } in ended {
            self.outstanding.remove(&completion.id());
            let records = u64::try_from(records).unwrap_or(0);
            let counters = &self.face.counters;
            match &ending {
                Ending::Stored { .. } => {
                    counters.delivered.fetch_add(records, Ordering::Relaxed);
                }
                Ending::Failed(error) => {
                    tracing::warn!(%error, records, "records were not delivered");
                    counters.failed.fetch_add(records, Ordering::Relaxed);
                    if completion.is_unobserved(holders) {
                        self.face.report(records, error);
                    }
                }
                Ending::Forwarded(_) => {}
            }
            self.face.wakes(completion.resolve(ending));
        }
    }

    /// Ends batches whose time is over, and numbers anew those behind a gap.
    fn expire_and_settle(&mut self, cx: &mut Context<'_>) {
        let metadata_error = cx.metadata.last_error().cloned();
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
            partition.queue.expire(now, |batch| {
                let source = batch.last_error.as_ref();
                let source = source.or(identity_error).or(metadata_error.as_ref());
                expired(batch, &topic, number, timeout, now, (source, led))
            });
            renew |= !partition.queue.settle(numbering);
            self.finish(key);
        }
        if renew {
            self.identity.renew();
        }
    }

    /// When something will be due by itself.
    fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let mut next = Earliest::default();
        next.add(self.close_by);
        next.add(self.identity.poll_timeout());
        if self.face.memory.is_awaited() {
            next.add(Some(now + MEMORY_TICK));
        }
        if self.is_busy() {
            // What is only begun meanwhile is not told of, and must be looked for.
            next.add(Some(now + self.config.linger.max(Duration::from_millis(1))));
        }
        next.add(self.nodes.values().filter_map(|node| node.muted_until).min());
        for (_, opened_at, _) in self.face.staged() {
            next.add(Some(opened_at + self.config.topic_timeout()));
        }
        for partition in self.active.iter().filter_map(|&key| self.partitions.get(key)) {
            next.add(partition.queue.retry_at());
            next.add(partition.queue.expires_at());
            if let Some(open) = partition.open {
                next.add(Some(open.opened_at + self.config.delivery_timeout));
                let takes = partition.queue.is_drained() && partition.queue.takes_new();
                if takes
                    && partition.leader.is_some()
                    && self.identity.numbering() != Numbering::Unknown
                {
                    next.add(Some(open.opened_at + self.config.linger));
                }
            }
        }
        // A deadline that is over and could not be met is met by another event.
        next.0.map(|at| at.max(now + Duration::from_micros(500)))
    }
}

/// The earliest of some times.
#[derive(Default)]
struct Earliest(Option<Instant>);

impl Earliest {
    fn add(&mut self, at: Option<Instant>) {
        self.0 = self.0.into_iter().chain(at).min();
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
        self.face.memory.expire(cx.now);
        self.collect(cx);
        self.learn(cx);
        self.take_commands(cx);
        self.expire_and_settle(cx);
        if self.face.has_staged() || !self.topics.is_empty() {
            self.ask_identity(cx);
        }
        self.produce(cx);
        self.finish_flushes();
        if self.close_by.is_some_and(|_| self.close(cx)) {
            return Next::Ended;
        }
        self.next_deadline(cx.now).map_or(Next::Wait, Next::At)
    }

    fn handle_response(&mut self, token: u64, reply: Reply, cx: &mut Context<'_>) {
        if let Some(open) = self.open.remove(&token) {
            self.handle_produce(open, reply, cx);
        } else if self.identity.is_asked(token)
            && let Err(error) = self.identity.handle_response(&reply, cx.now, cx.random)
        {
            self.end_all(&error);
        }
    }

    fn handle_job(&mut self, token: u64, result: Option<JobResult>, _: &mut Context<'_>) {
        let Some((key, id)) = self.jobs.remove(&token) else { return };
        let packed = result.and_then(|result| result.downcast::<Option<Vec<u8>>>().ok());
        let batch = self.partitions.get_mut(key).and_then(|at| at.queue.waiting_mut(id));
        let Some(batch) = batch else { return };
        batch.packing = false;
        if let Some(packed) = packed.and_then(|packed| *packed) {
            batch.pack(packed, self.config.compression, &self.face.memory);
        }
    }

    fn is_busy(&self) -> bool {
        !self.nodes.is_empty()
            && self.identity.numbering() != Numbering::Unknown
            && self.nodes.values().all(|node| node.in_flight > 0)
    }

    fn fail(&mut self, error: &Error) {
        self.end_all(error);
        self.end();
    }
}
