//! Records as a consumer gives them: a batch of one partition, its records decoded when touched.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::record::{Headers, RecordRow, RecordView};

use crate::record::TopicPartition;
use crate::state::commits::Mark;

mod detach;
mod shared;

use shared::Chunk;
pub(super) use shared::{Shared, corrupt};

/// Records of one partition that came in one fetch, in the order of their offsets.
///
/// Cheap to clone. It may be kept, and read from any thread, for as long as one likes, also after
/// its consumer is gone; it keeps the memory of its whole fetch alive: see [`Batch::detached`].
#[derive(Clone)]
pub struct Batch {
    pub(super) shared: Arc<Shared>,
    from: usize,
    to: usize,
}

impl Batch {
    pub(super) const fn new(shared: Arc<Shared>, from: usize, to: usize) -> Self {
        Self { shared, from, to }
    }

    /// Its topic.
    pub fn topic(&self) -> &str {
        &self.shared.partition.topic
    }

    /// Its partition.
    pub fn partition(&self) -> i32 {
        self.shared.partition.partition
    }

    /// Topic and partition.
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.shared.partition
    }

    /// How many records it has: one at least.
    #[allow(clippy::len_without_is_empty, reason = "a batch without records is never given out")]
    pub const fn len(&self) -> usize {
        self.to - self.from
    }

    /// The record at `index`, borrowed; `None` past the end.
    pub fn get(&self, index: usize) -> Option<RecordView<'_>> {
        let index = self.from.checked_add(index).filter(|&index| index < self.to)?;
        self.shared.get(index)
    }

    /// All records in order, borrowed.
    pub fn records(&self) -> impl ExactSizeIterator<Item = RecordView<'_>> {
        Records::new(&self.shared, self.from..self.to)
    }

    /// The record at `index` as one that can be kept by itself; `None` past the end.
    pub fn record(&self, index: usize) -> Option<ConsumerRecord> {
        let index = self.from.checked_add(index).filter(|&index| index < self.to)?;
        Some(ConsumerRecord { shared: Arc::clone(&self.shared), index })
    }

    /// Offset of the first record.
    pub fn base_offset(&self) -> i64 {
        self.shared.get(self.from).map_or(-1, |record| record.offset)
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> i64 {
        self.to.checked_sub(1).and_then(|last| self.shared.get(last)).map_or(-1, |last| last.offset)
    }

    /// The offset that committing this batch commits: where to read on behind it.
    pub fn next_offset(&self) -> i64 {
        self.shared.mark(self.to).offset
    }

    /// The partition's high watermark when it was fetched: the end of what could be read then.
    pub fn high_watermark(&self) -> i64 {
        self.shared.high_watermark
    }

    /// Epoch of the leader that took the last record; −1 if unknown.
    pub fn leader_epoch(&self) -> i32 {
        self.to.checked_sub(1).map_or(-1, |last| self.shared.leader_epoch(last))
    }

    /// Bytes of keys, values and headers with what surrounds them, decompressed.
    pub fn bytes(&self) -> usize {
        let (mut sum, mut index) = (0, self.from);
        while let Some((chunk, place)) = self.shared.place(index).filter(|_| index < self.to) {
            let shown = chunk.records.len() - place;
            let wanted = shown.min(self.to - index);
            let whole = chunk.records.body().len();
            sum += if wanted == chunk.records.len() {
                whole
            } else {
                whole.saturating_mul(wanted) / chunk.records.len().max(1)
            };
            index += wanted;
        }
        sum
    }

    /// The memory that its records lie in, with their places, for those who hand out memory.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut index = self.from;
        std::iter::from_fn(move || {
            let (chunk, place) = self.shared.place(index).filter(|_| index < self.to)?;
            let rows = chunk.records.rows().get(place..)?;
            let rows = rows.get(..self.to - index).unwrap_or(rows);
            index += rows.len();
            let base_offset = chunk.records.header().base_offset;
            Some(Piece { body: chunk.records.body(), base_offset, rows })
        })
    }

    /// The place in its fetch behind so many of its records.
    pub(super) fn place_of(&self, records: usize) -> usize {
        self.from.saturating_add(records).min(self.to)
    }

    /// Up to which record it reaches, in its fetch.
    pub(super) fn mark(&self) -> Mark {
        self.shared.mark(self.to)
    }
}

