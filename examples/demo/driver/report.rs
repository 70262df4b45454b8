//! What the person at the terminal sees.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::deal::LANGUAGES;
use crate::flights::Flights;
use crate::ledger::{Account, Outcome};
use crate::program::Verb;

/// The progress while the stream runs: one line that is written over, or a line a second.
#[derive(Debug)]
pub(crate) struct Progress {
    total: usize,
    terminal: bool,
    shown: Instant,
}

impl Progress {
    /// The progress towards so many flights.
    pub(crate) fn new(total: usize) -> Self {
        Self { total, terminal: std::io::stdout().is_terminal(), shown: Instant::now() }
    }

    /// Shows how far it is, if it is time to.
    pub(crate) fn show(&mut self, sent: usize, read: usize) {
        let pause = Duration::from_millis(if self.terminal { 100 } else { 1000 });
        if self.shown.elapsed() < pause {
            return;
        }
        self.shown = Instant::now();
        let line = format!("sent {sent:>7}, read {read:>7} of {}", self.total);
        if self.terminal {
            print!("\r{line}");
            // A terminal that has gone away needs no progress.
            drop(std::io::stdout().flush());
        } else {
            println!("{line}");
        }
    }

    /// Ends the line that was written over.
    pub(crate) fn end(&self) {
        if self.terminal {
            println!();
        }
    }
}

/// Shows who did how much.
pub(crate) fn print(outcome: &Outcome, flights: &Flights) {
    let (sent, read) = (outcome.records(Verb::Produce), outcome.records(Verb::Consume));
    println!(
        "\n{} flights in the file, {sent} sent, {read} read in {} ms",
        flights.all.len(),
        outcome.millis
    );
    println!(
        "\n{:<9}{:<9}{:>8}{:>10}{:>12}{:>12}",
        "language", "did", "process", "records", "bytes", "records/s"
    );
    for language in 0..LANGUAGES.len() {
        for verb in [Verb::Produce, Verb::Consume] {
            outcome.with(verb).filter(|account| account.language == language).for_each(row);
        }
    }
    let mut partitions: BTreeMap<u32, usize> = BTreeMap::new();
    for reading in outcome.with(Verb::Consume).flat_map(|account| &account.readings) {
        *partitions.entry(reading.partition).or_default() += 1;
    }
    let counts: Vec<String> =
        partitions.iter().map(|(partition, count)| format!("{partition}: {count}")).collect();
    println!("\nrecords a partition  {}\n", counts.join("  "));
}

fn row(account: &Account) {
    let verb = if account.verb == Verb::Produce { "sent" } else { "read" };
    let records = u64::try_from(account.records).unwrap_or(u64::MAX);
    let rate = records.saturating_mul(1000) / account.millis.max(1);
    println!(
        "{:<9}{verb:<9}{:>8}{:>10}{:>12}{rate:>12}",
        LANGUAGES[account.language], account.pid, account.records, account.bytes
    );
}
