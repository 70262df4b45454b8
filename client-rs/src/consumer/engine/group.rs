//! Partitions that come and go: assignment, and release before a rebalance or at the end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use ottla_protocol::{ErrorCode, left_out};

use super::{Engine, LOOKUP_PAUSE, faults};
use crate::config::Reset;
use crate::events::{Event, ResetTo};
use crate::record::TopicPartition;
use crate::state::assignor::Layout;
use crate::state::cluster::Cluster;
use crate::state::fetcher::Start;
use crate::state::lookups::{Committed, LookupResult};
use crate::state::machine::Context;
use crate::state::membership::{MemberEvent, Which};
use crate::state::metadata::NameWatch;

/// Partitions that are given up.
#[derive(Debug)]
pub(super) struct Release {
    which: Which,
    step: Step,
}

/// How far that is.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// What was given out last is not finished: until the application asks again.
    Waiting,
    /// The application is being told, and may still commit.
    Telling { id: u64 },
    /// The last commit is on its way; at this time it is no longer waited for.
    Flushing { until: Instant },
}

impl Release {
    pub(super) const fn until(&self) -> Option<Instant> {
        match self.step {
            Step::Waiting | Step::Telling { .. } => None,
            Step::Flushing { until } => Some(until),
        }
    }
}

impl Engine {
    pub(super) fn subscribe(&mut self, topics: Vec<Arc<str>>, cx: &mut Context<'_>) {
        let named: BTreeSet<&Arc<str>> = topics.iter().collect();
        self.first_counts.retain(|topic, _| named.contains(topic));
        self.pattern = None;
        cx.metadata.watch_names(NameWatch::Off, cx.now);
        self.follow(topics, cx);
    }

    /// Reads these topics from now on.
    pub(super) fn follow(&mut self, topics: Vec<Arc<str>>, cx: &mut Context<'_>) {
        self.cluster_seen = u64::MAX;
        self.topics.clone_from(&topics);
        self.membership.subscribe(topics, cx.now);
        self.pin(cx);
    }

    /// Keeps the metadata of the topics that are read, or led, and of no others.
    pub(super) fn pin(&mut self, cx: &mut Context<'_>) {
        let led = self.membership.led_topics().unwrap_or_default();
        let wanted: BTreeSet<Arc<str>> = self.topics.iter().chain(led).cloned().collect();
        for topic in wanted.difference(&self.pinned) {
            cx.metadata.pin(topic, cx.now);
        }
        for topic in self.pinned.difference(&wanted) {
            cx.metadata.unpin(topic);
        }
        self.pinned = wanted;
    }

    /// Tells the group's leader, if it is this member, what there is to share out.
    pub(super) fn see_metadata(&mut self, cx: &mut Context<'_>) {
        let waited_for = self.membership.wants_layout();
        if waited_for {
            self.pin(cx);
        }
        let version = cx.metadata.cluster().version;
        if self.cluster_seen == version && !waited_for {
            return;
        }
        self.cluster_seen = version;
        self.match_names(cx);
        self.note_counts(cx.metadata.cluster());
        self.see_chosen(cx);
        let Some(led) = self.membership.led_topics() else { return };
        let cluster = cx.metadata.cluster();
        if waited_for && led.iter().any(|topic| !cluster.topics.contains_key(topic)) {
            // Not all have been answered yet.
            return;
        }
        let layout = Layout::of(cluster, led, self.config.minds_racks());
        self.membership.handle_layout(layout, cx.now);
    }

    /// Remembers how many partitions each topic had when it was first heard of: none, if it was
    /// not there.
    fn note_counts(&mut self, cluster: &Cluster) {
        for topic in &self.topics {
            if let Some(known) = cluster.topics.get(topic) {
                let count = match known.error {
                    ErrorCode::NONE => known.partitions.len(),
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::LEADER_NOT_AVAILABLE => 0,
                    // It may have been there for long, and is only not shown.
                    _ => continue,
                };
                let count = i32::try_from(count).unwrap_or(i32::MAX);
                self.first_counts.entry(Arc::clone(topic)).or_insert(count);
            }
        }
    }

