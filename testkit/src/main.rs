//! Runs the simulator: `ottla-sim [--seeds N] [--seed N] [--verbose]`.
#![allow(clippy::print_stdout, reason = "a command's output is its purpose")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::process::ExitCode;

use ottla_testkit::sim::{self, Outcome};

/// Seeds of a run in which none is named.
const SEEDS: u64 = 50;
/// Sets smaller than this need not see everything.
const SET_LEAST: u64 = 1000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match go(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn go(words: &[String]) -> Result<bool, String> {
    let (mut seeds, mut verbose, mut one) = (0..SEEDS, false, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let number = words.next().and_then(|word| word.parse::<u64>().ok());
            number.ok_or_else(|| format!("{word} wants a number"))
        };
        match word.as_str() {
            "--seeds" => seeds = 0..number()?,
            "--seed" => {
                let seed = number()?;
                (seeds, one) = (seed..seed.saturating_add(1), true);
            }
            "--verbose" => verbose = true,
            _ => return Err(format!("no such option: {word}")),
        }
    }
    sim::count_panics();
    let mut total = Total::default();
    if one {
        let outcome = sim::run(seeds.start, verbose)?;
        println!(
            "seed {}: trace {:016x}, {} events, {} records, {} faults, {} ms simulated",
            outcome.seed,
            outcome.hash,
            outcome.events,
            outcome.records,
            outcome.faults,
            outcome.millis
        );
        total.add(outcome);
    } else {
        sim::run_many(seeds, |outcome| {
            total.add(outcome);
            ControlFlow::Continue(())
        })?;
    }
    Ok(total.finish())
}

#[derive(Default)]
struct Total {
    seeds: u64,
    failed: u64,
    records: usize,
    faults: u64,
    millis: u128,
    counts: BTreeMap<String, u64>,
}

impl Total {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.records += outcome.records;
        self.faults += outcome.faults;
        self.millis += outcome.millis;
        for (what, count) in outcome.counts {
            *self.counts.entry(what).or_default() += count;
        }
        if outcome.findings.is_empty() {
            return;
        }
        self.failed += 1;
        println!("seed {}: again by `cargo xtask sim --seed {}`", outcome.seed, outcome.seed);
        for finding in outcome.findings.iter().take(10) {
            println!("    {finding}");
        }
    }

    fn finish(self) -> bool {
        let whole = self.seeds >= SET_LEAST;
        let missing = if whole { sim::unseen(&self.counts) } else { Vec::new() };
        for what in &missing {
            println!("never seen: {what}");
        }
        for (what, count) in &self.counts {
            println!("{count:>9} {what}");
        }
        println!(
            "{} seeds, {} failed; {} simulated seconds, {} records, {} faults",
            self.seeds,
            self.failed,
            self.millis / 1000,
            self.records,
            self.faults
        );
        self.failed == 0 && missing.is_empty()
    }
}
