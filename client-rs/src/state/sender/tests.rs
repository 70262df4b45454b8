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
use crate::state::accumulator::batch::Manners;
use crate::state::backoff::Random;
use crate::state::completion::Completion;
use crate::state::machine::{Answer, Frame, Job, LinkFault, Request, Target};
use crate::state::metadata::Metadata;
use crate::state::parker::Signal;

const TOPIC_ID: Uuid = Uuid([9; 16]);

/// A record's place, as its sender holds it.
struct Token(Arc<Completion>, u32);

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
    next: Next,
    leaders: Vec<i32>,
    epoch: i32,
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
            next: Next::Wait,
            leaders: vec![1],
            epoch: 0,
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
        };
        call(&mut self.sender, &mut cx)
    }

    fn turn(&mut self) {
        self.next = self.call(Machine::turn);
    }

    fn send_to(&mut self, partition: i32, value: &str) -> Token {
        let record = Record::to("t").partition(partition).value(value);
        let clock = || panic!("virtual time has no clock");
        let moment = Moment { now_ms: 77, clock };
        let now = self.now;
        NOW.set(Some(now));
        let mut token = None;
        let keep = &mut |batch: &Arc<Completion>, index| {
            token = Some(Token(Arc::clone(batch), index));
        };
        let moment = Moment { clock: || NOW.get().unwrap(), ..moment };
        self.face.append(&record, moment, (None, Manners::Queue), keep).unwrap();
        token.expect("a record that was taken has a place")
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
            ..MetadataResponseBroker::default()
        };
        let partitions = (0..).zip(&self.leaders).map(|(partition_index, &leader_id)| {
            let leader_epoch = self.epoch;
            let rest = MetadataResponsePartition::default();
            MetadataResponsePartition { partition_index, leader_id, leader_epoch, ..rest }
        });
        let topic = MetadataResponseTopic {
            name: Some("t"),
            topic_id: TOPIC_ID,
            partitions: partitions.collect(),
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
        let at =
            self.requests.iter().position(|request| request.body.key() == ApiKey::InitProducerId);
        let request = self.requests.remove(at.expect("a producer id is asked for"));
        let response =
            InitProducerIdResponse { producer_id: 40, ..InitProducerIdResponse::default() };
        self.reply(request.token, Ok(answer(&response, 4)));
    }

    /// The Produce requests that went out since the last call.
    fn produced(&mut self) -> Vec<Sent> {
        self.turn();
        let requests = std::mem::take(&mut self.requests);
        requests.iter().map(sent).collect()
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

fn answer<'a>(message: &impl Message<'a>, version: i16) -> Answer {
    let mut writer = Writer::new();
    message.encode(&mut writer, version).unwrap();
    Answer { version, body: Bytes::from(writer.into_bytes()), broker: Rc::from("b:9092") }
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

#[test]
fn a_first_record_goes_out_once_its_topic_and_the_producer_id_are_known() {
    let mut trial = Trial::new("");
    let token = trial.send("a");
    trial.turn();
    assert_eq!(trial.requests.len(), 1, "the producer id is asked for beside the metadata");
    trial.learn();
    assert!(token.is_open());
    trial.name_producer();
    let sent = trial.produced();
    assert_eq!(sent[0].batches, [(0, 0, vec!["a".to_owned()])]);
    trial.store(&sent[0], 40);
    let delivery = token.delivery();
    assert_eq!((delivery.partition, delivery.offset, delivery.timestamp), (0, 40, 77));
}

#[test]
fn an_idle_broker_gets_a_record_at_once_and_a_busy_one_after_the_linger() {
    let mut trial = Trial::ready("linger.ms=5", &[1]);
    trial.send("a");
    let first = trial.produced();
    assert_eq!(first.len(), 1);
    trial.send("b");
    trial.send("c");
    assert!(trial.produced().is_empty());
    trial.wait(4);
    assert!(trial.produced().is_empty());
    trial.wait(1);
    let second = trial.produced();
    assert_eq!(second[0].batches, [(0, 2, vec!["b".to_owned(), "c".to_owned()])]);
    trial.send("d");
    assert!(trial.produced().is_empty());
    trial.store(&first[0], 1);
    assert!(trial.produced().is_empty(), "another one is on its way");
    trial.store(&second[0], 2);
    assert_eq!(trial.produced().len(), 1, "idle again");
}

#[test]
fn full_batches_do_not_wait_for_answers() {
    let mut trial = Trial::ready("linger.ms=1000;batch.size=100", &[1]);
    for _ in 0..8 {
        trial.send("0123456789012345678901234567890123456789");
    }
    assert_eq!(trial.produced().len(), 5, "five of one partition");
}

#[test]
fn one_request_takes_a_batch_of_each_partition_of_a_broker() {
    let mut trial = Trial::ready("", &[1, 2, 1]);
    for partition in 0..3 {
        trial.send_to(partition, "a");
    }
    let sent = trial.produced();
    let partitions = |node| {
        let of = sent.iter().find(|sent| sent.node == node).unwrap();
        of.batches.iter().map(|(index, ..)| *index).collect::<Vec<_>>()
    };
    assert_eq!(sent.len(), 2);
    assert_eq!((partitions(1), partitions(2)), (vec![0, 2], vec![1]));
}

#[test]
fn a_moved_leader_is_looked_for_and_gets_the_batches_in_order() {
    let mut trial = Trial::ready("linger.ms=0", &[1]);
    trial.send("a");
    let first = trial.produced();
    trial.send("b");
    let second = trial.produced();
    trial.refuse(&first[0], ErrorCode::NOT_LEADER_OR_FOLLOWER);
    trial.refuse(&second[0], ErrorCode::NOT_LEADER_OR_FOLLOWER);
    trial.leaders = vec![2];
    trial.epoch = 1;
    trial.learn();
    trial.wait(200);
    let again = trial.produced();
    assert_eq!((again[0].node, &again[0].batches), (2, &vec![(0, 1, vec!["a".to_owned()])]));
    trial.store(&again[0], 1);
    let again = trial.produced();
    assert_eq!((again[0].node, &again[0].batches), (2, &vec![(0, 2, vec!["b".to_owned()])]));
}

#[test]
fn a_leader_named_by_the_error_is_used_at_once() {
    let mut trial = Trial::ready("", &[1]);
    trial.send("a");
    let sent = trial.produced();
    trial.answer_all(&sent[0], |index| PartitionProduceResponse {
        index,
        error_code: ErrorCode::NOT_LEADER_OR_FOLLOWER,
        current_leader: LeaderIdAndEpoch { leader_id: 2, leader_epoch: 1 },
        ..PartitionProduceResponse::default()
    });
    let again = trial.produced();
    assert_eq!((again.len(), again[0].node), (1, 2));
}

#[test]
fn a_throttled_broker_is_left_alone_for_as_long_as_it_says() {
    let mut trial = Trial::ready("", &[1]);
    trial.send("a");
    let sent = trial.produced();
    let stored = |index| PartitionProduceResponse { index, ..PartitionProduceResponse::default() };
    trial.answer_with(&sent[0], stored, 1000);
    trial.send("b");
    assert!(trial.produced().is_empty());
    trial.wait(999);
    assert!(trial.produced().is_empty());
    trial.wait(1);
    assert_eq!(trial.produced().len(), 1);
}

#[test]
fn a_topic_nobody_knows_fails_its_records_after_the_longest_block() {
    let mut trial = Trial::new("max.block.ms=1000");
    let token = trial.send("a");
    trial.turn();
    trial.wait(999);
    assert!(token.is_open());
    trial.wait(1);
    let error = token.error();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::UnknownTopic, Some(Outcome::NotSent)));
    assert_eq!(error.topic(), Some("t"));
}

