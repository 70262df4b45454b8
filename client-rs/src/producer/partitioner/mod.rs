//! Which partition a record goes to, if it does not say.

mod cursor;
mod hashes;

use std::fmt;
use std::sync::Arc;

pub(crate) use self::cursor::Cursor;
use self::hashes::{crc32, fnv1a, murmur2};
use crate::record::Record;
use crate::state::accumulator::slot::Slot;

#[cfg(test)]
mod tests;

/// Chooses the partitions of records that name none: a program's own rule, for
/// [`Producer::with_partitioner`](crate::Producer::with_partitioner).
///
/// ```
/// use ottla::{Partitioner, Partitions, Record};
/// /// Partition 0 is for records without a key; the first byte of a key says which other one.
/// #[derive(Debug)]
/// struct ByFirstByte;
/// impl Partitioner for ByFirstByte {
///     fn partition(&self, record: &Record<'_>, topic: &Partitions<'_>) -> i32 {
///         let first = record.key.and_then(|key| key.first());
///         first.map_or(0, |&first| 1 + i32::from(first) % (topic.count() - 1).max(1))
///     }
/// }
/// ```
pub trait Partitioner: Send + Sync {
    /// The number of the partition for a record. If the topic has no such partition, the record is
    /// refused: `InvalidPartition`.
    ///
    /// It is called on the thread that sends; for records whose topic was not known yet, on the
    /// client's own. It must return soon, and must not call the producer.
    fn partition(&self, record: &Record<'_>, topic: &Partitions<'_>) -> i32;
}

/// The partitions of a topic, as far as they are known when a record is sent.
#[derive(Debug, Clone, Copy)]
pub struct Partitions<'a> {
    leaders: &'a [Option<i32>],
}

impl<'a> Partitions<'a> {
    pub(crate) const fn new(leaders: &'a [Option<i32>]) -> Self {
        Self { leaders }
    }

    /// How many there are, with or without a leader.
    pub fn count(&self) -> i32 {
        i32::try_from(self.leaders.len()).unwrap_or(i32::MAX)
    }

    /// The id of the broker that leads one; `None` if no broker does, or there is no such partition.
    pub fn leader(&self, partition: i32) -> Option<i32> {
        let index = usize::try_from(partition).ok()?;
        self.leaders.get(index).copied().flatten()
    }

    /// The numbers of those with a leader.
    pub fn led(&self) -> impl Iterator<Item = i32> + 'a {
        let numbered = (0..).zip(self.leaders);
        numbered.filter_map(|(number, leader)| leader.is_some().then_some(number))
    }
}

/// Who chooses the partition of a record that names none.
#[derive(Debug, Clone)]
pub(crate) enum Rule {
    /// A hash of the key; [`Keyless`] without a key.
    Hash(KeyHash),
    /// One of the rules that ignore keys.
    Keyless(Keyless),
    /// The program itself.
    Own(Own),
}

/// Which hash of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyHash {
    /// That of Kafka's own client.
    Murmur2,
    /// That of librdkafka, unless it is told otherwise. An empty key is none.
    Crc32,
    /// That of Sarama.
    Fnv1a,
}

/// Who chooses for a record without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyless {
    /// Record by record the next partition.
    RoundRobin,
    /// Record by record any partition.
    Random,
    /// One partition until a batch is full, then another (KIP-794).
    Sticky,
}

/// A program's own partitioner.
#[derive(Clone)]
pub(crate) struct Own(pub(crate) Arc<dyn Partitioner>);

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a partitioner of the program's own")
    }
}

/// How long [`Keyless::Sticky`] stays, and how it chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sticking {
    /// From so many bytes on it goes when a batch is taken.
    pub(crate) bytes_min: usize,
    /// With so many bytes it goes in any case.
    pub(crate) bytes_max: usize,
    /// Whether partitions with shorter queues are chosen more often.
    pub(crate) adaptive: bool,
}

impl Sticking {
    /// For batches of a size.
    pub(crate) fn new(batch_bytes: usize, adaptive: bool) -> Self {
        let bytes_min = batch_bytes.min(16 * 1024);
        Self { bytes_min, bytes_max: batch_bytes.saturating_mul(2), adaptive }
    }
}

/// How a producer chooses partitions.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// `partitioner`.
    pub(crate) rule: Rule,
    /// `partitioner.keyless`.
    pub(crate) keyless: Keyless,
    pub(crate) sticking: Sticking,
}

impl Rules {
    /// Whether some records may stick to a partition.
    pub(crate) const fn may_stick(&self) -> bool {
        match self.rule {
            Rule::Hash(_) => matches!(self.keyless, Keyless::Sticky),
            Rule::Keyless(keyless) => matches!(keyless, Keyless::Sticky),
            Rule::Own(_) => false,
        }
    }

