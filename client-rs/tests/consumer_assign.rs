//! Partitions that a program assigns itself, with a group and without one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "tests measure real time against a limit")]

mod clients;
mod cluster;
mod patience;

use std::time::Duration;

use clients::{member, member_options, options, producer};
use cluster::Cluster;
use ottla::{Admin, Commit, Consumer, ErrorKind, NewPartitions, Record, TopicPartition};
use patience::{LIMIT, wait_until};

/// A topic with so many records in each partition.
struct Scene {
    cluster: Cluster,
    topic: String,
}

impl Scene {
    fn new(counts: &[u32]) -> Self {
        let (cluster, topic) = Cluster::with_topic(i32::try_from(counts.len()).unwrap());
        let scene = Self { cluster, topic };
        for (partition, &count) in (0..).zip(counts) {
            scene.send(partition, count);
        }
        scene
    }

    fn part(&self, index: i32) -> TopicPartition {
        TopicPartition::new(&*self.topic, index)
    }

    fn send(&self, partition: i32, count: u32) {
        let producer = producer(&self.cluster.bootstrap(), &[]);
        for number in 0..count {
            let value = number.to_string();
            let record = Record::to(&self.topic).partition(partition).value(&value);
            drop(producer.send(&record).unwrap());
        }
        producer.close(LIMIT).unwrap();
    }

    /// One of no group.
    fn groupless(&self, more: &[(&str, &str)]) -> Consumer {
        Consumer::new(&options(&self.cluster.bootstrap(), more)).unwrap()
    }

    /// One of the topic's group that has not subscribed to anything.
    fn grouped(&self) -> Consumer {
        Consumer::new(&member_options(&self.cluster.bootstrap(), &self.topic, &[])).unwrap()
    }
}

fn reads(consumer: &Consumer, count: usize) -> Vec<i64> {
    (0..count).map(|_| consumer.poll(LIMIT).unwrap().unwrap().offset()).collect()
}