    pub(super) fn handle_member(&mut self, event: MemberEvent, cx: &mut Context<'_>) {
        match event {
            MemberEvent::Assigned { generation, partitions, follows } => {
                let names = listed(&partitions);
                tracing::info!(group = %self.names.group, generation, partitions = names, "assigned");
                self.assign(generation, partitions, follows, cx);
            }
            MemberEvent::Release(which) => {
                self.face.hold(&which);
                self.release = Some(Release { which, step: Step::Waiting });
            }
            MemberEvent::Lost(which) => {
                let lost = self.parts_of(&which);
                tracing::info!(group = %self.names.group, partitions = listed(&lost), "lost");
                self.release = None;
                self.impatient = false;
                self.drop_parts(&lost);
                self.commits.drop_left(&which);
                self.tell_gone(lost, |partitions| Event::PartitionsLost { partitions });
            }
            MemberEvent::PollMissed { after } => {
                tracing::warn!(
                    group = %self.names.group,
                    after_ms = after.as_millis(),
                    limit_ms = self.config.poll_interval.as_millis(),
                    "the application did not poll within max.poll.interval.ms: leaving the group \
                     until it does"
                );
                self.impatient = true;
                let limit = self.config.poll_interval;
                self.face.events.tell(|| Event::PollMissed { after, limit });
                self.face.count(|stats| stats.late_polls += 1);
            }
            MemberEvent::CoordinatorLost => self.coordinator.handle_lost(cx.now),
            MemberEvent::CoordinatorAlive => self.coordinator.handle_alive(),
            MemberEvent::Refused { code, api, for_good } => {
                let error = faults::refused(code, api, &self.names.group);
                tracing::warn!(%error, "the group refuses this member");
                if for_good {
                    self.face.end(error);
                } else {
                    self.face.push_error(error);
                }
            }
        }
    }

