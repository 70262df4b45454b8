//! The groups of one offsets partition, with their committed offsets.
//!
//! Everything here is decided at once and appended in the order of the decisions; the caller keeps
//! each answer back until all records decided up to then are committed.

mod admin;
mod count;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use ottla_protocol::{ErrorCode, Uuid};

pub(crate) use self::admin::GroupSummary;
pub(crate) use self::count::GroupCount;
use self::count::Known;
use super::group::{
    Answer, Decision, Group, GroupLimits, GroupValue, JoinAnswer, JoinRequest, LeaveRequest, Now,
    PhaseName, SyncAnswer, SyncRequest, Token,
};
use super::group_records::subscribed_topics;
use super::offsets::{Committed, Expiry, Offsets, PartitionName};
use crate::state::hash::HashMap;

/// One record of `__consumer_offsets`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupRecord {
    /// A classic group; no value: it is gone.
    Group {
        /// The group's id.
        group: Arc<str>,
        /// What it is.
        value: Option<GroupValue>,
    },
    /// A committed offset; no value: it is gone.
    Offset {
        /// The group's id.
        group: Arc<str>,
        /// What it is an offset of.
        partition: PartitionName,
        /// What was committed.
        value: Option<Committed>,
    },
}

/// What a request, a deadline or a sweep leads to.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// To be appended, in this order, in one batch; already replayed.
    pub(crate) records: Vec<GroupRecord>,
    /// To be sent once everything decided so far is committed.
    pub(crate) answers: Vec<(Token, Answer)>,
}

/// An OffsetCommit, its topics already found.
#[derive(Debug, Clone)]
pub(crate) struct CommitRequest<'a> {
    /// Empty without group use.
    pub(crate) member_id: &'a str,
    /// Its `group.instance.id`.
    pub(crate) instance_id: Option<&'a str>,
    /// Below zero without group use.
    pub(crate) generation: i32,
    /// How long the client wants the offsets to be kept (OffsetCommit 2 to 4).
    pub(crate) retention_ms: Option<i64>,
    /// What is committed.
    pub(crate) offsets: Vec<CommitOffset<'a>>,
}

/// One offset that is to be committed.
#[derive(Debug, Clone)]
pub(crate) struct CommitOffset<'a> {
    /// The partition.
    pub(crate) partition: PartitionName,
    /// The topic's id.
    pub(crate) topic_id: Uuid,
    /// The offset.
    pub(crate) offset: i64,
    /// The leader epoch of the record before it, or -1.
    pub(crate) leader_epoch: i32,
    /// What the client notes with it.
    pub(crate) metadata: &'a str,
}

/// All groups of one offsets partition.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    limits: GroupLimits,
    by_id: HashMap<Arc<str>, Group>,
    offsets: Offsets,
    /// Those that are there: by members, by what is stored of them, or by offsets alone.
    known: Known,
    /// When each group wants to be looked at; never later than its own `poll_timeout`.
    deadlines: BTreeSet<(Instant, Arc<str>)>,
    scheduled: HashMap<Arc<str>, Instant>,
}

impl Groups {
    /// No groups yet, and none anywhere else.
    #[cfg(test)]
    pub(crate) fn new(limits: GroupLimits) -> Self {
        Self::counted(limits, GroupCount::default())
    }

    /// No groups yet; those that come count with others'.
    pub(crate) fn counted(limits: GroupLimits, count: GroupCount) -> Self {
        Self { limits, known: Known::new(count), ..Self::default() }
    }

    /// The offsets.
    pub(crate) fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    /// A group, if there is one.
    #[cfg(test)]
    pub(crate) fn group(&self, id: &str) -> Option<&Group> {
        self.by_id.get(id)
    }

    /// What the log holds of the groups, for comparison.
    #[cfg(test)]
    pub(crate) fn stored(&self) -> std::collections::BTreeMap<Arc<str>, GroupValue> {
        let stored = self.by_id.iter();
        let stored = stored.filter_map(|(id, group)| Some((id.clone(), group.stored()?.clone())));
        stored.collect()
    }

