//! The group coordinator: one lock for the groups of each offsets partition.
//!
//! Under it a request is decided, its records are replayed at once and pushed to the partition, so
//! that the log has the order of the decisions. Its answer is held until they are committed. If an
//! append fails the groups of that partition are dropped and read from the log again.

mod admin;
mod load;
mod shard;
#[cfg(test)]
mod tests;
mod timers;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use ottla_protocol::ErrorCode;
use tokio::sync::Notify;

use self::shard::{Job, Running, run_all};
pub(crate) use self::timers::run;
use crate::driver::partition::Partition;
use crate::node::{Node, OFFSETS_TOPIC};
use crate::state::group::{
    Answer, GroupLimits, JoinRequest, LeaveRequest, Now, SyncRequest, Token,
};
use crate::state::groups::{CommitRequest, GroupCount, Turn, partition_of};
use crate::state::offsets::Offsets;

/// Called with the answer to a request about a group, or with why there is none.
pub(crate) type GroupDone = Box<dyn FnOnce(Result<Answer, ErrorCode>) + Send>;

/// Called with a code for each offset that was to be committed, or one for all.
pub(crate) type CommitDone = Box<dyn FnOnce(Result<Vec<ErrorCode>, ErrorCode>) + Send>;

/// The group coordinator of this broker.
#[derive(Default)]
pub(crate) struct Coordinator {
    /// By offsets partition; made when the offsets topic is first seen.
    shards: OnceLock<Vec<Mutex<Shard>>>,
    tokens: AtomicU64,
    /// Of all shards together.
    count: GroupCount,
    timers: Timers,
}

/// A shard at work: its partition's index and log.
type InShard<'a> = (usize, &'a Arc<Partition>, &'a mut Running);

/// When the timers run next, and how they are told of an earlier moment.
#[derive(Default)]
struct Timers {
    next: Mutex<Option<Instant>>,
    earlier: Notify,
}

/// The groups of one offsets partition.
enum Shard {
    /// Not read from the log.
    Unloaded,
    /// Being read.
    Loading,
    /// At work.
    Running(Box<Running>),
    /// The broker stops.
    Stopped,
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Coordinator").finish_non_exhaustive()
    }
}

/// Locks a shard. After a panic under the lock nobody can vouch for its groups: those who wait are
/// sent away, and the groups are read from their log again.
fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    loop {
        let mut guard = match shard.lock() {
            Ok(guard) => return guard,
            Err(poisoned) => poisoned.into_inner(),
        };
        shard.clear_poison();
        if !matches!(*guard, Shard::Running(_)) {
            // The others hold nothing that could be half done.
            return guard;
        }
        tracing::error!("groups are read from their log again, after a panic over them");
        let lost = Coordinator::drop_shard(&mut guard);
        drop(guard);
        run_all(lost);
    }
}

impl Coordinator {
    /// A coordinator without groups.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Decides a JoinGroup.
    pub(crate) fn join(
        &self,
        node: &Arc<Node>,
        group: &str,
        request: &JoinRequest<'_>,
        done: GroupDone,
    ) {
        self.ask(node, group, done, |running, token, now| {
            running.groups.join(token, group, request, now)
        });
    }

    /// Decides a SyncGroup.
    pub(crate) fn sync(
        &self,
        node: &Arc<Node>,
        group: &str,
        request: &SyncRequest<'_>,
        done: GroupDone,
    ) {
        self.ask(node, group, done, |running, token, now| {
            running.groups.sync(token, group, request, now)
        });
    }

    /// Decides a Heartbeat of a member: its id and its instance id.
    pub(crate) fn heartbeat(
        &self,
        node: &Arc<Node>,
        group: &str,
        member: (&str, Option<&str>),
        generation: i32,
        done: GroupDone,
    ) {
        self.ask(node, group, done, |running, token, now| {
            running.groups.heartbeat(token, group, member, generation, now)
        });
    }

