//! What a coordinator's answers say of commits.

use ottla_protocol::ErrorCode;

use super::Mark;
use crate::record::TopicPartition;

/// What an error code says of a partition's commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Taken,
    /// Find the coordinator, then ask again.
    Coordinator,
    /// Ask again in the group's next generation, for what is still this member's.
    Rebalance,
    /// The same; the coordinator does not know the member by its generation.
    Fenced,
    /// Ask again after a while.
    Later,
    /// It cannot be committed.
    Refused,
}

pub(crate) const fn verdict(code: ErrorCode) -> Verdict {
    match code {
        ErrorCode::NONE => Verdict::Taken,
        ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => Verdict::Coordinator,
        ErrorCode::REBALANCE_IN_PROGRESS => Verdict::Rebalance,
        ErrorCode::UNKNOWN_MEMBER_ID
        | ErrorCode::ILLEGAL_GENERATION
        | ErrorCode::STALE_MEMBER_EPOCH => Verdict::Fenced,
        // A topic just made may not be known to the coordinator yet.
        code if code.is_retriable() => Verdict::Later,
        _ => Verdict::Refused,
    }
}

/// What the codes of one answer come to.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// In which the commit was sent.
    pub(super) generation: i32,
    pub(super) again: bool,
    pub(super) coordinator_lost: bool,
    pub(super) rebalance: bool,
    pub(super) fenced: Option<ErrorCode>,
    pub(super) unknown: bool,
}

/// What became of marks behind which nothing of their partition waits or is on its way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settled {
    /// Committed, with what was.
    pub(crate) taken: Vec<(TopicPartition, Mark)>,
    /// Refused.
    pub(crate) refused: Vec<TopicPartition>,
}

impl Settled {
    pub(super) const fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.refused.is_empty()
    }
}
