//! Where partitions begin and end, which offset a time stands for, and how far reading is behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "tests measure real time against a limit")]

mod clients;
mod cluster;
mod patience;

use std::time::{Duration, Instant};

use clients::{member_options, nobody, producer};
use cluster::Cluster;
use ottla::{Consumer, Error, ErrorKind, Record, TopicPartition};
use patience::{LIMIT, block_on, given_time};

/// A topic with so many records in each partition, one a second from 1,000 s on.
struct Scene {
    cluster: Cluster,
    topic: String,
}

impl Scene {
    fn new(counts: &[i64]) -> Self {
        let (cluster, topic) = Cluster::with_topic(i32::try_from(counts.len()).unwrap());
        let producer = producer(&cluster.bootstrap(), &[]);
        for (partition, &count) in (0..).zip(counts) {
            for number in 0..count {
                let value = number.to_string();
                let record = Record::to(&topic).partition(partition).value(&value);
                let record = record.timestamp(1_000_000 + number * 1_000);
                drop(producer.send(&record).unwrap());
            }
        }
        producer.close(LIMIT).unwrap();
        Self { cluster, topic }
    }

    fn part(&self, index: i32) -> TopicPartition {
        TopicPartition::new(&*self.topic, index)
    }

    /// One that has not subscribed to anything.
    fn consumer(&self) -> Consumer {
        Consumer::new(&member_options(&self.cluster.bootstrap(), &self.topic, &[])).unwrap()
    }
}

fn reads(consumer: &Consumer, count: usize) -> Vec<i64> {
    (0..count).map(|_| consumer.poll(LIMIT).unwrap().unwrap().offset()).collect()
}

fn until_assigned(consumer: &Consumer, count: usize) {
    let deadline = Instant::now() + LIMIT;
    while consumer.assignment().len() < count {
        assert!(Instant::now() < deadline, "no assignment");
        consumer.poll(Duration::from_millis(1)).unwrap();
    }
}

#[test]
fn beginnings_and_ends_come_in_the_order_asked_for() {
    let scene = Scene::new(&[3, 0, 5]);
    let consumer = scene.consumer();
    let asked = [scene.part(2), scene.part(0), scene.part(1)];
    let ends = consumer.end_offsets(&asked, LIMIT).unwrap();
    assert_eq!(ends, [(scene.part(2), 5), (scene.part(0), 3), (scene.part(1), 0)]);
    let begins = consumer.beginning_offsets(&asked, LIMIT).unwrap();
    assert_eq!(begins, [(scene.part(2), 0), (scene.part(0), 0), (scene.part(1), 0)]);
    assert_eq!(consumer.end_offsets(&[], LIMIT).unwrap(), []);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn a_time_stands_for_the_first_record_of_it_or_later() {
    let scene = Scene::new(&[10, 0]);
    let consumer = scene.consumer();
    let asked =
        [(scene.part(0), 1_004_500), (scene.part(0), 9_999_999_999_999), (scene.part(1), 0)];
    for (asked, wanted) in asked.iter().zip([Some((5, 1_005_000)), None, None]) {
        let found = consumer.offsets_for_times(std::slice::from_ref(asked), LIMIT).unwrap();
        assert_eq!(found[0].1.map(|found| (found.offset, found.timestamp)), wanted, "{asked:?}");
    }
    let error = consumer.offsets_for_times(&[(scene.part(0), -1)], LIMIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    consumer.close(LIMIT).unwrap();
}

/// edenhill/kcat#219: ten before the end of a topic with one record gave nothing.
#[test]
fn so_many_before_the_end_begins_at_the_beginning_if_there_are_fewer() {
    let scene = Scene::new(&[1, 503, 0]);
    let admin = scene.consumer();
    admin.subscribe(&[&scene.topic]).unwrap();
    until_assigned(&admin, 3);
    for (partition, records, wanted) in [(0, 10, 0), (0, 1, 0), (0, 0, 1), (1, 3, 500), (2, 10, 0)]
    {
        let offset = admin.seek_before_end(&scene.part(partition), records, LIMIT).unwrap();
        assert_eq!(offset, wanted, "{records} before the end of {partition}");
        assert_eq!(admin.position(&scene.part(partition)), Some(wanted));
        admin.seek(&scene.part(partition), 0).unwrap();
        let (found, _) = block_on(admin.seek_before_end_async(&scene.part(partition), records));
        assert_eq!(found.unwrap(), wanted, "for a task");
        assert_eq!(admin.position(&scene.part(partition)), Some(wanted));
    }
    let error = admin.seek_before_end(&scene.part(9), 1, LIMIT / 30).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "there is no such partition: {error}");
    admin.close(LIMIT).unwrap();
}

#[test]
fn the_lag_falls_to_nothing_as_records_are_read() {
    let scene = Scene::new(&[4]);
    let consumer = scene.consumer();
    assert_eq!(consumer.current_lag(&scene.part(0)), None, "not assigned yet");
    consumer.subscribe(&[&scene.topic]).unwrap();
    assert_eq!(reads(&consumer, 1), [0]);
    assert_eq!(consumer.current_lag(&scene.part(0)), Some(3));
    assert_eq!(reads(&consumer, 3), [1, 2, 3]);
    assert_eq!(consumer.current_lag(&scene.part(0)), Some(0));
    consumer.close(LIMIT).unwrap();
}

#[test]
fn a_call_takes_no_longer_than_its_time_and_names_what_stood_in_the_way() {
    let (address, part) = (nobody(), TopicPartition::new("t", 0));
    let consumer = Consumer::new(&member_options(&address, "t", &[])).unwrap();
    let began = Instant::now();
    let names_it = |error: &Error| error.to_string().contains("t-0");
    let error = given_time(names_it, |times| {
        let short = Duration::from_millis(300) * times;
        consumer.end_offsets(std::slice::from_ref(&part), short).unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(names_it(&error), "{error}");
    assert!(began.elapsed() < LIMIT);
    let bad = TopicPartition::new("a/b", 0);
    assert_eq!(consumer.end_offsets(&[bad], LIMIT).unwrap_err().kind(), ErrorKind::InvalidTopic);
    consumer.close(LIMIT).unwrap();
    assert_eq!(
        consumer.end_offsets(std::slice::from_ref(&part), LIMIT).unwrap_err().kind(),
        ErrorKind::Closed
    );
}

#[test]
fn tasks_have_the_same() {
    let scene = Scene::new(&[3]);
    let consumer = scene.consumer();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let ends = consumer.end_offsets_async(&[scene.part(0)]).await.unwrap();
        assert_eq!(ends, [(scene.part(0), 3)]);
        let begins = consumer.beginning_offsets_async(&[scene.part(0)]).await.unwrap();
        assert_eq!(begins, [(scene.part(0), 0)]);
        let times = consumer.offsets_for_times_async(&[(scene.part(0), 1_000_001)]).await.unwrap();
        assert_eq!(times[0].1.map(|found| found.offset), Some(1));
    });
    consumer.close(LIMIT).unwrap();
}
