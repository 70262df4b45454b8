//! One turn of the writer: the inbox to the log, and what waited for it to its answers.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_storage::{FlushJob, Flushed, Incoming, Log, LogError};

use super::{Acks, AppendError, Done, Parked, Partition, Role, Submission, locked};

/// The most batches that one write takes from an inbox.
const TURN_BATCHES: usize = 256;

/// The most bytes that one write takes from an inbox, unless its first submission alone is larger.
const TURN_BYTES: usize = 1024 * 1024;

impl Partition {
    /// Appends what waits in the inbox; true if more came meanwhile. For the writer alone.
    pub(crate) fn turn(self: &Arc<Self>, now_ms: i64) -> bool {
        let Taken { work, deleted, flushed } = self.take_work();
        if deleted {
            self.remove_folder(work);
            return false;
        }
        if let Some(outcome) = flushed {
            self.take_flush(outcome);
        }
        if !work.is_empty() {
            let mut appended = self.append(work, now_ms);
            if let Some(job) = appended.flush.take() {
                self.setup.folder.flush_behind(self, job);
            }
            self.complete(appended);
        }
        let mut inbox = locked(&self.inbox);
        inbox.scheduled = inbox.has_work();
        inbox.scheduled
    }

    fn take_work(&self) -> Taken {
        let mut inbox = locked(&self.inbox);
        let (deleted, flushed) = (inbox.deleted, inbox.flushed.take());
        if deleted {
            return Taken { work: inbox.work.drain(..).collect(), deleted, flushed };
        }
        let (mut batches, mut bytes, mut taken) = (0, 0, 0);
        for submission in &inbox.work {
            batches += submission.batches.len();
            bytes += submission.batches.iter().map(|batch| batch.bytes.len()).sum::<usize>();
            if taken > 0 && (batches > TURN_BATCHES || bytes > TURN_BYTES) {
                break;
            }
            taken += 1;
        }
        Taken { work: inbox.work.drain(..taken).collect(), deleted, flushed }
    }

    /// A flush in the background has ended.
    pub(crate) fn handle_flushed(self: &Arc<Self>, outcome: Result<Flushed, LogError>) {
        {
            let mut inbox = locked(&self.inbox);
            inbox.flushed = Some(outcome);
            if mem::replace(&mut inbox.scheduled, true) {
                return;
            }
        }
        self.setup.ready.push(self.clone());
    }

    /// Notes in the log what a flush came to; a failed one fails it.
    fn take_flush(&self, outcome: Result<Flushed, LogError>) {
        // A log that failed meanwhile has nothing to note it in.
        let Ok(mut log) = self.take_role() else { return };
        match log.finish_flush(outcome) {
            Ok(reached) => {
                *locked(&self.role) = Role::Free(log);
                self.setup.folder.note_flushed(&self.setup.topic, self.setup.index, reached);
            }
            Err(error) => self.fail(error.to_string().into()),
        }
    }

    /// Appends with the role held, and gives it back.
    fn append(&self, work: Vec<Submission>, now_ms: i64) -> Turn {
        let mut turn = Turn::default();
        if let Err(error) = self.log() {
            turn.failed.extend(work.into_iter().map(|submission| (error.clone(), submission.done)));
            return turn;
        }
        let (batches, plans) = self.admit(work, &mut turn.failed);
        let mut log = match self.take_role() {
            Ok(log) => log,
            Err(error) => {
                turn.failed.extend(plans.into_iter().map(|plan| (error.clone(), plan.done)));
                return turn;
            }
        };
        let segments = log.segment_count();
        let mut written = log.append(batches, self.setup.leader_epoch, now_ms);
        if written.is_ok() && log.segment_count() > segments {
            // What was sealed is flushed beside the next appends, as Kafka does after a roll.
            match log.flush_job() {
                Ok(job) => turn.flush = Some(job),
                Err(error) => written = Err(error),
            }
        }
        if written.is_ok()
            && self.setup.sync_each_turn
            && let Err(error) = log.flush()
        {
            written = Err(error);
        }
        match written {
            Ok(results) => {
                turn.log_end = Some(log.log_end());
                *locked(&self.role) = Role::Free(log);
                let mut results = results.into_iter();
                for Plan { batches, acks, done } in plans {
                    let results = results.by_ref().take(batches).collect();
                    turn.stored.push((acks, Parked { results, done }));
                }
            }
            Err(error) => {
                let why: Arc<str> = error.to_string().into();
                if log.failure().is_some() {
                    self.fail(why.clone());
                } else {
                    // A full disk: the log is whole, and goes on once there is room. Some of the
                    // batches may be stored.
                    tracing::error!(%why, "a write was refused");
                    turn.log_end = Some(log.log_end());
                    *locked(&self.role) = Role::Free(log);
                }
                let error = AppendError::Storage(why);
                turn.failed.extend(plans.into_iter().map(|plan| (error.clone(), plan.done)));
            }
        }
        turn
    }

