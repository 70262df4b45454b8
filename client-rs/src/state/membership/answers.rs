//! What a member makes of the coordinator's answers: one table for all APIs of the group.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ottla_protocol::{ApiKey, ErrorCode, left_out};

use super::{
    App, JoinAnswer, Joined, Kept, Led, MemberEvent, Membership, Release, Stage, SyncAnswer, Then,
    Which,
};
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::assignor::{Assigned, Basis};
use crate::state::token::Token;

/// What to do about an error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The member is named now, and asks again at once under that name (KIP-394).
    Named,
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

/// The meaning of an error code in an answer of the group's coordinator.
pub(crate) fn verdict(api: ApiKey, code: ErrorCode) -> Verdict {
    match code {
        ErrorCode::MEMBER_ID_REQUIRED if api == ApiKey::JoinGroup => Verdict::Named,
        // The group has begun another one without it.
        ErrorCode::REBALANCE_IN_PROGRESS if api == ApiKey::JoinGroup => Verdict::Later,
        ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => Verdict::Coordinator,
        ErrorCode::FENCED_INSTANCE_ID if left_out("fenced_ends") => Verdict::Lost,
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
            Stage::Unnamed { join, then } if join == token => {
                return self.named_while_leaving(answer, then, now);
            }
            // A stale answer: the member has left or was stopped meanwhile.
            _ => return,
        };
        match answer {
            Ok(answer) => match answer.error {
                ErrorCode::NONE => self.joined(answer, subscription),
                code => {
                    if verdict(ApiKey::JoinGroup, code) == Verdict::Named {
                        self.member_id = answer.identity.member_id;
                    }
                    self.apply(code, ApiKey::JoinGroup, now);
                }
            },
            Err(_) => self.lose_coordinator(now),
        }
    }

    /// The answer to the first join of a member that leaves: now it can say goodbye.
    fn named_while_leaving(&mut self, answer: Result<JoinAnswer, Error>, then: Then, now: Instant) {
        match answer {
            Ok(JoinAnswer { identity, .. }) if !identity.member_id.is_empty() => {
                let member_id = identity.member_id;
                self.stage = Stage::Leaving { member_id, asked: None, then };
            }
            _ => self.went(then, now),
        }
    }

    fn joined(&mut self, answer: JoinAnswer, subscription: u32) {
        self.events.push_back(MemberEvent::CoordinatorAlive);
        self.returned |= self.config.instance_id.is_some() && self.member_id.is_empty();
        self.member_id.clone_from(&answer.identity.member_id);
        let leads = answer.leader == answer.identity.member_id;
        let led = leads.then(|| {
            let mut topics: Vec<_> =
                answer.members.iter().flat_map(|member| member.topics.iter().cloned()).collect();
            topics.sort();
            topics.dedup();
            Led { topics, layout: None, basis: None }
        });
        let joined =
            Joined { identity: answer.identity, strategy: answer.strategy, subscription, led };
        if let Some(kept) = &mut self.kept {
            kept.may_commit = false;
        }
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
            Ok(SyncAnswer { error, .. }) => {
                let verdict = verdict(ApiKey::SyncGroup, error);
                if let (Verdict::Rebalance, true) = (verdict, self.is_cooperative())
                    && let Some(kept) = &mut self.kept
                {
                    // What it goes on reading it tells at each join, so no generation between
                    // gives it to another.
                    *kept = Kept { identity: joined.identity, may_commit: true };
                }
                self.apply(error, ApiKey::SyncGroup, now);
            }
            Err(_) => self.lose_coordinator(now),
        }
    }

    fn assigned(&mut self, mut joined: Joined, answer: SyncAnswer, now: Instant) {
        let generation = joined.identity.generation;
        let Assigned { mut partitions, basis } = answer.assigned;
        let mut outdated =
            self.is_of_before(&partitions, basis) || joined.subscription != self.subscription;
        // Unsubscribed from while it joined, or while it was away.
        partitions.retain(|partition| self.reads(&partition.topic));
        if let Some(led) = &mut joined.led {
            led.basis = basis;
        }
        let kept = self.kept.take();
        self.attempt = 0;
        // The first beat may wait its interval: the sync itself was a sign of life.
        let beat_at = now + self.config.heartbeat_interval;
        self.stage = Stage::Stable { joined, beat_at, asked: None };
        self.events.push_back(MemberEvent::CoordinatorAlive);
        if self.release.is_some() {
            // It is about to leave, and takes nothing on.
            return;
        }
        let before = kept.and_then(|kept| kept.identity.generation.checked_add(1));
        let follows = before == Some(generation);
        if self.is_cooperative() {
            if !follows && !self.owned.is_empty() {
                // What it goes on reading it tells at each join; but a static member that is away keeps
                // its place in a generation of which it knows nothing, and its partitions may not.
                // Who gets those that it claimed and lost is decided once it no longer claims them.
                outdated |= !not_among(&self.owned, &partitions).is_empty();
                self.drop_held();
            }
            return self.assigned_beside(generation, partitions, outdated, now);
        }
        self.adopt(generation, partitions, follows);
        if outdated {
            self.begin_release(Which::All, Then::Rejoin, now);
        }
    }

    /// Whether a member that has come back was given the share of one that read other topics, or
    /// that gave up what another waits for: the group must share out anew, and nobody else sees that.
    fn is_of_before(&mut self, partitions: &[TopicPartition], basis: Option<Basis>) -> bool {
        if !std::mem::take(&mut self.returned) {
            return false;
        }
        let others = partitions.iter().any(|at| !self.reads(&at.topic));
        others
            || basis.is_some_and(|basis| {
                (basis.is_unsettled() && !left_out("basis_unsettled"))
                    || (!basis.is_of_topics(&self.topics) && !left_out("basis_topics"))
            })
    }

    /// An assignment beside what the member reads already. What is not in it any more is given up
    /// first, and then joined again for, so that another can have it (KIP-429).
    fn assigned_beside(
        &mut self,
        generation: i32,
        partitions: Vec<TopicPartition>,
        outdated: bool,
        now: Instant,
    ) {
        let gone = not_among(&self.owned, &partitions);
        if !gone.is_empty() {
            self.events.push_back(MemberEvent::Release(Which::These(gone.clone())));
            let until = now + self.config.poll_interval;
            let (then, which) = (Then::Rejoin, Which::These(gone));
            self.release = Some(Release { until, then, which, adopts: Some(partitions) });
            return;
        }
        self.adopt(generation, partitions, true);
        if outdated {
            self.rejoin(now);
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
        match answer.map(|code| (code, verdict(ApiKey::Heartbeat, code))) {
            Ok((ErrorCode::NONE, _)) => {
                self.attempt = 0;
                self.events.push_back(MemberEvent::CoordinatorAlive);
            }
            Ok((_, Verdict::Later)) => self.beat_again(now),
            Ok((_, Verdict::Rebalance)) => {
                self.events.push_back(MemberEvent::CoordinatorAlive);
                self.make_way(now);
            }
            Err(_) | Ok((_, Verdict::Coordinator)) => {
                self.events.push_back(MemberEvent::CoordinatorLost);
                self.beat_again(now);
            }
            Ok((code, _)) => self.apply(code, ApiKey::Heartbeat, now),
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
        self.went(then, now);
    }

    /// The member has left; it comes back if the application asks already.
    fn went(&mut self, then: Then, now: Instant) {
        self.left(then, now);
        if matches!(self.stage, Stage::Parked) && self.app == App::Waiting {
            self.handle_poll(now);
        }
    }

    /// The group knows this member no longer: what it held is another's.
    pub(super) fn lose(&mut self, code: ErrorCode, now: Instant) {
        let then = self.release.as_ref().map_or(Then::Rejoin, |release| release.then);
        self.drop_held();
        if code == ErrorCode::UNKNOWN_MEMBER_ID {
            self.member_id.clear();
        }
        match then {
            Then::Rejoin => self.stage = Stage::Unjoined { retry_at: now },
            // There is nobody to say goodbye to, and no answer to a join that would bring a name.
            then if self.member_id.is_empty() => self.left(then, now),
            then => self.leave(then, now),
        }
    }

    fn apply(&mut self, code: ErrorCode, api: ApiKey, now: Instant) {
        let verdict = verdict(api, code);
        match verdict {
            Verdict::Named | Verdict::Rebalance => {
                self.events.push_back(MemberEvent::CoordinatorAlive);
                self.stage = Stage::Unjoined { retry_at: now };
            }
            Verdict::Later => self.join_later(now),
            Verdict::Coordinator => self.lose_coordinator(now),
            Verdict::Lost => {
                self.events.push_back(MemberEvent::CoordinatorAlive);
                self.lose(code, now);
            }
            Verdict::Refused | Verdict::Fatal => {
                self.drop_held();
                let for_good = verdict == Verdict::Fatal;
                self.attempt = self.attempt.saturating_add(1);
                self.stage = match (for_good, self.topics.is_empty()) {
                    (true, _) => Stage::Failed,
                    (false, true) => Stage::Out,
                    (false, false) => Stage::Parked,
                };
                let api = api.name();
                self.events.push_back(MemberEvent::Refused { code, api, for_good });
            }
        }
    }

    fn lose_coordinator(&mut self, now: Instant) {
        self.events.push_back(MemberEvent::CoordinatorLost);
        // The search for the coordinator has its own waits, but they begin anew with each join that
        // it answers: a sync that it never answers well must not bring one join after the other.
        let failures = self.attempt;
        self.attempt = self.attempt.saturating_add(1);
        let wait = if failures == 0 { Duration::ZERO } else { self.pace.delay(failures) };
        self.stage = Stage::Unjoined { retry_at: now + wait };
    }

    fn join_later(&mut self, now: Instant) {
        let retry_at = now + self.pace.delay(self.attempt);
        self.attempt = self.attempt.saturating_add(1);
        self.stage = Stage::Unjoined { retry_at };
    }
}

/// Those of some that are not among others, in far fewer steps than there are pairs.
fn not_among<T: Ord + Clone>(these: &[T], others: &[T]) -> BTreeSet<T> {
    let others: BTreeSet<&T> = others.iter().collect();
    these.iter().filter(|one| !others.contains(one)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use super::*;

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// A number that counts how often it is compared.
    #[derive(Debug, Clone, Eq)]
    struct Counted(usize);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other) == Ordering::Equal
        }
    }

    #[test]
    fn what_goes_of_ten_thousand_partitions_is_not_looked_for_pair_by_pair() {
        let owned: Vec<Counted> = (0..10_000).map(Counted).collect();
        let assigned: Vec<Counted> = (1..10_001).rev().map(Counted).collect();
        assert_eq!(
            not_among(&owned, &assigned).into_iter().map(|one| one.0).collect::<Vec<_>>(),
            [0]
        );
        assert!(COMPARED.get() < 50 * 10_000, "{} comparisons", COMPARED.get());
    }
}
