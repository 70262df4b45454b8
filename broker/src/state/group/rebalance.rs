//! Putting a group together anew: collecting the joins, the new generation, and who is put out.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::ErrorCode;

use super::member::MemberId;
use super::{Answer, Decision, Group, Now, Phase, Unsynced};

/// How long the first generation waits for members that have just been given their id.
///
/// They are one round trip away, and without them the generation after next is one heartbeat
/// interval away. With nobody on the way nothing waits: unlike Kafka's
/// `group.initial.rebalance.delay.ms` this costs a lone first member nothing.
const EXPECTED_MEMBER_WAIT: Duration = Duration::from_millis(50);

impl Group {
    /// The members changed: collect all joins again, or see whether that is all of them.
    pub(super) fn rebalance(&mut self, now: Now, out: &mut Decision) {
        if !matches!(self.phase, Phase::Preparing { .. }) {
            self.prepare(now, out);
        }
        self.complete_if_all_joined(now, out);
    }

    fn prepare(&mut self, now: Now, out: &mut Decision) {
        let first = matches!(self.phase, Phase::Empty);
        for (id, member) in &mut self.members {
            if let Some(token) = member.syncing.take() {
                let refused = super::SyncAnswer::refused(ErrorCode::REBALANCE_IN_PROGRESS);
                out.answer(token, Answer::Sync(refused));
                tracing::trace!(group = %self.id, member = %id, "sync interrupted by a rebalance");
            }
        }
        let longest = self.rebalance_timeout();
        let delayed = first && !self.initial_delay.is_zero();
        let wait = match (first, delayed) {
            (_, true) => longest.min(self.initial_delay),
            (true, false) => longest.min(EXPECTED_MEMBER_WAIT),
            (false, false) => longest,
        };
        tracing::debug!(
            group = %self.id, generation = self.generation, members = self.members.len(),
            "group is put together anew"
        );
        let delayed_until = delayed.then_some(now.at + longest);
        self.phase = Phase::Preparing { deadline: now.at + wait, delayed_until };
    }

    /// The longest time any member asked for.
    fn rebalance_timeout(&self) -> Duration {
        self.members.values().map(|m| m.rebalance_timeout).max().unwrap_or(Duration::ZERO)
    }

    fn complete_if_all_joined(&mut self, now: Now, out: &mut Decision) {
        let Phase::Preparing { delayed_until, .. } = self.phase else { return };
        let all = self.members.values().all(|member| member.joining.is_some());
        // The last member is gone: those that were given an id start a group of their own.
        let nobody = self.members.is_empty();
        let complete = all && self.pending.is_empty() && delayed_until.is_none();
        if nobody || complete {
            self.complete_join(now, out);
        }
    }

    /// Begins the next generation with those that came.
    fn complete_join(&mut self, now: Now, out: &mut Decision) {
        let absent = self.members.iter().filter(|(_, m)| m.joining.is_none());
        let gone = absent.filter(|(_, m)| m.instance_id.is_none()).map(|(id, _)| id.clone());
        for id in gone.collect::<Vec<_>>() {
            tracing::info!(group = %self.id, member = %id, "put out: did not rejoin in time");
            self.remove_member(&id, out);
        }
        if self.members.is_empty() {
            self.become_empty(now, out);
            return;
        }
        if !self.elect_leader() {
            // Static members alone, and none of them came: they keep their place until their
            // session ends.
            let deadline = now.at + self.rebalance_timeout();
            self.phase = Phase::Preparing { deadline, delayed_until: None };
            return;
        }
        self.store_ids(out);
        self.generation = self.next_generation();
        self.protocol = self.select_protocol();
        let members = self.members.keys().cloned().collect();
        let deadline = now.at + self.rebalance_timeout();
        self.phase = Phase::Completing { unsynced: Unsynced { deadline, members } };
        tracing::debug!(
            group = %self.id, generation = self.generation, members = self.members.len(),
            protocol = self.protocol.as_deref().unwrap_or(""), "new generation"
        );
        let mut joined = Vec::new();
        for (id, member) in &mut self.members {
            joined.extend(member.joining.take().map(|token| (token, id.clone())));
            member.is_new = false;
            member.touch(now.at);
        }
        for (token, id) in joined {
            let is_leader = self.leader.as_ref() == Some(&id);
            out.answer(token, Answer::Join(self.joined(&id, is_leader)));
        }
    }

    /// Notes in the log the ids by which static members are known from now on (KIP-345).
    ///
    /// The generation itself is stored with its assignment. Were the log read back before that, it
    /// would have the ids of the processes before these, and these would be fenced in their place.
    fn store_ids(&mut self, out: &mut Decision) {
        let Some(mut stored) = self.stored.clone() else { return };
        for member in &mut stored.members {
            let holder = member.instance_id.as_ref().and_then(|name| self.instances.get(name));
            let Some(holder) = holder else { continue };
            if stored.leader.as_ref() == Some(&member.id) {
                stored.leader = Some(holder.clone());
            }
            member.id = holder.clone();
        }
        if self.stored.as_ref() != Some(&stored) {
            out.groups.push(stored.clone());
            self.stored = Some(stored);
        }
    }

