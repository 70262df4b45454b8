//! What the application is told of its partitions as they come and go: one thing at a time, in the
//! thread that polls.

use std::collections::{BTreeSet, VecDeque};
use std::thread::{self, ThreadId};

use ottla_protocol::left_out;

use super::assigning::Chooser;
use super::{Face, Inner};
use crate::record::TopicPartition;
use crate::state::membership::Which;
use crate::state::parker::Sleeper;

/// What became of partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::consumer) enum Change {
    /// They are this consumer's; none of their records is given out before it is told.
    Assigned,
    /// They are about to be another's; what is finished may still be committed.
    Revoked,
    /// They are another's already.
    Lost,
}

/// Something to tell, and how it is named until it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::consumer) struct Rebalance {
    pub(in crate::consumer) id: u64,
    pub(in crate::consumer) change: Change,
    pub(in crate::consumer) partitions: Vec<TopicPartition>,
}

/// What is to be told, and what was.
#[derive(Debug, Default)]
pub(super) struct Rebalances {
    /// Somebody wants to be told.
    listens: bool,
    /// Never two of one partition that follow each other and come to nothing: see [`Inner::forget`].
    queue: VecDeque<Rebalance>,
    running: Option<(Rebalance, ThreadId)>,
    /// Partitions that the application takes for its own.
    told: BTreeSet<TopicPartition>,
}

impl Rebalances {
    /// Whether something can be told now.
    pub(super) fn is_ready(&self) -> bool {
        self.running.is_none() && !self.queue.is_empty()
    }

    /// Whether this thread is being told something just now.
    pub(super) fn is_running_here(&self) -> bool {
        let here = thread::current().id();
        self.running.as_ref().is_some_and(|(_, thread)| *thread == here)
    }

    /// Whether the application will take a partition for its own when all is told.
    fn will_have(&self, partition: &TopicPartition) -> bool {
        let last = self.queue.iter().rev().find(|one| one.partitions.contains(partition));
        match last {
            Some(one) => one.change == Change::Assigned,
            None => self.told.contains(partition),
        }
    }

    /// Whether it is still to be told that a partition came.
    fn awaits(&self, partition: &TopicPartition) -> bool {
        let queue = self.queue.iter();
        let mut assigned = queue.filter(|one| one.change == Change::Assigned);
        assigned.any(|one| one.partitions.contains(partition))
    }
}

impl Face {
    /// Tells of partitions from now on; those that are there count as told.
    pub(in crate::consumer) fn listen(&self) {
        let mut inner = self.lock();
        if !inner.rebalances.listens {
            // What the program chose itself it need not be told.
            if inner.chooser != Chooser::Program {
                inner.rebalances.told = inner.parts.keys().cloned().collect();
            }
            inner.rebalances.listens = true;
        }
    }

    /// Tells nothing more, and does not wait for what is being told.
    pub(in crate::consumer) fn stop_telling(&self) {
        let mut inner = self.lock();
        inner.rebalances = Rebalances::default();
        let mut open = Vec::new();
        for (partition, part) in &mut inner.parts {
            part.untold = false;
            open.push(partition.clone());
        }
        for partition in &open {
            inner.list(partition);
        }
        Self::announce(inner);
        self.wake.wake();
    }

    /// Whether this thread is being told something just now.
    pub(in crate::consumer) fn is_telling_here(&self) -> bool {
        self.lock().rebalances.is_running_here()
    }

    /// Has the application told that these came, before it is given anything of them.
    pub(in crate::consumer) fn tell_assigned(&self, partitions: &[TopicPartition]) {
        let mut inner = self.lock();
        if !inner.rebalances.listens || inner.chooser == Chooser::Program {
            return;
        }
        let fresh = |partition: &&TopicPartition| !inner.rebalances.will_have(partition);
        let fresh: Vec<TopicPartition> = partitions.iter().filter(fresh).cloned().collect();
        for partition in &fresh {
            if let Some(part) = inner.parts.get_mut(partition) {
                part.untold = true;
            }
        }
        inner.tell(Change::Assigned, fresh);
        Self::announce(inner);
    }

    /// Has the application told that these go. Under which name that stands; nothing if it never
    /// heard of them.
    pub(in crate::consumer) fn tell_revoked(&self, which: &Which) -> Option<u64> {
        let mut inner = self.lock();
        let id = inner.tell_going(which);
        Self::announce(inner);
        id
    }

