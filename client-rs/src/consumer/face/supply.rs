//! The machine's side of the face: partitions that come and go, and what is ready of them.

use super::assigning::Chooser;
use super::{FAULTS_MAX, Face, Item, Part};
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::fetcher::Fetched;
use crate::state::membership::Which;

impl Face {
    /// A partition is this member's; not any more if the program chooses by now.
    pub(in crate::consumer) fn add(
        &self,
        partition: TopicPartition,
        lease: u64,
        position: u64,
    ) -> bool {
        let mut inner = self.lock();
        let taken = inner.chooser != Chooser::Program;
        if taken {
            // Of topics that the program has left meanwhile nothing is given out.
            let held = !inner.wanted.has(&partition.topic);
            inner.parts.insert(partition, Part { held, ..Part::new(lease, position) });
        }
        taken
    }

    /// Partitions are another's: what is ready of them is dropped.
    pub(in crate::consumer) fn remove(&self, partitions: &[TopicPartition]) {
        let mut inner = self.lock();
        if inner.chooser == Chooser::Program {
            return;
        }
        inner.drop_ready(partitions);
        for partition in partitions {
            inner.parts.remove(partition);
            inner.finished.remove(partition);
        }
        inner.forget(partitions);
        Self::announce(inner);
    }

    /// Gives nothing more of these out, until [`Face::release`] or [`Face::remove`].
    pub(in crate::consumer) fn hold(&self, which: &Which) {
        let mut inner = self.lock();
        if inner.chooser == Chooser::Program {
            return;
        }
        inner.hold(which);
    }

    /// A partition that was held stays with this member.
    pub(in crate::consumer) fn release(&self, partition: &TopicPartition) {
        let mut inner = self.lock();
        // Unless it is not to be read any more, and the group does not know that yet.
        let wanted = inner.chooser != Chooser::Nobody && inner.wanted.has(&partition.topic);
        if let Some(part) = inner.parts.get_mut(partition).filter(|_| wanted) {
            part.held = false;
        }
        inner.list(partition);
        Self::announce(inner);
    }

    /// Reading of a partition begins at that offset.
    pub(in crate::consumer) fn begin(
        &self,
        partition: &TopicPartition,
        position: u64,
        offset: i64,
    ) {
        let mut inner = self.lock();
        if let Some(part) = inner.part(partition, position) {
            part.next = Some(offset);
        }
    }

    /// The same at a place that was made up: it is committed like what was read, when all that was
    /// fetched before it is given out and finished.
    pub(in crate::consumer) fn begin_afresh(
        &self,
        partition: &TopicPartition,
        position: u64,
        offset: i64,
    ) {
        let mut inner = self.lock();
        if inner.part(partition, position).is_none() {
            return;
        }
        if !inner.has_open(partition) {
            return inner.begin_at(partition, position, offset);
        }
        if let Some(part) = inner.parts.get_mut(partition) {
            part.items.push_back(Item::Place { position, offset });
        }
        inner.list(partition);
        Self::announce(inner);
    }

    /// Moves a partition to a place that is still to be found, unless it has moved by itself;
    /// what is ready of it is given out before. The new position's number, and bytes that are ready.
    pub(in crate::consumer) fn jump(
        &self,
        partition: &TopicPartition,
        position: u64,
    ) -> Option<(u64, usize)> {
        let mut inner = self.lock();
        let next = inner.id();
        let part = inner.part(partition, position)?;
        part.position = next;
        let held = part.buffered;
        inner.consumed.retain(|(other, ..)| other != partition);
        Some((next, held))
    }

    /// Records to give out.
    pub(in crate::consumer) fn deliver(&self, mut fetched: Fetched) {
        let mut inner = self.lock();
        let Some(part) = inner.part(&fetched.partition, fetched.position) else {
            // Stale: sought or revoked while they were on their way.
            inner.stats.dropped_records += fetched.records();
            return;
        };
        let bytes = fetched.bytes;
        let partition = fetched.partition.clone();
        if part.rests() {
            fetched.let_go();
        }
        part.buffered += bytes;
        part.end = Some(fetched.high_watermark);
        part.items.push_back(Item::Data(fetched));
        inner.buffered += bytes;
        inner.stats.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        inner.list(&partition);
        Self::announce(inner);
    }

    /// An error to give out behind what is ready of its partition; one at a time.
    pub(in crate::consumer) fn fault(
        &self,
        partition: &TopicPartition,
        position: u64,
        fault: Error,
    ) {
        let mut inner = self.lock();
        let Some(part) = inner.part(partition, position) else { return };
        if let Some(Item::Fault(last)) = part.items.back_mut() {
            *last = fault;
            return;
        }
        part.items.push_back(Item::Fault(fault));
        inner.list(partition);
        Self::announce(inner);
    }

    /// An error of no partition, given out once.
    pub(in crate::consumer) fn push_error(&self, error: Error) {
        let mut inner = self.lock();
        if inner.faults.len() >= FAULTS_MAX {
            inner.faults.pop_front();
        }
        inner.faults.push_back(error);
        Self::announce(inner);
    }

    /// What a call is told if its time is over without records.
    pub(in crate::consumer) fn set_obstacle(&self, obstacle: Option<Error>) {
        self.lock().obstacle = obstacle;
    }

    /// Every call gets this error from now on; the first one to say so counts.
    pub(in crate::consumer) fn end(&self, error: Error) {
        let mut inner = self.lock();
        inner.over = true;
        inner.ended.get_or_insert(error);
        Self::announce(inner);
    }

    /// Every call says so from now on, whatever ended it before.
    pub(in crate::consumer) fn close(&self) {
        let mut inner = self.lock();
        inner.ended = Some(Error::closed());
        Self::announce(inner);
    }

    /// Whether the consumer has any partition.
    pub(in crate::consumer) fn is_empty(&self) -> bool {
        self.lock().parts.is_empty()
    }

    /// All partitions of this member.
    pub(in crate::consumer) fn partitions(&self) -> Vec<TopicPartition> {
        let mut partitions: Vec<_> = self.lock().parts.keys().cloned().collect();
        partitions.sort();
        partitions
    }
}