    /// Takes over what a record says.
    pub(crate) fn replay(&mut self, record: &GroupRecord) {
        match record {
            GroupRecord::Group { group, value: Some(value) } => {
                self.opened(group).replay(value);
            }
            GroupRecord::Group { group, value: None } => {
                self.by_id.remove(group);
                self.unschedule(group);
                self.count(group);
            }
            GroupRecord::Offset { group, partition, value } => {
                self.offsets.replay(group, partition, value.as_ref());
                self.count(group);
            }
        }
    }

    /// Whether a group that is not there may begin; takes its place among all that there may be.
    ///
    /// POLICY_VIOLATION, as where partitions are too many: a client gives up at once and says why.
    /// COORDINATOR_NOT_AVAILABLE would have it ask again and again, and nobody would know.
    fn admit(&mut self, group: &str) -> Result<(), ErrorCode> {
        let admitted = self.known.try_add(group, self.limits.groups_max);
        if admitted { Ok(()) } else { Err(ErrorCode::POLICY_VIOLATION) }
    }

    /// Counts a group that came into being or went.
    fn count(&mut self, group: &Arc<str>) {
        self.known.set(group, self.by_id.contains_key(group) || self.offsets.has(group));
    }

    /// Starts the timers after the log was read back.
    pub(crate) fn handle_loaded(&mut self, now: Now) {
        let ids: Vec<_> = self.by_id.keys().cloned().collect();
        for id in ids {
            if let Some(group) = self.by_id.get_mut(&id) {
                group.handle_loaded(now);
            }
            self.schedule(&id);
        }
    }

    /// Decides a JoinGroup.
    pub(crate) fn join(
        &mut self,
        token: Token,
        group: &str,
        request: &JoinRequest<'_>,
        now: Now,
    ) -> Turn {
        let limits = self.limits;
        let session = request.member.session_timeout_ms;
        let refused = if group.is_empty() {
            Some(ErrorCode::INVALID_GROUP_ID)
        } else if session < limits.session_timeout_min_ms || session > limits.session_timeout_max_ms
        {
            Some(ErrorCode::INVALID_SESSION_TIMEOUT)
        } else if !self.by_id.contains_key(group) && !request.member_id.is_empty() {
            Some(ErrorCode::UNKNOWN_MEMBER_ID)
        } else {
            self.admit(group).err()
        };
        if let Some(error) = refused {
            let answer = JoinAnswer::refused(error, Arc::from(request.member_id));
            return Turn { records: Vec::new(), answers: vec![(token, Answer::Join(answer))] };
        }
        let id: Arc<str> = Arc::from(group);
        self.opened(&id);
        self.in_group(&id, |group, out| group.join(token, request, &limits, now, out))
    }

    /// Decides a SyncGroup.
    pub(crate) fn sync(
        &mut self,
        token: Token,
        group: &str,
        request: &SyncRequest<'_>,
        now: Now,
    ) -> Turn {
        match self.known(group) {
            Ok(id) => {
                let limits = self.limits;
                self.in_group(&id, |group, out| group.sync(token, request, &limits, now, out))
            }
            Err(error) => Turn::answer(token, Answer::Sync(SyncAnswer::refused(error))),
        }
    }

    /// Decides a Heartbeat.
    pub(crate) fn heartbeat(
        &mut self,
        token: Token,
        group: &str,
        member: (&str, Option<&str>),
        generation: i32,
        now: Now,
    ) -> Turn {
        // A heartbeat only ever moves a deadline back, so nothing is scheduled anew.
        let (member_id, instance_id) = member;
        let error = match self.by_id.get_mut(group) {
            Some(group) => group.heartbeat(member_id, instance_id, generation, now),
            None if group.is_empty() => ErrorCode::INVALID_GROUP_ID,
            None => ErrorCode::UNKNOWN_MEMBER_ID,
        };
        Turn::answer(token, Answer::Heartbeat(error))
    }

