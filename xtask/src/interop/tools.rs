//! Kafka's own verifiable and performance tools beside our client, over restarts of either broker.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::outcome::{Count, Done};
use crate::process::Run;
use crate::workspace::{Workspace, fresh_dir};

use super::clients::Client;
use super::kafka::Kafka;
use super::kcat::keyed_lines;
use super::ours::{OurBroker, Profile};

/// Records of each writer.
const RECORDS: usize = 3_000;
const LIMIT: Duration = Duration::from_mins(1);

/// Each tool and our client write to either broker, and each reads all of it after a restart.
pub(super) fn on_either_broker(workspace: &Workspace) -> Done<Count> {
    let classes = Kafka::fetch(workspace)?;
    let client = Client::build(workspace)?;
    let program = OurBroker::build(workspace, Profile::Dev)?;
    let scratch = workspace.scratch("tools")?;
    let (own, theirs) = (scratch.path().join("ours"), scratch.path().join("kafka"));
    fresh_dir(&own)?;
    fresh_dir(&theirs)?;
    let mut total = Count::default();
    let programs = Programs { client: &client, classes: &classes };

    let broker = OurBroker::start(&program, &own, &[])?;
    let mut told = Told::new("our broker", broker.address(), &own, &programs);
    told.write();
    broker.stop()?;
    let broker = OurBroker::start(&program, &own, &[])?;
    told.bootstrap = broker.address();
    told.read();
    broker.stop()?;
    total += told.total;

    let (kafka, _) = Kafka::start_timed(&classes, &theirs)?;
    let address = kafka.address();
    let mut told = Told::new("Apache Kafka", address.clone(), &theirs, &programs);
    told.write();
    kafka.stop()?;
    let at: SocketAddr = address.parse().map_err(|error| format!("{address}: {error}"))?;
    let (kafka, _) = Kafka::launch(&classes, &theirs, at)?;
    told.read();
    kafka.stop()?;
    total += told.total;
    Ok(total)
}

struct Programs<'a> {
    client: &'a Path,
    classes: &'a Path,
}

/// What became of the tools on one broker.
struct Told<'a> {
    broker: &'a str,
    bootstrap: String,
    dir: &'a Path,
    programs: &'a Programs<'a>,
    total: Count,
}

/// The topics, by who writes to them.
const TOPICS: [&str; 3] = ["verifiable", "performance", "ours"];

impl<'a> Told<'a> {
    fn new(broker: &'a str, bootstrap: String, dir: &'a Path, programs: &'a Programs<'a>) -> Self {
        Self { broker, bootstrap, dir, programs, total: Count::default() }
    }

    fn write(&mut self) {
        let [verifiable, performance, ours] = TOPICS;
        let counted = self.verifiable_producer(verifiable);
        self.tell("VerifiableProducer writes to", counted);
        let counted = self.producer_performance(performance);
        self.tell("ProducerPerformance writes to", counted);
        let lines = keyed_lines(ours, RECORDS);
        let client = self.client();
        let counted = client.produce(ours, &lines, &[]).map(|()| RECORDS);
        self.tell("our client writes to", counted);
    }

    fn read(&mut self) {
        for topic in TOPICS {
            let counted = self.verifiable_consumer(topic);
            self.tell(&format!("VerifiableConsumer reads `{topic}` from"), counted);
            let counted = self.consumer_performance(topic);
            self.tell(&format!("ConsumerPerformance reads `{topic}` from"), counted);
            let counted = self.client().consume(topic, "ours", RECORDS).map(|read| read.len());
            self.tell(&format!("our client reads `{topic}` from"), counted);
        }
    }

    fn client(&self) -> Client {
        Client::new(self.programs.client, &self.bootstrap, self.dir)
    }

    /// Counts a check: as many records as were written.
    fn tell(&mut self, what: &str, counted: Done<usize>) {
        let outcome = match counted {
            Ok(RECORDS) => Ok(()),
            Ok(count) => Err(format!("{count} records, not {RECORDS}")),
            Err(stop) => Err(stop.to_string()),
        };
        self.total += Count::check(&format!("{what} {}", self.broker), outcome);
    }

    fn java(&self, class: &str) -> Run {
        let java = Run::new("java").args(["-Xmx256M", "-Dlog4j2.level=OFF", "-cp"]);
        let java = java.arg(self.programs.classes).arg(format!("org.apache.kafka.tools.{class}"));
        let java = java.args(["--bootstrap-server", &self.bootstrap]);
        java.dir(self.dir).quiet().limit(LIMIT)
    }

    fn verifiable_producer(&self, topic: &str) -> Done<usize> {
        let count = RECORDS.to_string();
        let run = self.java("VerifiableProducer").args(["--topic", topic]);
        let lines = run.args(["--max-messages", &count, "--throughput", "-1"]).check()?;
        Ok(lines.iter().filter(|line| line.contains("\"name\":\"producer_send_success\"")).count())
    }

    fn verifiable_consumer(&self, topic: &str) -> Done<usize> {
        let count = RECORDS.to_string();
        let run =
            self.java("VerifiableConsumer").args(["--topic", topic, "--group-id", "verified"]);
        let run = run.args(["--reset-policy", "earliest", "--max-messages", &count]);
        let lines = run.check()?;
        let consumed = lines.iter().filter(|line| line.contains("\"name\":\"records_consumed\""));
        Ok(consumed.filter_map(|line| number_behind(line, "\"count\":")).sum())
    }

    fn producer_performance(&self, topic: &str) -> Done<usize> {
        let count = RECORDS.to_string();
        let run = self.java("ProducerPerformance").args(["--topic", topic]);
        let run = run.args(["--num-records", &count, "--record-size", "100"]);
        let lines = run.args(["--throughput", "-1"]).check()?;
        // The last line: `3000 records sent, 5000.0 records/sec (…), …`.
        let sent = lines.iter().rev().find_map(|line| line.split_once(" records sent, "));
        sent.and_then(|(count, _)| count.trim().parse().ok())
            .ok_or_else(|| format!("it said {lines:?}").into())
    }

    fn consumer_performance(&self, topic: &str) -> Done<usize> {
        let count = RECORDS.to_string();
        let run = self.java("ConsumerPerformance").args(["--topic", topic, "--group", "performed"]);
        let lines = run.args(["--num-records", &count, "--timeout", "30000"]).check()?;
        // Under a line of names: start, end, MB, MB a second, records, records a second, …
        let row = lines.iter().rev().find(|line| line.starts_with("20"));
        let column = row.and_then(|row| row.split(", ").nth(4));
        column
            .and_then(|count| count.trim().parse().ok())
            .ok_or_else(|| format!("it said {lines:?}").into())
    }
}

/// The whole number behind these words in a line.
fn number_behind(line: &str, words: &str) -> Option<usize> {
    let (_, rest) = line.split_once(words)?;
    let digits = rest.trim_start();
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end)?.parse().ok()
}
