//! What clients count, held against what they were made to do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod patience;
mod scripted;
mod stage;

use std::time::Duration;

use clients::{member, nobody};
use ottla::{
    Commit, Error, ErrorKind, Event, Options, Producer, ProducerStats, Record, TopicPartition,
};
use ottla_protocol::record::HEADER_LEN;
use ottla_protocol::{ApiKey, ErrorCode};
use patience::{LIMIT, block_on, wait_until, within_limit};
use scripted::{Act, Script, ScriptedBroker, TOPIC};
use stage::Stage;

fn producer(broker: &ScriptedBroker, more: &str) -> Producer {
    let text = format!("bootstrap.servers={};retry.backoff.ms=5;{more}", broker.bootstrap());
    Producer::new(&Options::parse(&text).unwrap()).unwrap()
}

/// Sends values one after the other, each when the one before has ended, over brokers with this
/// script; what the producer counted.
fn counted(script: Script, more: &str, values: &[&str]) -> (ProducerStats, ScriptedBroker) {
    let broker = ScriptedBroker::start(script);
    let producer = producer(&broker, more);
    for value in values {
        // Whether it is stored is for the counters to tell.
        producer.send(&Record::to(TOPIC).value(value)).unwrap().wait(LIMIT).ok();
    }
    producer.close(LIMIT).unwrap();
    (producer.stats(), broker)
}

fn script(acts: &[Act]) -> Script {
    Script { acts: acts.to_vec(), ..Script::default() }
}

const HEADER: u64 = 61;

#[test]
fn records_batches_and_bytes_are_what_came_to_the_broker() {
    within_limit(|| {
        assert_eq!(HEADER, u64::try_from(HEADER_LEN).unwrap());
        let (stats, broker) = counted(Script::default(), "", &["one", "two", "three", "four"]);
        assert_eq!((stats.records, stats.batches, stats.delivered, stats.failed), (4, 4, 4, 0));
        assert_eq!((stats.requests, stats.batches_sent, stats.retries), (4, 4, 0));
        assert_eq!((stats.raw_bytes_sent, stats.delivered_bytes), (stats.bytes, stats.bytes));
        let came: usize = broker.see(|seen| seen.came.iter().map(|batch| batch.bytes.len()).sum());
        assert_eq!(stats.bytes_sent, u64::try_from(came).unwrap());
        assert_eq!(stats.bytes_sent, stats.bytes + 4 * HEADER);
        assert_eq!(
            (stats.splits, stats.epoch_bumps, stats.throttled_ms, stats.waits),
            (0, 0, 0, 0)
        );
        assert_eq!(stats.memory_max, 64 * 1024 * 1024);
    });
}

#[test]
fn what_is_sent_again_counts_as_sent_twice_and_as_delivered_once() {
    within_limit(|| {
        let thin = Act::Refuse(ErrorCode::NOT_ENOUGH_REPLICAS);
        let (stats, _) = counted(script(&[thin, thin]), "", &["a"]);
        assert_eq!((stats.records, stats.delivered, stats.retries), (1, 1, 2));
        assert_eq!((stats.requests, stats.batches_sent), (3, 3));
        assert_eq!(stats.bytes_sent, 3 * (stats.bytes + HEADER));
        assert_eq!(stats.raw_bytes_sent, 3 * stats.bytes);
    });
}

