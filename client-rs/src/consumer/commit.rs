//! Committing, and what is committed.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::engine::fenced;
use super::face::{Command, CommittedOffsets, Marks};
use super::promise::{Promise, Promised};
use super::{Batch, Consumer, ConsumerRecord, SLACK};
use crate::driver::clock;
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;

/// What to commit.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Commit<'a> {
    /// All that was given out so far.
    Finished,
    /// A batch, and all before it in its partition.
    Batch(&'a Batch),
    /// A record, and all before it in its partition.
    Record(&'a ConsumerRecord),
    /// For each partition the offset from which to read on.
    Offsets(&'a [(TopicPartition, i64)]),
}

/// A partition with the offset that the group has committed for it, if any.
pub type Committed = (TopicPartition, Option<i64>);

impl Consumer {
    /// Commits, and waits until the group's coordinator has it.
    ///
    /// Faults that may pass are tried again until the time is over. `CommitFenced` names partitions
    /// that went to another member meanwhile.
    pub fn commit(&self, what: Commit<'_>, timeout: Duration) -> Result<(), Error> {
        match self.begin_commit(what, timeout)? {
            Some(promise) => promise.wait(timeout.saturating_add(SLACK), "the commit"),
            None => Ok(()),
        }
    }

    /// Commits without waiting: one request at a time, the newest offsets in the place of older
    /// ones that wait. Failures that nobody hears of are logged.
    pub fn commit_soon(&self, what: Commit<'_>) -> Result<(), Error> {
        let marks = self.marks(what)?;
        let deadline = clock::now();
        self.command(Command::Commit { marks, deadline, promise: None })
    }

    /// Commits as [`Self::commit`], for tasks, within `default.api.timeout.ms`.
    pub fn commit_async(
        &self,
        what: Commit<'_>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let promise = match self.begin_commit(what, self.own.config.api_timeout) {
            Ok(Some(promise)) => promise,
            other => Promise::resolved(other.map(|_| ())),
        };
        Promised(promise)
    }

    fn begin_commit(
        &self,
        what: Commit<'_>,
        timeout: Duration,
    ) -> Result<Option<Arc<Promise<()>>>, Error> {
        let marks = self.marks(what)?;
        if marks.is_empty() {
            return Ok(None);
        }
        let promise = Promise::new();
        let now = clock::now();
        let deadline = now.checked_add(timeout).unwrap_or(now + self.own.config.api_timeout);
        let known = Some(Arc::clone(&promise));
        self.command(Command::Commit { marks, deadline, promise: known })?;
        Ok(Some(promise))
    }

    /// What is to be committed, all of it this consumer's own.
    fn marks(&self, what: Commit<'_>) -> Result<Marks, Error> {
        self.own.process.check()?;
        let face = &self.own.face;
        if let Some(error) = face.ended() {
            return Err(error);
        }
        let (partition, lease, mark) = match what {
            Commit::Finished => return Ok(face.finish()),
            Commit::Offsets(offsets) => {
                if let Some((partition, offset)) = offsets.iter().find(|(_, offset)| *offset < 0) {
                    let text = format!("{offset} is no offset of {partition}");
                    return Err(Error::new(ErrorKind::InvalidArgument, text));
                }
                return face.marks_by_hand(offsets).map_err(|partition| fenced(&[partition]));
            }
            Commit::Batch(batch) => (batch.topic_partition(), batch.shared.lease, batch.mark()),
            Commit::Record(record) => {
                (record.topic_partition(), record.shared.lease, record.mark())
            }
        };
        if !face.is_leased(partition, lease) {
            return Err(fenced(std::slice::from_ref(partition)));
        }
        Ok(vec![(partition.clone(), mark)])
    }

    /// What the group has committed for these partitions, in their order.
    pub fn committed(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> Result<Vec<Committed>, Error> {
        let promise = self.begin_lookup(partitions, timeout)?;
        let what = "looking committed offsets up";
        let found = promise.wait(timeout.saturating_add(SLACK), what)?;
        Ok(in_order(partitions, &found))
    }

    /// The same for tasks, within `default.api.timeout.ms`.
    pub fn committed_async(
        &self,
        partitions: &[TopicPartition],
    ) -> impl Future<Output = Result<Vec<Committed>, Error>> + Send + use<> {
        let promise = self.begin_lookup(partitions, self.own.config.api_timeout);
        let partitions = partitions.to_vec();
        async move {
            let found = Promised(promise?).await?;
            Ok(in_order(&partitions, &found))
        }
    }

    fn begin_lookup(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> Result<Arc<Promise<CommittedOffsets>>, Error> {
        let promise = Promise::new();
        let now = clock::now();
        let deadline = now.checked_add(timeout).unwrap_or(now + self.own.config.api_timeout);
        let known = Arc::clone(&promise);
        let partitions = partitions.to_vec();
        self.command(Command::Lookup { partitions, deadline, promise: known })?;
        Ok(promise)
    }
}

fn in_order(partitions: &[TopicPartition], found: &CommittedOffsets) -> Vec<Committed> {
    let offset = |partition: &TopicPartition| {
        found.get(partition).copied().flatten().map(|committed| committed.offset)
    };
    partitions.iter().map(|partition| (partition.clone(), offset(partition))).collect()
}
