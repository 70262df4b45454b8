//! Programs that ask for what cannot be, and clients that find nobody: a clear error, and no hang.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod patience;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clients::{nobody, options, producer};
use cluster::{Cluster, fresh};
use ottla::{
    Commit, Consumer, Error, ErrorClass, ErrorKind, Header, Options, Outcome, Producer, Record,
    TopicPartition,
};
use patience::{LIMIT, block_on, given_time, wait_until, within_limit};

/// A producer that comes to an end soon where nobody answers, or so many times later.
fn short_of_time(bootstrap: &str, times: u32, more: &[(&str, &str)]) -> Producer {
    let (answer, end) = ((100 * times).to_string(), (400 * times).to_string());
    let mut pairs = vec![
        ("request.timeout.ms", answer.as_str()),
        ("delivery.timeout.ms", &end),
        ("max.block.ms", &end),
        ("linger.ms", "0"),
    ];
    pairs.extend(more);
    producer(bootstrap, &pairs)
}

/// The error with all its causes, and what a person can do about each.
fn whole_story(error: &Error) -> String {
    let mut text = format!("{error} [{:?}]", error.hint());
    let mut cause = std::error::Error::source(error);
    while let Some(at) = cause {
        let hint = at.downcast_ref::<Error>().and_then(Error::hint);
        write!(text, " <- {at} [{hint:?}]").unwrap();
        cause = at.source();
    }
    text
}

fn refused_option(name: &str, value: &str) -> Error {
    let error = Options::new().set(name, value).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{name}={value}");
    assert_eq!(error.class(), ErrorClass::Usage);
    assert!(error.to_string().contains(name), "{error}");
    error
}

#[test]
fn an_unknown_option_is_refused_and_the_nearest_is_named() {
    for (wrong, meant) in [
        ("bootstrap.server", "bootstrap.servers"),
        ("linger.msec", "linger.ms"),
        ("compresion", "compression.type"),
        ("maxBlok", "max.block.ms"),
        ("enable_auto_comit", "enable.auto.commit"),
    ] {
        let error = refused_option(wrong, "1");
        assert!(error.hint().unwrap().contains(&format!("`{meant}`")), "{wrong}: {error:?}");
    }
    let error = Options::parse("bootstrap.servers=localhost:9092;ack=all").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.hint().unwrap().contains("`acks`"), "{error:?}");
    let error = Options::parse("bootstrap.servers").unwrap_err();
    assert!(error.to_string().contains("name=value"), "{error}");
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_what_the_option_takes() {
    for (name, value, takes) in [
        ("linger.ms", "soon", "whole number of milliseconds"),
        ("linger.ms", "-1", "from 0"),
        ("linger.ms", "1.5", "whole"),
        ("request.timeout.ms", "", "from 1"),
        ("buffer.memory", "1", "from 32768"),
        ("batch.size", "64k", "number of bytes"),
        ("acks", "2", "all, -1, 0, 1"),
        ("enable.idempotence", "yes", "true or false"),
        ("compression.type", "brotli", "none, gzip, snappy, lz4, zstd"),
        ("compression.zstd.level", "23", "from -131072 to 22"),
        ("partitioner", "nearest", "round_robin"),
        ("auto.offset.reset", "first", "earliest, latest, none"),
        ("auto.offset.reset", "by_duration:1h", "PT1H"),
        ("max.poll.records", "99999999999999999999", "to 2147483647"),
    ] {
        let error = refused_option(name, value);
        assert!(error.to_string().contains(takes), "{error}");
    }
}

