//! The leader of one partition: who is in sync, and how far the high watermark may go.

/// Decides the high watermark of a partition that this broker leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leader {
    in_sync: Vec<InSync>,
    replicas: usize,
    min_in_sync: usize,
    high_watermark: i64,
}

/// One in-sync replica and the end of its log as this leader knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InSync {
    broker: i32,
    log_end: i64,
}

/// Too few replicas are in sync for a write that asks for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooFewInSync {
    /// Replicas in sync.
    pub(crate) in_sync: usize,
    /// What `min.insync.replicas` asks for.
    pub(crate) needed: usize,
}

impl Leader {
    /// A leader that is its partition's only replica, with a log that ends at `log_end`.
    ///
    /// Alone in the ISR, all it has is committed.
    pub(crate) fn alone(broker: i32, min_in_sync: usize, log_end: i64) -> Self {
        Self {
            in_sync: vec![InSync { broker, log_end }],
            replicas: 1,
            min_in_sync,
            high_watermark: log_end,
        }
    }

    /// The offset below which records are committed.
    pub(crate) fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// Other options: so many replicas must be in sync from now on.
    pub(crate) fn set_min_in_sync(&mut self, min_in_sync: usize) {
        self.min_in_sync = min_in_sync;
    }

    /// Whether a write with acks=all may be appended. Kafka: NOT_ENOUGH_REPLICAS.
    pub(crate) fn check_acks_all(&self) -> Result<(), TooFewInSync> {
        let (in_sync, needed) = (self.in_sync.len(), self.needed());
        if in_sync < needed { Err(TooFewInSync { in_sync, needed }) } else { Ok(()) }
    }

    /// How many replicas must be in sync: as many as there are is enough. Kafka:
    /// `Partition.effectiveMinIsr`.
    fn needed(&self) -> usize {
        self.min_in_sync.min(self.replicas)
    }

    /// The log of `broker` now ends at `log_end`; true if the high watermark rose.
    pub(crate) fn handle_append(&mut self, broker: i32, log_end: i64) -> bool {
        for replica in &mut self.in_sync {
            if replica.broker == broker {
                debug_assert!(replica.log_end <= log_end, "a leader's log never shrinks");
                replica.log_end = log_end;
            }
        }
        // KIP-966: it stands still while the ISR is smaller than min.insync.replicas.
        if self.in_sync.len() < self.needed() {
            return false;
        }
        let reached = self.in_sync.iter().map(|replica| replica.log_end).min();
        let reached = reached.unwrap_or(self.high_watermark);
        let rose = reached > self.high_watermark;
        self.high_watermark = self.high_watermark.max(reached);
        rose
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_in_the_isr_an_append_is_committed_at_once() {
        let mut leader = Leader::alone(1, 1, 10);
        assert_eq!(leader.high_watermark(), 10);
        assert!(leader.handle_append(1, 13));
        assert_eq!(leader.high_watermark(), 13);
        assert!(!leader.handle_append(1, 13), "nothing new is no rise");
    }

    #[test]
    fn acks_all_is_refused_below_the_minimum_of_in_sync_replicas() {
        let mut leader = Leader { replicas: 3, ..Leader::alone(1, 2, 0) };
        assert_eq!(leader.check_acks_all(), Err(TooFewInSync { in_sync: 1, needed: 2 }));
        assert!(!leader.handle_append(1, 5), "nor is anything else committed");
        assert_eq!(leader.high_watermark(), 0);
        leader.set_min_in_sync(1);
        assert_eq!(leader.check_acks_all(), Ok(()));
        assert!(leader.handle_append(1, 5));
    }

    #[test]
    fn no_more_replicas_are_asked_for_than_there_are() {
        let mut leader = Leader::alone(1, 2, 0);
        assert_eq!(leader.check_acks_all(), Ok(()));
        assert!(leader.handle_append(1, 5));
        assert_eq!(leader.high_watermark(), 5);
    }
}
