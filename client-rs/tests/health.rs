//! What clients say of how they fare.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod elsewhere;
mod patience;
mod stage;

use clients::{member, member_options, nobody, options, producer};
use cluster::{Cluster, fresh};
use elsewhere::BrokerElsewhere;
use ottla::{Admin, Consumer, ErrorKind, Record};
use patience::{LIMIT, wait_until, within_limit};
use stage::Stage;

#[test]
fn a_producer_tells_to_whom_it_is_connected_and_what_went_over() {
    within_limit(|| {
        let cluster = Cluster::start();
        let producer = producer(&cluster.bootstrap(), &[("buffer.memory", "1000000")]);
        let before = producer.health();
        assert!(!before.is_connected() && before.last_error.is_none(), "{before:?}");
        assert_eq!((before.buffer_used, before.buffer_max, before.connects), (0, 1_000_000, 0));
        let (topic, value) = (fresh("told"), vec![b'v'; 5000]);
        producer.send(&Record::to(&topic).value(&value)).unwrap().wait(LIMIT).unwrap();
        let health = producer.health();
        assert!(health.is_connected(), "{health:?}");
        let port = cluster.bootstrap().rsplit(':').next().unwrap().to_owned();
        assert!(health.connected.iter().all(|broker| broker.ends_with(&port)), "{health:?}");
        assert!(health.connects >= 1 && health.requests >= 2, "{health:?}");
        assert!(health.bytes_sent > 5000 && health.bytes_received > 100, "{health:?}");
        assert_eq!((health.disconnects, health.assigned), (0, None));
        producer.close(LIMIT).unwrap();
        wait_until("no connection", || !producer.health().is_connected());
    });
}

#[test]
fn a_record_that_is_kept_holds_its_whole_answer_unless_it_is_detached() {
    within_limit(|| {
        let cluster = Cluster::start();
        let topic = fresh("kept");
        let producer = producer(&cluster.bootstrap(), &[("batch.size", "500000")]);
        let value = vec![b'v'; 100_000];
        let sent: Vec<_> = (0..3)
            .map(|_| producer.send(&Record::to(&topic).partition(0).value(&value)).unwrap())
            .collect();
        for one in sent {
            one.wait(LIMIT).unwrap();
        }
        let consumer = member(&cluster.bootstrap(), &topic, &[]);
        let record = consumer.poll(LIMIT).unwrap().unwrap();
        let held = consumer.stats().pinned;
        assert!(held >= 100_000, "{held} bytes");
        let own = record.detached();
        assert_eq!((own.offset(), own.value()), (0, Some(&value[..])));
        drop(record);
        for offset in 1..3 {
            assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), offset);
        }
        // What was given last is held until more is given.
        producer.send(&Record::to(&topic).partition(0).value("v")).unwrap().wait(LIMIT).unwrap();
        assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 3);
        wait_until("nothing held", || consumer.stats().pinned == 0);
        assert_eq!(own.value(), Some(&value[..]));
        consumer.close(LIMIT).unwrap();
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn the_last_error_is_told_with_what_to_do_and_stays() {
    within_limit(|| {
        let address = nobody();
        let admin = Admin::new(&options(&address, &[])).unwrap();
        let pending = admin.list_topics().send();
        wait_until("a failure", || admin.health().connect_failures > 0);
        let health = admin.health();
        assert!(!health.is_connected());
        let last = health.last_error.unwrap();
        assert_eq!(last.error.kind(), ErrorKind::Connect);
        assert!(last.error.to_string().contains(&address), "{}", last.error);
        assert!(last.error.hint().is_some_and(|hint| hint.contains("is the broker running")));
        assert!(last.age < LIMIT);
        drop(pending);
    });
}

#[test]
fn a_broker_that_the_cluster_has_no_more_is_let_go() {
    within_limit(|| {
        let stage = Stage::start(2);
        stage.with(|world| {
            world.logs.insert(0, stage::pieces("0..9", world.epoch));
            world.leaders.insert(0, 2);
            world.share = vec![0];
        });
        let patient = [("metadata.max.age.ms", "50"), ("connections.max.idle.ms", "600000")];
        let consumer = member(&stage.bootstrap(), stage::TOPIC, &patient);
        assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 0);
        let knows =
            |node: &str| consumer.health().connected.iter().any(|broker| broker.starts_with(node));
        assert!(knows("2 at"));
        stage.with(|world| {
            world.leaders.insert(0, 1);
            world.hidden.push(2);
        });
        wait_until("it is let go", || !knows("2 at"));
        assert!(knows("1 at"));
        consumer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_lost_connection_is_counted_and_a_consumer_tells_its_partitions() {
    within_limit(|| {
        let broker = BrokerElsewhere::in_memory(&[]);
        let topic = broker.topic(2);
        let options = member_options(broker.bootstrap(), &topic, &[]);
        let consumer = Consumer::new(&options).unwrap();
        assert_eq!(consumer.health().assigned, Some(0));
        consumer.subscribe(&[&topic]).unwrap();
        wait_until("an assignment", || {
            consumer.try_poll().unwrap();
            consumer.health().assigned == Some(2)
        });
        let health = consumer.health();
        assert!(health.is_connected() && health.buffer_max > 0, "{health:?}");
        drop(broker);
        wait_until("the loss", || {
            let health = consumer.health();
            health.disconnects > 0 && !health.is_connected() && health.last_error.is_some()
        });
        drop(consumer);
    });
}
