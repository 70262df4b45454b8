//! Which rows and clients are measured, how long, and how long all of it will take.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::programs::Client;
use super::row::{Mode, Row};
use crate::outcome::{Done, Stop};

/// What one command measures.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) mode: Mode,
    pub(super) rows: Vec<Row>,
    clients: Vec<Client>,
    /// Runs of each client in each row.
    pub(super) runs: u32,
    /// What a run measures.
    pub(super) span: Duration,
    /// What it does before that.
    pub(super) warm: Duration,
    /// How long the topics that are read are filled.
    pub(super) fill: Duration,
    pub(super) quick: bool,
    /// Where the figures go beside the terminal.
    pub(super) json: Option<PathBuf>,
}

/// What a run takes beyond its spans: a topic made, asked and deleted, a program started.
const AROUND: Duration = Duration::from_millis(2_500);
/// What a server takes to start and to be warmed.
const SERVER: Duration = Duration::from_secs(20);

const FILTERS: &[&str] = &["server", "bytes", "partitions", "codec", "acks", "spread", "client"];

/// The values of a filter, if it is not named: of produce, consume and latency.
fn values(name: &str, mode: Mode) -> &'static [&'static str] {
    match (name, mode) {
        ("server", _) => &["kafka", "ottla"],
        ("bytes", Mode::Latency) => &["100"],
        ("bytes", _) => &["100", "1024"],
        ("partitions", Mode::Latency) => &["1"],
        ("partitions", _) => &["1", "12"],
        ("codec", Mode::Latency) => &["none"],
        ("codec", _) => &["none", "lz4"],
        // What is read was written so.
        ("acks", Mode::Consume) => &["all"],
        ("acks", _) => &["1", "all"],
        ("spread", _) => &["turn"],
        _ => &[],
    }
}

impl Plan {
    /// From words: `--quick`, `--one-by-one`, `--json FILE`, `runs=N`, `seconds=N`, `warm=N`, and
    /// filters as `NAME=VALUE[,VALUE]`.
    pub(super) fn new(mode: Mode, words: &[&str]) -> Done<Self> {
        let [quick, one_by_one] = ["--quick", "--one-by-one"].map(|word| words.contains(&word));
        let mut filters: Vec<(&str, Vec<&str>)> = Vec::new();
        let (mut json, mut words) = (None, words.iter());
        while let Some(&word) = words.next() {
            match word {
                "--quick" | "--one-by-one" => {}
                "--json" => json = Some(PathBuf::from(*words.next().ok_or("--json FILE")?)),
                _ => {
                    let filter = word.split_once('=').ok_or_else(|| unknown(word))?;
                    filters.push((filter.0, filter.1.split(',').collect()));
                }
            }
        }
        let mut take = |name: &str| {
            let at = filters.iter().position(|(known, _)| *known == name);
            at.map(|at| filters.swap_remove(at).1)
        };
        let mut number = |name: &str, default: u32| -> Done<u32> {
            let Some(words) = take(name) else { return Ok(default) };
            let said = words.first().and_then(|word| word.parse().ok());
            said.ok_or_else(|| Stop::Failed(format!("{name} wants a number")))
        };
        let runs = some("runs", number("runs", if quick { 3 } else { 5 })?)?;
        let span = some("seconds", number("seconds", if quick { 2 } else { 10 })?)?;
        let warm = number("warm", if quick { 1 } else { 2 })?;
        let fill = number("fill", if quick { 2 } else { 6 })?;
        let mut wanted = |name: &str| take(name).unwrap_or_else(|| values(name, mode).to_vec());
        let [server, bytes, partitions, codec, acks, spread] =
            ["server", "bytes", "partitions", "codec", "acks", "spread"].map(&mut wanted);
        let clients = Client::named(&wanted("client"), mode)?;
        if let Some((name, _)) = filters.first() {
            return Err(unknown(name));
        }
        let mut rows = Vec::new();
        for (server, bytes) in pairs(&server, &bytes) {
            for (partitions, codec) in pairs(&partitions, &codec) {
                for (acks, spread) in pairs(&acks, &spread) {
                    rows.push(row(mode, [server, bytes, partitions, codec, acks, spread])?);
                }
            }
        }
        if one_by_one {
            rows.retain(|row| row.steps_from_the_plain() <= 1);
        }
        if !rows.iter().any(|row| clients.iter().any(|client| client.can(row))) {
            return Err(
                "there is nothing to measure: none of the clients can do any of the rows".into()
            );
        }
        let [span, warm, fill] =
            [span, warm, fill].map(|seconds| Duration::from_secs(u64::from(seconds)));
        Ok(Self { mode, rows, clients, runs, span, warm, fill, quick, json })
    }

    pub(super) fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// The clients that can do a row.
    pub(super) fn clients_of(&self, row: &Row) -> impl Iterator<Item = Client> {
        self.clients.iter().copied().filter(|client| client.can(row))
    }

