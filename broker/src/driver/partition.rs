//! One partition at work: its inbox, the append role, the high watermark and who waits for it.

mod submission;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ottla_protocol::Uuid;
use ottla_storage::{Appended, FlushJob, Flushed, Incoming, Log, LogError, LogReader, Rejected};

use crate::config::TopicConfig;
use crate::driver::folder::DataFolder;
use crate::driver::writer::ReadyList;
use crate::state::leader::Leader;
use crate::state::waiting::{FetchToken, Waiting};

pub(crate) use submission::{Acks, AppendError, Done, Outcome, Refused, Submission};

/// The most batches that one write takes from an inbox.
const TURN_BATCHES: usize = 256;

/// The most bytes that one write takes from an inbox, unless its first submission alone is larger.
const TURN_BYTES: usize = 1024 * 1024;

/// What a partition is made of; nothing of it touches the disk before the first use.
#[derive(Debug)]
pub(crate) struct PartitionSetup {
    /// The topic's name.
    pub(crate) topic: Arc<str>,
    /// The topic's id.
    pub(crate) topic_id: Uuid,
    /// The partition's index.
    pub(crate) index: i32,
    /// The epoch under which this broker leads it.
    pub(crate) leader_epoch: i32,
    /// The topic's options.
    pub(crate) config: Arc<TopicConfig>,
    /// Whether each write is synced before it is answered: the metadata log.
    pub(crate) sync_each_turn: bool,
    /// Where its folder is.
    pub(crate) folder: Arc<DataFolder>,
    /// The writer's list.
    pub(crate) ready: Arc<ReadyList>,
}

/// What a partition's log was at its end, for the checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClosedLog {
    /// All below is synced to disk.
    pub(crate) recovery_point: i64,
    /// The first offset.
    pub(crate) log_start: i64,
    /// All below is committed.
    pub(crate) high_watermark: i64,
}

/// One partition that this broker leads.
///
/// Its log has one owner at a time, by value: whoever holds the append role. Readers use what the
/// log publishes and never wait for that role.
pub(crate) struct Partition {
    setup: PartitionSetup,
    opened: OnceLock<Result<LogReader, Arc<str>>>,
    role: Mutex<Role>,
    inbox: Mutex<Inbox>,
    machine: Mutex<Machine>,
    high_watermark: AtomicI64,
}

impl fmt::Debug for Partition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Partition")
            .field("topic", &self.setup.topic)
            .field("index", &self.setup.index)
            .finish_non_exhaustive()
    }
}

/// Where the log is.
enum Role {
    /// Not opened yet.
    Unopened,
    /// Nobody appends.
    Free(Box<Log>),
    /// Somebody appends.
    Taken,
    /// It cannot be used any more.
    Failed(Arc<str>),
    /// Given up in good order.
    Closed,
}

#[derive(Default)]
struct Inbox {
    work: VecDeque<Submission>,
    /// On the writer's list, or in its hands.
    scheduled: bool,
    closed: bool,
    deleted: bool,
    /// What a flush in the background came to.
    flushed: Option<Result<Flushed, LogError>>,
}

impl Inbox {
    fn has_work(&self) -> bool {
        !self.work.is_empty() || self.deleted || self.flushed.is_some()
    }
}

/// What a turn takes out of the inbox.
struct Taken {
    work: Vec<Submission>,
    deleted: bool,
    flushed: Option<Result<Flushed, LogError>>,
}

struct Machine {
    leader: Leader,
    waiting: Waiting<Parked, Arc<tokio::sync::Notify>>,
}

/// A submission that is appended and waits for the high watermark.
struct Parked {
    results: Vec<Result<Appended, Rejected>>,
    done: Done,
}

