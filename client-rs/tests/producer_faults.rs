//! A producer whose brokers cannot be reached, or read nothing, and one whose memory is full.
//!
//! What brokers do that speak is told by the cases of `conformance/clients`. These stay in Rust:
//! what answers here is no broker at all, or an address that nobody has; or the story is of what
//! lies in the client and the system, memory and unwritten bytes, and not of requests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod patience;
mod scripted;

use std::io::Read;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use clients::nobody;
use ottla::{Error, ErrorKind, Options, Outcome, Producer, Record};
use patience::{LIMIT, given_time, within_limit};
use scripted::{Act, Script, ScriptedBroker, TOPIC};

fn producer(bootstrap: &str, more: &str) -> Producer {
    let text = format!("bootstrap.servers={bootstrap};retry.backoff.ms=5;{more}");
    Producer::new(&Options::parse(&text).unwrap()).unwrap()
}

#[test]
fn the_cause_of_a_failure_to_connect_is_told() {
    within_limit(|| {
        let mut trials = vec![
            (nobody(), ErrorKind::Connect, "nothing listens"),
            ("no-such-host.invalid:9092".to_owned(), ErrorKind::Dns, "has no address here"),
        ];
        for (greeting, hint) in [
            (b"\x15\x03\x03\x00\x02\x02\x28".as_slice(), "speaks TLS"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), "HTTP server"),
            (b"".as_slice(), "may want TLS or SASL"),
        ] {
            let script = Script { greeting: Some(greeting), ..Script::default() };
            let kind =
                if greeting.is_empty() { ErrorKind::Disconnected } else { ErrorKind::Protocol };
            trials.push((ScriptedBroker::start(script).bootstrap(), kind, hint));
        }
        for (bootstrap, kind, hint) in trials {
            let error = given_time(
                |error| cause(error).is_some_and(|cause| cause.kind() == kind),
                |times| {
                    let limits = format!("max.block.ms={};reconnect.backoff.ms=5", 300 * times);
                    failure(&bootstrap, &limits)
                },
            );
            assert_eq!(cause(&error).unwrap().kind(), kind, "{error}");
            assert!(error.to_string().contains(hint), "{error}");
        }
    });
}

/// The error of a record that never left the client.
fn failure(bootstrap: &str, limits: &str) -> Error {
    let producer = producer(bootstrap, limits);
    let error = producer.send(&Record::to(TOPIC).value("a")).unwrap().wait(LIMIT).unwrap_err();
    assert_eq!(error.outcome(), Some(Outcome::NotSent), "{error}");
    producer.close(LIMIT).unwrap();
    error
}

fn cause(error: &Error) -> Option<&Error> {
    std::error::Error::source(error)?.downcast_ref()
}

/// What is told of a record sent to a broker of this script has all these words in it, among its
/// causes and hints, if there is time to come across them.
fn is_told(script: Script, words: &[&str]) {
    let bootstrap = ScriptedBroker::start(script).bootstrap();
    let text = given_time(
        |text: &String| words.iter().all(|words| text.contains(words)),
        |times| {
            let (short, long) = (300 * times, 600 * times);
            let limits = format!(
                "max.block.ms={short};delivery.timeout.ms={long};request.timeout.ms={short};\
                reconnect.backoff.ms=5"
            );
            failure(&bootstrap, &limits).to_string()
        },
    );
    for words in words {
        assert!(text.contains(words), "{words} is not in: {text}");
    }
}

#[test]
fn an_advertised_address_that_leads_nowhere_is_told_with_what_to_set() {
    within_limit(|| {
        for (advertised, words) in [
            (("localhost", 1), "the machine on which this client runs"),
            (("127.0.0.1", 1), "the machine on which this client runs"),
            (("broker-of-a-container", 9092), "a name without dots"),
            (("no-such-host.invalid", 9092), "see the broker's `advertised.listeners`"),
        ] {
            let named = format!("The cluster advertises {}:{}", advertised.0, advertised.1);
            let script = Script { advertised: Some(advertised), ..Script::default() };
            is_told(script, &[&named, words]);
        }
    });
}

#[test]
fn a_broker_that_is_too_old_or_too_new_is_told_of() {
    within_limit(|| {
        let versions = "speaks Produce in versions";
        let old = Script { produce_max: 2, ..Script::default() };
        is_told(old, &[versions, "the broker is older than"]);
        let new = Script { produce_min: 90, produce_max: 99, ..Script::default() };
        is_told(new, &[versions, "the broker is newer than"]);
    });
}

