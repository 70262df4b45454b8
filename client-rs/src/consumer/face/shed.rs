//! Records that are given up since others need their room: they are fetched again.

use std::sync::atomic::Ordering;

use ottla_protocol::left_out;

use super::{Begin, Face, Inner, Item, Part, decoded_share};
use crate::record::TopicPartition;
use crate::state::fetcher::Fetched;

impl Face {
    /// Gives up what is ready of a partition that gives nothing out now: from where to read it again,
    /// and how much fetched bytes are gone. `None` if nothing can be given up.
    pub(in crate::consumer) fn shed(
        &self,
        partition: &TopicPartition,
        position: u64,
    ) -> Option<(i64, usize)> {
        let mut inner = self.lock();
        let next = inner.next_of(partition)?;
        let ready = inner.ready_of(partition);
        let part = inner.part(partition, position)?;
        // Whoever decodes some of it just now puts that before the rest.
        if !part.is_closed() || part.decoding {
            return None;
        }
        part.begun.clear();
        part.items.clear();
        part.next = Some(next);
        let mut bytes = std::mem::take(&mut part.buffered);
        inner.buffered -= bytes;
        inner.stats.dropped_records += ready;
        // With what was taken of it and the machine has not heard of yet.
        inner.consumed.retain(|(other, at, taken)| {
            let its = other == partition && *at == position;
            bytes += if its { *taken } else { 0 };
            !its
        });
        Some((next, bytes))
    }

    /// Partitions that give nothing out now and hold decoded records, with their positions.
    pub(in crate::consumer) fn closed_begun(&self) -> Vec<(TopicPartition, u64)> {
        let inner = self.lock();
        let held = inner.parts.iter().filter(|(_, part)| part.is_closed());
        let begun = held.filter(|(_, part)| !part.begun.is_empty());
        let mut found: Vec<_> = begun.map(|(at, part)| (at.clone(), part.position)).collect();
        found.sort_unstable();
        found
    }

    /// What could be given up is: the next batch is begun in any case.
    pub(in crate::consumer) fn begin_next(&self) {
        let mut inner = self.lock();
        inner.begin = Begin::Yes;
        Self::announce(inner);
    }
}

impl Inner {
    /// Whether a partition still stands where this was fetched for it.
    pub(super) fn is_at(&self, fetched: &Fetched, lease: u64) -> bool {
        let part = self.parts.get(&fetched.partition);
        part.is_some_and(|part| part.lease == lease && part.is_at(fetched.position))
    }

    /// How much more may be decoded ahead.
    pub(super) fn decode_limit(&self) -> usize {
        if left_out("decoded_share") {
            return self.budget;
        }
        decoded_share(self.budget).saturating_sub(self.decoded.load(Ordering::Relaxed))
    }

    /// Whether the next batch may be begun: not while records that are not given out have all the
    /// room, until the machine has given these up.
    pub(super) fn may_begin(&mut self) -> bool {
        self.has_room_for(1)
    }

    /// Whether decoded records of so many bytes may be kept, or nothing can be given up for them.
    pub(super) fn has_room_for(&mut self, bytes: usize) -> bool {
        let closed = |part: &Part| part.is_closed() && !part.begun.is_empty();
        let has = self.begin == Begin::Yes
            || self.decode_limit() >= bytes
            || !self.parts.values().any(closed);
        if !has {
            self.begin = Begin::Asked;
        }
        has
    }

    /// Puts back what was decoded and finds no room, to be begun when there is some.
    pub(super) fn put_back_fetched(&mut self, fetched: Fetched) {
        let partition = fetched.partition.clone();
        if let Some(part) = self.part(&partition, fetched.position) {
            part.decoding = false;
            part.items.push_front(Item::Data(fetched));
            self.list_first(&partition);
        }
    }
}

impl Part {
    /// Whether it is kept from giving anything out.
    const fn is_closed(&self) -> bool {
        self.paused || self.held || self.untold
    }
}
