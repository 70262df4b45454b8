//! Committed offsets of the groups of one offsets partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::Uuid;

/// A partition of a topic, by the topic's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartitionName {
    /// The topic.
    pub(crate) topic: Arc<str>,
    /// The partition's index.
    pub(crate) index: i32,
}

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Committed {
    /// The next offset that the group wants.
    pub(crate) offset: i64,
    /// The leader epoch of the record before it; -1 if the client did not say.
    pub(crate) leader_epoch: i32,
    /// Whatever the client noted with it.
    pub(crate) metadata: Arc<str>,
    /// When it was committed, ms since the epoch.
    pub(crate) commit_ms: i64,
    /// When it goes, if its client asked for a time of its own (OffsetCommit 2 to 4).
    pub(crate) expire_ms: Option<i64>,
    /// The topic's id; zero in records of old brokers.
    pub(crate) topic_id: Uuid,
}

/// The committed offsets of many groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Offsets {
    groups: BTreeMap<Arc<str>, BTreeMap<PartitionName, Committed>>,
}

/// When offsets of a group are too old to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// The group is at work on everything it has offsets for.
    Never,
    /// By the age of each commit; topics that the group still reads are kept.
    ByCommit {
        /// What the group reads.
        subscribed: BTreeSet<Arc<str>>,
    },
    /// By the time since which nobody is in the group.
    EmptySince(i64),
}

impl Offsets {
    /// The offset of one partition.
    pub(crate) fn get(&self, group: &str, partition: &PartitionName) -> Option<&Committed> {
        self.groups.get(group)?.get(partition)
    }

    /// All offsets of a group, by topic and partition.
    pub(crate) fn of_group(
        &self,
        group: &str,
    ) -> impl Iterator<Item = (&PartitionName, &Committed)> {
        self.groups.get(group).into_iter().flatten()
    }

    /// Whether a group has any offset.
    pub(crate) fn has(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// The groups that have offsets.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.groups.keys()
    }

    /// Takes over what a record says; no value removes the offset.
    pub(crate) fn replay(
        &mut self,
        group: &Arc<str>,
        partition: &PartitionName,
        value: Option<&Committed>,
    ) {
        if let Some(value) = value {
            let offsets = self.groups.entry(group.clone()).or_default();
            offsets.insert(partition.clone(), value.clone());
            return;
        }
        let Some(offsets) = self.groups.get_mut(group) else { return };
        offsets.remove(partition);
        if offsets.is_empty() {
            self.groups.remove(group);
        }
    }

    /// The offsets of a group whose time is over.
    pub(crate) fn expired(
        &self,
        group: &str,
        expiry: &Expiry,
        retention_ms: i64,
        now_ms: i64,
    ) -> Vec<PartitionName> {
        let over = |name: &PartitionName, committed: &Committed| {
            if let (Some(at), true) = (committed.expire_ms, *expiry != Expiry::Never) {
                return now_ms >= at;
            }
            let since = match expiry {
                Expiry::Never => return false,
                Expiry::ByCommit { subscribed } if subscribed.contains(&name.topic) => {
                    return false;
                }
                Expiry::ByCommit { .. } => committed.commit_ms,
                Expiry::EmptySince(since) => committed.commit_ms.max(*since),
            };
            now_ms.saturating_sub(since) >= retention_ms
        };
        let offsets = self.of_group(group).filter(|(name, committed)| over(name, committed));
        offsets.map(|(name, _)| name.clone()).collect()
    }

    /// The offsets of all groups for a topic that is gone.
    pub(crate) fn of_topic(&self, topic: &str) -> Vec<(Arc<str>, PartitionName)> {
        let mut found = Vec::new();
        for (group, offsets) in &self.groups {
            let partitions = offsets.keys().filter(|name| *name.topic == *topic);
            found.extend(partitions.map(|name| (group.clone(), name.clone())));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn name(topic: &str) -> PartitionName {
        PartitionName { topic: Arc::from(topic), index: 0 }
    }

    fn committed(commit_ms: i64) -> Committed {
        Committed {
            offset: 5,
            leader_epoch: -1,
            metadata: Arc::from(""),
            commit_ms,
            expire_ms: None,
            topic_id: Uuid::ZERO,
        }
    }

    fn offsets_at(commits: &[(&str, i64)]) -> Offsets {
        let mut offsets = Offsets::default();
        for (topic, commit_ms) in commits {
            offsets.replay(&Arc::from("g"), &name(topic), Some(&committed(*commit_ms)));
        }
        offsets
    }

    #[test]
    fn a_removed_offset_leaves_no_empty_group() {
        let mut offsets = offsets_at(&[("a", 1)]);
        offsets.replay(&Arc::from("g"), &name("a"), None);
        assert!(!offsets.has("g"));
        assert_eq!(offsets, Offsets::default());
    }

    #[test]
    fn an_empty_group_keeps_offsets_for_the_retention_after_its_last_member() {
        let offsets = offsets_at(&[("a", 0)]);
        let expiry = Expiry::EmptySince(HOUR);
        assert!(offsets.expired("g", &expiry, HOUR, 2 * HOUR - 1).is_empty());
        assert_eq!(offsets.expired("g", &expiry, HOUR, 2 * HOUR), [name("a")]);
    }

    #[test]
    fn a_clock_that_went_back_makes_no_offset_old() {
        let offsets = offsets_at(&[("a", 90 * HOUR)]);
        let by_commit = Expiry::ByCommit { subscribed: BTreeSet::new() };
        for expiry in [by_commit, Expiry::EmptySince(80 * HOUR), Expiry::EmptySince(i64::MAX)] {
            for now_ms in [i64::MIN, 0, 89 * HOUR, 91 * HOUR - 1] {
                assert!(offsets.expired("g", &expiry, HOUR, now_ms).is_empty(), "{now_ms}");
            }
        }
    }

    #[test]
    fn a_group_at_work_loses_only_topics_it_reads_no_more() {
        let offsets = offsets_at(&[("old", 0), ("read", 0)]);
        let expiry = Expiry::ByCommit { subscribed: BTreeSet::from([Arc::from("read")]) };
        assert_eq!(offsets.expired("g", &expiry, HOUR, HOUR), [name("old")]);
        assert!(offsets.expired("g", &Expiry::Never, HOUR, i64::MAX).is_empty());
    }

    #[test]
    fn a_time_asked_for_at_the_commit_wins_over_the_retention() {
        let mut offsets = Offsets::default();
        let value = Committed { expire_ms: Some(10), ..committed(0) };
        offsets.replay(&Arc::from("g"), &name("a"), Some(&value));
        let expiry = Expiry::EmptySince(0);
        assert!(offsets.expired("g", &expiry, HOUR, 9).is_empty());
        assert_eq!(offsets.expired("g", &expiry, HOUR, 10), [name("a")]);
    }
}
