//! Fetch sessions from outside (KIP-227).
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use client::{Client, batch, produce_request};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use ottla_protocol::messages::{FetchRequest, FetchResponse, MetadataResponse};
use ottla_protocol::record::BatchSeal;
use ottla_protocol::{ErrorCode, Uuid};

/// One row of an answer: topic, partition, error, high watermark, bytes of records.
type Row = (String, i32, ErrorCode, i64, usize);

/// A connection with a session.
struct Session {
    client: Client,
    version: i16,
    id: i32,
    epoch: i32,
}

impl Session {
    fn new(broker: &Broker, version: i16) -> Self {
        Self { client: Client::connect(broker.address()), version, id: 0, epoch: 0 }
    }

    fn call(&mut self, mut request: FetchRequest<'_>) -> (ErrorCode, i32, Vec<Row>) {
        request.session_id = self.id;
        request.session_epoch = self.epoch;
        request.max_bytes = 1 << 20;
        let answer = self.client.call(self.version, &request);
        let response = answer.decode::<FetchResponse<'_>>();
        let mut rows = Vec::new();
        for topic in &response.responses {
            let name = if topic.topic.is_empty() {
                topic.topic_id.to_string()
            } else {
                topic.topic.to_owned()
            };
            rows.extend(topic.partitions.iter().map(|part| {
                let bytes = part.records.bytes().map_or(0, <[u8]>::len);
                (name.clone(), part.partition_index, part.error_code, part.high_watermark, bytes)
            }));
        }
        (response.error_code, response.session_id, rows)
    }

    /// A fetch that is to go well.
    fn fetch(&mut self, request: FetchRequest<'_>) -> Vec<Row> {
        let (error, id, rows) = self.call(request);
        assert_eq!(error, ErrorCode::NONE);
        self.id = id;
        self.epoch += 1;
        rows
    }
}

fn asking(topics: Vec<FetchTopic<'_>>) -> FetchRequest<'_> {
    FetchRequest { topics, ..FetchRequest::default() }
}

/// Partitions of a topic, each from an offset.
fn of<'a>(topic: &'a str, topic_id: Uuid, wanted: &[(i32, i64)]) -> FetchTopic<'a> {
    let partitions = wanted.iter().map(|(partition, fetch_offset)| FetchPartition {
        partition: *partition,
        fetch_offset: *fetch_offset,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    });
    FetchTopic { topic, topic_id, partitions: partitions.collect() }
}

fn forgetting<'a>(topic: &'a str, topic_id: Uuid, partitions: &[i32]) -> FetchRequest<'a> {
    let forgotten = ForgottenTopic { topic, topic_id, partitions: partitions.to_vec() };
    FetchRequest { forgotten_topics_data: vec![forgotten], ..FetchRequest::default() }
}

fn produce(client: &mut Client, topic: &str, partition: i32) {
    let set = batch(&["x"], &BatchSeal::default());
    client.call(9, &produce_request(topic, partition, -1, &set));
}

fn row(topic: &str, partition: i32, error: ErrorCode, high_watermark: i64, bytes: usize) -> Row {
    (topic.to_owned(), partition, error, high_watermark, bytes)
}

fn broker() -> Broker {
    let broker = Broker::start(BrokerConfig::new()).expect("a broker in memory");
    broker.create_topic("orders", 3).expect("a topic");
    broker
}

const OK: ErrorCode = ErrorCode::NONE;

