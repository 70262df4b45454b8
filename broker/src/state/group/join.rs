//! JoinGroup: who may come in, and whether that puts the group together anew.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ErrorCode, left_out};

use super::member::{Member, MemberId, MemberSetup, Protocol};
use super::{Answer, Decision, Group, GroupLimits, JoinAnswer, Now, Phase, Token, duration};

/// Ids given out and not used yet, a group. Each costs its client one request, so they must be
/// bounded or a client that never comes back with its id could fill the memory.
const PENDING_MAX: usize = 10_000;

/// Longest time for which an id is kept for a member that has not used it.
const PENDING_WAIT: Duration = Duration::from_mins(5);

/// Most protocols that a member may offer. Clients have one or two; all of a group's are compared
/// with each other.
const PROTOCOLS_MAX: usize = 64;

/// A JoinGroup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinRequest<'a> {
    /// Empty for a member that has no id yet.
    pub(crate) member_id: &'a str,
    /// What it says about itself.
    pub(crate) member: MemberSetup<'a>,
    /// `consumer`, `connect`, …
    pub(crate) protocol_type: &'a str,
    /// Whether a new dynamic member is sent away with its id first: JoinGroup from version 4.
    pub(crate) id_required: bool,
    /// Whether its client can be told to keep the assignment: JoinGroup from version 9.
    pub(crate) can_skip_assignment: bool,
    /// Makes a new id unique; drawn by the caller.
    pub(crate) fresh: &'a str,
}

impl JoinRequest<'_> {
    /// The id of a new member: where it comes from, and something unique.
    fn new_id(&self) -> MemberId {
        let name = self.member.instance_id.unwrap_or(self.member.client_id);
        Arc::from(format!("{name}-{}", self.fresh))
    }
}

impl Group {
    /// Decides a JoinGroup: answers it, or parks it until the others have come.
    pub(crate) fn join(
        &mut self,
        token: Token,
        request: &JoinRequest<'_>,
        limits: &GroupLimits,
        now: Now,
        out: &mut Decision,
    ) {
        if let Err((error, member_id)) = self.try_join(token, request, limits, now, out) {
            out.answer(token, Answer::Join(JoinAnswer::refused(error, member_id)));
        }
    }

    fn try_join(
        &mut self,
        token: Token,
        request: &JoinRequest<'_>,
        limits: &GroupLimits,
        now: Now,
        out: &mut Decision,
    ) -> Result<(), (ErrorCode, MemberId)> {
        if !self.has_room(request, limits) {
            return Err((ErrorCode::GROUP_MAX_SIZE_REACHED, Arc::from("")));
        }
        let asked: MemberId = Arc::from(request.member_id);
        if request.member.protocols.len() > PROTOCOLS_MAX {
            tracing::warn!(group = %self.id, client = request.member.client_id, PROTOCOLS_MAX,
                "a member offers more protocols than this broker compares");
            return Err((ErrorCode::INCONSISTENT_GROUP_PROTOCOL, asked));
        }
        if !self.has_bytes_for(request, limits) {
            tracing::warn!(group = %self.id, client = request.member.client_id,
                "a member's metadata is too much for its group: group.max.bytes");
            return Err((ErrorCode::GROUP_MAX_SIZE_REACHED, asked));
        }
        if !self.supports(request.protocol_type, request.member.protocols) {
            return Err((ErrorCode::INCONSISTENT_GROUP_PROTOCOL, asked));
        }
        if !request.member_id.is_empty() {
            let joined = self.join_known(token, &asked, request, now, out);
            return joined.map_err(|error| (error, asked));
        }
        let id = request.new_id();
        let holder = request.member.instance_id.and_then(|instance| self.instances.get(instance));
        match holder.cloned() {
            Some(_) if left_out("newer_takes_over") => {
                return Err((ErrorCode::FENCED_INSTANCE_ID, id));
            }
            Some(old) => self.take_over(token, &old, id, request, now, out),
            None if request.member.instance_id.is_none() && request.id_required => {
                if self.pending.len() >= PENDING_MAX.min(limits.members_max) {
                    return Err((ErrorCode::GROUP_MAX_SIZE_REACHED, Arc::from("")));
                }
                let kept = duration(request.member.session_timeout_ms).min(PENDING_WAIT);
                self.pending.insert(id.clone(), now.at + kept);
                return Err((ErrorCode::MEMBER_ID_REQUIRED, id));
            }
            None => {
                self.add_member(token, id, request, now);
                self.rebalance(now, out);
            }
        }
        Ok(())
    }

