//! The sending machine in virtual time, against answers written by hand.

#![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

use std::rc::Rc;

use ottla_protocol::messages::init_producer_id_response::InitProducerIdResponse;
use ottla_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_protocol::messages::produce_request::ProduceRequest;
use ottla_protocol::messages::produce_response::{
    LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceResponse,
};
use ottla_protocol::record::Batch as Wire;
use ottla_protocol::{ApiKey, ErrorCode, Message, Uuid, Writer, frame};

use ottla_protocol::messages::produce_response::ProduceResponse;

use super::*;
use crate::config::Options;
use crate::error::Outcome;
use crate::record::{Delivery, Record};
use crate::state::accumulator::Moment;
use crate::state::backoff::Random;
use crate::state::completion::{Completion, Stamp};
use crate::state::machine::{Answer, Frame, Job, LinkFault, Request, Target};
use crate::state::metadata::Metadata;
use crate::state::parker::Signal;

mod brokers;
mod fates;
mod flushing;
mod idle;
mod order;
mod sending;
mod sticking;
mod times;
mod withdrawing;

const TOPIC_ID: Uuid = Uuid([9; 16]);

/// A record's place, as its sender holds it.
struct Token(Arc<Completion>, Stamp);

impl Token {
    fn delivery(&self) -> Delivery {
        self.0.result(self.1).expect("resolved").expect("stored")
    }

    fn error(&self) -> Error {
        self.0.result(self.1).expect("resolved").expect_err("failed")
    }

    fn is_open(&self) -> bool {
        self.0.result(self.1).is_none()
    }
}

/// A Produce request that went out: partition, sequence, epoch and record values of each batch.
#[derive(Debug)]
struct Sent {
    token: u64,
    node: i32,
    batches: Vec<(i32, i32, Vec<String>)>,
}

struct Trial {
    sender: Sender,
    face: Arc<Accumulator>,
    metadata: Metadata,
    random: Random,
    now: Instant,
    requests: Vec<Request>,
    jobs: Vec<Job>,
    withdrawn: Vec<u64>,
    next: Next,
    leaders: Vec<i32>,
    epoch: i32,
    /// What brokers say of the topic instead of its partitions.
    refusal: ErrorCode,
}

impl Trial {
    fn new(options: &str) -> Self {
        let options = Options::parse(&format!("bootstrap.servers=a:1;{options}")).unwrap();
        let config = ProducerConfig::new(&options).unwrap();
        let face = Accumulator::new(&config, Arc::default());
        Self {
            metadata: Metadata::new(&config.common),
            sender: Sender::new(config, Arc::clone(&face)),
            face,
            random: Random::new(5),
            now: Instant::now(),
            requests: Vec::new(),
            jobs: Vec::new(),
            withdrawn: Vec::new(),
            next: Next::Wait,
            leaders: vec![1],
            epoch: 0,
            refusal: ErrorCode::NONE,
        }
    }

    /// One that knows its topic and its producer id.
    fn ready(options: &str, leaders: &[i32]) -> Self {
        let mut trial = Self::new(options);
        trial.leaders = leaders.to_vec();
        let first = trial.send("first");
        trial.learn();
        trial.name_producer();
        let sent = trial.produced();
        assert_eq!(sent.len(), 1, "{sent:?}");
        trial.store(&sent[0], 0);
        assert_eq!(first.delivery().offset, 0);
        trial
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut Sender, &mut Context<'_>) -> T) -> T {
        let mut cx = Context {
            now: self.now,
            now_ms: 0,
            metadata: &mut self.metadata,
            random: &mut self.random,
            requests: &mut self.requests,
            jobs: &mut self.jobs,
            withdrawn: &mut self.withdrawn,
        };
        call(&mut self.sender, &mut cx)
    }

    /// A turn, which does all that is due: a second one at the same time finds nothing to do.
    fn turn(&mut self) {
        self.next = self.call(Machine::turn);
        let made = [self.requests.len(), self.jobs.len(), self.withdrawn.len()];
        let next = self.call(Machine::turn);
        let more = [self.requests.len(), self.jobs.len(), self.withdrawn.len()];
        assert_eq!((next, more), (self.next, made), "a turn leaves something that is due");
        assert!(!matches!(next, Next::At(at) if at <= self.now), "what is due is done");
    }

