//! Consumers that are told of their partitions, and those with a fixed name, against the embedded
//! broker.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "tests wait in real time, up to a limit")]

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use ottla::{
    Commit, Consumer, ErrorClass, ErrorKind, Options, Producer, RebalanceListener, Record,
    TopicPartition,
};
use ottla_broker::{Broker, BrokerConfig};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(5);

fn broker(partitions: i32) -> Broker {
    let broker = Broker::start(BrokerConfig::new().memory()).unwrap();
    broker.create_topic("t", partitions).unwrap();
    broker
}

fn consumer(broker: &Broker, more: &[(&str, &str)]) -> Consumer {
    let first = [
        ("group.id", "g"),
        ("auto.offset.reset", "earliest"),
        ("heartbeat.interval.ms", "30"),
        ("enable.auto.commit", "false"),
    ];
    let options = Options::new().set("bootstrap.servers", &broker.bootstrap()).unwrap();
    let all = first.iter().chain(more);
    Consumer::new(&all.fold(options, |set, (name, value)| set.set(name, value).unwrap())).unwrap()
}

fn produce(broker: &Broker, partitions: i32, count: i32) {
    let options = Options::new().set("bootstrap.servers", &broker.bootstrap()).unwrap();
    let producer = Producer::new(&options).unwrap();
    for number in 0..count {
        producer.send(&Record::to("t").value("v").partition(number % partitions)).unwrap();
    }
    producer.close(LIMIT).unwrap();
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        thread::yield_now();
    }
}

#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<(String, ThreadId)>>>);

impl Diary {
    fn write(&self, what: &str, partitions: &[TopicPartition]) {
        let numbers: Vec<i32> = partitions.iter().map(|at| at.partition).collect();
        let line = format!("{what} {numbers:?}");
        self.0.lock().unwrap().push((line, thread::current().id()));
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(line, _)| line.clone()).collect()
    }
}

/// Writes down what it is told, and commits what goes.
struct Commits(Diary);

impl RebalanceListener for Commits {
    fn on_assigned(&self, _: &Consumer, partitions: &[TopicPartition]) {
        self.0.write("assigned", partitions);
    }

    fn on_revoked(&self, consumer: &Consumer, partitions: &[TopicPartition]) {
        let result = consumer.commit(Commit::Finished, LIMIT);
        self.0.write(if result.is_ok() { "committed" } else { "not committed" }, partitions);
    }

    fn on_lost(&self, _: &Consumer, partitions: &[TopicPartition]) {
        self.0.write("lost", partitions);
    }
}

#[test]
fn a_listener_commits_what_it_is_about_to_lose_in_the_thread_that_polls() {
    for strategy in ["range", "cooperative-sticky"] {
        let broker = broker(2);
        let diary = Diary::default();
        let set = [("partition.assignment.strategy", strategy)];
        let first = consumer(&broker, &set);
        first.on_rebalance(Commits(diary.clone()));
        first.subscribe(&["t"]).unwrap();
        produce(&broker, 2, 20);
        let mut read = 0;
        wait_until("all records", || {
            read += usize::from(first.poll(SHORT).unwrap().is_some());
            read == 20
        });
        let second = consumer(&broker, &set);
        second.subscribe(&["t"]).unwrap();
        // One poll is enough for all that happens meanwhile: it waits for records.
        let polling = thread::spawn({
            let first = first.clone();
            move || {
                (first.poll(LIMIT).unwrap().map(|record| record.offset()), thread::current().id())
            }
        });
        wait_until("a share for the second", || {
            assert!(second.poll(SHORT).unwrap().is_none(), "all was committed before");
            second.assignment().len() == 1 && first.assignment().len() == 1
        });
        produce(&broker, 2, 2);
        let (offset, poller) = polling.join().unwrap();
        assert_eq!(offset, Some(10), "{strategy}");
        let lines = diary.lines();
        let kept = first.assignment()[0].partition;
        let went = 1 - kept;
        if strategy == "range" {
            let wanted = ["assigned [0, 1]", "committed [0, 1]", &format!("assigned [{kept}]")]
                .map(String::from);
            assert_eq!(lines, wanted);
        } else {
            assert_eq!(lines, ["assigned [0, 1]".to_owned(), format!("committed [{went}]")]);
        }
        let told = diary.0.lock().unwrap().clone();
        assert!(told.iter().skip(1).all(|(_, thread)| *thread == poller), "{told:?}");
        second.close(LIMIT).unwrap();
        first.close(LIMIT).unwrap();
        let told = diary.0.lock().unwrap().clone();
        let (line, thread) = told.last().unwrap();
        assert!(line.starts_with("committed"), "{line}");
        assert_eq!(*thread, thread::current().id(), "who closes is told");
    }
}

struct Closes(Diary);

