//! Pauses between attempts: each twice the one before, up to a limit, and a fifth off or on (KIP-580).

use std::time::Duration;

/// Numbers that look random, from a seed: a machine never draws its own.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, uniform over 64 bits (SplitMix64).
    pub(crate) const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`; 0 if that is 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        usize::try_from(self.number().checked_rem(limit).unwrap_or(0)).unwrap_or(0)
    }
}

/// One step of SplitMix64: spreads a counter over all 64 bits.
pub(crate) const fn mix(counter: u64) -> u64 {
    let mut z = counter;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How pauses grow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    /// From the first pause to the longest.
    pub(crate) fn new((first, max): (Duration, Duration)) -> Self {
        Self { first: first.min(max), max }
    }

    /// The pause after so many failures in a row.
    pub(crate) fn pause(&self, failures: u32, random: &mut Random) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let whole = self.first.saturating_mul(1 << doublings).min(self.max);
        // 80 % to 120 %, in steps of a tenth of a percent.
        let thousandths = u32::try_from(800 + random.below(401)).unwrap_or(1000);
        whole.saturating_mul(thousandths) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_differ_by_a_fifth_at_most() {
        let backoff = Backoff::new((Duration::from_millis(100), Duration::from_secs(1)));
        let mut random = Random::new(7);
        for (failures, whole) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (90, 1000)] {
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..200 {
                let pause = backoff.pause(failures, &mut random);
                assert!(pause >= Duration::from_millis(whole * 8 / 10), "{failures}: {pause:?}");
                assert!(pause <= Duration::from_millis(whole * 12 / 10), "{failures}: {pause:?}");
                seen.insert(pause);
            }
            assert!(seen.len() > 50, "pauses are spread");
        }
    }
}
