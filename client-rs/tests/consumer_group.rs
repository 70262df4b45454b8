//! Consumers of a group.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "tests wait in real time, up to a limit")]

mod clients;
mod cluster;
mod patience;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clients::{member_options, producer};
use cluster::{Cluster, fresh};
use ottla::{Batch, Commit, Consumer, ErrorKind, OffsetAndMetadata, Record, TopicPartition};
use patience::{LIMIT, block_on, wait_until};

fn member(cluster: &Cluster, topic: &str, more: &[(&str, &str)]) -> Consumer {
    clients::member(&cluster.bootstrap(), topic, more)
}

/// Sends the numbers of a range, each to the partition that its value modulo `partitions` names.
fn produce(cluster: &Cluster, topic: &str, partitions: i32, numbers: std::ops::Range<i32>) {
    let producer = producer(&cluster.bootstrap(), &[]);
    for number in numbers {
        let value = number.to_string();
        let record = Record::to(topic).key("k").value(&value).partition(number % partitions);
        producer.send(&record).unwrap();
    }
    producer.close(LIMIT).unwrap();
}

fn number(value: Option<&[u8]>) -> i32 {
    std::str::from_utf8(value.unwrap()).unwrap().parse().unwrap()
}

/// Reads until so many records came.
fn read(consumer: &Consumer, count: usize) -> Vec<i32> {
    let mut numbers = Vec::new();
    let deadline = Instant::now() + LIMIT;
    while numbers.len() < count {
        assert!(Instant::now() < deadline, "only {} of {count} records came", numbers.len());
        if let Some(batch) = consumer.poll_batch(LIMIT).unwrap() {
            numbers.extend(batch.records().map(|record| number(record.value)));
        }
    }
    numbers
}

#[test]
fn records_come_with_all_that_belongs_to_them() {
    let (cluster, t) = Cluster::with_topic(1);
    let producer = producer(&cluster.bootstrap(), &[]);
    let headers = [
        ottla::Header::new("a", b"1"),
        ottla::Header { key: "b", value: None },
        ottla::Header::new("a", b""),
    ];
    let full = Record::to(&t).key("k").value("v").headers(&headers).timestamp(1_234);
    producer.send(&full).unwrap();
    producer.send(&Record::to(&t).key("")).unwrap();
    producer.close(LIMIT).unwrap();
    let consumer = member(&cluster, &t, &[]);
    let record = consumer.poll(LIMIT).unwrap().unwrap();
    assert_eq!((record.topic(), record.partition(), record.offset()), (&*t, 0, 0));
    assert_eq!((record.key(), record.value()), (Some(&b"k"[..]), Some(&b"v"[..])));
    assert_eq!(record.timestamp(), 1_234);
    let found: Vec<_> = record.headers().iter().collect();
    assert_eq!(found, [(&b"a"[..], Some(&b"1"[..])), (b"b", None), (b"a", Some(b""))]);
    let second = consumer.poll(LIMIT).unwrap().unwrap();
    assert_eq!((second.offset(), second.key(), second.value()), (1, Some(&b""[..]), None));
    consumer.close(LIMIT).unwrap();
    drop(consumer);
    drop(cluster);
    assert_eq!(record.value(), Some(&b"v"[..]), "good after consumer and broker are gone");
    assert_eq!(second.leader_epoch(), record.leader_epoch());
}

#[test]
fn every_record_comes_once_in_the_order_of_its_partition() {
    let (cluster, t) = Cluster::with_topic(4);
    produce(&cluster, &t, 4, 0..20_000);
    let consumer = member(&cluster, &t, &[]);
    let mut last = BTreeMap::new();
    let numbers = read(&consumer, 20_000);
    for &number in &numbers {
        let before = last.insert(number % 4, number);
        assert!(before.is_none_or(|before| before + 4 == number), "{before:?} then {number}");
    }
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 20_000);
    assert!(consumer.poll(Duration::ZERO).unwrap().is_none());
    assert_eq!(consumer.stats().records, 20_000);
    for partition in consumer.assignment() {
        assert_eq!(consumer.position(&partition), Some(5_000));
    }
    consumer.close(LIMIT).unwrap();
}

