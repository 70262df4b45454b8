//! The one reader of a record's fields, whether its bytes lie in memory or come by in a stream.

use super::varint::Cursor;

/// The byte at which a fault shows, and what is wrong there.
pub(super) type Fault = (usize, &'static str);

/// Bytes of one record, read from front to end.
pub(super) trait FieldSource {
    /// What is given of a key or a value.
    type Bytes;

    /// Where the next byte stands in the body.
    fn at(&self) -> usize;
    /// How many bytes of the record are left; no field may pass its end.
    fn remaining(&self) -> usize;
    /// The next byte; `None` where there is none.
    fn byte(&mut self) -> Option<u8>;
    /// The next number of 32 bits; `None` where it is cut or too long.
    fn varint(&mut self) -> Option<i32>;
    /// The next number of 64 bits; `None` where it is cut or too long.
    fn varlong(&mut self) -> Option<i64>;
    /// The next `len` bytes; `None` where the record has fewer.
    fn take(&mut self, len: usize) -> Option<Self::Bytes>;
}

impl<'a> FieldSource for Cursor<'a> {
    type Bytes = &'a [u8];

    #[inline]
    fn at(&self) -> usize {
        self.at
    }

    #[inline]
    fn remaining(&self) -> usize {
        Cursor::remaining(self)
    }

    #[inline]
    fn byte(&mut self) -> Option<u8> {
        Cursor::byte(self)
    }

    #[inline]
    fn varint(&mut self) -> Option<i32> {
        Cursor::varint(self)
    }

    #[inline]
    fn varlong(&mut self) -> Option<i64> {
        Cursor::varlong(self)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        Cursor::take(self, len)
    }
}

/// A record's fields, and where in the body its larger ones lie.
#[derive(Debug)]
pub(super) struct Fields<B> {
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) key: Option<B>,
    pub(super) key_at: usize,
    pub(super) value: Option<B>,
    pub(super) value_at: usize,
    pub(super) headers_count: u32,
    /// The first byte after the headers' count; they fill the rest of the record.
    pub(super) headers_at: usize,
}

/// Reads the fields after a record's length, which they must fill.
#[inline]
pub(super) fn read_fields<S: FieldSource>(
    record: &mut S,
    last_offset_delta: i32,
) -> Result<Fields<S::Bytes>, Fault> {
    let at = record.at();
    record.byte().ok_or((at, "its attributes are missing"))?;
    let at = record.at();
    let timestamp_delta = record.varlong().ok_or((at, "its timestamp is cut or too long"))?;
    let at = record.at();
    let offset_delta = record.varint().ok_or((at, "its offset is cut or too long"))?;
    let inside = offset_delta >= 0 && offset_delta <= last_offset_delta;
    if !inside && !crate::left_out("record_offset") {
        return Err((at, "its offset lies outside the batch"));
    }
    let (key, key_at) = read_nullable(record, "its key's length is wrong")?;
    let (value, value_at) = read_nullable(record, "its value's length is wrong")?;
    let at = record.at();
    let count = record.varint().ok_or((at, "its header count is cut or too long"))?;
    let headers_at = record.at();
    // A header is two bytes at least.
    let most = if crate::left_out("header_count") { usize::MAX } else { record.remaining() / 2 };
    if !usize::try_from(count).is_ok_and(|count| count <= most) {
        return Err((at, "its header count is more than its bytes can hold"));
    }
    for _ in 0..count {
        read_header(record)?;
    }
    if record.remaining() != 0 && !crate::left_out("record_filled") {
        return Err((record.at(), "its fields end before its length does"));
    }
    Ok(Fields {
        timestamp_delta,
        offset_delta,
        key,
        key_at,
        value,
        value_at,
        headers_count: count.cast_unsigned(),
        headers_at,
    })
}

/// Key and value of a header.
pub(super) fn read_header<S: FieldSource>(
    record: &mut S,
) -> Result<(S::Bytes, Option<S::Bytes>), Fault> {
    const KEY: &str = "a header's key is null or its length is wrong";
    let at = record.at();
    let (key, _) = read_nullable(record, KEY)?;
    let key = key.ok_or((at, KEY))?;
    let (value, _) = read_nullable(record, "a header's value has a wrong length")?;
    Ok((key, value))
}

/// A length and that many bytes, and where they begin; −1 is null, other negative lengths are an
/// error.
#[inline]
fn read_nullable<S: FieldSource>(
    record: &mut S,
    what: &'static str,
) -> Result<(Option<S::Bytes>, usize), Fault> {
    let at = record.at();
    let len = record.varint().ok_or((at, what))?;
    let bytes_at = record.at();
    if len == -1 {
        return Ok((None, bytes_at));
    }
    let len = if crate::left_out("field_length") {
        i32::try_from(record.remaining()).map_or(len, |most| len.min(most))
    } else {
        len
    };
    let taken = usize::try_from(len).ok().and_then(|len| record.take(len));
    taken.map(|bytes| (Some(bytes), bytes_at)).ok_or((at, what))
}
