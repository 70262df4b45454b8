//! Decompressed batches: borrowed for a moment, kept for long, or indexed for random access.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::batch::{Batch, BatchHeader, HEADER_LEN, MIN_RECORD_LEN};
use super::compression::{Compression, CompressionError};
use super::error::{BatchError, RecordError};
use super::iter::{Headers, RecordIter, RecordParts, RecordView};

/// No body is larger: Kafka's lengths are `i32`, and an index keeps places in 32 bits.
const MAX_BODY: usize = 0x7fff_ffff;

/// The records of a batch whose bytes are borrowed; memory of its own only to decompress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchRecords<'a> {
    header: BatchHeader,
    body: Cow<'a, [u8]>,
}

impl<'a> BatchRecords<'a> {
    pub(super) fn new(batch: &Batch<'a>, limit: usize) -> Result<Self, BatchError> {
        let body = match batch.header.attributes.compression()? {
            _ if batch.header.records_count == 0 => Cow::Borrowed(&[][..]),
            Compression::None => Cow::Borrowed(capped(batch.body(), limit)?),
            codec => Cow::Owned(codec.decompress(batch.body(), limit.min(MAX_BODY))?),
        };
        Ok(Self { header: batch.header, body })
    }

    /// The decompressed bytes.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The records from the first on.
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter::new(&self.header, &self.body)
    }
}

impl<'a> IntoIterator for &'a BatchRecords<'_> {
    type Item = Result<RecordView<'a>, RecordError>;
    type IntoIter = RecordIter<'a>;

    fn into_iter(self) -> RecordIter<'a> {
        self.iter()
    }
}

fn capped(body: &[u8], limit: usize) -> Result<&[u8], BatchError> {
    if body.len() > limit {
        return Err(CompressionError::TooLarge { limit }.into());
    }
    Ok(body)
}

/// A batch to keep: its header and its decompressed body, shared and cheap to clone.
///
/// An uncompressed body is a slice of the buffer the batch came in, and keeps that buffer alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedBatch {
    header: BatchHeader,
    body: Bytes,
}

impl DecodedBatch {
    /// Takes the first batch of `bytes`, decompressed to at most `limit` bytes.
    ///
    /// The checksum is the caller's matter: [`Batch::verify_crc`].
    pub fn decode(bytes: &Bytes, limit: usize) -> Result<Self, BatchError> {
        let batch = Batch::parse(bytes)?;
        let body = match batch.header.attributes.compression()? {
            _ if batch.header.records_count == 0 => Bytes::new(),
            Compression::None => {
                capped(batch.body(), limit)?;
                bytes.slice(HEADER_LEN..batch.bytes.len())
            }
            codec => Bytes::from(codec.decompress(batch.body(), limit.min(MAX_BODY))?),
        };
        Ok(Self { header: batch.header, body })
    }

    /// A batch of a header and a decompressed body that were never together.
    #[cfg(test)]
    pub(super) const fn of_parts(header: BatchHeader, body: Bytes) -> Self {
        Self { header, body }
    }

    /// The header as it was in the batch.
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The decompressed records, all in one.
    pub const fn body(&self) -> &Bytes {
        &self.body
    }

    /// The records from the first on, checked as they come.
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter::new(&self.header, &self.body)
    }

    /// Bytes that [`DecodedBatch::index`] allocates at most, to be taken from a budget before.
    pub fn index_bytes(&self) -> usize {
        self.rows_most() * size_of::<RecordRow>()
    }

    /// Checks every record once and notes where its parts lie. 40 bytes a record.
    pub fn index(self) -> Result<IndexedBatch, RecordError> {
        let mut rows = Vec::with_capacity(self.rows_most());
        let mut records = self.iter();
        while let Some(parts) = records.next_parts() {
            rows.push(RecordRow::new(&parts?));
        }
        Ok(IndexedBatch { batch: self, rows })
    }

    /// Records by the count, or fewer if the body cannot hold so many.
    fn rows_most(&self) -> usize {
        let count = usize::try_from(self.header.records_count).unwrap_or(0);
        if crate::left_out("batch_count") {
            return count;
        }
        count.min(self.body.len() / MIN_RECORD_LEN)
    }
}

