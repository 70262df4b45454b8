//! The log on disk, both ways: Apache Kafka's dump tool and Apache Kafka itself on what our broker
//! wrote, and our broker on what Apache Kafka wrote after it.

use std::path::{Path, PathBuf};

use crate::outcome::{Count, Doing, Done};
use crate::process::Run;
use crate::tools::{self, JAVA, KCAT};
use crate::workspace::{self, Workspace, entries, files_ending};

use super::kafka::Kafka;
use super::kcat::{Kcat, flat, same_records};
use super::ours::{OurBroker, Profile};
use super::trimmed::Trimmed;

/// Each codec's topic has this many records: three segments at least, also compressed.
const RECORDS: usize = 12_000;
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
const OPTIONS: &[&str] = &["num.partitions=1", "log.segment.bytes=1048576"];
const GROUP: &str = "readers";
/// What the dump tool says of a log that is not as it should be.
const COMPLAINTS: [&str; 6] =
    ["ismatch", "out of order", " is followed by ", "isvalid: false", "Exception", "Error"];
/// It says so of every segment but a log's first, also of Kafka's own.
const NO_COMPLAINT: &str = "-1 is followed by ";

/// One topic and what was sent to it.
#[derive(Debug)]
struct Sent {
    topic: String,
    lines: Vec<String>,
}

/// Our broker's folder, which Kafka takes over and gives back.
#[derive(Debug)]
struct Shared<'a> {
    program: &'a Path,
    classes: &'a Path,
    dir: &'a Path,
    sent: Vec<Sent>,
    count: Count,
}

pub(super) fn both_ways(workspace: &Workspace) -> Done<Count> {
    tools::need(&[&KCAT, &JAVA])?;
    let classes = Kafka::fetch(workspace)?;
    let program = OurBroker::build(workspace, Profile::Dev)?;
    let trimmed = Trimmed::begin(workspace, &classes)?;
    let scratch = workspace.scratch("log")?;
    let dir = scratch.path();
    let (sent, count) = (Vec::new(), Count::default());
    let mut shared = Shared { program: &program, classes: &classes, dir, sent, count };
    shared.ours_writes()?;
    shared.kafka_dumps()?;
    shared.kafka_serves()?;
    shared.ours_serves_kafkas()?;
    shared.kafka_dumps()?;
    shared.count += trimmed.finish(&program, &classes)?;
    Ok(shared.count)
}

/// Lines that a codec can shorten, though not by much, so that segments fill up.
fn lines(name: &str, count: usize) -> Vec<String> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:016x}")
    };
    (0..count)
        .map(|at| {
            let noise: String = (0..24).map(|_| word()).collect();
            format!("key-{}:{name}-{at}-{noise}", at % 97)
        })
        .collect()
}

