//! Values to bytes, with room left for record batches that are sent without being copied.

use std::fmt;

use crate::reader::Form;
use crate::uuid::Uuid;

#[cfg(test)]
mod tests;

/// Why a message cannot be written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The message has no such version.
    UnsupportedVersion {
        /// Kafka's name of the message.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A field is set which the version cannot carry.
    FieldNotInVersion {
        /// Kafka's name of the field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A field is null which the version cannot carry as null.
    NullField {
        /// Kafka's name of the field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A string, array or frame is longer than its length field can say.
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length.
        length: usize,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnsupportedVersion { message, version } => {
                write!(f, "{message} has no version {version}")
            }
            Self::FieldNotInVersion { field, version } => {
                write!(f, "version {version} cannot carry {field}, which is set")
            }
            Self::NullField { field, version } => {
                write!(f, "version {version} cannot carry {field} as null")
            }
            Self::TooLong { what, length } => write!(f, "{what} of length {length} is too long"),
        }
    }
}

impl std::error::Error for EncodeError {}

/// The value of a `records` field: record batches, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Records<'a> {
    /// None at all; not the same as no bytes.
    #[default]
    Null,
    /// The batches are here, and are copied when the message is written.
    Inline(&'a [u8]),
    /// So many bytes of batches lie elsewhere. Only their length is written, and the place where
    /// they belong is noted: see [`Writer::cuts`].
    Detached(usize),
}

impl<'a> Records<'a> {
    /// The batches, if they are here.
    pub const fn bytes(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Inline(bytes) => Some(bytes),
            Self::Null | Self::Detached(_) => None,
        }
    }
}

impl<'a> From<Option<&'a [u8]>> for Records<'a> {
    fn from(bytes: Option<&'a [u8]>) -> Self {
        bytes.map_or(Self::Null, Self::Inline)
    }
}

/// A place in the written bytes where bytes that lie elsewhere belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// How many written bytes come before.
    pub at: usize,
    /// How many bytes belong there.
    pub len: usize,
}

/// A buffer that grows as values are written to its end.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    cuts: Vec<Cut>,
}

macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident($kind:ty);)*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub fn $name(&mut self, value: $kind) {
                self.bytes.extend_from_slice(&value.to_be_bytes());
            }
        )*
    };
}

