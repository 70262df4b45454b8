//! SyncGroup and Heartbeat: handing the leader's assignment on, and staying alive.

use bytes::Bytes;
use ottla_protocol::ErrorCode;

use super::{Answer, Decision, Group, GroupLimits, Now, Phase, SyncAnswer, Token};
use crate::state::hash::HashMap;

/// A SyncGroup.
#[derive(Debug, Clone)]
pub(crate) struct SyncRequest<'a> {
    /// Who asks.
    pub(crate) member_id: &'a str,
    /// Its `group.instance.id`.
    pub(crate) instance_id: Option<&'a str>,
    /// The generation it knows.
    pub(crate) generation: i32,
    /// `consumer`, …, if its version tells it.
    pub(crate) protocol_type: Option<&'a str>,
    /// The protocol it was told, if its version tells it.
    pub(crate) protocol: Option<&'a str>,
    /// From the leader: what each member is to have.
    pub(crate) assignments: Vec<(&'a str, Bytes)>,
}

impl Group {
    /// Decides a SyncGroup: answers it, or parks it until the leader's has come.
    pub(crate) fn sync(
        &mut self,
        token: Token,
        request: &SyncRequest<'_>,
        limits: &GroupLimits,
        now: Now,
        out: &mut Decision,
    ) {
        if let Err(error) = self.try_sync(token, request, limits, now, out) {
            out.answer(token, Answer::Sync(SyncAnswer::refused(error)));
        }
    }

    fn try_sync(
        &mut self,
        token: Token,
        request: &SyncRequest<'_>,
        limits: &GroupLimits,
        now: Now,
        out: &mut Decision,
    ) -> Result<(), ErrorCode> {
        self.check_sync(request)?;
        let given = request.assignments.iter().map(|(_, assignment)| assignment.len());
        if given.fold(0, usize::saturating_add) > limits.bytes_max {
            tracing::warn!(group = %self.id, leader = request.member_id,
                "an assignment is too much for its group: group.max.bytes");
            // As Kafka answers for a group that is too large for a record of the offsets topic.
            return Err(ErrorCode::UNKNOWN_SERVER_ERROR);
        }
        match &mut self.phase {
            Phase::Empty => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            Phase::Preparing { .. } => return Err(ErrorCode::REBALANCE_IN_PROGRESS),
            Phase::Completing { unsynced } => {
                unsynced.members.remove(request.member_id);
                if let Some(member) = self.members.get_mut(request.member_id)
                    && let Some(older) = member.syncing.replace(token)
                {
                    let refused = SyncAnswer::refused(ErrorCode::REBALANCE_IN_PROGRESS);
                    out.answer(older, Answer::Sync(refused));
                }
                if self.leader.as_deref() == Some(request.member_id) {
                    self.assign(&request.assignments, now, out);
                }
            }
            Phase::Stable { unsynced } => {
                if let Some(waiting) = unsynced {
                    waiting.members.remove(request.member_id);
                    if waiting.members.is_empty() {
                        *unsynced = None;
                    }
                }
                if let Some(member) = self.members.get_mut(request.member_id) {
                    member.touch(now.at);
                    let assignment = member.assignment.clone();
                    out.answer(token, self.synced(assignment));
                }
            }
        }
        Ok(())
    }

    fn check_sync(&self, request: &SyncRequest<'_>) -> Result<(), ErrorCode> {
        self.check_member(request.member_id, request.instance_id)?;
        if request.generation != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        // KIP-559: a member that believes in another protocol must not get an assignment of this.
        let differs = |asked: Option<&str>, is: Option<&str>| asked.is_some() && asked != is;
        if differs(request.protocol_type, self.protocol_type.as_deref())
            || differs(request.protocol, self.protocol.as_deref())
        {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        Ok(())
    }

    /// The leader has decided: store it, and tell all that wait.
    fn assign(&mut self, assignments: &[(&str, Bytes)], now: Now, out: &mut Decision) {
        let by_member: HashMap<&str, &Bytes> =
            assignments.iter().map(|(id, assignment)| (*id, assignment)).collect();
        let value = self.value(now, |id, _| {
            by_member.get(&**id).map_or_else(Bytes::new, |assignment| (*assignment).clone())
        });
        self.store(value, out);
        let mut synced = Vec::new();
        for member in self.members.values_mut() {
            if let Some(token) = member.syncing.take() {
                member.touch(now.at);
                synced.push((token, member.assignment.clone()));
            }
        }
        for (token, assignment) in synced {
            out.answer(token, self.synced(assignment));
        }
    }

    fn synced(&self, assignment: Bytes) -> Answer {
        Answer::Sync(SyncAnswer {
            error: ErrorCode::NONE,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment,
        })
    }

    /// Decides a Heartbeat.
    pub(crate) fn heartbeat(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        now: Now,
    ) -> ErrorCode {
        if let Err(error) = self.check_member(member_id, instance_id) {
            return error;
        }
        if generation != self.generation {
            return ErrorCode::ILLEGAL_GENERATION;
        }
        if let Some(member) = self.members.get_mut(member_id) {
            member.touch(now.at);
        }
        match self.phase {
            Phase::Empty => ErrorCode::UNKNOWN_MEMBER_ID,
            Phase::Preparing { .. } => ErrorCode::REBALANCE_IN_PROGRESS,
            // Clients begin to send heartbeats as soon as they have joined.
            Phase::Completing { .. } | Phase::Stable { .. } => ErrorCode::NONE,
        }
    }
}
