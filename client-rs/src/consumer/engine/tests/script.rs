//! A consumer's machine against a broker of a few lines, in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use ottla_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use ottla_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use ottla_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use ottla_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use ottla_protocol::messages::{
    FetchRequest, FetchResponse, FindCoordinatorResponse, HeartbeatResponse, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupResponse, ListOffsetsRequest, ListOffsetsResponse,
    MetadataRequest, MetadataResponse, OffsetCommitRequest, OffsetCommitResponse,
    OffsetFetchRequest, OffsetFetchResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse, SyncGroupResponse, find_coordinator_response,
};
use ottla_protocol::record::{BatchBuilder, BatchSeal, NO_HEADERS};
use ottla_protocol::{ApiKey, ErrorCode, Message, Records, Uuid, Writer, frame};

use super::super::Engine;
use crate::config::{ConsumerConfig, Options};
use crate::consumer::batch::Batch;
use crate::consumer::face::{Command, Face, Look, Rebalance, WholeBatch};
use crate::consumer::promise::Promise;
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::assignor::{self, Share, Strategy};
use crate::state::backoff::Random;
use crate::state::machine::{Answer, Context, Frame, Lane, LinkFault, Machine, Next, Request};
use crate::state::metadata::Metadata;

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
    /// The group has dropped this member.
    pub(super) forgotten: bool,
    /// The names of all topics, for who asks for all; only `t` has partitions.
    pub(super) topics: Vec<String>,
    /// Errors for the next requests of an API, in turn.
    pub(super) refuse: VecDeque<(ApiKey, ErrorCode)>,
    /// What came, in short.
    pub(super) seen: Vec<String>,
    /// What the application was told of its partitions.
    pub(super) told: Vec<String>,
    pub(super) ended: bool,
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
        let face = Arc::new(Face::new(Arc::default(), config.memory_bytes));
        let closed = Promise::new();
        let mut random = Random::new(3);
        let metadata = Metadata::new(&config.common);
        let (seen, end) = (Arc::clone(&face), Arc::clone(&closed));
        let engine = Engine::new(config, "g".into(), seen, end, &mut random, now);
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
            epoch: 5,
            topic_id: TOPIC_ID,
            generation: 0,
            share: vec![0],
            rebalance: false,
            holds_joins: false,
            joins: Vec::new(),
            joined_for: Vec::new(),
            forgotten: false,
            topics: Vec::new(),
            refuse: VecDeque::new(),
            seen: Vec::new(),
            told: Vec::new(),
            ended: false,
        }
    }

    /// A member that reads partition 0 of `t`.
    pub(super) fn reading(options: &[(&str, &str)]) -> Self {
        let mut script = Self::new(options);
        script.subscribe();
        script
    }

    pub(super) fn subscribe(&mut self) {
        self.face.command(Command::Subscribe(vec!["t".into()])).unwrap();
        self.run();
    }

    /// Adds a batch of so many records, whose values are their offsets.
    pub(super) fn append(&mut self, partition: i32, count: i64) {
        let log = self.logs.get_mut(&partition).unwrap();
        let base_offset = log.last().map_or(0, |(_, next, _)| *next);
        let mut builder = BatchBuilder::default();
        for offset in base_offset..base_offset + count {
            let value = offset.to_string();
            builder.push(offset, None, Some(value.as_bytes()), NO_HEADERS).unwrap();
        }
        let partition_leader_epoch = self.epoch;
        let seal = BatchSeal { base_offset, partition_leader_epoch, ..BatchSeal::default() };
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
        let answer = Answer { version, body, broker: Rc::from("1") };
        if metadata {
            let (now, random) = (self.now, &mut self.random);
            self.metadata.handle_response(token, Ok(answer), now, random);
        } else {
            self.call(|engine, cx| engine.handle_response(token, Ok(answer), cx));
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

    fn answer(
        &mut self,
        key: ApiKey,
        version: i16,
        bytes: &[u8],
        request: &Request,
    ) -> Option<Bytes> {
        Some(match key {
            ApiKey::Metadata => self.metadata_answer(bytes, version),
            ApiKey::FindCoordinator => coordinator_answer(self.take_refusal(key), version),
            ApiKey::JoinGroup => self.join_answer(bytes, version),
            ApiKey::SyncGroup => self.sync_answer(version),
            ApiKey::Heartbeat => {
                let refusal = self.take_refusal(key);
                let error_code = if refusal.is_error() { refusal } else { self.group_error() };
                body(&HeartbeatResponse { error_code, ..Default::default() }, version)
            }
            ApiKey::LeaveGroup => {
                self.seen.push("leave".into());
                body(&LeaveGroupResponse::default(), version)
            }
            ApiKey::OffsetCommit => self.commit_answer(bytes, version),
            ApiKey::OffsetFetch => self.lookup_answer(bytes, version),
            ApiKey::ListOffsets => self.starts_answer(bytes, version),
            ApiKey::OffsetForLeaderEpoch => self.epochs_answer(bytes, version),
            ApiKey::Fetch => return self.fetch_answer(bytes, version, request),
            other => panic!("{other} is not in the script"),
        })
    }

    fn metadata_answer(&self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<MetadataRequest<'_>>(bytes).unwrap();
        let row = |partition_index: i32| MetadataResponsePartition {
            partition_index,
            leader_id: NODE,
            leader_epoch: self.epoch,
            ..Default::default()
        };
        let others = self.topics.iter().map(|name| Some(name.as_str()));
        let asked: Vec<Option<&str>> = match &request.topics {
            Some(topics) => topics.iter().map(|topic| topic.name).collect(),
            None => others.collect(),
        };
        let topics = asked.into_iter().map(|name| {
            let known = name == Some("t");
            MetadataResponseTopic {
                name,
                topic_id: if known { self.topic_id } else { Uuid::ZERO },
                error_code: if known {
                    ErrorCode::NONE
                } else {
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                },
                partitions: if known {
                    self.logs.keys().map(|&at| row(at)).collect()
                } else {
                    vec![]
                },
                ..Default::default()
            }
        });
        let brokers = vec![MetadataResponseBroker {
            node_id: NODE,
            host: "127.0.0.1",
            port: 1,
            ..Default::default()
        }];
        body(&MetadataResponse { brokers, topics: topics.collect(), ..Default::default() }, version)
    }

    fn take_refusal(&mut self, key: ApiKey) -> ErrorCode {
        let at = self.refuse.iter().position(|(of, _)| *of == key);
        at.and_then(|at| self.refuse.remove(at)).map_or(ErrorCode::NONE, |(_, code)| code)
    }

    fn group_error(&self) -> ErrorCode {
        match (self.forgotten, self.rebalance) {
            (true, _) => ErrorCode::UNKNOWN_MEMBER_ID,
            (_, true) => ErrorCode::REBALANCE_IN_PROGRESS,
            _ => ErrorCode::NONE,
        }
    }

    fn join_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<JoinGroupRequest<'_>>(bytes).unwrap();
        self.seen.push("join".into());
        let metadata = request.protocols.first().map_or(&[][..], |protocol| protocol.metadata);
        let told = assignor::decode_subscription(Strategy::Range, metadata).unwrap();
        self.joined_for = told.topics.iter().map(ToString::to_string).collect();
        let error_code = self.take_refusal(ApiKey::JoinGroup);
        if error_code.is_error() {
            return body(&JoinGroupResponse { error_code, ..Default::default() }, version);
        }
        self.generation += 1;
        (self.rebalance, self.forgotten) = (false, false);
        let answer = JoinGroupResponse {
            generation_id: self.generation,
            member_id: "m",
            leader: "another",
            protocol_type: Some("consumer"),
            protocol_name: request.protocols.first().map(|protocol| protocol.name),
            ..Default::default()
        };
        body(&answer, version)
    }

    fn sync_answer(&mut self, version: i16) -> Bytes {
        let error_code = self.take_refusal(ApiKey::SyncGroup);
        if error_code.is_error() {
            return body(&SyncGroupResponse { error_code, ..Default::default() }, version);
        }
        let topics = [(Arc::from("t"), self.share.clone())].into();
        let share = Share { member_id: "m".into(), topics };
        let assignment = assignor::encode_assignment(&share).unwrap();
        let answer = SyncGroupResponse {
            protocol_type: Some("consumer"),
            protocol_name: Some("range"),
            assignment: &assignment,
            ..Default::default()
        };
        body(&answer, version)
    }

    fn commit_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<OffsetCommitRequest<'_>>(bytes).unwrap();
        let mut error_code =
            if self.forgotten { ErrorCode::UNKNOWN_MEMBER_ID } else { ErrorCode::NONE };
        if request.generation_id_or_member_epoch != self.generation {
            error_code = ErrorCode::ILLEGAL_GENERATION;
        }
        let refusal = self.take_refusal(ApiKey::OffsetCommit);
        if refusal.is_error() {
            error_code = refusal;
        }
        let mut partitions = Vec::new();
        for row in request.topics.iter().flat_map(|topic| &topic.partitions) {
            let (partition_index, offset) = (row.partition_index, row.committed_offset);
            if error_code.is_none() {
                self.committed.insert(partition_index, offset);
            }
            let result = if error_code.is_none() { "" } else { " refused" };
            self.seen.push(format!("commit {partition_index}:{offset}{result}"));
            partitions.push(OffsetCommitResponsePartition { partition_index, error_code });
        }
        let topics = vec![OffsetCommitResponseTopic {
            topic_id: self.topic_id,
            partitions,
            ..Default::default()
        }];
        body(&OffsetCommitResponse { topics, ..Default::default() }, version)
    }

    fn lookup_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<OffsetFetchRequest<'_>>(bytes).unwrap();
        let asked = request.groups.iter().flat_map(|group| group.topics.iter().flatten());
        let partitions = asked.flat_map(|topic| &topic.partition_indexes).map(|&partition_index| {
            OffsetFetchResponsePartitions {
                partition_index,
                committed_offset: self.committed.get(&partition_index).copied().unwrap_or(-1),
                metadata: Some(""),
                ..Default::default()
            }
        });
        let topics = vec![OffsetFetchResponseTopics {
            topic_id: self.topic_id,
            partitions: partitions.collect(),
            ..Default::default()
        }];
        let error_code = self.take_refusal(ApiKey::OffsetFetch);
        let topics = if error_code.is_error() { Vec::new() } else { topics };
        let group = OffsetFetchResponseGroup { group_id: "g", topics, error_code };
        let groups = vec![group];
        body(&OffsetFetchResponse { groups, ..Default::default() }, version)
    }

    fn starts_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<ListOffsetsRequest<'_>>(bytes).unwrap();
        let rows = request.topics.iter().flat_map(|topic| &topic.partitions).map(|row| {
            let end = self.logs[&row.partition_index].last().map_or(0, |(_, next, _)| *next);
            let start = self.log_starts.get(&row.partition_index).copied().unwrap_or(0);
            let offset = if row.timestamp == -2 { start } else { end };
            ListOffsetsPartitionResponse {
                partition_index: row.partition_index,
                offset,
                ..Default::default()
            }
        });
        let topics = vec![ListOffsetsTopicResponse { name: "t", partitions: rows.collect() }];
        body(&ListOffsetsResponse { topics, ..Default::default() }, version)
    }

    /// Each epoch ends where its last batch does.
    fn epochs_answer(&mut self, bytes: &[u8], version: i16) -> Bytes {
        let (_, request) = frame::decode_request::<OffsetForLeaderEpochRequest<'_>>(bytes).unwrap();
        let rows = request.topics.iter().flat_map(|topic| &topic.partitions).map(|row| {
            self.seen.push(format!("epoch {}:{}", row.partition, row.leader_epoch));
            let of_epoch = |(_, next, bytes): &(i64, i64, Bytes)| {
                let epoch = i32::from_be_bytes(bytes[12..16].try_into().unwrap());
                (epoch <= row.leader_epoch).then_some((epoch, *next))
            };
            let log = &self.logs[&row.partition];
            let (leader_epoch, end_offset) =
                log.iter().rev().find_map(of_epoch).unwrap_or((-1, -1));
            EpochEndOffset {
                partition: row.partition,
                leader_epoch,
                end_offset,
                ..Default::default()
            }
        });
        let topics = vec![OffsetForLeaderTopicResult { topic: "t", partitions: rows.collect() }];
        body(&OffsetForLeaderEpochResponse { topics, ..Default::default() }, version)
    }

    /// Another broker's log takes the place of this one: what comes from `offset` on is gone.
    pub(super) fn elect(&mut self, partition: i32, offset: i64) {
        self.epoch += 1;
        self.logs.get_mut(&partition).unwrap().retain(|(base, ..)| *base < offset);
        self.metadata.request_refresh(self.now);
    }

    /// The topic is deleted, and made anew without records.
    pub(super) fn recreate(&mut self) {
        self.topic_id = Uuid([8; 16]);
        self.logs.values_mut().for_each(Vec::clear);
        self.metadata.request_refresh(self.now);
    }

    fn fetch_answer(&mut self, bytes: &[u8], version: i16, request: &Request) -> Option<Bytes> {
        let (_, fetch) = frame::decode_request::<FetchRequest<'_>>(bytes).unwrap();
        let rows = fetch.topics.iter().flat_map(|topic| &topic.partitions);
        let rows = rows.map(|row| (row.partition, row.fetch_offset, row.current_leader_epoch));
        let topic_id = fetch.topics.first().map_or(Uuid::ZERO, |topic| topic.topic_id);
        let asked = Asked { topic_id, rows: rows.collect() };
        let lane = if request.lane == Lane::Fetch { "" } else { " spare" };
        let rows = asked.rows.iter().map(|(at, offset, _)| format!("{at}:{offset}"));
        self.seen.push(format!("fetch {}{lane}", rows.collect::<Vec<_>>().join(" ")));
        if fetch.max_wait_ms > 0 && !self.has_news(&asked) {
            self.held.push((request.token, version, asked));
            return None;
        }
        Some(self.records(&asked, version))
    }

    fn has_news(&self, asked: &Asked) -> bool {
        asked.rows.iter().any(|&(at, offset, epoch)| {
            self.logs[&at].last().is_some_and(|(_, next, _)| *next > offset)
                || self.refusal(asked.topic_id, at, offset, epoch).is_error()
        })
    }

    fn refusal(&self, topic_id: Uuid, partition: i32, offset: i64, epoch: i32) -> ErrorCode {
        match () {
            () if topic_id != self.topic_id => ErrorCode::UNKNOWN_TOPIC_ID,
            () if epoch < self.epoch => ErrorCode::FENCED_LEADER_EPOCH,
            () if self.is_out(partition, offset) => ErrorCode::OFFSET_OUT_OF_RANGE,
            () => ErrorCode::NONE,
        }
    }

    fn is_out(&self, partition: i32, offset: i64) -> bool {
        let end = self.logs[&partition].last().map_or(0, |(_, next, _)| *next);
        let start = self.log_starts.get(&partition).copied().unwrap_or(0);
        !(start..=end).contains(&offset)
    }

    /// One batch a partition, the one that holds the offset.
    fn records(&self, asked: &Asked, version: i16) -> Bytes {
        let mut partitions = Vec::new();
        for &(partition_index, offset, epoch) in &asked.rows {
            let log = &self.logs[&partition_index];
            let found = log.iter().find(|(_, next, _)| *next > offset);
            let error_code = self.refusal(asked.topic_id, partition_index, offset, epoch);
            partitions.push(PartitionData {
                partition_index,
                error_code,
                high_watermark: log.last().map_or(0, |(_, next, _)| *next),
                records: match found {
                    Some((.., bytes)) if error_code.is_none() => Records::Inline(bytes),
                    _ => Records::Inline(&[]),
                },
                ..Default::default()
            });
        }
        let responses = vec![FetchableTopicResponse {
            topic_id: asked.topic_id,
            partitions,
            ..Default::default()
        }];
        body(&FetchResponse { responses, ..Default::default() }, version)
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

fn coordinator_answer(error_code: ErrorCode, version: i16) -> Bytes {
    let coordinators = vec![find_coordinator_response::Coordinator {
        key: "g",
        node_id: NODE,
        host: "127.0.0.1",
        port: 1,
        error_code,
        ..Default::default()
    }];
    body(&FindCoordinatorResponse { coordinators, ..Default::default() }, version)
}

fn body<'a>(message: &impl Message<'a>, version: i16) -> Bytes {
    let mut writer = Writer::new();
    message.encode(&mut writer, version).unwrap();
    Bytes::from(writer.into_bytes())
}

pub(super) fn part(index: i32) -> TopicPartition {
    TopicPartition::new("t", index)
}
