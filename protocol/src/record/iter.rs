//! The records of a decompressed body, one after the other, as borrowed views.

use std::iter::FusedIterator;

use super::batch::{BatchHeader, MIN_RECORD_LEN, TimestampType};
use super::builder::HeaderPair;
use super::error::RecordError;
use super::fields::{Fault, read_fields, read_header};
use super::varint::Cursor;

/// One record in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Its offset in the partition.
    pub offset: i64,
    /// Its time in ms since the epoch: the producer's, or the leader's for the whole batch.
    pub timestamp: i64,
    /// The key; `None` is null, which differs from empty.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null, a tombstone where the topic is compacted.
    pub value: Option<&'a [u8]>,
    /// The headers, in the order in which they were written.
    pub headers: Headers<'a>,
}

/// The headers of a record, decoded when asked for. Their form was checked with the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    pub(super) count: u32,
    pub(super) bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Key and value of each; a key may come more than once, a value may be null.
    pub const fn iter(&self) -> HeaderIter<'a> {
        HeaderIter { left: self.count, cursor: Cursor { bytes: self.bytes, at: 0 } }
    }

    /// The value of the last header of that key, as Kafka's `lastHeader`; outside: none has it.
    pub fn last(&self, key: &[u8]) -> Option<Option<&'a [u8]>> {
        self.iter().filter(|(found, _)| *found == key).map(|(_, value)| value).last()
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = HeaderPair<'a>;
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &Headers<'a> {
    type Item = HeaderPair<'a>;
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

/// Iterator over [`Headers`].
#[derive(Debug, Clone)]
pub struct HeaderIter<'a> {
    left: u32,
    cursor: Cursor<'a>,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = HeaderPair<'a>;

    fn next(&mut self) -> Option<HeaderPair<'a>> {
        self.left = self.left.checked_sub(1)?;
        read_header(&mut self.cursor).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for HeaderIter<'_> {}
impl FusedIterator for HeaderIter<'_> {}

/// Iterator over the records of a decompressed body.
///
/// Each record must fill its length, and the last one the body. After an error it ends.
#[derive(Debug, Clone)]
pub struct RecordIter<'a> {
    body: Cursor<'a>,
    index: usize,
    count: usize,
    base_offset: i64,
    last_offset_delta: i32,
    base_timestamp: i64,
    append_time: Option<i64>,
    ended: bool,
}

/// A record as places in the body: what a view and an index row are made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordParts<'a> {
    pub(super) offset_delta: i32,
    pub(super) timestamp: i64,
    pub(super) key: Option<&'a [u8]>,
    pub(super) key_at: usize,
    pub(super) value: Option<&'a [u8]>,
    pub(super) value_at: usize,
    pub(super) headers: Headers<'a>,
    pub(super) headers_at: usize,
}

impl<'a> RecordIter<'a> {
    /// Records of `body`, the decompressed bytes after `header`.
    pub fn new(header: &BatchHeader, body: &'a [u8]) -> Self {
        let append_time = match header.attributes.timestamp_type() {
            TimestampType::LogAppendTime => Some(header.max_timestamp),
            TimestampType::CreateTime => None,
        };
        Self {
            body: Cursor { bytes: body, at: 0 },
            index: 0,
            count: usize::try_from(header.records_count).unwrap_or(0),
            base_offset: header.base_offset,
            last_offset_delta: header.last_offset_delta,
            base_timestamp: header.base_timestamp,
            append_time,
            ended: false,
        }
    }

    /// The next record as places; `None` at the end.
    #[inline]
    pub(super) fn next_parts(&mut self) -> Option<Result<RecordParts<'a>, RecordError>> {
        if self.ended {
            return None;
        }
        if self.index == self.count {
            self.ended = true;
            if self.body.remaining() == 0 || crate::left_out("trailing_bytes") {
                return None;
            }
            let fault = (self.body.at, "bytes follow the last record");
            return Some(Err(self.fault(fault)));
        }
        match self.read() {
            Ok(parts) => {
                self.index += 1;
                Some(Ok(parts))
            }
            Err(fault) => {
                self.ended = true;
                Some(Err(self.fault(fault)))
            }
        }
    }

    const fn fault(&self, (at, what): Fault) -> RecordError {
        RecordError { index: self.index, at, what }
    }

    #[inline]
    fn read(&mut self) -> Result<RecordParts<'a>, Fault> {
        let start = self.body.at;
        let Some(len) = self.body.varint() else {
            return Err((start, "its length is cut or too long a number"));
        };
        let Ok(len) = usize::try_from(len) else {
            return Err((start, "its length is negative"));
        };
        // Within the record no field may pass its end, even where the batch goes on.
        let at = self.body.at;
        let end = at.checked_add(len);
        let end = if crate::left_out("record_length") {
            end.map(|end| end.min(self.body.bytes.len()))
        } else {
            end
        };
        let Some(bytes) = end.and_then(|end| self.body.bytes.get(..end)) else {
            return Err((start, "its length passes the end of the batch"));
        };
        self.body.at = bytes.len();
        let mut record = Cursor { bytes, at };
        let fields = read_fields(&mut record, self.last_offset_delta)?;
        let headers = match fields.headers_count {
            0 => Headers::default(),
            count => Headers { count, bytes: bytes.get(fields.headers_at..).unwrap_or_default() },
        };
        Ok(RecordParts {
            offset_delta: fields.offset_delta,
            // Kafka's arithmetic wraps here as well; a false timestamp harms nobody's memory.
            timestamp: self
                .append_time
                .unwrap_or_else(|| self.base_timestamp.wrapping_add(fields.timestamp_delta)),
            key: fields.key,
            key_at: fields.key_at,
            value: fields.value,
            value_at: fields.value_at,
            headers,
            headers_at: fields.headers_at,
        })
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<RecordView<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let parts = match self.next_parts()? {
            Ok(parts) => parts,
            Err(fault) => return Some(Err(fault)),
        };
        Some(Ok(RecordView {
            offset: self.base_offset.saturating_add(i64::from(parts.offset_delta)),
            timestamp: parts.timestamp,
            key: parts.key,
            value: parts.value,
            headers: parts.headers,
        }))
    }

    /// At most as many as the count says and the bytes can hold, and one error.
    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.ended {
            return (0, Some(0));
        }
        let left = (self.count - self.index).min(self.body.remaining() / MIN_RECORD_LEN);
        (0, Some(left + 1))
    }
}

impl FusedIterator for RecordIter<'_> {}