#[test]
fn a_record_not_delivered_in_time_tells_why() {
    let mut trial = Trial::ready("", &[1]);
    let token = trial.send("a");
    for _ in 0..400 {
        for sent in trial.produced() {
            trial.lose(&sent, false);
        }
        trial.wait(500);
    }
    let error = token.error();
    assert_eq!(error.kind(), ErrorKind::DeliveryTimeout);
    assert_eq!(error.outcome(), Some(Outcome::NotSent));
    assert!(error.to_string().contains("gone"), "{error}");
    assert!(error.attempt().is_some_and(|attempt| attempt > 50), "{error}");
}

#[test]
fn without_acks_a_record_is_done_when_it_is_written_and_never_sent_twice() {
    let mut trial = Trial::new("acks=0");
    let first = trial.send("first");
    trial.learn();
    let sent = trial.produced();
    trial.reply(sent[0].token, Ok(answer(&InitProducerIdResponse::default(), 0)));
    assert_eq!(first.delivery().offset, -1);
    let token = trial.send("a");
    let sent = trial.produced();
    assert_eq!(sent[0].batches[0].1, -1, "no sequence");
    trial.lose(&sent[0], true);
    assert_eq!(token.error().outcome(), Some(Outcome::PossiblyPersisted));
    trial.learn();
    trial.wait(1000);
    assert!(trial.produced().is_empty());
}

