//! Records across the border: packed on the way in, a batch as memory and places on the way out.
//!
//! `lib/pack.js` and `lib/record.js` are the other halves of these two forms.

use napi::bindgen_prelude::{
    BigInt, BigInt64Array, BufferSlice, Env, External, Int32Array, Object,
};
use ottla::{Batch, Error, ErrorKind, Header, Piece, Record};

use crate::boundary::Fault;

/// Numbers of a packed record, before those of its headers (two each).
///
/// Length of the key and of the value (−1 is null), number of headers, partition (−1 is none), and
/// the time in two halves, low and high (−1 is none). Behind each other in the bytes: key, value,
/// and key and value of each header.
const RECORD_NUMBERS: usize = 6;

/// Packed records, read one after the other.
#[derive(Debug)]
pub(crate) struct Packed<'a> {
    numbers: &'a [i32],
    bytes: &'a [u8],
    /// The value of the only record, if it was too large to be packed.
    value: Option<&'a [u8]>,
    headers: Vec<Header<'a>>,
}

impl<'a> Packed<'a> {
    pub(crate) const fn new(numbers: &'a [i32], bytes: &'a [u8], value: Option<&'a [u8]>) -> Self {
        Self { numbers, bytes, value, headers: Vec::new() }
    }

    /// The next record, to be sent to that topic.
    pub(crate) fn next(&mut self, topic: &'a str) -> Result<Record<'_>, Error> {
        let (fields, rest) = self.numbers.split_first_chunk::<RECORD_NUMBERS>().ok_or_else(torn)?;
        let [key_len, value_len, header_count, partition, time_low, time_high] = *fields;
        self.numbers = rest;
        let key = self.part(key_len)?;
        let value = match self.value.take() {
            Some(value) => Some(value),
            None => self.part(value_len)?,
        };
        self.headers.clear();
        for _ in 0..header_count {
            let (lens, rest) = self.numbers.split_first_chunk::<2>().ok_or_else(torn)?;
            let [key_len, value_len] = *lens;
            self.numbers = rest;
            let key = self.part(key_len)?.ok_or_else(torn)?;
            let key = std::str::from_utf8(key).map_err(|_| torn())?;
            let value = self.part(value_len)?;
            self.headers.push(Header { key, value });
        }
        let time = (i64::from(time_high) << 32) | i64::from(time_low.cast_unsigned());
        Ok(Record {
            topic,
            partition: (partition >= 0).then_some(partition),
            key,
            value,
            headers: &self.headers,
            timestamp: (time != -1).then_some(time),
        })
    }

    fn part(&mut self, len: i32) -> Result<Option<&'a [u8]>, Error> {
        let Ok(len) = usize::try_from(len) else { return Ok(None) };
        let (part, rest) = self.bytes.split_at_checked(len).ok_or_else(torn)?;
        self.bytes = rest;
        Ok(Some(part))
    }
}

fn torn() -> Error {
    Error::new(ErrorKind::Internal, "a record was packed wrongly")
}

/// Memory from this size on is handed out as it is, below it is copied: making and freeing a buffer
/// around foreign memory costs about as much as copying so many bytes.
const SHARED_BYTES_MIN: usize = 16 * 1024;
/// Numbers that tell a record's places: buffer, key, value (place and length each, −1 is null),
/// headers (place, length, number).
const ROW_NUMBERS: usize = 8;

/// A batch as `lib/record.js` takes it: buffers, and for each record its places in them.
pub(crate) fn taken(env: &Env, batch: Batch) -> Result<Object<'_>, Fault> {
    let len = batch.len();
    let mut layout = Layout {
        copied: Vec::new(),
        rows: Vec::with_capacity(len.saturating_mul(ROW_NUMBERS)),
        offsets: Vec::with_capacity(len),
        timestamps: Vec::with_capacity(len),
    };
    let mut buffers = env.create_array(1)?;
    let mut buffer_number = 0;
    for piece in batch.pieces() {
        let Some((start, end)) = reach(&piece) else { continue };
        let Some(memory) = piece.body.get(start..end) else { continue };
        if memory.len() < SHARED_BYTES_MIN {
            let at = layout.copied.len();
            layout.copied.extend_from_slice(memory);
            layout.add(&piece, 0, at, start);
        } else {
            buffer_number += 1;
            buffers.set(buffer_number, &share(env, piece.body.slice(start..end))?)?;
            layout.add(&piece, buffer_number, 0, start);
        }
    }
    let copied = if layout.copied.len() < SHARED_BYTES_MIN {
        BufferSlice::copy_from(env, &layout.copied)?
    } else {
        BufferSlice::from_data(env, layout.copied)?
    };
    buffers.set(0, &copied)?;
    let mut object = Object::new(env)?;
    object.set("topic", batch.topic())?;
    object.set("partition", batch.partition())?;
    object.set("highWatermark", BigInt::from(batch.high_watermark()))?;
    object.set("buffers", buffers)?;
    object.set("rows", Int32Array::new(layout.rows))?;
    object.set("offsets", BigInt64Array::new(layout.offsets))?;
    object.set("timestamps", BigInt64Array::new(layout.timestamps))?;
    object.set("handle", External::new(batch))?;
    Ok(object)
}

/// What is collected of all pieces.
struct Layout {
    copied: Vec<u8>,
    rows: Vec<i32>,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
}

impl Layout {
    /// Notes where a piece's records lie: what was at `start` of its body is at `at` of the buffer.
    fn add(&mut self, piece: &Piece<'_>, buffer: u32, at: usize, start: usize) {
        // A body is far below the 2 GiB that these numbers reach.
        let int = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let place = |from: u32| {
            usize::try_from(from).map_or(i32::MAX, |from| int(from.saturating_sub(start) + at))
        };
        for row in piece.rows {
            self.rows.extend([
                buffer.cast_signed(),
                place(row.key_at),
                row.key_len,
                place(row.value_at),
                row.value_len,
                place(row.headers_at),
                row.headers_len.cast_signed(),
                row.headers_count.cast_signed(),
            ]);
            self.offsets.push(piece.base_offset.saturating_add(i64::from(row.offset_delta)));
            self.timestamps.push(row.timestamp);
        }
    }
}

/// From where to where the records of a piece reach in its body.
fn reach(piece: &Piece<'_>) -> Option<(usize, usize)> {
    let first = piece.rows.first()?;
    let last = piece.rows.last()?;
    // Key, value and headers of a record lie in this order, and records in that of their rows.
    let end = last.headers_at.checked_add(last.headers_len)?;
    Some((usize::try_from(first.key_at).ok()?, usize::try_from(end).ok()?))
}

/// Memory of the core as a buffer, without a copy. Where that is not allowed, it is one.
#[allow(unsafe_code, reason = "memory of the core is lent to JavaScript")]
fn share<T>(env: &Env, memory: T) -> Result<BufferSlice<'_>, Fault>
where
    T: AsRef<[u8]> + 'static,
{
    let (start, len) = (memory.as_ref().as_ptr().cast_mut(), memory.as_ref().len());
    // SAFETY: `memory` is counted, does not move, and is dropped only when the buffer is collected.
    // The program may write into its buffer: no other buffer covers the same bytes, since a batch
    // is handed out once, and the core reads keys, values and headers of a batch that it has handed
    // out no more.
    Ok(unsafe { BufferSlice::from_external(env, start, len, memory, |_, memory| drop(memory)) }?)
}
