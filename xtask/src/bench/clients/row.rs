//! One row of a table: what is done, with which records, on which server.

use std::fmt;

use crate::outcome::{Done, Stop};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Produce,
    Consume,
    Latency,
}

impl Mode {
    pub(super) fn new(name: &str) -> Done<Self> {
        let known = [Self::Produce, Self::Consume, Self::Latency];
        let found = known.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| Stop::Failed(format!("no mode called {name}")))
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Latency => "latency",
        }
    }

    /// Rounds of all clients before those that count: large batches do not warm a server, one on
    /// the JVM above all, for records that come one by one.
    pub(super) const fn rounds_before(self) -> u32 {
        match self {
            Self::Latency => 1,
            Self::Produce | Self::Consume => 0,
        }
    }
}

/// What all clients of a row are given alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) mode: Mode,
    /// `kafka` or `ottla`.
    pub(super) server: String,
    /// Of each value.
    pub(super) bytes: usize,
    pub(super) partitions: u32,
    pub(super) codec: String,
    pub(super) acks: String,
    /// `turn`: the program names the next partition, record by record; `own`: the client chooses.
    pub(super) spread: String,
}

impl Row {
    /// The name of a topic for this row.
    pub(super) fn topic(&self, what: &str) -> String {
        let Self { mode, bytes, partitions, codec, acks, spread, .. } = self;
        format!("{}-{bytes}-{partitions}-{codec}-{acks}-{spread}-{what}", mode.name())
    }

    /// In how many things it differs from 100 B in 12 partitions, uncompressed, with `acks=all`.
    pub(super) fn steps_from_the_plain(&self) -> usize {
        let same =
            [self.bytes == 100, self.partitions == 12, self.codec == "none", self.acks == "all"];
        same.into_iter().filter(|same| !same).count()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, server, bytes, partitions, codec, acks, spread } = self;
        write!(f, "{}, server={server}: bytes={bytes}, partitions={partitions}", mode.name())?;
        match mode {
            Mode::Produce => write!(f, ", codec={codec}, acks={acks}, spread={spread}"),
            Mode::Consume => write!(f, ", codec={codec}"),
            Mode::Latency => write!(f, ", acks={acks}"),
        }
    }
}

/// A value of so many bytes, different for each number: like a small JSON object, so that codecs
/// find in it what they find in those.
pub(super) fn value(number: usize, bytes: usize) -> Vec<u8> {
    let mut state = u64::try_from(number).unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut value = Vec::with_capacity(bytes + 64);
    while value.len() < bytes {
        // Xorshift: the same on every machine.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (id, price) = (state % 100_000, state >> 40 & 0xfff);
        let word = ["pending", "shipped", "returned", "cancelled"].get(number % 4).unwrap_or(&"");
        value.extend_from_slice(
            format!("{{\"id\":{id},\"p\":{price},\"state\":\"{word}\"}}").as_bytes(),
        );
    }
    value.truncate(bytes);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_size_and_differ() {
        assert_eq!(value(1, 100).len(), 100);
        assert_eq!(value(1, 1_024).len(), 1_024);
        assert_ne!(value(1, 100), value(5, 100));
    }
}