    /// Decides a LeaveGroup.
    pub(crate) fn leave(
        &self,
        node: &Arc<Node>,
        group: &str,
        request: &LeaveRequest<'_>,
        done: GroupDone,
    ) {
        self.ask(node, group, done, |running, token, now| {
            running.groups.leave(token, group, request, now)
        });
    }

    /// Decides an OffsetCommit.
    pub(crate) fn commit(
        &self,
        node: &Arc<Node>,
        group: &str,
        request: &CommitRequest<'_>,
        done: CommitDone,
    ) {
        let now = now(node);
        self.in_shard(node, group, |shard| match shard {
            Err(error) => vec![Box::new(move |_committed| done(Err(error)))],
            Ok((index, partition, running)) => {
                let (turn, codes) = running.groups.commit(group, request, now);
                let answer: Job = Box::new(move |committed| {
                    done(committed.and(codes));
                });
                running.submit(node, index, partition, turn, vec![answer])
            }
        });
    }

    /// Shows a group's committed offsets, as `read` wants to see them; `done` gets what it made of
    /// them once all that it saw is committed.
    pub(crate) fn offsets<T: Send + 'static>(
        &self,
        node: &Arc<Node>,
        group: &str,
        read: impl FnOnce(&Offsets) -> T,
        done: Box<dyn FnOnce(Result<T, ErrorCode>) + Send>,
    ) {
        self.look(node, group, |groups| read(groups.offsets()), done);
    }

    /// Removes the offsets of a topic that was deleted, from all groups.
    pub(crate) fn forget_topic(&self, node: &Arc<Node>, topic: &str) {
        for index in 0..self.shards.get().map_or(0, Vec::len) {
            self.in_running(node, index, |running| running.groups.forget_topic(topic));
        }
    }

    /// Answers all that waits, and takes nothing more.
    pub(crate) fn stop(&self, _node: &Arc<Node>) {
        for shard in self.shards.get().into_iter().flatten() {
            let before = std::mem::replace(&mut *locked(shard), Shard::Stopped);
            if let Shard::Running(running) = before {
                run_all(running.give_up(ErrorCode::COORDINATOR_NOT_AVAILABLE));
            }
        }
    }

    /// One request that a group answers, now or later.
    fn ask(
        &self,
        node: &Arc<Node>,
        group: &str,
        done: GroupDone,
        decide: impl FnOnce(&mut Running, Token, Now) -> Turn,
    ) {
        let token = Token(self.tokens.fetch_add(1, Ordering::Relaxed));
        let now = now(node);
        self.in_shard(node, group, |shard| match shard {
            Err(error) => vec![Box::new(move |_committed| done(Err(error)))],
            Ok((index, partition, running)) => {
                running.waiting.insert(token, done);
                let turn = decide(running, token, now);
                running.submit(node, index, partition, turn, Vec::new())
            }
        });
    }

    /// Runs `with` on the shard of a group, under its lock, and what it returns without.
    fn in_shard(
        &self,
        node: &Arc<Node>,
        group: &str,
        with: impl FnOnce(Result<InShard<'_>, ErrorCode>) -> Vec<Job>,
    ) {
        match self.shard_of(node, group) {
            Ok(found) => self.in_this_shard(node, found, with),
            Err(error) => run_all((with(Err(error)), Ok(()))),
        }
    }

    fn in_this_shard(
        &self,
        node: &Arc<Node>,
        (index, partition, shard): (usize, Arc<Partition>, &Mutex<Shard>),
        with: impl FnOnce(Result<InShard<'_>, ErrorCode>) -> Vec<Job>,
    ) {
        let mut guard = locked(shard);
        if matches!(*guard, Shard::Unloaded) {
            self.load_here_or_aside(node, index, &partition, &mut guard);
        }
        let (jobs, deadline) = match &mut *guard {
            Shard::Running(running) => {
                let jobs = with(Ok((index, &partition, running)));
                if running.failed {
                    let failed = Self::drop_shard(&mut guard);
                    drop(guard);
                    run_all((jobs, Err(ErrorCode::NOT_COORDINATOR)));
                    run_all(failed);
                    return;
                }
                (jobs, running.groups.poll_timeout())
            }
            Shard::Loading => (with(Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)), None),
            Shard::Stopped => (with(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)), None),
            Shard::Unloaded => (with(Err(ErrorCode::NOT_COORDINATOR)), None),
        };
        drop(guard);
        self.timers.note(deadline);
        run_all((jobs, Ok(())));
    }

    /// Runs a decision that nobody asked for, if the shard is at work.
    fn in_running(
        &self,
        node: &Arc<Node>,
        index: usize,
        decide: impl FnOnce(&mut Running) -> Turn,
    ) {
        let Some(shard) = self.shards.get().and_then(|shards| shards.get(index)) else { return };
        let Some(partition) = offsets_partition(node, index) else { return };
        let mut guard = locked(shard);
        let Shard::Running(running) = &mut *guard else { return };
        let turn = decide(running);
        let jobs = running.submit(node, index, &partition, turn, Vec::new());
        if running.failed {
            let failed = Self::drop_shard(&mut guard);
            drop(guard);
            run_all(failed);
            return;
        }
        drop(guard);
        run_all((jobs, Ok(())));
    }

    /// An append ended: answers what waited for it, or gives the shard up.
    fn settle(&self, index: usize, life: u64, ticket: u64, stored: Result<(), String>) {
        let Some(shard) = self.shards.get().and_then(|shards| shards.get(index)) else { return };
        let mut guard = locked(shard);
        let Shard::Running(running) = &mut *guard else { return };
        if running.life != life {
            return;
        }
        let jobs = match stored {
            Ok(()) => (running.commit(ticket), Ok(())),
            Err(why) => {
                tracing::error!(partition = index, %why, "groups are read from their log again");
                Self::drop_shard(&mut guard)
            }
        };
        drop(guard);
        run_all(jobs);
    }

    fn drop_shard(shard: &mut Shard) -> (Vec<Job>, Result<(), ErrorCode>) {
        match std::mem::replace(shard, Shard::Unloaded) {
            Shard::Running(running) => running.give_up(ErrorCode::NOT_COORDINATOR),
            _ => (Vec::new(), Ok(())),
        }
    }

    fn shard_of(
        &self,
        node: &Arc<Node>,
        group: &str,
    ) -> Result<(usize, Arc<Partition>, &Mutex<Shard>), ErrorCode> {
        // Clients ask for the coordinator first, which creates the topic.
        let topic = node.topics.named(OFFSETS_TOPIC).ok_or(ErrorCode::NOT_COORDINATOR)?;
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let index = partition_of(group, count);
        let partition = topic.partition(index).ok_or(ErrorCode::NOT_COORDINATOR)?.clone();
        let shards = self.shards_for(topic.partitions.len());
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let shard = shards.get(index).ok_or(ErrorCode::NOT_COORDINATOR)?;
        Ok((index, partition, shard))
    }

    fn shards_for(&self, count: usize) -> &Vec<Mutex<Shard>> {
        self.shards.get_or_init(|| (0..count).map(|_| Mutex::new(Shard::Unloaded)).collect())
    }
}

fn offsets_partition(node: &Node, index: usize) -> Option<Arc<Partition>> {
    node.topics.named(OFFSETS_TOPIC)?.partitions.get(index).cloned()
}

fn now(node: &Node) -> Now {
    Now { at: node.clock.now(), ms: node.clock.now_ms() }
}

fn limits(node: &Node) -> GroupLimits {
    let settings = &node.settings;
    let delay = u64::try_from(settings.group_initial_delay_ms).unwrap_or(0);
    GroupLimits {
        session_timeout_min_ms: settings.group_min_session_ms,
        session_timeout_max_ms: settings.group_max_session_ms,
        members_max: settings.group_max_size,
        bytes_max: settings.group_max_bytes,
        initial_delay: std::time::Duration::from_millis(delay),
        offset_metadata_max: settings.offset_metadata_max_bytes,
        offsets_retention_ms: settings.offsets_retention_ms,
        groups_max: settings.max_groups,
    }
}
