//! One turn of the writer: the inbox to the log, and what waited for it to its answers.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_storage::{Appended, FlushJob, Flushed, Incoming, Log, LogError, Origin, Rejected};

use super::{Acks, AppendError, Chore, Done, Outcome, Parked, Partition, Role, Submission, locked};
use crate::driver::folder::Point;

/// The most batches that one write takes from an inbox.
const TURN_BATCHES: usize = 256;

/// The most bytes that one write takes from an inbox, unless its first submission alone is larger.
const TURN_BYTES: usize = 1024 * 1024;

impl Partition {
    /// Appends what waits in the inbox. For the writer alone.
    pub(crate) fn turn(self: &Arc<Self>, now_ms: i64) -> TurnEnd {
        let Taken { work, chores, deleted, flushed } = self.take_work();
        if deleted {
            self.remove_folder(work);
            chores.into_iter().for_each(Chore::refuse);
            return TurnEnd { again: false, unsynced: None };
        }
        if let Some(outcome) = flushed {
            self.take_flush(outcome);
        }
        // What was answered as set holds for all that was sent after the answer.
        let (options, chores): (Vec<_>, Vec<_>) =
            chores.into_iter().partition(|chore| matches!(chore, Chore::Configure));
        self.do_chores(options, now_ms);
        let mut unsynced = None;
        if !work.is_empty() {
            let mut turn = self.append(work, now_ms);
            match turn.flush.take() {
                Some(job) if self.syncs_first() => unsynced = Some(Unsynced { turn, job }),
                Some(job) => {
                    self.setup.folder.flush_behind(self, job);
                    self.complete(turn);
                }
                None => self.complete(turn),
            }
        }
        self.do_chores(chores, now_ms);
        TurnEnd { again: self.look_again(), unsynced }
    }

    /// Whether what is appended must be on the disk before anybody hears of it.
    fn syncs_first(&self) -> bool {
        if self.setup.is_metadata {
            self.setup.ready.is_settled()
        } else {
            self.setup.folder.flushes_group()
        }
    }

    /// Syncs what a turn has appended, and tells everybody who waited for it. For the writer alone,
    /// before the next turn.
    pub(crate) fn sync(&self, unsynced: Unsynced) {
        let Unsynced { mut turn, job } = unsynced;
        // After the first that failed none is tried.
        let outcome = self.setup.folder.usable().map(|()| job.run());
        let noted = match outcome {
            Ok(outcome) => self.note_flush(outcome),
            Err(failed) => Err(failed),
        };
        if let Err(error) = noted {
            turn.log_end = None;
            let stored = mem::take(&mut turn.stored);
            turn.failed.extend(stored.into_iter().map(|(_, parked)| (error.clone(), parked.done)));
        }
        self.complete(turn);
    }

    /// A turn panicked, which left nobody knows what: the log is failed, and who waits is told.
    /// True if more work waits to be refused.
    pub(crate) fn handle_panic(&self) -> bool {
        self.fail("the writer panicked in this partition".into());
        self.look_again()
    }

    /// Whether the partition stays on the writer's list.
    fn look_again(&self) -> bool {
        let mut inbox = locked(&self.inbox);
        inbox.scheduled = inbox.has_work() && !inbox.deleted;
        inbox.scheduled
    }

