//! How often those are woken who wait for what they sent, or for what others did: once a batch at
//! most.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod patience;

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use clients::{member, producer};
use cluster::Cluster;
use ottla::{Completions, Producer, Record, Sent, Stamp};
use patience::{LIMIT, block_on, block_on_counted, wait_until};

const RECORDS: u32 = 100_000;
const OUTSTANDING: usize = 1_000;

fn send(producer: &Producer, topic: &str, number: u32) -> Sent {
    producer.send(&Record::to(topic).key(&number.to_be_bytes()).value(&[7; 100])).unwrap()
}

/// One task that keeps so many records on their way until all are delivered.
struct Together<'a> {
    producer: &'a Producer,
    topic: &'a str,
    sent: u32,
    delivered: u32,
    open: VecDeque<Sent>,
}

impl Future for Together<'_> {
    type Output = u32;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u32> {
        let this = &mut *self;
        loop {
            while this.open.len() < OUTSTANDING && this.sent < RECORDS {
                this.open.push_back(send(this.producer, this.topic, this.sent));
                this.sent += 1;
            }
            let before = this.open.len();
            this.open.retain_mut(|sent| match pin!(sent).poll(cx) {
                Poll::Ready(result) => {
                    assert!(result.unwrap().offset >= 0);
                    false
                }
                Poll::Pending => true,
            });
            let ended = before - this.open.len();
            this.delivered += u32::try_from(ended).unwrap();
            if this.delivered == RECORDS {
                return Poll::Ready(this.delivered);
            }
            if ended == 0 {
                return Poll::Pending;
            }
        }
    }
}

#[test]
fn records_awaited_together_wake_their_task_once_a_batch_at_most() {
    let (cluster, topic) = Cluster::with_topic(4);
    let producer = producer(&cluster.bootstrap(), &[]);
    let (sent, delivered, open) = (0, 0, VecDeque::new());
    let together = Together { producer: &producer, topic: &topic, sent, delivered, open };
    let (delivered, wakes) = block_on_counted(together);
    // Behind the close: the producer counts a wake after it was made, and makes the last one when
    // the task may have seen already that all is delivered.
    producer.close(LIMIT).unwrap();
    let (stats, wakes) = (producer.stats(), wakes.count());
    println!("{delivered} records, {} batches, {wakes} wakes of the task", stats.batches);
    assert_eq!(stats.delivered, u64::from(RECORDS));
    assert!(wakes <= stats.batches, "{wakes} wakes for {} batches", stats.batches);
    assert_eq!(stats.wakes, wakes, "the producer counts the same");
}

#[test]
fn records_of_one_call_wake_their_task_once_a_batch_at_most() {
    let (cluster, topic) = Cluster::with_topic(4);
    let producer = producer(&cluster.bootstrap(), &[]);
    let keys: Vec<_> = (0..RECORDS).map(u32::to_be_bytes).collect();
    let mut wakes = 0;
    for keys in keys.chunks(OUTSTANDING) {
        let records: Vec<_> =
            keys.iter().map(|key| Record::to(&topic).key(key).value(&[7; 100])).collect();
        let (results, woken) = block_on(producer.send_many(&records));
        assert_eq!(results.len(), records.len());
        assert!(results.iter().all(Result::is_ok));
        wakes += woken;
    }
    let batches = producer.stats().batches;
    println!("{RECORDS} records, {batches} batches, {wakes} wakes of the task");
    assert!(wakes <= batches, "{wakes} wakes for {batches} batches");
    producer.close(LIMIT).unwrap();
}

#[test]
fn a_queue_of_ended_batches_is_signalled_once_a_batch_at_most() {
    let (cluster, topic) = Cluster::with_topic(4);
    let producer = producer(&cluster.bootstrap(), &[]);
    let signals = Arc::new(AtomicU64::new(0));
    let (counted, thread) = (Arc::clone(&signals), std::thread::current());
    let queue = Completions::new(move || {
        // What had ended when it was asked about is signalled by who asks, at once.
        if std::thread::current().id() != thread.id() {
            counted.fetch_add(1, Ordering::SeqCst);
            thread.unpark();
        }
    });
    // Known first, so that no record goes by way of the staging batch.
    send(&producer, &topic, 0).wait(LIMIT).unwrap();
    let (mut sent, mut delivered) = (0, 0);
    let mut open = std::collections::BTreeMap::<u64, Vec<Stamp>>::new();
    while delivered < RECORDS {
        while sent - delivered < 1_000 && sent < RECORDS {
            let token = send(&producer, &topic, sent);
            token.notify(&queue);
            open.entry(token.batch_id()).or_default().push(token.stamp());
            sent += 1;
        }
        while queue.is_empty() {
            std::thread::park_timeout(LIMIT);
        }
        for batch in queue.drain(usize::MAX) {
            // A batch that had ended when a record was asked about comes once more.
            for stamp in open.remove(&batch.batch_id()).unwrap_or_default() {
                let delivery = batch.result(stamp).unwrap().unwrap();
                assert_eq!(delivery.offset, batch.base_offset().unwrap() + i64::from(stamp.index));
                delivered += 1;
            }
        }
    }
    let (signals, batches) = (signals.load(Ordering::SeqCst), producer.stats().batches);
    println!("{RECORDS} records, {batches} batches, {signals} signals of the queue");
    assert!(signals <= batches, "{signals} signals for {batches} batches");
    producer.close(LIMIT).unwrap();
}

#[test]
fn who_reads_record_by_record_is_woken_once_a_batch_at_most() {
    let (cluster, topic) = Cluster::with_topic(4);
    let consumer = member(&cluster.bootstrap(), &topic, &[]);
    wait_until("an assignment", || {
        assert!(consumer.try_poll().unwrap().is_none());
        consumer.assignment().len() == 4
    });
    let address = cluster.bootstrap();
    let sending = std::thread::spawn(move || {
        let producer = producer(&address, &[]);
        (0..RECORDS).for_each(|number| drop(send(&producer, &topic, number)));
        producer.close(LIMIT).unwrap();
        producer.stats().batches
    });
    let reading = async {
        let mut read = 0;
        while read < RECORDS {
            read += u32::from(consumer.next().await.unwrap().is_some());
        }
    };
    let ((), wakes) = block_on(reading);
    let batches = sending.join().unwrap();
    println!("{RECORDS} records, {batches} batches, {wakes} wakes of the task");
    assert!(wakes <= batches, "{wakes} wakes for {batches} batches");
    consumer.close(LIMIT).unwrap();
}
