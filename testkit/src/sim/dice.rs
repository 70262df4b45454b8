//! Chance: all of a run comes from one seed.

use std::time::Duration;

/// Numbers that look random (SplitMix64).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The sequence of a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = most.saturating_sub(least).saturating_add(1);
        least + self.number().checked_rem(span).unwrap_or(0)
    }

    /// True so many times in a thousand.
    pub(crate) fn per_mille(&mut self, times: u64) -> bool {
        self.between(0, 999) < times
    }

    /// True one time in two.
    pub(crate) fn flip(&mut self) -> bool {
        self.per_mille(500)
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let last = u64::try_from(from.len().saturating_sub(1)).unwrap_or(0);
        let at = usize::try_from(self.between(0, last)).unwrap_or(0);
        from[at]
    }

    /// A time between two, in milliseconds.
    pub(crate) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }
}
