//! When metadata is asked for, and which answers count.

#![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

use std::rc::Rc;

use bytes::Bytes;
use ottla_protocol::Uuid;
use ottla_protocol::Writer;
use ottla_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};

use super::super::machine::{Answer, LinkFault};
use super::*;
use crate::config::Options;

const VERSION: i16 = 12;

struct Trial {
    metadata: Metadata,
    now: Instant,
    random: Random,
    topic: Arc<str>,
}

impl Trial {
    fn new() -> Self {
        Self::with("")
    }

    fn with(options: &str) -> Self {
        let options = Options::parse(&format!("bootstrap.servers=a:1;{options}")).unwrap();
        let config = CommonConfig::new(&options, true).unwrap();
        Self {
            metadata: Metadata::new(&config),
            now: Instant::now(),
            random: Random::new(1),
            topic: "orders".into(),
        }
    }

    fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    fn asked(&mut self) -> Option<u64> {
        self.metadata.poll_request(self.now).map(|request| request.token)
    }

    fn answer(&mut self, token: u64, reply: Reply) -> bool {
        self.metadata.handle_response(token, reply, self.now, &mut self.random)
    }

    fn answer_topic(&mut self, error_code: ErrorCode, leader: i32, epoch: i32) {
        let token = self.asked().expect("a request is due");
        let partition = MetadataResponsePartition {
            partition_index: 0,
            leader_id: leader,
            leader_epoch: epoch,
            ..MetadataResponsePartition::default()
        };
        let partitions = if error_code.is_none() { vec![partition] } else { Vec::new() };
        let topic = MetadataResponseTopic {
            error_code,
            name: Some("orders"),
            topic_id: Uuid([7; 16]),
            partitions,
            ..MetadataResponseTopic::default()
        };
        let reply = response(vec![topic]);
        assert!(self.answer(token, Ok(reply)));
    }
}

fn response(topics: Vec<MetadataResponseTopic<'_>>) -> Answer {
    response_of(None, topics)
}

fn response_of(cluster_id: Option<&str>, topics: Vec<MetadataResponseTopic<'_>>) -> Answer {
    let broker = |node_id| MetadataResponseBroker {
        node_id,
        host: "b",
        port: 9092,
        ..MetadataResponseBroker::default()
    };
    let response = MetadataResponse {
        brokers: vec![broker(1), broker(2)],
        cluster_id,
        topics,
        ..MetadataResponse::default()
    };
    answered(VERSION, &response)
}

fn answered(version: i16, response: &MetadataResponse<'_>) -> Answer {
    let mut writer = Writer::new();
    ottla_protocol::Message::encode(response, &mut writer, version).unwrap();
    let body = Bytes::from(writer.into_bytes());
    Answer { version, body, broker: Rc::from("b:9092"), throttle: Rc::default() }
}

fn fault() -> Reply {
    Err(LinkFault { error: Error::new(ErrorKind::Connect, "no"), written: false })
}

#[test]
fn nothing_is_asked_before_a_topic_is_wanted() {
    let mut trial = Trial::new();
    assert_eq!(trial.asked(), None);
    assert_eq!(trial.metadata.poll_timeout(), None);
    let topic = Arc::clone(&trial.topic);
    trial.metadata.want(&topic, trial.now);
    assert!(trial.asked().is_some());
    assert_eq!(trial.asked(), None, "one request at a time");
}

#[test]
fn an_unsettled_topic_is_asked_about_again_with_growing_pauses() {
    let mut trial = Trial::new();
    let topic = Arc::clone(&trial.topic);
    trial.metadata.want(&topic, trial.now);
    trial.answer_topic(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, 0, 0);
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let due = trial.metadata.poll_timeout().unwrap();
        pauses.push(due.duration_since(trial.now).as_millis());
        trial.now = due;
        trial.answer_topic(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, 0, 0);
    }
    for (pause, whole) in pauses.iter().zip([100, 200, 400, 800, 1000]) {
        assert!((whole * 8 / 10..=whole * 12 / 10).contains(pause), "{pauses:?}");
    }
    trial.now = trial.metadata.poll_timeout().unwrap();
    trial.answer_topic(ErrorCode::NONE, 1, 0);
    assert_eq!(trial.metadata.cluster().partition("orders", 0).unwrap().leader, Some(1));
    let due = trial.metadata.poll_timeout().unwrap();
    assert_eq!(due.duration_since(trial.now), Duration::from_mins(5), "metadata.max.age.ms");
}

