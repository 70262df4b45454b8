//! Closes at awkward moments: from inside what the client itself calls, and with its records in hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod patience;

use std::sync::mpsc;
use std::time::Duration;

use clients::{member, options, producer};
use cluster::Cluster;
use ottla::{Admin, ErrorKind, Record};
use patience::{LIMIT, timed, within_limit};

/// confluentinc/librdkafka#4519, fede1024/rust-rdkafka#509: a close in a callback waited for itself.
#[test]
fn a_delivery_callback_may_close_its_producer() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(1);
        let producer = producer(&cluster.bootstrap(), &[]);
        let (tell, told) = mpsc::channel();
        let closes = producer.clone();
        let callbacks = producer
            .callbacks(move |number: u32, result| {
                let closed = (number == 0).then(|| closes.close(LIMIT));
                tell.send((number, result, closed)).unwrap();
            })
            .unwrap();
        for number in 0..100 {
            callbacks.send(&Record::to(&topic).value("v"), number).unwrap();
        }
        for number in 0..100 {
            let (of, result, closed) = told.recv_timeout(LIMIT).unwrap();
            assert_eq!(of, number, "in their order, also behind the close");
            assert_eq!(result.unwrap().offset, i64::from(number));
            if let Some(closed) = closed {
                closed.unwrap();
            }
        }
        let late = callbacks.send(&Record::to(&topic).value("v"), 100).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Closed);
        producer.close(LIMIT).unwrap();
    });
}

/// confluentinc/librdkafka#4041: a close waited for messages that the program still held.
#[test]
fn records_that_are_still_held_hold_up_no_close_and_stay_readable() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(1);
        let producer = producer(&cluster.bootstrap(), &[]);
        for number in 0..1000_u32 {
            drop(producer.send(&Record::to(&topic).value(&number.to_be_bytes())).unwrap());
        }
        producer.close(LIMIT).unwrap();
        let consumer = member(&cluster.bootstrap(), &topic, &[]);
        let record = consumer.poll(LIMIT).unwrap().unwrap();
        let batch = consumer.poll_batch(LIMIT).unwrap().unwrap();
        let closing = consumer.clone();
        let (closed, took) = timed(move || closing.close(LIMIT));
        closed.unwrap();
        assert!(took < LIMIT / 2, "it waited for its deadline: {took:?}");
        assert_eq!(consumer.try_poll().unwrap_err().kind(), ErrorKind::Closed);
        drop(consumer);
        drop(cluster);
        assert_eq!(record.value(), Some(&0_u32.to_be_bytes()[..]));
        for row in batch.records() {
            let number = u32::try_from(row.offset).unwrap();
            assert_eq!(row.value, Some(&number.to_be_bytes()[..]));
        }
        assert_eq!(batch.records().next().unwrap().offset, 1);
    });
}

#[test]
fn a_wait_may_be_told_to_have_no_end() {
    within_limit(|| {
        let (cluster, topic) = Cluster::with_topic(1);
        let producer = producer(&cluster.bootstrap(), &[]);
        let callbacks = producer.callbacks(|(), result| drop(result.unwrap())).unwrap();
        callbacks.send(&Record::to(&topic).value("v"), ()).unwrap();
        let sent = producer.send(&Record::to(&topic).value("v")).unwrap();
        assert_eq!(sent.wait(Duration::MAX).unwrap().offset, 1);
        producer.flush(Duration::MAX).unwrap();
        callbacks.wait(Duration::MAX).unwrap();
        let consumer = member(&cluster.bootstrap(), &topic, &[]);
        assert_eq!(consumer.poll(Duration::MAX).unwrap().unwrap().offset(), 0);
        consumer.close(Duration::MAX).unwrap();
        producer.close(Duration::MAX).unwrap();
        let admin = Admin::new(&options(&cluster.bootstrap(), &[])).unwrap();
        admin.list_topics().wait().unwrap();
        admin.close(Duration::MAX).unwrap();
    });
}
