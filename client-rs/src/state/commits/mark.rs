//! What is committed of a partition, and which of two such words counts.

use std::sync::Arc;

/// Where the reading of a partition has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Which spell of owning the partition it belongs to.
    pub(crate) lease: u64,
    /// How often the position had been moved by hand. A later one counts more than any offset.
    pub(crate) jump: u64,
    /// The next offset to read.
    pub(crate) offset: i64,
    /// The leader epoch of the record before it; −1 if unknown (KIP-320).
    pub(crate) leader_epoch: i32,
    /// Whether the application named the offset itself, so that it may go back.
    pub(crate) by_hand: bool,
    /// What the application keeps beside it, or what is finished behind it.
    pub(crate) metadata: Option<Arc<str>>,
    /// How many offsets behind it are finished, where work is finished in any order.
    pub(crate) beyond: i64,
}

impl Mark {
    /// Whether committing this makes committing `other` needless.
    pub(crate) const fn covers(&self, other: &Self) -> bool {
        if self.lease != other.lease {
            return self.lease > other.lease;
        }
        if other.by_hand {
            return false;
        }
        if self.jump != other.jump {
            return self.jump > other.jump;
        }
        self.offset > other.offset || (self.offset == other.offset && self.beyond >= other.beyond)
    }
}