#[test]
fn a_new_topic_is_asked_about_at_once_while_another_is_unsettled() {
    let mut trial = Trial::new();
    let topic = Arc::clone(&trial.topic);
    trial.metadata.want(&topic, trial.now);
    trial.answer_topic(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, 0, 0);
    trial.wait(1);
    assert_eq!(trial.asked(), None);
    trial.metadata.want(&"other".into(), trial.now);
    assert!(trial.asked().is_some());
}

#[test]
fn a_cluster_out_of_reach_is_asked_again_with_pauses() {
    let mut trial = Trial::new();
    let topic = Arc::clone(&trial.topic);
    trial.metadata.want(&topic, trial.now);
    let token = trial.asked().unwrap();
    assert!(!trial.answer(token, fault()));
    assert_eq!(trial.metadata.last_error().map(Error::kind), Some(ErrorKind::Connect));
    assert_eq!(trial.asked(), None);
    trial.metadata.want(&"other".into(), trial.now);
    assert_eq!(trial.asked(), None, "a new topic does not shorten the pause");
    trial.wait(120);
    assert!(trial.asked().is_some());
}

#[test]
fn a_stale_answer_and_an_older_leader_epoch_change_nothing() {
    let mut trial = Trial::new();
    let topic = Arc::clone(&trial.topic);
    trial.metadata.want(&topic, trial.now);
    trial.answer_topic(ErrorCode::NONE, 1, 5);
    assert!(!trial.answer(77, Ok(response(Vec::new()))));
    trial.metadata.request_refresh(trial.now);
    trial.wait(1000);
    trial.answer_topic(ErrorCode::NONE, 2, 4);
    assert_eq!(trial.metadata.cluster().partition("orders", 0).unwrap().leader, Some(1));
    trial.metadata.request_refresh(trial.now);
    trial.wait(1000);
    trial.answer_topic(ErrorCode::NONE, 2, 6);
    assert_eq!(trial.metadata.cluster().partition("orders", 0).unwrap().leader, Some(2));
}

#[test]
fn a_topic_absent_from_one_answer_stays_known() {
    let mut trial = Trial::new();
    let topic = Arc::clone(&trial.topic);
    trial.metadata.want(&topic, trial.now);
    trial.answer_topic(ErrorCode::NONE, 1, 5);
    trial.metadata.request_refresh(trial.now);
    trial.wait(1000);
    let token = trial.asked().unwrap();
    assert!(trial.answer(token, Ok(response(Vec::new()))));
    assert!(trial.metadata.cluster().topic("orders").is_some());
    trial.metadata.request_refresh(trial.now);
    trial.wait(1000);
    trial.answer_topic(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, 0, 0);
    assert!(trial.metadata.cluster().topic("orders").is_some());
}

#[test]
fn a_leader_named_by_a_broker_counts_if_its_epoch_is_higher() {
    let mut trial = Trial::new();
    let topic = Arc::clone(&trial.topic);
    trial.metadata.want(&topic, trial.now);
    trial.answer_topic(ErrorCode::NONE, 1, 5);
    assert!(!trial.metadata.learn_leader("orders", 0, 2, 5));
    assert!(!trial.metadata.learn_leader("orders", 0, 9, 6), "a broker nobody knows");
    trial.metadata.learn_broker(9, "c", 9092);
    assert!(trial.metadata.learn_leader("orders", 0, 9, 6));
    assert_eq!(trial.metadata.cluster().partition("orders", 0).unwrap().leader, Some(9));
}

#[test]
fn a_topic_not_used_for_long_is_no_longer_asked_about() {
    let mut trial = Trial::new();
    let topic = Arc::clone(&trial.topic);
    trial.metadata.want(&topic, trial.now);
    trial.metadata.pin(&"pinned".into(), trial.now);
    trial.answer_topic(ErrorCode::NONE, 1, 5);
    trial.wait(300_001);
    assert!(trial.asked().is_some());
    assert!(!trial.metadata.wanted.contains_key("orders"));
    assert!(trial.metadata.wanted.contains_key("pinned"));
}

