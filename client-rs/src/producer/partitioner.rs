//! Which partition a record goes to, if it does not say.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::state::backoff::mix;

/// Who chooses the partition of a record that names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Partitioner {
    /// The key's hash, as Kafka's own client has it; [`Keyless`] without a key.
    KeyHash,
    /// Record by record the next partition.
    RoundRobin,
    /// Record by record any partition.
    Random,
}

/// Who chooses for a record without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyless {
    /// Record by record the next partition.
    RoundRobin,
    /// Record by record any partition.
    Random,
}

/// Where a topic's keyless records were put last.
#[derive(Debug)]
pub(crate) struct Cursor {
    next: AtomicU32,
    random: AtomicU64,
}

impl Cursor {
    /// From a seed, lest producers that live shortly all begin with partition 0.
    pub(crate) fn new(seed: u64) -> Self {
        let next = u32::try_from(mix(seed) >> 32).unwrap_or(0);
        Self { next: AtomicU32::new(next), random: AtomicU64::new(seed) }
    }

    fn next(&self, count: usize) -> usize {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        usize::try_from(at).unwrap_or(0).checked_rem(count).unwrap_or(0)
    }

    fn any(&self, count: usize) -> usize {
        // A counter that all threads share, mixed by each for itself.
        let at = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        usize::try_from(mix(at).checked_rem(count).unwrap_or(0)).unwrap_or(0)
    }
}

/// The partitions a record can go to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice<'a> {
    /// How many the topic has.
    pub(crate) count: usize,
    /// Those with a leader; empty if all or none have one.
    pub(crate) led: &'a [usize],
    /// The topic's cursor.
    pub(crate) cursor: &'a Cursor,
}

impl Choice<'_> {
    fn round_robin(&self) -> usize {
        self.pick(Cursor::next)
    }

    fn random(&self) -> usize {
        self.pick(Cursor::any)
    }

    fn pick(&self, rule: impl Fn(&Cursor, usize) -> usize) -> usize {
        if self.led.is_empty() {
            return rule(self.cursor, self.count);
        }
        self.led.get(rule(self.cursor, self.led.len())).copied().unwrap_or(0)
    }
}

/// The index of the partition for a record of this key; 0 if the topic has none.
///
/// An empty key is a key. Hashes count all partitions, the other rules those with a leader.
#[inline]
pub(crate) fn partition(
    partitioner: Partitioner,
    keyless: Keyless,
    key: Option<&[u8]>,
    choice: &Choice<'_>,
) -> usize {
    match (partitioner, key, keyless) {
        (Partitioner::KeyHash, Some(key), _) => key_hash(key, choice.count),
        (Partitioner::RoundRobin, ..) | (Partitioner::KeyHash, None, Keyless::RoundRobin) => {
            choice.round_robin()
        }
        (Partitioner::Random, ..) | (Partitioner::KeyHash, None, Keyless::Random) => {
            choice.random()
        }
    }
}

/// Partition of a key as Kafka's own client has it [BuiltInPartitioner.partitionForKey].
#[inline]
pub(crate) fn key_hash(key: &[u8], count: usize) -> usize {
    let hash = usize::try_from(murmur2(key) & 0x7fff_ffff).unwrap_or(0);
    hash.checked_rem(count).unwrap_or(0)
}

/// MurmurHash2 of 32 bits, with Kafka's seed [Utils.murmur2].
#[inline]
pub(crate) fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    // Keys are below 2 GiB, as their length field has it; of longer ones the low bits count.
    let length = u32::try_from(data.len() & 0xffff_ffff).unwrap_or(u32::MAX);
    let mut hash = 0x9747_b28c ^ length;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        let mut last = [0; 4];
        last.iter_mut().zip(tail).for_each(|(place, &byte)| *place = byte);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(rule: Partitioner, key: Option<&[u8]>, led: &[usize], cursor: &Cursor) -> usize {
        partition(rule, Keyless::RoundRobin, key, &Choice { count: 12, led, cursor })
    }

    #[test]
    fn keys_go_where_kafkas_own_client_puts_them() {
        let cursor = Cursor::new(1);
        for (key, partition) in [("", 9), ("21", 0), ("abc", 3), ("kafka", 4)] {
            let chosen = choose(Partitioner::KeyHash, Some(key.as_bytes()), &[], &cursor);
            assert_eq!(chosen, partition, "{key}");
        }
        // The one hash whose sign bit alone is set.
        assert_eq!(murmur2(b"d26skop"), 0x8000_0000);
        assert_eq!(key_hash(b"d26skop", 12), 0);
        assert_eq!(key_hash(b"abc", 0), 0);
    }

    #[test]
    fn hashes_count_partitions_without_a_leader_too() {
        let cursor = Cursor::new(1);
        assert_eq!(choose(Partitioner::KeyHash, Some(b"kafka"), &[1, 2], &cursor), 4);
    }

    #[test]
    fn round_robin_is_exact_and_skips_partitions_without_a_leader() {
        for key in [None, Some(b"k".as_slice())] {
            let cursor = Cursor::new(7);
            let mut counts = [0; 12];
            for _ in 0..120 {
                counts[choose(Partitioner::RoundRobin, key, &[], &cursor)] += 1;
            }
            assert_eq!(counts, [10; 12]);
            let mut counts = [0; 12];
            for _ in 0..30 {
                counts[choose(Partitioner::RoundRobin, key, &[3, 5, 7], &cursor)] += 1;
            }
            assert_eq!((counts[3], counts[5], counts[7]), (10, 10, 10));
        }
    }

    #[test]
    fn producers_of_different_seeds_begin_at_different_partitions() {
        let firsts: std::collections::BTreeSet<usize> =
            (0..100).map(|seed| Cursor::new(seed).next(12)).collect();
        assert_eq!(firsts.len(), 12);
    }

    #[test]
    fn random_reaches_all_partitions_about_equally() {
        let cursor = Cursor::new(3);
        let mut counts = [0_u32; 12];
        for _ in 0..12_000 {
            counts[choose(Partitioner::Random, Some(b"k"), &[], &cursor)] += 1;
        }
        assert!(counts.iter().all(|&count| (800..1200).contains(&count)), "{counts:?}");
    }
}