#[test]
fn a_length_without_its_bytes_does_not_take_memory_and_is_given_up() {
    within_limit(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bootstrap = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // 90 MiB are announced, and one byte comes.
                std::io::Write::write_all(&mut stream, &[5, 160, 0, 0, 1]).unwrap();
                thread::spawn(move || stream.read(&mut [0; 4096]).ok());
            }
        });
        let error = given_time(
            |error: &Error| error.kind() == ErrorKind::DeliveryTimeout,
            |times| {
                let (answer, end) = (100 * times, 300 * times);
                failure(&bootstrap, &format!("max.block.ms={end};request.timeout.ms={answer}"))
            },
        );
        assert_eq!(error.kind(), ErrorKind::DeliveryTimeout, "{error}");
    });
}

#[test]
fn full_memory_makes_senders_wait_and_frees_itself() {
    within_limit(|| {
        let acts = vec![Act::Ignore; 3];
        let broker = ScriptedBroker::start(Script { acts, ..Script::default() });
        let limits = "buffer.memory=65536;request.timeout.ms=300;max.block.ms=100000";
        let producer = producer(&broker.bootstrap(), limits);
        let value = [b'x'; 1000];
        let record = Record::to(TOPIC).value(&value);
        let refused = std::iter::repeat_with(|| producer.try_send(&record).err());
        let refused = refused.flatten().next().unwrap();
        assert_eq!(refused.kind(), ErrorKind::BufferFull);
        assert_eq!(refused.outcome(), Some(Outcome::NotSent));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let producer = producer.clone();
                thread::spawn(move || {
                    (0..100).for_each(|_| drop(producer.send(&Record::to(TOPIC).value(&value))));
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let (room, _) = patience::block_on(producer.room(1000));
        room.unwrap();
        producer.flush(LIMIT).unwrap();
        patience::wait_until("room given back", || producer.stats().memory_used == 0);
        assert!(broker.stored(0).len() >= 400);
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_send_that_finds_no_room_in_time_gives_the_record_back() {
    within_limit(|| {
        let acts = vec![Act::Ignore; 1000];
        let broker = ScriptedBroker::start(Script { acts, ..Script::default() });
        let producer = producer(&broker.bootstrap(), "buffer.memory=32768;max.block.ms=100");
        let value = [b'x'; 1000];
        let record = Record::to(TOPIC).value(&value);
        let refused = std::iter::repeat_with(|| producer.send(&record).err());
        let refused = refused.flatten().next().unwrap();
        assert_eq!(refused.kind(), ErrorKind::BufferFull);
        assert_eq!(refused.outcome(), Some(Outcome::NotSent));
        producer.close(Duration::ZERO).ok();
    });
}

#[test]
fn records_of_which_nothing_was_written_are_told_from_those_that_may_be_stored() {
    within_limit(|| {
        let broker = ScriptedBroker::start(Script { partitions: 8, ..Script::default() });
        // A request takes one of these records.
        let options = "linger.ms=0;max.request.size=1048576;buffer.memory=134217728";
        let producer = producer(&broker.bootstrap(), options);
        producer.send(&Record::to(TOPIC).value("x")).unwrap().wait(LIMIT).unwrap();
        let deaf = broker.deafen();
        let value = vec![b'x'; 1_000_000];
        let send = |number: i32| {
            let record = Record::to(TOPIC).partition(number % 8).value(&value);
            producer.send(&record).unwrap()
        };
        // More than the system keeps of what nobody reads.
        let sent: Vec<_> = (0..40).map(send).collect();
        patience::wait_until("a first request", || broker.see(|seen| seen.called));
        producer.close(Duration::from_millis(300)).ok();
        let outcomes: Vec<_> = sent
            .iter()
            .map(|sent| sent.wait(Duration::ZERO).unwrap_err().outcome().unwrap())
            .collect();
        drop(deaf);
        patience::wait_until("the end of what came", || broker.see(|seen| seen.begun.is_some()));
        let begun = broker.see(|seen| seen.begun.unwrap());
        let count = |wanted| outcomes.iter().filter(|&&outcome| outcome == wanted).count();
        println!("of {} requests {begun} were begun", sent.len());
        assert_eq!(count(Outcome::PossiblyPersisted), begun, "{outcomes:?}");
        assert_eq!(count(Outcome::NotSent), sent.len() - begun);
        assert!(begun < sent.len());
    });
}
