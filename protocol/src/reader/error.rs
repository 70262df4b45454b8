//! Why bytes cannot be read.

use std::fmt;

/// Why bytes are not the message they should be, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    at: usize,
    what: &'static str,
    kind: DecodeErrorKind,
}

/// The rule that the bytes broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// Fewer bytes remain than the value needs.
    Truncated,
    /// A length below zero that is not the marker for null.
    NegativeLength,
    /// Null where the version allows none.
    UnexpectedNull,
    /// A varint longer than 5 bytes, or 10 for 64 bits, or with bits beyond its type.
    VarintTooLong,
    /// A string that is not UTF-8.
    InvalidUtf8,
    /// More elements announced than the bytes that remain can hold.
    TooManyElements,
    /// The arrays would take more memory than the message may.
    MemoryLimit,
    /// Tags of a struct that do not strictly rise.
    TagOrder,
    /// Bytes after the end of the value.
    TrailingBytes,
    /// A version that the message does not have.
    UnsupportedVersion,
    /// A size outside the limits of a frame.
    FrameSize,
    /// A value that is none of those allowed here.
    InvalidValue,
}

impl DecodeError {
    /// An error of `kind`, `at` bytes into the input, while reading `what`.
    pub const fn new(at: usize, what: &'static str, kind: DecodeErrorKind) -> Self {
        Self { at, what, kind }
    }

    /// Bytes from the start of the input to the value that failed.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// What was being read.
    pub const fn what(&self) -> &'static str {
        self.what
    }

    /// The rule that was broken.
    pub const fn kind(&self) -> DecodeErrorKind {
        self.kind
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.kind {
            DecodeErrorKind::Truncated => "the bytes end too early",
            DecodeErrorKind::NegativeLength => "a length is negative",
            DecodeErrorKind::UnexpectedNull => "null is not allowed here",
            DecodeErrorKind::VarintTooLong => "a varint is too long",
            DecodeErrorKind::InvalidUtf8 => "a string is not UTF-8",
            DecodeErrorKind::TooManyElements => "more elements announced than the bytes can hold",
            DecodeErrorKind::MemoryLimit => "the arrays would take more memory than allowed",
            DecodeErrorKind::TagOrder => "tags do not strictly rise",
            DecodeErrorKind::TrailingBytes => "bytes are left over",
            DecodeErrorKind::UnsupportedVersion => "the version is not supported",
            DecodeErrorKind::FrameSize => "the size is outside the limits of a frame",
            DecodeErrorKind::InvalidValue => "the value is not allowed here",
        };
        write!(f, "{reason} (reading {} at byte {})", self.what, self.at)
    }
}

impl std::error::Error for DecodeError {}
