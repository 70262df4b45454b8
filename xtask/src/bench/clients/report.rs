//! What the programs said, and the tables made of it.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::Runs;
use super::plan::Plan;
use super::programs::Client;
use super::row::{Mode, Row};
use crate::outcome::{Done, Stop};
use crate::workspace::write;

/// One run of one client: `name=value` words that its program printed.
#[derive(Clone, Debug)]
pub(super) struct Run(Vec<(String, f64)>);

impl Run {
    /// The last line is the figures.
    pub(super) fn parse(lines: &[String]) -> Done<Self> {
        let last = lines.last().map(String::as_str).unwrap_or_default();
        let word = |word: &str| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        let words: Option<Vec<(String, f64)>> = last.split(' ').map(word).collect();
        words.map(Self).ok_or_else(|| Stop::Failed(format!("no figures: {lines:?}")))
    }

    fn get(&self, name: &str) -> Done<f64> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|&(_, value)| value).ok_or_else(|| Stop::Failed(format!("it said no {name}")))
    }

    /// The same, if the broker has as many records as were sent in all.
    pub(super) fn confirmed(self, stored: u64) -> Done<Self> {
        let sent = self.get("warm")? + self.get("records")?;
        same("records sent", sent, "records that the broker has", stored)?;
        Ok(self)
    }

    /// The same, if it read whole topics of so many records of so many bytes.
    pub(super) fn read_whole(self, records: u64, bytes: usize) -> Done<Self> {
        let (read, size) = (self.get("records")?, self.get("bytes")?);
        let passes = (read / figure(records)).round();
        let expected = records.saturating_mul(count(passes));
        same("records read", read, "records in all passes", expected)?;
        let each = u64::try_from(bytes).unwrap_or(u64::MAX);
        same("bytes read", size, "bytes in all passes", expected.saturating_mul(each))?;
        Ok(self)
    }

    fn json(&self) -> Value {
        Value::Object(self.0.iter().map(|(name, value)| (name.clone(), json!(value))).collect())
    }
}

fn same(one: &str, said: f64, other: &str, known: u64) -> Done {
    if (said - figure(known)).abs() < 0.5 {
        return Ok(());
    }
    Err(format!("{one}: {said}; {other}: {known}").into())
}

/// A count as a figure; none here comes near what it cannot hold.
#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "counts below 2^53")]
const fn figure(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rounded figure that is not negative"
)]
const fn count(figure: f64) -> u64 {
    figure as u64
}

/// A client in a row, with its runs so far.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) client: Client,
    pub(super) words: Vec<String>,
    options: Vec<(&'static str, String)>,
    pub(super) runs: Vec<Run>,
}

impl Measured {
    pub(super) fn of(client: Client, row: &Row) -> Self {
        let (words, options) = (client.words(row), client.options(row));
        Self { client, words, options, runs: Vec::new() }
    }

    /// Who fills a topic that is read.
    pub(super) fn writer(row: &Row) -> Self {
        Self::of(Client::Librdkafka, &Row { mode: Mode::Produce, ..row.clone() })
    }

    pub(super) const fn name(&self) -> &'static str {
        self.client.name()
    }

    fn runs_of(&self, figure: impl Fn(&Run) -> Done<f64>) -> Done<Runs> {
        Ok(Runs(self.runs.iter().map(figure).collect::<Done<_>>()?))
    }

    /// CPU of the client's process for each record, in ns.
    fn cpu(&self) -> Done<Runs> {
        self.runs_of(|run| Ok(run.get("cpu")? * 1e9 / run.get("records")?))
    }

    fn rate(&self) -> Done<Runs> {
        self.runs_of(|run| Ok(run.get("records")? / run.get("seconds")? / 1_000.0))
    }

    fn columns(&self, mode: Mode) -> Done<Vec<String>> {
        if mode == Mode::Latency {
            let shown = |name| -> Done<String> { Ok(self.runs_of(|run| run.get(name))?.shown(0)) };
            let cpu = self.runs_of(|run| Ok(run.get("cpu")? * 1e6 / run.get("records")?))?;
            return Ok(vec![shown("p50")?, shown("p99")?, shown("max")?, cpu.shown(0)]);
        }
        Ok(vec![self.cpu()?.shown(0), self.rate()?.shown(0)])
    }

    fn json(&self) -> Value {
        let options: Vec<String> =
            self.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let runs: Vec<Value> = self.runs.iter().map(Run::json).collect();
        json!({ "client": self.name(), "options": options, "runs": runs })
    }
}

/// All tables of a command.
#[derive(Debug)]
pub(super) struct Report {
    mode: Mode,
    json: Option<PathBuf>,
    rows: Vec<Value>,
    settings: Vec<String>,
    load: String,
}

impl Report {
    pub(super) fn new(plan: &Plan) -> Self {
        // Of the last minute, last five and last fifteen.
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
        println!("load of the machine before: {load}; at 0.5 or more it does not do this alone");
        let (json, mode) = (plan.json.clone(), plan.mode);
        Self { mode, json, rows: Vec::new(), settings: Vec::new(), load }
    }

    /// Prints a row's table, and keeps its figures.
    pub(super) fn add(&mut self, row: &Row, measured: Vec<Measured>) -> Done {
        println!("\n{row}\n");
        match self.mode {
            Mode::Latency => {
                println!("| client | p50, µs | p99, µs | most, µs | CPU, µs/record |");
                println!("|---|---|---|---|---|");
            }
            Mode::Produce | Mode::Consume => {
                println!("| client | CPU, ns/record | 1,000 records/s |\n|---|---|---|");
            }
        }
        for one in &measured {
            println!("| {} | {} |", one.name(), one.columns(self.mode)?.join(" | "));
            let options = one.options.iter().map(|(name, value)| format!(" {name}={value}"));
            let line = format!("{}:{}", one.name(), options.collect::<String>());
            if !self.settings.contains(&line) {
                self.settings.push(line);
            }
        }
        let clients: Vec<Value> = measured.iter().map(Measured::json).collect();
        self.rows.push(json!({ "row": row.to_string(), "clients": clients }));
        Ok(())
    }

    /// Prints the settings, and writes the figures if they are wanted.
    pub(super) fn finish(self) -> Done {
        println!("\noptions that were set, all others as each client has them:");
        for line in &self.settings {
            println!("  {line}");
        }
        let Some(path) = self.json else { return Ok(()) };
        let all = json!({ "mode": self.mode.name(), "load": self.load, "rows": self.rows });
        write(&path, format!("{all:#}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> Done<Run> {
        Run::parse(&["what it said before".to_owned(), line.to_owned()])
    }

    #[test]
    fn a_run_counts_if_the_broker_has_what_was_sent() {
        let line = "warm=10 records=90 seconds=1.5 cpu=0.5";
        assert!(run(line).unwrap().confirmed(100).is_ok());
        assert!(run(line).unwrap().confirmed(99).is_err());
        assert!(run("something else").is_err());
    }

    #[test]
    fn a_run_counts_if_whole_topics_were_read() {
        let line = "records=30 seconds=1.5 cpu=0.5 bytes=300";
        assert!(run(line).unwrap().read_whole(10, 10).is_ok());
        assert!(run(line).unwrap().read_whole(20, 10).is_err());
        assert!(run(line).unwrap().read_whole(10, 9).is_err());
    }
}
