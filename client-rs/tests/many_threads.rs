//! One producer used by several threads at a time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "the time taken is printed")]

mod clients;
mod cluster;
mod patience;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use clients::{producer, read_all};
use cluster::{Cluster, fresh};
use ottla::Record;
use patience::{LIMIT, wait_until};

const RECORDS: u32 = 500_000;
const THREADS: u8 = 2;
const PARTITIONS: u8 = 4;

#[test]
fn a_million_records_of_two_threads_arrive_while_a_third_flushes() {
    let (cluster, topic) = Cluster::with_topic(PARTITIONS.into());
    let flushed = fresh("flushed");
    let producer = producer(&cluster.bootstrap(), &[]);
    let (began, sending) = (Instant::now(), AtomicBool::new(true));
    let flushes = thread::scope(|scope| {
        let senders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (producer, topic) = (&producer, &topic);
                scope.spawn(move || {
                    for number in 0..RECORDS {
                        let [a, b, c, d] = number.to_be_bytes();
                        let value = [thread, a, b, c, d];
                        let partition = i32::from(d % PARTITIONS);
                        let record = Record::to(topic).value(&value).partition(partition);
                        drop(producer.send(&record).unwrap());
                    }
                })
            })
            .collect();
        let flusher = scope.spawn(|| {
            let mut flushes = 0_u32;
            while sending.load(Ordering::SeqCst) {
                let own = producer.send(&Record::to(&flushed).value(&flushes.to_be_bytes()));
                producer.flush(LIMIT).unwrap();
                assert!(own.unwrap().result().is_some(), "flush {flushes} came too early");
                flushes += 1;
            }
            flushes
        });
        for sender in senders {
            sender.join().unwrap();
        }
        sending.store(false, Ordering::SeqCst);
        flusher.join().unwrap()
    });
    producer.flush(LIMIT).unwrap();
    let stats = producer.stats();
    println!("sent in {:?} with {flushes} flushes: {stats:?}", began.elapsed());
    let total = u64::from(RECORDS) * u64::from(THREADS);
    assert_eq!((stats.delivered, stats.failed), (total + u64::from(flushes), 0));
    wait_until("all room given back", || producer.stats().memory_used == 0);
    producer.close(LIMIT).unwrap();

    let began = Instant::now();
    // The next number of each thread in each partition.
    let mut next = [[0_u32, 1, 2, 3]; 2];
    let count = read_all(&cluster.bootstrap(), &topic, 4, |partition, _, _, value| {
        let &[thread, a, b, c, d] = value.unwrap() else { panic!("five bytes were sent") };
        let next = &mut next[usize::from(thread)][usize::try_from(partition).unwrap()];
        assert_eq!(u32::from_be_bytes([a, b, c, d]), *next, "of thread {thread}");
        *next += u32::from(PARTITIONS);
    });
    println!("read in {:?}", began.elapsed());
    assert_eq!(count, total);
}