    /// A JoinGroup that brings an id.
    fn join_known(
        &mut self,
        token: Token,
        id: &MemberId,
        request: &JoinRequest<'_>,
        now: Now,
        out: &mut Decision,
    ) -> Result<(), ErrorCode> {
        if self.pending.contains_key(id) {
            if request.member.instance_id.is_some() {
                // Ids are only kept for members without an instance id.
                return Err(ErrorCode::UNKNOWN_MEMBER_ID);
            }
            self.add_member(token, id.clone(), request, now);
            self.rebalance(now, out);
            return Ok(());
        }
        self.check_member(id, request.member.instance_id)?;
        let is_leader = self.leader.as_ref() == Some(id);
        let same = self.members.get(id).is_some_and(|m| m.protocols == request.member.protocols);
        match self.phase {
            Phase::Empty => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            // The same question again: the first answer was lost on the way.
            Phase::Completing { .. } if same => self.answer_again(token, id, is_leader, now, out),
            Phase::Stable { .. } if same && !is_leader => {
                self.answer_again(token, id, false, now, out);
            }
            Phase::Preparing { .. } | Phase::Completing { .. } | Phase::Stable { .. } => {
                self.update_member(token, id, request, now, out);
                self.rebalance(now, out);
            }
        }
        Ok(())
    }

    /// Tells a member the generation it is already in.
    fn answer_again(
        &mut self,
        token: Token,
        id: &MemberId,
        with_members: bool,
        now: Now,
        out: &mut Decision,
    ) {
        if let Some(member) = self.members.get_mut(id) {
            member.touch(now.at);
        }
        out.answer(token, Answer::Join(self.joined(id, with_members)));
    }

    /// KIP-345: a restarted process takes the place of the member that had its instance id.
    fn take_over(
        &mut self,
        token: Token,
        old: &MemberId,
        id: MemberId,
        request: &JoinRequest<'_>,
        now: Now,
        out: &mut Decision,
    ) {
        let Some(mut member) = self.members.remove(old) else { return };
        let fenced = if left_out("parked_fenced") {
            ErrorCode::REBALANCE_IN_PROGRESS
        } else {
            ErrorCode::FENCED_INSTANCE_ID
        };
        member.answer_parked(old, fenced, out);
        let old_leader = self.leader.clone();
        if old_leader.as_ref() == Some(old) {
            self.leader = Some(id.clone());
        }
        if let Some(instance) = &member.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        if let Phase::Completing { unsynced } | Phase::Stable { unsynced: Some(unsynced) } =
            &mut self.phase
        {
            unsynced.members.remove(old);
        }
        member.client_id = Arc::from(request.member.client_id);
        member.client_host = Arc::from(request.member.client_host);
        self.members.insert(id.clone(), member);
        self.update_member(token, &id, request, now, out);
        let kept = matches!(self.phase, Phase::Stable { .. })
            && self.select_protocol().as_ref() == self.protocol.as_ref();
        if !kept {
            self.rebalance(now, out);
            return;
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.joining = None;
            member.touch(now.at);
        }
        let value = self.value(now, |_, member| member.assignment.clone());
        self.store(value, out);
        let is_leader = self.leader.as_ref() == Some(&id);
        let mut answer = self.joined(&id, is_leader && request.can_skip_assignment);
        if request.can_skip_assignment {
            answer.skip_assignment = is_leader;
        } else if let Some(old_leader) = old_leader {
            // An older client that is told it leads would compute an assignment that nobody wants:
            // it gets the name of the leader that was.
            answer.leader = old_leader;
        }
        out.answer(token, Answer::Join(answer));
    }