#[test]
fn a_flush_sends_at_once_and_waits_for_all_records_before_it() {
    let mut trial = Trial::ready("linger.ms=10000", &[1, 2]);
    trial.send_to(0, "a");
    let mut sent = trial.produced();
    trial.send_to(0, "b");
    trial.send_to(1, "c");
    sent.extend(trial.produced());
    assert_eq!(sent.len(), 2, "the busy broker's second batch lingers");
    let signal = Arc::<Signal>::default();
    let asked = Arc::clone(&signal);
    trial.face.command(|commands| commands.flushes.push(asked));
    sent.extend(trial.produced());
    assert_eq!(sent.len(), 3);
    let after = trial.send_to(0, "after");
    for sent in &sent {
        assert!(!signal.is_set());
        trial.store(sent, 5);
    }
    assert!(signal.is_set());
    assert!(after.is_open(), "what came after it is not waited for");
}

#[test]
fn a_flush_waits_for_records_of_a_topic_not_known_yet() {
    let mut trial = Trial::new("");
    let token = trial.send("a");
    let signal = Arc::<Signal>::default();
    let asked = Arc::clone(&signal);
    trial.face.command(|commands| commands.flushes.push(asked));
    trial.learn();
    trial.name_producer();
    let sent = trial.produced();
    assert!(!signal.is_set());
    trial.store(&sent[0], 0);
    assert!(signal.is_set() && !token.is_open());
}

#[test]
fn closing_delivers_what_it_can_and_ends() {
    let mut trial = Trial::ready("linger.ms=10000", &[1]);
    trial.send("a");
    let first = trial.produced();
    let token = trial.send("b");
    trial.face.refuse(None);
    let by = trial.now + Duration::from_secs(5);
    trial.face.command(|commands| commands.close_by = Some(by));
    let second = trial.produced();
    assert_eq!(second.len(), 1, "closing does not linger");
    trial.store(&first[0], 1);
    trial.store(&second[0], 2);
    assert_eq!(token.delivery().offset, 2);
    assert_eq!(trial.next, Next::Ended);
    assert_eq!(trial.face.memory.used(), 0);
}

#[test]
fn closing_past_its_deadline_says_of_each_record_what_may_have_become_of_it() {
    let mut trial = Trial::ready("", &[1, -1]);
    let written = trial.send_to(0, "a");
    let sent = trial.produced();
    let waiting = trial.send_to(1, "b");
    trial.face.refuse(None);
    let by = trial.now + Duration::from_millis(100);
    trial.face.command(|commands| commands.close_by = Some(by));
    trial.turn();
    assert!(written.is_open() && waiting.is_open());
    trial.wait(100);
    assert_eq!(trial.next, Next::Ended);
    let outcomes = [written.error(), waiting.error()].map(|error| error.outcome().unwrap());
    assert_eq!(outcomes, [Outcome::PossiblyPersisted, Outcome::NotSent]);
    trial.store(&sent[0], 1);
    assert_eq!(trial.next, Next::Ended, "a late answer changes nothing");
}

