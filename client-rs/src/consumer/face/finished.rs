//! Finished work: how far it has come in each partition, and which of that is not committed yet.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::{Command, Face, Inner, Marks};
use crate::consumer::batch::Shared;
use crate::consumer::promise::Promise;
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::commits::{Mark, Settled};
use crate::state::hash::HashMap;
use crate::state::membership::Which;
use crate::state::unfinished::Unfinished;

/// The mark of each partition, with what tells apart those that a commit must name: it costs what
/// has changed, however many partitions there are.
#[derive(Debug, Default)]
pub(super) struct Finished {
    marks: HashMap<TopicPartition, Mark>,
    /// Partitions whose mark no commit that was taken is known to cover.
    open: BTreeSet<TopicPartition>,
    /// Those of them of which the machine was not asked to commit the mark as it is now.
    unasked: BTreeSet<TopicPartition>,
    /// What of each partition is unfinished, if the program says of each record when it is not.
    work: Option<HashMap<TopicPartition, Unfinished>>,
}

impl Finished {
    /// For who says of each record when it is finished.
    pub(super) fn explicit() -> Self {
        Self { work: Some(HashMap::default()), ..Self::default() }
    }

    pub(super) const fn is_explicit(&self) -> bool {
        self.work.is_some()
    }

    /// The work on a partition.
    pub(super) fn work_on(&mut self, partition: &TopicPartition) -> Option<&mut Unfinished> {
        self.work.as_mut()?.get_mut(partition)
    }

    /// The same, begun if it was not; none if a poll finishes what the one before gave.
    pub(super) fn work_on_or(
        &mut self,
        partition: &TopicPartition,
        begin: impl FnOnce() -> Unfinished,
    ) -> Option<&mut Unfinished> {
        let work = self.work.as_mut()?;
        if !work.contains_key(partition) {
            work.insert(partition.clone(), begin());
        }
        work.get_mut(partition)
    }

    /// The work on a partition is this from now on, whatever it was before.
    pub(super) fn begin_work(&mut self, partition: &TopicPartition, begun: Unfinished) {
        if let Some(work) = &mut self.work {
            work.insert(partition.clone(), begun);
        }
    }

    /// Which of a fetch's records are to be given out next, from `at` on: those that are not
    /// finished already, up to the next that is.
    pub(super) fn unfinished_of(&mut self, shared: &Shared, at: usize) -> Range<usize> {
        let mut left = at..shared.len();
        let Some(work) = self.work_on(&shared.partition) else { return left };
        while !left.is_empty() {
            let (offset, epoch) = (shared.offset_at(left.start), shared.leader_epoch(left.start));
            let Some(until) = work.finished_until(offset, epoch) else {
                left.end = shared.index_of(work.open_until(offset)).max(left.start + 1);
                break;
            };
            // Also where offsets do not ascend it comes to an end.
            left.start = shared.index_of(until).max(left.start + 1);
        }
        left
    }

    /// Work stands there now.
    pub(super) fn set(&mut self, partition: &TopicPartition, mark: Mark) {
        if self.marks.get(partition) == Some(&mark) {
            return;
        }
        match self.marks.get_mut(partition) {
            Some(before) => *before = mark,
            None => drop(self.marks.insert(partition.clone(), mark)),
        }
        self.reopen(partition);
    }

    /// Nothing is known of a partition any more.
    pub(super) fn remove(&mut self, partition: &TopicPartition) {
        self.marks.remove(partition);
        if let Some(work) = &mut self.work {
            work.remove(partition);
        }
        self.close(partition);
    }

    /// What no commit is known to cover, of these: now it is asked for.
    pub(super) fn take_open(&mut self, which: &Which) -> Marks {
        let open = self.open.iter().filter(|partition| which.contains(partition));
        let open: Marks = open.filter_map(|partition| self.marked(partition)).collect();
        for (partition, _) in &open {
            self.unasked.remove(partition);
        }
        open
    }

    /// What was not asked for yet: now it is.
    pub(super) fn take_unasked(&mut self) -> Marks {
        let unasked = std::mem::take(&mut self.unasked);
        unasked.iter().filter_map(|partition| self.marked(partition)).collect()
    }

    /// Work of a partition is to be committed, also if it was.
    fn reopen(&mut self, partition: &TopicPartition) {
        if self.marks.contains_key(partition) {
            if !self.open.contains(partition) {
                self.open.insert(partition.clone());
            }
            if !self.unasked.contains(partition) {
                self.unasked.insert(partition.clone());
            }
        }
    }

    fn close(&mut self, partition: &TopicPartition) {
        self.open.remove(partition);
        self.unasked.remove(partition);
    }

    fn marked(&self, partition: &TopicPartition) -> Option<(TopicPartition, Mark)> {
        let mut mark = self.marks.get(partition)?.clone();
        if mark.beyond > 0 {
            let work = self.work.as_ref().and_then(|work| work.get(partition));
            mark.metadata = work.and_then(Unfinished::text);
        }
        Some((partition.clone(), mark))
    }

