//! The records of a batch looked at as they are decompressed, with neither the body nor a record
//! held whole.

use super::batch::{Batch, BatchHeader, TimestampType};
use super::compression::{Compression, CompressionError, Compressor, Decompressor};
use super::error::{BatchError, RecordError};
use super::fields::{Fault, FieldSource, read_fields};
use super::varint::{Cursor, MAX_VARLONG_LEN};

/// Bytes decompressed at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// All of a record but its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordOutline {
    /// Its offset in the partition.
    pub offset: i64,
    /// Its time in ms since the epoch: the producer's, or the leader's for the whole batch.
    pub timestamp: i64,
    /// What its length field says: all its bytes but that field.
    pub len: usize,
    /// Bytes of the key; `None` is null.
    pub key_len: Option<usize>,
    /// Bytes of the value; `None` is null.
    pub value_len: Option<usize>,
}

/// Why a scan cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanError {
    /// A record breaks the format.
    Record(RecordError),
    /// The body cannot be decompressed, or holds more than is allowed.
    Compression(CompressionError),
}

impl std::fmt::Display for ScanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Record(fault) => fault.fmt(f),
            Self::Compression(fault) => write!(f, "record batch: {fault}"),
        }
    }
}

impl std::error::Error for ScanError {}

/// Iterator over the outlines of a batch's records, which are checked as by
/// [`RecordIter`](super::RecordIter).
///
/// It holds 64 KiB of the decompressed body at a time, and what the [`Decompressor`] does. After an
/// error it ends.
#[derive(Debug)]
pub struct RecordScan<'a, 'o> {
    window: Window<'a, 'o>,
    header: BatchHeader,
    index: usize,
    count: usize,
    ended: bool,
}

impl<'a, 'o> RecordScan<'a, 'o> {
    /// Begins with a batch whose body may come to at most `limit` bytes.
    pub fn new(batch: &Batch<'a>, limit: usize) -> Result<Self, BatchError> {
        let codec = batch.header.attributes.compression()?;
        let body = batch.records_bytes();
        let window = if codec == Compression::None && body.len() <= limit || body.is_empty() {
            Window::of(body)
        } else {
            Window::through(Decompressor::new(codec, body, limit)?, None)
        };
        Ok(Self::over(window, batch.header))
    }

    /// Begins with a batch whose records go to `copy` as they are read.
    ///
    /// When the scan has ended without an error all were written: [`RecordScan::into_copy`].
    pub fn copying(
        batch: &Batch<'a>,
        limit: usize,
        copy: Compressor<'o>,
    ) -> Result<Self, BatchError> {
        let codec = batch.header.attributes.compression()?;
        let source = Decompressor::new(codec, batch.records_bytes(), limit)?;
        Ok(Self::over(Window::through(source, Some(copy)), batch.header))
    }

    fn over(window: Window<'a, 'o>, header: BatchHeader) -> Self {
        let count = usize::try_from(header.records_count).unwrap_or(0);
        Self { window, header, index: 0, count, ended: false }
    }

    /// What the records were written to, if the scan was begun so.
    pub fn into_copy(self) -> Option<Compressor<'o>> {
        self.window.copy
    }

    /// Bytes that the copy came to so far.
    pub fn copied_bytes(&self) -> usize {
        self.window.copy.as_ref().map_or(0, Compressor::written)
    }

    fn read(&mut self) -> Result<RecordOutline, Fault> {
        let start = self.window.at();
        let Some(len) = self.window.varint(usize::MAX) else {
            return Err((start, "its length is cut or too long a number"));
        };
        let Ok(len) = usize::try_from(len) else {
            return Err((start, "its length is negative"));
        };
        let end = self.window.at().saturating_add(len);
        let mut record = InRecord { window: &mut self.window, end };
        let fields = match read_fields(&mut record, self.header.last_offset_delta) {
            Ok(fields) => fields,
            Err(fault) => {
                // A stream's end shows only when it is there; it explains more than the field does.
                let short = self.window.skip(end.saturating_sub(self.window.at())).is_none();
                let passed = (start, "its length passes the end of the batch");
                return Err(if short { passed } else { fault });
            }
        };
        let header = &self.header;
        let timestamp = match header.attributes.timestamp_type() {
            TimestampType::LogAppendTime => header.max_timestamp,
            TimestampType::CreateTime => header.base_timestamp.wrapping_add(fields.timestamp_delta),
        };
        Ok(RecordOutline {
            offset: header.base_offset.saturating_add(i64::from(fields.offset_delta)),
            timestamp,
            len,
            key_len: fields.key,
            value_len: fields.value,
        })
    }

    fn fail(&mut self, (at, what): Fault) -> ScanError {
        self.ended = true;
        // Where bytes are missing since they could not be decompressed, that is the reason.
        match self.window.fault.take() {
            Some(fault) => ScanError::Compression(fault),
            None => ScanError::Record(RecordError { index: self.index, at, what }),
        }
    }
}