    /// Whether this record sticks to a partition with those before it.
    #[inline]
    pub(crate) fn sticks(&self, record: &Record<'_>) -> bool {
        self.may_stick() && record.partition.is_none() && self.hash_of(record.key).is_none()
    }

    /// The hash of a key, if keys are looked at and it is one.
    #[inline]
    fn hash_of(&self, key: Option<&[u8]>) -> Option<u32> {
        match (&self.rule, key?) {
            (Rule::Hash(KeyHash::Murmur2), key) => Some(murmur2(key) & 0x7fff_ffff),
            (Rule::Hash(KeyHash::Crc32), key) => (!key.is_empty()).then(|| crc32(key)),
            (Rule::Hash(KeyHash::Fnv1a), key) => Some(fnv1a(key)),
            (Rule::Keyless(_) | Rule::Own(_), _) => None,
        }
    }

    /// The number of the partition for a record that names none; 0 if the topic has none.
    ///
    /// Hashes count all partitions, the other rules those with a leader.
    #[inline]
    pub(crate) fn choose(&self, record: &Record<'_>, choice: &Choice<'_>) -> i32 {
        let index = match (self.hash_of(record.key), &self.rule) {
            (Some(hash), _) => {
                let hash = usize::try_from(hash).unwrap_or(usize::MAX);
                hash.checked_rem(choice.leaders.len()).unwrap_or(0)
            }
            (None, Rule::Own(own)) => {
                return own.0.partition(record, &Partitions::new(choice.leaders));
            }
            (None, Rule::Keyless(keyless)) => choice.by(*keyless, self.sticking),
            (None, Rule::Hash(_)) => choice.by(self.keyless, self.sticking),
        };
        i32::try_from(index).unwrap_or(i32::MAX)
    }
}

/// The partitions a record can go to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice<'a> {
    /// Of all of them, who leads each.
    pub(crate) leaders: &'a [Option<i32>],
    /// Those with a leader; empty if all or none have one.
    pub(crate) led: &'a [usize],
    /// What waits for each; as many as there are leaders.
    pub(crate) slots: &'a [Arc<Slot>],
    /// The topic's cursor.
    pub(crate) cursor: &'a Cursor,
}

impl Choice<'_> {
    fn by(&self, keyless: Keyless, sticking: Sticking) -> usize {
        match keyless {
            Keyless::RoundRobin => self.nth(self.cursor.next(self.candidates())),
            Keyless::Random => self.nth(self.cursor.any(self.candidates())),
            Keyless::Sticky => self.sticky(sticking),
        }
    }

    /// How many partitions come into question.
    const fn candidates(&self) -> usize {
        if self.led.is_empty() { self.leaders.len() } else { self.led.len() }
    }

    /// One of those.
    fn nth(&self, at: usize) -> usize {
        if self.led.is_empty() { at } else { self.led.get(at).copied().unwrap_or(0) }
    }

    fn sticky(&self, sticking: Sticking) -> usize {
        let stuck = self.cursor.stuck();
        match stuck {
            Some(index) if self.stays(index, sticking) => index,
            _ => self.cursor.switch(stuck, self.another(sticking)),
        }
    }

    fn stays(&self, index: usize, sticking: Sticking) -> bool {
        let Some(slot) = self.slots.get(index) else { return false };
        let led = self.led.is_empty() || self.led.binary_search(&index).is_ok();
        let put = self.cursor.put();
        led && (put < sticking.bytes_min || (put < sticking.bytes_max && slot.has_open()))
    }

    /// The partition to stick to next: any, or the likelier the fewer batches wait for it.
    fn another(&self, sticking: Sticking) -> usize {
        if !sticking.adaptive {
            return self.nth(self.cursor.any(self.candidates()));
        }
        // Those whose brokers take nothing come into question only if all are so.
        let away = |slot: &&Arc<Slot>| slot.is_away();
        let slots = || (0..self.candidates()).filter_map(|at| self.slots.get(self.nth(at)));
        let all_away = slots().all(|slot| away(&slot));
        let open = |at: &usize| {
            let slot = self.slots.get(self.nth(*at));
            slot.is_some_and(|slot| all_away || !slot.is_away())
        };
        let queued = |at: usize| self.slots.get(self.nth(at)).map_or(0, |slot| slot.queued());
        let candidates = || (0..self.candidates()).filter(open);
        let longest = candidates().map(queued).max().unwrap_or(0);
        // Queues grow and shrink meanwhile: no weight is below 1, and the last one takes the rest.
        let weight = |at: usize| (longest + 1).saturating_sub(queued(at)).max(1);
        let mut left = self.cursor.any(candidates().map(weight).sum());
        let mut last = 0;
        for at in candidates() {
            last = at;
            match left.checked_sub(weight(at)) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        self.nth(last)
    }
}
