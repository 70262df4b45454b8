//! Encoding records straight into a buffer, and a plain builder for one contiguous batch.

use bytes::Bytes;

use super::batch::HEADER_LEN;
use super::compression::Compression;
use super::crc;
use super::error::BatchError;
use super::seal::{BatchSeal, BatchSpan, seal};
use super::varint::{spread35, varint_len, varlong_len, zigzag32, zigzag64};

/// Key and value of a record header; the value may be null.
pub type HeaderPair<'a> = (&'a [u8], Option<&'a [u8]>);

/// The headers of a record that has none.
pub type NoHeaders<'a> = std::iter::Empty<HeaderPair<'a>>;

/// A record without headers: `headers: NO_HEADERS`.
pub const NO_HEADERS: NoHeaders<'static> = std::iter::empty();

/// A record to be encoded. Nothing is copied before [`MeasuredRecord::encode`].
///
/// `headers` is gone through twice: give an iterator over a slice, an array, or the
/// [`Headers`](super::Headers) of a record that was read.
#[derive(Debug, Clone)]
pub struct NewRecord<'a, H = NoHeaders<'a>> {
    /// Place in the batch, counted from 0.
    pub offset_delta: i32,
    /// Its time less that of the batch's first record, in ms; may be negative.
    pub timestamp_delta: i64,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: H,
}

/// A record with its lengths worked out, ready to be written.
#[derive(Debug, Clone)]
pub struct MeasuredRecord<'a, H = NoHeaders<'a>> {
    record: NewRecord<'a, H>,
    key_len: i32,
    value_len: i32,
    headers_count: i32,
    /// Value of the length field.
    body_len: i32,
    /// All bytes, the length field included.
    total: usize,
}

impl<'a, H> NewRecord<'a, H>
where
    H: IntoIterator<Item = HeaderPair<'a>> + Clone,
{
    /// Works out every length; `Length` if the record is longer than the format can say.
    #[inline]
    pub fn measure(self) -> Result<MeasuredRecord<'a, H>, BatchError> {
        let key_len = nullable_len(self.key)?;
        let value_len = nullable_len(self.value)?;
        // One byte of attributes. Sums of 32-bit lengths cannot wrap 64 bits.
        let mut body = 1
            + sized(varlong_len(self.timestamp_delta) + varint_len(self.offset_delta))
            + field_len(key_len)
            + field_len(value_len);
        let mut headers_count = 0_i32;
        for (key, value) in self.headers.clone() {
            body += field_len(nullable_len(Some(key))?) + field_len(nullable_len(value)?);
            headers_count = headers_count.saturating_add(1);
        }
        body += sized(varint_len(headers_count));
        let body_len = i32::try_from(body).map_err(|_| BatchError::Length { length: body })?;
        let total = usize::try_from(body).unwrap_or(usize::MAX) + varint_len(body_len);
        Ok(MeasuredRecord { record: self, key_len, value_len, headers_count, body_len, total })
    }
}

impl<'a, H> MeasuredRecord<'a, H>
where
    H: IntoIterator<Item = HeaderPair<'a>>,
{
    /// Bytes that the record takes in a batch.
    #[expect(clippy::len_without_is_empty, reason = "a record is never empty: 7 bytes at least")]
    pub const fn len(&self) -> usize {
        self.total
    }

    /// Appends the record to `out`, which grows only if its spare capacity is below `len()`.
    ///
    /// Gives `len()`.
    #[inline]
    pub fn encode(self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.reserve(self.total);
        let mut prefix = Prefix::default();
        prefix.varint(self.body_len);
        prefix.word(0, 1);
        prefix.varlong(self.record.timestamp_delta);
        prefix.varint(self.record.offset_delta);
        prefix.varint(self.key_len);
        append_short(out, prefix.bytes, prefix.len);
        out.extend_from_slice(self.record.key.unwrap_or_default());
        append_varint(out, self.value_len);
        out.extend_from_slice(self.record.value.unwrap_or_default());
        if self.headers_count == 0 {
            out.push(0);
        } else {
            append_varint(out, self.headers_count);
            for (key, value) in self.record.headers {
                append_field(out, Some(key));
                append_field(out, value);
            }
        }
        debug_assert_eq!(out.len() - start, self.total, "a record is as long as it was measured");
        self.total
    }
}

/// The small numbers in front of a key: at most 26 bytes, and the last is written as a whole word.
#[derive(Default)]
struct Prefix {
    bytes: [u8; 32],
    len: usize,
}

