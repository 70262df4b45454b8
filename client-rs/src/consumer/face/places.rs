//! Where partitions stand: the next offset to give out, the end, and what lies between.

use super::{ConsumerStats, Current, Face, Inner};
use crate::record::TopicPartition;

impl Face {
    /// The next offset that will be given out; `None` while it is not known.
    pub(in crate::consumer) fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.lock().next_of(partition)
    }

    /// How many offsets lie between the next to be given out and the end of the log, as far as
    /// answers told.
    pub(in crate::consumer) fn lag(&self, partition: &TopicPartition) -> Option<i64> {
        let inner = self.lock();
        let end = inner.parts.get(partition)?.end?;
        Some(end.saturating_sub(inner.next_of(partition)?).max(0))
    }

    /// A partition ends there now.
    pub(in crate::consumer) fn set_end(&self, partition: &TopicPartition, position: u64, end: i64) {
        if let Some(part) = self.lock().part(partition, position) {
            part.end = Some(end);
        }
    }

    /// Drops what is ready of a partition, for a place that is still to be found; the new position's
    /// number, and the offset that would have been given out next.
    pub(in crate::consumer) fn cut(
        &self,
        partition: &TopicPartition,
        position: u64,
    ) -> Option<(u64, Option<i64>)> {
        let mut inner = self.lock();
        inner.part(partition, position)?;
        let given = inner.next_of(partition);
        inner.drop_ready(partition);
        let next = inner.id();
        let part = inner.part(partition, position)?;
        (part.position, part.next, part.end) = (next, given, None);
        Some((next, given))
    }

    /// Counts something.
    pub(in crate::consumer) fn count(&self, count: impl FnOnce(&mut ConsumerStats)) {
        count(&mut self.lock().stats);
    }
}

impl Inner {
    fn next_of(&self, partition: &TopicPartition) -> Option<i64> {
        let part = self.parts.get(partition)?;
        let of = |current: &Current| current.shared.offset_at(current.at);
        let current = self.current.as_ref();
        let current = current.filter(|current| current.shared.partition == *partition);
        current.map(of).or_else(|| part.begun.front().map(of)).or(part.next)
    }
}
