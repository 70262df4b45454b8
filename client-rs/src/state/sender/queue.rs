//! The batches of one partition, from taken to resolved: order, sequences, retries.
//!
//! * At most so many are sent and unresolved, in sequence order; only the first of them ends.
//! * Until one is stored under a producer id, one is on its way: a log that knows nothing of an id
//!   takes whichever sequence comes first [ProducerAppendInfo], and so the second for the first.
//! * A failed one is sent again alone, when all others on their way are answered; new ones wait.
//! * A batch that ends unstored leaves a gap in the sequences. Those behind it are numbered anew
//!   when nothing is on its way; under the next epoch, if it cannot be told what the broker has.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::left_out;

use super::batch::{Batch, Sequence, State, sequence_after};
use super::verdict::Verdict;
use crate::error::{Error, ErrorKind, Outcome};
use crate::state::completion::{Completion, Forward, Outcome as Ending};

mod repair;
#[cfg(test)]
mod tests;

/// Whom the batches are numbered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// Batches go without sequences.
    Off,
    /// The producer id is not known yet.
    Unknown,
    /// Under this producer id and epoch.
    By { producer_id: i64, epoch: i16 },
}

/// What must be done before the next batch goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Repair {
    None,
    /// Number anew from the first gap on.
    Renumber(i32),
    /// Number anew from 0 under the next epoch.
    Bump,
}

/// Limits of one partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) in_flight_max: usize,
    pub(crate) retries: u32,
    pub(crate) delivery_timeout: Duration,
}

/// A batch that has ended, and how.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) completion: Arc<Completion>,
    /// How many hold the completion, if nobody can ask for it.
    pub(crate) holders: usize,
    pub(crate) records: i32,
    /// Its bytes before compression.
    pub(crate) bytes: usize,
    pub(crate) ending: Ending,
}

impl Ended {
    fn new(batch: Batch, ending: Ending) -> Self {
        let (records, bytes) = (batch.records(), batch.raw_len());
        Self { completion: batch.completion, holders: 1, records, bytes, ending }
    }
}

/// The batches of one partition.
#[derive(Debug)]
pub(crate) struct Queue {
    limits: Limits,
    /// Taken, and not sent yet.
    waiting: VecDeque<Batch>,
    /// Sent, in sequence order, the unresolved ones first to last.
    sent: VecDeque<Batch>,
    /// Producer id and epoch of this partition, and the next sequence.
    own: Option<Sequence>,
    /// Whether the log knows the producer id: a batch under it is stored.
    known: bool,
    repair: Repair,
    /// Failures in a row.
    failures: u32,
    retry_at: Option<Instant>,
    /// What ended, until it is fetched.
    pub(crate) ended: Vec<Ended>,
    /// Producer id and epoch under which all was numbered anew, until that is fetched.
    pub(crate) bumped: Option<(i64, i16)>,
}