    fn assign(
        &mut self,
        generation: i32,
        partitions: Vec<TopicPartition>,
        follows: bool,
        cx: &mut Context<'_>,
    ) {
        self.release = None;
        // The program has asked again since it was late: it may have been so as it joined, with
        // nothing to give up.
        self.impatient = false;
        self.face.count(|stats| stats.rebalances += 1);
        let wanted: BTreeSet<&TopicPartition> = partitions.iter().collect();
        let before = self.face.shared_out();
        // Without an unbroken row of generations another member may have read in between.
        let (kept, gone): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|partition| follows && wanted.contains(partition));
        self.drop_parts(&gone);
        self.tell_gone(gone, |partitions| {
            if follows {
                Event::PartitionsRevoked { partitions }
            } else {
                Event::PartitionsLost { partitions }
            }
        });
        let known: BTreeSet<&TopicPartition> = kept.iter().collect();
        let fresh: Vec<TopicPartition> =
            partitions.iter().filter(|partition| !known.contains(partition)).cloned().collect();
        let mut placing = Vec::with_capacity(fresh.len());
        for partition in &fresh {
            let (lease, position) = (self.face.id(), self.face.id());
            if !self.face.add(partition.clone(), lease, position) {
                // The program has assigned others by now, and this member is about to leave.
                continue;
            }
            self.commits.handle_leased(partition, lease);
            self.fetcher.assign(partition.clone(), position, cx.now);
            if let Some(topic) = cx.metadata.cluster().topic(&partition.topic) {
                self.fetcher.handle_topic(partition, topic.id);
            }
            placing.push((partition.clone(), position));
        }
        self.face.events.tell(|| Event::PartitionsAssigned { partitions: fresh, generation });
        self.face.tell_assigned(&partitions);
        for partition in &kept {
            self.face.release(partition);
        }
        self.face.set_refill_below(self.fetcher.refill_below());
        self.look_up(placing, cx.now);
        self.begin_auto_commit(cx.now);
    }

    pub(super) fn begin_auto_commit(&mut self, now: Instant) {
        if self.config.auto_commit {
            self.auto_commit_at.get_or_insert(now + self.config.auto_commit_interval);
        }
    }

    /// Tells of partitions that went, if there are any.
    fn tell_gone(
        &self,
        gone: Vec<TopicPartition>,
        event: impl FnOnce(Vec<TopicPartition>) -> Event,
    ) {
        if !gone.is_empty() {
            self.face.events.tell(|| event(gone));
        }
    }

    pub(super) fn look_up(&mut self, parts: Vec<(TopicPartition, u64)>, at: Instant) {
        if !parts.is_empty() {
            let id = self.id();
            let partitions = parts.iter().map(|(partition, _)| partition.clone()).collect();
            self.placing.insert(id, parts);
            self.lookups.push(id, partitions, None, at);
        }
    }

    /// Another member's from now on: nothing of them is delivered or committed any more.
    fn drop_parts(&mut self, partitions: &[TopicPartition]) {
        self.face.remove(partitions);
        for partition in partitions {
            self.fetcher.remove(partition);
            self.commits.handle_lost(partition);
        }
        self.place_no_more(partitions);
        self.face.set_refill_below(self.fetcher.refill_below());
    }

    /// Nobody wants to know any more where these begin.
    pub(super) fn place_no_more(&mut self, partitions: &[TopicPartition]) {
        let partitions: BTreeSet<&TopicPartition> = partitions.iter().collect();
        self.unplaced.retain(|(partition, _)| !partitions.contains(partition));
        let lookups = &mut self.lookups;
        self.placing.retain(|&id, parts| {
            parts.retain(|(partition, _)| !partitions.contains(partition));
            if parts.is_empty() {
                lookups.cancel(id);
            }
            !parts.is_empty()
        });
    }

    /// Begins assigned partitions where the group has come to.
    pub(super) fn place(
        &mut self,
        parts: Vec<(TopicPartition, u64)>,
        result: LookupResult,
        cx: &mut Context<'_>,
    ) {
        let found = match result {
            Ok(found) => found,
            Err(fault) => {
                self.face.push_error(faults::lookup(fault));
                return self.look_up(parts, cx.now + LOOKUP_PAUSE);
            }
        };
        let mut untold = Vec::new();
        for (partition, position) in parts {
            // As long as nothing is known of a topic, another may come under its name unnoticed, in
            // which that offset is nobody's.
            let Some(topic) = cx.metadata.cluster().topic(&partition.topic) else {
                untold.push((partition, position));
                cx.metadata.request_refresh(cx.now);
                continue;
            };
            self.fetcher.handle_topic(&partition, topic.id);
            match found.get(&partition) {
                Some(&Some(Committed { offset, leader_epoch, ref metadata })) => {
                    self.face.begin(&partition, position, offset);
                    if let Some(text) = metadata {
                        let committed = (offset, leader_epoch);
                        self.face.pass_finished(&partition, position, committed, text);
                    }
                    self.fetcher.place(&partition, position, offset, leader_epoch);
                }
                Some(None) => self.reset(&partition, position, cx.now_ms),
                // No word is not the word that nothing is committed.
                None => untold.push((partition, position)),
            }
        }
        self.look_up(untold, cx.now + LOOKUP_PAUSE);
    }

    /// Begins a partition that has no committed offset.
    pub(super) fn reset(&mut self, partition: &TopicPartition, position: u64, now_ms: i64) {
        if self.is_choosing() && !self.first_counts.contains_key(&partition.topic) {
            // Whether it was there from the first on is still to be told.
            return self.unplaced.push((partition.clone(), position));
        }
        let known = self.first_counts.get(&partition.topic).copied().unwrap_or(i32::MAX);
        let start = match start(self.config.reset, now_ms) {
            // A partition that came after the group began: none of its records was ever skipped.
            Some(Start::Latest) if partition.partition >= known => Start::Earliest,
            Some(start) => start,
            None => {
                let error = faults::no_offset(partition, &self.names.group);
                return self.face.fault(partition, position, error);
            }
        };
        self.face.count(|stats| stats.starts += 1);
        self.tell_reset(partition, None, start);
        tracing::info!(%partition, ?start, "no committed offset: starting by auto.offset.reset");
        self.fetcher.place_start(partition, position, start);
    }

    /// Begins a partition anew whose offset is not in the log any more.
    pub(super) fn reset_out_of_range(
        &mut self,
        partition: &TopicPartition,
        position: u64,
        offset: i64,
        now_ms: i64,
    ) {
        let Some(start) = start(self.config.reset, now_ms) else {
            let error = faults::out_of_range(partition, offset);
            return self.face.fault(partition, position, error);
        };
        self.face.count(|stats| stats.resets += 1);
        self.tell_reset(partition, Some(offset), start);
        tracing::warn!(%partition, offset, ?start, "offset out of range: starting anew");
        // What is ready lies before the gap, and is still to be given out; then the new place counts.
        if let Some((position, held)) = self.face.jump(partition, position) {
            self.fetcher.renumber(partition, position, held);
            self.fetcher.seek_start(partition, position, start);
        }
    }

    fn tell_reset(&self, partition: &TopicPartition, offset: Option<i64>, start: Start) {
        let partition = || partition.clone();
        self.face.events.tell(|| Event::OffsetReset {
            partition: partition(),
            offset,
            to: ResetTo::from(start),
        });
    }

    fn parts_of(&self, which: &Which) -> Vec<TopicPartition> {
        let mut parts = self.face.shared_out();
        parts.retain(|partition| which.contains(partition));
        parts
    }

    /// Gives partitions up step by step. Whether something was done that may lead on.
    pub(super) fn advance_release(&mut self, now: Instant) -> bool {
        let leaving = self.membership.is_going();
        let Some(release) = &mut self.release else { return false };
        match release.step {
            Step::Waiting => {
                let patient = !self.impatient && !leaving;
                if patient && self.face.attend_busy(&release.which) {
                    return false;
                }
                // Who does not ask is told when it is too late.
                let told =
                    if self.impatient { None } else { self.face.tell_revoked(&release.which) };
                match told {
                    Some(id) => release.step = Step::Telling { id },
                    None => self.flush(now),
                }
            }
            Step::Telling { id } => {
                let waits = !self.impatient && !left_out("going_awaited");
                if waits && !self.face.is_told(id) {
                    return false;
                }
                self.flush(now);
            }
            Step::Flushing { until } => {
                if self.commits.is_open(&release.which) && until > now {
                    return false;
                }
                self.finish_release(now);
            }
        }
        true
    }

    /// Commits what is finished of what is given up.
    fn flush(&mut self, now: Instant) {
        let choosing = self.is_choosing();
        let Some(release) = &mut self.release else { return };
        if self.config.auto_commit && !choosing {
            self.commits.push(self.face.uncommitted_and_left(&release.which));
        }
        let until = now + self.config.common.request_timeout;
        let until = self.closing.as_ref().map_or(until, |closing| closing.deadline);
        release.step = Step::Flushing { until };
    }

    fn finish_release(&mut self, now: Instant) {
        let Some(Release { which, .. }) = self.release.take() else { return };
        self.impatient = false;
        // Who leaves comes back as another member, also if it has subscribed anew meanwhile.
        if self.membership.is_going() || which != Which::All {
            let gone = self.parts_of(&which);
            self.drop_parts(&gone);
            self.tell_gone(gone, |partitions| Event::PartitionsRevoked { partitions });
        }
        self.membership.handle_released(now);
    }
}

fn listed(partitions: &[TopicPartition]) -> String {
    let names: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    names.join(", ")
}

pub(super) fn start(reset: Reset, now_ms: i64) -> Option<Start> {
    match reset {
        Reset::Latest => Some(Start::Latest),
        Reset::Earliest => Some(Start::Earliest),
        Reset::Before(millis) => Some(Start::Time(now_ms.saturating_sub(millis).max(0))),
        Reset::None => None,
    }
}
