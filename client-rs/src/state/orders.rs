//! What threads share, in every order in which their steps can come (loom).
//!
//! Where one sleeps and nobody wakes it, loom tells of a deadlock.

use std::sync::Arc;
use std::task::{Wake as TaskWake, Waker};

use loom::sync::Notify;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use loom::thread;

use super::accumulator::memory::{CHUNK_MIN, Memory, Place};
use super::completion::{Completion, Completions, Forward, Outcome, Stamp, Who};
use super::parker::Sleeper;
use super::wake::Wake;

/// Somebody who sleeps until woken; counts how often.
struct Bed {
    notify: Notify,
    wakes: AtomicUsize,
}

impl Bed {
    fn new() -> Arc<Self> {
        Arc::new(Self { notify: Notify::new(), wakes: AtomicUsize::new(0) })
    }

    fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    fn sleeper(self: &Arc<Self>) -> Sleeper {
        Sleeper::Task(self.waker())
    }

    fn sleep(&self) {
        self.notify.wait();
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}

impl TaskWake for Bed {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.notify.notify();
    }
}

/// Tries three threads in all orders in which none is interrupted more than three times.
fn tried(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// The machines' turns until they have seen `items`.
fn turns(wake: &Wake, put: &AtomicU32, items: u32) {
    let bed = Bed::new();
    let waker = bed.waker();
    loop {
        wake.begin();
        if put.load(Ordering::Relaxed) == items {
            break;
        }
        if wake.park(&waker, false) {
            bed.sleep();
        }
    }
}

#[test]
fn what_two_threads_put_is_seen_by_machines_that_sleep() {
    tried(|| {
        let (wake, put) = (Arc::new(Wake::default()), Arc::new(AtomicU32::new(0)));
        let threads = [true, false].map(|begun| {
            let (wake, put) = (Arc::clone(&wake), Arc::clone(&put));
            thread::spawn(move || {
                put.fetch_add(1, Ordering::Relaxed);
                if begun { wake.wake_if_idle() } else { wake.wake() }
            })
        });
        turns(&wake, &put, 2);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn what_is_only_begun_is_seen_once_the_machines_sleep_with_nothing_due() {
    loom::model(|| {
        let (wake, put) = (Arc::new(Wake::default()), Arc::new(AtomicU32::new(0)));
        let pusher = {
            let (wake, put) = (Arc::clone(&wake), Arc::clone(&put));
            thread::spawn(move || {
                put.store(1, Ordering::Relaxed);
                wake.wake_if_idle();
            })
        };
        // A turn that waits for an answer, which comes; then one with nothing due.
        let bed = Bed::new();
        wake.begin();
        if put.load(Ordering::Relaxed) == 0 {
            let _parked = wake.park(&bed.waker(), true);
        }
        turns(&wake, &put, 1);
        pusher.join().unwrap();
    });
}

/// Waits for room.
fn granted(memory: &Arc<Memory>, bytes: usize) -> Place {
    let bed = Bed::new();
    let place = memory.queue(bytes, None);
    while !place.poll(bed.sleeper()) {
        bed.sleep();
    }
    place
}

#[test]
fn room_that_comes_while_one_takes_its_place_reaches_it() {
    loom::model(|| {
        let memory = Memory::new(CHUNK_MIN);
        let chunk = memory.try_chunk(CHUNK_MIN).unwrap();
        let holder = thread::spawn(move || drop(chunk));
        drop(granted(&memory, CHUNK_MIN).take_chunk().unwrap());
        holder.join().unwrap();
        assert_eq!(memory.used(), 0);
        assert!(!memory.is_awaited());
    });
}

#[test]
fn room_goes_from_one_who_waits_to_the_next() {
    tried(|| {
        let memory = Memory::new(CHUNK_MIN);
        let chunk = memory.try_chunk(CHUNK_MIN).unwrap();
        let other = Arc::clone(&memory);
        let waiter = thread::spawn(move || drop(granted(&other, CHUNK_MIN)));
        let holder = thread::spawn(move || drop(chunk));
        drop(granted(&memory, CHUNK_MIN).take_chunk().unwrap());
        waiter.join().unwrap();
        holder.join().unwrap();
        assert_eq!(memory.used(), 0);
    });
}

#[test]
fn two_who_take_chunks_at_once_stay_within_the_budget() {
    loom::model(|| {
        let memory = Memory::new(CHUNK_MIN);
        let other = Arc::clone(&memory);
        let taker = thread::spawn(move || other.try_chunk(CHUNK_MIN));
        let mine = memory.try_chunk(CHUNK_MIN);
        let theirs = taker.join().unwrap();
        assert!(mine.is_some() != theirs.is_some(), "one of two fits");
        assert_eq!(memory.used(), CHUNK_MIN);
        drop((mine, theirs));
        assert_eq!(memory.used(), 0);
    });
}

fn batch(id: u64, partition: i32) -> Arc<Completion> {
    Completion::new(id, &Arc::from("orders"), partition)
}

fn stored() -> Outcome {
    Outcome::Stored { base_offset: 7, append_time: -1 }
}

/// Waits for a record's result.
fn result(batch: &Arc<Completion>, index: u32) -> i64 {
    let (bed, stamp) = (Bed::new(), Stamp { index, timestamp: 0 });
    while batch.register(index, Who::Sleeper(bed.sleeper())) {
        bed.sleep();
        if let Some(result) = batch.result(stamp) {
            return result.unwrap().offset;
        }
    }
    batch.result(stamp).expect("it ended before one asked").unwrap().offset
}

#[test]
fn a_batch_that_ends_while_two_ask_is_told_to_both() {
    tried(|| {
        let ended = batch(1, 0);
        let (other, ending) = (Arc::clone(&ended), Arc::clone(&ended));
        let asking = thread::spawn(move || assert_eq!(result(&other, 1), 8));
        let broker = thread::spawn(move || ending.resolve(stored()));
        assert_eq!(result(&ended, 0), 7);
        asking.join().unwrap();
        broker.join().unwrap();
    });
}

#[test]
fn one_who_asks_while_the_records_part_is_told_when_its_own_ends() {
    tried(|| {
        let (staged, target) = (batch(1, -1), batch(2, 0));
        let parting = {
            let (staged, target) = (Arc::clone(&staged), Arc::clone(&target));
            thread::spawn(move || {
                let mut forward = Forward::default();
                forward.push(&target, 4);
                staged.resolve(Outcome::Forwarded(forward));
            })
        };
        let ending = thread::spawn(move || target.resolve(stored()));
        assert_eq!(result(&staged, 0), 11);
        parting.join().unwrap();
        ending.join().unwrap();
    });
}

#[test]
fn a_queue_that_is_drained_while_batches_end_is_woken_for_each() {
    tried(|| {
        let bed = Bed::new();
        let waker = bed.waker();
        let queue = Completions::new(move || waker.wake_by_ref());
        let batches = [batch(1, 0), batch(2, 0)];
        for ended in &batches {
            assert!(ended.register(0, Who::Queue(Arc::clone(&queue), Arc::clone(ended))));
        }
        let broker = thread::spawn(move || {
            for ended in batches {
                ended.resolve(stored());
            }
        });
        let mut told = 0;
        while told < 2 {
            bed.sleep();
            told += queue.drain(usize::MAX).len();
        }
        broker.join().unwrap();
        assert!((1..=2).contains(&bed.wakes()));
    });
}
