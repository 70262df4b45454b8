//! A producer while leaders move, topics come and go, and brokers want less or later.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod patience;
mod scripted;

use std::thread;
use std::time::Duration;

use ottla::{ErrorKind, Options, Outcome, Producer, Record};
use ottla_protocol::{ErrorCode, Uuid};
use patience::{LIMIT, wait_until, within_limit};
use scripted::{Act, Came, Script, ScriptedBroker, TOPIC};

fn producer(broker: &ScriptedBroker, more: &str) -> Producer {
    let text = format!("bootstrap.servers={};retry.backoff.ms=5;{more}", broker.bootstrap());
    Producer::new(&Options::parse(&text).unwrap()).unwrap()
}

/// Sends a value, and gives its offset.
fn store(producer: &Producer, value: &str) -> i64 {
    producer.send(&Record::to(TOPIC).value(value)).unwrap().wait(LIMIT).unwrap().offset
}

fn came<T>(broker: &ScriptedBroker, of: impl Fn(&Came) -> T) -> Vec<T> {
    broker.see(|seen| seen.came.iter().map(of).collect())
}

#[test]
fn a_topic_absent_from_one_answer_keeps_its_sequences() {
    within_limit(|| {
        let moved = Act::Refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        let acts = vec![Act::Store, moved, moved];
        let broker = ScriptedBroker::start(Script { acts, ..Script::default() });
        let producer = producer(&broker, "");
        assert_eq!(store(&producer, "a"), 0);
        broker.stage(|stage| stage.hidden = 1);
        assert_eq!(store(&producer, "b"), 1);
        broker.stage(|stage| assert_eq!(stage.hidden, 0, "it was asked, and left out"));
        assert_eq!(store(&producer, "c"), 2);
        let sequences = came(&broker, |batch| (batch.epoch, batch.sequence));
        assert_eq!(sequences, [(0, 0), (0, 1), (0, 1), (0, 1), (0, 2)]);
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_topic_made_anew_gets_its_records_from_sequence_zero_under_a_new_epoch() {
    within_limit(|| {
        let broker = ScriptedBroker::start(Script::default());
        let producer = producer(&broker, "");
        for (offset, value) in (0..).zip(["a", "b"]) {
            assert_eq!(store(&producer, value), offset);
        }
        let before = broker.recreate(Uuid([6; 16]));
        assert_eq!(before[&0], ["a", "b"]);
        assert_eq!((store(&producer, "c"), store(&producer, "d")), (0, 1));
        assert_eq!(broker.stored(0), ["c", "d"]);
        let sequences = came(&broker, |batch| (batch.epoch, batch.sequence));
        assert_eq!(sequences[sequences.len() - 2..], [(1, 0), (1, 1)]);
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_leader_named_with_a_higher_epoch_is_used_and_older_metadata_does_not_lead_back() {
    within_limit(|| {
        let acts = vec![Act::Store, Act::Store, Act::Drop];
        let broker = ScriptedBroker::start(Script { acts, nodes: 2, ..Script::default() });
        broker.stage(|stage| stage.lead(1, 5));
        let producer = producer(&broker, "");
        store(&producer, "a");
        // Metadata goes on telling of the past.
        broker.stage(|stage| stage.leader = (2, 6));
        store(&producer, "b");
        // A lost connection has the cluster asked again.
        store(&producer, "c");
        assert_eq!(came(&broker, |batch| batch.node), [1, 1, 2, 2, 2]);
        assert_eq!(broker.stored(0), ["a", "b", "c"]);
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_leader_named_with_an_epoch_that_is_not_higher_is_passed_over() {
    within_limit(|| {
        let acts = vec![Act::Store, Act::Hint(2, 4), Act::Hint(2, 5)];
        let broker = ScriptedBroker::start(Script { acts, nodes: 2, ..Script::default() });
        broker.stage(|stage| stage.lead(1, 5));
        let producer = producer(&broker, "");
        assert_eq!((store(&producer, "a"), store(&producer, "b")), (0, 1));
        assert_eq!(came(&broker, |batch| batch.node), [1; 4]);
        producer.close(LIMIT).unwrap();
    });
}

/// librdkafka 3230: without an answer nothing says that another broker leads.
#[test]
fn without_acks_a_closed_connection_has_the_new_leader_looked_for() {
    within_limit(|| {
        let broker = ScriptedBroker::start(Script { nodes: 2, ..Script::default() });
        let producer = producer(&broker, "acks=0;linger.ms=0");
        assert_eq!(store(&producer, "before"), -1, "written, and never an offset");
        wait_until("it is stored", || broker.stored(0) == ["before"]);
        broker.stage(|stage| stage.lead(2, 1));
        let mut lost = 0;
        wait_until("the new leader gets records", || {
            // The old one closes while nothing is on its way: no request's fault tells of it.
            let met = came(&broker, |batch| batch.node).len();
            match producer.send(&Record::to(TOPIC).value("after")).unwrap().wait(LIMIT) {
                Ok(delivery) => assert_eq!(delivery.offset, -1),
                Err(error) => assert_eq!(error.outcome(), Some(Outcome::PossiblyPersisted)),
            }
            lost += 1;
            for _ in 0..100 {
                if came(&broker, |batch| batch.node).len() > met {
                    break;
                }
                // It went to a connection that was closed already, and may never come.
                thread::sleep(Duration::from_millis(1));
            }
            broker.stored(0).len() > 1
        });
        assert!(lost > 1, "the old leader was met first");
        assert!(came(&broker, |batch| batch.node).contains(&2));
        producer.close(LIMIT).unwrap();
    });
}

/// kafkajs 1227.
#[test]
fn small_records_beside_one_too_large_are_stored_and_that_one_alone_is_refused() {
    within_limit(|| {
        let broker = ScriptedBroker::start(Script::default());
        broker.stage(|stage| stage.batch_max = 2_000);
        let producer = producer(&broker, "linger.ms=1000");
        let mut values: Vec<String> = (0..100).map(|number| format!("{number:0100}")).collect();
        values.insert(50, "x".repeat(3_000));
        let records: Vec<Record<'_>> =
            values.iter().map(|at| Record::to(TOPIC).value(at)).collect();
        let sent = producer.send_many(&records);
        producer.flush(LIMIT).unwrap();
        let results = sent.wait(LIMIT);
        let error = results[50].as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RecordTooLarge);
        assert_eq!(error.outcome(), Some(Outcome::Rejected));
        let text = format!("{error} {:?}", error.hint());
        assert!(text.contains("larger than the topic takes") && text.contains("30"), "{text}");
        values.remove(50);
        assert_eq!(broker.stored(0), values, "in order, and once each");
        for (offset, result) in (0..).zip(results.iter().filter_map(|result| result.as_ref().ok()))
        {
            assert_eq!(result.offset, offset);
        }
        producer.close(LIMIT).unwrap();
    });
}

/// Letters that do not compress well.
fn noise(seed: u64) -> String {
    let mut state = seed;
    let mut letter = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        char::from(b'!' + u8::try_from(state >> 33 & 63).unwrap())
    };
    (0..600).map(|_| letter()).collect()
}

/// KAFKA-8350.
#[test]
fn a_batch_larger_than_the_topic_takes_is_parted_until_it_fits_and_no_further() {
    within_limit(|| {
        for (codec, even, parted) in
            [("none", true, true), ("gzip", true, false), ("gzip", false, true)]
        {
            let broker = ScriptedBroker::start(Script::default());
            broker.stage(|stage| stage.batch_max = 1_024);
            let options = format!("linger.ms=1000;batch.size=1048576;compression.type={codec}");
            let producer = producer(&broker, &options);
            let values: Vec<String> =
                (0..50).map(|at| if even { "v".repeat(600) } else { noise(at) }).collect();
            let records: Vec<Record<'_>> =
                values.iter().map(|value| Record::to(TOPIC).value(value)).collect();
            let sent = producer.send_many(&records);
            producer.flush(LIMIT).unwrap();
            let offsets: Vec<i64> =
                sent.wait(LIMIT).into_iter().map(|result| result.unwrap().offset).collect();
            assert_eq!(offsets, (0..50).collect::<Vec<_>>(), "sequences without a gap");
            assert_eq!(broker.stored(0), values);
            let attempts = came(&broker, |batch| batch.sequence).len();
            assert_eq!(attempts > 1, parted, "{codec}, {even}: {attempts}");
            assert!(attempts < 200, "{codec}, {even}: {attempts}");
            producer.close(LIMIT).unwrap();
        }
    });
}

/// Sarama 2619, librdkafka 1092.
#[test]
fn a_log_has_the_order_of_its_sends_over_a_moved_leader_and_a_cut_answer() {
    within_limit(|| {
        let one = "enable.idempotence=false;max.in.flight.requests.per.connection=1";
        for (options, once) in [("", true), (one, false)] {
            let moved = Act::Refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER);
            let acts = vec![Act::Store, moved, Act::Store, Act::StoreAndCut];
            let broker = ScriptedBroker::start(Script { acts, ..Script::default() });
            let producer = producer(&broker, &format!("batch.size=0;{options}"));
            let values: Vec<String> = (0..30).map(|number| format!("{number:02}")).collect();
            let sent: Vec<_> = values
                .iter()
                .map(|value| producer.send(&Record::to(TOPIC).value(value)).unwrap())
                .collect();
            for sent in sent {
                sent.wait(LIMIT).unwrap();
            }
            let mut log = broker.stored(0);
            assert_eq!(log.len() == 30, once, "at least once without idempotence: {log:?}");
            log.dedup();
            assert_eq!(log, values, "{options}");
            producer.close(LIMIT).unwrap();
        }
    });
}

/// kafka-node 1419 (KIP-219).
#[test]
fn a_broker_that_throttles_gets_no_records_before_the_time_is_over() {
    within_limit(|| {
        let broker = ScriptedBroker::start(Script::default());
        let producer = producer(&broker, "linger.ms=0");
        store(&producer, "a");
        broker.stage(|stage| stage.throttle_ms = 400);
        store(&producer, "b");
        store(&producer, "c");
        let at = came(&broker, |batch| batch.at);
        assert!(at[2] - at[1] >= Duration::from_millis(400), "{:?}", at[2] - at[1]);
        producer.close(LIMIT).unwrap();
    });
}
