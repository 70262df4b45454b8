//! Times that records should not have: older than those before them, or in another unit. On a clock
//! that the tests move.
#![allow(clippy::disallowed_methods, reason = "the time of a paused runtime is the test's")]
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod wire;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ottla_broker::sim::SimDisk;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use ottla_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use tokio::time::{Instant, sleep, sleep_until};
use wire::{EARLIEST, NEWEST, STORED, Wire, in_world, start};

/// As large as a batch may be, so that the segment of 1 MiB in which others are is full.
const LARGE: usize = 1_048_000;

const OPTIONS: &[(&str, &str)] = &[
    ("log.segment.bytes", "1048576"),
    ("log.retention.check.interval.ms", "10"),
    ("log.retention.ms", "-1"),
];

/// Time for the broker to look for old segments, and to do away with them.
async fn a_look() {
    sleep(Duration::from_secs(3)).await;
}

/// A record is older than the first of its segment (redpanda-data/redpanda#4010).
#[test]
fn records_older_than_those_before_them_upset_neither_time_queries_nor_retention() {
    const BEGIN: i64 = 1_000_000;
    const RETENTION: i64 = 1_020_000;
    in_world(BEGIN, async |_world| {
        let begin = Instant::now();
        let wall = async |ms: i64| {
            let since = u64::try_from(ms - BEGIN).expect("later");
            sleep_until(begin + Duration::from_millis(since)).await;
        };
        let disk = SimDisk::default();
        let mut broker = start(&disk, OPTIONS);
        let mut wire = Wire::connect(&mut broker);
        wire.create("orders", &[("retention.ms", &RETENTION.to_string())]).await;
        for time in [1000, 10, 900] {
            assert_eq!(wire.produce("orders", &[time], b"small").await, STORED);
        }
        assert_eq!(wire.produce("orders", &[950], &vec![0; LARGE]).await, STORED);
        let check = async |wire: &mut Wire| {
            assert_eq!(wire.list("orders", 500).await, (0, 1000));
            assert_eq!(wire.list("orders", 1000).await, (0, 1000));
            assert_eq!(wire.list("orders", 1001).await, (-1, -1));
            assert_eq!(wire.list("orders", NEWEST).await, (0, 1000), "largest throughout");
        };
        check(&mut wire).await;
        // As by kill -9: what is in memory of the indexes is gone, and they are built anew.
        drop(broker);
        let mut broker = start(&disk, OPTIONS);
        let mut wire = Wire::connect(&mut broker);
        check(&mut wire).await;
        wall(RETENTION + 990).await;
        assert_eq!(wire.list("orders", EARLIEST).await.0, 0, "10 and 900 are old enough");
        wall(RETENTION + 2_000).await;
        assert_eq!(wire.list("orders", EARLIEST).await.0, 4, "and now all are");
    });
}

/// The lines of a log, as text.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn with(&self, words: &[&str]) -> usize {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = String::from_utf8(bytes).expect("text");
        text.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }
}

/// A producer counts in microseconds (KAFKA-6482).
#[test]
fn times_in_microseconds_are_refused_or_told_of_and_other_ways_to_delete_still_work() {
    const NOW: i64 = 1_700_000_000_000;
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    let _told = tracing::subscriber::set_default(subscriber.finish());
    in_world(NOW, async |_world| {
        let mut broker = start(&SimDisk::default(), OPTIONS);
        let mut wire = Wire::connect(&mut broker);
        wire.create("usual", &[("retention.ms", "1000")]).await;
        let (code, record, told) = wire.produce("usual", &[NOW, NOW * 1000, NOW], b"x").await;
        assert_eq!((code, record), (ErrorCode::INVALID_TIMESTAMP, Some(1)), "{told}");
        assert!(told.contains("milliseconds"), "{told}");
        assert_eq!(wire.list("usual", -1).await.0, 0, "nothing is stored");

        let lifted = ("message.timestamp.after.max.ms", "9223372036854775807");
        wire.create("lifted", &[("retention.ms", "1000"), lifted]).await;
        for _ in 0..3 {
            assert_eq!(wire.produce("lifted", &[NOW * 1000], &vec![0; LARGE]).await, STORED);
        }
        a_look().await;
        a_look().await;
        assert_eq!(wire.list("lifted", EARLIEST).await.0, 0, "not for a thousand years");
        let told = lines.with(&["WARN", "of the future", "topic=lifted", "partition=0"]);
        assert_eq!(told, 1, "once");
        assert_eq!(lines.with(&["of the future", "usual"]), 0);
        assert_eq!(delete_records(&mut wire, "lifted", 1).await, 1);
        assert_eq!(wire.list("lifted", EARLIEST).await.0, 1);

        let size = ("retention.bytes", "1100000");
        wire.create("sized", &[("retention.ms", "1000"), size, lifted]).await;
        for _ in 0..3 {
            assert_eq!(wire.produce("sized", &[NOW * 1000], &vec![0; LARGE]).await, STORED);
        }
        a_look().await;
        assert_eq!(wire.list("sized", EARLIEST).await.0, 1, "the size counts all the same");
    });
}

/// The log start as the broker tells it.
async fn delete_records(wire: &mut Wire, topic: &str, offset: i64) -> i64 {
    let partition = DeleteRecordsPartition { partition_index: 0, offset };
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic { name: topic, partitions: vec![partition] }],
        timeout_ms: 30_000,
    };
    let answer = wire.call(2, &request).await;
    let response = answer.decode::<DeleteRecordsResponse<'_>>();
    let part = &response.topics[0].partitions[0];
    assert_eq!(part.error_code, ErrorCode::NONE);
    part.low_watermark
}
