//! Work that the program finishes itself: record by record, and in any order.

use std::ops::Range;

use super::{Face, Inner};
use crate::consumer::batch::Shared;
use crate::consumer::engine::fenced;
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::commits::Mark;
use crate::state::unfinished::{Standing, Unfinished};

impl Face {
    /// These records are finished. What was read before its partition was moved counts no more, and
    /// nor does saying it twice.
    pub(in crate::consumer) fn acknowledge(
        &self,
        shared: &Shared,
        records: Range<usize>,
    ) -> Result<(), Error> {
        let partition = &shared.partition;
        let mut inner = self.lock();
        if let Some(error) = inner.refusal() {
            return Err(error.clone());
        }
        if !inner.finished.is_explicit() {
            let text = "records are finished by the next poll: acknowledgement.mode is implicit";
            return Err(Error::new(ErrorKind::InvalidState, text));
        }
        if inner.parts.get(partition).is_none_or(|part| part.lease != shared.lease) {
            return Err(fenced(std::slice::from_ref(partition)));
        }
        let Some(work) = inner.finished.work_on(partition) else { return Ok(()) };
        let epoch = shared.leader_epoch(records.end.saturating_sub(1));
        let end = shared.reach_of(records.end).min(work.reach(shared.position));
        if work.finish(shared.offset_at(records.start)..end, epoch)
            && inner.note_standing(partition)
        {
            Self::announce(inner);
            self.wake.wake();
        }
        Ok(())
    }

    /// Whether the program says of each record when it is finished.
    pub(in crate::consumer) fn is_explicit(&self) -> bool {
        self.lock().finished.is_explicit()
    }

    /// What the text beside a committed offset says to be finished behind it is passed over.
    pub(in crate::consumer) fn pass_finished(
        &self,
        partition: &TopicPartition,
        position: u64,
        committed: (i64, i32),
        text: &str,
    ) {
        let mut inner = self.lock();
        if !inner.finished.is_explicit() || inner.part(partition, position).is_none() {
            return;
        }
        if let Some(work) = Unfinished::from_text(position, committed, text) {
            let beyond = work.standing().beyond;
            tracing::debug!(%partition, offset = committed.0, beyond, "some is finished already");
            inner.finished.begin_work(partition, work);
        }
    }
}

impl Inner {
    /// Of a fetch records are given out from `at` on, but those before the range, which are finished.
    pub(super) fn note_given(&mut self, shared: &Shared, at: usize, records: Range<usize>) {
        if !self.finished.is_explicit() {
            return;
        }
        let (start, end) = (shared.offset_at(records.start), shared.offset_at(records.end));
        let begin = || Unfinished::new(shared.position, start);
        let Some(work) = self.finished.work_on_or(&shared.partition, begin) else { return };
        let epochs =
            (shared.mark(records.start).leader_epoch, shared.mark(records.end).leader_epoch);
        if records.is_empty() {
            work.pass(end, epochs.1);
        } else {
            work.give(start..end, epochs);
        }
        if records.is_empty() || at < records.start {
            self.note_standing(&shared.partition);
        }
    }

    /// Of a fetch there is nothing to give out: reading stands behind it.
    pub(super) fn pass_over(&mut self, shared: &Shared) {
        let mark = shared.mark(0);
        let begin = || Unfinished::new(shared.position, mark.offset);
        match self.finished.work_on_or(&shared.partition, begin) {
            Some(work) => {
                work.pass(mark.offset, mark.leader_epoch);
                self.note_standing(&shared.partition);
            }
            None => self.pass_to(&shared.partition, mark),
        }
    }

    /// Writes down where the work on a partition stands. Whether that stops or begins the giving out
    /// of its records, of which the machine is to hear.
    pub(super) fn note_standing(&mut self, partition: &TopicPartition) -> bool {
        let Some(part) = self.parts.get_mut(partition) else { return false };
        let Some(work) = self.finished.work_on(partition) else { return false };
        let Standing { offset, leader_epoch, beyond } = work.standing();
        let scattered = work.is_scattered();
        let (lease, jump) = (part.lease, part.oldest);
        let (by_hand, metadata) = (false, None);
        let mark = Mark { lease, jump, offset, leader_epoch, by_hand, metadata, beyond };
        let changes = std::mem::replace(&mut part.scattered, scattered) != scattered;
        self.finished.set(partition, mark);
        if changes {
            self.rest(partition);
        }
        changes
    }
}
