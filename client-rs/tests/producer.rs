//! A producer that sends, and its ways to tell what became of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod elsewhere;
mod patience;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use cluster::{Cluster, fresh};
use elsewhere::BrokerElsewhere;
use ottla::{Completions, Delivery, ErrorKind, Header, Options, Producer, Record};
use patience::{LIMIT, block_on, wait_until, within_limit};

fn producer(bootstrap: &str, more: &str) -> Producer {
    let text = format!("bootstrap.servers={bootstrap};{more}");
    Producer::new(&Options::parse(&text).unwrap()).unwrap()
}

#[test]
fn a_delivery_says_where_the_record_is_in_every_way_of_sending() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(4);
        let producer = producer(&cluster.bootstrap(), "");
        let headers = [Header::new("a", b"1"), Header { key: "b", value: None }];
        let record = Record::to(&topic).partition(2).key("k").value("v").headers(&headers);
        let check = |delivery: Delivery, offset: i64, timestamp: Option<i64>| {
            assert_eq!((&*delivery.topic, delivery.partition), (&*topic, 2));
            assert_eq!(delivery.offset, offset);
            let now = 1_600_000_000_000..4_000_000_000_000;
            match timestamp {
                Some(timestamp) => assert_eq!(delivery.timestamp, timestamp),
                None => assert!(now.contains(&delivery.timestamp), "{delivery:?}"),
            }
        };
        let sent = producer.send(&record).unwrap();
        check(sent.wait(LIMIT).unwrap(), 0, None);
        let sent = producer.send(&record.timestamp(1_700_000_000_123)).unwrap();
        check(block_on(sent).0.unwrap(), 1, Some(1_700_000_000_123));
        let many = producer.send_many(&[record.timestamp(5), record.timestamp(3)]);
        for (index, result) in (0..).zip(many.wait(LIMIT)) {
            check(result.unwrap(), 2 + index, Some(5 - 2 * index));
        }
        let called = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&called);
        let queue = Completions::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let sent = producer.try_send(&record.timestamp(9)).unwrap();
        sent.notify(&queue);
        wait_until("the queue's wake", || called.load(Ordering::SeqCst) > 0);
        let done = queue.drain(10);
        assert_eq!(done[0].batch_id(), sent.batch_id());
        check(done[0].result(sent.stamp()).unwrap().unwrap(), 4, Some(9));
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn threads_send_to_many_topics_that_nobody_knew_and_nothing_is_lost_or_reordered() {
    const THREADS: u32 = 4;
    const RECORDS: u32 = 5_000;
    within_limit(|| {
        let cluster = Cluster::start();
        let topics = ["a", "b", "c"].map(fresh);
        let producer = producer(&cluster.bootstrap(), "");
        let senders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (producer, topics) = (producer.clone(), topics.clone());
                thread::spawn(move || {
                    let mut sent = Vec::new();
                    for number in 0..RECORDS {
                        let topic = &topics[usize::try_from(number % 3).unwrap()];
                        let record = Record::to(topic).partition(0).timestamp(i64::from(thread));
                        sent.push(producer.send(&record.value(&number.to_be_bytes())).unwrap());
                    }
                    sent.iter().map(|sent| sent.wait(LIMIT).unwrap()).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut offsets: BTreeMap<Arc<str>, Vec<i64>> = BTreeMap::new();
        for sender in senders {
            let mut last: BTreeMap<Arc<str>, i64> = BTreeMap::new();
            for delivery in sender.join().unwrap() {
                let before = last.insert(Arc::clone(&delivery.topic), delivery.offset);
                assert!(before.is_none_or(|before| before < delivery.offset), "{delivery:?}");
                offsets.entry(delivery.topic).or_default().push(delivery.offset);
            }
        }
        let total: usize = offsets.values().map(Vec::len).sum();
        assert_eq!(total, usize::try_from(THREADS * RECORDS).unwrap());
        for offsets in offsets.values_mut() {
            offsets.sort_unstable();
            assert!((0..).zip(offsets.iter()).all(|(place, &offset)| place == offset));
        }
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn every_setting_of_acks_and_codec_delivers() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(4);
        for more in [
            "acks=all",
            "acks=1",
            "acks=0",
            "enable.idempotence=false",
            "compression.type=lz4",
            "compression.type=lz4;batch.size=100000;linger.ms=50",
            "batch.size=0",
            "linger.ms=0",
            "max.in.flight.requests.per.connection=1",
        ] {
            let producer = producer(&cluster.bootstrap(), more);
            let value = "0123456789".repeat(20);
            let records: Vec<Record<'_>> =
                (0..2000).map(|_| Record::to(&topic).value(&value)).collect();
            let sent = producer.send_many(&records);
            producer.flush(LIMIT).unwrap();
            let results = sent.wait(LIMIT);
            assert_eq!(results.len(), records.len());
            for result in results {
                let delivery = result.unwrap();
                assert_eq!(delivery.offset < 0, more == "acks=0", "{more}: {delivery:?}");
            }
            producer.close(LIMIT).unwrap();
            let stats = producer.stats();
            assert_eq!((stats.delivered, stats.failed, stats.memory_used), (2000, 0, 0), "{more}");
        }
    });
}

#[test]
fn a_producer_without_a_record_closes_at_once_and_refuses_then() {
    within_limit(|| {
        let producer = Producer::new(&Options::parse("bootstrap.servers=localhost:1").unwrap());
        let producer = producer.unwrap();
        producer.flush(LIMIT).unwrap();
        producer.close(LIMIT).unwrap();
        producer.close(LIMIT).unwrap();
        let error = producer.send(&Record::to("orders")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        block_on(producer.close_async(LIMIT)).0.unwrap();
        block_on(producer.flush_async()).0.unwrap();
    });
}

#[test]
fn a_dropped_producer_leaves_no_token_without_a_result() {
    within_limit(|| {
        let producer = Producer::new(&Options::parse("bootstrap.servers=127.0.0.1:1").unwrap());
        let producer = producer.unwrap();
        let sent = producer.send(&Record::to("orders").value("a")).unwrap();
        drop(producer);
        assert_eq!(sent.wait(LIMIT).unwrap_err().kind(), ErrorKind::Closed);
    });
}

#[test]
fn a_broker_that_was_away_is_found_again() {
    within_limit(|| {
        let folder = tempfile::tempdir().unwrap();
        let broker = BrokerElsewhere::on(folder.path(), &[]);
        let topic = broker.topic(1);
        let producer = producer(broker.bootstrap(), "reconnect.backoff.ms=5;retry.backoff.ms=5");
        let record = Record::to(&topic).value("a");
        assert_eq!(producer.send(&record).unwrap().wait(LIMIT).unwrap().offset, 0);
        let away = broker.kill();
        let sent = producer.send(&record).unwrap();
        let _broker = away.back();
        assert_eq!(sent.wait(LIMIT).unwrap().offset, 1);
        producer.close(LIMIT).unwrap();
    });
}