/// Records of a batch that lie in one memory, as they stood in one record batch of the log.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// What the rows' places count from; it may hold other records too.
    pub body: &'a Bytes,
    /// What the rows' offsets count from.
    pub base_offset: i64,
    /// Where each record lies; one at least.
    pub rows: &'a [RecordRow],
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("partition", &format_args!("{}", self.shared.partition))
            .field("offsets", &(self.base_offset()..=self.last_offset()))
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

struct Records<'a> {
    chunks: std::slice::Iter<'a, Chunk>,
    chunk: Option<&'a Chunk>,
    /// The next record's place in its chunk.
    place: usize,
    left: usize,
}

impl<'a> Records<'a> {
    fn new(shared: &'a Shared, range: std::ops::Range<usize>) -> Self {
        let after = shared.chunks.partition_point(|chunk| chunk.first <= range.start);
        let mut chunks = shared.chunks.get(after.saturating_sub(1)..).unwrap_or_default().iter();
        let chunk = chunks.next();
        let place = chunk.map_or(0, |chunk| range.start - chunk.first + chunk.skipped);
        Self { chunks, chunk, place, left: range.len() }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordView<'a>;

    fn next(&mut self) -> Option<RecordView<'a>> {
        self.left = self.left.checked_sub(1)?;
        loop {
            if let Some(record) = self.chunk?.records.get(self.place) {
                self.place += 1;
                return Some(record);
            }
            self.chunk = self.chunks.next();
            self.place = self.chunk.map_or(0, |chunk| chunk.skipped);
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Records<'_> {}

/// One record, with all that belongs to it.
///
/// Cheap to clone; it keeps the memory of the whole fetch it came in alive: see
/// [`ConsumerRecord::detached`].
#[derive(Clone)]
pub struct ConsumerRecord {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
}

impl ConsumerRecord {
    /// All its parts, borrowed.
    pub fn view(&self) -> RecordView<'_> {
        // The index was in range when the record was made, and nothing changes a batch.
        self.shared.get(self.index).unwrap_or_else(|| RecordView {
            offset: -1,
            timestamp: -1,
            key: None,
            value: None,
            headers: Headers::default(),
        })
    }

    /// Its topic.
    pub fn topic(&self) -> &str {
        &self.shared.partition.topic
    }

    /// Its partition.
    pub fn partition(&self) -> i32 {
        self.shared.partition.partition
    }

    /// Topic and partition.
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.shared.partition
    }

    /// Its offset in the partition.
    pub fn offset(&self) -> i64 {
        self.view().offset
    }

    /// Its time in ms since the epoch: the producer's, or the broker's if the topic is set so.
    pub fn timestamp(&self) -> i64 {
        self.view().timestamp
    }

    /// The key; `None` is null, which differs from empty.
    pub fn key(&self) -> Option<&[u8]> {
        self.view().key
    }

    /// The value; `None` is null, a tombstone where the topic is compacted.
    pub fn value(&self) -> Option<&[u8]> {
        self.view().value
    }

    /// The headers, in order; a key may come more than once, a value may be null.
    pub fn headers(&self) -> Headers<'_> {
        self.view().headers
    }

    /// Epoch of the leader that took it; −1 if unknown.
    pub fn leader_epoch(&self) -> i32 {
        self.shared.leader_epoch(self.index)
    }

    /// Reading stands here when this record is finished.
    pub(super) fn mark(&self) -> Mark {
        self.shared.mark(self.index + 1)
    }
}

impl fmt::Debug for ConsumerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view();
        f.debug_struct("ConsumerRecord")
            .field("partition", &format_args!("{}", self.shared.partition))
            .field("offset", &view.offset)
            .field("timestamp", &view.timestamp)
            .field("key", &view.key)
            .field("value", &view.value)
            .field("headers", &view.headers.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
