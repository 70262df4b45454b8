//! What the sending machine does with the face: it takes batches, and makes topics known.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ottla_protocol::Reader;

use super::batch::Manners;
use super::slot::Slot;
use super::staging::{self, Staged, StagedRecord};
use super::topics::{TopicFace, Topics};
use super::{Accumulator, AppendError, no_partition};
use crate::error::{Error, Outcome};
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

    /// Makes a topic known, or known anew, and moves its staged records to their partitions.
    pub(crate) fn publish(&self, topic: Arc<TopicFace>) {
        // Held from before the move to after the topic is known: a later record cannot overtake.
        let mut staging = lock(&self.staging);
        let staged = staging.topics.remove(&topic.name);
        self.staged_topics.store(staging.topics.len(), Ordering::Relaxed);
        if let Some(staged) = staged {
            self.unstage(&topic, staged);
        }
        let mut topics = Topics::clone(&self.topics.load());
        topics.insert(Arc::clone(&topic.name), topic);
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
        let result = match topic.slot_for(record, self.rules) {
            // The staged chunk is given up next, so the budget is passed for a moment at most.
            Some(slot) => self.append_slot(
                slot,
                (record, record.timestamp.unwrap_or(-1)),
                &mut self.room(None, Manners::Force),
                &|| opened_at,
                &mut |batch, index| token = Some((Arc::clone(batch), index)),
            ),
            None => Err(AppendError::Failed(no_partition(topic, record))),
        };
        token.unwrap_or_else(|| {
            let error = match result {
                Err(AppendError::Failed(error)) => error,
                Err(AppendError::Memory(_)) | Ok(()) => self.refusal(),
            };
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
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
            self.counters.failed.fetch_add(count, Ordering::Relaxed);
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
