//! What a member makes of the coordinator's answers: one table for all APIs of the group.

use std::time::Instant;

use ottla_protocol::ErrorCode;

use super::{App, JoinAnswer, Joined, Led, MemberEvent, Membership, Stage, SyncAnswer, Then};
use crate::error::Error;
use crate::state::token::Token;

/// What to do about an error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Ask again after a while.
    Later,
    /// Find the coordinator, then ask again.
    Coordinator,
    /// The group no longer knows the member or its generation.
    Lost,
    /// Make way for a rebalance.
    Rebalance,
    /// Tell the application, which may go on asking.
    Refused,
    /// Tell the application; asking again cannot help.
    Fatal,
}

const fn verdict(code: ErrorCode) -> Verdict {
    match code {
        ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => Verdict::Coordinator,
        ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION => Verdict::Lost,
        ErrorCode::REBALANCE_IN_PROGRESS => Verdict::Rebalance,
        ErrorCode::GROUP_AUTHORIZATION_FAILED | ErrorCode::GROUP_MAX_SIZE_REACHED => {
            Verdict::Refused
        }
        code if code.is_retriable() => Verdict::Later,
        _ => Verdict::Fatal,
    }
}

impl Membership {
    /// Takes the answer to a JoinGroup.
    pub(crate) fn handle_join(
        &mut self,
        token: Token,
        answer: Result<JoinAnswer, Error>,
        now: Instant,
    ) {
        let subscription = match self.stage {
            Stage::Joining { token: asked, subscription } if asked == token => subscription,
            // A stale answer: the member has left or was stopped meanwhile.
            _ => return,
        };
        match answer {
            Ok(answer) => match answer.error {
                ErrorCode::NONE => self.joined(answer, subscription),
                ErrorCode::MEMBER_ID_REQUIRED => {
                    // KIP-394: a dynamic member comes again under the name it is given.
                    self.member_id = answer.identity.member_id;
                    self.events.push_back(MemberEvent::CoordinatorAlive);
                    self.stage = Stage::Unjoined { retry_at: now };
                }
                ErrorCode::REBALANCE_IN_PROGRESS => self.join_later(now),
                code => self.apply(verdict(code), code, "JoinGroup", now),
            },
            Err(_) => self.apply(Verdict::Coordinator, ErrorCode::NONE, "JoinGroup", now),
        }
    }

    fn joined(&mut self, answer: JoinAnswer, subscription: u32) {
        self.attempt = 0;
        self.events.push_back(MemberEvent::CoordinatorAlive);
        self.member_id.clone_from(&answer.identity.member_id);
        let leads = answer.leader == answer.identity.member_id;
        let led = leads.then(|| {
            let mut topics: Vec<_> =
                answer.members.iter().flat_map(|member| member.topics.iter().cloned()).collect();
            topics.sort();
            topics.dedup();
            Led { topics, counts: None }
        });
        let joined = Joined { identity: answer.identity, subscription, led };
        self.stage = if leads && !answer.skip_assignment {
            Stage::Leading { joined, members: answer.members }
        } else {
            Stage::Syncing { joined, shares: Vec::new(), asked: None }
        };
    }

    /// Takes the answer to a SyncGroup.
    pub(crate) fn handle_sync(
        &mut self,
        token: Token,
        answer: Result<SyncAnswer, Error>,
        now: Instant,
    ) {
        let joined = match &self.stage {
            Stage::Syncing { joined, asked: Some(asked), .. } if *asked == token => joined.clone(),
            // A stale answer: the member has left or was stopped meanwhile.
            _ => return,
        };
        match answer {
            Ok(answer) if answer.error.is_none() => self.assigned(joined, answer, now),
            Ok(SyncAnswer { error, .. }) => self.apply(verdict(error), error, "SyncGroup", now),
            Err(_) => self.apply(Verdict::Coordinator, ErrorCode::NONE, "SyncGroup", now),
        }
    }

    fn assigned(&mut self, joined: Joined, answer: SyncAnswer, now: Instant) {
        let generation = joined.identity.generation;
        let follows = self.kept.take().is_some_and(|kept| kept.checked_add(1) == Some(generation));
        let outdated = joined.subscription != self.subscription;
        self.attempt = 0;
        // The first beat may wait its interval: the sync itself was a sign of life.
        let beat_at = now + self.config.heartbeat_interval;
        self.stage = Stage::Stable { joined, beat_at, asked: None, release: None };
        self.events.push_back(MemberEvent::CoordinatorAlive);
        let partitions = answer.partitions;
        self.events.push_back(MemberEvent::Assigned { generation, partitions, follows });
        if outdated {
            self.begin_release(Then::Rejoin, now);
        }
    }

