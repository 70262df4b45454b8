//! Our Rust client against Apache Kafka, with kcat as the witness on the other side.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::outcome::{Count, Doing, Done};
use crate::process::Run;
use crate::tools::{self, KCAT};
use crate::workspace::{Workspace, write};

use super::kafka::Kafka;
use super::kcat::{Kcat, flat, keyed_lines, same_records};

const LIMIT: Duration = Duration::from_mins(1);
const RECORDS: usize = 2_000;

/// Our client as a program of its own.
pub(super) struct Client {
    program: PathBuf,
    bootstrap: String,
    dir: PathBuf,
}

impl Client {
    /// Builds the program and gives its path.
    pub(super) fn build(workspace: &Workspace) -> Done<PathBuf> {
        let build = ["--package", "ottla-examples", "--bin", "interop_client"];
        workspace.cargo("build").args(build).check()?;
        Ok(workspace.target.join("debug/interop_client"))
    }

    pub(super) fn new(program: &Path, bootstrap: &str, dir: &Path) -> Self {
        let (program, dir) = (program.to_owned(), dir.to_owned());
        Self { program, bootstrap: bootstrap.to_owned(), dir }
    }

    fn run(&self) -> Run {
        Run::new(&self.program).arg(&self.bootstrap).quiet().limit(LIMIT)
    }

    pub(super) fn produce(&self, topic: &str, lines: &[String], options: &[&str]) -> Done {
        let file = self.dir.join(format!("{topic}.ours"));
        write(&file, lines.join("\n") + "\n")?;
        let input = File::open(&file).doing(format_args!("cannot open {}", file.display()))?;
        let said = self.run().args(["produce", topic]).args(options).input(input).check()?;
        let expected = format!("{} delivered", lines.len());
        if said.contains(&expected) { Ok(()) } else { Err(format!("it said {said:?}").into()) }
    }

    pub(super) fn consume(&self, topic: &str, group: &str, count: usize) -> Done<Vec<String>> {
        self.run().args(["consume", topic, group]).arg(count.to_string()).check()
    }
}

pub(super) fn against_kafka(workspace: &Workspace) -> Done<Count> {
    tools::need(&[&KCAT])?;
    let classes = Kafka::fetch(workspace)?;
    let program = Client::build(workspace)?;
    let scratch = workspace.scratch("kafka")?;
    let (kafka, took) = Kafka::start_timed(&classes, scratch.path())?;
    println!("Apache Kafka answers after {:.1} s", took.as_secs_f64());
    let bootstrap = kafka.address();
    let client = Client::new(&program, &bootstrap, scratch.path());
    let mut total = produced(&client, &Kcat::new(bootstrap.clone()));
    total += consumed(&client, &Kcat::new(bootstrap), scratch.path());
    kafka.stop()?;
    Ok(total)
}

/// What our client sends, kcat reads.
fn produced(client: &Client, kcat: &Kcat) -> Count {
    let mut total = Count::default();
    let ways: [(&str, &[&str]); 3] = [
        ("idempotent", &[]),
        ("lz4", &["compression.type=lz4"]),
        ("leader-ack", &["acks=1", "linger.ms=0"]),
    ];
    for (topic, options) in ways {
        let sent = keyed_lines(topic, RECORDS);
        let sending = client.produce(topic, &sent, options);
        let reading = sending.and_then(|()| kcat.consume(topic));
        let outcome = flat(reading.map(|read| same_records(&sent, &read)));
        total += Count::check(&format!("our client produces to Apache Kafka, {topic}"), outcome);
    }
    total
}

/// What kcat sends, our client reads in a group, and its commits hold.
fn consumed(client: &Client, kcat: &Kcat, dir: &Path) -> Count {
    let mut total = Count::default();
    let sent = keyed_lines("theirs", RECORDS);
    let sending = kcat.produce("theirs", &sent, dir, &["-z", "lz4"]);
    let reading = sending.and_then(|()| client.consume("theirs", "ours", RECORDS));
    let outcome = flat(reading.map(|read| same_records(&sent, &read)));
    total += Count::check("our client consumes in a group from Apache Kafka", outcome);

    let more = keyed_lines("more", 100);
    let sending = kcat.produce("theirs", &more, dir, &[]);
    let reading = sending.and_then(|()| client.consume("theirs", "ours", more.len()));
    let outcome = flat(reading.map(|read| same_records(&more, &read)));
    total += Count::check("our client's group goes on where it committed", outcome);

    let reading = kcat.consume_in_group("ours", "theirs");
    let outcome = flat(reading.map(|read| same_records(&[], &read)));
    total += Count::check("another client finds the offsets that ours committed", outcome);
    total
}
