//! Giving partitions up: all before a member leaves or joins, or only those that go to another.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{Kept, MemberEvent, Membership, Release, Stage, Then, Which};
use crate::record::TopicPartition;

impl Membership {
    /// Joins anew, when what may not be read meanwhile is given up.
    pub(super) fn make_way(&mut self, now: Instant) {
        if !self.is_cooperative() {
            return self.begin_release(Which::All, Then::Rejoin, now);
        }
        let gone = self.owned.iter().filter(|owned| !self.reads(&owned.topic));
        let gone: BTreeSet<TopicPartition> = gone.cloned().collect();
        if !gone.is_empty() {
            self.begin_release(Which::These(gone), Then::Rejoin, now);
        } else if self.release.is_none() {
            self.rejoin(now);
        }
    }

    /// From a stable generation to the next.
    pub(super) fn rejoin(&mut self, now: Instant) {
        if let Stage::Stable { joined, .. } = &self.stage {
            let may_commit = self.is_cooperative();
            self.kept = Some(Kept { identity: joined.identity.clone(), may_commit });
        }
        self.stage = Stage::Unjoined { retry_at: now };
    }

    pub(super) fn release_and_leave(&mut self, then: Then, now: Instant) {
        let reads_on = self.is_cooperative() && !self.owned.is_empty();
        if matches!(self.stage, Stage::Stable { .. }) || reads_on {
            self.begin_release(Which::All, then, now);
        } else {
            self.leave(then, now);
        }
    }

    /// Whether the member leaves the group once its partitions are given up.
    pub(crate) fn is_going(&self) -> bool {
        self.release.as_ref().is_some_and(|release| release.then != Then::Rejoin)
    }

    /// The partitions were given up, and what was finished is committed.
    pub(crate) fn handle_released(&mut self, now: Instant) {
        let Some(release) = self.release.take() else { return };
        if release.then != Then::Rejoin {
            self.owned.clear();
            self.kept = None;
            return self.leave(release.then, now);
        }
        self.owned.retain(|owned| !release.which.contains(owned));
        if let Stage::Stable { joined, .. } = &self.stage
            && let Some(mut partitions) = release.adopts
        {
            let generation = joined.identity.generation;
            // Unsubscribed from since they were assigned.
            partitions.retain(|partition| self.reads(&partition.topic));
            self.adopt(generation, partitions, true);
        }
        self.rejoin(now);
    }

    /// The time of a rebalance is over, and not all is given up: it is dropped.
    pub(super) fn release_late(&mut self, now: Instant) {
        let Some(release) = &self.release else { return };
        self.events.push_back(MemberEvent::Lost(release.which.clone()));
        if release.which == Which::All {
            // The coordinator has gone on without this member by now.
            let then = release.then;
            self.forget_holdings();
            match then {
                Then::Rejoin => self.stage = Stage::Unjoined { retry_at: now },
                then => self.leave(then, now),
            }
        } else {
            self.handle_released(now);
        }
    }

    /// Has partitions given up. What is being given up already is part of it from now on.
    pub(super) fn begin_release(&mut self, mut which: Which, then: Then, now: Instant) {
        let mut until = now + self.config.poll_interval;
        let mut adopts = None;
        if let Some(release) = self.release.take() {
            let (goes, leaves) = (release.then != Then::Rejoin, then != Then::Rejoin);
            if goes || (release.which == Which::All && !leaves) {
                self.release = Some(release);
                return;
            }
            until = release.until;
            adopts = release.adopts.filter(|_| !leaves);
            if let (Which::These(more), Which::These(these)) = (release.which, &mut which) {
                these.extend(more);
            }
        }
        self.events.push_back(MemberEvent::Release(which.clone()));
        self.release = Some(Release { until, then, which, adopts });
    }

    pub(super) fn drop_held(&mut self) {
        if !self.owned.is_empty() || self.kept.is_some() || self.release.is_some() {
            self.events.push_back(MemberEvent::Lost(Which::All));
        }
        self.forget_holdings();
    }

    fn forget_holdings(&mut self) {
        self.kept = None;
        self.release = None;
        self.owned.clear();
    }
}
