//! A consumer's machine against a broker of a few lines, in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::record::{Attributes, BatchBuilder, BatchSeal, NO_HEADERS};
use ottla_protocol::{ApiKey, ErrorCode, Uuid, Writer};

use super::super::Engine;
use crate::config::{ConsumerConfig, Options};
use crate::consumer::batch::Batch;
use crate::consumer::face::{Command, Face, Look, Rebalance, WholeBatch};
use crate::consumer::promise::Promise;
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::backoff::Random;
use crate::state::machine::{Answer, Context, Frame, Lane, LinkFault, Machine, Next, Request};
use crate::state::metadata::Metadata;

mod answers;

/// The topic's id at first.
const TOPIC_ID: Uuid = Uuid([7; 16]);
const NODE: i32 = 1;

/// A fetch with its token and version.
type Held = (u64, i16, Asked);

/// What a fetch asks: partitions, each with its offset and the leader's epoch.
struct Asked {
    topic_id: Uuid,
    rows: Vec<(i32, i64, i32)>,
}

/// A log of one partition: batches with base offset and next offset.
type Log = Vec<(i64, i64, Bytes)>;

pub(super) struct Script {
    pub(super) face: Arc<Face>,
    engine: Engine,
    metadata: Metadata,
    random: Random,
    pub(super) now: Instant,
    pub(super) closed: Arc<Promise<()>>,
    /// Requests without an answer yet; `true`: they are the metadata's.
    waiting: VecDeque<(bool, Request)>,
    held: Vec<Held>,
    pub(super) logs: BTreeMap<i32, Log>,
    pub(super) log_starts: BTreeMap<i32, i64>,
    pub(super) committed: BTreeMap<i32, i64>,
    /// What is kept beside that.
    pub(super) texts: BTreeMap<i32, String>,
    /// Longest such text that the coordinator takes.
    pub(super) text_bytes_max: usize,
    /// Of the leader.
    pub(super) epoch: i32,
    pub(super) topic_id: Uuid,
    pub(super) generation: i32,
    /// What this member is to read from the next sync on.
    pub(super) share: Vec<i32>,
    /// The group is about to share out anew.
    pub(super) rebalance: bool,
    /// The coordinator waits for others before it answers joins.
    pub(super) holds_joins: bool,
    joins: Vec<Request>,
    /// The topics that the member joined for last.
    pub(super) joined_for: Vec<String>,
    /// Where it said that it stands.
    pub(super) joined_from: Option<String>,
    /// The group has dropped this member.
    pub(super) forgotten: bool,
    /// The id of the session that the broker keeps of fetches; 0 for none.
    pub(super) session: i32,
    /// The group's leader sends shares that nobody can read.
    pub(super) garbled: bool,
    /// All members with their racks, if this one leads them; it is `m`.
    pub(super) members: Vec<(&'static str, &'static str)>,
    /// What it gave them.
    pub(super) shared: Vec<String>,
    /// Where the replica of each partition stands, which is not its leader.
    pub(super) racks: Vec<&'static str>,
    /// Others are members of the group.
    pub(super) has_members: bool,
    /// The names of all topics, for who asks for all; only `t` has partitions.
    pub(super) topics: Vec<String>,
    /// How many lookups of committed offsets it answers without a word of any.
    pub(super) untold: usize,
    /// Errors for the next requests of an API, in turn.
    pub(super) refuse: VecDeque<(ApiKey, ErrorCode)>,
    /// What came, in short.
    pub(super) seen: Vec<String>,
    /// What the application was told of its partitions.
    pub(super) told: Vec<String>,
    pub(super) ended: bool,
    /// The broker asks for so long a pause with each answer to a fetch (KIP-219).
    pub(super) throttle: Duration,
}

impl Script {
    #[allow(clippy::disallowed_methods, reason = "an origin for virtual time")]
    pub(super) fn new(options: &[(&str, &str)]) -> Self {
        let mut set = Options::new()
            .set("bootstrap.servers", "127.0.0.1:1")
            .and_then(|set| set.set("group.id", "g"))
            .and_then(|set| set.set("auto.offset.reset", "earliest"))
            .and_then(|set| set.set("partition.assignment.strategy", "range"))
            .unwrap();
        for (name, value) in options {
            set = set.set(name, value).unwrap();
        }
        let config = ConsumerConfig::new(&set).unwrap();
        let now = Instant::now();
        let new = if config.explicit { Face::explicit } else { Face::new };
        let face = Arc::new(new(Arc::default(), config.memory_bytes));
        let closed = Promise::new();
        let mut random = Random::new(3);
        let metadata = Metadata::new(&config.common);
        let (seen, end) = (Arc::clone(&face), Arc::clone(&closed));
        let engine = Engine::new(config, seen, end, &mut random, now);
        Self {
            face,
            engine,
            metadata,
            random,
            now,
            closed,
            waiting: VecDeque::new(),
            held: Vec::new(),
            logs: (0..4).map(|index| (index, Vec::new())).collect(),
            log_starts: BTreeMap::new(),
            committed: BTreeMap::new(),
            texts: BTreeMap::new(),
            text_bytes_max: 4_096,
            epoch: 5,
            topic_id: TOPIC_ID,
            generation: 0,
            share: vec![0],
            rebalance: false,
            holds_joins: false,
            joins: Vec::new(),
            joined_for: Vec::new(),
            joined_from: None,
            forgotten: false,
            session: 0,
            garbled: false,
            members: Vec::new(),
            shared: Vec::new(),
            racks: Vec::new(),
            has_members: false,
            topics: Vec::new(),
            untold: 0,
            refuse: VecDeque::new(),
            seen: Vec::new(),
            told: Vec::new(),
            ended: false,
            throttle: Duration::ZERO,
        }
    }