#[test]
fn a_failed_machine_tells_all_who_wait() {
    let mut trial = Trial::ready("", &[1]);
    let token = trial.send("a");
    trial.produced();
    let open = trial.send("b");
    let signal = Arc::<Signal>::default();
    let asked = Arc::clone(&signal);
    trial.face.command(|commands| commands.flushes.push(asked));
    trial.sender.fail(&Error::new(ErrorKind::Internal, "x"));
    assert_eq!(token.error().kind(), ErrorKind::Internal);
    assert_eq!(open.error().kind(), ErrorKind::Internal);
    assert!(signal.is_set());
    assert_eq!(trial.face.refusal().kind(), ErrorKind::Internal);
}

#[test]
fn a_fenced_producer_refuses_all_further_records() {
    let mut trial = Trial::ready("", &[1]);
    let token = trial.send("a");
    let sent = trial.produced();
    trial.refuse(&sent[0], ErrorCode::PRODUCER_FENCED);
    assert_eq!(token.error().kind(), ErrorKind::ProducerFenced);
    assert_eq!(trial.face.refusal().kind(), ErrorKind::ProducerFenced);
}

#[test]
fn large_batches_are_compressed_elsewhere_and_stay_in_order() {
    let mut trial = Trial::ready("compression.type=lz4;linger.ms=0", &[1]);
    let large = "x".repeat(20_000);
    trial.send(&large);
    assert!(trial.produced().is_empty(), "it is being compressed");
    trial.send("small");
    assert!(trial.produced().is_empty());
    let jobs = std::mem::take(&mut trial.jobs);
    assert_eq!(jobs.len(), 1);
    for job in jobs {
        let result = (job.work)();
        trial.call(|sender, cx| sender.handle_job(job.token, Some(result), cx));
    }
    let sent = trial.produced();
    let batches: Vec<_> = sent.iter().flat_map(|sent| &sent.batches).collect();
    assert_eq!(batches, [&(0, 1, vec![large]), &(0, 2, vec!["small".to_owned()])]);
}

#[test]
fn records_nobody_holds_a_token_of_are_reported_once() {
    let mut trial = Trial::ready("", &[1]);
    drop(trial.send("a"));
    drop(trial.send("b"));
    let sent = trial.produced();
    trial.refuse(&sent[0], ErrorCode::INVALID_TIMESTAMP);
    let unreported = trial.face.take_unreported(None);
    assert_eq!(unreported.count, 2);
    assert_eq!(unreported.first.map(|error| error.kind()), Some(ErrorKind::InvalidTimestamp));
    assert_eq!(trial.face.take_unreported(None).count, 0);
    let held = trial.send("c");
    let sent = trial.produced();
    trial.refuse(&sent[0], ErrorCode::INVALID_TIMESTAMP);
    assert_eq!(trial.face.take_unreported(None).count, 0, "its sender can see it");
    assert_eq!(held.error().kind(), ErrorKind::InvalidTimestamp);
}

#[test]
fn the_machine_sleeps_until_something_is_due() {
    let mut trial = Trial::ready("linger.ms=50", &[1]);
    assert_eq!(trial.next, Next::Wait, "nothing to do");
    trial.send("a");
    trial.produced();
    trial.send("b");
    trial.turn();
    assert!(trial.sender.is_busy());
    let before = trial.now;
    trial.wait_for_deadline();
    assert_eq!(trial.now.duration_since(before), Duration::from_millis(50));
    assert_eq!(trial.produced().len(), 1);
}

#[test]
fn a_partition_that_a_lagging_broker_leaves_out_keeps_its_batches_and_sequences() {
    let mut trial = Trial::ready("", &[1, 1]);
    trial.send_to(1, "a");
    let sent = trial.produced();
    trial.store(&sent[0], 0);
    for leaders in [vec![1], vec![1, 1]] {
        trial.leaders = leaders;
        trial.epoch += 1;
        trial.metadata.request_refresh(trial.now);
        trial.wait(1000);
        trial.learn();
    }
    trial.send_to(1, "b");
    let sent = trial.produced();
    assert_eq!(sent[0].batches, [(1, 1, vec!["b".to_owned()])]);
}
