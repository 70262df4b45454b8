//! Committing offsets: one request at a time, the newer in the place of the older, never back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use ottla_protocol::ErrorCode;

use super::assignor::NO_GENERATION;
use super::lookups::is_unknown_topic;
use super::membership::{Identity, Which};
use super::pace::{Pace, soonest};
use super::token::{Token, Tokens};
use crate::error::Error;
use crate::record::TopicPartition;
use crate::state::hash::HashMap;

#[cfg(test)]
mod tests;

mod mark;
mod verdict;

pub(crate) use mark::Mark;
use verdict::Verdicts;
pub(crate) use verdict::{Settled, Verdict, verdict};

/// Names one commit that somebody waits for.
pub(crate) type CommitId = u64;

/// Why a commit did not succeed.
#[derive(Debug, Clone)]
pub(crate) enum CommitFault {
    /// These partitions are not this member's any more.
    Lost(Vec<TopicPartition>),
    /// The coordinator refused.
    Code(ErrorCode, TopicPartition),
    /// The time was over; the last fault, if there was one.
    TimedOut(Option<Error>),
}

/// An OffsetCommit request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommitAsk {
    pub(crate) identity: Identity,
    pub(crate) marks: Vec<(TopicPartition, Mark)>,
}

/// An OffsetCommit answer: an error code a partition.
#[derive(Debug, Clone)]
pub(crate) struct CommitAnswer {
    pub(crate) partitions: Vec<(TopicPartition, ErrorCode)>,
}

/// What the owner must pass on.
#[derive(Debug, Clone)]
pub(crate) enum CommitEvent {
    /// What became of marks, whoever waited: told before those are who did.
    Settled(Settled),
    /// This commit has ended.
    Done(CommitId, Result<(), CommitFault>),
    /// Nobody waits for this one, so the log must tell.
    Unheard(ErrorCode, TopicPartition),
    /// The coordinator is gone or has moved.
    CoordinatorLost,
    /// The coordinator answered as one.
    CoordinatorAlive,
    /// The coordinator does not know the member by that generation.
    Fenced(ErrorCode, i32),
    /// The group of that generation is sharing out anew.
    Rebalance(i32),
    /// The coordinator does not know a topic as it was named: metadata should be asked for.
    Refresh,
    /// The coordinator does not take what is finished behind an offset: it is left out from now on.
    TextRefused(TopicPartition),
}

#[derive(Debug)]
struct Row {
    mark: Mark,
    heard_by: BTreeSet<CommitId>,
    /// The program has chosen to read on elsewhere: it is committed under whichever lease.
    left: bool,
}

#[derive(Debug)]
struct InFlight {
    token: Token,
    generation: i32,
    rows: BTreeMap<TopicPartition, Row>,
}

#[derive(Debug)]
struct Wait {
    deadline: Instant,
    left: usize,
    lost: Vec<TopicPartition>,
    fault: Option<CommitFault>,
}

/// The machine that commits.
#[derive(Debug)]
pub(crate) struct Commits {
    pace: Pace,
    leases: HashMap<TopicPartition, u64>,
    waiting: BTreeMap<TopicPartition, Row>,
    in_flight: Option<InFlight>,
    committed: HashMap<TopicPartition, Mark>,
    waits: HashMap<CommitId, Wait>,
    retry_at: Option<Instant>,
    attempt: u32,
    cause: Option<Error>,
    settled: Settled,
    events: VecDeque<CommitEvent>,
    /// What is finished behind an offset is not kept beside it: the coordinator does not take it.
    without_text: bool,
}

