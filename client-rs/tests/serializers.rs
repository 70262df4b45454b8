//! Keys and values of other types than bytes, and partitioners of the program's own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod patience;

use std::error::Error as _;

use clients::{options, producer, read_all};
use cluster::Cluster;
use ottla::{
    BigEndian, ErrorKind, Options, Outcome, Partitioner, Partitions, Plain, Producer, Record,
};
use patience::{LIMIT, within_limit};

const PARTITIONS: i32 = 12;

#[test]
fn a_key_goes_where_the_bytes_go_that_its_serializer_writes() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(PARTITIONS);
        let producer = producer(&cluster.bootstrap(), &[]);
        let typed = producer.typed::<i64, str>(BigEndian, Plain);
        for number in 0..100_i64 {
            let sent = typed.send(&Record::to(&topic), Some(&number), Some("v")).unwrap();
            let key = number.to_be_bytes();
            let plain = Record::to(&topic).key(&key).value("v");
            let plain = producer.send(&plain).unwrap().wait(LIMIT).unwrap();
            assert_eq!(sent.wait(LIMIT).unwrap().partition, plain.partition, "{number}");
        }
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_failing_serializer_is_told_with_its_cause_and_nothing_is_sent() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(PARTITIONS);
        let producer = producer(&cluster.bootstrap(), &[]);
        let named = topic.clone();
        let even = move |to: &str, value: &u32, into: &mut Vec<u8>| {
            assert_eq!(to, named);
            if value % 2 == 1 {
                return Err(format!("{value} is odd"));
            }
            into.extend_from_slice(value.to_string().as_bytes());
            Ok(())
        };
        let typed = producer.typed::<u32, u32>(even.clone(), even);
        let to = Record::to(&topic).partition(3);
        for (key, value, what) in [(1, 2, "key"), (2, 1, "value")] {
            let error = typed.send(&to, Some(&key), Some(&value)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Serialization);
            assert_eq!(error.outcome(), Some(Outcome::NotSent));
            assert_eq!(error.topic(), Some(&*topic));
            assert!(error.to_string().contains(what), "{error}");
            assert_eq!(error.source().unwrap().to_string(), "1 is odd");
        }
        // Null is no matter for serializers; the record's own key and value are replaced.
        typed.send(&to.key("k").value("own"), None, Some(&4)).unwrap();
        // Any other way of sending takes the record as it was made.
        let told = typed.with(&to, Some(&2), Some(&6), |record| {
            assert_eq!((record.key, record.value), (Some(b"2".as_slice()), Some(b"6".as_slice())));
            producer.try_send(record)
        });
        assert_eq!(told.unwrap().wait(LIMIT).unwrap().partition, 3);
        producer.close(LIMIT).unwrap();
        assert_eq!(producer.stats().records, 2);
        let mut stored = Vec::new();
        read_all(&cluster.bootstrap(), &topic, PARTITIONS, |partition, _, _, value| {
            stored.push((partition, value.unwrap().to_vec()));
        });
        assert_eq!(stored, [(3, b"4".to_vec()), (3, b"6".to_vec())]);
    });
}

#[test]
fn a_program_may_choose_partitions_itself_and_a_partition_that_is_not_there_is_refused() {
    struct ByValue;
    impl Partitioner for ByValue {
        fn partition(&self, record: &Record<'_>, topic: &Partitions<'_>) -> i32 {
            let value = std::str::from_utf8(record.value.unwrap()).unwrap();
            let number: i32 = value.parse().unwrap();
            assert_eq!((topic.count(), topic.leader(0)), (12, Some(1)));
            number
        }
    }
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(PARTITIONS);
        let producer =
            Producer::with_partitioner(&options(&cluster.bootstrap(), &[]), ByValue).unwrap();
        let send = |value: &str| producer.send(&Record::to(&topic).value(value));
        // The first record waits for the topic, and its partition is chosen on another thread: a
        // panic there fails this record alone.
        let error = send("none").unwrap().wait(LIMIT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPartition);
        assert_eq!(error.outcome(), Some(Outcome::NotSent));
        for number in [0, 3, 11] {
            let sent = send(&number.to_string()).unwrap();
            assert_eq!(sent.wait(LIMIT).unwrap().partition, number);
        }
        for number in ["-1", "12"] {
            let error = send(number).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidPartition);
            assert!(error.to_string().contains("partitions 0 to 11"), "{error}");
        }
        producer.close(LIMIT).unwrap();
    });
    let options = Options::parse("bootstrap.servers=a:1;partitioner=sticky").unwrap();
    let refused = Producer::with_partitioner(&options, ByValue).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidOption);
}