    /// The mark was committed, and nothing waits that may take it back.
    fn handle_taken(&mut self, partition: &TopicPartition, taken: &Mark) {
        let covered = self.marks.get(partition).is_none_or(|mark| taken.covers(mark));
        if covered {
            self.close(partition);
        }
    }

    /// A commit was refused: the next one asks for it again.
    fn handle_refused(&mut self, partition: &TopicPartition) {
        if self.open.contains(partition) {
            self.reopen(partition);
        }
    }
}

impl Face {
    /// Counts what was given out as finished, and asks for finished work to be committed; whether
    /// there is any. Who waits for the promise waits for what was asked for before, too.
    pub(in crate::consumer) fn commit_finished(
        &self,
        deadline: Instant,
        promise: Option<Arc<Promise<()>>>,
    ) -> Result<bool, Error> {
        let mut inner = self.lock();
        if let Some(error) = inner.refusal() {
            return Err(error.clone());
        }
        inner.finish();
        inner.note_finished();
        let marks = match &promise {
            Some(_) => inner.finished.take_open(&Which::All),
            None => inner.finished.take_unasked(),
        };
        if marks.is_empty() {
            return Ok(false);
        }
        inner.commands.push(Command::Commit { marks, deadline, promise });
        drop(inner);
        self.wake.wake();
        Ok(true)
    }

    /// What was finished and not asked for yet.
    pub(in crate::consumer) fn newly_finished(&self) -> Marks {
        let mut inner = self.lock();
        inner.note_finished();
        inner.finished.take_unasked()
    }

    /// What was finished of these and is not known to be committed, whether it was asked for or not.
    pub(in crate::consumer) fn uncommitted(&self, which: &Which) -> Marks {
        let mut inner = self.lock();
        inner.note_finished();
        inner.finished.take_open(which)
    }

    /// The same for who gives partitions up: also of those that the program has left since the
    /// machine's turn began, by an assignment that it has not seen.
    pub(in crate::consumer) fn uncommitted_and_left(&self, which: &Which) -> Marks {
        let mut marks = self.uncommitted(which);
        for command in &self.lock().commands {
            if let Command::Assign(assigned) = command {
                let left = assigned.finished.iter();
                marks.extend(left.filter(|(partition, _)| which.contains(partition)).cloned());
            }
        }
        marks
    }

    /// What became of commits.
    pub(in crate::consumer) fn settle(&self, settled: &Settled) {
        let mut inner = self.lock();
        for (partition, taken) in &settled.taken {
            if !inner.is_named_by_hand(partition) {
                inner.finished.handle_taken(partition, taken);
            }
        }
        for partition in &settled.refused {
            inner.finished.handle_refused(partition);
        }
    }
}

impl Inner {
    /// Takes a wish for the machine.
    pub(super) fn ask(&mut self, command: Command) {
        if let Command::Commit { marks, .. } = &command {
            // It may go back: then finished work is ahead of what is committed.
            for (partition, _) in marks.iter().filter(|(_, mark)| mark.by_hand) {
                self.finished.reopen(partition);
            }
        }
        self.commands.push(command);
    }

    /// Reading of a partition stands there; what was given out of it before is finished, and does
    /// not move that back. Where the program says when it is, what lies before a cut still waits.
    pub(super) fn pass_to(&mut self, partition: &TopicPartition, mark: Mark) {
        let work = self.finished.work_on(partition);
        if work.is_some_and(|work| work.cut(mark.jump, mark.offset)) {
            self.note_standing(partition);
            return;
        }
        self.handed.take_if(|handed| handed.shared.partition == *partition);
        self.begin_work(partition, mark);
    }

    /// Work on a partition begins there, whatever was in the program's hands before.
    pub(super) fn begin_work(&mut self, partition: &TopicPartition, mark: Mark) {
        self.finished.begin_work(partition, Unfinished::new(mark.jump, mark.offset));
        if let Some(part) = self.parts.get_mut(partition)
            && std::mem::take(&mut part.scattered)
        {
            self.rest(partition);
        }
        self.finished.set(partition, mark);
    }

    /// Writes down how far the work that was given out is finished.
    pub(super) fn note_finished(&mut self) {
        let Some(handed) = self.handed.as_ref().filter(|_| !self.finished.is_explicit()) else {
            return;
        };
        let shared = &handed.shared;
        let part = self.parts.get(&shared.partition);
        let alive =
            part.is_some_and(|part| part.lease == shared.lease && part.is_at(shared.position));
        if alive && handed.finished > 0 {
            self.finished.set(&shared.partition, shared.mark(handed.finished));
        }
    }

    /// Whether the machine is still to hear of an offset of the program's own for a partition.
    fn is_named_by_hand(&self, partition: &TopicPartition) -> bool {
        let marks = self.commands.iter().filter_map(|command| match command {
            Command::Commit { marks, .. } => Some(marks),
            _ => None,
        });
        marks.flatten().any(|(other, mark)| mark.by_hand && other == partition)
    }
}