    /// About how long it takes, once all is built.
    fn estimate(&self) -> Duration {
        let mut total = Duration::ZERO;
        for server in values("server", self.mode) {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.server == *server).collect();
            if rows.is_empty() {
                continue;
            }
            total += SERVER;
            for row in rows {
                let clients = u32::try_from(self.clients_of(row).count()).unwrap_or(u32::MAX);
                let rounds = self.mode.rounds_before() + self.runs;
                total += (self.span + self.warm + AROUND) * (clients * rounds);
                if self.mode == Mode::Consume {
                    total += self.fill + AROUND;
                }
            }
        }
        total
    }
}

/// A number that must not be 0.
fn some(name: &str, number: u32) -> Done<u32> {
    if number > 0 { Ok(number) } else { Err(format!("{name} is 1 at least").into()) }
}

fn pairs<'a>(ones: &[&'a str], others: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    ones.iter().flat_map(|&one| others.iter().map(move |&other| (one, other))).collect()
}

fn row(mode: Mode, words: [&str; 6]) -> Done<Row> {
    let [server, bytes, partitions, codec, acks, spread] = words;
    let known = [
        ("server", server, ["kafka", "ottla"].as_slice()),
        ("codec", codec, &["none", "lz4"]),
        ("acks", acks, &["1", "all"]),
        ("spread", spread, &["turn", "own"]),
    ];
    for (name, word, may_be) in known {
        if !may_be.contains(&word) {
            return Err(format!("{name}={word}: it may be {}", may_be.join(", ")).into());
        }
    }
    let number = |name: &str, word: &str| {
        let parsed = word.parse::<u32>().ok().filter(|&number| number > 0);
        parsed.ok_or_else(|| Stop::Failed(format!("{name}={word} is no such number")))
    };
    Ok(Row {
        mode,
        server: server.to_owned(),
        bytes: usize::try_from(number("bytes", bytes)?).unwrap_or(usize::MAX),
        partitions: number("partitions", partitions)?,
        codec: codec.to_owned(),
        acks: acks.to_owned(),
        spread: spread.to_owned(),
    })
}

fn unknown(word: &str) -> Stop {
    Stop::Failed(format!(
        "{word} is neither --quick, --one-by-one, --json FILE, runs=N, seconds=N, warm=N, fill=N nor a filter: {}",
        FILTERS.join("=, ") + "="
    ))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, runs) = (self.rows.len(), self.runs);
        let (span, warm) = (self.span.as_secs(), self.warm.as_secs());
        let minutes = self.estimate().as_secs().div_ceil(60);
        write!(f, "{rows} rows, {runs} runs of {span} s after {warm} s; about {minutes} minutes")?;
        if self.quick {
            write!(f, "; quick: too short for figures to keep")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_filters_all_rows_are_measured_and_a_filter_leaves_some() {
        let all = Plan::new(Mode::Produce, &[]).unwrap();
        assert_eq!((all.rows.len(), all.runs, all.span.as_secs()), (32, 5, 10));
        let words = ["--quick", "bytes=100", "codec=none", "server=kafka", "client=ours,franz-go"];
        let few = Plan::new(Mode::Produce, &words).unwrap();
        assert_eq!((few.rows.len(), few.runs, few.clients.len()), (4, 3, 2));
        assert!(few.rows.iter().all(|row| row.bytes == 100 && row.codec == "none"));
        assert!(few.estimate() < all.estimate() / 20);
    }

    #[test]
    fn one_by_one_each_value_is_measured_beside_the_plain_ones_of_the_others() {
        let said = |mode| -> Vec<String> {
            let words = ["--one-by-one", "server=ottla"];
            let plan = Plan::new(mode, &words).unwrap();
            plan.rows.iter().map(|row| row.topic("")).collect()
        };
        let rows = [
            "produce-100-1-none-all-turn-",
            "produce-100-12-none-1-turn-",
            "produce-100-12-none-all-turn-",
            "produce-100-12-lz4-all-turn-",
            "produce-1024-12-none-all-turn-",
        ];
        assert_eq!(said(Mode::Produce), rows);
        assert_eq!(said(Mode::Consume).len(), 4);
    }

    #[test]
    fn what_measures_nothing_is_refused() {
        for word in ["runs=0", "seconds=0", "client=librdkafka-batch"] {
            assert!(Plan::new(Mode::Consume, &[word]).is_err(), "{word}");
        }
        assert!(Plan::new(Mode::Latency, &["client=floor"]).is_err());
        assert!(Plan::new(Mode::Produce, &["client=floor", "spread=own"]).is_err());
        Plan::new(Mode::Produce, &["client=floor,ours", "spread=own", "warm=0"]).unwrap();
    }

    #[test]
    fn what_nobody_knows_is_refused() {
        for words in [["codecs=lz4"], ["codec=zip"], ["fast"], ["client=sarama"], ["bytes=-1"]] {
            assert!(Plan::new(Mode::Consume, &words).is_err(), "{words:?}");
        }
    }
}
