//! The budget: how much of it is free, and who gives room up when others need it.

use std::time::Instant;

use super::{Fetcher, Leaders, Place};
use crate::record::TopicPartition;

impl Fetcher {
    /// Below how many buffered bytes a partition is asked for again: half its share.
    pub(crate) fn refill_below(&self) -> usize {
        (self.config.budget / self.parts.len().max(1) / 2).max(1)
    }

    /// Most bytes to ask for at a time, so that all partitions together stay within the budget; but
    /// a batch should fit in.
    pub(super) fn part_bytes_max(&self) -> usize {
        self.config.partition_bytes.min(self.refill_below().max(self.batch_bytes_seen))
    }

    /// What is neither used nor promised of the budget.
    pub(super) const fn free(&self) -> usize {
        self.config.budget.saturating_sub(self.buffered + self.reserved)
    }

    /// Whether no more room is to be had by waiting: what is buffered is paused, nothing is asked.
    const fn is_drained(&self) -> bool {
        self.reserved == 0 && self.desk.holding == 0
    }

    /// A paused partition whose records hold the room that others need, with its position: the one
    /// that holds most. It may be paused for ever, so that no room is to be had by waiting.
    pub(crate) fn crowder(
        &mut self,
        leaders: &impl Leaders,
        now: Instant,
    ) -> Option<(TopicPartition, u64)> {
        self.sort_news(leaders, now);
        if self.has_room() || !self.is_drained() {
            return None;
        }
        self.choose(now)?;
        let held = self.parts.iter_mut().filter(|(_, part)| part.buffered > 0);
        let most = held.max_by_key(|(_, part)| part.buffered);
        most.map(|(partition, part)| (partition.clone(), part.position))
    }

    /// What was fetched of a partition is given up, so many bytes: it is read again from that
    /// offset, once it is not paused any more.
    pub(crate) fn rewind(
        &mut self,
        partition: &TopicPartition,
        position: u64,
        (offset, bytes): (i64, usize),
    ) {
        self.consumed(partition, position, bytes);
        self.change(partition, |part| {
            if part.position == position {
                // What was asked for behind it comes too early now. Its epochs hold all the same.
                (part.asked, part.place) = (None, Place::At(offset));
                (part.retry_at, part.urgent) = (None, true);
            }
        });
    }

    /// The partition's position gets another number, and so many bytes are still ready of it.
    pub(crate) fn renumber(&mut self, partition: &TopicPartition, position: u64, buffered: usize) {
        if let Some(part) = self.parts.get_mut(partition) {
            self.buffered = self.buffered - part.buffered + buffered;
            (part.position, part.buffered) = (position, buffered);
            self.touch(partition);
        }
    }
}
