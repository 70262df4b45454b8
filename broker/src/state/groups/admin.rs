//! What tools ask of groups: what they are, and that they go.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::{GroupRecord, Groups, Turn};
use crate::state::group::{Group, GroupView, PhaseName};
use crate::state::offsets::PartitionName;

/// A group in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupSummary {
    /// Its id.
    pub(crate) id: Arc<str>,
    /// `consumer`, …; empty if there never was a member.
    pub(crate) protocol_type: Arc<str>,
    /// Where it is in its life.
    pub(crate) phase: PhaseName,
}

impl Groups {
    /// What a group is, if there is one; one that only has offsets is an empty one.
    pub(crate) fn describe(&self, id: &str) -> Option<GroupView> {
        let group = self.by_id.get(id).map(Group::view);
        group.or_else(|| self.offsets.has(id).then(GroupView::of_offsets_alone))
    }

    /// All groups, by their ids.
    pub(crate) fn list(&self) -> Vec<GroupSummary> {
        let ids: BTreeSet<_> = self.by_id.keys().chain(self.offsets.groups()).collect();
        let summaries = ids.into_iter().map(|id| {
            let group = self.by_id.get(id);
            GroupSummary {
                id: id.clone(),
                protocol_type: group.map_or_else(|| Arc::from(""), Group::protocol_type),
                phase: group.map_or(PhaseName::Empty, Group::phase),
            }
        });
        summaries.collect()
    }

    /// Deletes a group that nobody is in, with its offsets.
    pub(crate) fn delete(&mut self, id: &str) -> (Turn, ErrorCode) {
        let mut turn = Turn::default();
        let group = self.by_id.get(id);
        if group.is_none() && !self.offsets.has(id) {
            return (turn, ErrorCode::GROUP_ID_NOT_FOUND);
        }
        if group.is_some_and(|group| group.phase() != PhaseName::Empty) {
            return (turn, ErrorCode::NON_EMPTY_GROUP);
        }
        let stored = group.is_some_and(|group| group.stored().is_some());
        let id: Arc<str> = Arc::from(id);
        let partitions: Vec<_> = self.offsets.of_group(&id).map(|(name, _)| name.clone()).collect();
        for partition in partitions {
            self.remove_offset(id.clone(), partition, &mut turn);
        }
        let gone = GroupRecord::Group { group: id, value: None };
        // Also one that is only in memory: ids that were given out are no use any more.
        self.replay(&gone);
        if stored {
            turn.records.push(gone);
        }
        (turn, ErrorCode::NONE)
    }

    /// Deletes offsets of a group, each for itself: those of topics that its members read stay.
    pub(crate) fn delete_offsets(
        &mut self,
        id: &str,
        partitions: &[PartitionName],
    ) -> Result<(Turn, Vec<ErrorCode>), ErrorCode> {
        let group = self.by_id.get(id);
        if group.is_none() && !self.offsets.has(id) {
            return Err(ErrorCode::GROUP_ID_NOT_FOUND);
        }
        let busy = group.filter(|group| group.phase() != PhaseName::Empty);
        if busy.is_some_and(|group| &*group.protocol_type() != "consumer") {
            // What they read is theirs to know.
            return Err(ErrorCode::NON_EMPTY_GROUP);
        }
        // None: a subscription that cannot be read may be to anything.
        let read = busy.map_or_else(|| Some(BTreeSet::new()), Group::subscribed);
        let id: Arc<str> = Arc::from(id);
        let mut turn = Turn::default();
        let mut codes = Vec::with_capacity(partitions.len());
        for partition in partitions {
            if read.as_ref().is_none_or(|topics| topics.contains(&partition.topic)) {
                codes.push(ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC);
                continue;
            }
            if self.offsets.get(&id, partition).is_some() {
                self.remove_offset(id.clone(), partition.clone(), &mut turn);
            }
            codes.push(ErrorCode::NONE);
        }
        Ok((turn, codes))
    }
}
