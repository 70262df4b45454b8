//! What can be wrong with a batch or with one of its records, and at which byte.

use std::fmt;

use super::compression::CompressionError;

/// A batch that cannot be used as a whole: its header, its length, its checksum or its codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchError {
    /// The bytes end before the batch does; `need` is the least total that would help.
    Truncated {
        /// Bytes there are, from the batch's start.
        have: usize,
        /// Bytes there must be, from the batch's start.
        need: usize,
    },
    /// The length field says less than a header or more than a batch can hold.
    Length {
        /// The value of the field (or the length that was asked for, where a batch is built).
        length: i64,
    },
    /// The batch is of another format version. Only 2 is written since Kafka 0.11.
    Magic {
        /// The version that was found.
        magic: i8,
    },
    /// The stored checksum is not that of the bytes.
    Crc {
        /// What the header says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// The record count is negative, or more than the body can hold.
    RecordsCount {
        /// The value of the field.
        count: i32,
    },
    /// The last offset delta is negative, or lies past the end of all offsets.
    LastOffsetDelta {
        /// The value of the field.
        delta: i32,
    },
    /// The codec is unknown, not built in, or the compressed bytes are broken or too many.
    Compression(CompressionError),
}

impl BatchError {
    /// The byte, counted from the batch's start, at which the fault shows.
    pub fn at(&self) -> usize {
        match self {
            Self::Truncated { have, .. } => *have,
            Self::Length { .. } => 8,
            Self::Magic { .. } => 16,
            Self::Crc { .. } => 17,
            Self::LastOffsetDelta { .. } => 23,
            Self::RecordsCount { .. } => 57,
            Self::Compression(fault) => match fault {
                CompressionError::UnknownCodec { .. } | CompressionError::Level { .. } => 21,
                CompressionError::Corrupt { .. } | CompressionError::TooLarge { .. } => 61,
            },
        }
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { have, need } => {
                write!(f, "record batch is cut: {have} bytes of at least {need}")?;
            }
            Self::Length { length } => {
                write!(f, "record batch has an impossible length field of {length}")?;
            }
            Self::Magic { magic } => {
                write!(f, "record batch has format version {magic}; only 2 is supported")?;
            }
            Self::Crc { stored, computed } => write!(
                f,
                "record batch is corrupt: CRC-32C stored {stored:08x}, computed {computed:08x}"
            )?,
            Self::RecordsCount { count } => {
                write!(f, "record batch says it holds {count} records, which its size forbids")?;
            }
            Self::LastOffsetDelta { delta } => {
                write!(f, "record batch has an impossible last offset delta of {delta}")?;
            }
            Self::Compression(fault) => write!(f, "record batch: {fault}")?,
        }
        write!(f, " (at byte {} of the batch)", self.at())
    }
}

impl std::error::Error for BatchError {}

impl From<CompressionError> for BatchError {
    fn from(fault: CompressionError) -> Self {
        Self::Compression(fault)
    }
}

/// A record inside a batch that breaks the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordError {
    /// Which record of the batch, counted from 0; the record count where bytes follow the last one.
    pub index: usize,
    /// Byte of the decompressed body at which the faulty field begins.
    pub at: usize,
    /// What is wrong, in words.
    pub what: &'static str,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "record {} of the batch: {} (at byte {} of its body)",
            self.index, self.what, self.at
        )
    }
}

impl std::error::Error for RecordError {}