#[test]
fn two_members_share_the_partitions_and_one_gets_them_all_when_the_other_leaves() {
    let (cluster, t) = Cluster::with_topic(4);
    let first = member(&cluster, &t, &[("heartbeat.interval.ms", "50")]);
    let second = member(&cluster, &t, &[("heartbeat.interval.ms", "50")]);
    let mut seen = Vec::new();
    let mut drain = |from: &Consumer| {
        while let Some(record) = from.poll(Duration::from_millis(1)).unwrap() {
            seen.push(number(record.value()));
        }
    };
    wait_until("an even share", || {
        drain(&first);
        drain(&second);
        first.assignment().len() == 2 && second.assignment().len() == 2
    });
    produce(&cluster, &t, 4, 0..1_000);
    let (mut one, mut two) = (0, 0);
    wait_until("a record for each", || {
        one += usize::from(first.poll(Duration::from_millis(1)).unwrap().is_some());
        two += usize::from(second.poll(Duration::from_millis(1)).unwrap().is_some());
        one + two == 1_000
    });
    assert_eq!((one, two), (500, 500));
    // One more poll each: only then is the last record finished.
    assert!(first.poll(Duration::ZERO).unwrap().is_none());
    assert!(second.poll(Duration::ZERO).unwrap().is_none());
    second.close(LIMIT).unwrap();
    produce(&cluster, &t, 4, 1_000..2_000);
    let mut numbers = read(&first, 1_000);
    numbers.sort_unstable();
    assert_eq!(numbers, (1_000..2_000).collect::<Vec<_>>(), "none lost, none twice");
    assert_eq!(first.assignment().len(), 4);
    first.close(LIMIT).unwrap();
}

#[test]
fn members_that_come_and_go_under_load_read_every_record_once() {
    let (cluster, t) = Cluster::with_topic(6);
    let total = 30_000;
    let counts: Arc<Vec<AtomicU32>> = Arc::new((0..total).map(|_| AtomicU32::new(0)).collect());
    let read = Arc::new(AtomicU32::new(0));
    let (bootstrap, topic) = (cluster.bootstrap(), t.clone());
    let start = |stop_after: Option<u32>| {
        let (counts, read) = (Arc::clone(&counts), Arc::clone(&read));
        let (bootstrap, topic) = (bootstrap.clone(), topic.clone());
        std::thread::spawn(move || {
            let quick = [("heartbeat.interval.ms", "20")];
            let consumer = clients::member(&bootstrap, &topic, &quick);
            let mut own = 0;
            let deadline = Instant::now() + LIMIT;
            while read.load(Ordering::SeqCst) < total && stop_after.is_none_or(|stop| own < stop) {
                assert!(Instant::now() < deadline, "stuck at {}", read.load(Ordering::SeqCst));
                let Some(batch) = consumer.poll_batch(Duration::from_millis(20)).unwrap() else {
                    continue;
                };
                for record in batch.records() {
                    let index = usize::try_from(number(record.value)).unwrap();
                    counts[index].fetch_add(1, Ordering::SeqCst);
                    read.fetch_add(1, Ordering::SeqCst);
                    own += 1;
                }
            }
            // The work is done: it may be committed.
            consumer.commit(Commit::Finished, LIMIT).ok();
            consumer.close(LIMIT).unwrap();
            own
        })
    };
    let stays = start(None);
    let leaves = start(Some(2_000));
    for from in (0..30_000).step_by(3_000) {
        produce(&cluster, &t, 6, from..from + 3_000);
    }
    leaves.join().unwrap();
    let joins = start(None);
    stays.join().unwrap();
    joins.join().unwrap();
    let twice = counts.iter().filter(|count| count.load(Ordering::SeqCst) != 1).count();
    assert_eq!(twice, 0, "records that came not exactly once");
}