impl Shared<'_> {
    fn check(&mut self, name: &str, outcome: Done<Result<(), String>>) {
        self.count += Count::check(name, flat(outcome));
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Topics of every codec by idempotent producers, and a group that has read them.
    fn ours_writes(&mut self) -> Done {
        let broker = OurBroker::start(self.program, self.dir, OPTIONS)?;
        let kcat = Kcat::new(broker.address());
        for codec in CODECS {
            let topic = format!("log-{codec}");
            let lines = lines(codec, RECORDS);
            let options = ["-z", codec, "-X", "enable.idempotence=true", "-X", "batch.size=65536"];
            kcat.produce(&topic, &lines, self.dir, &options)?;
            self.sent.push(Sent { topic, lines });
        }
        self.group_reads(&kcat, "our broker")?;
        broker.stop()?;
        self.ours_checks("our own log");
        Ok(())
    }

    /// A group reads one topic from where it is: all of it the first time, nothing later.
    fn group_reads(&mut self, kcat: &Kcat, who: &str) -> Done {
        let Some(sent) = self.sent.first() else { return Err("nothing was sent".into()) };
        let first = who == "our broker";
        let expected = if first { sent.lines.clone() } else { Vec::new() };
        let topic = sent.topic.clone();
        let read = kcat.consume_in_group(GROUP, &topic);
        let same = read.map(|read| same_records(&expected, &read));
        self.check(&format!("{who} serves the committed offsets"), same);
        Ok(())
    }

    /// `ottla-broker check` finds nothing.
    fn ours_checks(&mut self, what: &str) {
        let check = Run::new(self.program).args(["check", "--data"]).arg(self.data());
        let told = check.quiet().check().map(|_| Ok(()));
        self.check(&format!("ottla-broker check finds no damage in {what}"), told);
    }

    /// Kafka's dump tool over every folder: deep, with indexes, snapshots and decoders.
    fn kafka_dumps(&mut self) -> Done {
        let (mut segments, mut records) = (0, 0);
        let mut missing: Vec<String> = self.sent.iter().map(|sent| sent.topic.clone()).collect();
        for folder in entries(&self.data())?.into_iter().filter(|path| path.is_dir()) {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let files = files_ending(&folder, &[".log", ".index", ".timeindex", ".snapshot"])?;
            let logs = files.iter().filter(|path| path.extension().is_some_and(|end| end == "log"));
            let logs = logs.count();
            let decoder = match name.as_str() {
                "__cluster_metadata-0" => Some("--cluster-metadata-decoder"),
                offsets if offsets.starts_with("__consumer_offsets") => Some("--offsets-decoder"),
                _ => None,
            };
            let expected = self.sent.iter().find(|sent| name == format!("{}-0", sent.topic));
            missing.retain(|topic| name != format!("{topic}-0"));
            let empty = logs_bytes(&files)? == 0;
            if expected.is_none() && (decoder.is_none() || empty) {
                continue;
            }
            let deep = self.dump(&files, decoder);
            let few = expected.filter(|_| logs < 3).map(|_| format!("{logs} segments"));
            let expected = expected.map(|sent| sent.lines.len());
            let same = deep.map(|lines| judge(&lines, expected, few));
            if let Ok(Ok(count)) = &same {
                (segments, records) = (segments + logs, records + count);
            }
            self.check(&format!("Kafka dumps {name}"), same.map(|told| told.map(|_| ())));
            let sane = self.sane(&files);
            if expected.is_some() {
                self.check(&format!("Kafka finds the indexes of {name} sane"), sane);
            }
        }
        println!("        {segments} segments, {records} records dumped");
        if !missing.is_empty() {
            return Err(format!("no folder of {}", missing.join(", ")).into());
        }
        Ok(())
    }

    fn dump(&self, files: &[PathBuf], decoder: Option<&str>) -> Done<Vec<String>> {
        let dump = self.dump_tool().arg("--deep-iteration");
        let dump = decoder.into_iter().fold(dump, Run::arg);
        dump.arg("--files").arg(listed(files)).quiet().check()
    }

    fn sane(&self, files: &[PathBuf]) -> Done<Result<(), String>> {
        let indexes = files.iter().filter(|path| {
            path.extension().is_some_and(|end| end == "index" || end == "timeindex")
        });
        let indexes: Vec<PathBuf> = indexes.cloned().collect();
        if indexes.is_empty() {
            return Ok(Ok(()));
        }
        let tool = self.dump_tool().arg("--index-sanity-check").arg("--files");
        let lines = tool.arg(listed(&indexes)).quiet().check()?;
        let sane =
            |line: &&String| line.ends_with("passed sanity check.") || line.ends_with("is empty.");
        let passed = lines.iter().filter(sane).count();
        Ok(if passed == indexes.len() {
            Ok(())
        } else {
            Err(format!("{passed} of {} pass: {lines:?}", indexes.len()))
        })
    }

    fn dump_tool(&self) -> Run {
        Run::new("java").arg("-cp").arg(self.classes).arg("org.apache.kafka.tools.DumpLogSegments")
    }

    /// Apache Kafka on the folder that our broker wrote and closed.
    fn kafka_serves(&mut self) -> Done {
        let address = Kafka::adopt(self.dir)?;
        let (kafka, took) = Kafka::launch(self.classes, self.dir, address)?;
        println!("        Kafka answered after {:.1} s", took.as_secs_f64());
        let kcat = Kcat::new(kafka.address());
        self.all_there(&kcat, "Kafka");
        self.group_reads(&kcat, "Kafka")?;
        if let Some(sent) = self.sent.first_mut() {
            let more = lines("of-kafka", 500);
            kcat.produce(&sent.topic, &more, self.dir, &["-X", "enable.idempotence=true"])?;
            sent.lines.extend(more);
        }
        let read = kcat.consume_in_group(GROUP, "log-none");
        let same = read.map(|read| same_records(&lines("of-kafka", 500), &read));
        self.check("Kafka's group goes on where ours committed", same);
        kafka.stop()?;
        let told = workspace::read(&self.dir.join("kafka.log"))?;
        let errors: Vec<&str> = told.lines().filter(|line| line.contains("] ERROR ")).collect();
        let none = if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) };
        self.check("Kafka logs no error over it", Ok(none));
        Ok(())
    }

    /// Our broker on the folder that Kafka wrote and closed.
    fn ours_serves_kafkas(&mut self) -> Done {
        self.ours_checks("what Kafka wrote");
        let broker = OurBroker::start(self.program, self.dir, OPTIONS)?;
        let kcat = Kcat::new(broker.address());
        self.all_there(&kcat, "our broker after Kafka");
        self.group_reads(&kcat, "our broker after Kafka")?;
        if let Some(sent) = self.sent.first_mut() {
            let more = lines("of-ours", 100);
            kcat.produce(&sent.topic, &more, self.dir, &["-X", "enable.idempotence=true"])?;
            sent.lines.extend(more);
        }
        self.all_there(&kcat, "our broker, gone on,");
        broker.stop()?;
        self.ours_checks("what both wrote");
        Ok(())
    }

    fn all_there(&mut self, kcat: &Kcat, who: &str) {
        let outcomes: Vec<_> = self
            .sent
            .iter()
            .map(|sent| {
                let read = kcat.consume(&sent.topic).map(|read| same_records(&sent.lines, &read));
                (format!("{who} serves {}", sent.topic), read)
            })
            .collect();
        for (name, outcome) in outcomes {
            self.check(&name, outcome);
        }
    }
}

