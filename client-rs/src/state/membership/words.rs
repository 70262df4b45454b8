//! What a member says to its group and to its owner, and what it is told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::ErrorCode;

use crate::record::TopicPartition;
use crate::state::assignor::{Assigned, Member, NO_GENERATION, Share, Strategy};

/// A question to the coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemberAsk {
    /// JoinGroup.
    Join { member_id: String, topics: Vec<Arc<str>>, holdings: Holdings },
    /// SyncGroup; only the leader sends shares.
    Sync { identity: Identity, strategy: Strategy, shares: Vec<Share> },
    /// Heartbeat.
    Heartbeat { identity: Identity },
    /// LeaveGroup.
    Leave { member_id: String },
}

/// Under which name and generation a member speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) member_id: String,
    pub(crate) generation: i32,
}

impl Identity {
    /// That of a client that is no member: its commits are taken while the group has none.
    pub(crate) const fn outside() -> Self {
        Self { member_id: String::new(), generation: NO_GENERATION }
    }
}

/// What a member has when it joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// What it goes on reading meanwhile, sorted.
    pub(crate) owned: Vec<TopicPartition>,
    /// The generation it is in; [`NO_GENERATION`] if none.
    pub(crate) generation: i32,
    /// What it was assigned last, sorted, and in which generation.
    pub(crate) assigned: Vec<TopicPartition>,
    pub(crate) assigned_in: i32,
}

/// JoinGroup's answer.
#[derive(Debug, Clone)]
pub(crate) struct JoinAnswer {
    pub(crate) error: ErrorCode,
    pub(crate) identity: Identity,
    /// What the group has chosen of the strategies that all its members know.
    pub(crate) strategy: Strategy,
    pub(crate) leader: String,
    /// KIP-814: a leader that came back is told to leave the shares as they are.
    pub(crate) skip_assignment: bool,
    pub(crate) members: Vec<Member>,
}

/// SyncGroup's answer.
#[derive(Debug, Clone)]
pub(crate) struct SyncAnswer {
    pub(crate) error: ErrorCode,
    pub(crate) assigned: Assigned,
}

/// What the member's owner must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemberEvent {
    /// These partitions are the member's now. `follows`: nobody else can have read in between
    /// what it had before, since this generation is the next after that one.
    Assigned { generation: i32, partitions: Vec<TopicPartition>, follows: bool },
    /// Deliver nothing more of these, commit what is finished, then call `handle_released`.
    Release(Which),
    /// These may be another's already: drop them, commit nothing.
    Lost(Which),
    /// The application did not ask for records for that long; `Release` follows.
    PollMissed { after: Duration },
    /// The coordinator is gone or has moved.
    CoordinatorLost,
    /// The coordinator answered as one.
    CoordinatorAlive,
    /// The coordinator refuses this member. `for_good`: asking again cannot help.
    Refused { code: ErrorCode, api: &'static str, for_good: bool },
}

/// Which of a member's partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    These(BTreeSet<TopicPartition>),
}

impl Which {
    /// Whether a partition is among them.
    pub(crate) fn contains(&self, partition: &TopicPartition) -> bool {
        match self {
            Self::All => true,
            Self::These(these) => these.contains(partition),
        }
    }
}

/// What the application is doing, as far as the group must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum App {
    /// It waits for records.
    Waiting,
    /// It works on what it was given since then, or has not asked yet.
    Busy { since: Instant },
}
