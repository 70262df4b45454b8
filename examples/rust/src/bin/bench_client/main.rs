//! Our client, and a floor beneath it, as a program that a benchmark measures.
//!
//! What it is told and prints stands in `interop/bench/README.md`. With `client=floor` there is no
//! client: one thread encodes, writes and reads as little as the protocol allows.
#![allow(clippy::print_stdout, reason = "it prints what it measured")]

mod floor;
mod latency;
mod ours;
mod settings;

use std::error::Error;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use settings::Settings;

/// What each part gives.
type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(1);

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((mode, words)) = words.split_first() else {
        return Err("usage: produce|consume|latency NAME=VALUE ...".into());
    };
    let settings = Settings::new(words)?;
    match (mode.as_str(), settings.word("client")?) {
        ("produce", "ours") => ours::produce(&settings),
        ("consume", "ours") => consume(&settings, ours::read_all),
        ("latency", "ours") => latency::run(&settings),
        ("produce", "floor") => floor::produce(&settings),
        ("consume", "floor") => consume(&settings, floor::read_all),
        (mode, client) => Err(format!("no mode {mode} of {client}").into()),
    }
}

/// Reads the whole topic again and again: first to warm up, then for the figures.
fn consume(settings: &Settings, read_all: fn(&Settings) -> Outcome<(u64, usize)>) -> Outcome {
    let (warm, span) = (settings.time("warm")?, settings.time("seconds")?);
    let begin = now();
    while begin.elapsed() < warm {
        read_all(settings)?;
    }
    let (mut records, mut bytes) = (0, 0);
    let stretch = Stretch::begin();
    while stretch.begin.elapsed() < span {
        let (read, size) = read_all(settings)?;
        records += read;
        bytes += size;
    }
    stretch.end(&format!("records={records} bytes={bytes}"));
    Ok(())
}

/// A stretch of work: how long it takes, and what the process uses meanwhile.
#[derive(Debug)]
struct Stretch {
    begin: Instant,
    used: f64,
    /// What this thread uses of it.
    used_here: f64,
}

impl Stretch {
    fn begin() -> Self {
        Self {
            begin: now(),
            used: cpu(ClockId::ProcessCPUTime),
            used_here: cpu(ClockId::ThreadCPUTime),
        }
    }

    /// Prints what it came to.
    fn end(&self, what: &str) {
        let seconds = self.begin.elapsed().as_secs_f64();
        let used = cpu(ClockId::ProcessCPUTime) - self.used;
        let here = cpu(ClockId::ThreadCPUTime) - self.used_here;
        println!("{what} seconds={seconds:.4} cpu={used:.4} thread={here:.4}");
    }
}

/// CPU time of this process or thread so far, in seconds.
fn cpu(clock: ClockId) -> f64 {
    let used = clock_gettime(clock);
    let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(used.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds).as_secs_f64()
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch needs the clock")]
fn now() -> Instant {
    Instant::now()
}
