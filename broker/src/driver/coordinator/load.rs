//! Reading groups back from their offsets partition: at the start, and after a failed append.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_storage::{LogReader, Wait};

use super::shard::Running;
use super::{Coordinator, Shard, limits, locked, now, offsets_partition};
use crate::driver::aside::{aside, hand_aside, serves_connections};
use crate::driver::partition::{AppendError, Partition};
use crate::driver::replay::read_records;
use crate::node::{Node, OFFSETS_TOPIC};
use crate::state::group_records::decode;
use crate::state::groups::Groups;

/// A log of at most so many bytes is read on the spot; a larger one beside everything else, while
/// clients are told COORDINATOR_LOAD_IN_PROGRESS.
const READ_AT_ONCE: u64 = 1024 * 1024;

impl Coordinator {
    /// Reads the groups that the data folder holds, so that their members' sessions run; what takes
    /// longer is left to [`super::run`].
    pub(crate) fn load(&self, node: &Arc<Node>) {
        let Some(topic) = node.topics.named(OFFSETS_TOPIC) else { return };
        let shards = self.shards_for(topic.partitions.len());
        for (name, index) in node.folder.partitions() {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            let Some(shard) = shards.get(index).filter(|_| name == OFFSETS_TOPIC) else { continue };
            if let Some(partition) = topic.partitions.get(index) {
                // A large one is read once there is a runtime to do it.
                self.begin_load(node, index, partition, &mut locked(shard));
            }
        }
    }

    /// Makes an unloaded shard work, or marks it as loading if its log is large.
    fn begin_load(&self, node: &Arc<Node>, index: usize, partition: &Partition, shard: &mut Shard) {
        match partition.log().map(LogReader::size_bytes) {
            Ok(bytes) if bytes > READ_AT_ONCE => *shard = Shard::Loading,
            Ok(_) => self.read_here(node, index, partition, shard),
            Err(error) => told_unserved(index, &error),
        }
    }

    /// Makes an unloaded shard work. On a thread that serves connections its log is neither opened
    /// nor read: clients are told COORDINATOR_LOAD_IN_PROGRESS until another thread has.
    pub(super) fn load_here_or_aside(
        &self,
        node: &Arc<Node>,
        index: usize,
        partition: &Arc<Partition>,
        shard: &mut Shard,
    ) {
        let wait = if serves_connections() { Wait::No } else { Wait::Disk };
        match (partition.log_within(wait), wait) {
            (Some(Err(error)), _) => told_unserved(index, &error),
            (_, Wait::Disk) => self.read_here(node, index, partition, shard),
            (_, Wait::No) => {
                *shard = Shard::Loading;
                Self::read_aside(node, index, partition);
            }
        }
    }

    fn read_here(&self, node: &Arc<Node>, index: usize, partition: &Partition, shard: &mut Shard) {
        *shard = self.read(node, index, partition);
        if let Shard::Running(running) = shard {
            self.timers.note(running.groups.poll_timeout());
            self.timers.wake();
        }
    }

    /// The shards of these groups that nobody has begun to read.
    pub(crate) fn unloaded<'a>(
        &self,
        node: &Arc<Node>,
        groups: impl IntoIterator<Item = &'a str>,
    ) -> BTreeSet<usize> {
        let shards = groups.into_iter().filter_map(|group| self.shard_of(node, group).ok());
        let unloaded = shards.filter(|(_, _, shard)| matches!(*locked(shard), Shard::Unloaded));
        unloaded.map(|(index, _, _)| index).collect()
    }

    /// Opens these shards' logs and reads what is small of them, on a thread that may wait; a large
    /// one is begun with.
    pub(crate) async fn load_aside(&self, node: &Arc<Node>, unloaded: BTreeSet<usize>) {
        let loading = node.clone();
        let small = move || {
            let coordinator = &loading.coordinator;
            let large = unloaded.into_iter().filter_map(|index| {
                let partition = offsets_partition(&loading, index)?;
                // Opened before the lock is taken; where it cannot be, that is told there.
                let _opened = partition.log().is_ok();
                let mut shard = locked(coordinator.shards.get()?.get(index)?);
                if !matches!(*shard, Shard::Unloaded) {
                    return None;
                }
                coordinator.begin_load(&loading, index, &partition, &mut shard);
                matches!(*shard, Shard::Loading).then_some((index, partition))
            });
            large.collect::<Vec<_>>()
        };
        match aside(small).await {
            Ok(large) => {
                for (index, partition) in large {
                    Self::read_aside(node, index, &partition);
                }
            }
            Err(error) => tracing::error!(%error, "the reading of groups broke off"),
        }
    }

    /// Reads a log beside everything else.
    fn read_aside(node: &Arc<Node>, index: usize, partition: &Arc<Partition>) {
        let (reading, partition) = (node.clone(), partition.clone());
        hand_aside(move || finish_load(&reading, index, &partition));
    }

    /// Reads the large logs that [`Self::load`] has left.
    pub(super) fn load_rest(&self, node: &Arc<Node>) {
        for (index, shard) in self.shards.get().into_iter().flatten().enumerate() {
            let loading = matches!(*locked(shard), Shard::Loading);
            if let Some(partition) = offsets_partition(node, index).filter(|_| loading) {
                Self::read_aside(node, index, &partition);
            }
        }
    }

    fn read(&self, node: &Arc<Node>, index: usize, partition: &Partition) -> Shard {
        match read_groups(node, partition) {
            Ok(mut groups) => {
                groups.handle_loaded(now(node));
                let life = self.tokens.fetch_add(1, Ordering::Relaxed);
                Shard::Running(Box::new(Running::new(groups, life)))
            }
            Err(why) => {
                tracing::error!(partition = index, %why, "groups cannot be read from their log");
                Shard::Unloaded
            }
        }
    }
}

fn told_unserved(index: usize, error: &AppendError) {
    tracing::error!(partition = index, %error, "groups are not served");
}

/// Reads a log without the shard's lock.
fn finish_load(node: &Arc<Node>, index: usize, partition: &Partition) {
    let coordinator = &node.coordinator;
    let read = coordinator.read(node, index, partition);
    let deadline = match &read {
        Shard::Running(running) => running.groups.poll_timeout(),
        _ => None,
    };
    let Some(shard) = coordinator.shards.get().and_then(|shards| shards.get(index)) else { return };
    let mut shard = locked(shard);
    if matches!(*shard, Shard::Loading) {
        *shard = read;
        drop(shard);
        coordinator.timers.note(deadline);
        coordinator.timers.wake();
    }
}

fn read_groups(node: &Node, partition: &Partition) -> Result<Groups, String> {
    let reader = partition.log().map_err(|error| error.to_string())?;
    let mut groups = Groups::counted(limits(node), node.coordinator.count.clone());
    let mut records = 0_u64;
    read_records(reader, reader.log_start()..reader.log_end(), |_batch, record| {
        if let Some(record) = decode(record.key, record.value).map_err(|e| e.to_string())? {
            groups.replay(&record);
            records += 1;
        }
        Ok(())
    })?;
    if records > 0 {
        tracing::info!(partition = partition.index(), records, "groups read from their log");
    }
    Ok(groups)
}
