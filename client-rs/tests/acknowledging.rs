//! Records that several workers finish in whatever order they come to them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod patience;

use std::collections::BTreeSet;
use std::thread;

use clients::{member_options, options, producer};
use cluster::Cluster;
use ottla::{Commit, Consumer, ConsumerRecord, ErrorKind, Record};
use patience::LIMIT;

const WORKERS: usize = 4;
const RECORDS: usize = 200;

fn consumer(cluster: &Cluster, topic: &str) -> Consumer {
    let explicit = [("acknowledgement.mode", "explicit"), ("enable.auto.commit", "false")];
    let own = member_options(&cluster.bootstrap(), topic, &explicit);
    let consumer = Consumer::new(&own).unwrap();
    consumer.subscribe(&[topic]).unwrap();
    consumer
}

/// Sends records of these numbers, each with its worker's key.
fn send(cluster: &Cluster, topic: &str, numbers: std::ops::Range<usize>) {
    let producer = producer(&cluster.bootstrap(), &[]);
    for number in numbers {
        let (key, value) = ((number % WORKERS).to_string(), number.to_string());
        drop(producer.send(&Record::to(topic).key(&key).value(&value)).unwrap());
    }
    producer.close(LIMIT).unwrap();
}

fn number(bytes: Option<&[u8]>) -> usize {
    std::str::from_utf8(bytes.unwrap()).unwrap().parse().unwrap()
}

fn read(consumer: &Consumer, count: usize) -> Vec<ConsumerRecord> {
    (0..count).map(|_| consumer.poll(LIMIT).unwrap().unwrap()).collect()
}

#[test]
fn who_comes_after_a_worker_that_was_stuck_is_given_its_records_and_no_others() {
    let (cluster, topic) = Cluster::with_topic(3);
    send(&cluster, &topic, 0..RECORDS);
    let first = consumer(&cluster, &topic);
    let records = read(&first, RECORDS);
    thread::scope(|scope| {
        // Worker 0 never comes to an end with its records.
        for worker in 1..WORKERS {
            let (consumer, records) = (&first, &records);
            scope.spawn(move || {
                let own = records.iter().rev().filter(|record| number(record.key()) == worker);
                own.for_each(|record| consumer.acknowledge(record).unwrap());
            });
        }
    });
    first.commit(Commit::Finished, LIMIT).unwrap();
    first.close(LIMIT).unwrap();
    let late = first.acknowledge(&records[0]).expect_err("it is closed");
    assert_eq!(late.kind(), ErrorKind::Closed);

    send(&cluster, &topic, RECORDS..RECORDS + WORKERS);
    let second = consumer(&cluster, &topic);
    let numbers: BTreeSet<usize> = read(&second, RECORDS / WORKERS + WORKERS)
        .iter()
        .inspect(|record| second.acknowledge(record).unwrap())
        .map(|record| number(record.value()))
        .collect();
    let stuck = (0..RECORDS).filter(|number| number % WORKERS == 0);
    assert_eq!(numbers, stuck.chain(RECORDS..RECORDS + WORKERS).collect());
    second.commit(Commit::Finished, LIMIT).unwrap();
    let partitions = second.assignment();
    let committed = second.committed_with_metadata(&partitions, LIMIT).unwrap();
    for (partition, committed) in committed {
        let end = second.position(&partition);
        let Some(committed) = committed else { continue };
        assert_eq!((Some(committed.offset), &*committed.metadata), (end, ""), "{partition}");
    }
    second.close(LIMIT).unwrap();
}

#[test]
fn what_another_consumer_has_read_is_neither_finished_nor_committed_by_this_one() {
    let (cluster, topic) = Cluster::with_topic(1);
    send(&cluster, &topic, 0..2);
    let own = consumer(&cluster, &topic);
    let group = [("group.id", "others"), ("enable.auto.commit", "false")];
    let other = Consumer::new(&member_options(&cluster.bootstrap(), &topic, &group)).unwrap();
    other.subscribe(&[&topic]).unwrap();
    let (mine, theirs) = (read(&own, 2), read(&other, 2));
    let refused = own.acknowledge(&theirs[0]).expect_err("it was read by another");
    assert_eq!(refused.kind(), ErrorKind::CommitFenced);
    let refused = other.commit(Commit::Record(&mine[1]), LIMIT).expect_err("likewise");
    assert_eq!(refused.kind(), ErrorKind::CommitFenced);
    own.close(LIMIT).unwrap();
    other.close(LIMIT).unwrap();
}

#[test]
fn a_record_names_itself_alone_as_finished_and_never_all_before_it() {
    let (cluster, topic) = Cluster::with_topic(1);
    send(&cluster, &topic, 0..2);
    let explicit = consumer(&cluster, &topic);
    let records = read(&explicit, 2);
    let refused = explicit.commit(Commit::Record(&records[1]), LIMIT).expect_err("all before it");
    assert_eq!(refused.kind(), ErrorKind::InvalidState);
    explicit.close(LIMIT).unwrap();

    let implicit = Consumer::new(&member_options(&cluster.bootstrap(), "other", &[])).unwrap();
    implicit.subscribe(&[&topic]).unwrap();
    let record = implicit.poll(LIMIT).unwrap().unwrap();
    let refused = implicit.acknowledge(&record).expect_err("the next poll finishes it");
    assert_eq!(refused.kind(), ErrorKind::InvalidState);
    implicit.close(LIMIT).unwrap();

    let explicit = [("acknowledgement.mode", "explicit")];
    let alone = Consumer::new(&options(&cluster.bootstrap(), &explicit)).unwrap();
    let refused = alone.acknowledge(&record).expect_err("nothing is committed without a group");
    assert_eq!(refused.kind(), ErrorKind::InvalidGroup);
}
