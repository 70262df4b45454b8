//! One partition at work: its inbox, the append role, the high watermark and who waits for it.

mod chores;
mod submission;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use ottla_protocol::Uuid;
use ottla_storage::{Appended, Flushed, Log, LogError, LogReader, ReadError, Rejected, Wait};

use crate::config::TopicConfig;
use crate::driver::aside::serves_connections;
use crate::driver::folder::{DataFolder, Trust};
use crate::driver::writer::ReadyList;
use crate::state::leader::Leader;
use crate::state::waiting::{FetchToken, Waiting};

use self::turn::tell;
pub(crate) use chores::{Chore, StartAt, StartDone, StartError};
pub(crate) use submission::{Acks, AppendError, Done, Outcome, Refused, Submission};

/// Wakes a fetch that waits for a high watermark to rise.
pub(crate) type FetchWake = tokio::sync::Notify;

/// What a partition is made of; nothing of it touches the disk before the first use.
#[derive(Debug)]
pub(crate) struct PartitionSetup {
    /// The topic's name.
    pub(crate) topic: Arc<str>,
    /// The topic's id.
    pub(crate) topic_id: Uuid,
    /// The partition's index.
    pub(crate) index: i32,
    /// The epoch under which this broker leads it; the metadata log's comes with its election.
    pub(crate) leader_epoch: i32,
    /// The topic's options, until others come.
    pub(crate) config: Arc<TopicConfig>,
    /// Whether it is the metadata log: each write is synced before it is answered, but for those of
    /// the start, which [`Partition::settle`] syncs before anything else is appended anywhere.
    pub(crate) is_metadata: bool,
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
    config: ArcSwap<TopicConfig>,
    leader_epoch: AtomicI32,
    opened: OnceLock<Result<LogReader, Arc<str>>>,
    /// Why nobody may read it any more: its topic was deleted, or a reader came to damage.
    offline: OnceLock<AppendError>,
    /// It was told that records are of the future.
    future_told: AtomicBool,
    /// Held by the thread that opens the log.
    opening: Mutex<()>,
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
    chores: Vec<Chore>,
    /// On the writer's list, or in its hands.
    scheduled: bool,
    closed: bool,
    deleted: bool,
    /// What a flush in the background came to.
    flushed: Option<Result<Flushed, LogError>>,
}

impl Inbox {
    fn has_work(&self) -> bool {
        !self.work.is_empty() || !self.chores.is_empty() || self.deleted || self.flushed.is_some()
    }
}