    fn send_to(&mut self, partition: i32, value: &str) -> Token {
        append(&self.face, self.now, partition, value)
    }

    fn send(&mut self, value: &str) -> Token {
        self.send_to(0, value)
    }

    /// Until the machine wants its next turn.
    fn wait_for_deadline(&mut self) {
        let Next::At(at) = self.next else { panic!("{:?}", self.next) };
        self.now = self.now.max(at);
        self.turn();
    }

    fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.turn();
    }

    fn reply(&mut self, token: u64, reply: Reply) {
        self.call(|sender, cx| sender.handle_response(token, reply, cx));
        self.turn();
    }

    /// Answers a metadata request, which must be due within a second.
    fn learn(&mut self) {
        self.turn();
        self.now = self.now.max(self.metadata.poll_timeout().expect("metadata is wanted"));
        let request = self.metadata.poll_request(self.now).expect("metadata is asked for");
        let broker = |node_id| MetadataResponseBroker {
            node_id,
            host: "b",
            port: 9092,
            rack: Some(if node_id == 1 { "east" } else { "west" }),
        };
        let partitions = (0..).zip(&self.leaders).map(|(partition_index, &leader_id)| {
            let leader_epoch = self.epoch;
            let rest = MetadataResponsePartition::default();
            MetadataResponsePartition { partition_index, leader_id, leader_epoch, ..rest }
        });
        let topic = MetadataResponseTopic {
            name: Some("t"),
            topic_id: TOPIC_ID,
            error_code: self.refusal,
            partitions: partitions.filter(|_| self.refusal.is_none()).collect(),
            ..MetadataResponseTopic::default()
        };
        let brokers = vec![broker(1), broker(2)];
        let rest = MetadataResponse::default();
        let response = MetadataResponse { brokers, topics: vec![topic], ..rest };
        let answer = answer(&response, 12);
        self.metadata.handle_response(request.token, Ok(answer), self.now, &mut self.random);
        self.turn();
    }

    fn name_producer(&mut self) {
        self.name_producer_as(40, 0);
    }

    fn name_producer_as(&mut self, producer_id: i64, producer_epoch: i16) {
        let rest = InitProducerIdResponse::default();
        self.answer_identity(&InitProducerIdResponse { producer_id, producer_epoch, ..rest });
    }

    fn answer_identity(&mut self, response: &InitProducerIdResponse) {
        let at =
            self.requests.iter().position(|request| request.body.key() == ApiKey::InitProducerId);
        let request = self.requests.remove(at.expect("a producer id is asked for"));
        self.reply(request.token, Ok(answer(response, 4)));
    }

    /// The Produce requests that were made since the last call, and wait for their turn.
    fn queued(&mut self) -> Vec<Sent> {
        self.turn();
        let requests = std::mem::take(&mut self.requests);
        requests.iter().map(sent).collect()
    }

    /// The Produce requests that went out since the last call.
    fn produced(&mut self) -> Vec<Sent> {
        let sent = self.queued();
        for sent in &sent {
            self.begin(sent);
        }
        sent
    }

    /// The driver begins to write a request.
    fn begin(&mut self, sent: &Sent) {
        self.call(|sender, _| sender.handle_begun(sent.token));
    }

    fn flush(&self) -> Arc<Signal> {
        flush(&self.face)
    }

    /// Refuses further records, and has the producer closed in so many milliseconds at the latest.
    fn close_within(&self, millis: u64) {
        self.face.refuse(None);
        let by = self.now + Duration::from_millis(millis);
        self.face.command(|commands| commands.close_by = Some(by));
    }

    fn answer_all(&mut self, sent: &Sent, of: impl Fn(i32) -> PartitionProduceResponse<'static>) {
        self.answer_with(sent, of, 0);
    }

    fn answer_with(
        &mut self,
        sent: &Sent,
        of: impl Fn(i32) -> PartitionProduceResponse<'static>,
        throttle_time_ms: i32,
    ) {
        let topic = TopicProduceResponse {
            topic_id: TOPIC_ID,
            partition_responses: sent.batches.iter().map(|(index, ..)| of(*index)).collect(),
            ..TopicProduceResponse::default()
        };
        let responses = vec![topic];
        let response =
            ProduceResponse { responses, throttle_time_ms, ..ProduceResponse::default() };
        self.reply(sent.token, Ok(answer(&response, 13)));
    }

    fn store(&mut self, sent: &Sent, base_offset: i64) {
        self.answer_all(sent, |index| PartitionProduceResponse {
            index,
            base_offset,
            log_append_time_ms: -1,
            ..PartitionProduceResponse::default()
        });
    }

    fn refuse(&mut self, sent: &Sent, error_code: ErrorCode) {
        self.answer_all(sent, |index| PartitionProduceResponse {
            index,
            error_code,
            ..PartitionProduceResponse::default()
        });
    }

    fn lose(&mut self, sent: &Sent, written: bool) {
        let error = Error::new(ErrorKind::Disconnected, "gone");
        self.reply(sent.token, Err(LinkFault { error, written }));
    }
}

