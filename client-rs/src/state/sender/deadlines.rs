//! When the machine wants its next turn: each time given here is one at which a turn does something.
//!
//! What is due at a turn's time is done in it, or waits for another event than time. So no time given
//! is over, and a machine that has nothing to do sleeps.

use std::time::{Duration, Instant};

use super::Sender;
use super::queue::Numbering;
use super::topics::Partition;
use crate::state::pace::soonest;

/// The shortest time after which what is only begun is looked for.
const LOOK_AFTER_MIN: Duration = Duration::from_millis(1);

impl Sender {
    /// When something will be due by itself, after a turn; `room_at` is when somebody's wait for
    /// room is over.
    pub(super) fn next_deadline(&self, now: Instant, room_at: Option<Instant>) -> Option<Instant> {
        let identity = self.identity.poll_timeout().filter(|_| self.wants_identity());
        let own = [self.close_by, identity, room_at, self.busy_until, self.away_at()];
        let active = self.active.iter().filter_map(|&key| self.partitions.get(key));
        let partitions = active.flat_map(|partition| self.deadlines_of(partition, now));
        let due = own.into_iter().chain(partitions).inspect(|at| {
            debug_assert!(at.is_none_or(|at| at > now), "what is due by {at:?} is done at {now:?}");
        });
        let timeout = self.config.topic_timeout();
        let staged = self.face.staged();
        let staged = staged.into_iter().map(|(_, opened_at, _)| Some(opened_at + timeout));
        soonest(now, due.chain(staged))
    }

    fn deadlines_of(&self, partition: &Partition, now: Instant) -> [Option<Instant>; 5] {
        // Without a leader, or one that takes nothing now, other news bring the next turn.
        let node = partition.leader.and_then(|id| self.nodes.get(&id));
        let takes = node.is_some_and(|node| node.takes(now));
        let (queue, numbering) = (&partition.queue, self.identity.numbering());
        let begins =
            takes && queue.is_drained() && queue.takes_new() && numbering != Numbering::Unknown;
        let opened_at = partition.open.map(|open| open.opened_at);
        [
            node.and_then(|node| node.muted_until),
            queue.retry_at(numbering).filter(|_| takes),
            queue.expires_at(),
            opened_at.map(|at| at + self.config.delivery_timeout),
            opened_at.filter(|_| begins).map(|at| at + self.config.linger),
        ]
    }

    /// Whether a producer id would be asked for, if none is known.
    pub(super) fn wants_identity(&self) -> bool {
        let used = self.face.has_staged() || !self.topics.is_empty();
        used && self.face.end().is_none()
    }

    /// Brokers that were to be left alone until now take requests again.
    pub(super) fn unmute(&mut self, now: Instant) {
        for node in self.nodes.values_mut() {
            node.muted_until = node.muted_until.filter(|&until| until > now);
        }
    }

    /// Whether what is only begun from now on may wait for the next answer. It is not told of then,
    /// and must be looked for once a batch has lingered; without news for so long it is told of.
    pub(super) fn see_busy(&mut self, now: Instant) {
        let look_at = self.news_at.map(|at| at + self.config.linger.max(LOOK_AFTER_MIN));
        let answers = !self.nodes.is_empty()
            && self.identity.numbering() != Numbering::Unknown
            && self.nodes.values().all(|node| node.in_flight > 0);
        // Who waits for room waits for what is begun to go out.
        let busy = answers && !self.face.memory.is_awaited();
        self.busy_until = look_at.filter(|&at| busy && at > now);
    }
}