#[test]
fn the_names_of_all_topics_are_told_while_they_are_watched() {
    names_told(NameWatch::Ordinary, &["orders", "u"]);
    names_told(NameWatch::All, &["__consumer_offsets", "orders", "u"]);
}

fn names_told(watch: NameWatch, told: &[&str]) {
    let mut trial = Trial::new();
    trial.metadata.pin(&"orders".into(), trial.now);
    trial.metadata.watch_names(watch, trial.now);
    let request = trial.metadata.poll_request(trial.now).expect("at once");
    let mut writer = Writer::new();
    let version = VERSION;
    let mut frame = super::super::machine::Frame {
        version,
        correlation_id: 1,
        client_id: None,
        writer: &mut writer,
    };
    request.body.encode(&mut frame).unwrap();
    let bytes = writer.into_bytes();
    let (_, asked) =
        ottla_protocol::frame::decode_request::<MetadataRequest<'_>>(&bytes[4..]).unwrap();
    assert_eq!(asked.topics, None, "null is all");
    assert_eq!(trial.metadata.names(), None);
    let topic = |name, is_internal| MetadataResponseTopic {
        name: Some(name),
        is_internal,
        ..MetadataResponseTopic::default()
    };
    let response = MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: 1,
            host: "a",
            port: 1,
            ..MetadataResponseBroker::default()
        }],
        topics: vec![topic("u", false), topic("__consumer_offsets", true), topic("orders", false)],
        ..MetadataResponse::default()
    };
    let mut writer = Writer::new();
    ottla_protocol::Message::encode(&response, &mut writer, version).unwrap();
    let body = Bytes::from(writer.into_bytes());
    let answer = Answer { version, body, broker: Rc::from("a:1"), throttle: Rc::default() };
    assert!(trial.answer(request.token, Ok(answer)));
    let names = trial.metadata.names().unwrap();
    assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), told);
    assert!(!trial.metadata.cluster().topics.contains_key("u"), "only what is wanted is kept");
    trial.metadata.watch_names(NameWatch::Off, trial.now);
    assert_eq!(trial.metadata.names(), None);
}

#[test]
fn more_topics_than_a_request_takes_are_asked_about_by_two_and_then_left_alone() {
    let mut trial = Trial::new();
    let many = TOPICS_MAX + 3;
    for number in 0..many {
        trial.metadata.pin(&format!("topic-{number}").into(), trial.now);
    }
    let named = |trial: &Trial, token| {
        trial.metadata.wanted.values().filter(|wanted| wanted.asked == token).count()
    };
    let partition = MetadataResponsePartition { leader_id: 1, ..Default::default() };
    let names: Vec<String> = (0..many).map(|number| format!("topic-{number}")).collect();
    let all = || {
        names.iter().map(|name| MetadataResponseTopic {
            name: Some(name),
            partitions: vec![partition.clone()],
            ..Default::default()
        })
    };
    // The first time, when all is known and aged, and after a request that failed.
    for round in 0..3 {
        let mut first = trial.asked().expect("a request is due");
        assert_eq!(named(&trial, first), TOPICS_MAX);
        if round == 2 {
            trial.answer(first, fault());
            trial.now = trial.metadata.poll_timeout().unwrap();
            first = trial.asked().expect("again");
            assert_eq!(named(&trial, first), TOPICS_MAX);
        }
        trial.answer(first, Ok(response(all().collect())));
        let second = trial.asked().expect("the rest follows at once");
        assert_eq!(named(&trial, second), 3);
        trial.answer(second, Ok(response(all().collect())));
        assert_eq!(trial.asked(), None, "all are asked about");
        let due = trial.metadata.poll_timeout().unwrap();
        assert_eq!(due.duration_since(trial.now), Duration::from_mins(5), "metadata.max.age.ms");
        trial.now = due;
    }
}

