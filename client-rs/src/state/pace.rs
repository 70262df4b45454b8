//! A machine's own pauses between attempts.

use std::time::{Duration, Instant};

use super::backoff::{Backoff, Random};

/// How long to wait after so many failures, never twice the same.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    backoff: Backoff,
    random: Random,
}

impl Pace {
    /// Pauses of that growth, with jitter from a seed.
    pub(crate) const fn new(backoff: Backoff, seed: u64) -> Self {
        Self { backoff, random: Random::new(seed) }
    }

    /// The pause after `failures` failures before this one.
    pub(crate) fn delay(&mut self, failures: u32) -> Duration {
        self.backoff.pause(failures.saturating_add(1), &mut self.random)
    }
}

/// The first of these times that is still to come.
///
/// One that has passed is left out: what was due then has been done, or waits for something else
/// than time.
pub(crate) fn soonest(
    now: Instant,
    times: impl IntoIterator<Item = Option<Instant>>,
) -> Option<Instant> {
    times.into_iter().flatten().filter(|&time| time > now).min()
}
