//! Records as a consumer gives them: a batch of one partition, its records decoded when touched.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::record::{
    Compression, DecodedBatch, HEADER_LEN, Headers, IndexedBatch, RecordRow, RecordView,
};

use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::commits::Mark;
use crate::state::fetcher::Fetched;

mod detach;

/// Most bytes that one compressed batch may grow to: what Kafka's brokers accept in a request.
const BATCH_BYTES_MAX: usize = 100 * 1024 * 1024;

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

/// What all clones and records of a batch share.
pub(super) struct Shared {
    pub(super) partition: TopicPartition,
    pub(super) lease: u64,
    pub(super) position: u64,
    chunks: Vec<Chunk>,
    len: usize,
    /// Where to read on behind all of it.
    next: i64,
    high_watermark: i64,
    /// What its records take, decompressed.
    memory_bytes: usize,
    /// Bytes of the answer whose memory it may hold.
    pinned: usize,
    /// Tells one fetch from another, also where it has been copied.
    number: u64,
}

/// One record batch as it stood in the log.
struct Chunk {
    /// Number of records before it, among those to be shown.
    first: usize,
    /// Records at its front that lie before the offset that was asked for.
    skipped: usize,
    records: IndexedBatch,
}

impl Shared {
    /// Checks and indexes what was fetched, up to so many bytes of memory, or one batch if that alone
    /// takes more; what is beyond, or behind it cannot be read, is left for the next time. Many
    /// small batches can hold a thousand times their bytes.
    ///
    /// The error is that of the first batch, and names topic, partition and offset.
    pub(super) fn decode(
        fetched: &Fetched,
        lease: u64,
        bytes_max: usize,
    ) -> Result<(Self, Option<Fetched>), Error> {
        let mut chunks = Vec::with_capacity(fetched.batches.len());
        let (mut len, mut decoded) = (0, 0);
        let mut rest = None;
        for (at, bytes) in fetched.batches.iter().enumerate() {
            if at > 0 && decoded >= bytes_max {
                rest = Some(fetched.rest_from(at));
                break;
            }
            let records = match decode_one(bytes) {
                Ok(records) => records,
                // Those before it come first, and this one then by itself.
                Err(_) if at > 0 => {
                    rest = Some(fetched.rest_from(at));
                    break;
                }
                Err(fault) => {
                    let offset = offset_of(bytes).max(fetched.start);
                    return Err(corrupt(&fetched.partition, offset, fault));
                }
            };
            let memory_bytes = records.memory_bytes();
            if at > 0 && decoded + memory_bytes > bytes_max {
                rest = Some(fetched.rest_from(at));
                break;
            }
            decoded += memory_bytes;
            let skipped = records.position_of(fetched.start);
            if records.len() > skipped {
                let shown = records.len() - skipped;
                chunks.push(Chunk { first: len, skipped, records });
                len += shown;
            }
        }
        let shared = Self {
            partition: fetched.partition.clone(),
            lease,
            position: fetched.position,
            chunks,
            len,
            next: rest.as_ref().map_or(fetched.next, |rest| rest.start),
            high_watermark: fetched.high_watermark,
            memory_bytes: decoded,
            pinned: fetched.pinned,
            number: 0,
        };
        Ok((shared, rest))
    }

    /// The same under a number of its own.
    pub(super) const fn numbered(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    /// Whether both are of one fetch, and so have the same records at the same places.
    pub(super) const fn is_same(&self, other: &Self) -> bool {
        self.number == other.number
    }

    /// The same in memory of its own, if it holds more than twice as much as it needs: it may take
    /// long until it is read. What was decompressed has memory of its own already.
    pub(super) fn let_go(&self) -> Option<Self> {
        let is_slice = |chunk: &&Chunk| {
            chunk.records.header().attributes.compression() == Ok(Compression::None)
        };
        let mut slices = self.chunks.iter().filter(is_slice).peekable();
        slices.peek()?;
        let bytes: usize = slices.map(|chunk| chunk.records.body().len() + HEADER_LEN).sum();
        if self.pinned / 2 <= bytes {
            return None;
        }
        let chunks = self.chunks.iter().map(|chunk| Chunk {
            first: chunk.first,
            skipped: chunk.skipped,
            records: if is_slice(&chunk) {
                chunk.records.detached()
            } else {
                chunk.records.clone()
            },
        });
        let (partition, chunks) = (self.partition.clone(), chunks.collect());
        Some(Self { partition, chunks, pinned: bytes, ..*self })
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The chunk of a record, and the record's place in it.
    fn place(&self, index: usize) -> Option<(&Chunk, usize)> {
        let after = self.chunks.partition_point(|chunk| chunk.first <= index);
        let chunk = self.chunks.get(after.checked_sub(1)?)?;
        Some((chunk, index - chunk.first + chunk.skipped))
    }

    pub(super) fn get(&self, index: usize) -> Option<RecordView<'_>> {
        let (chunk, place) = self.place(index)?;
        chunk.records.get(place)
    }

    fn leader_epoch(&self, index: usize) -> i32 {
        self.place(index).map_or(-1, |(chunk, _)| chunk.records.header().partition_leader_epoch)
    }

    /// Where reading stands when all records before `index` are finished.
    pub(super) fn mark(&self, index: usize) -> Mark {
        let last = index.checked_sub(1);
        let offset = match last.and_then(|last| self.get(last)) {
            // Behind the last record lies what is never shown: control batches, compacted gaps.
            _ if index >= self.len => self.next,
            Some(record) => record.offset.saturating_add(1),
            None => self.get(index).map_or(self.next, |record| record.offset),
        };
        let leader_epoch = last.map_or(-1, |last| self.leader_epoch(last));
        Mark {
            lease: self.lease,
            jump: self.position,
            offset,
            leader_epoch,
            by_hand: false,
            metadata: None,
        }
    }

    /// The offset of the record at `index`, or where to read on behind all of them.
    pub(super) fn offset_at(&self, index: usize) -> i64 {
        self.get(index).map_or(self.next, |record| record.offset)
    }
}

fn decode_one(bytes: &Bytes) -> Result<IndexedBatch, Box<dyn std::error::Error + Send + Sync>> {
    Ok(DecodedBatch::decode(bytes, BATCH_BYTES_MAX)?.index()?)
}

impl Fetched {
    /// The batches from this one on.
    fn rest_from(&self, at: usize) -> Self {
        let batches = self.batches.get(at..).unwrap_or_default().to_vec();
        let start = batches.first().map_or(self.next, offset_of).max(self.start);
        let bytes = batches.iter().map(Bytes::len).sum();
        Self { partition: self.partition.clone(), batches, start, bytes, ..*self }
    }
}

fn offset_of(bytes: &Bytes) -> i64 {
    bytes.first_chunk::<8>().map_or(0, |field| i64::from_be_bytes(*field))
}

/// The error of a batch that cannot be read.
pub(super) fn corrupt(
    partition: &TopicPartition,
    offset: i64,
    fault: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    let fault: Box<dyn std::error::Error + Send + Sync> = fault.into();
    let text = format!("the batch at offset {offset} of {partition} is corrupt: {fault}");
    Error::new(ErrorKind::CorruptBatch, text)
        .with_topic(&partition.topic)
        .with_partition(partition.partition)
        .with_hint("seek past it to go on without its records")
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