impl<'a> IntoIterator for &'a DecodedBatch {
    type Item = Result<RecordView<'a>, RecordError>;
    type IntoIter = RecordIter<'a>;

    fn into_iter(self) -> RecordIter<'a> {
        self.iter()
    }
}

/// Where a record lies in the body of its batch. Lengths of −1 stand for null.
///
/// The layout is that of C, so that a table of rows can be read from outside Rust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct RecordRow {
    /// Time in ms since the epoch.
    pub timestamp: i64,
    /// Offset less the batch's base offset.
    pub offset_delta: i32,
    /// First byte of the key.
    pub key_at: u32,
    /// Bytes of the key.
    pub key_len: i32,
    /// First byte of the value.
    pub value_at: u32,
    /// Bytes of the value.
    pub value_len: i32,
    /// First byte of the headers, after their count.
    pub headers_at: u32,
    /// Bytes of all headers.
    pub headers_len: u32,
    /// How many headers there are.
    pub headers_count: u32,
}

impl RecordRow {
    fn new(parts: &RecordParts<'_>) -> Self {
        Self {
            timestamp: parts.timestamp,
            offset_delta: parts.offset_delta,
            key_at: place(parts.key_at),
            key_len: parts.key.map_or(-1, |key| place(key.len()).cast_signed()),
            value_at: place(parts.value_at),
            value_len: parts.value.map_or(-1, |value| place(value.len()).cast_signed()),
            headers_at: place(parts.headers_at),
            headers_len: place(parts.headers.bytes.len()),
            headers_count: parts.headers.count,
        }
    }

    /// Where its parts begin: key, value and headers lie one behind the other.
    const fn start(&self) -> u32 {
        match (self.key_len, self.value_len) {
            (0.., _) => self.key_at,
            (_, 0..) => self.value_at,
            _ => self.headers_at,
        }
    }

    /// Where its parts end.
    const fn end(&self) -> u32 {
        self.headers_at.saturating_add(self.headers_len)
    }

    /// The same in a body that lacks so many bytes at its front.
    const fn without(self, bytes: u32) -> Self {
        Self {
            key_at: self.key_at.saturating_sub(bytes),
            value_at: self.value_at.saturating_sub(bytes),
            headers_at: self.headers_at.saturating_sub(bytes),
            ..self
        }
    }

    /// Where the key lies in the body; `None` is null.
    pub fn key(&self) -> Option<Range<usize>> {
        range(self.key_at, self.key_len)
    }

    /// Where the value lies in the body; `None` is null.
    pub fn value(&self) -> Option<Range<usize>> {
        range(self.value_at, self.value_len)
    }
}

