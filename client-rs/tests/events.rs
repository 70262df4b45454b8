//! What clients tell by events, over real connections.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod patience;
mod scripted;
mod stage;

use std::time::Duration;

use clients::{member, nobody, options};
use ottla::{Admin, Consumer, ErrorKind, Event, Events, Options, Outcome, Producer, Record};
use ottla_protocol::{ApiKey, ErrorCode, Uuid};
use patience::{LIMIT, block_on, within_limit};
use scripted::{Act, Script, ScriptedBroker, TOPIC};
use stage::Stage;

fn producer(broker: &ScriptedBroker, more: &str) -> Producer {
    let text = format!("bootstrap.servers={};retry.backoff.ms=5;{more}", broker.bootstrap());
    Producer::new(&Options::parse(&text).unwrap()).unwrap()
}

/// The next event, which must come.
fn next(events: &Events) -> Event {
    events.next(LIMIT).unwrap().unwrap()
}

#[test]
fn a_failure_that_nobody_can_see_is_told_and_one_that_somebody_can_is_not() {
    within_limit(|| {
        let acts = vec![Act::Refuse(ErrorCode::INVALID_TIMESTAMP); 2];
        let broker = ScriptedBroker::start(Script { acts, ..Script::default() });
        let producer = producer(&broker, "");
        let events = producer.events();
        let held = producer.send(&Record::to(TOPIC).value("held")).unwrap();
        held.wait(LIMIT).unwrap_err();
        assert!(events.try_next().is_none(), "its sender was told");
        // Of which nobody has a token, not even for a moment.
        producer.push(&Record::to(TOPIC).value("forgotten")).unwrap();
        match next(&events) {
            Event::DeliveryFailed { error, records } => {
                assert_eq!((error.kind(), records), (ErrorKind::InvalidTimestamp, 1));
                assert_eq!(error.outcome(), Some(Outcome::Rejected));
                assert_eq!((error.topic(), error.partition()), (Some(TOPIC), Some(0)));
            }
            other => panic!("{other:?}"),
        }
        producer.close(LIMIT).unwrap_err();
        assert!(events.next(LIMIT).unwrap().is_none(), "the client has ended");
        assert!(block_on(events.next_async()).0.unwrap().is_none());
    });
}

#[test]
fn a_raised_epoch_a_pause_and_a_topic_made_anew_are_told_by_a_producer() {
    within_limit(|| {
        let acts = vec![Act::Store, Act::Refuse(ErrorCode::UNKNOWN_PRODUCER_ID)];
        let broker = ScriptedBroker::start(Script { acts, ..Script::default() });
        let producer = producer(&broker, "metadata.max.age.ms=50");
        let events = producer.events();
        let send = || producer.send(&Record::to(TOPIC).value("a")).unwrap().wait(LIMIT).unwrap();
        send();
        send();
        match next(&events) {
            Event::EpochBumped { partition, producer_id, epoch } => {
                assert_eq!((partition.topic.as_ref(), partition.partition), (TOPIC, 0));
                assert_eq!((producer_id, epoch), (7, 1));
            }
            other => panic!("{other:?}"),
        }
        broker.stage(|stage| stage.throttle_ms = 30);
        send();
        match next(&events) {
            Event::Throttled { broker: name, time } => {
                assert_eq!(name, format!("1 at {}", broker.bootstrap()));
                assert_eq!(time, Duration::from_millis(30));
            }
            other => panic!("{other:?}"),
        }
        broker.recreate(Uuid([6; 16]));
        match next(&events) {
            Event::TopicRecreated { topic } => assert_eq!(&*topic, TOPIC),
            other => panic!("{other:?}"),
        }
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn brokers_that_are_all_down_are_told_once_and_so_is_their_return() {
    within_limit(|| {
        let stage = Stage::start(2);
        stage.with(|world| {
            world.logs.insert(0, stage::pieces("0..9", world.epoch));
            world.share = vec![0];
        });
        let more = [("reconnect.backoff.ms", "1"), ("reconnect.backoff.max.ms", "5")];
        let consumer = member(&stage.bootstrap(), stage::TOPIC, &more);
        let events = consumer.events();
        assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 0);
        stage.with(|world| world.gone = vec![1, 2]);
        let down = loop {
            match next(&events) {
                Event::BrokersDown { error } => break error,
                Event::PartitionsAssigned { .. } | Event::OffsetReset { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(down.to_string().contains("127.0.0.1"), "{down}");
        let failures = consumer.health().connect_failures;
        patience::wait_until("more attempts", || consumer.health().connect_failures > failures + 3);
        stage.with(|world| world.gone.clear());
        // Of all the attempts that failed one was told.
        assert!(matches!(next(&events), Event::BrokersUp { .. }));
        consumer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_consumer_tells_a_pause_that_a_broker_asks_for() {
    within_limit(|| {
        let stage = Stage::start(1);
        stage.with(|world| {
            world.logs.insert(0, stage::pieces("0..9", world.epoch));
            world.share = vec![0];
            world.act(ApiKey::Fetch, 1, stage::Act::Throttle(Duration::from_millis(20)));
        });
        let consumer = member(&stage.bootstrap(), stage::TOPIC, &[]);
        let events = consumer.events();
        assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 0);
        let throttled = loop {
            match next(&events) {
                Event::Throttled { broker, time } => break (broker, time),
                Event::PartitionsAssigned { .. } | Event::OffsetReset { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        let broker = format!("1 at {}", stage.bootstrap());
        assert_eq!(throttled, (broker, Duration::from_millis(20)));
        consumer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_client_that_never_began_ends_its_events_at_its_close() {
    within_limit(|| {
        let options = options(&nobody(), &[]);
        let (producer, admin) = (Producer::new(&options).unwrap(), Admin::new(&options).unwrap());
        let (of_producer, of_admin) = (producer.events(), admin.events());
        producer.close(LIMIT).unwrap();
        admin.close(LIMIT).unwrap();
        assert!(block_on(of_producer.next_async()).0.unwrap().is_none());
        assert!(block_on(of_admin.next_async()).0.unwrap().is_none());
    });
}

#[test]
fn a_client_that_never_began_ends_its_events_when_it_is_dropped() {
    within_limit(|| {
        let options = options(&nobody(), &[("group.id", "g")]);
        let of_producer = Producer::new(&options).unwrap().events();
        let of_admin = Admin::new(&options).unwrap().events();
        let of_consumer = Consumer::new(&options).unwrap().events();
        for events in [of_producer, of_admin, of_consumer] {
            assert!(block_on(events.next_async()).0.unwrap().is_none());
        }
    });
}