#[test]
fn an_answer_of_another_cluster_is_not_believed_and_the_cluster_is_looked_for_anew() {
    let mut trial = Trial::new();
    let topic = Arc::clone(&trial.topic);
    trial.metadata.want(&topic, trial.now);
    let token = trial.asked().unwrap();
    assert!(trial.answer(token, Ok(response_of(Some("ours"), Vec::new()))));
    assert_eq!(trial.metadata.take_stray(), None);
    assert_eq!(trial.metadata.expected(), Some("ours"));
    let ask = |trial: &mut Trial| {
        trial.now = trial.metadata.poll_timeout().unwrap();
        trial.asked().unwrap()
    };
    let token = ask(&mut trial);
    assert!(!trial.answer(token, Ok(response_of(Some("theirs"), Vec::new()))));
    let (known, found) = ("ours".to_owned(), "theirs".to_owned());
    let left = Stray::Left { broker: "b:9092".to_owned(), known, found };
    assert_eq!(trial.metadata.take_stray(), Some(left));
    assert!(trial.metadata.cluster().brokers.is_empty(), "the options' addresses are asked next");
    let error = trial.metadata.last_error().unwrap();
    assert!(error.to_string().contains("theirs") && error.retriable(), "{error}");
    // It was one broker; the cluster itself is where it was.
    let token = ask(&mut trial);
    assert!(trial.answer(token, Ok(response_of(Some("ours"), Vec::new()))));
    assert_eq!(trial.metadata.take_stray(), None);
    // The options' addresses lead elsewhere: whoever wrote them there is believed, and it is told.
    trial.metadata.rebootstrap(trial.now);
    let token = ask(&mut trial);
    assert!(trial.answer(token, Ok(response_of(Some("theirs"), Vec::new()))));
    let (known, found) = ("ours".to_owned(), "theirs".to_owned());
    assert_eq!(trial.metadata.take_stray(), Some(Stray::Moved { known, found }));
    assert_eq!(trial.metadata.expected(), Some("theirs"));
}

/// Brokers that take connections may have lost the cluster: nobody of them counts as down.
#[test]
fn brokers_that_tell_nothing_for_long_are_given_up_for_those_of_the_options() {
    for (strategy, given_up) in [("rebootstrap", true), ("none", false)] {
        let options = "metadata.recovery.rebootstrap.trigger.ms=60000";
        let options = format!("{options};metadata.recovery.strategy={strategy}");
        let mut trial = Trial::with(&options);
        let topic = Arc::clone(&trial.topic);
        trial.metadata.want(&topic, trial.now);
        trial.answer_topic(ErrorCode::NONE, 1, 1);
        let ask = |trial: &mut Trial| {
            trial.now = trial.metadata.poll_timeout().unwrap();
            trial.asked().unwrap()
        };
        let fail = |trial: &mut Trial| {
            let token = ask(trial);
            trial.answer(token, fault());
            trial.metadata.cluster().brokers.is_empty()
        };
        // One answer that tells something is enough to begin counting anew.
        assert!(!fail(&mut trial));
        trial.wait(59_000);
        assert!(!fail(&mut trial));
        let token = ask(&mut trial);
        assert!(trial.answer(token, Ok(response(Vec::new()))));
        assert!(!fail(&mut trial));
        let first = trial.now;
        while trial.now < first + Duration::from_mins(1) {
            assert!(trial.now == first || !trial.metadata.cluster().brokers.is_empty());
            fail(&mut trial);
        }
        assert_eq!(trial.metadata.cluster().brokers.is_empty(), given_up, "{strategy}");
    }
}

/// KIP-1102. Who is told never to look for the cluster anew asks those it knows again.
#[test]
fn a_broker_that_sends_its_clients_away_is_left_for_those_of_the_options() {
    for (strategy, left) in [("rebootstrap", true), ("none", false)] {
        let mut trial = Trial::with(&format!("metadata.recovery.strategy={strategy}"));
        let topic = Arc::clone(&trial.topic);
        trial.metadata.want(&topic, trial.now);
        trial.answer_topic(ErrorCode::NONE, 1, 1);
        trial.now = trial.metadata.poll_timeout().unwrap();
        let token = trial.asked().unwrap();
        let error_code = ErrorCode::REBOOTSTRAP_REQUIRED;
        let asks = MetadataResponse { error_code, ..MetadataResponse::default() };
        assert!(!trial.answer(token, Ok(answered(13, &asks))));
        assert_eq!(trial.metadata.cluster().brokers.is_empty(), left, "{strategy}");
    }
}