impl Iterator for RecordScan<'_, '_> {
    type Item = Result<RecordOutline, ScanError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if self.index < self.count {
            return Some(match self.read() {
                Ok(outline) => {
                    self.index += 1;
                    Ok(outline)
                }
                Err(fault) => Err(self.fail(fault)),
            });
        }
        let at = self.window.at();
        let more = self.window.ensure(1);
        if more || self.window.fault.is_some() {
            return Some(Err(self.fail((at, "bytes follow the last record"))));
        }
        self.ended = true;
        None
    }
}

impl std::iter::FusedIterator for RecordScan<'_, '_> {}

/// The piece of a body that is at hand.
#[derive(Debug)]
struct Window<'a, 'o> {
    /// The whole body, where it is not compressed.
    plain: &'a [u8],
    source: Option<Decompressor<'a>>,
    piece: Vec<u8>,
    /// The next byte in the piece, or in the plain body.
    next: usize,
    /// Bytes of the body that lie before the piece.
    before: usize,
    fault: Option<CompressionError>,
    copy: Option<Compressor<'o>>,
}

impl<'a, 'o> Window<'a, 'o> {
    const fn of(plain: &'a [u8]) -> Self {
        Self { plain, source: None, piece: Vec::new(), next: 0, before: 0, fault: None, copy: None }
    }

    fn through(source: Decompressor<'a>, copy: Option<Compressor<'o>>) -> Self {
        let piece = Vec::with_capacity(PIECE_BYTES);
        Self { source: Some(source), piece, copy, ..Self::of(&[]) }
    }

    /// Where the next byte stands in the body.
    const fn at(&self) -> usize {
        self.before + self.next
    }

    fn rest(&self) -> &[u8] {
        let bytes = if self.plain.is_empty() { &self.piece[..] } else { self.plain };
        bytes.get(self.next..).unwrap_or_default()
    }

    /// Fetches until `count` bytes are at hand; false where there are not so many.
    fn ensure(&mut self, count: usize) -> bool {
        debug_assert!(count <= PIECE_BYTES, "a piece has room for so many");
        while self.rest().len() < count {
            let Some(source) = &mut self.source else { return false };
            self.piece.drain(..self.next);
            self.before += self.next;
            self.next = 0;
            let kept = self.piece.len();
            let filled = source.fill(&mut self.piece).and_then(|filled| {
                let new = self.piece.get(kept..).unwrap_or_default();
                if let Some(copy) = &mut self.copy {
                    copy.write(new)?;
                }
                Ok(filled)
            });
            match filled {
                Ok(0) => self.source = None,
                Ok(_) => {}
                Err(fault) => {
                    self.source = None;
                    self.fault = Some(fault);
                }
            }
        }
        true
    }

    /// Reads a number that ends within the next `limit` bytes.
    fn number<T>(
        &mut self,
        limit: usize,
        read: impl FnOnce(&mut Cursor<'_>) -> Option<T>,
    ) -> Option<T> {
        self.ensure(MAX_VARLONG_LEN);
        let rest = self.rest();
        let mut cursor = Cursor { bytes: rest.get(..limit).unwrap_or(rest), at: 0 };
        let number = read(&mut cursor)?;
        self.next += cursor.at;
        Some(number)
    }

    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method is of one lifetime")]
    fn varint(&mut self, limit: usize) -> Option<i32> {
        self.number(limit, |cursor| cursor.varint())
    }

    /// Passes over `len` bytes.
    fn skip(&mut self, mut len: usize) -> Option<()> {
        loop {
            let step = self.rest().len().min(len);
            self.next += step;
            len -= step;
            if len == 0 {
                return Some(());
            }
            if !self.ensure(1) {
                return None;
            }
        }
    }
}

/// A record that begins in the window, and goes up to `end` in the body.
struct InRecord<'w, 'a, 'o> {
    window: &'w mut Window<'a, 'o>,
    end: usize,
}

impl FieldSource for InRecord<'_, '_, '_> {
    /// How many there were.
    type Bytes = usize;

    fn at(&self) -> usize {
        self.window.at()
    }

    fn remaining(&self) -> usize {
        self.end.saturating_sub(self.window.at())
    }

    fn byte(&mut self) -> Option<u8> {
        if self.remaining() == 0 || !self.window.ensure(1) {
            return None;
        }
        let byte = self.window.rest().first().copied();
        self.window.next += 1;
        byte
    }

    fn varint(&mut self) -> Option<i32> {
        self.window.varint(self.remaining())
    }

    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method is of one lifetime")]
    fn varlong(&mut self) -> Option<i64> {
        self.window.number(self.remaining(), |cursor| cursor.varlong())
    }

    fn take(&mut self, len: usize) -> Option<usize> {
        if len > self.remaining() {
            return None;
        }
        self.window.skip(len).map(|()| len)
    }
}

#[cfg(test)]
mod tests;