impl Prefix {
    #[inline]
    fn word(&mut self, word: u64, len: usize) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + 8) {
            place.copy_from_slice(&word.to_le_bytes());
            self.len += len;
        }
    }

    #[inline]
    fn varint(&mut self, value: i32) {
        let len = varint_len(value);
        self.word(spread35(u64::from(zigzag32(value)), len), len);
    }

    #[inline]
    fn varlong(&mut self, value: i64) {
        let len = varlong_len(value);
        let zigzag = zigzag64(value);
        if len <= 5 {
            self.word(spread35(zigzag, len), len);
        } else {
            // Five bytes that all go on, then the rest.
            self.word(spread35(zigzag & 0x7_ffff_ffff, 5) | (0x80 << 32), 5);
            self.word(spread35(zigzag >> 35, len - 5), len - 5);
        }
    }
}

/// Appends the first `len` bytes of a word; whole words are copied where there is room for them.
#[inline]
fn append_short<const N: usize>(out: &mut Vec<u8>, word: [u8; N], len: usize) {
    if out.capacity() - out.len() >= N {
        let end = out.len() + len;
        out.extend_from_slice(&word);
        out.truncate(end);
    } else {
        out.extend_from_slice(word.get(..len).unwrap_or_default());
    }
}

#[inline]
fn append_varint(out: &mut Vec<u8>, value: i32) {
    let len = varint_len(value);
    append_short(out, spread35(u64::from(zigzag32(value)), len).to_le_bytes(), len);
}

fn append_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    // Measured before, so the length fits.
    append_varint(out, field.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX)));
    out.extend_from_slice(field.unwrap_or_default());
}

/// Length of a key or value as it is written: −1 for null.
#[inline]
fn nullable_len(field: Option<&[u8]>) -> Result<i32, BatchError> {
    let Some(bytes) = field else { return Ok(-1) };
    i32::try_from(bytes.len())
        .map_err(|_| BatchError::Length { length: i64::try_from(bytes.len()).unwrap_or(i64::MAX) })
}

/// Bytes of a field: those of its length and its own.
#[inline]
fn field_len(len: i32) -> i64 {
    sized(varint_len(len)) + i64::from(len.max(0))
}

#[inline]
fn sized(small: usize) -> i64 {
    i64::try_from(small).unwrap_or(i64::MAX)
}

/// Builds one contiguous batch, for records that a broker or a tool makes.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    bytes: Vec<u8>,
    compression: Compression,
    span: Option<BatchSpan>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new(Compression::None)
    }
}

impl BatchBuilder {
    /// An empty batch whose body will be compressed so.
    pub fn new(compression: Compression) -> Self {
        Self { bytes: vec![0; HEADER_LEN], compression, span: None }
    }

    /// Records so far.
    pub fn len(&self) -> usize {
        self.span.map_or(0, |span| usize::try_from(span.records_count).unwrap_or(0))
    }

    /// Whether there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes so far, header included, before compression.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a record at the next offset; `Length` if it is longer than the format can say.
    pub fn push<'a, H>(
        &mut self,
        timestamp: i64,
        key: Option<&'a [u8]>,
        value: Option<&'a [u8]>,
        headers: H,
    ) -> Result<(), BatchError>
    where
        H: IntoIterator<Item = HeaderPair<'a>> + Clone,
    {
        let span = self.span.unwrap_or_else(|| BatchSpan::new(timestamp));
        let record = NewRecord {
            offset_delta: span.next_delta(),
            timestamp_delta: span.timestamp_delta(timestamp),
            key,
            value,
            headers,
        };
        record.measure()?.encode(&mut self.bytes);
        self.span.insert(span).add(timestamp);
        Ok(())
    }

    /// Leaves `offsets` free after the last record, as compaction does where it removes records.
    pub fn skip(&mut self, offsets: i32) {
        let span = self.span.get_or_insert(BatchSpan::new(-1));
        span.last_offset_delta = span.last_offset_delta.saturating_add(offsets.max(0));
    }

    /// The whole batch. The codec in `fields.attributes` is replaced by the builder's.
    pub fn finish(mut self, fields: &BatchSeal) -> Result<Bytes, BatchError> {
        if self.compression != Compression::None {
            let mut packed = vec![0; HEADER_LEN];
            self.compression.compress([self.body()], &mut packed)?;
            self.bytes = packed;
        }
        let span = self.span.unwrap_or(BatchSpan::new(-1));
        let attributes = fields.attributes.with_compression(self.compression);
        let fields = BatchSeal { attributes, ..*fields };
        let (body_len, body_crc) = (self.body().len(), crc::of(self.body()));
        if let Some(header) = self.bytes.first_chunk_mut::<HEADER_LEN>() {
            seal(header, &fields, &span, body_len, body_crc)?;
        }
        Ok(Bytes::from(self.bytes))
    }

    fn body(&self) -> &[u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }
}