impl Queue {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            own: None,
            known: false,
            repair: Repair::None,
            failures: 0,
            retry_at: None,
            ended: Vec::new(),
            bumped: None,
        }
    }

    /// Adds a batch that was taken.
    pub(crate) fn push(&mut self, batch: Batch) {
        self.waiting.push_back(batch);
    }

    /// Whether no batch waits to be sent for the first time.
    pub(crate) fn is_drained(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many batches wait to be sent, or to be sent again.
    pub(crate) fn backlog(&self) -> usize {
        let again = self.sent.iter().filter(|batch| matches!(batch.state, State::Waiting));
        self.waiting.len() + again.count()
    }

    /// Whether there is no batch at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// The batch of an id, if it waits to be sent for the first time.
    pub(crate) fn waiting_mut(&mut self, id: u64) -> Option<&mut Batch> {
        self.waiting.iter_mut().find(|batch| batch.id() == id)
    }

    fn in_flight(&self) -> usize {
        let on_its_way = |batch: &&Batch| matches!(batch.state, State::Sent | State::Expired);
        self.sent.iter().filter(on_its_way).count()
    }

    /// Whether one that is sent again would go alone.
    fn is_alone(&self) -> bool {
        self.in_flight() == 0 || left_out("retry_alone")
    }

    /// Whether a new batch could go out now.
    pub(crate) fn takes_new(&self) -> bool {
        // Behind one that is sent again they wait for its answer.
        let open = |batch: &Batch| match batch.state {
            State::Sent => batch.attempts == 1 || left_out("new_ones_wait"),
            State::Stored { .. } => true,
            State::Waiting => left_out("new_ones_wait"),
            State::Expired => left_out("expired_waits"),
            State::Failed(_) | State::Forgotten => false,
        };
        let numbered = self.own.is_some();
        let careful = numbered && !self.known && !left_out("first_alone");
        let most = if careful { 1 } else { self.limits.in_flight_max };
        self.repair == Repair::None && self.sent.len() < most && self.sent.iter().all(open)
    }

    /// Whether it is known which numbers the next batch goes out under.
    fn is_numbered(&self, numbering: Numbering) -> bool {
        self.repair == Repair::None && (self.own.is_some() || numbering != Numbering::Unknown)
    }

    /// Whether the next batch to go out is one that is sent again.
    fn is_again(&self) -> bool {
        self.sent.front().is_some_and(|head| matches!(head.state, State::Waiting))
    }

    /// Whether something could go out now, and the bytes it has.
    pub(crate) fn next_len(&self, now: Instant, numbering: Numbering) -> Option<usize> {
        if !self.is_numbered(numbering) {
            return None;
        }
        match self.sent.front() {
            Some(head) if matches!(head.state, State::Waiting) => {
                let due = self.retry_at.is_none_or(|at| at <= now) && self.is_alone();
                due.then(|| head.len())
            }
            _ if self.takes_new() => {
                self.waiting.front().filter(|batch| !batch.packing).map(Batch::len)
            }
            _ => None,
        }
    }

    /// When a failed batch may go out again, if it waits for nothing else than that time.
    pub(crate) fn retry_at(&self, numbering: Numbering) -> Option<Instant> {
        let waits = self.is_again() && self.is_alone() && self.is_numbered(numbering);
        self.retry_at.filter(|_| waits)
    }

    /// When the time of the first batch that can still end by it is over.
    pub(crate) fn expires_at(&self) -> Option<Instant> {
        let open = |batch: &&Batch| matches!(batch.state, State::Waiting | State::Sent);
        let first = self.sent.iter().chain(&self.waiting).find(open);
        first.map(|batch| batch.opened_at + self.limits.delivery_timeout)
    }

    /// The batch that goes out now, sealed; [`Queue::next_len`] said that there is one.
    pub(crate) fn begin(&mut self, numbering: Numbering) -> Option<&Batch> {
        let again = self.is_again();
        if !again {
            let mut batch = self.waiting.pop_front()?;
            if self.own.is_none()
                && let Numbering::By { producer_id, epoch } = numbering
            {
                self.own = Some(Sequence { producer_id, epoch, base: 0 });
            }
            let sequence = self.own.filter(|_| numbering != Numbering::Off);
            if let Err(error) = batch.seal(sequence) {
                self.end_unsealed(batch, error);
                return None;
            }
            if let Some(own) = &mut self.own {
                own.base = sequence_after(own.base, batch.records());
            }
            self.sent.push_back(batch);
        }
        let index = if again { 0 } else { self.sent.len() - 1 };
        let batch = self.sent.get_mut(index)?;
        batch.state = State::Sent;
        batch.attempts += 1;
        self.retry_at = None;
        Some(batch)
    }

    /// A batch's request was taken back, and nothing of it had been written.
    ///
    /// Requests are taken back youngest first, so that a batch which was to go out for the first
    /// time is the last one here: then it waits as before, and its sequence is free again.
    pub(crate) fn withdraw(&mut self, id: u64) {
        let Some(index) = self.sent.iter().position(|batch| batch.id() == id) else { return };
        let last = index + 1 == self.sent.len();
        let Some(batch) = self.sent.get_mut(index) else { return };
        if !matches!(batch.state, State::Sent) {
            return;
        }
        batch.state = State::Waiting;
        batch.attempts = batch.attempts.saturating_sub(1);
        if batch.attempts > 0 || !last {
            return;
        }
        let Some(mut batch) = self.sent.pop_back() else { return };
        if let (Some(own), Some(sequence)) = (&mut self.own, batch.sequence) {
            debug_assert_eq!(own.epoch, sequence.epoch, "none is numbered anew on its way");
            own.base = sequence.base;
        }
        batch.unseal();
        self.waiting.push_front(batch);
    }

    fn end_unsealed(&mut self, batch: Batch, error: ottla_protocol::record::BatchError) {
        let error = Error::new(ErrorKind::Internal, "a batch cannot be sealed").with_source(error);
        let ending = Ending::Failed(error.with_outcome(Outcome::NotSent));
        self.ended.push(Ended::new(batch, ending));
    }

    /// What became of an attempt of a batch. `pause` is for its next one.
    pub(crate) fn handle(
        &mut self,
        id: u64,
        verdict: Verdict,
        now: Instant,
        pause: impl FnOnce(u32) -> Duration,
        split: impl FnOnce(&Batch) -> Option<([Batch; 2], Forward)>,
    ) {
        let Some(index) = self.sent.iter().position(|batch| batch.id() == id) else { return };
        let head = index == 0;
        let repairing = self.repair != Repair::None;
        let Some(batch) = self.sent.get_mut(index) else { return };
        // Of a log that has become another one meanwhile it tells nothing.
        self.known |= !repairing && matches!(verdict, Verdict::Stored { .. });
        if matches!(batch.state, State::Expired) {
            // Its waiters were told. If it is stored after all, nothing is missing.
            batch.state = match verdict {
                Verdict::Stored { .. } => State::Stored { base_offset: -1, append_time: -1 },
                _ => State::Forgotten,
            };
            self.pop_ended();
            return;
        }
        if !matches!(batch.state, State::Sent) {
            return;
        }
        match verdict {
            Verdict::Stored { base_offset, append_time } => {
                batch.state = State::Stored { base_offset, append_time };
                self.failures = 0;
            }
            Verdict::Retry(error) => self.again(index, error, now, pause),
            Verdict::Lost { error, written } => {
                batch.ambiguous |= written;
                self.again(index, error, now, pause);
            }
            Verdict::Sequence(error) if batch.sequence.is_none() => self.refuse(index, error),
            Verdict::Sequence(error) if (head || left_out("sequence_off_head")) && !repairing => {
                self.need(Repair::Bump);
                self.again(index, error, now, pause);
            }
            // Off the head it only says that one before it is missing, which decides how to go on.
            Verdict::Sequence(error) => self.again(index, error, now, |_| Duration::ZERO),
            Verdict::Split(error) => {
                batch.note_error(&error);
                let halves = if batch.ambiguous { None } else { split(batch) };
                if let Some((halves, forward)) = halves {
                    self.replace(index, halves, forward);
                    self.retry_at.get_or_insert(now);
                } else {
                    let (records, bytes) = (batch.records(), batch.len());
                    let hint = format!("records in its batch: {records}, bytes of that: {bytes}");
                    self.refuse(index, error.with_hint(hint));
                }
            }
            Verdict::Reject(error) | Verdict::Fatal(error) => self.refuse(index, error),
        }
        self.pop_ended();
    }

    /// Lets a batch wait for its next attempt, if it has one.
    fn again(
        &mut self,
        index: usize,
        error: Error,
        now: Instant,
        pause: impl FnOnce(u32) -> Duration,
    ) {
        let retries = self.limits.retries;
        let Some(batch) = self.sent.get_mut(index) else { return };
        batch.note_error(&error);
        if batch.attempts > retries {
            self.refuse(index, error);
            return;
        }
        batch.state = State::Waiting;
        // Batches that failed together count once.
        if self.retry_at.is_none() {
            self.failures = self.failures.saturating_add(1);
            self.retry_at = Some(now + pause(self.failures));
        }
    }

    /// A failed batch need not wait: what it failed for has been put right.
    pub(crate) fn retry_at_once(&mut self, now: Instant) {
        if self.retry_at.is_some() {
            self.retry_at = Some(now);
        }
    }

    fn refuse(&mut self, index: usize, error: Error) {
        let Some(batch) = self.sent.get_mut(index) else { return };
        let (sequence, ambiguous) = (batch.sequence, batch.ambiguous);
        batch.state = State::Waiting;
        batch.note_error(&error);
        let outcome = error.outcome().unwrap_or_else(|| batch.outcome());
        batch.state = State::Failed(error.with_outcome(outcome));
        self.note_gap(sequence, ambiguous);
    }

    fn replace(&mut self, index: usize, halves: [Batch; 2], forward: Forward) {
        let Some(batch) = self.sent.remove(index) else { return };
        for half in halves.into_iter().rev() {
            self.sent.insert(index, half);
        }
        self.ended.push(Ended::new(batch, Ending::Forwarded(forward)));
    }

    fn note_gap(&mut self, sequence: Option<Sequence>, ambiguous: bool) {
        if let Some(sequence) = sequence {
            self.need(if ambiguous { Repair::Bump } else { Repair::Renumber(sequence.base) });
        }
    }

    fn need(&mut self, repair: Repair) {
        // Of two gaps the first one counts, and that was noted first.
        self.repair = match (self.repair, repair) {
            (Repair::Bump, _) | (_, Repair::Bump) => Repair::Bump,
            (Repair::Renumber(first), _) => Repair::Renumber(first),
            (Repair::None, repair) => repair,
        };
    }

    /// The partition's log is another one than before, which knows nothing of this producer.
    pub(crate) fn handle_new_log(&mut self) {
        if self.own.is_some() {
            self.known = false;
            self.need(Repair::Bump);
        }
    }

    /// Ends the batches at the front whose end is known.
    fn pop_ended(&mut self) {
        if left_out("head_ends") {
            let open = |batch: &Batch| {
                matches!(batch.state, State::Waiting | State::Sent | State::Expired)
            };
            self.sent.make_contiguous().sort_by_key(open);
        }
        while let Some(front) = self.sent.front() {
            match front.state {
                State::Waiting | State::Sent | State::Expired => return,
                State::Stored { .. } | State::Failed(_) => {}
                State::Forgotten => {
                    // If a later one is stored, so is this one: sequences have no gap there.
                    let stored = |batch: &Batch| matches!(batch.state, State::Stored { .. });
                    if self.sent.iter().any(stored) {
                        self.sent.pop_front();
                        continue;
                    }
                    if self.in_flight() > 0 {
                        return;
                    }
                    let sequence = front.sequence;
                    self.note_gap(sequence, !left_out("expired_bumps"));
                    self.sent.pop_front();
                    continue;
                }
            }
            let Some(mut batch) = self.sent.pop_front() else { return };
            let ending = match std::mem::replace(&mut batch.state, State::Forgotten) {
                State::Stored { base_offset, append_time } => {
                    Ending::Stored { base_offset, append_time }
                }
                State::Failed(error) => Ending::Failed(error),
                State::Waiting | State::Sent | State::Expired | State::Forgotten => return,
            };
            if batch.completion.outcome().is_none() {
                self.ended.push(Ended::new(batch, ending));
            }
        }
    }

    /// Ends the batches whose time is over. `explain` makes the error of one.
    pub(crate) fn expire(&mut self, now: Instant, explain: impl Fn(&Batch) -> Error) {
        let over = |batch: &Batch| batch.opened_at + self.limits.delivery_timeout <= now;
        let mut gaps = Vec::new();
        let mut told = Vec::new();
        for batch in &mut self.sent {
            if !over(batch) {
                break;
            }
            match batch.state {
                State::Waiting => {
                    let error = explain(batch).with_outcome(batch.outcome());
                    gaps.push((batch.sequence, batch.ambiguous));
                    batch.state = State::Failed(error);
                }
                State::Sent => {
                    let error = explain(batch).with_outcome(Outcome::PossiblyPersisted);
                    let size = (batch.records(), batch.raw_len());
                    told.push((Arc::clone(&batch.completion), error, size));
                    batch.state = State::Expired;
                    batch.forget_records();
                }
                _ => {}
            }
        }
        for (sequence, ambiguous) in gaps {
            self.note_gap(sequence, ambiguous);
        }
        self.pop_ended();
        for (completion, error, (records, bytes)) in told {
            let ending = Ending::Failed(error);
            self.ended.push(Ended { completion, holders: 2, records, bytes, ending });
        }
        while self
            .waiting
            .front()
            .is_some_and(|batch| batch.opened_at + self.limits.delivery_timeout <= now)
        {
            let Some(batch) = self.waiting.pop_front() else { return };
            let error = explain(&batch).with_outcome(Outcome::NotSent);
            self.ended.push(Ended::new(batch, Ending::Failed(error)));
        }
    }

    /// Ends all batches; `explain` makes the error of one.
    pub(crate) fn fail_all(&mut self, explain: impl Fn(&Batch) -> Error) {
        for batch in self.sent.drain(..).chain(self.waiting.drain(..)) {
            if batch.completion.outcome().is_some() {
                continue;
            }
            let ending = match batch.state {
                State::Stored { base_offset, append_time } => {
                    Ending::Stored { base_offset, append_time }
                }
                State::Failed(ref error) => Ending::Failed(error.clone()),
                _ => Ending::Failed(explain(&batch).with_outcome(batch.outcome())),
            };
            self.ended.push(Ended::new(batch, ending));
        }
    }
}