#[test]
fn options_that_contradict_each_other_are_refused_by_the_client() {
    for pairs in [
        &[("acks", "1"), ("enable.idempotence", "true")][..],
        &[("max.in.flight.requests.per.connection", "6")],
        &[("retries", "0")],
        &[("compression.gzip.level", "0"), ("compression.type", "zstd")],
        &[("delivery.timeout.ms", "1000")],
    ] {
        let error = Producer::new(&options("localhost:9092", pairs)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{pairs:?}");
        assert!(error.to_string().contains(pairs[0].0), "{error}");
    }
    let pairs = [("isolation.level", "read_committed")];
    let error = Consumer::new(&options("localhost:9092", &pairs)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("transactions are not supported"), "{error}");
    let pairs = [("session.timeout.ms", "1000"), ("heartbeat.interval.ms", "1000")];
    let error = Consumer::new(&options("localhost:9092", &pairs)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
}

#[test]
fn a_bad_address_is_refused_before_anything_is_connected() {
    for address in [
        "localhost",
        "localhost:",
        "localhost:0",
        "localhost:65536",
        ":9092",
        "::1:9092",
        "",
        " , ",
    ] {
        let options = Options::new().set("bootstrap.servers", address).unwrap();
        let of_producer = Producer::new(&options).unwrap_err();
        let of_consumer = Consumer::new(&options).unwrap_err();
        for error in [of_producer, of_consumer] {
            assert_eq!(error.kind(), ErrorKind::InvalidOption, "{address}");
            assert!(error.to_string().contains("bootstrap.servers"), "{error}");
            assert!(error.to_string().contains(address.trim_matches([' ', ','])), "{error}");
        }
    }
    let missing = Producer::new(&Options::new()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::InvalidOption);
    assert!(missing.to_string().contains("bootstrap.servers"), "{missing}");
}

/// What a record comes to by each way of waiting for it, with the same producer; with time enough
/// each tells its story in these words.
fn send_in_vain(bootstrap: String, words: &str) -> Vec<Error> {
    let words = words.to_owned();
    let told =
        move |errors: &Vec<Error>| errors.iter().all(|error| whole_story(error).contains(&words));
    within_limit(move || given_time(told, |times| send_once_in_vain(&bootstrap, times)))
}

fn send_once_in_vain(bootstrap: &str, times: u32) -> Vec<Error> {
    let producer = short_of_time(bootstrap, times, &[]);
    let record = Record::to("orders").key("k").value("v");
    let blocking = producer.send(&record).unwrap();
    let awaited = producer.send(&record).unwrap();
    let many = producer.send_many(&[record, record]);
    drop(producer.send(&record).unwrap());
    let mut errors = vec![blocking.wait(LIMIT).unwrap_err()];
    errors.push(block_on(awaited).0.unwrap_err());
    errors.extend(many.wait(LIMIT).into_iter().map(Result::unwrap_err));
    assert_eq!(errors.len(), 4);
    // They share their fate, so it is known of the one that nobody holds too. It is told of once, by
    // what ends next, unless it was let go only after it had failed.
    let ends = [producer.flush(LIMIT), producer.close(LIMIT), producer.close(LIMIT)];
    let unseen: Vec<Error> = ends.into_iter().filter_map(Result::err).collect();
    assert!(unseen.len() <= 1, "{unseen:?}");
    assert!(unseen.iter().all(|error| error.kind() == errors[0].kind()), "{unseen:?}");
    assert_eq!(producer.stats().failed, 5);
    assert_eq!(producer.stats().memory_used, 0);
    errors
}

#[test]
fn nobody_listening_is_named_with_the_address_and_what_to_look_at() {
    let address = nobody();
    let words = format!("nothing listens at {address}");
    for error in send_in_vain(address, &words) {
        assert_eq!(error.kind(), ErrorKind::DeliveryTimeout);
        assert!(error.retriable());
        assert_eq!(error.outcome(), Some(Outcome::NotSent));
        assert_eq!(error.topic(), Some("orders"));
        let story = whole_story(&error);
        assert!(story.contains(&words), "{story}");
    }
}

#[test]
fn a_peer_that_never_answers_is_no_hang() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for error in send_in_vain(listener.local_addr().unwrap().to_string(), "did not answer") {
        assert_eq!(error.outcome(), Some(Outcome::NotSent));
        let story = whole_story(&error);
        assert_eq!(error.kind(), ErrorKind::DeliveryTimeout, "{story}");
        assert!(story.contains("did not answer"), "{story}");
    }
}

#[test]
fn a_peer_of_another_protocol_is_named_for_what_it_is() {
    for (answer, hint) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "HTTP server"),
        (&[0x15, 3, 3, 0, 2, 2, 80], "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH server"),
        (b"", "TLS or SASL"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // It hears us out, lest its answer is lost to a reset.
                stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                let mut heard = [0; 4096];
                let heard = stream.read(&mut heard).unwrap_or(0);
                if heard > 0 {
                    stream.write_all(answer).ok();
                }
            }
        });
        for error in send_in_vain(address, hint) {
            let story = whole_story(&error);
            assert!(story.contains(hint), "{story}");
        }
    }
}

#[test]
fn a_name_that_leads_nowhere_is_no_hang() {
    for error in send_in_vain("no-such-host.invalid:9092".to_owned(), "") {
        assert!(error.retriable(), "{error:?}");
        assert_eq!(error.outcome(), Some(Outcome::NotSent));
    }
}