struct Machine {
    leader: Leader,
    waiting: Waiting<Parked, Arc<FetchWake>>,
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
            leader_epoch: AtomicI32::new(setup.leader_epoch),
            config: ArcSwap::new(setup.config.clone()),
            setup,
            opened: OnceLock::new(),
            offline: OnceLock::new(),
            future_told: AtomicBool::new(false),
            opening: Mutex::new(()),
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
        self.leader_epoch.load(Ordering::Acquire)
    }

    /// Leads the partition in another epoch from the next append on.
    pub(crate) fn lead(&self, epoch: i32) {
        self.leader_epoch.store(epoch, Ordering::Release);
    }

    /// Does the writer's work at once, in a simulator, which has no thread for it.
    #[cfg(feature = "sim")]
    pub(crate) fn serve_here(&self, clock: crate::driver::clock::Clock) {
        while clock.is_simulated() && self.setup.ready.turn(clock) {}
    }

    /// What readers see of the log; opens it on first use, with file calls on this thread.
    ///
    /// An error that passes, such as no descriptor left, is tried again by the next who asks.
    pub(crate) fn log(&self) -> Result<&LogReader, AppendError> {
        self.setup.folder.usable()?;
        if let Some(why) = self.offline.get() {
            return Err(why.clone());
        }
        let opened = match self.opened.get() {
            Some(opened) => opened,
            None => self.open_once()?,
        };
        opened.as_ref().map_err(|why| AppendError::Storage(why.clone()))
    }

    /// As [`Self::log`]; `None` where the log is not open, and `wait` does not let it be opened.
    pub(crate) fn log_within(&self, wait: Wait) -> Option<Result<&LogReader, AppendError>> {
        if wait == Wait::No && !self.is_open() {
            return None;
        }
        Some(self.log())
    }

    fn open_once(&self) -> Result<&Result<LogReader, Arc<str>>, AppendError> {
        let _one = locked(&self.opening);
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.open();
        if let Err(error) = &opened
            && error.is_passing()
        {
            return Err(AppendError::Storage(error.to_string().into()));
        }
        let opened = opened.map_err(|error| {
            let why: Arc<str> = error.to_string().into();
            *locked(&self.role) = Role::Failed(why.clone());
            why
        });
        Ok(self.opened.get_or_init(|| opened))
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
                let error = if inbox.deleted { AppendError::Deleted } else { AppendError::Closed };
                return Err(Refused { error, done: submission.done });
            }
            inbox.work.push_back(submission);
            if mem::replace(&mut inbox.scheduled, true) {
                return Ok(());
            }
        }
        self.setup.ready.push(self.clone());
        Ok(())
    }

    /// Parks a fetch that saw the high watermark at `seen`; None if it has risen since, or the
    /// partition cannot be read any more.
    pub(crate) fn park_fetch(&self, seen: i64, wake: &Arc<FetchWake>) -> Option<FetchToken> {
        locked(&self.machine).waiting.park_fetch(seen, wake.clone())
    }

    /// A parked fetch no longer waits.
    pub(crate) fn forget_fetch(&self, token: FetchToken) {
        locked(&self.machine).waiting.forget_fetch(token);
    }

    /// Takes no more work, and who waits to read is told so; the folder goes as soon as the writer
    /// has the role.
    pub(crate) fn delete(self: &Arc<Self>) {
        self.take_offline(AppendError::Deleted);
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

    fn open(&self) -> Result<LogReader, LogError> {
        debug_assert!(!serves_connections(), "a log is opened where others wait for the disk");
        let setup = &self.setup;
        let config = self.config.load_full();
        let opened = setup.folder.open_log(
            &setup.topic,
            setup.index,
            setup.topic_id,
            config.log.clone(),
            // A power cut in the middle of a start can bring the marker of the clean stop back, and
            // of all logs only this one is written to before that is ruled out.
            if setup.is_metadata { Trust::Nothing } else { Trust::Marker },
        );
        let flushed = opened.and_then(|mut log| {
            // What a killed broker left may not be on the disk, and all can be read from here on.
            if setup.folder.flushes_group() && !setup.folder.is_clean() && !setup.is_metadata {
                log.flush()?;
            }
            Ok(log)
        });
        let log = flushed.inspect_err(|error| {
            tracing::error!(topic = %setup.topic, partition = setup.index, %error,
                "the partition's log cannot be opened");
        })?;
        let (reader, log_end) = (log.reader(), log.log_end());
        {
            let mut machine = locked(&self.machine);
            let node_id = setup.folder.node_id();
            machine.leader = Leader::alone(node_id, config.min_insync_replicas, log_end);
            machine.waiting = Waiting::new(log_end);
            if self.offline.get().is_some() {
                machine.waiting.close_to_fetches();
            }
        }
        self.high_watermark.store(log_end, Ordering::Release);
        let mut role = locked(&self.role);
        if matches!(*role, Role::Unopened) {
            *role = Role::Free(Box::new(log));
        }
        Ok(reader)
    }

    /// The log is lost to this partition until the broker starts again.
    pub(crate) fn fail(&self, why: Arc<str>) {
        tracing::error!(topic = %self.setup.topic, partition = self.setup.index, %why,
            "the partition's log failed; it takes no more writes");
        *locked(&self.role) = Role::Failed(why.clone());
        self.setup.folder.note_failure();
        self.release_waiting(&AppendError::Storage(why));
    }

    /// A read failed. Where the log is damaged the partition goes offline as a whole: whoever reads
    /// on would miss records and not be told.
    pub(crate) fn handle_read_error(&self, error: &ReadError) {
        let (topic, index) = (&self.setup.topic, self.setup.index);
        match error {
            ReadError::Corrupt(damage) => {
                let why: Arc<str> = damage.to_string().into();
                if self.take_offline(AppendError::Storage(why.clone())) {
                    tracing::error!(%topic, index, %damage, "the partition is offline");
                    self.fail(why);
                }
            }
            error => tracing::error!(%topic, index, %error, "the log cannot be read"),
        }
    }

    /// From now on nobody reads it, and fetches that wait end. False if it was offline before.
    fn take_offline(&self, why: AppendError) -> bool {
        if self.offline.set(why).is_err() {
            return false;
        }
        let fetches = {
            let mut machine = locked(&self.machine);
            machine.waiting.close_to_fetches();
            machine.waiting.take_fetches()
        };
        for fetch in fetches {
            fetch.notify_one();
        }
        true
    }

    /// Answers all who wait, since nothing more will come.
    fn release_waiting(&self, error: &AppendError) {
        let (produces, fetches) = locked(&self.machine).waiting.take_all();
        for parked in produces {
            tell(parked.done, Err(error.clone()));
        }
        for fetch in fetches {
            fetch.notify_one();
        }
    }

    fn remove_folder(&self, work: Vec<Submission>) {
        let _one = locked(&self.opening);
        let log = mem::replace(&mut *locked(&self.role), Role::Closed);
        // A partition that was never opened must not come into being now.
        let _present = self.opened.set(Err("the topic was deleted".into())).is_err();
        drop(log);
        self.setup.folder.remove_log(&self.setup.topic, self.setup.index);
        for submission in work {
            tell(submission.done, Err(AppendError::Deleted));
        }
        self.release_waiting(&AppendError::Deleted);
    }

    /// Takes no more work. What is in the inbox is still appended.
    pub(crate) fn refuse_work(&self) {
        locked(&self.inbox).closed = true;
    }

    /// Closes the log in good order; None if it was never opened or is gone. After the writer ended.
    pub(crate) fn close(&self) -> Result<Option<ClosedLog>, AppendError> {
        let role = mem::replace(&mut *locked(&self.role), Role::Closed);
        // In a folder that failed nothing more is synced.
        self.setup.folder.usable()?;
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
