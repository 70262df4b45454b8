//! The one task that does what is due: sessions, rebalances, and offsets that are too old.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use super::{Coordinator, Shard, Timers, locked, now};
use crate::driver::first::first;
use crate::node::Node;

impl Timers {
    /// There are groups to sweep.
    pub(super) fn wake(&self) {
        self.earlier.notify_one();
    }

    fn next(&self) -> MutexGuard<'_, Option<Instant>> {
        // One value, set in one move.
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is due at `deadline`; wakes the task if it would sleep longer.
    pub(super) fn note(&self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        let mut next = self.next();
        if next.is_none_or(|next| deadline < next) {
            *next = Some(deadline);
            drop(next);
            self.earlier.notify_one();
        }
    }
}

/// Runs the timers of all groups until the broker stops.
pub(crate) async fn run(node: Arc<Node>) {
    node.coordinator.load_rest(&node);
    let mut sweep = None;
    while !node.is_stopping() {
        let time = node.clock.now();
        let coordinator = &node.coordinator;
        if sweep.is_some_and(|sweep| sweep <= time) {
            coordinator.sweep(&node);
            sweep = None;
        }
        let next = coordinator.handle_timeouts(&node);
        // With no groups there is nothing to sweep; the first ones wake this task.
        if sweep.is_none() && coordinator.has_groups() {
            sweep = time.checked_add(node.settings.offsets_check);
        }
        let wake = [next, sweep].into_iter().flatten().min();
        let earlier = coordinator.timers.earlier.notified();
        let slept = async {
            match wake {
                Some(deadline) => {
                    let _either = first(node.clock.sleep_until(deadline), earlier).await;
                }
                None => earlier.await,
            }
        };
        let _either = first(slept, node.stopping()).await;
    }
}

impl Coordinator {
    /// Does what is due in all shards; returns when to look again.
    fn handle_timeouts(&self, node: &Arc<Node>) -> Option<Instant> {
        let now = now(node);
        // Taken first: what is noted from here on is not lost.
        *self.timers.next() = None;
        let shards = self.shards.get().into_iter().flatten();
        let mut deadlines = Vec::new();
        for (index, shard) in shards.enumerate() {
            let due = match &*locked(shard) {
                Shard::Running(running) => running.groups.poll_timeout(),
                _ => None,
            };
            if due.is_some_and(|due| due <= now.at) {
                self.in_running(node, index, |running| running.groups.handle_timeout(now));
            }
            if let Shard::Running(running) = &*locked(shard) {
                deadlines.extend(running.groups.poll_timeout());
            }
        }
        // No wake: the one that would be woken is here.
        let mut next = self.timers.next();
        *next = deadlines.into_iter().chain(*next).min();
        *next
    }

    fn sweep(&self, node: &Arc<Node>) {
        let now = now(node);
        for index in 0..self.shards.get().map_or(0, Vec::len) {
            self.in_running(node, index, |running| running.groups.expire(now));
        }
    }

    fn has_groups(&self) -> bool {
        let shards = self.shards.get().into_iter().flatten();
        let mut running = shards.map(|shard| matches!(*locked(shard), Shard::Running(_)));
        running.any(|running| running)
    }
}