#[test]
fn a_session_answers_what_changed_and_no_more() {
    let broker = broker();
    let mut producer = Client::connect(broker.address());
    let size = batch(&["x"], &BatchSeal::default()).len();
    for version in 7..=12 {
        let start = i64::from(version) - 7;
        let mut session = Session::new(&broker, version);
        let all = of("orders", Uuid::ZERO, &[(0, start), (1, 0), (2, 0)]);
        let rows = session.fetch(asking(vec![all]));
        assert_eq!(rows.len(), 3, "the first answer is full");
        assert_ne!(session.id, 0);
        assert_eq!(session.fetch(FetchRequest::default()), [], "nothing is new");
        produce(&mut producer, "orders", 0);
        let found = session.fetch(FetchRequest::default());
        assert_eq!(found, [row("orders", 0, OK, start + 1, size)]);
        let again = session.fetch(FetchRequest::default());
        assert_eq!(again, found, "as long as the client asks from the same offset");
        let moved = of("orders", Uuid::ZERO, &[(0, start + 1)]);
        assert_eq!(session.fetch(asking(vec![moved])), []);
        let rows = session.fetch(forgetting("orders", Uuid::ZERO, &[0]));
        assert_eq!(rows, []);
        let back = session.fetch(asking(vec![of("orders", Uuid::ZERO, &[(0, start)])]));
        assert_eq!(back.len(), 1, "it begins anew");
    }
}

#[test]
fn what_is_forgotten_never_comes_back() {
    let broker = broker();
    let mut producer = Client::connect(broker.address());
    let mut session = Session::new(&broker, 12);
    session.fetch(asking(vec![of("orders", Uuid::ZERO, &[(0, 0), (1, 0)])]));
    assert_eq!(session.fetch(forgetting("orders", Uuid::ZERO, &[0])), []);
    produce(&mut producer, "orders", 0);
    assert_eq!(session.fetch(FetchRequest::default()), []);
    produce(&mut producer, "orders", 1);
    let rows = session.fetch(FetchRequest::default());
    assert_eq!(rows.iter().map(|row| row.1).collect::<Vec<_>>(), [1]);
    // With the last one the session goes.
    let (error, id, _) = session.call(forgetting("orders", Uuid::ZERO, &[1]));
    assert_eq!((error, id), (OK, 0));
}

#[test]
fn an_unknown_topic_is_told_of_until_it_is_there_and_the_session_lives() {
    let broker = broker();
    let mut session = Session::new(&broker, 12);
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let topics =
        vec![of("later", Uuid::ZERO, &[(0, 0)]), of("orders", Uuid::ZERO, &[(0, 0), (7, 0)])];
    let rows = session.fetch(asking(topics));
    let expected = [
        row("orders", 0, OK, 0, 0),
        row("later", 0, unknown, -1, 0),
        row("orders", 7, unknown, -1, 0),
    ];
    assert_eq!(rows, expected);
    assert_eq!(session.fetch(FetchRequest::default()), expected[1..]);
    broker.create_topic("later", 1).expect("a topic");
    let rows = session.fetch(FetchRequest::default());
    assert_eq!(rows, [row("later", 0, OK, 0, 0), row("orders", 7, unknown, -1, 0)]);
}