#[test]
fn without_a_group_all_works_but_commits() {
    let scene = Scene::new(&[10, 10]);
    let consumer = scene.groupless(&[("auto.offset.reset", "earliest")]);
    consumer.assign(&[scene.part(1)]).unwrap();
    assert_eq!(consumer.assignment(), [scene.part(1)], "at once");
    assert_eq!(reads(&consumer, 4), [0, 1, 2, 3]);
    assert_eq!(consumer.position(&scene.part(1)), Some(4));
    consumer.seek(&scene.part(1), 8).unwrap();
    assert_eq!(reads(&consumer, 2), [8, 9]);
    assert_eq!(consumer.current_lag(&scene.part(1)), Some(0));
    assert_eq!(consumer.seek_before_end(&scene.part(1), 3, LIMIT).unwrap(), 7);
    consumer.pause(&[scene.part(1)]).unwrap();
    assert!(consumer.poll(Duration::from_millis(50)).unwrap().is_none());
    consumer.resume(&[scene.part(1)]).unwrap();
    assert_eq!(reads(&consumer, 3), [7, 8, 9]);
    assert_eq!(consumer.end_offsets(&[scene.part(0)], LIMIT).unwrap(), [(scene.part(0), 10)]);
    let refused = [
        consumer.commit(Commit::Finished, LIMIT).unwrap_err(),
        consumer.commit_soon(Commit::Offsets(&[(scene.part(1), 3)])).unwrap_err(),
        consumer.committed(&[scene.part(1)], LIMIT).unwrap_err(),
        consumer.subscribe(&[&scene.topic]).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::InvalidGroup, "{error}");
    }
    consumer.unsubscribe().unwrap();
    assert_eq!(consumer.assignment(), []);
    consumer.close(LIMIT).unwrap();
    assert_eq!(consumer.assign(&[scene.part(0)]).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn with_a_group_commits_are_kept_there_without_a_member() {
    let scene = Scene::new(&[10]);
    let consumer = scene.grouped();
    consumer.assign(&[scene.part(0)]).unwrap();
    assert_eq!(reads(&consumer, 4), [0, 1, 2, 3]);
    consumer.commit(Commit::Finished, LIMIT).unwrap();
    assert_eq!(reads(&consumer, 3), [4, 5, 6]);
    consumer.close(LIMIT).unwrap();
    // The last record was not finished.
    let next = scene.grouped();
    next.assign(&[scene.part(0)]).unwrap();
    assert_eq!(reads(&next, 4), [6, 7, 8, 9]);
    next.commit(Commit::Offsets(&[(scene.part(0), 2)]), LIMIT).unwrap();
    assert_eq!(next.committed(&[scene.part(0)], LIMIT).unwrap(), [(scene.part(0), Some(2))]);
    next.close(LIMIT).unwrap();
}

#[test]
fn a_group_with_members_takes_no_commits_of_others() {
    let scene = Scene::new(&[10]);
    let there = member(&scene.cluster.bootstrap(), &scene.topic, &[]);
    assert_eq!(reads(&there, 1), [0]);
    let other = scene.grouped();
    other.assign(&[scene.part(0)]).unwrap();
    assert_eq!(reads(&other, 2), [0, 1]);
    let error = other.commit(Commit::Finished, LIMIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitFenced, "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("a group.id of its own")), "{error:?}");
    there.close(LIMIT).unwrap();
    other.commit(Commit::Finished, LIMIT).unwrap();
    other.close(LIMIT).unwrap();
}

#[test]
fn one_way_of_choosing_excludes_the_other_until_it_is_ended() {
    let scene = Scene::new(&[10]);
    let consumer = scene.grouped();
    consumer.assign(&[scene.part(0)]).unwrap();
    for error in [
        consumer.subscribe(&[&scene.topic]).unwrap_err(),
        consumer.subscribe_pattern("no such topic").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
    }
    assert_eq!(reads(&consumer, 3), [0, 1, 2]);
    consumer.unsubscribe().unwrap();
    consumer.subscribe(&[&scene.topic]).unwrap();
    let error = consumer.assign(&[scene.part(0)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
    assert_eq!(reads(&consumer, 2), [2, 3], "behind what was finished");
    consumer.assign(&[]).unwrap();
    consumer.assign(&[scene.part(0)]).unwrap();
    assert_eq!(reads(&consumer, 1), [3]);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn a_partition_that_comes_later_is_read_when_it_is_there() {
    let scene = Scene::new(&[1]);
    let consumer = scene.groupless(&[("metadata.max.age.ms", "100")]);
    consumer.assign(&[scene.part(2)]).unwrap();
    let mut told = None;
    wait_until("the error", || {
        told = consumer.poll(Duration::from_millis(20)).err();
        told.is_some()
    });
    let told = told.unwrap();
    assert_eq!((told.kind(), told.partition()), (ErrorKind::UnknownTopic, Some(2)), "{told}");
    let admin = Admin::new(&options(&scene.cluster.bootstrap(), &[])).unwrap();
    let grown = [(scene.topic.as_str(), NewPartitions::increase_to(3))];
    admin.create_partitions(&grown).wait().unwrap().all().unwrap();
    admin.close(LIMIT).unwrap();
    scene.send(2, 3);
    let mut read = Vec::new();
    wait_until("its records", || {
        match consumer.poll(Duration::from_millis(20)) {
            Ok(record) => read.extend(record.map(|record| record.offset())),
            Err(error) => assert_eq!(error.kind(), ErrorKind::UnknownTopic, "{error}"),
        }
        read.len() == 3
    });
    assert_eq!(read, [0, 1, 2]);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn what_no_partition_can_be_is_refused_at_the_call() {
    let scene = Scene::new(&[1]);
    let consumer = scene.groupless(&[]);
    let bad = TopicPartition::new("a/b", 0);
    assert_eq!(consumer.assign(&[scene.part(0), bad]).unwrap_err().kind(), ErrorKind::InvalidTopic);
    assert_eq!(consumer.assign(&[scene.part(-1)]).unwrap_err().kind(), ErrorKind::InvalidPartition);
    assert_eq!(consumer.assignment(), [], "none of it");
    consumer.assign(&[scene.part(0), scene.part(0)]).unwrap();
    assert_eq!(consumer.assignment(), [scene.part(0)]);
    consumer.close(LIMIT).unwrap();
}
