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

/// Whether there is room for decoded records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoomFor {
    /// There is, or nothing more can be given up for them.
    Has,
    /// Not before what is decoded and waits for its turn.
    OthersFirst,
    /// The machine gives up what partitions hold that give nothing out now.
    Later,
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

    /// How decoded records of so many bytes find room, if they do not have it: what is to be done.
    pub(super) fn room_for(&mut self, bytes: usize) -> RoomFor {
        if self.decode_limit() >= bytes {
            return RoomFor::Has;
        }
        if self.begun_ready().is_some() {
            return RoomFor::OthersFirst;
        }
        let closed = |part: &Part| part.is_closed() && !part.begun.is_empty();
        if self.begin == Begin::Yes || !self.parts.values().any(closed) {
            // Nothing can be given up for them: one batch may alone be larger than all the room.
            return RoomFor::Has;
        }
        self.begin = Begin::Asked;
        RoomFor::Later
    }

    /// Where the first partition stands in the ready list that has decoded records to give out.
    fn begun_ready(&self) -> Option<usize> {
        let begun = |part: &Part| part.is_open() && !part.begun.is_empty();
        self.ready.iter().position(|at| self.parts.get(at).is_some_and(begun))
    }

    /// Has decoded records that wait for their turn given out next.
    pub(super) fn bring_begun_forward(&mut self) {
        let partition = self.begun_ready().and_then(|at| self.ready.remove(at));
        if let Some(partition) = partition {
            self.ready.push_front(partition);
        }
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