#[test]
fn an_unknown_topic_id_is_told_of_and_the_others_are_served() {
    let broker = broker();
    let mut producer = Client::connect(broker.address());
    let answer = producer.metadata("orders", false);
    let id = answer.decode::<MetadataResponse<'_>>().topics[0].topic_id;
    let stranger = Uuid([9; 16]);
    for version in 13..=18 {
        let mut session = Session::new(&broker, version);
        let topics = vec![of("", stranger, &[(0, 0)]), of("", id, &[(1, 0)])];
        let rows = session.fetch(asking(topics));
        let unknown = ErrorCode::UNKNOWN_TOPIC_ID;
        assert_eq!(rows[1], row(&stranger.to_string(), 0, unknown, -1, 0));
        assert_eq!((rows[0].0.as_str(), rows[0].1), (id.to_string().as_str(), 1));
        produce(&mut producer, "orders", 1);
        let rows = session.fetch(FetchRequest::default());
        assert_eq!(rows.iter().map(|row| row.2).collect::<Vec<_>>(), [OK, unknown]);
        let rows = session.fetch(forgetting("", stranger, &[0]));
        assert_eq!(rows.len(), 1);
        // Names in place of ids are another session's.
        session.version = 12;
        let (error, ..) = session.call(FetchRequest::default());
        assert_eq!(error, ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
    }
}

#[test]
fn a_wrong_epoch_is_refused_and_a_new_full_fetch_takes_the_place() {
    let broker = broker();
    let mut session = Session::new(&broker, 12);
    let all = || asking(vec![of("orders", Uuid::ZERO, &[(0, 0)])]);
    session.fetch(all());
    let (id, epoch) = (session.id, session.epoch);
    session.epoch += 1;
    let (error, told, rows) = session.call(FetchRequest::default());
    assert_eq!((error, told, rows.len()), (ErrorCode::INVALID_FETCH_SESSION_EPOCH, 0, 0));
    session.id = id.wrapping_add(1);
    let (error, ..) = session.call(FetchRequest::default());
    assert_eq!(error, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    (session.id, session.epoch) = (id, 0);
    session.fetch(all());
    assert_ne!(session.id, id);
    let mut old = Session { id, epoch, ..Session::new(&broker, 12) };
    let (error, ..) = old.call(FetchRequest::default());
    assert_eq!(error, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    // Epoch -1 ends the session and is answered in full.
    session.epoch = -1;
    let (error, id, rows) = session.call(all());
    assert_eq!((error, id, rows.len()), (OK, 0, 1));
}

#[test]
fn who_comes_after_the_last_slot_is_served_without_a_session() {
    let option = "max.incremental.fetch.session.cache.slots";
    let config = BrokerConfig::new().set(option, "2").expect("an option");
    let broker = Broker::start(config).expect("a broker");
    broker.create_topic("orders", 1).expect("a topic");
    let mut sessions: Vec<_> = (0..3).map(|_| Session::new(&broker, 12)).collect();
    let ids = sessions.iter_mut().map(|session| {
        let rows = session.fetch(asking(vec![of("orders", Uuid::ZERO, &[(0, 0)])]));
        assert_eq!(rows.len(), 1);
        session.id
    });
    let ids: Vec<_> = ids.collect();
    assert!(ids[0] > 0 && ids[1] > 0 && ids[0] != ids[1], "{ids:?}");
    assert_eq!(ids[2], 0);
    for session in &mut sessions[..2] {
        assert_eq!(session.fetch(FetchRequest::default()), []);
    }
}

#[test]
fn no_partition_starves_behind_a_busy_one() {
    let broker = broker();
    let mut producer = Client::connect(broker.address());
    for partition in 0..3 {
        produce(&mut producer, "orders", partition);
    }
    let mut session = Session::new(&broker, 12);
    session.fetch(asking(vec![of("orders", Uuid::ZERO, &[(0, 0), (1, 0), (2, 0)])]));
    // Room for one batch an answer, and the client asks for all three again and again.
    let mut seen = Vec::new();
    for _ in 0..3 {
        let request = FetchRequest { max_bytes: 1, ..FetchRequest::default() };
        let rows = session.fetch_limited(request);
        seen.extend(rows.into_iter().filter(|row| row.4 > 0).map(|row| row.1));
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
}

impl Session {
    /// As [`Self::fetch`], with the request's own limit of bytes.
    fn fetch_limited(&mut self, mut request: FetchRequest<'_>) -> Vec<Row> {
        request.session_id = self.id;
        request.session_epoch = self.epoch;
        let answer = self.client.call(self.version, &request);
        let response = answer.decode::<FetchResponse<'_>>();
        assert_eq!(response.error_code, OK);
        self.epoch += 1;
        let parts = response.responses.iter().flat_map(|topic| &topic.partitions);
        let rows = parts.map(|part| {
            let bytes = part.records.bytes().map_or(0, <[u8]>::len);
            row("orders", part.partition_index, part.error_code, part.high_watermark, bytes)
        });
        rows.collect()
    }
}