#[test]
fn however_short_the_age_there_is_a_pause_between_two_questions() {
    let mut trial = Trial::with("metadata.max.age.ms=0;retry.backoff.ms=100");
    let topic = Arc::clone(&trial.topic);
    trial.metadata.want(&topic, trial.now);
    trial.answer_topic(ErrorCode::NONE, 1, 0);
    trial.wait(79);
    assert_eq!(trial.asked(), None, "80 ms at least");
    trial.wait(42);
    assert!(trial.asked().is_some(), "120 ms at most");
}

#[test]
fn names_are_looked_up_for_so_long_and_once_one_is_known_for_ever() {
    let dns = || -> Reply {
        let error = Error::new(ErrorKind::Dns, "cannot resolve `b`");
        Err(LinkFault { error, written: false })
    };
    for (limit, ends) in [("0", false), ("5000", true)] {
        let mut trial = Trial::with(&format!("bootstrap.resolve.timeout.ms={limit}"));
        let mut note = |after: u64, reply: &Reply| {
            trial.now += Duration::from_millis(after);
            trial.metadata.note_reply(reply, trial.now).is_some()
        };
        assert!(!note(0, &dns()));
        assert!(!note(4999, &dns()));
        assert_eq!(note(1, &dns()), ends, "{limit}");
    }
    let mut trial = Trial::with("bootstrap.resolve.timeout.ms=5000");
    assert!(trial.metadata.note_reply(&dns(), trial.now).is_none());
    // Nobody answered there; the name was known all the same.
    assert!(trial.metadata.note_reply(&fault(), trial.now).is_none());
    trial.wait(60_000);
    assert!(trial.metadata.note_reply(&dns(), trial.now).is_none());
}

/// A topic of two partitions, told with replicas on brokers 1 and 2 or 2 alone, which stand in racks.
fn in_racks(epoch: i32, racks: [Option<&str>; 2]) -> Answer {
    let partition = |partition_index, replica_nodes| MetadataResponsePartition {
        partition_index,
        leader_id: 2,
        leader_epoch: epoch,
        replica_nodes,
        ..Default::default()
    };
    let partitions = vec![partition(0, vec![2, 1]), partition(1, vec![2])];
    let topic = MetadataResponseTopic { name: Some("orders"), partitions, ..Default::default() };
    let broker = |(node_id, rack)| MetadataResponseBroker { node_id, host: "b", port: 9092, rack };
    let response = MetadataResponse {
        brokers: (1..).zip(racks).map(broker).collect(),
        topics: vec![topic],
        ..Default::default()
    };
    answered(VERSION, &response)
}

#[test]
fn where_partitions_stand_is_kept_for_consumers_of_a_group_alone() {
    for keeps_racks in [true, false] {
        let options = Options::parse("bootstrap.servers=a:1").unwrap();
        let config = CommonConfig { keeps_racks, ..CommonConfig::new(&options, true).unwrap() };
        let mut trial = Trial { metadata: Metadata::new(&config), ..Trial::new() };
        let topic = Arc::clone(&trial.topic);
        trial.metadata.pin(&topic, trial.now);
        let mut told = |epoch, racks| {
            trial.metadata.request_refresh(trial.now);
            trial.now = trial.metadata.poll_timeout().unwrap();
            let token = trial.asked().unwrap();
            trial.answer(token, Ok(in_racks(epoch, racks)));
            let racks = trial.metadata.cluster().topic("orders").unwrap().racks.clone();
            let sets = racks.iter().flat_map(|racks| racks.iter());
            sets.map(|set| set.join(" ")).collect::<Vec<_>>()
        };
        let shown = |racks: &[&str]| if keeps_racks { racks.join(";") } else { String::new() };
        assert_eq!(told(1, [None, None]).join(";"), "", "no broker tells");
        assert_eq!(told(1, [Some("b"), Some("a")]).join(";"), shown(&["a b", "a"]));
        assert_eq!(told(2, [Some("a"), Some("a")]).join(";"), shown(&["a", "a"]));
        assert_eq!(told(1, [Some("x"), Some("x")]).join(";"), shown(&["a", "a"]), "of the past");
        assert_eq!(told(2, [None, Some("a")]).join(";"), shown(&["a", "a"]), "it tells none now");
    }
}