    /// Whether that was told, or need not be any more.
    pub(in crate::consumer) fn is_told(&self, id: u64) -> bool {
        let inner = self.lock();
        let running = inner.rebalances.running.as_ref().map(|(one, _)| one);
        !running.into_iter().chain(&inner.rebalances.queue).any(|one| one.id == id)
    }

    /// The next thing to tell, or a sleeper's place under the number of its wait.
    pub(in crate::consumer) fn await_rebalance(
        &self,
        wait: u64,
        sleeper: Sleeper,
    ) -> Option<Rebalance> {
        let mut inner = self.lock();
        let started = inner.start_telling();
        inner.sleepers.retain(|(other, _)| *other != wait);
        if started.is_none() {
            inner.sleepers.push((wait, sleeper));
        }
        started
    }

    /// It was told.
    pub(in crate::consumer) fn end_telling(&self, id: u64) {
        let mut inner = self.lock();
        let running = inner.rebalances.running.take_if(|(one, _)| one.id == id);
        let Some((one, _)) = running else { return };
        if one.change == Change::Assigned {
            for partition in &one.partitions {
                let again = inner.rebalances.awaits(partition);
                if let Some(part) = inner.parts.get_mut(partition).filter(|_| !again) {
                    part.untold = false;
                }
                inner.list(partition);
            }
        }
        Self::announce(inner);
        self.wake.wake();
    }
}

impl Inner {
    fn tell(&mut self, change: Change, partitions: Vec<TopicPartition>) -> Option<u64> {
        if partitions.is_empty() {
            return None;
        }
        let id = self.id();
        if left_out("told_in_turn") && change == Change::Assigned {
            self.rebalances.queue.push_front(Rebalance { id, change, partitions });
            return Some(id);
        }
        self.rebalances.queue.push_back(Rebalance { id, change, partitions });
        Some(id)
    }

    /// These go: whoever heard of them is to be told, under the name that is given back.
    pub(super) fn tell_going(&mut self, which: &Which) -> Option<u64> {
        let rebalances = &mut self.rebalances;
        for one in rebalances.queue.iter_mut().filter(|one| one.change == Change::Assigned) {
            one.partitions.retain(|partition| !which.contains(partition));
        }
        rebalances.queue.retain(|one| !one.partitions.is_empty());
        let told = rebalances.told.iter();
        let goes = |at: &&TopicPartition| which.contains(at) && rebalances.will_have(at);
        let going = told.filter(goes).cloned().collect();
        let running = rebalances.running.as_ref().map(|(one, _)| one);
        let mut before = running.into_iter().chain(&rebalances.queue).rev();
        let before = before.find(|one| one.change == Change::Revoked).map(|one| one.id);
        if left_out("going_told") {
            return before;
        }
        let change = if left_out("going_revoked") { Change::Lost } else { Change::Revoked };
        self.tell(change, going).or(before)
    }

    /// Partitions are gone: what was to be told of them is not, but that.
    pub(super) fn forget(&mut self, partitions: &[TopicPartition]) {
        let rebalances = &mut self.rebalances;
        let gone: BTreeSet<&TopicPartition> = partitions.iter().collect();
        for one in &mut rebalances.queue {
            one.partitions.retain(|partition| !gone.contains(partition));
        }
        rebalances.queue.retain(|one| !one.partitions.is_empty());
        let told = partitions.iter().filter(|partition| rebalances.told.contains(partition));
        let told: Vec<TopicPartition> = told.cloned().collect();
        match rebalances.queue.back_mut() {
            Some(last) if last.change == Change::Lost => last.partitions.extend(told),
            _ => {
                let change = if left_out("gone_lost") { Change::Revoked } else { Change::Lost };
                self.tell(change, told);
            }
        }
    }

    /// The next thing to tell, from now on being told.
    pub(super) fn start_telling(&mut self) -> Option<Rebalance> {
        if self.rebalances.running.is_some() {
            return None;
        }
        let one = self.rebalances.queue.pop_front()?;
        for partition in &one.partitions {
            match one.change {
                Change::Assigned => self.rebalances.told.insert(partition.clone()),
                Change::Revoked | Change::Lost => self.rebalances.told.remove(partition),
            };
        }
        self.rebalances.running = Some((one.clone(), thread::current().id()));
        Some(one)
    }
}
