//! What came of one partition in one fetch, checked, and indexed record by record.

use bytes::Bytes;
use ottla_protocol::record::{Compression, DecodedBatch, HEADER_LEN, IndexedBatch, RecordView};

use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::commits::Mark;
use crate::state::fetcher::Fetched;

/// Most bytes that one compressed batch may grow to: what Kafka's brokers accept in a request.
const BATCH_BYTES_MAX: usize = 100 * 1024 * 1024;

/// What all clones and records of a batch share.
pub(in crate::consumer) struct Shared {
    pub(in crate::consumer) partition: TopicPartition,
    pub(in crate::consumer) lease: u64,
    pub(in crate::consumer) position: u64,
    pub(super) chunks: Vec<Chunk>,
    pub(super) len: usize,
    /// Where to read on behind all of it.
    pub(super) next: i64,
    /// Up to where nothing else stands in the log behind its last record.
    pub(super) through: i64,
    pub(super) high_watermark: i64,
    /// What its records take, decompressed.
    pub(super) memory_bytes: usize,
    /// Bytes of the answer whose memory it may hold.
    pub(super) pinned: usize,
    /// Tells one fetch from another, also where it has been copied.
    pub(super) number: u64,
}

/// One record batch as it stood in the log.
pub(super) struct Chunk {
    /// Number of records before it, among those to be shown.
    pub(super) first: usize,
    /// Records at its front that lie before the offset that was asked for.
    pub(super) skipped: usize,
    pub(super) records: IndexedBatch,
}

impl Shared {
    /// Checks and indexes what was fetched, up to so many bytes of memory, or one batch if that alone
    /// takes more; what is beyond, or behind it cannot be read, is left for the next time. Many
    /// small batches can hold a thousand times their bytes.
    ///
    /// The error is that of the first batch, and names topic, partition and offset.
    pub(in crate::consumer) fn decode(
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
        let next = rest.as_ref().map_or(fetched.next, |rest| rest.start);
        let shared = Self {
            partition: fetched.partition.clone(),
            lease,
            position: fetched.position,
            chunks,
            len,
            next,
            through: next,
            high_watermark: fetched.high_watermark,
            memory_bytes: decoded,
            pinned: fetched.pinned,
            number: 0,
        };
        Ok((shared, rest))
    }

    /// The same under a number of its own.
    pub(in crate::consumer) const fn numbered(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    /// Whether both are of one fetch, and so have the same records at the same places.
    pub(in crate::consumer) const fn is_same(&self, other: &Self) -> bool {
        self.number == other.number
    }

    /// The same in memory of its own, if it holds more than twice as much as it needs: it may take
    /// long until it is read. What was decompressed has memory of its own already.
    pub(in crate::consumer) fn let_go(&self) -> Option<Self> {
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

    pub(in crate::consumer) const fn len(&self) -> usize {
        self.len
    }

    pub(in crate::consumer) const fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The chunk of a record, and the record's place in it.
    pub(super) fn place(&self, index: usize) -> Option<(&Chunk, usize)> {
        let after = self.chunks.partition_point(|chunk| chunk.first <= index);
        let chunk = self.chunks.get(after.checked_sub(1)?)?;
        Some((chunk, index - chunk.first + chunk.skipped))
    }

    pub(in crate::consumer) fn get(&self, index: usize) -> Option<RecordView<'_>> {
        let (chunk, place) = self.place(index)?;
        chunk.records.get(place)
    }

    /// Epoch of the leader that took the record at `index`; −1 if unknown.
    pub(in crate::consumer) fn leader_epoch(&self, index: usize) -> i32 {
        self.place(index).map_or(-1, |(chunk, _)| chunk.records.header().partition_leader_epoch)
    }

    /// Where reading stands when all records before `index` are finished.
    pub(in crate::consumer) fn mark(&self, index: usize) -> Mark {
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
            beyond: 0,
        }
    }

    /// Up to where the log holds nothing but the records before `index`, from the first of them on.
    pub(in crate::consumer) fn reach_of(&self, index: usize) -> i64 {
        self.get(index).map_or(self.through, |record| record.offset)
    }

    /// The first record at this offset or behind it.
    pub(in crate::consumer) fn index_of(&self, offset: i64) -> usize {
        let (mut from, mut to) = (0, self.len);
        while from < to {
            let middle = from.midpoint(to);
            if self.get(middle).is_some_and(|record| record.offset < offset) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }

    /// The offset of the record at `index`, or where to read on behind all of them.
    pub(in crate::consumer) fn offset_at(&self, index: usize) -> i64 {
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
pub(in crate::consumer) fn corrupt(
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
