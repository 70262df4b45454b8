//! What senders are told of queues, so that records stick to the partitions that move (KIP-794).

use std::collections::BTreeSet;
use std::time::Instant;

use super::Sender;

impl Sender {
    /// Tells how many batches wait for each partition, and whose broker takes none.
    pub(super) fn tell_loads(&mut self, now: Instant) {
        if !self.config.rules.may_stick() {
            return;
        }
        for partition in self.active.iter().filter_map(|&key| self.partitions.get(key)) {
            partition.slot.tell_waiting(partition.queue.backlog());
        }
        if !self.config.availability_timeout.is_zero() {
            self.watch_nodes(now);
        }
    }

    /// A broker is away if for the timeout nothing that waits for it was begun to be written.
    fn watch_nodes(&mut self, now: Instant) {
        let unbegun = self.unbegun.keys().filter_map(|token| self.open.get(token));
        let mut asked: BTreeSet<i32> = unbegun.map(|open| open.node).collect();
        for partition in self.active.iter().filter_map(|&key| self.partitions.get(key)) {
            let lingered =
                partition.open.is_some_and(|at| at.opened_at + self.config.linger <= now);
            if lingered || partition.queue.backlog() > 0 {
                asked.extend(partition.leader);
            }
        }
        let timeout = self.config.availability_timeout;
        let mut away = BTreeSet::new();
        for (id, node) in &mut self.nodes {
            if !asked.contains(id) {
                node.stalled_since = None;
            } else if *node.stalled_since.get_or_insert(now) + timeout <= now {
                away.insert(*id);
            }
        }
        if away != self.away || self.leaders_changed {
            self.leaders_changed = false;
            for partition in &self.partitions {
                partition.slot.tell_away(partition.leader.is_some_and(|id| away.contains(&id)));
            }
            self.away = away;
        }
    }

    /// When the next broker will be away, if it goes on so.
    pub(super) fn away_at(&self) -> Option<Instant> {
        let timeout = self.config.availability_timeout;
        let here = self.nodes.iter().filter(|(id, _)| !self.away.contains(*id));
        here.filter_map(|(_, node)| Some(node.stalled_since? + timeout)).min()
    }
}