    /// Splits what may be appended from what too few in-sync replicas refuse.
    fn admit(
        &self,
        work: Vec<Submission>,
        failed: &mut Vec<(AppendError, Done)>,
    ) -> (Vec<Incoming>, Vec<Plan>) {
        let in_sync = locked(&self.machine).leader.check_acks_all();
        let (mut batches, mut plans) = (Vec::new(), Vec::with_capacity(work.len()));
        for submission in work {
            match in_sync {
                Err(few) if submission.acks == Acks::All => failed.push((
                    AppendError::NotEnoughReplicas { in_sync: few.in_sync, needed: few.needed },
                    submission.done,
                )),
                _ => {
                    let Submission { batches: new, acks, done } = submission;
                    plans.push(Plan { batches: new.len(), acks, done });
                    batches.extend(new);
                }
            }
        }
        (batches, plans)
    }

    fn take_role(&self) -> Result<Box<Log>, AppendError> {
        let mut role = locked(&self.role);
        match mem::replace(&mut *role, Role::Taken) {
            Role::Free(log) => Ok(log),
            Role::Failed(why) => {
                *role = Role::Failed(why.clone());
                Err(AppendError::Storage(why))
            }
            // Only the writer takes the role, so Taken here is what a panic left behind.
            Role::Taken => Err(AppendError::Storage("an append broke off".into())),
            other @ (Role::Unopened | Role::Closed) => {
                *role = other;
                Err(AppendError::Closed)
            }
        }
    }

    /// Moves the high watermark and tells everybody who waited for it, with no lock held.
    fn complete(&self, turn: Turn) {
        let mut committed = Vec::new();
        let mut fetches = Vec::new();
        {
            let mut machine = locked(&self.machine);
            if let Some(log_end) = turn.log_end {
                let node_id = self.setup.folder.node_id();
                machine.leader.handle_append(node_id, log_end);
                let high_watermark = machine.leader.high_watermark();
                self.high_watermark.store(high_watermark, Ordering::Release);
                machine.waiting.handle_high_watermark(high_watermark);
            }
            for (acks, parked) in turn.stored {
                let last = parked.results.iter().flatten().map(|one| one.last_offset).max();
                match (acks, last) {
                    (Acks::All, Some(last)) => machine.waiting.park_produce(last + 1, parked),
                    (Acks::All, None) | (Acks::Leader, _) => committed.push(parked),
                }
            }
            while let Some(parked) = machine.waiting.poll_produce() {
                committed.push(parked);
            }
            while let Some(fetch) = machine.waiting.poll_fetch() {
                fetches.push(fetch);
            }
        }
        for (error, done) in turn.failed {
            done(Err(error));
        }
        for Parked { results, done } in committed {
            done(Ok(results));
        }
        for fetch in fetches {
            fetch.notify_one();
        }
    }
}

/// What a turn takes out of the inbox.
struct Taken {
    work: Vec<Submission>,
    deleted: bool,
    flushed: Option<Result<Flushed, LogError>>,
}

/// What a submission becomes while its batches are with the log.
struct Plan {
    batches: usize,
    acks: Acks,
    done: Done,
}

/// What one turn of the writer did to a partition.
#[derive(Default)]
struct Turn {
    /// What a roll left to be flushed.
    flush: Option<FlushJob>,
    /// None if nothing was written.
    log_end: Option<i64>,
    stored: Vec<(Acks, Parked)>,
    failed: Vec<(AppendError, Done)>,
}