    fn take_work(&self) -> Taken {
        let mut inbox = locked(&self.inbox);
        let (deleted, flushed) = (inbox.deleted, inbox.flushed.take());
        let chores = mem::take(&mut inbox.chores);
        if deleted {
            return Taken { work: inbox.work.drain(..).collect(), chores, deleted, flushed };
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
        Taken { work: inbox.work.drain(..taken).collect(), chores, deleted, flushed }
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

    /// A flush beside the appends has ended. What it came to is told in the log of the broker.
    fn take_flush(&self, outcome: Result<Flushed, LogError>) {
        if let Err(error) = self.note_flush(outcome) {
            let (topic, partition) = (&self.setup.topic, self.setup.index);
            tracing::warn!(%topic, partition, %error, "a sealed segment is not flushed");
        }
    }

    /// Notes in the log what a flush came to; one that failed fails the whole folder.
    fn note_flush(&self, outcome: Result<Flushed, LogError>) -> Result<(), AppendError> {
        // A log that failed meanwhile has nothing to note it in.
        let mut log = self.take_role()?;
        match log.finish_flush(outcome) {
            Ok(reached) => {
                self.give_role(log);
                let (topic, index) = (&self.setup.topic, self.setup.index);
                self.setup.folder.note_point(Point::Recovery, topic, index, reached);
                Ok(())
            }
            Err(error) if log.failure().is_none() => {
                self.give_role(log);
                Err(AppendError::Storage(error.to_string().into()))
            }
            Err(error) => {
                let why = self.fail_with(error.to_string());
                self.setup.folder.fail(why.clone());
                Err(AppendError::Storage(why))
            }
        }
    }

    /// Makes durable what was appended so far, with the names in the log's folder and beside it.
    /// For the writer alone.
    pub(crate) fn settle(&self) -> Result<(), AppendError> {
        let mut log = self.take_role()?;
        log.note_names();
        match log.flush() {
            Ok(_recovery_point) => {
                self.give_role(log);
                Ok(())
            }
            Err(error) => Err(AppendError::Storage(self.fail_with(error.to_string()))),
        }
    }

    /// Appends with the role held, and gives it back.
    fn append(&self, work: Vec<Submission>, now_ms: i64) -> Turn {
        let mut turn = Turn::default();
        let opened = self.setup.folder.usable().and_then(|()| self.log().map(|_log| ()));
        if let Err(error) = opened {
            turn.failed.extend(work.into_iter().map(|submission| (error.clone(), submission.done)));
            return turn;
        }
        let work = self.spare_the_disk(work, &mut turn.failed);
        let (batches, plans) = self.admit(work, &mut turn.failed);
        let mut log = match self.take_role() {
            Ok(log) => log,
            Err(error) => {
                turn.failed.extend(plans.into_iter().map(|plan| (error.clone(), plan.done)));
                return turn;
            }
        };
        // A panic in the log is a failure like others: those who wait must be told.
        let written = catch_unwind(AssertUnwindSafe(|| self.write(&mut log, batches, now_ms)));
        let why: Arc<str> = match written {
            Ok(Ok(Written { results, flush })) => {
                turn.log_end = Some(log.log_end());
                turn.flush = flush;
                self.give_role(log);
                let mut results = results.into_iter();
                for Plan { batches, acks, done } in plans {
                    let results = results.by_ref().take(batches).collect();
                    turn.stored.push((acks, Parked { results, done }));
                }
                return turn;
            }
            Ok(Err(error)) if log.failure().is_none() => {
                // A full disk: the log is whole, and goes on once there is room. Some of the
                // batches may be stored.
                tracing::error!(%error, "a write was refused");
                // What is not synced stays unseen until the next write is.
                turn.log_end = (!self.syncs_first()).then(|| log.log_end());
                self.give_role(log);
                error.to_string().into()
            }
            Ok(Err(error)) => self.fail_with(error.to_string()),
            Err(_panic) => self.fail_with("the log panicked in an append".to_owned()),
        };
        let error = AppendError::Storage(why);
        turn.failed.extend(plans.into_iter().map(|plan| (error.clone(), plan.done)));
        turn
    }

    pub(super) fn fail_with(&self, why: String) -> Arc<str> {
        let why: Arc<str> = why.into();
        self.fail(why.clone());
        why
    }

    /// Appends to the log, and flushes what must be flushed; what was sealed, later.
    fn write(
        &self,
        log: &mut Log,
        batches: Vec<Incoming>,
        now_ms: i64,
    ) -> Result<Written, LogError> {
        let segments = log.segment_count();
        let results = log.append(batches, self.leader_epoch(), now_ms)?;
        // What was sealed is flushed beside the next appends, as Kafka does after a roll.
        let rolled = log.segment_count() > segments;
        let flush = if rolled || self.syncs_first() { Some(log.flush_job()?) } else { None };
        Ok(Written { results, flush })
    }

    /// Refuses what clients sent if the disk is almost full.
    fn spare_the_disk(
        &self,
        work: Vec<Submission>,
        failed: &mut Vec<(AppendError, Done)>,
    ) -> Vec<Submission> {
        let mut spared = Vec::with_capacity(work.len());
        for submission in work {
            let of_clients =
                submission.batches.iter().filter(|batch| batch.origin == Origin::Client);
            let bytes: usize = of_clients.map(|batch| batch.bytes.len()).sum();
            let room = match u64::try_from(bytes) {
                Ok(bytes) if bytes > 0 => self.setup.folder.take_room(bytes),
                _ => Ok(()),
            };
            match room {
                Ok(()) => spared.push(submission),
                Err(error) => failed.push((error, submission.done)),
            }
        }
        spared
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

    pub(super) fn take_role(&self) -> Result<Box<Log>, AppendError> {
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

    /// Gives the role back, unless the log was failed meanwhile.
    pub(super) fn give_role(&self, log: Box<Log>) {
        let mut role = locked(&self.role);
        if matches!(*role, Role::Taken) {
            *role = Role::Free(log);
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
            tell(done, Err(error));
        }
        for Parked { results, done } in committed {
            tell(done, Ok(results));
        }
        for fetch in fetches {
            fetch.notify_one();
        }
    }
}

/// Tells one submission what came of it. If that panics, the others are told all the same.
pub(super) fn tell(done: Done, outcome: Outcome) {
    if catch_unwind(AssertUnwindSafe(|| done(outcome))).is_err() {
        tracing::error!("whoever waited for an append panicked when told of it");
    }
}

/// What came of a turn.
pub(crate) struct TurnEnd {
    /// More came meanwhile.
    pub(crate) again: bool,
    /// What [`Partition::sync`] is still to do.
    pub(crate) unsynced: Option<Unsynced>,
}

/// What was appended and is not on the disk, with those who wait for it.
pub(crate) struct Unsynced {
    turn: Turn,
    job: FlushJob,
}

/// What became of each batch, and what is to be flushed.
struct Written {
    results: Vec<Result<Appended, Rejected>>,
    flush: Option<FlushJob>,
}

/// What a turn takes out of the inbox.
struct Taken {
    work: Vec<Submission>,
    chores: Vec<Chore>,
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
    /// What is to be flushed: before anybody is told, or, after a roll, beside the next appends.
    flush: Option<FlushJob>,
    /// None if nothing was written.
    log_end: Option<i64>,
    stored: Vec<(Acks, Parked)>,
    failed: Vec<(AppendError, Done)>,
}
