//! What sending allocates: something for a batch, nothing for a record; and what it holds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod cluster;
mod elsewhere;
mod patience;
mod scripted;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use clients::producer;
use elsewhere::BrokerElsewhere;
use ottla::{ErrorKind, Header, Producer, Record};
use patience::{LIMIT, wait_until};
use scripted::{Script, ScriptedBroker, TOPIC};

/// Threads that can be told apart; later ones share the last place.
const THREADS: usize = 64;

#[derive(Debug)]
struct Counting;

/// What one thread has allocated.
struct Thread {
    id: AtomicI32,
    count: AtomicU64,
}

static COUNTS: [Thread; THREADS] =
    [const { Thread { id: AtomicI32::new(0), count: AtomicU64::new(0) } }; THREADS];
static KNOWN: AtomicUsize = AtomicUsize::new(0);
/// Bytes that the process has allocated and not freed.
static HELD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
}

fn count() {
    // A thread that is ending has no place any more, and nobody who asks.
    let _ended = PLACE.try_with(|place| {
        let index = place.get().unwrap_or_else(|| {
            let index = KNOWN.fetch_add(1, Ordering::SeqCst).min(THREADS - 1);
            let id = rustix::thread::gettid().as_raw_nonzero().get();
            COUNTS[index].id.store(id, Ordering::SeqCst);
            place.set(Some(index));
            index
        });
        COUNTS[index].count.fetch_add(1, Ordering::Relaxed);
    });
}

#[allow(unsafe_code, reason = "a global allocator is an unsafe trait")]
// SAFETY: every call goes to the system's allocator unchanged; the counters hold no pointers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What the thread of this id has allocated so far.
fn counted(id: i32) -> u64 {
    let found = COUNTS.iter().find(|thread| thread.id.load(Ordering::SeqCst) == id).unwrap();
    found.count.load(Ordering::SeqCst)
}

/// The id of the clients' own thread.
fn io_thread() -> i32 {
    let names = fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        let task = task.ok()?;
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let id = task.file_name().to_str()?.parse().ok()?;
        (name.trim() == "ottla-io").then_some(id)
    });
    names.last().unwrap()
}

/// Tests that measure run one by one: they share the clients' own thread.
static MEASURING: Mutex<()> = Mutex::new(());

const RECORDS: u64 = 100_000;

fn send_all(producer: &Producer, topic: &str) {
    let headers = [Header::new("trace", b"0123456789abcdef"), Header { key: "none", value: None }];
    for number in 0..RECORDS {
        let key = number.to_be_bytes();
        let record = Record::to(topic).key(&key).value(&[7; 80]).headers(&headers);
        drop(producer.send(&record).unwrap());
    }
}

/// What a round of records cost: the sender's allocations, the I/O thread's, the batches.
fn measure(producer: &Producer, round: impl FnOnce()) -> (u64, u64, u64) {
    let (own, io) = (rustix::thread::gettid().as_raw_nonzero().get(), io_thread());
    let before = (counted(own), counted(io), producer.stats());
    round();
    let after = (counted(own), counted(io), producer.stats());
    assert_eq!(after.2.delivered - before.2.delivered, RECORDS);
    (after.0 - before.0, after.1 - before.1, after.2.batches - before.2.batches)
}

