//! What happened in a run: a hash of all of it, and how often each thing happened.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

use super::answers;

/// The record of a run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    faults: u64,
    counts: BTreeMap<&'static str, u64>,
    /// Errors that were answered, by API and code.
    errors: BTreeMap<(ApiKey, ErrorCode), u64>,
    /// Whether each event is printed.
    verbose: bool,
}

impl Trace {
    /// Nothing has happened.
    pub(crate) fn new(verbose: bool) -> Self {
        Self { verbose, ..Self::default() }
    }

    /// Something happened, at a connection or the like of this number, with these bytes.
    #[allow(clippy::print_stdout, reason = "it was asked for")]
    pub(crate) fn event(&mut self, at: Duration, what: &str, number: u64, bytes: &[u8]) {
        self.events += 1;
        let micros = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let parts = [micros, number, u64::from(crc32c::crc32c(bytes))];
        for part in parts.into_iter().chain(what.bytes().map(u64::from)) {
            self.hash = (self.hash.rotate_left(5) ^ part).wrapping_mul(0x0517_cc1b_7272_2095);
        }
        if self.verbose {
            println!("{:>12.3} {what} {number} ({} bytes)", at.as_secs_f64(), bytes.len());
        }
    }

    /// Prints what somebody who looks at one run wants to know; nothing depends on it.
    #[allow(clippy::print_stdout, reason = "it was asked for")]
    pub(crate) fn tell(&self, at: Duration, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>12.3} {}", at.as_secs_f64(), what());
        }
    }

    /// A thing happened that some run of a set must see.
    pub(crate) fn sometimes(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// A request of this API was answered with this error.
    pub(crate) fn error(&mut self, api: ApiKey, code: ErrorCode) {
        *self.errors.entry((api, code)).or_default() += 1;
    }

    /// A fault was made.
    pub(crate) fn fault(&mut self, at: Duration, what: &'static str, number: u64) {
        self.faults += 1;
        self.sometimes(what);
        self.event(at, what, number, &[]);
    }

    /// The hash of all events so far.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// How many there were.
    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// How many faults were made.
    pub(crate) const fn faults(&self) -> u64 {
        self.faults
    }

    /// What was counted.
    pub(crate) fn into_counts(self) -> BTreeMap<String, u64> {
        let errors = self.errors.into_iter();
        let errors = errors.map(|((api, code), count)| (answers::name(api, code), count));
        let counts = self.counts.into_iter().map(|(what, count)| (what.to_owned(), count));
        counts.chain(errors).collect()
    }
}
