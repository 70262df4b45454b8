//! Delivery callbacks: once a record, in order, on their own thread, and nothing grows by them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod patience;
mod scripted;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use ottla::{Delivery, Error, ErrorKind, Options, Outcome, Producer, Record};
use ottla_protocol::ErrorCode;
use patience::{LIMIT, wait_until, within_limit};
use scripted::{Act, Script, ScriptedBroker, TOPIC};

fn producer(broker: &ScriptedBroker, more: &str) -> Producer {
    let text = format!("bootstrap.servers={};retry.backoff.ms=5;{more}", broker.bootstrap());
    Producer::new(&Options::parse(&text).unwrap()).unwrap()
}

#[test]
fn each_record_is_told_of_once_in_the_order_of_its_partition_with_what_was_given_along() {
    within_limit(|| {
        let moved = Act::Refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        let acts = vec![Act::Store, moved, Act::StoreAndCut, Act::Store, moved];
        let script = Script { acts, partitions: 3, ..Script::default() };
        let broker = ScriptedBroker::start(script);
        // Small batches, so that threads write into many of them together.
        let producer = producer(&broker, "batch.size=300;partitioner=round_robin");
        let (tell, told) = mpsc::channel();
        let callbacks = producer
            .callbacks(move |opaque: (u32, u32), result: Result<Delivery, Error>| {
                let thread = thread::current().name().unwrap().to_owned();
                tell.send((opaque, result.unwrap(), thread)).unwrap();
            })
            .unwrap();
        let senders: Vec<_> = (0..4)
            .map(|thread| {
                let callbacks = callbacks.clone();
                thread::spawn(move || {
                    for number in 0..500 {
                        let value = format!("{thread}-{number}");
                        let record = Record::to(TOPIC).value(&value);
                        callbacks.send(&record, (thread, number)).unwrap();
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.join().unwrap();
        }
        callbacks.wait(LIMIT).unwrap();
        let told: Vec<_> = told.try_iter().collect();
        assert_eq!(told.len(), 2_000);
        let mut next: BTreeMap<i32, i64> = BTreeMap::new();
        for ((thread, number), delivery, on) in told {
            let next = next.entry(delivery.partition).or_default();
            assert_eq!(delivery.offset, *next, "in the order of offsets, without a gap");
            *next += 1;
            let stored = broker.stored(delivery.partition);
            let at = usize::try_from(delivery.offset).unwrap();
            assert_eq!(stored[at], format!("{thread}-{number}"));
            assert_eq!(on, "ottla-callbacks");
        }
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn a_refused_record_is_told_of_and_no_flush_tells_it_again() {
    within_limit(|| {
        let acts = vec![Act::Refuse(ErrorCode::INVALID_TIMESTAMP)];
        let broker = ScriptedBroker::start(Script { acts, ..Script::default() });
        let producer = producer(&broker, "");
        let (tell, told) = mpsc::channel();
        let callbacks = producer.callbacks(move |(), result| tell.send(result).unwrap()).unwrap();
        callbacks.send(&Record::to(TOPIC).value("a"), ()).unwrap();
        producer.flush(LIMIT).unwrap();
        let error: Error = told.recv().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidTimestamp);
        assert_eq!(error.outcome(), Some(Outcome::Rejected));
        // What send itself refuses is its own answer.
        let named = Record::to(TOPIC).partition(7).value("b");
        assert_eq!(callbacks.send(&named, ()).unwrap_err().kind(), ErrorKind::InvalidPartition);
        callbacks.wait(LIMIT).unwrap();
        assert!(told.try_recv().is_err(), "no callback for what was not taken");
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn slow_callbacks_leave_no_room_for_further_records() {
    within_limit(|| {
        let broker = ScriptedBroker::start(Script::default());
        let producer = producer(&broker, "buffer.memory=65536;batch.size=4000");
        let gate = Arc::new(Mutex::new(0));
        let shut = gate.lock().unwrap();
        let own = Arc::clone(&gate);
        let count = move |(), result: Result<Delivery, Error>| {
            result.unwrap();
            *own.lock().unwrap() += 1;
        };
        let callbacks = producer.callbacks(count).unwrap();
        let record = Record::to(TOPIC).value(&[b'v'; 1000]);
        let (mut taken, mut quiet) = (0, 0);
        // All that was taken is delivered, and still there is no room.
        while quiet < 3 {
            match callbacks.try_send(&record, ()) {
                Ok(()) => {
                    taken += 1;
                    quiet = 0;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::BufferFull);
                    producer.flush(LIMIT).unwrap();
                    quiet += 1;
                }
            }
        }
        assert_eq!(producer.stats().delivered, taken);
        assert!((30..=70).contains(&taken), "{taken} records");
        let late = callbacks.wait(Duration::from_millis(1)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Timeout);
        drop(shut);
        // A send that waits for room gets it from the callbacks that have returned.
        callbacks.send(&record, ()).unwrap();
        callbacks.wait(LIMIT).unwrap();
        assert_eq!(*gate.lock().unwrap(), taken + 1);
        producer.close(LIMIT).unwrap();
        wait_until("room given back", || producer.stats().memory_used == 0);
    });
}

#[test]
fn a_callback_may_send_and_may_panic_and_must_not_wait_for_itself() {
    within_limit(|| {
        let broker = ScriptedBroker::start(Script::default());
        let producer = producer(&broker, "");
        let (tell, told) = mpsc::channel();
        let own = Arc::new(Mutex::new(None::<ottla::Callbacks<u32>>));
        let inside = Arc::clone(&own);
        let callback = move |left: u32, result: Result<Delivery, Error>| {
            result.unwrap();
            if left > 0 {
                let inside = inside.lock().unwrap();
                let callbacks = inside.as_ref().unwrap();
                let refused = callbacks.wait(LIMIT).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::InvalidState);
                callbacks.try_send(&Record::to(TOPIC).value("again"), left - 1).unwrap();
            }
            tell.send(left).unwrap();
            assert_ne!(left, 2, "one of them panics");
        };
        let callbacks = producer.callbacks(callback).unwrap();
        *own.lock().unwrap() = Some(callbacks.clone());
        callbacks.send(&Record::to(TOPIC).value("first"), 4).unwrap();
        let each: Vec<u32> = (0..5).map(|_| told.recv().unwrap()).collect();
        assert_eq!(each, [4, 3, 2, 1, 0]);
        // It holds itself, and would hold its thread.
        drop(own.lock().unwrap().take());
        producer.close(LIMIT).unwrap();
    });
}

#[test]
fn what_was_sent_is_told_of_after_the_last_handle_is_gone_and_then_the_thread_ends() {
    within_limit(|| {
        let broker = ScriptedBroker::start(Script::default());
        let producer = producer(&broker, "");
        let (tell, told) = mpsc::channel();
        let callbacks = producer.callbacks(move |number, _| tell.send(number).unwrap()).unwrap();
        for number in 0..100 {
            callbacks.send(&Record::to(TOPIC).value("v"), number).unwrap();
        }
        drop(callbacks);
        // The channel ends with the callback, and that with its thread.
        assert_eq!(told.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        producer.close(LIMIT).unwrap();
    });
}