thread_local! {
    static NOW: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
}

fn append(face: &Accumulator, now: Instant, partition: i32, value: &str) -> Token {
    append_record(face, now, &Record::to("t").partition(partition).value(value))
}

fn append_record(face: &Accumulator, now: Instant, record: &Record<'_>) -> Token {
    NOW.set(Some(now));
    let mut token = None;
    let keep = &mut |batch: &Arc<Completion>, stamp| {
        token = Some(Token(Arc::clone(batch), stamp));
    };
    let moment = Moment { now_ms: 77, clock: || NOW.get().unwrap() };
    face.append(record, moment, &mut None, keep).unwrap();
    token.expect("a record that was taken has a place")
}

/// Asks for a flush; the signal is set when it is through.
fn flush(face: &Accumulator) -> Arc<Signal> {
    let signal = Arc::<Signal>::default();
    let asked = Arc::clone(&signal);
    face.command(|commands| commands.flushes.push(asked));
    signal
}

fn answer<'a>(message: &impl Message<'a>, version: i16) -> Answer {
    let mut writer = Writer::new();
    message.encode(&mut writer, version).unwrap();
    Answer {
        version,
        body: Bytes::from(writer.into_bytes()),
        broker: Rc::from("b:9092"),
        throttle: Rc::default(),
    }
}

/// Reads a request as a broker would.
fn sent(request: &Request) -> Sent {
    let version = *request.body.versions().end();
    assert_eq!((request.body.key(), version), (ApiKey::Produce, 13));
    let mut writer = Writer::new();
    let client_id = Some("c");
    let mut frame = Frame { version, correlation_id: 1, client_id, writer: &mut writer };
    request.body.encode(&mut frame).unwrap();
    let (bytes, cuts) = writer.into_parts();
    let mut whole = Vec::new();
    let mut from = 0;
    for (index, cut) in cuts.iter().enumerate() {
        whole.extend_from_slice(&bytes[from..cut.at]);
        request.body.detached(index).iter().for_each(|piece| whole.extend_from_slice(piece));
        from = cut.at;
    }
    whole.extend_from_slice(&bytes[from..]);
    let (body, rest) = frame::split_frame(&whole, frame::MAX_FRAME).unwrap().expect("a frame");
    assert!(rest.is_empty(), "the size counts the batches");
    let (_, produce) = frame::decode_request::<ProduceRequest<'_>>(body).unwrap();
    let mut batches = Vec::new();
    for partition in &produce.topic_data[0].partition_data {
        assert_eq!(produce.topic_data[0].topic_id, TOPIC_ID);
        let batch = Wire::parse(partition.records.bytes().unwrap()).unwrap();
        batch.verify_crc().unwrap();
        let records = batch.records(1 << 24).unwrap();
        let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap().to_vec()).unwrap();
        let values = records.iter().map(|record| text(record.unwrap().value)).collect();
        batches.push((partition.index, batch.header.base_sequence, values));
    }
    let Target::Node(node) = request.to else { panic!("{:?}", request.to) };
    Sent { token: request.token, node, batches }
}
