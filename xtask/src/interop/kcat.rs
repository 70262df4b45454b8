//! kcat, built on librdkafka: as a client of our broker, and as a witness beside our client.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::outcome::{Count, Doing, Done};
use crate::process::Run;
use crate::tools::{self, KCAT};
use crate::workspace::{Workspace, write};

use super::ours::{OurBroker, Profile};

/// Longest one call of kcat may take.
const LIMIT: Duration = Duration::from_mins(1);
const RECORDS: usize = 2_000;

/// kcat talking to one server.
#[derive(Debug)]
pub(super) struct Kcat {
    bootstrap: String,
}

impl Kcat {
    pub(super) fn new(bootstrap: String) -> Self {
        Self { bootstrap }
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::new("kcat").args(["-b", &self.bootstrap, "-m", "10"]).args(args).quiet().limit(LIMIT)
    }

    /// Sends `key:value` lines; more options may stand in `args`.
    pub(super) fn produce(&self, topic: &str, lines: &[String], dir: &Path, args: &[&str]) -> Done {
        let file = dir.join(format!("{topic}.lines"));
        write(&file, lines.join("\n") + "\n")?;
        let input = File::open(&file).doing(format_args!("cannot open {}", file.display()))?;
        let send = self.run(&["-P", "-t", topic, "-K", ":"]).args(args).input(input);
        send.check().map(|_| ())
    }

    /// Reads all partitions of a topic to their present ends, as `key:value` lines.
    pub(super) fn consume(&self, topic: &str) -> Done<Vec<String>> {
        let from = ["-C", "-t", topic, "-o", "beginning", "-e", "-q", "-K", ":"];
        self.run(&from).check()
    }

    /// Reads a topic as a member of a group, to the ends of what it is given.
    pub(super) fn consume_in_group(&self, group: &str, topic: &str) -> Done<Vec<String>> {
        let from = ["-X", "auto.offset.reset=earliest", "-e", "-q", "-K", ":", "-G", group, topic];
        self.run(&from).check()
    }

    /// The number of partitions that the server tells for a topic.
    fn partitions(&self, topic: &str) -> Done<usize> {
        let lines = self.run(&["-L", "-t", topic]).check()?;
        Ok(lines.iter().filter(|line| line.trim_start().starts_with("partition ")).count())
    }
}

/// `count` lines of `key:value`; keys repeat, values never do.
pub(super) fn keyed_lines(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("key-{}:{name}-{at}", at % 97)).collect()
}

/// The same lines, in any order; the records of each key in the order they were sent.
pub(super) fn same_records(sent: &[String], read: &[String]) -> Result<(), String> {
    let sorted = |lines: &[String]| {
        let mut lines = lines.to_vec();
        // Stable, by key alone: what is left is each key's own order.
        lines.sort_by(|a, b| a.split(':').next().cmp(&b.split(':').next()));
        lines
    };
    let (sent_sorted, read_sorted) = (sorted(sent), sorted(read));
    if sent_sorted == read_sorted {
        return Ok(());
    }
    let differ = sent_sorted.iter().zip(&read_sorted).find(|(sent, read)| sent != read);
    Err(format!("{} sent, {} read, first difference {differ:?}", sent.len(), read.len()))
}

pub(super) fn against_our_broker(workspace: &Workspace) -> Done<Count> {
    tools::need(&[&KCAT])?;
    let program = OurBroker::build(workspace, Profile::Dev)?;
    let scratch = workspace.scratch("kcat")?;
    let dir = scratch.path();
    let broker = OurBroker::start(&program, dir, &["num.partitions=3"])?;
    let kcat = Kcat::new(broker.address());
    let mut total = Count::default();
    let mut check = |name: &str, outcome: Done<Result<(), String>>| {
        total += Count::check(name, flat(outcome));
    };
    let ways: [(&str, &[&str]); 4] = [
        ("plain", &["-X", "enable.idempotence=false"]),
        ("idempotent", &["-X", "enable.idempotence=true"]),
        ("lz4", &["-z", "lz4"]),
        ("leader-ack", &["-X", "acks=1", "-X", "enable.idempotence=false"]),
    ];
    for (topic, options) in ways {
        let sent = keyed_lines(topic, RECORDS);
        check(&format!("kcat produces and consumes, {topic}"), {
            let produced = kcat.produce(topic, &sent, dir, options);
            produced.and_then(|()| kcat.consume(topic)).map(|read| same_records(&sent, &read))
        });
    }
    check("kcat is told the partitions", {
        kcat.partitions("plain").map(|count| match count {
            3 => Ok(()),
            other => Err(format!("{other} partitions, not 3")),
        })
    });
    let sent = keyed_lines("plain", RECORDS);
    check("kcat consumes in a group", {
        kcat.consume_in_group("readers", "plain").map(|read| same_records(&sent, &read))
    });
    check("kcat's group goes on where it committed", {
        let more = keyed_lines("more", 100);
        let produced = kcat.produce("plain", &more, dir, &[]);
        let read = produced.and_then(|()| kcat.consume_in_group("readers", "plain"));
        read.map(|read| same_records(&more, &read))
    });
    check("our broker stops cleanly on SIGTERM", broker.stop().map(Ok));
    let again = OurBroker::start(&program, dir, &["num.partitions=3"])?;
    total += still_there(&Kcat::new(again.address()), "SIGTERM");
    // Dropped, it is killed: nothing of it can tidy up.
    drop(again);
    let again = OurBroker::start(&program, dir, &["num.partitions=3"])?;
    total += still_there(&Kcat::new(again.address()), "kill -9");
    let stopped = again.stop().map_err(|stop| stop.to_string());
    total += Count::check("the restarted broker stops cleanly", stopped);
    Ok(total)
}

/// Records and committed offsets that were there before the broker ended.
fn still_there(kcat: &Kcat, after: &str) -> Count {
    let sent = keyed_lines("idempotent", RECORDS);
    let records = kcat.consume("idempotent").map(|read| same_records(&sent, &read));
    let mut total = Count::check(&format!("records are there after {after}"), flat(records));
    let read = kcat.consume_in_group("readers", "plain");
    let offsets = read.map(|read| same_records(&[], &read));
    total += Count::check(&format!("committed offsets are there after {after}"), flat(offsets));
    total
}

/// A check's outcome, whether the check itself failed or what it needed.
pub(super) fn flat(outcome: Done<Result<(), String>>) -> Result<(), String> {
    outcome.map_err(|stop| stop.to_string()).and_then(|inner| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_match_in_any_order_of_keys_but_not_within_one() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let sent = lines("a:1 b:1 a:2");
        assert!(same_records(&sent, &lines("b:1 a:1 a:2")).is_ok());
        assert!(same_records(&sent, &lines("b:1 a:2 a:1")).is_err());
        assert!(same_records(&sent, &lines("a:1 b:1")).is_err());
        assert!(same_records(&sent, &lines("a:1 b:1 a:2 a:2")).is_err());
    }
}
