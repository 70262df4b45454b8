//! What tools ask of the coordinator: groups described, listed and deleted.

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::shard::Job;
use super::{Coordinator, Shard, locked, offsets_partition};
use crate::driver::collect::collect;
use crate::node::Node;
use crate::state::groups::{GroupSummary, Groups, Turn};
use crate::state::offsets::PartitionName;

/// Called with what was seen of groups, once all of it is committed.
pub(crate) type SeenDone<T> = Box<dyn FnOnce(Result<T, ErrorCode>) + Send>;

impl Coordinator {
    /// Shows a group's shard, as `read` wants to see it; `done` gets what it made of it once all
    /// that it saw is committed.
    pub(crate) fn look<T: Send + 'static>(
        &self,
        node: &Arc<Node>,
        group: &str,
        read: impl FnOnce(&Groups) -> T,
        done: SeenDone<T>,
    ) {
        self.in_shard(node, group, |shard| match shard {
            Err(error) => vec![Box::new(move |_committed| done(Err(error)))],
            Ok((index, partition, running)) => {
                let seen = read(&running.groups);
                let answer: Job = Box::new(move |committed| done(committed.map(|()| seen)));
                running.submit(node, index, partition, Turn::default(), vec![answer])
            }
        });
    }

    /// Lists all groups; the error of a shard that cannot tell is that of all.
    pub(crate) fn list(&self, node: &Arc<Node>, done: SeenDone<Vec<GroupSummary>>) {
        let count = self.shards.get().map_or(0, Vec::len);
        let put = collect(count, move |parts: Vec<Result<Vec<GroupSummary>, ErrorCode>>| {
            let listed: Result<Vec<_>, _> = parts.into_iter().collect();
            done(listed.map(|parts| parts.into_iter().flatten().collect()));
        });
        for index in 0..count {
            let put = put.clone();
            self.list_shard(node, index, Box::new(move |listed| put(index, listed)));
        }
    }

    fn list_shard(&self, node: &Arc<Node>, index: usize, done: SeenDone<Vec<GroupSummary>>) {
        let shard = self.shards.get().and_then(|shards| shards.get(index));
        let partition = offsets_partition(node, index);
        let (Some(shard), Some(partition)) = (shard, partition) else {
            done(Err(ErrorCode::NOT_COORDINATOR));
            return;
        };
        // Its log was never opened, so there is none: nothing to read, and nothing to bring about.
        if matches!(*locked(shard), Shard::Unloaded) && !partition.is_open() {
            done(Ok(Vec::new()));
            return;
        }
        self.in_this_shard(node, (index, partition, shard), |shard| match shard {
            Err(error) => vec![Box::new(move |_committed| done(Err(error)))],
            Ok((index, partition, running)) => {
                let seen = running.groups.list();
                let answer: Job = Box::new(move |committed| done(committed.map(|()| seen)));
                running.submit(node, index, partition, Turn::default(), vec![answer])
            }
        });
    }

    /// Deletes a group that nobody is in.
    pub(crate) fn delete_group(
        &self,
        node: &Arc<Node>,
        group: &str,
        done: Box<dyn FnOnce(ErrorCode) + Send>,
    ) {
        self.in_shard(node, group, |shard| match shard {
            Err(error) => vec![Box::new(move |_committed| done(error))],
            Ok((index, partition, running)) => {
                let (turn, code) = running.groups.delete(group);
                let answer: Job = Box::new(move |committed| {
                    done(committed.err().unwrap_or(code));
                });
                running.submit(node, index, partition, turn, vec![answer])
            }
        });
    }

    /// Deletes offsets of a group: an error for all, or one code a partition.
    pub(crate) fn delete_offsets(
        &self,
        node: &Arc<Node>,
        group: &str,
        partitions: &[PartitionName],
        done: SeenDone<Vec<ErrorCode>>,
    ) {
        self.in_shard(node, group, |shard| match shard {
            Err(error) => vec![Box::new(move |_committed| done(Err(error)))],
            Ok((index, partition, running)) => {
                let decided = running.groups.delete_offsets(group, partitions);
                let (turn, codes) = match decided {
                    Ok((turn, codes)) => (turn, Ok(codes)),
                    Err(error) => (Turn::default(), Err(error)),
                };
                let answer: Job = Box::new(move |committed| done(committed.and(codes)));
                running.submit(node, index, partition, turn, vec![answer])
            }
        });
    }
}