    /// Decides a LeaveGroup.
    pub(crate) fn leave(
        &mut self,
        token: Token,
        group: &str,
        request: &LeaveRequest<'_>,
        now: Now,
    ) -> Turn {
        match self.known(group) {
            Ok(id) => self.in_group(&id, |group, out| group.leave(token, request, now, out)),
            Err(ErrorCode::INVALID_GROUP_ID) => {
                Turn::answer(token, Answer::Leave(Err(ErrorCode::INVALID_GROUP_ID)))
            }
            Err(error) => {
                let outcomes = request.members.iter().map(|member| member.outcome(error));
                Turn::answer(token, Answer::Leave(Ok(outcomes.collect())))
            }
        }
    }

    /// Decides an OffsetCommit: an error for all, or one code an offset, in order.
    pub(crate) fn commit(
        &mut self,
        group: &str,
        request: &CommitRequest<'_>,
        now: Now,
    ) -> (Turn, Result<Vec<ErrorCode>, ErrorCode>) {
        let checked = match self.by_id.get_mut(group) {
            Some(group) => {
                let member = (request.member_id, request.instance_id);
                group.check_commit(member.0, member.1, request.generation, now)
            }
            None if request.generation < 0 => Ok(()),
            // A group of offsets alone is there and has no members.
            None if self.offsets.has(group) => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            None => Err(ErrorCode::ILLEGAL_GENERATION),
        };
        if let Err(error) = checked {
            return (Turn::default(), Err(error));
        }
        if let Err(error) = self.admit(group) {
            return (Turn::default(), Err(error));
        }
        let id: Arc<str> = Arc::from(group);
        let mut turn = Turn::default();
        let mut codes = Vec::with_capacity(request.offsets.len());
        for wanted in &request.offsets {
            if wanted.metadata.len() > self.limits.offset_metadata_max {
                codes.push(ErrorCode::OFFSET_METADATA_TOO_LARGE);
                continue;
            }
            codes.push(ErrorCode::NONE);
            let value = Committed {
                offset: wanted.offset,
                leader_epoch: wanted.leader_epoch,
                metadata: Arc::from(wanted.metadata),
                commit_ms: now.ms,
                expire_ms: request.retention_ms.map(|kept| now.ms.saturating_add(kept)),
                topic_id: wanted.topic_id,
            };
            let partition = wanted.partition.clone();
            let record = GroupRecord::Offset { group: id.clone(), partition, value: Some(value) };
            self.replay(&record);
            turn.records.push(record);
        }
        // One of whose offsets none was taken is not there.
        self.count(&id);
        (turn, Ok(codes))
    }