impl Commits {
    /// A machine with nothing to commit.
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            leases: HashMap::default(),
            waiting: BTreeMap::new(),
            in_flight: None,
            committed: HashMap::default(),
            waits: HashMap::default(),
            retry_at: None,
            attempt: 0,
            cause: None,
            settled: Settled::default(),
            events: VecDeque::new(),
            without_text: false,
        }
    }

    /// The partition is this member's from now on, under that lease.
    pub(crate) fn handle_leased(&mut self, partition: &TopicPartition, lease: u64) {
        self.leases.insert(partition.clone(), lease);
    }

    /// The partition is read no more, by the program's own choice: what waits to be committed for it
    /// still is, also if it is read anew meanwhile.
    pub(crate) fn handle_left(&mut self, partition: &TopicPartition) {
        self.leases.remove(partition);
        self.committed.remove(partition);
        let sent = self.in_flight.as_mut().and_then(|sent| sent.rows.get_mut(partition));
        for row in self.waiting.get_mut(partition).into_iter().chain(sent) {
            row.left = true;
        }
    }

    /// Whether a commit of one that was left so waits or is on its way: what is asked about its
    /// committed offset now would be answered too early.
    pub(crate) fn is_left_open(&self, partition: &TopicPartition) -> bool {
        let sent = self.in_flight.as_ref().and_then(|sent| sent.rows.get(partition));
        self.waiting.get(partition).into_iter().chain(sent).any(|row| row.left)
    }

    /// Whether that is so of any.
    pub(crate) fn has_left_open(&self) -> bool {
        self.rows().any(|(_, row)| row.left)
    }

    fn rows(&self) -> impl Iterator<Item = (&TopicPartition, &Row)> {
        self.waiting.iter().chain(self.in_flight.iter().flat_map(|sent| &sent.rows))
    }

    /// The group has gone on without this member: what it left in these may be behind others' work.
    pub(crate) fn drop_left(&mut self, which: &Which) {
        let sent = self.in_flight.iter_mut().flat_map(|sent| &mut sent.rows);
        sent.filter(|(partition, _)| which.contains(partition))
            .for_each(|(_, row)| row.left = false);
        for (partition, row) in std::mem::take(&mut self.waiting) {
            if row.left && which.contains(&partition) {
                self.lost(&partition, row);
            } else {
                self.waiting.insert(partition, row);
            }
        }
    }

    /// The partition is another's: what waits to be committed for it never will be.
    pub(crate) fn handle_lost(&mut self, partition: &TopicPartition) {
        self.leases.remove(partition);
        self.committed.remove(partition);
        if let Some(row) = self.in_flight.as_mut().and_then(|sent| sent.rows.get_mut(partition)) {
            row.left = false;
        }
        if let Some(row) = self.waiting.remove(partition) {
            self.lost(partition, row);
        }
    }

    /// Commits without anybody waiting.
    pub(crate) fn push(&mut self, marks: impl IntoIterator<Item = (TopicPartition, Mark)>) {
        for (partition, mark) in marks {
            self.add(partition, mark, None);
        }
    }

    /// Commits, and tells of the end under `id`, at the latest at the deadline.
    pub(crate) fn push_heard(
        &mut self,
        id: CommitId,
        marks: Vec<(TopicPartition, Mark)>,
        deadline: Instant,
    ) {
        // Of a partition that is named twice the last word counts, and is the only one to wait for.
        let marks: BTreeMap<TopicPartition, Mark> = marks.into_iter().collect();
        let left = marks.len();
        self.waits.insert(id, Wait { deadline, left, lost: Vec::new(), fault: None });
        if left == 0 {
            self.finish(id);
        }
        for (partition, mark) in marks {
            self.add(partition, mark, Some(id));
        }
    }

    fn add(&mut self, partition: TopicPartition, mark: Mark, id: Option<CommitId>) {
        let row = Row { mark, heard_by: id.into_iter().collect(), left: false };
        if self.leases.get(&partition) != Some(&row.mark.lease) {
            return self.lost(&partition, row);
        }
        if !self.waiting.contains_key(&partition) {
            let sent = self.in_flight.as_mut().and_then(|sent| sent.rows.get_mut(&partition));
            let committed = self.committed.get(&partition);
            if let Some(sent) = sent {
                if sent.mark.covers(&row.mark) {
                    sent.heard_by.extend(row.heard_by);
                    return;
                }
                // What is on its way may take back what is committed, and so it waits its turn.
            } else if committed.is_some_and(|done| done.covers(&row.mark)) {
                return self.resolve(&partition, row, None);
            }
        }
        self.wait(partition, row);
    }

    /// Puts a row among the waiting; of two for one partition the newer goes on for both.
    fn wait(&mut self, partition: TopicPartition, mut row: Row) {
        if let Some(other) = self.waiting.remove(&partition) {
            if other.mark.covers(&row.mark) {
                (row.mark, row.left) = (other.mark, other.left);
            }
            row.heard_by.extend(other.heard_by);
        }
        self.waiting.insert(partition, row);
    }

    /// Whether nothing waits and nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_none()
    }

    /// Whether a commit of one of these waits or is on its way.
    pub(crate) fn is_open(&self, which: &Which) -> bool {
        self.rows().any(|(partition, _)| which.contains(partition))
    }

    /// A request to the coordinator, if one is due. Without an identity the group is on the move.
    pub(crate) fn poll_request(
        &mut self,
        identity: Option<&Identity>,
        tokens: &mut Tokens,
        now: Instant,
    ) -> Option<(Token, CommitAsk)> {
        let due = self.retry_at.is_none_or(|retry_at| retry_at <= now);
        let identity = identity.filter(|_| due && self.in_flight.is_none())?;
        if self.waiting.is_empty() {
            return None;
        }
        let rows = std::mem::take(&mut self.waiting);
        let sent = |mark: &Mark| Mark {
            metadata: mark.metadata.clone().filter(|_| !self.without_text || mark.beyond == 0),
            ..mark.clone()
        };
        let marks =
            rows.iter().map(|(partition, row)| (partition.clone(), sent(&row.mark))).collect();
        let token = tokens.next();
        self.in_flight = Some(InFlight { token, generation: identity.generation, rows });
        self.retry_at = None;
        Some((token, CommitAsk { identity: identity.clone(), marks }))
    }

    /// Takes the answer to the request with `token`.
    pub(crate) fn handle_answer(
        &mut self,
        token: Token,
        answer: Result<CommitAnswer, Error>,
        now: Instant,
    ) {
        let Some(sent) = self.in_flight.take_if(|sent| sent.token == token) else {
            // A stale answer: the request was given up.
            return;
        };
        let mut rows = sent.rows;
        let mut verdicts = Verdicts { generation: sent.generation, ..Verdicts::default() };
        match answer {
            Ok(answer) => {
                for (partition, code) in answer.partitions {
                    if let Some(row) = rows.remove(&partition) {
                        self.answered(partition, row, code, &mut verdicts);
                    }
                }
            }
            Err(cause) => {
                self.cause = Some(cause);
                verdicts.coordinator_lost = true;
            }
        }
        // A partition without a word of its own counts as not answered.
        verdicts.again |= !rows.is_empty();
        for (partition, row) in rows {
            self.again(partition, row);
        }
        self.conclude(&verdicts, now);
    }

    fn answered(
        &mut self,
        partition: TopicPartition,
        row: Row,
        code: ErrorCode,
        verdicts: &mut Verdicts,
    ) {
        let text = row.mark.beyond > 0 && !self.without_text;
        if code == ErrorCode::OFFSET_METADATA_TOO_LARGE && text {
            self.without_text = true;
            self.events.push_back(CommitEvent::TextRefused(partition.clone()));
            verdicts.again = true;
            return self.again(partition, row);
        }
        match verdict(code) {
            Verdict::Taken => {
                if self.leases.get(&partition) == Some(&row.mark.lease) {
                    self.committed.insert(partition.clone(), row.mark.clone());
                }
                return self.resolve(&partition, row, None);
            }
            Verdict::Coordinator => verdicts.coordinator_lost = true,
            Verdict::Rebalance => verdicts.rebalance = true,
            // Who is no member stays none: asking again cannot help.
            Verdict::Fenced if verdicts.generation == NO_GENERATION => {
                return self.resolve(&partition, row, Some(code));
            }
            Verdict::Fenced => verdicts.fenced = Some(code),
            Verdict::Later => {}
            Verdict::Refused => return self.resolve(&partition, row, Some(code)),
        }
        verdicts.again = true;
        verdicts.unknown |= is_unknown_topic(code);
        self.cause = Some(Error::from_kafka(code, None).with_topic(&partition.topic));
        self.again(partition, row);
    }

    fn conclude(&mut self, verdicts: &Verdicts, now: Instant) {
        let generation = verdicts.generation;
        if verdicts.coordinator_lost {
            self.events.push_back(CommitEvent::CoordinatorLost);
        } else {
            self.events.push_back(CommitEvent::CoordinatorAlive);
        }
        if verdicts.rebalance {
            self.events.push_back(CommitEvent::Rebalance(generation));
        }
        if verdicts.unknown {
            self.events.push_back(CommitEvent::Refresh);
        }
        if let Some(code) = verdicts.fenced {
            self.events.push_back(CommitEvent::Fenced(code, generation));
        }
        if verdicts.again || verdicts.coordinator_lost {
            self.retry_at = Some(now + self.pace.delay(self.attempt));
            self.attempt = self.attempt.saturating_add(1);
        } else {
            self.attempt = 0;
            self.cause = None;
        }
    }

    fn again(&mut self, partition: TopicPartition, row: Row) {
        if row.left || self.leases.get(&partition) == Some(&row.mark.lease) {
            self.wait_behind(partition, row);
        } else {
            self.lost(&partition, row);
        }
    }

    /// As [`Self::wait`], but the other one is the newer.
    fn wait_behind(&mut self, partition: TopicPartition, row: Row) {
        match self.waiting.get_mut(&partition) {
            Some(newer) => newer.heard_by.extend(row.heard_by),
            None => {
                self.waiting.insert(partition, row);
            }
        }
    }

    fn lost(&mut self, partition: &TopicPartition, row: Row) {
        for id in row.heard_by {
            if let Some(wait) = self.waits.get_mut(&id) {
                wait.lost.push(partition.clone());
                wait.left -= 1;
                self.finish(id);
            }
        }
    }

    fn resolve(&mut self, partition: &TopicPartition, row: Row, code: Option<ErrorCode>) {
        if !self.waiting.contains_key(partition) {
            match code {
                None => self.settled.taken.push((partition.clone(), row.mark)),
                Some(_) => self.settled.refused.push(partition.clone()),
            }
        }
        if let (Some(code), true) = (code, row.heard_by.is_empty()) {
            self.events.push_back(CommitEvent::Unheard(code, partition.clone()));
        }
        for id in row.heard_by {
            if let Some(wait) = self.waits.get_mut(&id) {
                wait.left -= 1;
                if let Some(code) = code {
                    wait.fault.get_or_insert_with(|| CommitFault::Code(code, partition.clone()));
                }
                self.finish(id);
            }
        }
    }

    fn finish(&mut self, id: CommitId) {
        if self.waits.get(&id).is_none_or(|wait| wait.left > 0) {
            return;
        }
        if let Some(wait) = self.waits.remove(&id) {
            let result = match (wait.fault, wait.lost.is_empty()) {
                (None, true) => Ok(()),
                (None, false) => Err(CommitFault::Lost(wait.lost)),
                (Some(fault), _) => Err(fault),
            };
            self.events.push_back(CommitEvent::Done(id, result));
        }
    }

    /// What the owner must pass on.
    pub(crate) fn poll_event(&mut self) -> Option<CommitEvent> {
        if !self.settled.is_empty() {
            return Some(CommitEvent::Settled(std::mem::take(&mut self.settled)));
        }
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] or [`Self::poll_request`] is worth a call again.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let deadlines = self.waits.values().map(|wait| Some(wait.deadline));
        soonest(now, deadlines.chain([self.retry_at]))
    }

    /// Ends the waits whose time is over. What they asked for is still committed if it can be.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let over: Vec<CommitId> =
            self.waits.iter().filter(|(_, wait)| wait.deadline <= now).map(|(&id, _)| id).collect();
        for id in over {
            self.waits.remove(&id);
            let fault = CommitFault::TimedOut(self.cause.clone());
            self.events.push_back(CommitEvent::Done(id, Err(fault)));
            self.forget(id);
        }
    }

    fn forget(&mut self, id: CommitId) {
        let sent = self.in_flight.iter_mut().flat_map(|sent| sent.rows.values_mut());
        for row in self.waiting.values_mut().chain(sent) {
            row.heard_by.remove(&id);
        }
    }
}