    /// A member that reads partition 0 of `t`.
    pub(super) fn reading(options: &[(&str, &str)]) -> Self {
        let mut script = Self::new(options);
        script.subscribe();
        script
    }

    pub(super) fn subscribe(&mut self) {
        self.face.subscribe(Command::Subscribe(vec!["t".into()])).unwrap();
        self.run();
    }

    /// From now on the replicas of the partitions stand in these racks.
    pub(super) fn stand(&mut self, racks: &[&'static str]) {
        self.racks = racks.to_vec();
        self.metadata.request_refresh(self.now);
        self.pass(Duration::from_secs(2));
    }

    /// The program assigns these partitions of `t` itself.
    pub(super) fn assign(&mut self, partitions: &[i32]) {
        self.face.assign(partitions.iter().map(|&at| part(at)).collect()).unwrap();
        self.run();
    }

    /// Adds a batch of so many records, whose values are their offsets.
    pub(super) fn append(&mut self, partition: i32, count: i64) {
        self.append_as(partition, count, Attributes::default());
    }

    /// Adds the mark that ends a transaction: a batch that nobody is given.
    pub(super) fn append_control(&mut self, partition: i32) {
        let attributes = Attributes::default().with_transactional(true).with_control(true);
        self.append_as(partition, 1, attributes);
    }

    fn append_as(&mut self, partition: i32, count: i64, attributes: Attributes) {
        let log = self.logs.get_mut(&partition).unwrap();
        let base_offset = log.last().map_or(0, |(_, next, _)| *next);
        let mut builder = BatchBuilder::default();
        for offset in base_offset..base_offset + count {
            let value = offset.to_string();
            builder.push(offset, None, Some(value.as_bytes()), NO_HEADERS).unwrap();
        }
        let partition_leader_epoch = self.epoch;
        let rest = BatchSeal::default();
        let seal = BatchSeal { base_offset, partition_leader_epoch, attributes, ..rest };
        let bytes = builder.finish(&seal).unwrap();
        log.push((base_offset, base_offset + count, bytes));
    }

    /// Turns and answers until nothing moves.
    pub(super) fn run(&mut self) {
        for _ in 0..1000 {
            let next = self.turn();
            self.ended |= next == Next::Ended;
            if self.ended || self.waiting.is_empty() {
                return;
            }
            while let Some((metadata, request)) = self.waiting.pop_front() {
                if self.holds_joins && request.body.key() == ApiKey::JoinGroup {
                    self.seen.push("join".into());
                    self.joins.push(request);
                    continue;
                }
                let behind = !self.joins.is_empty() && request.lane == Lane::Coordinator;
                assert!(!behind, "{:?} stands behind a join that is held", request.body);
                self.serve(metadata, &request);
            }
        }
        panic!("it never comes to rest: {:?}", self.seen);
    }

    /// All others have joined as well.
    pub(super) fn release_joins(&mut self) {
        for request in std::mem::take(&mut self.joins) {
            self.serve(false, &request);
            self.seen.pop();
        }
    }

    /// A turn in the middle of which the application does something more.
    pub(super) fn turn_while(&mut self, meanwhile: impl FnOnce(&Face)) {
        let drained = self.face.drain();
        meanwhile(&self.face);
        self.call(|engine, cx| engine.turn_for(drained, cx));
    }

    /// A turn whose requests nobody answers.
    pub(super) fn turn_alone(&mut self) {
        self.ended |= self.turn() == Next::Ended;
        self.waiting.clear();
    }

    /// Lets time pass, second by second, with all that is due in it.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = until.min(self.now + Duration::from_secs(1));
            // The broker holds a fetch for half a second at most.
            self.release_held();
            self.run();
        }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut Engine, &mut Context<'_>) -> T) -> T {
        let (mut requests, mut jobs) = (Vec::new(), Vec::new());
        let mut cx = Context {
            now: self.now,
            now_ms: 1_700_000_000_000,
            metadata: &mut self.metadata,
            random: &mut self.random,
            requests: &mut requests,
            jobs: &mut jobs,
            withdrawn: &mut Vec::new(),
        };
        let result = call(&mut self.engine, &mut cx);
        self.waiting.extend(requests.into_iter().map(|request| (false, request)));
        result
    }

    fn turn(&mut self) -> Next {
        let next = self.call(Machine::turn);
        if let Some(request) = self.metadata.poll_request(self.now) {
            self.waiting.push_back((true, request));
        }
        next
    }

    fn serve(&mut self, metadata: bool, request: &Request) {
        let (key, version) = (request.body.key(), *request.body.versions().end());
        let mut writer = Writer::new();
        let mut into = Frame { version, correlation_id: 1, client_id: None, writer: &mut writer };
        request.body.encode(&mut into).unwrap();
        let bytes = writer.into_bytes();
        let Some(body) = self.answer(key, version, &bytes[4..], request) else { return };
        self.reply(metadata, request.token, version, body);
    }

    fn reply(&mut self, metadata: bool, token: u64, version: i16, body: Bytes) {
        let answer = Answer { version, body, broker: Rc::from("1"), throttle: Rc::default() };
        if metadata {
            let (now, random) = (self.now, &mut self.random);
            self.metadata.handle_response(token, Ok(answer), now, random);
        } else {
            self.call(|engine, cx| engine.handle_response(token, Ok(answer), cx));
        }
    }

    /// A turn whose requests are lost, but for those of the metadata.
    pub(super) fn lose_requests(&mut self) {
        self.turn();
        for (metadata, request) in std::mem::take(&mut self.waiting) {
            if metadata {
                self.serve(metadata, &request);
                continue;
            }
            let error = Error::new(ErrorKind::Disconnected, "lost");
            let fault = LinkFault { error, written: true };
            self.call(|engine, cx| engine.handle_response(request.token, Err(fault), cx));
        }
    }

    /// All connections break; what was asked is not answered.
    pub(super) fn disconnect(&mut self) {
        for (token, ..) in std::mem::take(&mut self.held) {
            let error = Error::new(ErrorKind::Disconnected, "lost");
            let fault = LinkFault { error, written: true };
            self.call(|engine, cx| engine.handle_response(token, Err(fault), cx));
        }
    }

    /// Another broker's log takes the place of this one: what comes from `offset` on is gone.
    pub(super) fn elect(&mut self, partition: i32, offset: i64) {
        self.epoch += 1;
        self.cut(partition, offset);
        self.metadata.request_refresh(self.now);
    }

    /// The log ends before `offset` all at once, without a new leader.
    pub(super) fn cut(&mut self, partition: i32, offset: i64) {
        self.logs.get_mut(&partition).unwrap().retain(|(base, ..)| *base < offset);
    }

    /// The topic is deleted, and made anew without records.
    pub(super) fn recreate(&mut self) {
        self.topic_id = Uuid([8; 16]);
        self.logs.values_mut().for_each(Vec::clear);
        self.metadata.request_refresh(self.now);
    }

    /// Fetches that the broker held are answered: with data, or empty when their time is over.
    pub(super) fn release_held(&mut self) {
        for (token, version, asked) in std::mem::take(&mut self.held) {
            let bytes = self.records(&asked, version);
            self.reply(false, token, version, bytes);
        }
    }

    pub(super) fn take(&mut self, records_max: usize) -> Option<Batch> {
        loop {
            let look = self.look(records_max);
            self.run();
            match look {
                Look::Found(batch) => return Some(batch),
                Look::Rebalance(one) => {
                    self.note(&one);
                    self.face.end_telling(one.id);
                    self.run();
                }
                _ => return None,
            }
        }
    }

    pub(super) fn look(&self, records_max: usize) -> Look<Batch> {
        self.face.look(&WholeBatch { records_max }, None).unwrap()
    }

    /// Writes down what the application was told.
    pub(super) fn note(&mut self, one: &Rebalance) {
        let numbers: Vec<i32> = one.partitions.iter().map(|at| at.partition).collect();
        self.told.push(format!("{:?} {numbers:?}", one.change));
    }

    /// The offsets of the next records.
    pub(super) fn offsets(&mut self, records_max: usize) -> Vec<i64> {
        let batch = self.take(records_max);
        batch.iter().flat_map(|batch| batch.records().map(|record| record.offset)).collect()
    }

    pub(super) fn commit(&mut self, batch: &Batch) {
        let marks = vec![(batch.topic_partition().clone(), batch.mark())];
        let deadline = self.now + Duration::from_mins(1);
        let command = Command::Commit { marks, deadline, promise: None };
        self.face.command(command).unwrap();
        self.run();
    }

    /// Why a commit of this batch is refused, if it is.
    pub(super) fn commit_refused(&mut self, batch: &Batch) -> Option<ErrorKind> {
        let marks = vec![(batch.topic_partition().clone(), batch.mark())];
        let deadline = self.now + Duration::from_mins(1);
        let promise = Promise::new();
        let heard = Some(Arc::clone(&promise));
        self.face.command(Command::Commit { marks, deadline, promise: heard }).unwrap();
        self.run();
        promise.wait(Duration::ZERO, "the commit").err().map(|error| error.kind())
    }
}

pub(super) fn part(index: i32) -> TopicPartition {
    TopicPartition::new("t", index)
}