impl Writer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::from_vec(Vec::with_capacity(capacity))
    }

    /// A buffer that goes on at the end of `bytes`.
    pub const fn from_vec(bytes: Vec<u8>) -> Self {
        Self { bytes, cuts: Vec::new() }
    }

    /// The bytes written, without those that lie elsewhere.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes written, without those that lie elsewhere.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes written and the places where others belong.
    pub fn into_parts(self) -> (Vec<u8>, Vec<Cut>) {
        (self.bytes, self.cuts)
    }

    /// The places where bytes that lie elsewhere belong, in order.
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// How many bytes are written, without those that lie elsewhere.
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is written.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets what is written and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.cuts.clear();
    }

    /// Forgets what is written beyond `len` bytes, with the cuts there.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.cuts.retain(|cut| cut.at <= len);
    }

    /// Raw bytes, without a length.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fixed! {
        /// A signed byte.
        i8(i8);
        /// An unsigned byte.
        u8(u8);
        /// A big-endian signed 16-bit integer.
        i16(i16);
        /// A big-endian unsigned 16-bit integer.
        u16(u16);
        /// A big-endian signed 32-bit integer.
        i32(i32);
        /// A big-endian unsigned 32-bit integer.
        u32(u32);
        /// A big-endian signed 64-bit integer.
        i64(i64);
        /// A big-endian 64-bit float.
        f64(f64);
    }

    /// A truth value as a byte, 1 or 0.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// An id as sixteen bytes.
    #[inline]
    pub fn uuid(&mut self, value: Uuid) {
        self.raw(&value.0);
    }

    /// An unsigned varint, in its shortest form.
    #[inline]
    pub fn uvarint(&mut self, value: u32) {
        self.uvarlong(u64::from(value));
    }

    /// An unsigned 64-bit varint, in its shortest form.
    #[inline]
    pub fn uvarlong(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                self.bytes.push(low & 0x7f);
                return;
            }
            self.bytes.push(low | 0x80);
        }
    }

    /// A zig-zag varint, as in records.
    #[inline]
    pub fn varint(&mut self, value: i32) {
        self.uvarint(((value << 1) ^ (value >> 31)).cast_unsigned());
    }

    /// A zig-zag 64-bit varint, as in records.
    #[inline]
    pub fn varlong(&mut self, value: i64) {
        self.uvarlong(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    fn compact_length(&mut self, what: &'static str, length: usize) -> Result<(), EncodeError> {
        // A length is an i32 in Kafka, in either form.
        let short = i32::try_from(length).map_err(|_| EncodeError::TooLong { what, length })?;
        self.uvarint(short.cast_unsigned() + 1);
        Ok(())
    }

    fn length32(
        &mut self,
        form: Form,
        what: &'static str,
        length: Option<usize>,
    ) -> Result<(), EncodeError> {
        match (form, length) {
            (Form::Classic, None) => self.i32(-1),
            (Form::Compact, None) => self.uvarint(0),
            (Form::Compact, Some(length)) => return self.compact_length(what, length),
            (Form::Classic, Some(length)) => {
                self.i32(i32::try_from(length).map_err(|_| EncodeError::TooLong { what, length })?);
            }
        }
        Ok(())
    }

    /// A string in `form`.
    pub fn string_as(&mut self, form: Form, text: &str) -> Result<(), EncodeError> {
        // Kafka refuses strings over 32767 bytes in both forms.
        let length = i16::try_from(text.len())
            .map_err(|_| EncodeError::TooLong { what: "string", length: text.len() })?;
        match form {
            Form::Classic => self.i16(length),
            Form::Compact => self.uvarint(u32::from(length.cast_unsigned()) + 1),
        }
        self.raw(text.as_bytes());
        Ok(())
    }

    /// A string in `form`, or null.
    pub fn nullable_string_as(
        &mut self,
        form: Form,
        text: Option<&str>,
    ) -> Result<(), EncodeError> {
        match (text, form) {
            (Some(text), form) => return self.string_as(form, text),
            (None, Form::Classic) => self.i16(-1),
            (None, Form::Compact) => self.uvarint(0),
        }
        Ok(())
    }

    /// Bytes in `form`.
    pub fn bytes_as(&mut self, form: Form, bytes: &[u8]) -> Result<(), EncodeError> {
        self.nullable_bytes_as(form, Some(bytes))
    }

    /// Bytes in `form`, or null.
    pub fn nullable_bytes_as(
        &mut self,
        form: Form,
        bytes: Option<&[u8]>,
    ) -> Result<(), EncodeError> {
        self.length32(form, "bytes", bytes.map(<[u8]>::len))?;
        self.raw(bytes.unwrap_or_default());
        Ok(())
    }

    /// Record batches in `form`; those that lie elsewhere leave a cut.
    pub fn records_as(&mut self, form: Form, records: Records<'_>) -> Result<(), EncodeError> {
        match records {
            Records::Null => self.length32(form, "records", None),
            Records::Inline(bytes) => {
                self.length32(form, "records", Some(bytes.len()))?;
                self.raw(bytes);
                Ok(())
            }
            Records::Detached(len) => {
                self.length32(form, "records", Some(len))?;
                self.cuts.push(Cut { at: self.bytes.len(), len });
                Ok(())
            }
        }
    }

    /// A string with an `i16` length.
    pub fn string(&mut self, text: &str) -> Result<(), EncodeError> {
        self.string_as(Form::Classic, text)
    }

    /// A string with an `i16` length, −1 being null.
    pub fn nullable_string(&mut self, text: Option<&str>) -> Result<(), EncodeError> {
        self.nullable_string_as(Form::Classic, text)
    }

    /// A string with a varint length.
    pub fn compact_string(&mut self, text: &str) -> Result<(), EncodeError> {
        self.string_as(Form::Compact, text)
    }

    /// A string with a varint length, or null.
    pub fn compact_nullable_string(&mut self, text: Option<&str>) -> Result<(), EncodeError> {
        self.nullable_string_as(Form::Compact, text)
    }

    /// Bytes with an `i32` length.
    pub fn bytes_field(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.bytes_as(Form::Classic, bytes)
    }

    /// Bytes with a varint length.
    pub fn compact_bytes(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.bytes_as(Form::Compact, bytes)
    }

    /// The count of an array in `form`; none is null.
    pub fn array_len_as(&mut self, form: Form, count: Option<usize>) -> Result<(), EncodeError> {
        self.length32(form, "array", count)
    }

    /// An array in `form`.
    pub fn array_as<T>(
        &mut self,
        form: Form,
        elements: &[T],
        element: impl FnMut(&mut Self, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.nullable_array_as(form, Some(elements), element)
    }

    /// An array in `form`, or null.
    pub fn nullable_array_as<T>(
        &mut self,
        form: Form,
        elements: Option<&[T]>,
        mut element: impl FnMut(&mut Self, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.array_len_as(form, elements.map(<[T]>::len))?;
        for value in elements.unwrap_or_default() {
            element(self, value)?;
        }
        Ok(())
    }

    /// The marker of a nullable struct.
    pub fn presence(&mut self, present: bool) {
        self.i8(if present { 1 } else { -1 });
    }

    /// The marker of a nullable struct in a tagged field.
    pub fn presence_in_tag(&mut self, present: bool) {
        self.uvarint(u32::from(present));
    }

    /// One tagged field: its tag, its size, and what `body` writes.
    ///
    /// The count of tagged fields comes first, and is the caller's to write.
    pub fn tag(
        &mut self,
        tag: u32,
        body: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.uvarint(tag);
        let start = self.bytes.len();
        let cuts = self.cuts.len();
        body(self)?;
        debug_assert_eq!(cuts, self.cuts.len(), "records never lie inside a tagged field");
        let length = self.bytes.len() - start;
        let short = u32::try_from(length)
            .map_err(|_| EncodeError::TooLong { what: "tagged field", length })?;
        // The size goes before the body: write it behind, then turn both round.
        self.uvarint(short);
        if let Some(tail) = self.bytes.get_mut(start..) {
            tail.rotate_left(length);
        }
        Ok(())
    }

    /// Overwrites four bytes that were written before, at `at`, with `value`.
    pub(crate) fn patch_i32(&mut self, at: usize, value: i32) {
        let slot = self.bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>);
        debug_assert!(slot.is_some(), "only bytes that were written are patched");
        if let Some(slot) = slot {
            *slot = value.to_be_bytes();
        }
    }
}