#[test]
fn failures_are_told_apart_by_what_may_have_become_of_the_records() {
    within_limit(|| {
        let refuse = Act::Refuse(ErrorCode::INVALID_TIMESTAMP);
        let (stats, _) = counted(script(&[refuse, Act::Store, refuse]), "", &["a", "b", "c"]);
        assert_eq!((stats.delivered, stats.failed, stats.failed_rejected), (1, 2, 2));
        assert_eq!(stats.failed_bytes + stats.delivered_bytes, stats.bytes);
        let broker = ScriptedBroker::start(script(&[Act::Ignore; 9]));
        let unanswered = producer(&broker, "");
        let sent = unanswered.send(&Record::to(TOPIC).value("a")).unwrap();
        wait_until("the batch", || broker.see(|seen| !seen.came.is_empty()));
        unanswered.close(Duration::ZERO).unwrap();
        sent.wait(LIMIT).unwrap_err();
        let stats = unanswered.stats();
        assert_eq!((stats.failed, stats.failed_possibly_persisted), (1, 1));
        assert_eq!(stats.failed_bytes, stats.bytes);
        let short = "request.timeout.ms=100;delivery.timeout.ms=200;linger.ms=0";
        let text = format!("bootstrap.servers={};{short}", nobody());
        let producer = Producer::new(&Options::parse(&text).unwrap()).unwrap();
        let unsent = producer.send(&Record::to(TOPIC).value("unsent")).unwrap();
        unsent.wait(LIMIT).unwrap_err();
        let stats = producer.stats();
        assert_eq!((stats.failed, stats.failed_not_sent, stats.requests), (1, 1, 0));
        assert!(stats.failed_bytes >= 6, "{stats:?}");
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_batch_that_is_halved_and_an_epoch_that_is_raised_are_counted() {
    within_limit(|| {
        let broker = ScriptedBroker::start(Script::default());
        let producer = producer(&broker, "linger.ms=60000");
        let record = |value| Record::to(TOPIC).value(value);
        // The topic is known, so that the records that follow come in one batch.
        producer.send(&record("x")).unwrap().wait(LIMIT).unwrap();
        let large = "y".repeat(600);
        broker.stage(|stage| stage.batch_max = 1_000);
        // One more may be on its way alone; the two that matter fill one batch behind it.
        let sent = producer.send_many(&[record(&large), record(&large), record(&large)]);
        producer.flush(LIMIT).unwrap();
        assert!(sent.wait(LIMIT).iter().all(Result::is_ok));
        let parted: usize =
            broker.see(|seen| seen.came.iter().filter(|batch| batch.bytes.len() > 1_000).count());
        let stats = producer.stats();
        assert_eq!(stats.splits, u64::try_from(parted).unwrap());
        assert_eq!((stats.records, stats.delivered, stats.failed), (4, 4, 0));
        producer.close(LIMIT).unwrap();
        let lost_count = Act::Refuse(ErrorCode::UNKNOWN_PRODUCER_ID);
        let (stats, _) = counted(script(&[Act::Store, lost_count]), "", &["a", "b", "c"]);
        assert_eq!((stats.epoch_bumps, stats.delivered), (1, 3));
    });
}

#[test]
fn what_compression_saves_can_be_seen() {
    within_limit(|| {
        let value = "v".repeat(4_000);
        let (stats, broker) = counted(Script::default(), "compression.type=gzip", &[&value]);
        assert_eq!(stats.raw_bytes_sent, stats.bytes);
        assert!(stats.bytes_sent * 10 < stats.raw_bytes_sent, "{stats:?}");
        let came: usize = broker.see(|seen| seen.came.iter().map(|batch| batch.bytes.len()).sum());
        assert_eq!(stats.bytes_sent, u64::try_from(came).unwrap());
    });
}

#[test]
fn a_pause_is_kept_whatever_the_answer_is_about_that_asks_for_it() {
    within_limit(|| {
        let stage = Stage::start(1);
        let pause = Duration::from_millis(300);
        stage.with(|world| {
            world.logs.insert(0, stage::pieces("0..9", world.epoch));
            world.share = vec![0];
            world.act(ApiKey::OffsetCommit, 1, stage::Act::Throttle(pause));
        });
        let consumer = member(&stage.bootstrap(), stage::TOPIC, &[("enable.auto.commit", "false")]);
        let events = consumer.events();
        assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 0);
        for offset in [4, 5] {
            let marks = [(TopicPartition::new(stage::TOPIC, 0), offset)];
            consumer.commit(Commit::Offsets(&marks), LIMIT).unwrap();
        }
        let told = std::iter::from_fn(|| events.try_next());
        let told = told.filter(|event| matches!(event, Event::Throttled { .. })).count();
        assert_eq!((told, consumer.stats().throttled_ms), (1, 300));
        stage.with(|world| {
            assert_eq!(world.commits, [(0, 4), (0, 5)]);
            assert_eq!(world.impatient, [""; 0], "asked before the time was over");
        });
        consumer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_pause_is_kept_that_the_first_answer_of_a_connection_asks_for() {
    within_limit(|| {
        let stage = Stage::start(1);
        let pause = Duration::from_millis(300);
        stage.with(|world| {
            world.logs.insert(0, stage::pieces("0..9", world.epoch));
            world.share = vec![0];
            world.act(ApiKey::ApiVersions, 1, stage::Act::Throttle(pause));
        });
        let consumer = member(&stage.bootstrap(), stage::TOPIC, &[]);
        let events = consumer.events();
        assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 0);
        let told = std::iter::from_fn(|| events.try_next());
        let told = told.filter(|event| matches!(event, Event::Throttled { .. })).count();
        assert_eq!((told, consumer.stats().throttled_ms), (1, 300));
        stage.with(|world| {
            assert_eq!(world.impatient, [""; 0], "asked before the time was over");
        });
        consumer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_pause_that_a_broker_asks_for_is_added_up() {
    within_limit(|| {
        let broker = ScriptedBroker::start(Script::default());
        let producer = producer(&broker, "");
        for throttle_ms in [20, 0, 7] {
            broker.stage(|stage| stage.throttle_ms = throttle_ms);
            producer.send(&Record::to(TOPIC).value("a")).unwrap().wait(LIMIT).unwrap();
        }
        assert_eq!(producer.stats().throttled_ms, 27);
        producer.close(LIMIT).unwrap();
        let stage = Stage::start(1);
        stage.with(|world| {
            world.logs.insert(0, stage::pieces("0..9", world.epoch));
            world.share = vec![0];
            world.act(ApiKey::Fetch, 1, stage::Act::Throttle(Duration::from_millis(30)));
        });
        let consumer = member(&stage.bootstrap(), stage::TOPIC, &[]);
        assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 0);
        assert_eq!(consumer.stats().throttled_ms, 30);
        consumer.close(LIMIT).unwrap();
    });
}

#[test]
fn sends_that_wait_for_room_are_counted_with_their_time() {
    within_limit(|| {
        // It answers one request, and no other.
        let acts: Vec<Act> = [Act::Store].into_iter().chain([Act::Ignore; 1_000]).collect();
        let broker = ScriptedBroker::start(script(&acts));
        let producer = producer(&broker, "buffer.memory=65536;max.block.ms=50");
        // Records of a topic that is not known yet would give their room back after as long.
        let first = || producer.send(&Record::to(TOPIC).value("first")).unwrap().wait(LIMIT);
        while first().is_err() {}
        let value = "v".repeat(10_000);
        let record = Record::to(TOPIC).value(&value);
        let fill = || while producer.try_send(&record).is_ok() {};
        fill();
        assert_eq!(producer.stats().waits, 0, "who does not wait is not counted");
        let refused = |ask: &dyn Fn() -> Result<(), Error>| loop {
            let before = producer.stats();
            // Some room may be left over when a batch is sent.
            let Err(error) = ask() else {
                fill();
                continue;
            };
            assert_eq!(error.kind(), ErrorKind::BufferFull);
            let after = producer.stats();
            assert_eq!(after.waits - before.waits, 1);
            assert!(after.waited_ms - before.waited_ms >= 50, "{before:?}, {after:?}");
            break;
        };
        refused(&|| producer.send(&record).map(drop));
        refused(&|| block_on(producer.room(10_000)).0);
        producer.close(Duration::ZERO).unwrap_err();
        wait_until("room given back", || producer.stats().memory_used == 0);
    });
}