/// Bytes in the segments among these files.
fn logs_bytes(files: &[PathBuf]) -> Done<u64> {
    let logs = files.iter().filter(|path| path.extension().is_some_and(|end| end == "log"));
    let mut bytes = 0;
    for log in logs {
        let metadata = log.metadata().doing(format_args!("cannot look at {}", log.display()))?;
        bytes += metadata.len();
    }
    Ok(bytes)
}

fn listed(files: &[PathBuf]) -> String {
    let names: Vec<_> = files.iter().map(|path| path.to_string_lossy()).collect();
    names.join(",")
}

/// How many records the tool counted; an error if it complains, or counts otherwise.
fn judge(lines: &[String], expected: Option<usize>, few: Option<String>) -> Result<usize, String> {
    let complains = |line: &&String| {
        let known = line.trim_start().starts_with(NO_COMPLAINT);
        !known && COMPLAINTS.iter().any(|complaint| line.contains(complaint))
    };
    if let Some(line) = lines.iter().find(complains) {
        return Err(line.clone());
    }
    let of_batches: usize = lines.iter().filter_map(|line| counted(line)).sum();
    let deep = lines.iter().filter(|line| line.starts_with("| offset: ")).count();
    if of_batches != deep {
        return Err(format!("batches count {of_batches} records, {deep} are there"));
    }
    match (expected, few) {
        (Some(expected), _) if expected != deep => Err(format!("{deep} records, not {expected}")),
        (_, Some(few)) => Err(few),
        _ => Ok(deep),
    }
}

/// The count in the line of a batch.
fn counted(line: &str) -> Option<usize> {
    let (_, rest) = line.strip_prefix("baseOffset: ")?.split_once(" count: ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_judged_by_its_counts_and_complaints() {
        let dump = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let good = dump(
            "Dumping x.log\nbaseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0\n\
             | offset: 0 isValid\n| offset: 1 isValid",
        );
        assert_eq!(judge(&good, Some(2), None), Ok(2));
        assert!(judge(&good, Some(3), None).is_err());
        assert!(judge(&good[..3], None, None).unwrap_err().contains("batches count 2"));
        assert_eq!(judge(&dump("  -1 is followed by 40"), None, None), Ok(0));
        assert!(judge(&dump("  39 is followed by 41"), None, None).is_err());
        let bad = dump("Found timestamp mismatch in :x.timeindex");
        assert!(judge(&bad, None, None).unwrap_err().contains("mismatch"));
    }
}
