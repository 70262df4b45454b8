//! The groups of one offsets partition at work: what is pushed, and what waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_storage::{Incoming, Origin};

use super::GroupDone;
use crate::driver::own_batch::{Content, own_batch};
use crate::driver::partition::{Acks, Outcome, Partition, Submission};
use crate::node::Node;
use crate::state::group::Token;
use crate::state::group_records::encode;
use crate::state::groups::{GroupRecord, Groups, Turn};
use crate::state::hash::HashMap;

/// What happens once everything up to some point is committed, or is lost.
pub(super) type Job = Box<dyn FnOnce(Result<(), ErrorCode>) + Send>;

/// Jobs that are due, and whether what they waited for is committed.
pub(super) type Due = (Vec<Job>, Result<(), ErrorCode>);

/// Runs jobs; with no lock held, since they may do anything.
pub(super) fn run_all((jobs, committed): Due) {
    for job in jobs {
        job(committed);
    }
}

/// The groups of one offsets partition.
pub(super) struct Running {
    pub(super) groups: Groups,
    /// Requests that are not answered.
    pub(super) waiting: HashMap<Token, GroupDone>,
    /// Tells this life of the shard from those before a failure.
    pub(super) life: u64,
    /// A push was refused; the shard must be dropped.
    pub(super) failed: bool,
    /// Batches pushed and committed so far.
    pushed: u64,
    committed: u64,
    /// What waits until so many are committed, in order.
    held: VecDeque<(u64, Job)>,
}

impl Running {
    /// Groups whose log was read to its end.
    pub(super) fn new(groups: Groups, life: u64) -> Self {
        Self {
            groups,
            waiting: HashMap::default(),
            life,
            failed: false,
            pushed: 0,
            committed: 0,
            held: VecDeque::new(),
        }
    }

    /// Pushes what was decided, and holds back its answers and `jobs` until all decided so far is
    /// committed. Returns those that nothing holds back.
    pub(super) fn submit(
        &mut self,
        node: &Arc<Node>,
        index: usize,
        partition: &Arc<Partition>,
        turn: Turn,
        mut jobs: Vec<Job>,
    ) -> Vec<Job> {
        for (token, answer) in turn.answers {
            // Each token was put there when its request came, and is answered once.
            if let Some(done) = self.waiting.remove(&token) {
                jobs.push(Box::new(move |committed| done(committed.map(|()| answer))));
            }
        }
        if !turn.records.is_empty() {
            self.push(node, index, partition, &turn.records);
        }
        if self.failed || self.pushed == self.committed {
            return jobs;
        }
        self.held.extend(jobs.into_iter().map(|job| (self.pushed, job)));
        Vec::new()
    }

    fn push(
        &mut self,
        node: &Arc<Node>,
        index: usize,
        partition: &Arc<Partition>,
        records: &[GroupRecord],
    ) {
        let batch = match batch(records, node.clock.now_ms()) {
            Ok(batch) => batch,
            Err(why) => {
                tracing::error!(partition = index, %why, "records of groups cannot be written");
                self.failed = true;
                return;
            }
        };
        let (told, life, ticket) = (node.clone(), self.life, self.pushed + 1);
        let done = Box::new(move |outcome| {
            told.coordinator.settle(index, life, ticket, stored(outcome));
        });
        let submission = Submission { batches: vec![batch], acks: Acks::All, done };
        match partition.push(submission) {
            Ok(()) => self.pushed = ticket,
            Err(refused) => {
                tracing::warn!(partition = index, error = %refused.error, "groups are not served");
                self.failed = true;
            }
        }
    }

    /// So many batches are committed: what waited for them is due.
    pub(super) fn commit(&mut self, ticket: u64) -> Vec<Job> {
        self.committed = self.committed.max(ticket);
        let due = self.held.iter().take_while(|(until, _)| *until <= self.committed).count();
        self.held.drain(..due).map(|(_, job)| job).collect()
    }

    /// Sends everybody away.
    pub(super) fn give_up(mut self: Box<Self>, error: ErrorCode) -> Due {
        let mut jobs: Vec<Job> = self.held.into_iter().map(|(_, job)| job).collect();
        for (token, answer) in self.groups.abandon(error) {
            if let Some(done) = self.waiting.remove(&token) {
                jobs.push(Box::new(move |_lost| done(Ok(answer))));
            }
        }
        let rest = self.waiting.into_values();
        jobs.extend(rest.map(|done| -> Job { Box::new(move |_lost| done(Err(error))) }));
        (jobs, Err(error))
    }
}

/// Records of one decision as one batch, so that a crash leaves all of them or none.
fn batch(records: &[GroupRecord], now_ms: i64) -> Result<Incoming, String> {
    let raw: Result<Vec<_>, _> = records.iter().map(encode).collect();
    let raw = raw.map_err(|error| error.to_string())?;
    let records = raw.iter().map(|record| (Some(record.key.as_slice()), record.value.as_deref()));
    let batch = own_batch(records, Content::Records, Origin::Coordinator, now_ms);
    batch.map_err(|error| error.to_string())
}

fn stored(outcome: Outcome) -> Result<(), String> {
    let results = outcome.map_err(|error| error.to_string())?;
    let mut results = results.into_iter();
    results.try_for_each(|result| result.map(|_place| ()).map_err(|rejected| rejected.message))
}
