//! Committing, and what is committed.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::fenced;
use super::face::{Command, CommittedOffsets, Marks};
use super::promise::{Promise, Promised};
use super::{Batch, Consumer, ConsumerRecord, SLACK};
use crate::driver::clock;
use crate::error::{Error, ErrorKind};
use crate::record::{TopicPartition, check_partition};
use crate::state::lookups;

/// What to commit.
///
/// With `acknowledgement.mode=explicit` the forms that finish all before a batch or a record are
/// refused with `InvalidState`: [`Consumer::acknowledge`] says what is finished.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Commit<'a> {
    /// All that was given out so far; with `acknowledgement.mode=explicit`, all that was
    /// acknowledged.
    Finished,
    /// A batch, and all before it in its partition.
    Batch(&'a Batch),
    /// A record, and all before it in its partition.
    Record(&'a ConsumerRecord),
    /// For each partition the offset from which to read on; of one named twice the last counts.
    Offsets(&'a [(TopicPartition, i64)]),
    /// The same with what is kept beside it.
    OffsetsAndMetadata(&'a [(TopicPartition, OffsetAndMetadata)]),
}

/// An offset to read on from, with what a group keeps beside it; Kafka: `OffsetAndMetadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OffsetAndMetadata {
    /// The offset of the next record to read.
    pub offset: i64,
    /// The leader epoch of the record before it, if it is known (KIP-320).
    pub leader_epoch: Option<i32>,
    /// A text of the program's own. Brokers take 4,096 bytes unless they are told otherwise
    /// (`offset.metadata.max.bytes`), and no client can send more than 32,767.
    pub metadata: String,
}

impl OffsetAndMetadata {
    /// An offset with nothing beside it.
    pub fn new(offset: i64) -> Self {
        Self { offset, ..Self::default() }
    }

    /// Why it cannot be committed for that partition, if it cannot.
    pub(crate) fn fault(&self, partition: &TopicPartition) -> Option<Error> {
        let fault = if self.offset < 0 {
            format!("{} is no offset of {partition}", self.offset)
        } else if self.metadata.len() > METADATA_BYTES_MAX {
            let bytes = self.metadata.len();
            format!("{bytes} bytes of metadata for {partition}: {METADATA_BYTES_MAX} at most")
        } else {
            return None;
        };
        Some(Error::new(ErrorKind::InvalidArgument, fault))
    }

    /// The same with a text beside it.
    #[must_use]
    pub fn metadata(mut self, text: impl Into<String>) -> Self {
        self.metadata = text.into();
        self
    }
}

/// Longest text that every version of a commit can carry.
const METADATA_BYTES_MAX: usize = 32_767;

/// A partition with the offset that the group has committed for it, if any.
pub type Committed = (TopicPartition, Option<i64>);

/// The same, with what is kept beside the offset.
pub type CommittedWithMetadata = (TopicPartition, Option<OffsetAndMetadata>);

impl Consumer {
    /// The program has finished its work on this record; with `acknowledgement.mode=explicit`, where
    /// nothing else finishes it, in any order and from any thread. Without a request: commits, of
    /// both kinds, and a close tell the group.
    ///
    /// The offset of a partition's first unfinished record is committed, and in the metadata beside
    /// it stands what is finished behind it, 4,096 bytes at most (the first stretches, if more were
    /// needed). A consumer in the same mode that reads on from there leaves that out, so that after
    /// a crash, or a rebalance, only unfinished records come again. With 512 separate stretches of
    /// unfinished records a partition gives nothing more out until some of them are finished.
    ///
    /// Twice is as good as once, and of records read before a `seek` nothing is noted. `CommitFenced`
    /// if the partition is not this consumer's any more: whoever has it now may be given the record.
    /// `InvalidState` in implicit mode; `InvalidGroup` without `group.id`.
    pub fn acknowledge(&self, record: &ConsumerRecord) -> Result<(), Error> {
        self.check_acknowledging()?;
        self.own.face.acknowledge(&record.shared, record.index..record.index + 1)
    }

    /// The same for all records of a batch.
    pub fn acknowledge_batch(&self, batch: &Batch) -> Result<(), Error> {
        self.acknowledge_part(batch, 0..batch.len())
    }

    /// The same for some records of a batch, by their indexes. `InvalidArgument` if there are no such.
    pub fn acknowledge_part(&self, batch: &Batch, records: Range<usize>) -> Result<(), Error> {
        self.check_acknowledging()?;
        if records.is_empty() || records.end > batch.len() {
            let len = batch.len();
            let text = format!("the batch has {len} records, and no part {records:?} of them");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let places = batch.place_of(records.start)..batch.place_of(records.end);
        self.own.face.acknowledge(&batch.shared, places)
    }

    fn check_acknowledging(&self) -> Result<(), Error> {
        self.own.process.check()?;
        self.own.check_group("acknowledge records")
    }

    /// Commits, and waits until the group's coordinator has it.
    ///
    /// Faults that may pass are tried again until the time is over. `CommitFenced` names partitions
    /// that went to another member meanwhile, or are not assigned any more. `InvalidGroup` without
    /// `group.id`.
    pub fn commit(&self, what: Commit<'_>, timeout: Duration) -> Result<(), Error> {
        match self.begin_commit(what, timeout)? {
            Some(promise) => promise.wait(timeout.saturating_add(SLACK), "the commit"),
            None => Ok(()),
        }
    }

    /// Commits without waiting: one request at a time, the newest offsets in the place of older
    /// ones that wait. Failures that nobody hears of are logged.
    pub fn commit_soon(&self, what: Commit<'_>) -> Result<(), Error> {
        self.ask(what, clock::now(), None).map(drop)
    }

    /// Commits as [`Self::commit`], for tasks, within `default.api.timeout.ms`.
    pub fn commit_async(
        &self,
        what: Commit<'_>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.commit_async_within(what, self.own.config.api_timeout)
    }

    /// The same within a time of the caller's.
    pub fn commit_async_within(
        &self,
        what: Commit<'_>,
        timeout: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let promise = match self.begin_commit(what, timeout) {
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
        let promise = Promise::new();
        let asked = self.ask(what, clock::after(timeout), Some(Arc::clone(&promise)))?;
        Ok(asked.then_some(promise))
    }

    /// Asks for a commit; whether there is anything to commit.
    fn ask(
        &self,
        what: Commit<'_>,
        deadline: Instant,
        promise: Option<Arc<Promise<()>>>,
    ) -> Result<bool, Error> {
        self.own.process.check()?;
        if let Some(error) = self.own.face.ended() {
            return Err(error);
        }
        self.own.check_group("commit")?;
        let Some(marks) = self.marks(what)? else {
            return self.own.face.commit_finished(deadline, promise);
        };
        if marks.is_empty() {
            return Ok(false);
        }
        self.command(Command::Commit { marks, deadline, promise })?;
        Ok(true)
    }

    /// What is named to be committed, all of it this consumer's own; `None` for what is finished.
    fn marks(&self, what: Commit<'_>) -> Result<Option<Marks>, Error> {
        let face = &self.own.face;
        let (partition, lease, mark) = match what {
            Commit::Finished => return Ok(None),
            Commit::Offsets(offsets) => {
                let plain = |offset: &i64| OffsetAndMetadata::new(*offset);
                let named = offsets.iter().map(|(at, offset)| (at, plain(offset)));
                return self.marks_by_hand(named).map(Some);
            }
            Commit::OffsetsAndMetadata(offsets) => {
                let named = offsets.iter().map(|(at, named)| (at, named.clone()));
                return self.marks_by_hand(named).map(Some);
            }
            Commit::Batch(batch) => (batch.topic_partition(), batch.shared.lease, batch.mark()),
            Commit::Record(record) => {
                (record.topic_partition(), record.shared.lease, record.mark())
            }
        };
        if face.is_explicit() {
            let text =
                "acknowledgement.mode is explicit: acknowledge records, commit what is finished";
            return Err(Error::new(ErrorKind::InvalidState, text));
        }
        if !face.is_leased(partition, lease) {
            return Err(fenced(std::slice::from_ref(partition)));
        }
        Ok(Some(vec![(partition.clone(), mark)]))
    }

    fn marks_by_hand<'a>(
        &self,
        offsets: impl Iterator<Item = (&'a TopicPartition, OffsetAndMetadata)> + Clone,
    ) -> Result<Marks, Error> {
        if let Some(fault) = offsets.clone().find_map(|(partition, named)| named.fault(partition)) {
            return Err(fault);
        }
        let marks = self.own.face.marks_by_hand(offsets);
        marks.map_err(|partition| fenced(&[partition]))
    }

    /// What the group has committed for these partitions, in their order.
    ///
    /// They need not be assigned. Faults that may pass are tried again until the time is over;
    /// `Timeout` then names the last. `InvalidGroup` without `group.id`; `InvalidTopic` and
    /// `InvalidPartition` for what cannot be.
    pub fn committed(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> Result<Vec<Committed>, Error> {
        let promise = self.begin_lookup(partitions, timeout)?;
        let what = "looking committed offsets up";
        let found = promise.wait(timeout.saturating_add(SLACK), what)?;
        in_order(partitions, &found)
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
            in_order(&partitions, &found)
        }
    }

    /// The same, with what is kept beside each offset.
    pub fn committed_with_metadata(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> Result<Vec<CommittedWithMetadata>, Error> {
        let promise = self.begin_lookup(partitions, timeout)?;
        let what = "looking committed offsets up";
        let found = promise.wait(timeout.saturating_add(SLACK), what)?;
        with_metadata(partitions, &found)
    }

    /// The same for tasks, within `default.api.timeout.ms`.
    pub fn committed_with_metadata_async(
        &self,
        partitions: &[TopicPartition],
    ) -> impl Future<Output = Result<Vec<CommittedWithMetadata>, Error>> + Send + use<> {
        self.committed_with_metadata_async_within(partitions, self.own.config.api_timeout)
    }

    /// The same within a time of the caller's.
    pub fn committed_with_metadata_async_within(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<CommittedWithMetadata>, Error>> + Send + use<> {
        let promise = self.begin_lookup(partitions, timeout);
        let partitions = partitions.to_vec();
        async move {
            let found = Promised(promise?).await?;
            with_metadata(&partitions, &found)
        }
    }

    fn begin_lookup(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> Result<Arc<Promise<CommittedOffsets>>, Error> {
        self.own.check_group("look committed offsets up")?;
        partitions.iter().try_for_each(check_partition)?;
        let promise = Promise::new();
        let deadline = clock::after(timeout);
        let known = Arc::clone(&promise);
        let partitions = partitions.to_vec();
        self.command(Command::Lookup { partitions, deadline, promise: known })?;
        Ok(promise)
    }
}

fn in_order(
    partitions: &[TopicPartition],
    found: &CommittedOffsets,
) -> Result<Vec<Committed>, Error> {
    let offset =
        |at: &TopicPartition| Ok((at.clone(), told(at, found)?.map(|committed| committed.offset)));
    partitions.iter().map(offset).collect()
}

fn with_metadata(
    partitions: &[TopicPartition],
    found: &CommittedOffsets,
) -> Result<Vec<CommittedWithMetadata>, Error> {
    let named = |committed: &lookups::Committed| OffsetAndMetadata {
        offset: committed.offset,
        leader_epoch: Some(committed.leader_epoch).filter(|&epoch| epoch >= 0),
        metadata: committed.metadata.as_deref().unwrap_or_default().to_owned(),
    };
    let of = |at: &TopicPartition| Ok((at.clone(), told(at, found)?.map(named)));
    partitions.iter().map(of).collect()
}

/// What is committed for a partition. No word of it is not the word that nothing is.
fn told<'a>(
    partition: &TopicPartition,
    found: &'a CommittedOffsets,
) -> Result<Option<&'a lookups::Committed>, Error> {
    found.get(partition).map(Option::as_ref).ok_or_else(|| {
        let text = format!("the coordinator tells no offset of {partition}");
        Error::new(ErrorKind::Protocol, text)
            .with_topic(&partition.topic)
            .with_partition(partition.partition)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_a_partition_is_not_the_word_that_nothing_is_committed_for_it() {
        let [none, some, untold] = [0, 1, 2].map(|index| TopicPartition::new("t", index));
        let five = lookups::Committed { offset: 5, leader_epoch: -1, metadata: None };
        let found: CommittedOffsets =
            [(none.clone(), None), (some.clone(), Some(five))].into_iter().collect();
        let both = [some.clone(), none.clone()];
        assert_eq!(in_order(&both, &found).unwrap(), [(some, Some(5)), (none.clone(), None)]);
        assert_eq!(with_metadata(&both, &found).unwrap()[0].1, Some(OffsetAndMetadata::new(5)));
        for fault in [
            in_order(&[none.clone(), untold.clone()], &found).map(drop),
            with_metadata(&[none, untold], &found).map(drop),
        ] {
            let error = fault.expect_err("nothing was told of it");
            assert_eq!((error.kind(), error.partition()), (ErrorKind::Protocol, Some(2)));
        }
    }
}