#[test]
fn sending_allocates_nothing_for_a_record() {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let broker = BrokerElsewhere::in_memory(&[]);
    let topic = broker.topic(3);
    let producer = producer(broker.bootstrap(), &[]);
    for _ in 0..2 {
        send_all(&producer, &topic);
        producer.flush(LIMIT).unwrap();
    }

    let (sender, io, batches) = measure(&producer, || {
        send_all(&producer, &topic);
        producer.flush(LIMIT).unwrap();
    });
    println!("{RECORDS} records, {batches} batches: sender {sender}, I/O thread {io} allocations");
    assert!(sender <= 16 * batches, "{sender} allocations for {batches} batches");
    assert!(io <= 64 * batches, "{io} allocations for {batches} batches");

    // A broker that does not answer meanwhile makes for full batches, and few of them.
    let (sender, io, batches) = measure(&producer, || {
        broker.process().hold();
        send_all(&producer, &topic);
        broker.process().let_go();
        producer.flush(LIMIT).unwrap();
    });
    println!("the same in full batches, {batches}: sender {sender}, I/O thread {io} allocations");
    assert!(batches < RECORDS / 500, "{batches} batches");
    assert!(sender <= 16 * batches, "{sender} allocations for {batches} batches");
    assert!(io <= 64 * batches, "{io} allocations for {batches} batches");
    producer.close(LIMIT).unwrap();
    wait_until("room given back", || producer.stats().memory_used == 0);
}

#[test]
fn sending_costs_no_more_with_ten_thousand_topics_known() {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let script = Script { partitions: 1, others: "other-", ..Script::default() };
    let broker = ScriptedBroker::start(script);
    let producer = producer(&broker.bootstrap(), &[]);
    let send_to = |topic: &str| drop(producer.send(&Record::to(topic).value("v")).unwrap());
    for topics in [10, 10_000] {
        for number in 0..topics {
            send_to(&format!("other-{number}"));
        }
        send_to(TOPIC);
        producer.flush(LIMIT).unwrap();
        let (sender, io, batches) = measure(&producer, || {
            for number in 0..RECORDS {
                send_to(TOPIC);
                if number % 10_000 == 9_999 {
                    producer.flush(LIMIT).unwrap();
                }
            }
        });
        println!("{topics} topics, {batches} batches: sender {sender}, I/O thread {io}");
        assert!(sender <= 16 * batches, "{sender} allocations for {batches} batches");
        assert!(io <= 64 * batches, "{io} allocations for {batches} batches");
    }
    producer.close(LIMIT).unwrap();
}

/// Records with next to nothing in them: what is kept beside each would be most of it.
#[test]
fn what_is_held_for_records_with_times_of_their_own_is_counted_in_buffer_memory() {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    for known in [true, false] {
        let broker = BrokerElsewhere::in_memory(&[]);
        let topic = broker.topic(1);
        let options = [("buffer.memory", "2097152"), ("max.block.ms", "600000")];
        let producer = producer(broker.bootstrap(), &options);
        if known {
            producer.send(&Record::to(&topic)).unwrap().wait(LIMIT).unwrap();
            wait_until("room given back", || producer.stats().memory_used == 0);
        }
        broker.process().hold();
        let before = HELD.load(Ordering::SeqCst);
        let mut records = 0;
        // Each has another time than the one before.
        let error = loop {
            match producer.try_send(&Record::to(&topic).timestamp(records % 2)) {
                Ok(_dropped) => records += 1,
                Err(error) => break error,
            }
        };
        let held = HELD.load(Ordering::SeqCst).saturating_sub(before);
        let stats = producer.stats();
        let used = usize::try_from(stats.memory_used).unwrap();
        println!("{records} records, known: {known}: {held} bytes held, {used} counted");
        assert_eq!(error.kind(), ErrorKind::BufferFull);
        assert!(records > 20_000 && used > 1_900_000, "{stats:?}");
        assert!(held < used + used / 8, "{held} bytes are held, and {used} of them are counted");
        broker.process().let_go();
        producer.flush(LIMIT).unwrap();
        producer.close(LIMIT).unwrap();
    }
}

#[test]
fn allocations_are_counted_for_the_thread_that_makes_them() {
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    drop(Box::new(1));
    let before = counted(own);
    std::thread::spawn(|| drop(vec![1_u8; 100])).join().unwrap();
    let spawned = counted(own);
    drop(vec![1_u8; 100]);
    assert_eq!(counted(own), spawned + 1);
    assert!(spawned > before, "starting a thread allocates here too");
}