    /// When [`Groups::handle_timeout`] has something to do, if nothing else happens.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Now) -> Turn {
        let mut turn = Turn::default();
        while let Some((deadline, id)) = self.deadlines.first().cloned() {
            if deadline > now.at {
                break;
            }
            self.unschedule(&id);
            let due = self.in_group(&id, |group, out| group.handle_timeout(now, out));
            turn.records.extend(due.records);
            turn.answers.extend(due.answers);
        }
        turn
    }

    /// Removes what nobody has used for the retention: offsets, then groups without any.
    pub(crate) fn expire(&mut self, now: Now) -> Turn {
        let mut turn = Turn::default();
        let ids: BTreeSet<_> = self.offsets.groups().chain(self.by_id.keys()).cloned().collect();
        for id in ids {
            let expiry = self.expiry(&id);
            let retention = self.limits.offsets_retention_ms;
            for partition in self.offsets.expired(&id, &expiry, retention, now.ms) {
                self.remove_offset(id.clone(), partition, &mut turn);
            }
            let group = self.by_id.get(&id);
            let unused = group.is_some_and(|g| {
                g.phase() == PhaseName::Empty
                    && g.stored().is_some_and(|v| now.ms.saturating_sub(v.state_ms) >= retention)
            });
            if unused && !self.offsets.has(&id) {
                let record = GroupRecord::Group { group: id, value: None };
                self.replay(&record);
                turn.records.push(record);
            }
        }
        turn
    }

    /// Removes the offsets of a topic that was deleted.
    pub(crate) fn forget_topic(&mut self, topic: &str) -> Turn {
        let mut turn = Turn::default();
        for (group, partition) in self.offsets.of_topic(topic) {
            self.remove_offset(group, partition, &mut turn);
        }
        turn
    }

    /// Sends all parked requests away, because the groups are no longer served here.
    pub(crate) fn abandon(&mut self, error: ErrorCode) -> Vec<(Token, Answer)> {
        let mut out = Decision::default();
        for group in self.by_id.values_mut() {
            group.abandon(error, &mut out);
        }
        out.answers
    }

    fn remove_offset(&mut self, group: Arc<str>, partition: PartitionName, turn: &mut Turn) {
        let record = GroupRecord::Offset { group, partition, value: None };
        self.replay(&record);
        turn.records.push(record);
    }

    /// Which of a group's offsets may go. Kafka: `ClassicGroup.offsetExpirationCondition`.
    fn expiry(&self, id: &str) -> Expiry {
        let Some(group) = self.by_id.get(id) else {
            return Expiry::ByCommit { subscribed: BTreeSet::new() };
        };
        let Some(stored) = group.stored() else { return Expiry::Never };
        if stored.protocol_type.is_empty() {
            return Expiry::ByCommit { subscribed: BTreeSet::new() };
        }
        match group.phase() {
            PhaseName::Empty => Expiry::EmptySince(stored.state_ms),
            PhaseName::Stable if &*stored.protocol_type == "consumer" => {
                let members = stored.members.iter();
                let topics = members.map(|member| subscribed_topics(&member.subscription));
                // One subscription that we cannot read may be to anything.
                let topics: Option<Vec<_>> = topics.collect();
                topics.map_or(Expiry::Never, |topics| Expiry::ByCommit {
                    subscribed: topics.into_iter().flatten().collect(),
                })
            }
            _ => Expiry::Never,
        }
    }

    /// The group of this id, which is begun if need be.
    fn opened(&mut self, id: &Arc<str>) -> &mut Group {
        let delay = self.limits.initial_delay;
        self.known.set(id, true);
        self.by_id.entry(id.clone()).or_insert_with(|| Group::new(id.clone(), delay))
    }

    /// The id of a group that is there.
    fn known(&self, group: &str) -> Result<Arc<str>, ErrorCode> {
        if group.is_empty() {
            return Err(ErrorCode::INVALID_GROUP_ID);
        }
        let known = self.by_id.get_key_value(group).map(|(id, _)| id.clone());
        known.ok_or(ErrorCode::UNKNOWN_MEMBER_ID)
    }

    /// Runs one decision on a group that is there.
    fn in_group(&mut self, id: &Arc<str>, decide: impl FnOnce(&mut Group, &mut Decision)) -> Turn {
        let mut out = Decision::default();
        if let Some(group) = self.by_id.get_mut(id) {
            decide(group, &mut out);
            if group.is_forgettable() {
                self.by_id.remove(id);
                self.count(id);
            }
        }
        self.schedule(id);
        let values = out.groups.into_iter();
        let records =
            values.map(|value| GroupRecord::Group { group: id.clone(), value: Some(value) });
        Turn { records: records.collect(), answers: out.answers }
    }

    fn schedule(&mut self, id: &Arc<str>) {
        self.unschedule(id);
        if let Some(deadline) = self.by_id.get(id).and_then(Group::poll_timeout) {
            self.deadlines.insert((deadline, id.clone()));
            self.scheduled.insert(id.clone(), deadline);
        }
    }

    fn unschedule(&mut self, id: &Arc<str>) {
        if let Some(deadline) = self.scheduled.remove(id) {
            self.deadlines.remove(&(deadline, id.clone()));
        }
    }
}

impl Turn {
    fn answer(token: Token, answer: Answer) -> Self {
        Self { records: Vec::new(), answers: vec![(token, answer)] }
    }
}

/// The offsets partition of a group: Java's string hash over UTF-16, as every client and tool
/// that looks into the offsets topic computes it.
pub(crate) fn partition_of(group: &str, partitions: i32) -> i32 {
    let hash = group
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    // Kafka's `Utils.abs`: the smallest i32 has no absolute value.
    hash.checked_abs().unwrap_or(0).checked_rem(partitions).unwrap_or(0)
}