    /// Takes the answer to a Heartbeat.
    pub(crate) fn handle_heartbeat(
        &mut self,
        token: Token,
        answer: Result<ErrorCode, Error>,
        now: Instant,
    ) {
        match &mut self.stage {
            Stage::Stable { asked, .. } if *asked == Some(token) => *asked = None,
            // A stale answer: the generation it was about is over.
            _ => return,
        }
        match answer.map(|code| (code, verdict(code))) {
            Ok((ErrorCode::NONE, _)) => {
                self.attempt = 0;
                self.events.push_back(MemberEvent::CoordinatorAlive);
            }
            Ok((_, Verdict::Later)) => self.beat_again(now),
            Ok((_, Verdict::Rebalance)) => {
                self.events.push_back(MemberEvent::CoordinatorAlive);
                self.begin_release(Then::Rejoin, now);
            }
            Err(_) | Ok((_, Verdict::Coordinator)) => {
                self.events.push_back(MemberEvent::CoordinatorLost);
                self.beat_again(now);
            }
            Ok((code, verdict)) => self.apply(verdict, code, "Heartbeat", now),
        }
    }

    /// A beat that was not heard is repeated well before the session ends.
    fn beat_again(&mut self, now: Instant) {
        let wait = self.pace.delay(self.attempt).min(self.config.heartbeat_interval);
        self.attempt = self.attempt.saturating_add(1);
        if let Stage::Stable { beat_at, .. } = &mut self.stage {
            *beat_at = now + wait;
        }
    }

    /// Takes the answer to a LeaveGroup, whatever it is: the session ends by itself otherwise.
    pub(crate) fn handle_leave(&mut self, token: Token, now: Instant) {
        let then = match self.stage {
            Stage::Leaving { asked: Some(asked), then, .. } if asked == token => then,
            // A stale answer: the member is back already.
            _ => return,
        };
        self.left(then, now);
        if matches!(self.stage, Stage::Parked) && self.app == App::Waiting {
            self.handle_poll(now);
        }
    }

    /// The group knows this member no longer: what it held is another's.
    pub(super) fn lose(&mut self, code: ErrorCode, now: Instant) {
        let then = match &self.stage {
            Stage::Stable { release: Some(release), .. } => release.then,
            _ => Then::Rejoin,
        };
        self.drop_held();
        if code == ErrorCode::UNKNOWN_MEMBER_ID {
            self.member_id.clear();
        }
        match then {
            Then::Rejoin => self.stage = Stage::Unjoined { retry_at: now },
            then => self.leave(then, now),
        }
    }

    fn drop_held(&mut self) {
        if self.kept.take().is_some() || matches!(self.stage, Stage::Stable { .. }) {
            self.events.push_back(MemberEvent::Lost);
        }
    }

    fn apply(&mut self, verdict: Verdict, code: ErrorCode, api: &'static str, now: Instant) {
        match verdict {
            Verdict::Rebalance => {
                self.events.push_back(MemberEvent::CoordinatorAlive);
                self.stage = Stage::Unjoined { retry_at: now };
            }
            Verdict::Later => self.join_later(now),
            Verdict::Coordinator => {
                self.events.push_back(MemberEvent::CoordinatorLost);
                // The search for the coordinator has its own waits.
                self.stage = Stage::Unjoined { retry_at: now };
            }
            Verdict::Lost => {
                self.events.push_back(MemberEvent::CoordinatorAlive);
                self.lose(code, now);
            }
            Verdict::Refused | Verdict::Fatal => {
                self.drop_held();
                let for_good = verdict == Verdict::Fatal;
                self.attempt = self.attempt.saturating_add(1);
                self.stage = if for_good { Stage::Failed } else { Stage::Parked };
                self.events.push_back(MemberEvent::Refused { code, api, for_good });
            }
        }
    }

    fn join_later(&mut self, now: Instant) {
        let retry_at = now + self.pace.delay(self.attempt);
        self.attempt = self.attempt.saturating_add(1);
        self.stage = Stage::Unjoined { retry_at };
    }
}
