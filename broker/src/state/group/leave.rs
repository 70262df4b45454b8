//! LeaveGroup: members that go of their own will, or are put out by an operator.

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::{Answer, Decision, Group, LeaveOutcome, Now, Phase, Token};

/// A LeaveGroup.
#[derive(Debug, Clone)]
pub(crate) struct LeaveRequest<'a> {
    /// Who is to leave.
    pub(crate) members: Vec<LeaveMember<'a>>,
}

/// One that is to leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaveMember<'a> {
    /// Its id; empty if the instance id alone names it.
    pub(crate) member_id: &'a str,
    /// Its `group.instance.id`.
    pub(crate) instance_id: Option<&'a str>,
}

impl LeaveMember<'_> {
    /// What is answered about this one.
    pub(crate) fn outcome(&self, error: ErrorCode) -> LeaveOutcome {
        LeaveOutcome {
            member_id: Arc::from(self.member_id),
            instance_id: self.instance_id.map(Arc::from),
            error,
        }
    }
}

impl Group {
    /// Decides a LeaveGroup: each member for itself, then the group as a whole.
    pub(crate) fn leave(
        &mut self,
        token: Token,
        request: &LeaveRequest<'_>,
        now: Now,
        out: &mut Decision,
    ) {
        let mut outcomes = Vec::with_capacity(request.members.len());
        let members = self.members.len();
        for member in &request.members {
            let left = self.leave_one(*member, out);
            outcomes.push(member.outcome(left.err().unwrap_or(ErrorCode::NONE)));
        }
        out.answer(token, Answer::Leave(Ok(outcomes)));
        // An id that nobody used yet only matters where the others wait for it.
        if self.members.len() != members || matches!(self.phase, Phase::Preparing { .. }) {
            self.rebalance(now, out);
        }
    }

    fn leave_one(&mut self, member: LeaveMember<'_>, out: &mut Decision) -> Result<(), ErrorCode> {
        if self.pending.remove(member.member_id).is_some() {
            return Ok(());
        }
        if member.member_id.is_empty() {
            let holder = member.instance_id.and_then(|instance| self.instances.get(instance));
            let holder = holder.cloned().ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
            self.remove_member(&holder, out);
            return Ok(());
        }
        self.check_member(member.member_id, member.instance_id)?;
        self.remove_member(member.member_id, out);
        Ok(())
    }
}