    /// A number that no member has seen; after the largest comes 0 again, as in Kafka.
    fn next_generation(&self) -> i32 {
        self.generation.checked_add(1).unwrap_or(0)
    }

    fn become_empty(&mut self, now: Now, out: &mut Decision) {
        self.generation = self.next_generation();
        self.protocol = None;
        self.leader = None;
        self.phase = Phase::Empty;
        tracing::debug!(group = %self.id, generation = self.generation, "group is empty");
        let value = self.value(now, |_, _| Bytes::new());
        self.store(value, out);
    }

    /// Keeps the leader if it came, else takes one that did; false if nobody came.
    fn elect_leader(&mut self) -> bool {
        let came = |id: &MemberId| self.members.get(id).is_some_and(|m| m.joining.is_some());
        if self.leader.as_ref().is_some_and(came) {
            return true;
        }
        let next = self.members.keys().find(|id| came(id)).cloned();
        let found = next.is_some();
        if found {
            self.leader = next;
        }
        found
    }

    /// The protocols that every member knows, in the leader's order.
    pub(super) fn common_protocols(&self) -> Vec<Arc<str>> {
        let leader = self.leader.as_ref().and_then(|leader| self.members.get(leader));
        let Some(first) = leader.or_else(|| self.members.values().next()) else {
            return Vec::new();
        };
        let names = first.protocols.iter().map(|protocol| protocol.name.clone());
        let mut common: Vec<_> = names.collect();
        for member in self.members.values() {
            common.retain(|name| member.protocols.iter().any(|known| known.name == *name));
        }
        common
    }

    /// The protocol most members prefer among those that all know; the leader decides a tie.
    pub(super) fn select_protocol(&self) -> Option<Arc<str>> {
        let common = self.common_protocols();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.members.values().filter_map(|member| member.vote(&common)) {
            *votes.entry(name).or_default() += 1;
        }
        let most = votes.values().copied().max()?;
        common.iter().find(|name| votes.get(&***name) == Some(&most)).cloned()
    }

    /// Takes a member out; what it has parked is answered.
    pub(super) fn remove_member(&mut self, id: &str, out: &mut Decision) {
        let Some((id, mut member)) = self.members.remove_entry(id) else { return };
        member.answer_parked(&id, ErrorCode::UNKNOWN_MEMBER_ID, out);
        if let Some(instance) = &member.instance_id
            && self.instances.get(instance) == Some(&id)
        {
            self.instances.remove(instance);
        }
        if let Phase::Completing { unsynced } | Phase::Stable { unsynced: Some(unsynced) } =
            &mut self.phase
        {
            unsynced.members.remove(&id);
        }
        if self.leader.as_ref() == Some(&id) {
            self.leader = self.members.keys().next().cloned();
        }
    }

    /// Does what is due: sessions that ended, joins and syncs that did not come.
    pub(crate) fn handle_timeout(&mut self, now: Now, out: &mut Decision) {
        let pending = self.pending.len();
        self.pending.retain(|_, deadline| *deadline > now.at);
        let mut changed =
            self.pending.len() != pending && matches!(self.phase, Phase::Preparing { .. });
        for id in self.silent_members(now.at) {
            tracing::info!(group = %self.id, member = %id, "put out: its session ended");
            self.remove_member(&id, out);
            changed = true;
        }
        for id in self.overdue_syncs(now.at) {
            tracing::info!(group = %self.id, member = %id, "put out: did not sync in time");
            self.remove_member(&id, out);
            changed = true;
        }
        if changed {
            self.rebalance(now, out);
        }
        if let Phase::Preparing { deadline, .. } = self.phase
            && deadline <= now.at
        {
            self.complete_join(now, out);
        }
    }

    fn silent_members(&self, now: Instant) -> Vec<MemberId> {
        let silent = self.members.iter().filter(|(_, m)| m.expires().is_some_and(|due| due <= now));
        silent.map(|(id, _)| id.clone()).collect()
    }

    /// The members whose time to ask for their assignment is over.
    fn overdue_syncs(&mut self, now: Instant) -> Vec<MemberId> {
        let (Phase::Completing { unsynced } | Phase::Stable { unsynced: Some(unsynced) }) =
            &mut self.phase
        else {
            return Vec::new();
        };
        if unsynced.deadline > now {
            return Vec::new();
        }
        let overdue = mem::take(&mut unsynced.members);
        if let Phase::Stable { unsynced } = &mut self.phase {
            *unsynced = None;
        }
        overdue.into_iter().collect()
    }
}