#[test]
fn a_new_member_goes_on_where_the_group_has_come_to() {
    let (cluster, t) = Cluster::with_topic(1);
    produce(&cluster, &t, 1, 0..100);
    let part = TopicPartition::new(&*t, 0);
    let manual = [("enable.auto.commit", "false"), ("max.poll.records", "10")];
    let consumer = member(&cluster, &t, &manual);
    let batch = consumer.poll_batch(LIMIT).unwrap().unwrap();
    assert_eq!((batch.len(), batch.base_offset(), batch.last_offset()), (10, 0, 9));
    consumer.poll_batch(LIMIT).unwrap().unwrap();
    consumer.commit(Commit::Batch(&batch), LIMIT).unwrap();
    let committed = consumer.committed(&[part.clone(), TopicPartition::new(&*t, 7)], LIMIT);
    assert_eq!(committed.unwrap()[0], (part.clone(), Some(10)));
    consumer.close(LIMIT).unwrap();

    let consumer = member(&cluster, &t, &manual);
    let record = consumer.poll(LIMIT).unwrap().unwrap();
    assert_eq!(record.offset(), 10, "the second batch was never committed");
    consumer.commit(Commit::Record(&record), LIMIT).unwrap();
    consumer.commit_soon(Commit::Record(&record)).unwrap();
    consumer.close(LIMIT).unwrap();

    let consumer = member(&cluster, &t, &manual);
    assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 11);
    consumer.commit(Commit::Offsets(&[(part, 50)]), LIMIT).unwrap();
    consumer.close(LIMIT).unwrap();

    let consumer = member(&cluster, &t, &manual);
    assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), 50);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn finished_work_is_committed_at_close_without_being_asked() {
    let (cluster, t) = Cluster::with_topic(1);
    produce(&cluster, &t, 1, 0..10);
    let consumer = member(&cluster, &t, &[]);
    for offset in 0..4 {
        assert_eq!(consumer.poll(LIMIT).unwrap().unwrap().offset(), offset);
    }
    consumer.close(LIMIT).unwrap();
    let consumer = member(&cluster, &t, &[]);
    let record = consumer.poll(LIMIT).unwrap().unwrap();
    assert_eq!(record.offset(), 3, "the fourth was still open");
    consumer.close(LIMIT).unwrap();
}

#[test]
fn seek_and_pause_take_effect_at_once() {
    let (cluster, t) = Cluster::with_topic(2);
    produce(&cluster, &t, 2, 0..100);
    let consumer = member(&cluster, &t, &[]);
    read(&consumer, 100);
    let (even, odd) = (TopicPartition::new(&*t, 0), TopicPartition::new(&*t, 1));
    for offset in [40, 0, 17] {
        consumer.pause(std::slice::from_ref(&even)).unwrap();
        consumer.seek(&even, offset).unwrap();
        assert_eq!(consumer.position(&even), Some(offset));
        consumer.resume(std::slice::from_ref(&even)).unwrap();
        let record = consumer.poll(LIMIT).unwrap().unwrap();
        assert_eq!((record.partition(), record.offset()), (0, offset));
    }
    consumer.pause(std::slice::from_ref(&odd)).unwrap();
    produce(&cluster, &t, 2, 100..102);
    consumer.seek(&even, 50).unwrap();
    let record = consumer.poll(LIMIT).unwrap().unwrap();
    assert_eq!((record.partition(), number(record.value())), (0, 100));
    assert!(consumer.poll(Duration::from_millis(50)).unwrap().is_none(), "the other is paused");
    consumer.resume(std::slice::from_ref(&odd)).unwrap();
    assert_eq!(number(consumer.poll(LIMIT).unwrap().unwrap().value()), 101);
    let other = TopicPartition::new(&*t, 9);
    assert_eq!(consumer.seek(&other, 0).unwrap_err().kind(), ErrorKind::NotAssigned);
    assert_eq!(consumer.pause(&[other]).unwrap_err().kind(), ErrorKind::NotAssigned);
    assert_eq!(consumer.seek(&even, -1).unwrap_err().kind(), ErrorKind::InvalidArgument);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn a_commit_for_a_partition_that_went_away_is_fenced() {
    let (cluster, t) = Cluster::with_topic(2);
    produce(&cluster, &t, 2, 0..20);
    let quick = [("heartbeat.interval.ms", "20"), ("enable.auto.commit", "false")];
    let first = member(&cluster, &t, &quick);
    let mut held: Vec<Batch> = Vec::new();
    while held.iter().map(Batch::len).sum::<usize>() < 20 {
        held.push(first.poll_batch(LIMIT).unwrap().unwrap());
    }
    let second = member(&cluster, &t, &quick);
    wait_until("a share for the second", || {
        let polled = first.poll_batch(Duration::from_millis(1)).unwrap();
        let other = second.try_poll_batch().unwrap();
        drop((polled, other));
        first.assignment().len() == 1 && second.assignment().len() == 1
    });
    let mine = first.assignment()[0].clone();
    for batch in &held {
        let result = first.commit(Commit::Batch(batch), LIMIT);
        if *batch.topic_partition() == mine {
            result.unwrap();
        } else {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CommitFenced);
            assert_eq!(error.partition(), Some(batch.partition()));
            assert_eq!(error.partitions(), [batch.topic_partition().clone()]);
        }
    }
    first.close(LIMIT).unwrap();
    second.close(LIMIT).unwrap();
}

