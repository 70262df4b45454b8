//! Where partitions begin and end, which offset a time stands for, and how far reading is behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "tests measure real time against a limit")]

mod clients;
mod patience;

use std::time::{Duration, Instant};

use clients::{member, member_options, nobody, producer};
use ottla::{Consumer, ErrorKind, Record, TopicPartition};
use ottla_broker::{Broker, BrokerConfig};
use patience::LIMIT;

/// A broker whose topic `t` has so many records in each partition, one a second from 1,000 s on.
fn broker(counts: &[i64]) -> Broker {
    let broker = Broker::start(BrokerConfig::new().memory()).unwrap();
    broker.create_topic("t", i32::try_from(counts.len()).unwrap()).unwrap();
    let producer = producer(&broker.bootstrap(), &[]);
    for (partition, &count) in (0..).zip(counts) {
        for number in 0..count {
            let value = number.to_string();
            let record = Record::to("t").partition(partition).value(&value);
            let record = record.timestamp(1_000_000 + number * 1_000);
            drop(producer.send(&record).unwrap());
        }
    }
    producer.close(LIMIT).unwrap();
    broker
}

fn part(index: i32) -> TopicPartition {
    TopicPartition::new("t", index)
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
    let broker = broker(&[3, 0, 5]);
    let consumer = Consumer::new(&member_options(&broker.bootstrap(), &[])).unwrap();
    let asked = [part(2), part(0), part(1)];
    let ends = consumer.end_offsets(&asked, LIMIT).unwrap();
    assert_eq!(ends, [(part(2), 5), (part(0), 3), (part(1), 0)]);
    let begins = consumer.beginning_offsets(&asked, LIMIT).unwrap();
    assert_eq!(begins, [(part(2), 0), (part(0), 0), (part(1), 0)]);
    assert_eq!(consumer.end_offsets(&[], LIMIT).unwrap(), []);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn a_time_stands_for_the_first_record_of_it_or_later() {
    let broker = broker(&[10, 0]);
    let consumer = Consumer::new(&member_options(&broker.bootstrap(), &[])).unwrap();
    let asked = [(part(0), 1_004_500), (part(0), 9_999_999_999_999), (part(1), 0)];
    for (asked, wanted) in asked.iter().zip([Some((5, 1_005_000)), None, None]) {
        let found = consumer.offsets_for_times(std::slice::from_ref(asked), LIMIT).unwrap();
        assert_eq!(found[0].1.map(|found| (found.offset, found.timestamp)), wanted, "{asked:?}");
    }
    let error = consumer.offsets_for_times(&[(part(0), -1)], LIMIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    consumer.close(LIMIT).unwrap();
}

/// edenhill/kcat#219: ten before the end of a topic with one record gave nothing.
#[test]
fn so_many_before_the_end_begins_at_the_beginning_if_there_are_fewer() {
    let broker = broker(&[1, 503, 0]);
    let admin = Consumer::new(&member_options(&broker.bootstrap(), &[])).unwrap();
    admin.subscribe(&["t"]).unwrap();
    until_assigned(&admin, 3);
    for (partition, records, wanted) in [(0, 10, 0), (0, 1, 0), (0, 0, 1), (1, 3, 500), (2, 10, 0)]
    {
        let offset = admin.seek_before_end(&part(partition), records, LIMIT).unwrap();
        assert_eq!(offset, wanted, "{records} before the end of {partition}");
        assert_eq!(admin.position(&part(partition)), Some(wanted));
    }
    let error = admin.seek_before_end(&TopicPartition::new("t", 9), 1, LIMIT / 30).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "there is no such partition: {error}");
    admin.close(LIMIT).unwrap();
}

#[test]
fn the_lag_falls_to_nothing_as_records_are_read() {
    let broker = broker(&[4]);
    let consumer = member(&broker.bootstrap(), "t", &[]);
    assert_eq!(consumer.current_lag(&part(0)), None, "not assigned yet");
    assert_eq!(reads(&consumer, 1), [0]);
    assert_eq!(consumer.current_lag(&part(0)), Some(3));
    assert_eq!(reads(&consumer, 3), [1, 2, 3]);
    assert_eq!(consumer.current_lag(&part(0)), Some(0));
    consumer.close(LIMIT).unwrap();
}

#[test]
fn a_call_takes_no_longer_than_its_time_and_names_what_stood_in_the_way() {
    let address = nobody();
    let consumer = Consumer::new(&member_options(&address, &[])).unwrap();
    let began = Instant::now();
    let error = consumer.end_offsets(&[part(0)], Duration::from_millis(300)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("t-0"), "{error}");
    assert!(began.elapsed() < LIMIT);
    let bad = TopicPartition::new("a/b", 0);
    assert_eq!(consumer.end_offsets(&[bad], LIMIT).unwrap_err().kind(), ErrorKind::InvalidTopic);
    consumer.close(LIMIT).unwrap();
    assert_eq!(consumer.end_offsets(&[part(0)], LIMIT).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn tasks_have_the_same() {
    let broker = broker(&[3]);
    let consumer = Consumer::new(&member_options(&broker.bootstrap(), &[])).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let ends = consumer.end_offsets_async(&[part(0)]).await.unwrap();
        assert_eq!(ends, [(part(0), 3)]);
        let begins = consumer.beginning_offsets_async(&[part(0)]).await.unwrap();
        assert_eq!(begins, [(part(0), 0)]);
        let times = consumer.offsets_for_times_async(&[(part(0), 1_000_001)]).await.unwrap();
        assert_eq!(times[0].1.map(|found| found.offset), Some(1));
    });
    consumer.close(LIMIT).unwrap();
}