/// A place in a body, which is never longer than [`MAX_BODY`].
fn place(at: usize) -> u32 {
    debug_assert!(at <= MAX_BODY, "a body is at most 2^31 - 1 bytes");
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn range(at: u32, len: i32) -> Option<Range<usize>> {
    let (at, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
    Some(at..at + len)
}

/// A batch whose records were all checked: each is taken by its index at once.
///
/// Cheap to borrow from, and to be shared in an `Arc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedBatch {
    batch: DecodedBatch,
    rows: Vec<RecordRow>,
}

impl IndexedBatch {
    /// The header as it was in the batch.
    pub const fn header(&self) -> &BatchHeader {
        &self.batch.header
    }

    /// The decompressed records, all in one: what the rows' places count from.
    pub const fn body(&self) -> &Bytes {
        &self.batch.body
    }

    /// How many records there are; compaction may have left none.
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no record.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Where each record lies.
    pub fn rows(&self) -> &[RecordRow] {
        &self.rows
    }

    /// Bytes that the batch holds: body and rows. The body may be part of a larger buffer.
    pub fn memory_bytes(&self) -> usize {
        self.batch.body.len() + self.rows.capacity() * size_of::<RecordRow>()
    }

    /// The same with the body in memory of its own, which holds no larger buffer.
    #[must_use]
    pub fn detached(&self) -> Self {
        let mut detached = self.clone();
        detached.batch.body = Bytes::copy_from_slice(&self.batch.body);
        detached
    }

    /// Some of its records under the same header, with the part of the body that they lie in, in
    /// memory of its own. What is past the end is left out.
    #[must_use]
    pub fn part(&self, records: Range<usize>) -> Self {
        let to = records.end.min(self.rows.len());
        let rows = self.rows.get(records.start..to).unwrap_or_default();
        let start = rows.first().map_or(0, RecordRow::start);
        let len = rows.last().map_or(0, RecordRow::end).saturating_sub(start);
        let body = range(start, len.cast_signed()).and_then(|range| self.batch.body.get(range));
        let body = Bytes::copy_from_slice(body.unwrap_or_default());
        let batch = DecodedBatch { header: self.batch.header, body };
        Self { batch, rows: rows.iter().map(|row| row.without(start)).collect() }
    }

    /// The record at `index`, borrowed; `None` past the end.
    pub fn get(&self, index: usize) -> Option<RecordView<'_>> {
        let row = self.rows.get(index)?;
        Some(RecordView {
            offset: self.offset_of(row),
            timestamp: row.timestamp,
            key: row.key().and_then(|range| self.batch.body.get(range)),
            value: row.value().and_then(|range| self.batch.body.get(range)),
            headers: self.headers_of(row),
        })
    }

    /// All records in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RecordView<'_>> + DoubleEndedIterator {
        self.rows.iter().map(|row| RecordView {
            offset: self.offset_of(row),
            timestamp: row.timestamp,
            key: row.key().and_then(|range| self.batch.body.get(range)),
            value: row.value().and_then(|range| self.batch.body.get(range)),
            headers: self.headers_of(row),
        })
    }

    /// The key at `index`, sharing the body; `None` is null, and past the end.
    pub fn key(&self, index: usize) -> Option<Bytes> {
        self.rows.get(index)?.key().map(|range| self.batch.body.slice(range))
    }

    /// The value at `index`, sharing the body; `None` is null, and past the end.
    pub fn value(&self, index: usize) -> Option<Bytes> {
        self.rows.get(index)?.value().map(|range| self.batch.body.slice(range))
    }

    /// Index of the first record at or past `offset`; `len()` if there is none.
    ///
    /// A fetch gives whole batches, so the first one may begin before the offset asked for.
    pub fn position_of(&self, offset: i64) -> usize {
        self.rows.partition_point(|row| self.offset_of(row) < offset)
    }

    fn offset_of(&self, row: &RecordRow) -> i64 {
        self.batch.header.base_offset.saturating_add(i64::from(row.offset_delta))
    }

    fn headers_of(&self, row: &RecordRow) -> Headers<'_> {
        let bytes = range(row.headers_at, row.headers_len.cast_signed())
            .and_then(|range| self.batch.body.get(range))
            .unwrap_or_default();
        Headers { count: row.headers_count, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BatchBuilder, BatchSeal};

    #[test]
    fn a_part_has_the_same_records_and_no_byte_of_others() {
        for codec in [Compression::None, Compression::Lz4] {
            let mut builder = BatchBuilder::new(codec);
            let value = [7; 1000];
            for at in 0..8_u8 {
                let key = [1, at];
                let key = (at % 2 == 0).then_some(&key[..]);
                let value = (at % 3 != 0).then(|| &value[..usize::from(at) * 100]);
                let headers = (0..at % 4).map(|_| (&b"h"[..], Some(&[2, 3][..])));
                builder.push(i64::from(at), key, value, headers).unwrap();
            }
            let bytes = builder.finish(&BatchSeal { base_offset: 50, ..BatchSeal::default() });
            let whole = DecodedBatch::decode(&bytes.unwrap(), 1 << 20).unwrap().index().unwrap();
            for from in 0..8 {
                for to in from..10 {
                    let part = whole.part(from..to);
                    let wanted: Vec<_> = whole.iter().skip(from).take(to - from).collect();
                    assert!(part.iter().eq(wanted.iter().copied()), "{from}..{to}");
                    let needed = |view: &RecordView<'_>| {
                        view.key.map_or(0, <[u8]>::len) + view.value.map_or(0, <[u8]>::len)
                    };
                    // Beside its parts a record has lengths, headers, deltas: 40 bytes at most here.
                    let needed: usize = wanted.iter().map(|view| needed(view) + 40).sum();
                    assert!(part.body().len() <= needed, "{} bytes", part.body().len());
                    assert_eq!(part.header(), whole.header());
                }
            }
            assert!(whole.part(8..9).is_empty() && whole.part(9..10).is_empty());
        }
    }
}