#[test]
fn a_task_is_woken_by_records_and_loses_none_when_dropped() {
    use std::task::{Context, Waker};

    let (cluster, t) = Cluster::with_topic(1);
    let consumer = member(&cluster, &t, &[]);
    let mut dropped = Box::pin(consumer.next_batch());
    let waker = Waker::noop();
    assert!(dropped.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    drop(dropped);
    produce(&cluster, &t, 1, 0..10);
    let mut count = 0;
    while count < 10 {
        let batch = block_on(consumer.next_batch()).0.unwrap().unwrap();
        assert_eq!(number(batch.get(0).unwrap().value), i32::try_from(count).unwrap());
        count += batch.len();
    }
    block_on(consumer.commit_async(Commit::Finished)).0.unwrap();
    let part = TopicPartition::new(&*t, 0);
    let committed = block_on(consumer.committed_async(std::slice::from_ref(&part))).0.unwrap();
    assert_eq!(committed, [(part, Some(10))]);
    block_on(consumer.close_async(LIMIT)).0.unwrap();
    assert_eq!(block_on(consumer.next()).0.unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn wakeup_ends_a_waiting_poll_and_close_another() {
    let (cluster, t) = Cluster::with_topic(1);
    let consumer = member(&cluster, &t, &[]);
    for last in [false, true] {
        let waiting = consumer.clone();
        let thread = std::thread::spawn(move || waiting.poll(LIMIT));
        if last {
            consumer.close(LIMIT).unwrap();
            assert_eq!(thread.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        } else {
            consumer.wakeup();
            assert!(thread.join().unwrap().unwrap().is_none());
        }
    }
    consumer.close(Duration::ZERO).unwrap();
    assert_eq!(consumer.poll(LIMIT).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(consumer.subscribe(&[&t]).unwrap_err().kind(), ErrorKind::Closed);
    let error = consumer.commit(Commit::Finished, LIMIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[test]
fn a_hook_tells_that_records_are_ready() {
    let (cluster, t) = Cluster::with_topic(1);
    let consumer = member(&cluster, &t, &[]);
    let (tell, told) = std::sync::mpsc::channel();
    consumer.on_ready(move || tell.send(()).unwrap());
    produce(&cluster, &t, 1, 0..10);
    let mut count = 0;
    while count < 10 {
        told.recv_timeout(LIMIT).unwrap();
        while let Some(batch) = consumer.try_poll_batch().unwrap() {
            count += batch.len();
        }
    }
    assert_eq!(count, 10);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn offsets_are_committed_with_what_the_program_keeps_beside_them() {
    let (cluster, t) = Cluster::with_topic(2);
    produce(&cluster, &t, 2, 0..20);
    let consumer = member(&cluster, &t, &[("enable.auto.commit", "false")]);
    read(&consumer, 20);
    let place = |index| TopicPartition::new(&*t, index);
    let named = |offset, leader_epoch, metadata: &str| OffsetAndMetadata {
        offset,
        leader_epoch,
        metadata: metadata.to_owned(),
    };
    let offsets = [(place(0), named(7, Some(0), "half way")), (place(1), named(3, None, ""))];
    consumer.commit(Commit::OffsetsAndMetadata(&offsets), LIMIT).unwrap();
    let asked = [place(1), place(0)];
    let found = consumer.committed_with_metadata(&asked, LIMIT).unwrap();
    assert_eq!(found[0], (place(1), Some(named(3, None, ""))));
    assert_eq!(found[1], (place(0), Some(named(7, Some(0), "half way"))));
    let (again, _) = block_on(consumer.committed_with_metadata_async(&asked));
    assert_eq!(again.unwrap(), found, "a task is told the same");
    // Back is allowed, since it is the program's word.
    consumer.commit(Commit::Offsets(&[(place(0), 5)]), LIMIT).unwrap();
    let found = consumer.committed_with_metadata(&[place(0)], LIMIT).unwrap();
    assert_eq!(found[0].1, Some(OffsetAndMetadata::new(5)), "the text went with its offset");
    for (offset, bytes, kind) in [
        (-1, 0, ErrorKind::InvalidArgument),
        (0, 32_768, ErrorKind::InvalidArgument),
        (0, 4_097, ErrorKind::InvalidGroup),
    ] {
        let text = "x".repeat(bytes);
        let refused = [(place(0), named(offset, None, &text))];
        let error = consumer.commit(Commit::OffsetsAndMetadata(&refused), LIMIT).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let full = [(place(0), named(6, None, &"x".repeat(4_096)))];
    consumer.commit(Commit::OffsetsAndMetadata(&full), LIMIT).unwrap();
    let other = [(TopicPartition::new("u", 0), OffsetAndMetadata::new(1))];
    let error = consumer.commit(Commit::OffsetsAndMetadata(&other), LIMIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitFenced);
    consumer.close(LIMIT).unwrap();
}

#[test]
fn a_consumer_of_a_pattern_reads_topics_that_come_later() {
    let (cluster, other) = Cluster::with_topic(1);
    let orders = fresh("orders");
    let (first, second) = (format!("{orders}-1"), format!("{orders}-2"));
    cluster.make_topic(&first, 1);
    let often = [("metadata.max.age.ms", "50")];
    let options = member_options(&cluster.bootstrap(), &orders, &often);
    let consumer = Consumer::new(&options).unwrap();
    let error = consumer.subscribe_pattern(&format!("{orders}-(")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    // Names that have a match in them, or at one end, do not match.
    for near in [format!("old.{first}"), format!("{orders}-1-old")] {
        cluster.make_topic(&near, 1);
        produce(&cluster, &near, 1, 90..95);
    }
    consumer.subscribe_pattern(&format!("{orders}-[0-9]|{orders}-[a-f]")).unwrap();
    produce(&cluster, &other, 1, 0..5);
    produce(&cluster, &first, 1, 0..5);
    assert_eq!(read(&consumer, 5), [0, 1, 2, 3, 4]);
    cluster.make_topic(&second, 1);
    produce(&cluster, &second, 1, 10..15);
    assert_eq!(read(&consumer, 5), [10, 11, 12, 13, 14]);
    let has: Vec<String> = consumer.assignment().iter().map(ToString::to_string).collect();
    assert_eq!(has, [format!("{first}-0"), format!("{second}-0")], "a pattern is of whole names");
    consumer.close(LIMIT).unwrap();
}