/// A producer of a topic that there is not, and what it tells of its record if it has the time to
/// hear of that.
fn told_unknown(cluster: &Cluster, topic: &str, more: &[(&str, &str)]) -> (Producer, Error) {
    given_time(
        |(_, error): &(_, Error)| error.kind() == ErrorKind::UnknownTopic,
        |times| {
            let producer = short_of_time(&cluster.bootstrap(), times, more);
            let sent = producer.send(&Record::to(topic).key("k")).unwrap();
            let error = sent.wait(LIMIT).unwrap_err();
            (producer, error)
        },
    )
}

#[test]
fn an_unknown_topic_that_must_not_be_created_is_named() {
    within_limit(|| {
        let (cluster, nowhere) = (Cluster::start(), fresh("nowhere"));
        let uncreated = [("allow.auto.create.topics", "false")];
        let (producer, error) = told_unknown(&cluster, &nowhere, &uncreated);
        assert_eq!(error.kind(), ErrorKind::UnknownTopic, "{error:?}");
        assert_eq!((error.topic(), error.outcome()), (Some(&*nowhere), Some(Outcome::NotSent)));
        // It holds up no other topic, and may come to be.
        cluster.make_topic(&nowhere, 1);
        wait_until("a delivery", || {
            let again = producer.send(&Record::to(&nowhere).key("k")).unwrap().wait(LIMIT);
            again.is_ok_and(|delivery| delivery.offset >= 0)
        });
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_topic_that_the_broker_does_not_create_is_named() {
    within_limit(|| {
        let cluster = Cluster::start_with(&[("auto.create.topics.enable", "false")]);
        let nowhere = fresh("nowhere");
        let (producer, error) = told_unknown(&cluster, &nowhere, &[]);
        assert_eq!(error.kind(), ErrorKind::UnknownTopic, "{error:?}");
        assert_eq!((error.topic(), error.outcome()), (Some(&*nowhere), Some(Outcome::NotSent)));
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn what_no_topic_can_be_called_is_refused_at_once() {
    let producer = producer(&nobody(), &[]);
    let long = "x".repeat(250);
    for name in ["", ".", "..", "a/b", "ä", "a\nb", "a b", &long] {
        let error = producer.send(&Record::to(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidTopic, "{name:?}");
        assert_eq!(error.outcome(), Some(Outcome::NotSent));
    }
    producer.close(LIMIT).unwrap();
}

#[test]
fn a_record_larger_than_the_limit_is_refused_and_one_at_the_limit_is_not() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(1);
        let producer = producer(&cluster.bootstrap(), &[("max.request.size", "10000")]);
        // Header of the batch, and length, attributes, deltas and lengths of key and value.
        let fits = |len: usize| producer.send(&Record::to(&topic).value(&vec![7; len]));
        let largest = (9_000..10_000).rev().find(|&len| fits(len).is_ok()).unwrap();
        assert!(largest > 9_900, "{largest}");
        let error = fits(largest + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RecordTooLarge);
        assert_eq!((error.topic(), error.outcome()), (Some(&*topic), Some(Outcome::NotSent)));
        assert!(error.to_string().contains("10000"), "{error}");
        fits(largest).unwrap().wait(LIMIT).unwrap();
        let header = [Header::new("h", &[7; 10_000])];
        let error = producer.send(&Record::to(&topic).headers(&header)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RecordTooLarge);
        producer.close(LIMIT).unwrap();
        assert_eq!(producer.stats().failed, 0, "what was refused never counted as sent");
    });
}

#[test]
fn a_record_larger_than_the_broker_takes_fails_alone() {
    within_limit(|| {
        let cluster = Cluster::start();
        let topic = cluster.topic_with(1, &[("max.message.bytes", "2000")]);
        // Known first, so that the others travel together.
        let producer = producer(&cluster.bootstrap(), &[("linger.ms", "1000")]);
        producer.send(&Record::to(&topic).value("first")).unwrap().wait(LIMIT).unwrap();
        let large = vec![7; 3_000];
        let values: Vec<Vec<u8>> =
            (0..101).map(|at| if at == 50 { large.clone() } else { vec![at; 100] }).collect();
        let records: Vec<_> = values.iter().map(|value| Record::to(&topic).value(value)).collect();
        let results = producer.send_many(&records).wait(LIMIT);
        let mut offset = 0;
        for (at, result) in results.into_iter().enumerate() {
            if at == 50 {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::RecordTooLarge, "{error:?}");
                assert_eq!(error.outcome(), Some(Outcome::Rejected));
                assert_eq!((error.topic(), error.partition()), (Some(&*topic), Some(0)));
                assert!(error.kafka_code().is_some());
            } else {
                offset += 1;
                assert_eq!(result.unwrap().offset, offset, "record {at}");
            }
        }
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_partition_that_is_not_there_is_refused() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(3);
        let producer = producer(&cluster.bootstrap(), &[]);
        let to = |partition| Record::to(&topic).key("k").partition(partition);
        // Not known yet: what is wrong in any case is refused at once, the rest when it is known.
        assert_eq!(producer.send(&to(-1)).unwrap_err().kind(), ErrorKind::InvalidPartition);
        let late = producer.send(&to(3)).unwrap();
        let fine = producer.send(&to(2)).unwrap();
        assert_eq!(fine.wait(LIMIT).unwrap().partition, 2);
        let late = late.wait(LIMIT).unwrap_err();
        let at_once = producer.send(&to(3)).unwrap_err();
        for error in [late, at_once] {
            assert_eq!(error.kind(), ErrorKind::InvalidPartition);
            assert_eq!((error.topic(), error.partition()), (Some(&*topic), Some(3)));
            assert_eq!(error.outcome(), Some(Outcome::NotSent));
            assert!(error.to_string().contains("0 to 2"), "{error}");
        }
        for partition in [-1, i32::MIN, i32::MAX] {
            let error = producer.try_send(&to(partition)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidPartition, "{partition}");
        }
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_closed_producer_refuses_every_call_and_a_second_close_does_nothing() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(1);
        let producer = producer(&cluster.bootstrap(), &[]);
        producer.send(&Record::to(&topic)).unwrap().wait(LIMIT).unwrap();
        let clone = producer.clone();
        producer.close(LIMIT).unwrap();
        for producer in [&producer, &clone] {
            let record = Record::to(&topic);
            let mut errors = vec![producer.send(&record).unwrap_err()];
            errors.push(producer.try_send(&record).unwrap_err());
            errors.extend(producer.send_many(&[record]).wait(LIMIT).pop().unwrap().err());
            errors.push(block_on(producer.room(100)).0.unwrap_err());
            assert_eq!(errors.len(), 4);
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::Closed);
                assert_eq!(error.class(), ErrorClass::Usage);
            }
            producer.flush(LIMIT).unwrap();
            block_on(producer.flush_async()).0.unwrap();
            producer.close(LIMIT).unwrap();
            block_on(producer.close_async(LIMIT)).0.unwrap();
        }
    });
}

#[test]
fn a_client_that_was_never_used_closes_at_once() {
    within_limit(|| {
        let producer = producer(&nobody(), &[]);
        producer.flush(LIMIT).unwrap();
        producer.close(LIMIT).unwrap();
        producer.close(LIMIT).unwrap();
        assert_eq!(producer.send(&Record::to("t")).unwrap_err().kind(), ErrorKind::Closed);
        let options = options(&nobody(), &[("group.id", "g")]);
        let consumer = Consumer::new(&options).unwrap();
        consumer.close(LIMIT).unwrap();
        consumer.close(LIMIT).unwrap();
        let part = TopicPartition::new("t", 0);
        let mut errors = vec![consumer.subscribe(&["t"]).unwrap_err()];
        errors.push(consumer.poll(LIMIT).unwrap_err());
        errors.push(consumer.poll_batch(LIMIT).unwrap_err());
        errors.push(consumer.commit(Commit::Finished, LIMIT).unwrap_err());
        errors.push(consumer.commit_soon(Commit::Finished).unwrap_err());
        errors.push(consumer.committed(std::slice::from_ref(&part), LIMIT).unwrap_err());
        errors.push(block_on(consumer.next()).0.unwrap_err());
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
        }
    });
}

#[test]
fn a_producer_closed_by_one_thread_lets_go_of_those_that_wait_in_it() {
    within_limit(|| {
        let producer = Arc::new(producer(&nobody(), &[("buffer.memory", "32768")]));
        let large = vec![7; 16_000];
        while producer.try_send(&Record::to("orders").value(&large)).is_ok() {}
        let waiting = Arc::clone(&producer);
        let value = large.clone();
        let sender = thread::spawn(move || waiting.send(&Record::to("orders").value(&value)).err());
        let flushing = Arc::clone(&producer);
        let flusher = thread::spawn(move || flushing.flush(LIMIT));
        let closed = producer.close(Duration::ZERO);
        let refused = sender.join().unwrap().unwrap();
        let flushed = flusher.join().unwrap();
        // Whichever of the two asked first was told of the lost records.
        let lost = closed.and(flushed).unwrap_err();
        for error in [refused, lost] {
            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Closed, Some(Outcome::NotSent))
            );
        }
    });
}
