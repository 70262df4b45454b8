//! Partitions that the program assigns itself, without a group that shares them out.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Engine, faults};
use crate::consumer::face::Assigned;
use crate::state::machine::Context;
use crate::state::membership::Identity;
use crate::state::metadata::NameWatch;

impl Engine {
    /// Whether the program has assigned partitions itself.
    pub(super) fn is_choosing(&self) -> bool {
        !self.chosen.is_empty()
    }

    pub(super) fn has_group(&self) -> bool {
        !self.names.group.is_empty()
    }

    /// Under which name offsets are committed: as a member, or as nobody in particular. `None` while
    /// the coordinator takes none.
    pub(super) fn identity(&self) -> Option<Cow<'_, Identity>> {
        let member = self.membership.identity().map(Cow::Borrowed);
        let may = self.has_group() && self.membership.has_left();
        member.or_else(|| may.then(|| Cow::Owned(Identity::outside())))
    }

    /// The program reads these partitions from now on, or none by itself.
    pub(super) fn choose(&mut self, assigned: Assigned, cx: &mut Context<'_>) {
        let Assigned { wanted, gone, finished, fresh } = assigned;
        tracing::info!(group = %self.names.group, partitions = wanted.len(), "assigned by the program");
        if self.config.auto_commit && self.has_group() {
            self.commits.push(finished);
        }
        for partition in &gone {
            self.fetcher.remove(partition);
            self.commits.handle_left(partition);
        }
        // An answer that does not come, and another attempt.
        let patience = 2 * self.config.common.request_timeout;
        self.left_until = self.commits.has_left_open().then(|| cx.now + patience);
        self.place_no_more(&gone);
        self.chosen = wanted;
        let topics: BTreeSet<_> = self.chosen.iter().map(|at| Arc::clone(&at.topic)).collect();
        self.first_counts.retain(|topic, _| topics.contains(topic));
        self.topics = topics.into_iter().collect();
        self.pattern = None;
        cx.metadata.watch_names(NameWatch::Off, cx.now);
        self.cluster_seen = u64::MAX;
        self.pin(cx);
        let mut placing = Vec::with_capacity(fresh.len());
        for (partition, lease, position) in fresh {
            self.commits.handle_leased(&partition, lease);
            self.fetcher.assign(partition.clone(), position, cx.now);
            placing.push((partition, position));
        }
        self.face.set_refill_below(self.fetcher.refill_below());
        if self.has_group() {
            self.look_up(placing, cx.now);
            self.begin_auto_commit(cx.now);
        } else {
            self.unplaced.extend(placing);
        }
    }

    /// Looks at what has changed of the cluster.
    pub(super) fn see_chosen(&mut self, cx: &mut Context<'_>) {
        self.missing = faults::missing(cx.metadata.cluster(), &self.chosen);
        for (partition, position) in std::mem::take(&mut self.unplaced) {
            self.reset(&partition, position, cx.now_ms);
        }
    }
}
