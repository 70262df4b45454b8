//! Consumers that are told of their partitions, and those with a fixed name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "tests wait in real time, up to a limit")]

mod clients;
mod cluster;
mod patience;

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use clients::{member_options, producer};
use cluster::Cluster;
use ottla::{Commit, Consumer, ErrorClass, ErrorKind, RebalanceListener, Record, TopicPartition};
use patience::{LIMIT, wait_until};

const SHORT: Duration = Duration::from_millis(5);

/// A topic of its own, and members of its group.
struct Scene {
    cluster: Cluster,
    topic: String,
}

impl Scene {
    fn new(partitions: i32) -> Self {
        let (cluster, topic) = Cluster::with_topic(partitions);
        Self { cluster, topic }
    }

    /// One that has not subscribed yet.
    fn consumer(&self, more: &[(&str, &str)]) -> Consumer {
        let set = [("heartbeat.interval.ms", "30"), ("enable.auto.commit", "false")];
        let set = [&set, more].concat();
        Consumer::new(&member_options(&self.cluster.bootstrap(), &self.topic, &set)).unwrap()
    }

    fn subscribe(&self, consumer: &Consumer) {
        consumer.subscribe(&[&self.topic]).unwrap();
    }

    fn produce(&self, partitions: i32, count: i32) {
        let producer = producer(&self.cluster.bootstrap(), &[]);
        for number in 0..count {
            let record = Record::to(&self.topic).value("v").partition(number % partitions);
            producer.send(&record).unwrap();
        }
        producer.close(LIMIT).unwrap();
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
        let scene = Scene::new(2);
        let diary = Diary::default();
        let set = [("partition.assignment.strategy", strategy)];
        let first = scene.consumer(&set);
        first.on_rebalance(Commits(diary.clone()));
        scene.subscribe(&first);
        scene.produce(2, 20);
        let mut read = 0;
        wait_until("all records", || {
            read += usize::from(first.poll(SHORT).unwrap().is_some());
            read == 20
        });
        let second = scene.consumer(&set);
        scene.subscribe(&second);
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
        scene.produce(2, 2);
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
    let scene = Scene::new(1);
    let diary = Diary::default();
    let consumer = scene.consumer(&[]);
    consumer.on_rebalance(Closes(diary.clone()));
    scene.subscribe(&consumer);
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
    let scene = Scene::new(1);
    scene.produce(1, 3);
    let consumer = scene.consumer(&[]);
    consumer.on_rebalance(Panics);
    scene.subscribe(&consumer);
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
    let scene = Scene::new(1);
    let diary = Diary::default();
    let first = scene.consumer(&[]);
    first.on_rebalance(Commits(diary.clone()));
    scene.subscribe(&first);
    wait_until("a partition", || {
        first.poll(SHORT).unwrap();
        !first.assignment().is_empty()
    });
    drop(first);
    let second = scene.consumer(&[]);
    scene.subscribe(&second);
    wait_until("its partition for another", || {
        second.poll(SHORT).unwrap();
        second.assignment().len() == 1
    });
    assert_eq!(diary.lines(), ["assigned [0]"]);
    second.close(LIMIT).unwrap();
}

#[test]
fn a_static_member_comes_back_to_its_partitions_without_a_rebalance() {
    let scene = Scene::new(2);
    let static_member = |name: &str| {
        let consumer = scene.consumer(&[("group.instance.id", name)]);
        scene.subscribe(&consumer);
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
    let scene = Scene::new(1);
    let named = || {
        let consumer = scene.consumer(&[("group.instance.id", "one")]);
        scene.subscribe(&consumer);
        consumer
    };
    let diary = Diary::default();
    let first = scene.consumer(&[("group.instance.id", "one")]);
    first.on_rebalance(Commits(diary.clone()));
    scene.subscribe(&first);
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
