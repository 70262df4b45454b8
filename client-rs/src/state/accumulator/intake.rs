//! What the sending machine does with the face: it takes batches, and makes topics known.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ottla_protocol::Reader;

use super::batch::Manners;
use super::slot::Slot;
use super::staging::{self, Staged, StagedRecord};
use super::topics::{TopicFace, Topics};
use super::{Accumulator, AppendError};
use crate::error::{Error, ErrorKind, Outcome};
use crate::record::Record;
use crate::state::completion::{Completion, Forward, Outcome as Ending};
use crate::state::guard::lock;

impl Accumulator {
    /// The slots with news since the last call; a slot may be named twice.
    pub(crate) fn take_ready(&self, into: &mut Vec<Arc<Slot>>) {
        into.append(&mut lock(&self.ready));
    }

    /// The number that the next batch will have.
    pub(crate) fn peek_id(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// A number for a batch that the machine makes itself.
    pub(crate) fn new_id(&self) -> u64 {
        self.take_id()
    }

    /// Whether there are staged records.
    pub(crate) fn has_staged(&self) -> bool {
        self.staged_topics.load(Ordering::Relaxed) > 0
    }

    /// The topics with staged records, with the first one's time and the batch's number.
    pub(crate) fn staged(&self) -> Vec<(Arc<str>, Instant, u64)> {
        if !self.has_staged() {
            return Vec::new();
        }
        let staging = lock(&self.staging);
        let topics = staging.topics.iter();
        topics.map(|(topic, at)| (Arc::clone(topic), at.opened_at, at.completion.id())).collect()
    }

    /// Makes topics known, or known anew, and moves their staged records to their partitions.
    pub(crate) fn publish(&self, known: impl IntoIterator<Item = Arc<TopicFace>>) {
        // Held from before the move to after the topics are known: a later record cannot overtake.
        let mut staging = lock(&self.staging);
        let mut topics = Topics::clone(&self.topics.load());
        for topic in known {
            if let Some(staged) = staging.topics.remove(&topic.name) {
                self.unstage(&topic, staged);
            }
            topics.insert(Arc::clone(&topic.name), topic);
        }
        self.staged_topics.store(staging.topics.len(), Ordering::Relaxed);
        self.topics.store(Arc::new(topics));
        self.recent.changed();
        drop(staging);
    }

    fn unstage(&self, topic: &TopicFace, staged: Staged) {
        let Staged { completion, mut chunks, opened_at, .. } = staged;
        let mut forward = Forward::default();
        let observed = !completion.is_unobserved(1);
        while let Some(chunk) = chunks.pop_front() {
            let mut headers = Vec::new();
            let mut reader = Reader::new(&chunk.data);
            while let Ok(StagedRecord { partition, timestamp, key, value }) =
                staging::read(&mut reader, &mut headers)
            {
                let record = Record {
                    topic: &topic.name,
                    partition,
                    key,
                    value,
                    headers: &headers,
                    timestamp: Some(timestamp),
                };
                let (target, index) = self.place(topic, &record, opened_at, observed);
                forward.push(&target, index);
            }
            debug_assert_eq!(reader.remaining(), 0, "what was staged can be read");
        }
        self.wakes(completion.resolve(Ending::Forwarded(forward)));
    }

    /// Puts a staged record into its batch, or into none, with the reason.
    fn place(
        &self,
        topic: &TopicFace,
        record: &Record<'_>,
        opened_at: Instant,
        observed: bool,
    ) -> (Arc<Completion>, u32) {
        let mut token = None;
        // The staged chunk is given up next, so the budget is passed for a moment at most.
        let mut nothing = None;
        let mut room = self.room(&mut nothing, Manners::Force);
        let keep = &mut |batch: &Arc<Completion>, index| token = Some((Arc::clone(batch), index));
        let timed = (record, record.timestamp.unwrap_or(-1));
        // A partitioner of the program's own runs here on the client's thread, which must go on.
        let placing =
            AssertUnwindSafe(|| self.append_timed(topic, timed, &mut room, &|| opened_at, keep));
        let result = catch_unwind(placing).unwrap_or_else(|_| {
            let text = "the program's partitioner panicked";
            let error = Error::new(ErrorKind::InvalidPartition, text).with_topic(&topic.name);
            Err(AppendError::Failed(error.with_outcome(Outcome::NotSent)))
        });
        token.unwrap_or_else(|| {
            let error = match result {
                Err(AppendError::Failed(error)) => error,
                Err(AppendError::Memory(_)) | Ok(()) => self.refusal(),
            };
            let bytes = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
            self.counters.note_failed(1, bytes, error.outcome());
            if !observed {
                self.report(1, &error);
            }
            let lost = Completion::new(self.take_id(), &topic.name, record.partition.unwrap_or(-1));
            lost.resolve(Ending::Failed(error));
            (lost, 0)
        })
    }

    /// Ends a topic's staged records.
    pub(crate) fn fail_staged(&self, topic: &str, error: &Error) {
        let mut staging = lock(&self.staging);
        let staged = staging.topics.remove(topic);
        self.staged_topics.store(staging.topics.len(), Ordering::Relaxed);
        drop(staging);
        if let Some(staged) = staged {
            let error = &error.clone().with_outcome(Outcome::NotSent);
            let count = u64::from(staged.count());
            let bytes = staged.chunks.iter().map(|chunk| chunk.data.len()).sum();
            staged.completion.weigh(&self.memory, bytes, count);
            self.counters.note_failed(count, bytes, error.outcome());
            if staged.completion.is_unobserved(1) {
                self.report(count, error);
            }
            self.wakes(staged.completion.resolve(Ending::Failed(error.clone())));
        }
    }

    /// Takes no more records of topics not known.
    pub(crate) fn close_staging(&self) {
        lock(&self.staging).closed = true;
    }

    /// Counts those who were woken.
    pub(crate) fn wakes(&self, told: usize) {
        let told = u64::try_from(told).unwrap_or(u64::MAX);
        self.counters.wakes.fetch_add(told, Ordering::Relaxed);
    }
}
