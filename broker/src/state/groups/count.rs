//! How many groups there are, in all offsets partitions together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::state::hash::HashSet;

/// The number of all groups of a broker; shared by those who count.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupCount(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    groups: AtomicUsize,
    /// That there is no room was told, and no group has gone since.
    told: AtomicBool,
}

impl GroupCount {
    fn try_add(&self, most: usize) -> bool {
        let more = |groups: usize| (groups < most).then_some(groups + 1);
        let (relaxed, inner) = (Ordering::Relaxed, &self.0);
        let added = inner.groups.fetch_update(relaxed, relaxed, more).is_ok();
        if !added && !inner.told.swap(true, relaxed) {
            tracing::warn!(groups = most, "a new group is refused: max.groups are there");
        }
        added
    }

    fn add(&self) {
        self.0.groups.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, groups: usize) {
        self.0.groups.fetch_sub(groups, Ordering::Relaxed);
        self.0.told.store(false, Ordering::Relaxed);
    }
}

/// The groups of one offsets partition that are counted; given up when dropped.
#[derive(Debug, Default)]
pub(super) struct Known {
    ids: HashSet<Arc<str>>,
    count: GroupCount,
}

impl Known {
    /// None yet.
    pub(super) fn new(count: GroupCount) -> Self {
        Self { ids: HashSet::default(), count }
    }

    /// Counts a group if it is counted already, or if there is room for one more.
    pub(super) fn try_add(&mut self, id: &str, most: usize) -> bool {
        if self.ids.contains(id) {
            return true;
        }
        let added = self.count.try_add(most);
        if added {
            self.ids.insert(Arc::from(id));
        }
        added
    }

    /// Counts a group if it is there, in any case, and else does not.
    pub(super) fn set(&mut self, id: &Arc<str>, is_there: bool) {
        if is_there {
            if self.ids.insert(id.clone()) {
                self.count.add();
            }
        } else if self.ids.remove(id) {
            self.count.remove(1);
        }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.count.remove(self.ids.len());
    }
}
