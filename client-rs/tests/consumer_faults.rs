//! Consumers that were told nonsense, or find nobody.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "tests measure real time against a limit")]

mod clients;
mod cluster;
mod patience;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use clients::{member_options, nobody};
use cluster::{Cluster, fresh};
use ottla::{Commit, Consumer, ErrorKind, Options, TopicPartition};
use patience::LIMIT;

/// A member of a topic's own group, as soon as it subscribes.
fn consumer(bootstrap: &str, topic: &str) -> Consumer {
    Consumer::new(&member_options(bootstrap, topic, &[])).unwrap()
}

/// Asks until an error comes.
fn fault(consumer: &Consumer) -> ottla::Error {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        match consumer.poll(Duration::from_millis(100)) {
            Ok(record) => assert!(record.is_none()),
            Err(error) => return error,
        }
    }
    panic!("no error came");
}

#[test]
fn nobody_listening_is_an_error_and_no_hang() {
    let address = nobody();
    let consumer = consumer(&address, "t");
    consumer.subscribe(&["t"]).unwrap();
    let error = fault(&consumer);
    assert_eq!(error.kind(), ErrorKind::Connect, "{error:?}");
    assert!(error.retriable());
    assert!(error.to_string().contains(&address), "{error}");
    let part = TopicPartition::new("t", 0);
    let error = consumer.committed(&[part], Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let began = Instant::now();
    consumer.close(LIMIT).unwrap();
    assert!(began.elapsed() < LIMIT, "it knows no group to say goodbye to");
    assert_eq!(consumer.poll(LIMIT).unwrap_err().kind(), ErrorKind::Closed);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn a_peer_that_never_answers_holds_no_call_longer_than_its_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let consumer = consumer(&listener.local_addr().unwrap().to_string(), "t");
    consumer.subscribe(&["t"]).unwrap();
    let began = Instant::now();
    assert!(consumer.poll(Duration::from_millis(50)).unwrap().is_none());
    let part = TopicPartition::new("t", 0);
    let error = consumer.committed(&[part], Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    consumer.close(Duration::from_millis(50)).unwrap();
    assert!(began.elapsed() < LIMIT);
}

#[test]
fn a_topic_that_does_not_exist_is_named() {
    let (cluster, nope) = (Cluster::start(), fresh("nope"));
    let consumer = consumer(&cluster.bootstrap(), &nope);
    consumer.subscribe(&[&nope]).unwrap();
    let error = fault(&consumer);
    assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some(&*nope)));
    assert!(error.hint().unwrap().contains("is the name right?"), "{error}");
    assert!(error.retriable(), "it may come to be");
    consumer.close(LIMIT).unwrap();
}

#[test]
fn what_cannot_be_meant_is_refused_at_the_call() {
    let options = Options::new().set("bootstrap.servers", "127.0.0.1:1").unwrap();
    let homeless = Consumer::new(&options).unwrap();
    assert_eq!(homeless.subscribe(&["t"]).unwrap_err().kind(), ErrorKind::InvalidGroup);
    homeless.close(LIMIT).unwrap();
    let options = options.set("group.id", "g").unwrap();
    let consumer = Consumer::new(&options).unwrap();
    for topic in ["", ".", "..", "a/b", "ä", "a\n", &"x".repeat(250)] {
        let error = consumer.subscribe(&[topic]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidTopic, "{topic}");
    }
    let part = TopicPartition::new("t", 0);
    let error = consumer.commit(Commit::Offsets(&[(part.clone(), -1)]), LIMIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = consumer.commit(Commit::Offsets(&[(part.clone(), 1)]), LIMIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitFenced);
    assert_eq!(consumer.seek(&part, 3).unwrap_err().kind(), ErrorKind::NotAssigned);
    assert_eq!(consumer.position(&part), None);
    consumer.commit(Commit::Finished, LIMIT).unwrap();
    consumer.close(LIMIT).unwrap();
    let impossible = [
        (TopicPartition::new("a/b", 0), ErrorKind::InvalidTopic),
        (TopicPartition::new("t", -1), ErrorKind::InvalidPartition),
    ];
    let consumer = Consumer::new(&options).unwrap();
    for (part, kind) in impossible {
        let one = std::slice::from_ref(&part);
        assert_eq!(consumer.committed(one, LIMIT).unwrap_err().kind(), kind);
        assert_eq!(consumer.end_offsets(one, LIMIT).unwrap_err().kind(), kind);
        let times = [(part.clone(), 7)];
        assert_eq!(consumer.offsets_for_times(&times, LIMIT).unwrap_err().kind(), kind);
        assert_eq!(consumer.assign(one).unwrap_err().kind(), kind);
    }
    let error = consumer.offsets_for_times(&[(part.clone(), 7), (part, 8)], LIMIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "a partition has one answer");
    for pattern in ["(", "a)|(?:b", "a)(?:b"] {
        let error = consumer.subscribe_pattern(pattern).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{pattern}");
    }
    consumer.close(Duration::MAX).unwrap();
    let clash = options.set("heartbeat.interval.ms", "45000").unwrap();
    assert_eq!(Consumer::new(&clash).unwrap_err().kind(), ErrorKind::InvalidOption);
}

#[test]
fn dropping_a_consumer_does_not_wait() {
    let (cluster, topic) = Cluster::with_topic(1);
    for _ in 0..20 {
        let consumer = consumer(&cluster.bootstrap(), &topic);
        consumer.subscribe(&[&topic]).unwrap();
    }
    let consumer = consumer(&cluster.bootstrap(), &topic);
    consumer.subscribe(&[&topic]).unwrap();
    let deadline = Instant::now() + LIMIT;
    while consumer.assignment().is_empty() {
        assert!(Instant::now() < deadline, "members that were dropped still hold the partition");
        assert!(consumer.poll(Duration::from_millis(20)).unwrap().is_none());
    }
    consumer.close(LIMIT).unwrap();
}
