//! What a program is told of its partitions as they come and go.

use std::sync::Arc;

use super::face::{Change, Rebalance};
use super::{Consumer, Own};
use crate::record::TopicPartition;
use crate::state::guard::lock;

/// Told of a consumer's partitions as they come and go; Kafka: `ConsumerRebalanceListener`.
///
/// It is called in the thread that polls, or that closes, and never twice at a time. A poll in which
/// it is called goes on waiting for records. It may commit, seek and pause, and it may close the
/// consumer, after which nothing more is told.
pub trait RebalanceListener: Send + Sync {
    /// These partitions are the consumer's. None of their records was given out yet.
    fn on_assigned(&self, consumer: &Consumer, partitions: &[TopicPartition]) {
        let _ = (consumer, partitions);
    }

    /// These partitions are about to be another member's. What is finished can be committed still:
    /// the group waits for the return, but no longer than `max.poll.interval.ms`.
    fn on_revoked(&self, consumer: &Consumer, partitions: &[TopicPartition]) {
        let _ = (consumer, partitions);
    }

    /// These partitions are another member's already, and nothing can be committed for them.
    ///
    /// If it is not defined, [`Self::on_revoked`] is called, as with Kafka's listener.
    fn on_lost(&self, consumer: &Consumer, partitions: &[TopicPartition]) {
        self.on_revoked(consumer, partitions);
    }
}

impl Consumer {
    /// Has this listener told of partitions from now on, in the place of one before.
    ///
    /// Set it before [`Self::subscribe`] to hear of the first ones too.
    pub fn on_rebalance(&self, listener: impl RebalanceListener + 'static) {
        if let Some(face) = self.own.live() {
            *lock(&self.own.listener) = Some(Arc::new(listener));
            face.listen();
        }
    }

    pub(super) fn tell(&self, rebalance: &Rebalance) {
        // Also if the listener panics, the next is told.
        let _ends = Ends { own: &self.own, id: rebalance.id };
        let listener = lock(&self.own.listener).clone();
        let Some(listener) = listener else { return };
        match rebalance.change {
            Change::Assigned => listener.on_assigned(self, &rebalance.partitions),
            Change::Revoked => listener.on_revoked(self, &rebalance.partitions),
            Change::Lost => listener.on_lost(self, &rebalance.partitions),
        }
    }
}

struct Ends<'a> {
    own: &'a Own,
    id: u64,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.own.face.end_telling(self.id);
    }
}