impl RebalanceListener for Closes {
    fn on_assigned(&self, consumer: &Consumer, partitions: &[TopicPartition]) {
        self.0.write("assigned", partitions);
        consumer.close(LIMIT).unwrap();
        self.0.write("closed", partitions);
    }

    fn on_revoked(&self, _: &Consumer, partitions: &[TopicPartition]) {
        self.0.write("revoked", partitions);
    }
}

#[test]
fn closing_from_inside_a_listener_ends_and_tells_nothing_more() {
    let broker = broker(1);
    let diary = Diary::default();
    let consumer = consumer(&broker, &[]);
    consumer.on_rebalance(Closes(diary.clone()));
    consumer.subscribe(&["t"]).unwrap();
    let began = Instant::now();
    assert_eq!(consumer.poll(LIMIT).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(diary.lines(), ["assigned [0]", "closed [0]"]);
    assert!(began.elapsed() < LIMIT, "it waited for itself");
}

struct Panics;

impl RebalanceListener for Panics {
    fn on_assigned(&self, _: &Consumer, _: &[TopicPartition]) {
        panic!("the listener failed");
    }
}

#[test]
fn a_listener_that_panics_holds_nothing_up() {
    let broker = broker(1);
    produce(&broker, 1, 3);
    let consumer = consumer(&broker, &[]);
    consumer.on_rebalance(Panics);
    consumer.subscribe(&["t"]).unwrap();
    let polled = thread::spawn({
        let consumer = consumer.clone();
        move || consumer.poll(LIMIT).map(|record| record.is_some())
    });
    assert!(polled.join().is_err(), "it reached the thread that polled");
    assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 0);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn a_consumer_whose_last_handle_goes_leaves_without_its_listener() {
    let broker = broker(1);
    let diary = Diary::default();
    let first = consumer(&broker, &[]);
    first.on_rebalance(Commits(diary.clone()));
    first.subscribe(&["t"]).unwrap();
    wait_until("a partition", || {
        first.poll(SHORT).unwrap();
        !first.assignment().is_empty()
    });
    drop(first);
    let second = consumer(&broker, &[]);
    second.subscribe(&["t"]).unwrap();
    wait_until("its partition for another", || {
        second.poll(SHORT).unwrap();
        second.assignment().len() == 1
    });
    assert_eq!(diary.lines(), ["assigned [0]"]);
    second.close(LIMIT).unwrap();
}

#[test]
fn a_static_member_comes_back_to_its_partitions_without_a_rebalance() {
    let broker = broker(2);
    let static_member = |name: &str| {
        let consumer = consumer(&broker, &[("group.instance.id", name)]);
        consumer.subscribe(&["t"]).unwrap();
        consumer
    };
    let (one, two) = (static_member("one"), static_member("two"));
    wait_until("an even share", || {
        one.poll(SHORT).unwrap();
        two.poll(SHORT).unwrap();
        one.assignment().len() == 1 && two.assignment().len() == 1
    });
    let (had, rebalances) = (one.assignment(), two.stats().rebalances);
    one.close(LIMIT).unwrap();
    let again = static_member("one");
    wait_until("its partition", || {
        again.poll(SHORT).unwrap();
        two.poll(SHORT).unwrap();
        !again.assignment().is_empty()
    });
    assert_eq!(again.assignment(), had);
    assert_eq!(two.stats().rebalances, rebalances, "nobody else noticed");
    again.close(LIMIT).unwrap();
    two.close(LIMIT).unwrap();
}

#[test]
fn a_second_consumer_of_the_same_instance_id_ends_the_first_with_the_reason() {
    let broker = broker(1);
    let named = || {
        let consumer = consumer(&broker, &[("group.instance.id", "one")]);
        consumer.subscribe(&["t"]).unwrap();
        consumer
    };
    let diary = Diary::default();
    let first = consumer(&broker, &[("group.instance.id", "one")]);
    first.on_rebalance(Commits(diary.clone()));
    first.subscribe(&["t"]).unwrap();
    wait_until("its partition", || {
        first.poll(SHORT).unwrap();
        first.assignment().len() == 1
    });
    let second = named();
    let mut fault = None;
    wait_until("the end of the first", || {
        second.poll(SHORT).unwrap();
        fault = first.poll(SHORT).err();
        fault.is_some()
    });
    let fault = fault.unwrap();
    assert_eq!(fault.kind(), ErrorKind::FencedInstance);
    assert_eq!(fault.class(), ErrorClass::Fatal);
    assert_eq!(diary.lines().last().unwrap(), "lost [0]");
    assert!(fault.hint().unwrap().contains("group.instance.id"), "{fault:?}");
    assert_eq!(second.assignment().len(), 1);
    first.close(LIMIT).unwrap();
    second.close(LIMIT).unwrap();
}