/// No invariant of these locks' contents spans a panic: each holder leaves them whole or marks the
/// partition as failed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Partition {
    /// A partition whose log is opened on first use.
    pub(crate) fn new(setup: PartitionSetup) -> Arc<Self> {
        let machine = Machine { leader: Leader::alone(0, 1, 0), waiting: Waiting::new(0) };
        Arc::new(Self {
            setup,
            opened: OnceLock::new(),
            role: Mutex::new(Role::Unopened),
            inbox: Mutex::default(),
            machine: Mutex::new(machine),
            high_watermark: AtomicI64::new(0),
        })
    }

    /// The topic's name.
    pub(crate) fn topic(&self) -> &Arc<str> {
        &self.setup.topic
    }

    /// The index within the topic.
    pub(crate) fn index(&self) -> i32 {
        self.setup.index
    }

    /// The epoch under which this broker leads the partition.
    pub(crate) fn leader_epoch(&self) -> i32 {
        self.setup.leader_epoch
    }

    /// The topic's options.
    pub(crate) fn config(&self) -> &Arc<TopicConfig> {
        &self.setup.config
    }

    /// What readers see of the log; opens it on first use, with file calls on this thread.
    pub(crate) fn log(&self) -> Result<&LogReader, AppendError> {
        let opened = self.opened.get_or_init(|| self.open());
        opened.as_ref().map_err(|why| AppendError::Storage(why.clone()))
    }

    /// The offset below which records are committed and may be read.
    pub(crate) fn high_watermark(&self) -> i64 {
        self.high_watermark.load(Ordering::Acquire)
    }

    /// Hands batches to the writer; `done` is never called from here.
    pub(crate) fn push(self: &Arc<Self>, submission: Submission) -> Result<(), Refused> {
        {
            let mut inbox = locked(&self.inbox);
            if inbox.closed {
                return Err(Refused { error: AppendError::Closed, done: submission.done });
            }
            inbox.work.push_back(submission);
            if mem::replace(&mut inbox.scheduled, true) {
                return Ok(());
            }
        }
        self.setup.ready.push(self.clone());
        Ok(())
    }

    /// Parks a fetch that saw the high watermark at `seen`; None if it has risen since.
    pub(crate) fn park_fetch(
        &self,
        seen: i64,
        wake: &Arc<tokio::sync::Notify>,
    ) -> Option<FetchToken> {
        locked(&self.machine).waiting.park_fetch(seen, wake.clone())
    }

    /// A parked fetch no longer waits.
    pub(crate) fn forget_fetch(&self, token: FetchToken) {
        locked(&self.machine).waiting.forget_fetch(token);
    }

    /// Takes no more work; the folder goes as soon as the writer has the role.
    pub(crate) fn delete(self: &Arc<Self>) {
        {
            let mut inbox = locked(&self.inbox);
            inbox.closed = true;
            inbox.deleted = true;
            if mem::replace(&mut inbox.scheduled, true) {
                return;
            }
        }
        self.setup.ready.push(self.clone());
    }

    fn open(&self) -> Result<LogReader, Arc<str>> {
        let setup = &self.setup;
        let opened = setup.folder.open_log(
            &setup.topic,
            setup.index,
            setup.topic_id,
            setup.config.log.clone(),
        );
        match opened {
            Ok(log) => {
                let (reader, log_end) = (log.reader(), log.log_end());
                {
                    let mut machine = locked(&self.machine);
                    let node_id = setup.folder.node_id();
                    let min_in_sync = setup.config.min_insync_replicas;
                    machine.leader = Leader::alone(node_id, min_in_sync, log_end);
                    machine.waiting = Waiting::new(log_end);
                }
                self.high_watermark.store(log_end, Ordering::Release);
                *locked(&self.role) = Role::Free(Box::new(log));
                Ok(reader)
            }
            Err(error) => {
                let why: Arc<str> = error.to_string().into();
                tracing::error!(topic = %setup.topic, partition = setup.index, %why,
                    "the partition's log cannot be opened");
                *locked(&self.role) = Role::Failed(why.clone());
                Err(why)
            }
        }
    }

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

    /// The log is lost to this partition until the broker starts again.
    pub(crate) fn fail(&self, why: Arc<str>) {
        tracing::error!(topic = %self.setup.topic, partition = self.setup.index, %why,
            "the partition's log failed; it takes no more writes");
        *locked(&self.role) = Role::Failed(why.clone());
        self.setup.folder.note_failure();
        self.release_waiting(&AppendError::Storage(why));
    }

    /// Answers all who wait, since nothing more will come.
    fn release_waiting(&self, error: &AppendError) {
        let (produces, fetches) = locked(&self.machine).waiting.take_all();
        for parked in produces {
            (parked.done)(Err(error.clone()));
        }
        for fetch in fetches {
            fetch.notify_one();
        }
    }

    fn remove_folder(&self, work: Vec<Submission>) {
        let log = mem::replace(&mut *locked(&self.role), Role::Closed);
        // A partition that was never opened must not come into being now.
        let _present = self.opened.set(Err("the topic was deleted".into())).is_err();
        drop(log);
        self.setup.folder.remove_log(&self.setup.topic, self.setup.index);
        for submission in work {
            (submission.done)(Err(AppendError::Closed));
        }
        self.release_waiting(&AppendError::Closed);
    }

    /// Takes no more work. What is in the inbox is still appended.
    pub(crate) fn refuse_work(&self) {
        locked(&self.inbox).closed = true;
    }

    /// Closes the log in good order; None if it was never opened or is gone. After the writer ended.
    pub(crate) fn close(&self) -> Result<Option<ClosedLog>, AppendError> {
        let role = mem::replace(&mut *locked(&self.role), Role::Closed);
        match role {
            Role::Free(log) => {
                let log_start = log.log_start();
                let high_watermark = self.high_watermark();
                let closed = log.close().map_err(|error| error.to_string());
                let recovery_point =
                    closed.map_err(|why| AppendError::Storage(why.as_str().into()))?;
                Ok(Some(ClosedLog { recovery_point, log_start, high_watermark }))
            }
            Role::Failed(why) => Err(AppendError::Storage(why)),
            Role::Taken => Err(AppendError::Storage("an append broke off".into())),
            Role::Unopened | Role::Closed => Ok(None),
        }
    }
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
