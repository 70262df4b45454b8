//! A bounds-checked cursor over bytes that came from a peer or a disk.
//!
//! Three rules hold for everything read here. A length is compared with the bytes that remain
//! before it is used. An array of n elements needs n times the smallest element's size in bytes
//! that remain. And all arrays of one message together may take no more memory than a fixed
//! multiple of the bytes given (see [`Reader::with_memory`]); CVE-2022-34917 is what happens
//! without these.

use crate::uuid::Uuid;

mod error;
mod tags;
#[cfg(test)]
mod tests;

pub use error::{DecodeError, DecodeErrorKind};

/// Memory that a decode may take whatever the size of its input.
const MEMORY_FLOOR: usize = 64 * 1024;

/// How many bytes of memory a byte of input may become unless the caller says otherwise.
pub const MEMORY_FACTOR: usize = 64;

/// How lengths are written: as fixed integers, or as varints in flexible versions (KIP-482).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Lengths are `i16` for strings and `i32` for all else, −1 being null; there are no tags.
    Classic,
    /// Lengths are unsigned varints, one too high, 0 being null; structs end with tagged fields.
    Compact,
}

impl Form {
    /// The form of `version` of a message that is flexible from version `first_flexible`.
    #[inline]
    pub const fn at(version: i16, first_flexible: i16) -> Self {
        if version >= first_flexible { Self::Compact } else { Self::Classic }
    }

    /// The least bytes of a string.
    #[inline]
    pub const fn min_string(self) -> usize {
        match self {
            Self::Classic => 2,
            Self::Compact => 1,
        }
    }

    /// The least bytes of bytes, records or an array.
    #[inline]
    pub const fn min_bytes(self) -> usize {
        match self {
            Self::Classic => 4,
            Self::Compact => 1,
        }
    }
}

/// A cursor over a slice; what it gives out borrows from the slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    memory: usize,
}

/// The memory that so many bytes may become.
const fn memory_for(bytes: usize, factor: usize) -> usize {
    bytes.saturating_mul(factor).saturating_add(MEMORY_FLOOR)
}

macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident -> $kind:ty;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub fn $name(&mut self) -> Result<$kind, DecodeError> {
                Ok(<$kind>::from_be_bytes(self.fixed(stringify!($kind))?))
            }
        )*
    };
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`, whose arrays may take 64 times `bytes` in memory.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::with_memory(bytes, MEMORY_FACTOR)
    }

    /// A reader at the start of `bytes`, whose arrays may take `factor` times the size of
    /// `bytes` plus 64 KiB in memory, all together.
    pub fn with_memory(bytes: &'a [u8], factor: usize) -> Self {
        Self { bytes, at: 0, memory: memory_for(bytes.len(), factor) }
    }

    /// As [`Reader::with_memory`], and with at most `most` bytes in memory for all arrays.
    pub fn with_memory_up_to(bytes: &'a [u8], factor: usize, most: usize) -> Self {
        Self { bytes, at: 0, memory: memory_for(bytes.len(), factor).min(most) }
    }

    /// Bytes read so far.
    #[inline]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Bytes not yet read.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// An error of `kind` at the present position, while reading `what`.
    pub const fn error(&self, what: &'static str, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(self.at, what, kind)
    }

    /// Ends the reading; an error if bytes are left over.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.remaining() == 0 || crate::left_out("message_end") {
            Ok(())
        } else {
            Err(self.error("end of message", DecodeErrorKind::TrailingBytes))
        }
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        self.take_as(count, "raw bytes")
    }

    /// All bytes not yet read.
    #[inline]
    pub fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        rest
    }

    #[inline]
    fn take_as(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let count = if crate::left_out("read_length") { count.min(rest.len()) } else { count };
        let Some(taken) = rest.get(..count) else {
            return Err(self.error(what, DecodeErrorKind::Truncated));
        };
        self.at += count;
        Ok(taken)
    }

    #[inline]
    fn fixed<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.first_chunk::<N>() else {
            return Err(self.error(what, DecodeErrorKind::Truncated));
        };
        self.at += N;
        Ok(*taken)
    }

    fixed! {
        /// A signed byte.
        i8 -> i8;
        /// An unsigned byte.
        u8 -> u8;
        /// A big-endian signed 16-bit integer.
        i16 -> i16;
        /// A big-endian unsigned 16-bit integer.
        u16 -> u16;
        /// A big-endian signed 32-bit integer.
        i32 -> i32;
        /// A big-endian unsigned 32-bit integer.
        u32 -> u32;
        /// A big-endian signed 64-bit integer.
        i64 -> i64;
        /// A big-endian 64-bit float.
        f64 -> f64;
    }

    /// A byte as a truth value; every byte but 0 is true, as in Kafka.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.u8()? != 0)
    }

    /// Sixteen bytes as an id.
    #[inline]
    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        Ok(Uuid(self.fixed("uuid")?))
    }

    /// An unsigned varint of at most 5 bytes; forms padded with zero bits are accepted.
    #[inline]
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let start = self.at;
        let mut value: u32 = 0;
        for index in 0..if crate::left_out("varint_width") { 10 } else { 5_u32 } {
            let [byte] = self.fixed("varint")?;
            if index == 4 && byte > 0x0f && !crate::left_out("varint_width") {
                break;
            }
            value |= u32::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::new(start, "varint", DecodeErrorKind::VarintTooLong))
    }

    /// An unsigned varint of at most 10 bytes; forms padded with zero bits are accepted.
    #[inline]
    pub fn uvarlong(&mut self) -> Result<u64, DecodeError> {
        let start = self.at;
        let mut value: u64 = 0;
        for index in 0..10_u32 {
            let [byte] = self.fixed("varlong")?;
            if index == 9 && byte > 0x01 && !crate::left_out("varint_width") {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::new(start, "varlong", DecodeErrorKind::VarintTooLong))
    }

    /// A zig-zag varint of at most 5 bytes, as in records.
    #[inline]
    pub fn varint(&mut self) -> Result<i32, DecodeError> {
        let raw = self.uvarint()?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// A zig-zag varint of at most 10 bytes, as in records.
    #[inline]
    pub fn varlong(&mut self) -> Result<i64, DecodeError> {
        let raw = self.uvarlong()?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// Turns a length of a classic field into an option: −1 is null, below that an error.
    #[inline]
    fn classic_length(
        start: usize,
        length: i32,
        what: &'static str,
    ) -> Result<Option<usize>, DecodeError> {
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length == -1 || crate::left_out("negative_length") => Ok(None),
            Err(_) => Err(DecodeError::new(start, what, DecodeErrorKind::NegativeLength)),
        }
    }

    #[inline]
    fn compact_length(&mut self, what: &'static str) -> Result<Option<usize>, DecodeError> {
        let start = self.at;
        let Some(length) = self.uvarint()?.checked_sub(1) else { return Ok(None) };
        usize::try_from(length)
            .map(Some)
            .map_err(|_| DecodeError::new(start, what, DecodeErrorKind::Truncated))
    }

    #[inline]
    fn length16(&mut self, form: Form, what: &'static str) -> Result<Option<usize>, DecodeError> {
        let start = self.at;
        match form {
            Form::Classic => {
                let length = self.i16()?.into();
                Self::classic_length(start, length, what)
            }
            Form::Compact => self.compact_length(what),
        }
    }

    #[inline]
    fn length32(&mut self, form: Form, what: &'static str) -> Result<Option<usize>, DecodeError> {
        let start = self.at;
        match form {
            Form::Classic => {
                let length = self.i32()?;
                Self::classic_length(start, length, what)
            }
            Form::Compact => self.compact_length(what),
        }
    }

    /// A string in `form`, or null.
    pub fn nullable_string_as(&mut self, form: Form) -> Result<Option<&'a str>, DecodeError> {
        let Some(length) = self.length16(form, "string")? else { return Ok(None) };
        let start = self.at;
        let raw = self.take_as(length, "string")?;
        match std::str::from_utf8(raw) {
            Ok(text) => Ok(Some(text)),
            Err(bad) => Err(DecodeError::new(
                start + bad.valid_up_to(),
                "string",
                DecodeErrorKind::InvalidUtf8,
            )),
        }
    }

    /// A string in `form`.
    #[inline]
    pub fn string_as(&mut self, form: Form) -> Result<&'a str, DecodeError> {
        let start = self.at;
        self.nullable_string_as(form)?
            .ok_or_else(|| DecodeError::new(start, "string", DecodeErrorKind::UnexpectedNull))
    }

    /// Bytes in `form`, or null.
    #[inline]
    pub fn nullable_bytes_as(&mut self, form: Form) -> Result<Option<&'a [u8]>, DecodeError> {
        match self.length32(form, "bytes")? {
            None => Ok(None),
            Some(length) => self.take_as(length, "bytes").map(Some),
        }
    }

    /// Bytes in `form`.
    #[inline]
    pub fn bytes_as(&mut self, form: Form) -> Result<&'a [u8], DecodeError> {
        let start = self.at;
        self.nullable_bytes_as(form)?
            .ok_or_else(|| DecodeError::new(start, "bytes", DecodeErrorKind::UnexpectedNull))
    }

    /// A string with an `i16` length.
    pub fn string(&mut self) -> Result<&'a str, DecodeError> {
        self.string_as(Form::Classic)
    }

    /// A string with an `i16` length, −1 being null.
    pub fn nullable_string(&mut self) -> Result<Option<&'a str>, DecodeError> {
        self.nullable_string_as(Form::Classic)
    }

    /// A string with a varint length.
    pub fn compact_string(&mut self) -> Result<&'a str, DecodeError> {
        self.string_as(Form::Compact)
    }

    /// A string with a varint length, or null.
    pub fn compact_nullable_string(&mut self) -> Result<Option<&'a str>, DecodeError> {
        self.nullable_string_as(Form::Compact)
    }

    /// Bytes with an `i32` length.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        self.bytes_as(Form::Classic)
    }

    /// Bytes with an `i32` length, −1 being null.
    pub fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        self.nullable_bytes_as(Form::Classic)
    }

    /// Bytes with a varint length.
    pub fn compact_bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        self.bytes_as(Form::Compact)
    }

    /// Bytes with a varint length, or null.
    pub fn compact_nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        self.nullable_bytes_as(Form::Compact)
    }

    /// The count of an array whose elements take at least `min_element` bytes each; none is null.
    #[inline]
    pub fn array_len_as(
        &mut self,
        form: Form,
        min_element: usize,
    ) -> Result<Option<usize>, DecodeError> {
        let start = self.at;
        let Some(count) = self.length32(form, "array")? else { return Ok(None) };
        let fits = count <= self.remaining() / min_element.max(1);
        if !fits && !crate::left_out("array_count") {
            return Err(DecodeError::new(start, "array", DecodeErrorKind::TooManyElements));
        }
        Ok(Some(count))
    }

    /// The count of a classic array; none is null. See [`Reader::array_len_as`].
    pub fn array_len(&mut self, min_element: usize) -> Result<Option<usize>, DecodeError> {
        self.array_len_as(Form::Classic, min_element)
    }

    /// The count of a compact array; none is null. See [`Reader::array_len_as`].
    pub fn compact_array_len(&mut self, min_element: usize) -> Result<Option<usize>, DecodeError> {
        self.array_len_as(Form::Compact, min_element)
    }

    /// An array, or null, of elements that take at least `min_element` bytes each.
    pub fn nullable_array_as<T>(
        &mut self,
        form: Form,
        min_element: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let start = self.at;
        let Some(count) = self.array_len_as(form, min_element)? else { return Ok(None) };
        let size = count.saturating_mul(size_of::<T>());
        let charged = if crate::left_out("array_memory") { 0 } else { size };
        let Some(memory) = self.memory.checked_sub(charged) else {
            return Err(DecodeError::new(start, "array", DecodeErrorKind::MemoryLimit));
        };
        self.memory = memory;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    /// An array of elements that take at least `min_element` bytes each.
    pub fn array_as<T>(
        &mut self,
        form: Form,
        min_element: usize,
        element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let start = self.at;
        self.nullable_array_as(form, min_element, element)?
            .ok_or_else(|| DecodeError::new(start, "array", DecodeErrorKind::UnexpectedNull))
    }
}
