//! A Kafka whose metadata log was trimmed: what it began with is in a snapshot alone (KIP-630).
//!
//! Kafka looks for what it may delete once a minute, so this one runs beside the rest of the suite.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::outcome::{Count, Done};
use crate::process::LOOK_AGAIN;
use crate::workspace::{Scratch, Workspace, files_ending};

use super::kafka::Kafka;
use super::kcat::{Kcat, flat, keyed_lines, same_records};
use super::ours::OurBroker;

/// Snapshots and segments as small as they get, and kept for no longer than a few seconds.
const SETTINGS: &[&str] = &[
    "metadata.log.max.record.bytes.between.snapshots=1000",
    "metadata.log.segment.ms=1000",
    "metadata.max.idle.interval.ms=100",
    "metadata.max.retention.ms=5000",
];

/// Longer than a minute from the start on.
const TRIMMED_LIMIT: Duration = Duration::from_mins(2);

/// A Kafka that runs until its log is trimmed.
#[derive(Debug)]
pub(super) struct Trimmed {
    scratch: Scratch,
    kafka: Kafka,
}

impl Trimmed {
    /// Starts it, and sends it records of a topic of its log's beginning.
    pub(super) fn begin(workspace: &Workspace, classes: &Path) -> Done<Self> {
        let scratch = workspace.scratch("trimmed")?;
        let (kafka, _) = Kafka::start_with(classes, scratch.path(), SETTINGS)?;
        let kcat = Kcat::new(kafka.address());
        kcat.produce("early", &keyed_lines("early", 50), scratch.path(), &[])?;
        Ok(Self { scratch, kafka })
    }

    /// Waits until its log is trimmed, and gives its folder to our broker and back.
    pub(super) fn finish(self, program: &Path, classes: &Path) -> Done<Count> {
        let Self { scratch, kafka } = self;
        let dir = scratch.path();
        let begins = begins_later(&dir.join("data/__cluster_metadata-0"))?;
        let mut count = Count::check("Kafka trims its metadata log", begins);
        let kcat = Kcat::new(kafka.address());
        kcat.produce("late", &keyed_lines("late", 50), dir, &[])?;
        kafka.stop()?;
        let ours = OurBroker::start(program, dir, &["num.partitions=1"])?;
        let kcat = Kcat::new(ours.address());
        count += all_there(&kcat, "our broker, from a snapshot,", &["early", "late"]);
        kcat.produce("ours", &keyed_lines("ours", 50), dir, &[])?;
        ours.stop()?;
        let ours = OurBroker::start(program, dir, &["num.partitions=1"])?;
        let kcat = Kcat::new(ours.address());
        count += all_there(&kcat, "our broker, started again,", &["early", "late", "ours"]);
        ours.stop()?;
        let (kafka, _) = Kafka::launch(classes, dir, Kafka::adopt(dir)?)?;
        let kcat = Kcat::new(kafka.address());
        count += all_there(&kcat, "Kafka, given it back,", &["early", "late", "ours"]);
        kafka.stop()?;
        Ok(count)
    }
}

/// Waits until the segment with the log's first record is gone.
fn begins_later(folder: &Path) -> Done<Result<(), String>> {
    let end = Instant::now() + TRIMMED_LIMIT;
    loop {
        let logs = files_ending(folder, &[".log"])?;
        let first = logs.iter().any(|log| log.ends_with("00000000000000000000.log"));
        if !first && !logs.is_empty() {
            return Ok(Ok(()));
        }
        if Instant::now() >= end {
            return Ok(Err(format!("{} segments, the first among them", logs.len())));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn all_there(kcat: &Kcat, who: &str, topics: &[&str]) -> Count {
    let mut count = Count::default();
    for topic in topics {
        let read = kcat.consume(topic);
        let same = read.map(|read| same_records(&keyed_lines(topic, 50), &read));
        count += Count::check(&format!("{who} serves {topic}"), flat(same));
    }
    count
}
