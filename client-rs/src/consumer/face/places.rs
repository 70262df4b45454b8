//! Where partitions stand: the next offset to give out, the end, and what lies between.

use std::sync::atomic::Ordering;

use super::{ConsumerStats, Current, Face, Inner, Item};
use crate::record::TopicPartition;

/// A partition whose log is another one than before.
#[derive(Debug)]
pub(in crate::consumer) struct Renewed {
    pub(in crate::consumer) lease: u64,
    pub(in crate::consumer) position: u64,
    /// The offset in the log before that would have been given out next.
    pub(in crate::consumer) given: Option<i64>,
}

impl Face {
    /// The next offset that will be given out; `None` while it is not known.
    pub(in crate::consumer) fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.lock().next_of(partition)
    }

    /// How many offsets lie between the next to be given out and the end of the log, as far as
    /// answers told.
    pub(in crate::consumer) fn lag(&self, partition: &TopicPartition) -> Option<i64> {
        self.lock().lag_of(partition)
    }

    /// What was counted, and how it stands now.
    pub(in crate::consumer) fn stats(&self) -> ConsumerStats {
        let inner = self.lock();
        let (buffered, buffered_max) = (inner.buffered_bytes(), inner.budget);
        let decoded = inner.decoded.load(Ordering::Relaxed);
        let mut stats = ConsumerStats { buffered, decoded, buffered_max, ..inner.stats };
        for partition in inner.parts.keys() {
            match inner.lag_of(partition).map(u64::try_from) {
                Some(Ok(lag)) => stats.lag = stats.lag.saturating_add(lag),
                Some(Err(_)) | None => stats.lag_unknown += 1,
            }
        }
        stats
    }

    /// Bytes that are buffered, and how many partitions there are, without a look at each of these.
    pub(in crate::consumer) fn load(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.buffered_bytes(), inner.parts.len())
    }

    /// A partition ends there now.
    pub(in crate::consumer) fn set_end(&self, partition: &TopicPartition, position: u64, end: i64) {
        if let Some(part) = self.lock().part(partition, position) {
            part.end = Some(end);
        }
    }

    /// Drops what is ready of a partition, for a place that is still to be found; the new position's
    /// number, and the offset that would have been given out next. What is in the program's hands is
    /// finished by its next poll, as ever, and not before.
    pub(in crate::consumer) fn cut(
        &self,
        partition: &TopicPartition,
        position: u64,
    ) -> Option<(u64, Option<i64>)> {
        let mut inner = self.lock();
        let part = inner.part(partition, position)?;
        let place = part.items.iter().rev().find_map(|item| match item {
            Item::Place { offset, .. } => Some(*offset),
            Item::Data(_) | Item::Fault(_) => None,
        });
        let given = place.or_else(|| inner.next_of(partition));
        inner.note_finished();
        let handed = inner.handed.take();
        inner.drop_ready(std::slice::from_ref(partition));
        inner.handed = handed;
        let next = inner.id();
        let part = inner.part(partition, position)?;
        part.move_to(next);
        (part.next, part.end) = (given, None);
        Some((next, given))
    }

    /// As [`Self::cut`], under a lease of its own: what was given out before is of another log.
    pub(in crate::consumer) fn renew(
        &self,
        partition: &TopicPartition,
        position: u64,
    ) -> Option<Renewed> {
        let (position, given) = self.cut(partition, position)?;
        let mut inner = self.lock();
        inner.handed.take_if(|handed| handed.shared.partition == *partition);
        inner.finished.remove(partition);
        let lease = inner.id();
        let part = inner.part(partition, position)?;
        part.lease = lease;
        // Whoever decodes what was fetched for the lease before drops it.
        part.decoding = false;
        Some(Renewed { lease, position, given })
    }

    /// Counts something.
    pub(in crate::consumer) fn count(&self, count: impl FnOnce(&mut ConsumerStats)) {
        count(&mut self.lock().stats);
    }
}

impl Inner {
    fn buffered_bytes(&self) -> usize {
        self.buffered + self.decoded.load(Ordering::Relaxed)
    }

    /// Whether something of a partition is to be given out, or is in the program's hands.
    pub(super) fn has_open(&self, partition: &TopicPartition) -> bool {
        // Where the program says when it is done with a record, no poll is waited for.
        let polls = !self.finished.is_explicit();
        let handed = self.handed.as_ref().filter(|_| polls && self.is_busy());
        let current = self.current.as_ref().map(|current| &current.shared);
        let mut given = current.into_iter().chain(handed.map(|handed| &handed.shared));
        let part = self.parts.get(partition);
        given.any(|shared| shared.partition == *partition)
            || part.is_some_and(|part| part.decoding || part.has_items())
    }

    /// Reading of a partition goes on from there.
    pub(super) fn begin_at(&mut self, partition: &TopicPartition, position: u64, offset: i64) {
        if let Some(part) = self.parts.get_mut(partition) {
            let mark = part.begin_at(position, offset);
            self.pass_to(partition, mark);
        }
    }

    fn lag_of(&self, partition: &TopicPartition) -> Option<i64> {
        let end = self.parts.get(partition)?.end?;
        Some(end.saturating_sub(self.next_of(partition)?).max(0))
    }

    /// How many records of a partition are ready to be given out.
    pub(super) fn ready_of(&self, partition: &TopicPartition) -> u64 {
        let left = |current: &Current| current.shared.len() - current.at;
        let current = self.current.as_ref();
        let current = current.filter(|current| current.shared.partition == *partition);
        let part = self.parts.get(partition);
        let begun = part.into_iter().flat_map(|part| &part.begun);
        let decoded: usize = current.into_iter().chain(begun).map(left).sum();
        let fetched = part.into_iter().flat_map(|part| &part.items).map(|item| match item {
            Item::Data(fetched) => fetched.records(),
            Item::Fault(_) | Item::Place { .. } => 0,
        });
        fetched.sum::<u64>() + u64::try_from(decoded).unwrap_or(u64::MAX)
    }

    pub(super) fn next_of(&self, partition: &TopicPartition) -> Option<i64> {
        let part = self.parts.get(partition)?;
        let of = |current: &Current| current.shared.offset_at(current.at);
        let current = self.current.as_ref();
        let current = current.filter(|current| current.shared.partition == *partition);
        current.map(of).or_else(|| part.begun.front().map(of)).or(part.next)
    }
}
