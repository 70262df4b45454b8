//! What is handed to a partition, and what comes of it.

use std::fmt;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_storage::{Appended, Incoming, Rejected};

/// Batches for one partition, and what happens when they are stored.
pub(crate) struct Submission {
    /// Whole, validated batches in order; each is accepted or rejected by itself.
    pub(crate) batches: Vec<Incoming>,
    /// When `done` is called.
    pub(crate) acks: Acks,
    /// Called once, on the writer's thread with no lock held; must be quick.
    pub(crate) done: Done,
}

/// What a submission waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acks {
    /// The append alone.
    Leader,
    /// The high watermark has passed the batches. Refused when too few replicas are in sync.
    All,
}

/// One outcome a batch, or none at all.
pub(crate) type Outcome = Result<Vec<Result<Appended, Rejected>>, AppendError>;

/// What to do with the outcome of a submission.
pub(crate) type Done = Box<dyn FnOnce(Outcome) + Send>;

/// Why a submission was not appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AppendError {
    /// Fewer replicas in sync than `min.insync.replicas` asks for.
    NotEnoughReplicas {
        /// Replicas in sync.
        in_sync: usize,
        /// What the option asks for.
        needed: usize,
    },
    /// The log cannot be written or opened; the text says why.
    Storage(Arc<str>),
    /// The disk is almost full; the text says how full.
    Full(Arc<str>),
    /// The partition is closed: the broker stops.
    Closed,
    /// The topic was deleted.
    Deleted,
}

/// A submission that came too late.
pub(crate) struct Refused {
    /// Why.
    pub(crate) error: AppendError,
    /// The submission's own `done`, not called.
    pub(crate) done: Done,
}

impl fmt::Debug for Submission {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batches = self.batches.len();
        out.debug_struct("Submission")
            .field("batches", &batches)
            .field("acks", &self.acks)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl Refused {
    /// Tells the submission that it was refused.
    pub(crate) fn finish(self) {
        (self.done)(Err(self.error));
    }
}

impl AppendError {
    /// Kafka's code for it.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::NotEnoughReplicas { .. } => ErrorCode::NOT_ENOUGH_REPLICAS,
            // Clients try that again, which is right for a disk that gets room, too.
            Self::Storage(_) | Self::Full(_) => ErrorCode::KAFKA_STORAGE_ERROR,
            Self::Closed => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            Self::Deleted => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        }
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEnoughReplicas { in_sync, needed } => write!(
                out,
                "{in_sync} in-sync replica(s), but min.insync.replicas asks for {needed}"
            ),
            Self::Storage(why) => write!(out, "the partition's log failed: {why}"),
            Self::Full(why) => out.write_str(why),
            Self::Closed => out.write_str("the partition is closed on this broker"),
            Self::Deleted => out.write_str("the topic was deleted"),
        }
    }
}
