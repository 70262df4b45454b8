//! What the sending machine does with the face: it takes batches, and makes topics known.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Accumulator;
use super::slot::Slot;
use super::staging::StagedChunk;
use super::topics::{TopicFace, Topics};
use crate::error::{Error, Outcome};
use crate::state::completion::Outcome as Ending;
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

    /// Ends a topic's staged records.
    pub(crate) fn fail_staged(&self, topic: &str, error: &Error) {
        let mut staging = lock(&self.staging);
        let staged = staging.topics.remove(topic);
        self.staged_topics.store(staging.topics.len(), Ordering::Relaxed);
        drop(staging);
        if let Some(staged) = staged {
            let error = &error.clone().with_outcome(Outcome::NotSent);
            let count = u64::from(staged.count());
            let bytes = staged.chunks.iter().map(StagedChunk::len).sum();
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
