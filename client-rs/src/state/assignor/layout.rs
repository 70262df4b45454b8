//! What a leader shares out: its group's topics, and where their partitions stand.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::state::cluster::{Cluster, RackSet, Topic};

/// The topics of a group that exist.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    topics: BTreeMap<Arc<str>, Extent>,
    minds_racks: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Extent {
    count: i32,
    racks: Option<Arc<[RackSet]>>,
}

impl Layout {
    /// Of no topics yet. Racks are what members are matched with in any case; who minds them has the
    /// group share out anew when they change.
    pub(crate) const fn new(minds_racks: bool) -> Self {
        Self { topics: BTreeMap::new(), minds_racks }
    }

    /// Those of these topics that the cluster knows.
    pub(crate) fn of(cluster: &Cluster, topics: &[Arc<str>], minds_racks: bool) -> Self {
        let mut layout = Self::new(minds_racks);
        for name in topics {
            let Some(Topic { partitions, racks, .. }) = cluster.topic(name).map(AsRef::as_ref)
            else {
                continue;
            };
            if let Ok(count) = i32::try_from(partitions.len()) {
                layout.insert(name, count, racks.clone());
            }
        }
        layout
    }

    /// Adds a topic of so many partitions.
    pub(crate) fn insert(&mut self, name: &Arc<str>, count: i32, racks: Option<Arc<[RackSet]>>) {
        self.topics.insert(Arc::clone(name), Extent { count, racks });
    }

    /// Whether shares that were made by the other hold.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        if self.minds_racks {
            self.topics == other.topics
        } else {
            self.counts().eq(other.counts())
        }
    }

    /// How many partitions each topic has.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&Arc<str>, i32)> {
        self.topics.iter().map(|(name, extent)| (name, extent.count))
    }

    /// Where the replicas of a topic's partitions stand, if any broker told.
    pub(super) fn racks(&self, name: &Arc<str>) -> Option<&[RackSet]> {
        self.topics.get(name)?.racks.as_deref()
    }

    /// The racks that the group's shares depend on, by topic.
    pub(super) fn minded_racks(&self) -> impl Iterator<Item = (&Arc<str>, &[RackSet])> {
        let topics = self.topics.iter().filter(|_| self.minds_racks);
        topics.filter_map(|(name, extent)| Some((name, extent.racks.as_deref()?)))
    }
}