    /// The answer that tells a member its generation.
    pub(super) fn joined(&self, id: &MemberId, with_members: bool) -> JoinAnswer {
        let protocol = self.protocol.as_deref().unwrap_or("");
        let members = if with_members {
            let members = self.members.iter().map(|(id, member)| super::JoinedMember {
                id: id.clone(),
                instance_id: member.instance_id.clone(),
                metadata: member.metadata(protocol),
            });
            members.collect()
        } else {
            Vec::new()
        };
        JoinAnswer {
            error: ErrorCode::NONE,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_else(|| Arc::from("")),
            skip_assignment: false,
            member_id: id.clone(),
            members,
        }
    }

    fn add_member(&mut self, token: Token, id: MemberId, request: &JoinRequest<'_>, now: Now) {
        self.pending.remove(&id);
        if let Phase::Preparing { deadline, delayed_until: Some(last) } = &mut self.phase {
            *deadline = (now.at + self.initial_delay).min(*last);
        }
        if self.members.is_empty() {
            self.protocol_type = Some(Arc::from(request.protocol_type));
        }
        if self.leader.is_none() {
            self.leader = Some(id.clone());
        }
        let member = Member::joining(request.member, token, now.at);
        if let Some(instance) = &member.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        self.members.insert(id, member);
    }

    /// Parks the new JoinGroup of a member that is known.
    fn update_member(
        &mut self,
        token: Token,
        id: &MemberId,
        request: &JoinRequest<'_>,
        now: Now,
        out: &mut Decision,
    ) {
        let Some(member) = self.members.get_mut(id) else { return };
        // An older request of the same member: its connection is most likely gone.
        member.answer_parked(id, ErrorCode::REBALANCE_IN_PROGRESS, out);
        member.protocols = request.member.protocols.to_vec();
        member.rebalance_timeout = duration(request.member.rebalance_timeout_ms);
        member.session_timeout = duration(request.member.session_timeout_ms);
        member.joining = Some(token);
        if !member.is_new {
            member.touch(now.at);
        }
    }

    /// Whether `group.max.size` leaves a place for this member.
    fn has_room(&self, request: &JoinRequest<'_>, limits: &GroupLimits) -> bool {
        let instance = request.member.instance_id;
        let holder = instance.and_then(|instance| self.instances.get(instance));
        let member_id = holder.map_or(request.member_id, |holder| &**holder);
        match self.phase {
            Phase::Empty => limits.members_max > 0,
            Phase::Preparing { .. } => {
                let waits = self.members.get(member_id).is_some_and(|m| m.joining.is_some());
                let waiting = self.members.values().filter(|m| m.joining.is_some()).count();
                waits || waiting < limits.members_max
            }
            Phase::Completing { .. } | Phase::Stable { .. } => {
                self.members.contains_key(member_id) || self.members.len() < limits.members_max
            }
        }
    }

    /// Whether `group.max.bytes` leaves room for what this member brings along.
    fn has_bytes_for(&self, request: &JoinRequest<'_>, limits: &GroupLimits) -> bool {
        let instance = request.member.instance_id;
        let holder = instance.and_then(|instance| self.instances.get(instance));
        let own = holder.map_or(request.member_id, |holder| &**holder);
        let others = self.members.iter().filter(|(id, _)| ***id != *own);
        let others = others.map(|(_, member)| member.bytes()).sum::<usize>();
        others.saturating_add(request.member.bytes()) <= limits.bytes_max
    }

    /// Whether a member that speaks these protocols can be in this group.
    fn supports(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if matches!(self.phase, Phase::Empty) {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let same_type = self.protocol_type.as_deref() == Some(protocol_type);
        let common = self.common_protocols();
        let shared = protocols.iter().any(|protocol| common.contains(&protocol.name));
        same_type && (shared || (self.members.is_empty() && !protocols.is_empty()))
    }
}
