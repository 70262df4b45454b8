//! The codecs of a batch body: names, ids, levels, and whole bodies in and out of them.
//!
//! Bodies that should never be held whole go through [`Compressor`] and [`Decompressor`].

mod compressor;
mod decompressor;
mod shelf;
mod snappy;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

pub use compressor::Compressor;
pub use decompressor::Decompressor;

/// How the body of a batch is compressed. The number is bits 0 to 2 of the batch's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not compressed.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy, raw or in the framing of the Java library.
    Snappy,
    /// The LZ4 frame format.
    Lz4,
    /// RFC 8878.
    Zstd,
}

/// Why a body could not be compressed or decompressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompressionError {
    /// The attributes name a codec that Kafka has not.
    UnknownCodec {
        /// The codec's number, 5 to 7.
        id: u8,
    },
    /// The codec has no such level, or no levels at all.
    Level {
        /// The codec.
        codec: Compression,
        /// What was asked for.
        level: i32,
    },
    /// The codec's own format is broken.
    Corrupt {
        /// The codec.
        codec: Compression,
        /// What its reader says.
        detail: String,
    },
    /// The body holds more bytes than the caller allows.
    TooLarge {
        /// What is allowed.
        limit: usize,
    },
}

impl fmt::Display for CompressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCodec { id } => write!(f, "unknown compression codec {id}"),
            Self::Level { codec, level } => match codec.levels() {
                None => write!(f, "{codec} has no compression levels"),
                Some(levels) => {
                    let (least, most) = (levels.start(), levels.end());
                    write!(f, "{codec} has no compression level {level}: give {least} to {most}")
                }
            },
            Self::Corrupt { codec, detail } => write!(f, "{codec} data is corrupt: {detail}"),
            Self::TooLarge { limit } => {
                write!(f, "the body holds more than the limit of {limit} bytes")
            }
        }
    }
}

impl std::error::Error for CompressionError {}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compression {
    type Err = String;

    /// Takes the values of Kafka's producer option `compression.type`.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|codec| codec.name() == name).ok_or_else(|| {
            format!("unknown compression {name:?}: give none, gzip, snappy, lz4 or zstd")
        })
    }
}

impl Compression {
    /// All codecs, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec's number in a batch's attributes.
    pub const fn id(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// The codec of a number; `UnknownCodec` past 4.
    pub fn from_id(id: u8) -> Result<Self, CompressionError> {
        Self::ALL.get(usize::from(id)).copied().ok_or(CompressionError::UnknownCodec { id })
    }

    /// The codec's name as Kafka's options write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Levels that can be asked for, as Kafka's options allow them (KIP-390).
    pub const fn levels(self) -> Option<RangeInclusive<i32>> {
        match self {
            Self::None | Self::Snappy => None,
            Self::Gzip => Some(1..=9),
            Self::Lz4 => Some(1..=17),
            Self::Zstd => Some(-131_072..=22),
        }
    }

    /// The level if none is asked for, as Kafka's options have it; gzip's -1 is zlib's own choice.
    pub const fn default_level(self) -> Option<i32> {
        match self {
            Self::None | Self::Snappy => None,
            Self::Gzip => Some(-1),
            Self::Lz4 => Some(9),
            Self::Zstd => Some(3),
        }
    }

    /// Appends the form of a chain of slices at the codec's default level: [`Codec::compress`].
    pub fn compress<'a>(
        self,
        chain: impl IntoIterator<Item = &'a [u8]> + Clone,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        Codec::new(self).compress(chain, out)
    }

    /// The decompressed form of `body`, at most `limit` bytes; work stops where they are passed.
    ///
    /// No length that `body` tells is believed. Beside the result, which is never given more than
    /// twice its memory while it grows, the codec's window is held: see [`Decompressor`].
    pub fn decompress(self, body: &[u8], limit: usize) -> Result<Vec<u8>, CompressionError> {
        let mut out = Vec::new();
        Decompressor::new(self, body, limit)?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn corrupt(self, detail: impl fmt::Display) -> CompressionError {
        CompressionError::Corrupt { codec: self, detail: detail.to_string() }
    }
}

/// A codec with the level at which it compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Codec {
    compression: Compression,
    level: i32,
}

impl Default for Codec {
    fn default() -> Self {
        Self::new(Compression::None)
    }
}

impl Codec {
    /// The codec at its default level.
    pub const fn new(compression: Compression) -> Self {
        let level = match compression.default_level() {
            Some(level) => level,
            None => 0,
        };
        Self { compression, level }
    }

    /// The codec at a level; `Level` if it is neither in its range nor its default.
    ///
    /// Lz4 is fast at 9, its default, and at each other level takes more time and less room, as in
    /// Kafka (`Lz4BlockOutputStream`): levels below 2 compress as 2, those above 12 as 12.
    pub fn with_level(compression: Compression, level: i32) -> Result<Self, CompressionError> {
        let ranged = compression.levels().is_some_and(|levels| levels.contains(&level));
        if ranged || compression.default_level() == Some(level) {
            return Ok(Self { compression, level });
        }
        Err(CompressionError::Level { codec: compression, level })
    }

    /// Whether its level is the codec's default.
    pub(crate) fn is_default(self) -> bool {
        self == Self::new(self.compression)
    }

    /// The codec.
    pub const fn compression(self) -> Compression {
        self.compression
    }

    /// The level; 0 where the codec has none.
    pub const fn level(self) -> i32 {
        self.level
    }

    /// Appends the compressed form of a chain of slices to `out`; `None` copies them.
    ///
    /// On an error `out` is as long as before.
    pub fn compress<'a>(
        self,
        chain: impl IntoIterator<Item = &'a [u8]> + Clone,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        let before = out.len();
        let total = chain.clone().into_iter().map(<[u8]>::len).sum();
        let write = || {
            let mut compressor = Compressor::new(self, Some(total), &mut *out)?;
            chain.into_iter().try_for_each(|slice| compressor.write(slice))?;
            compressor.finish()
        };
        let written = write();
        if written.is_err() {
            out.truncate(before);
        }
        written
    }
}

#[cfg(test)]
mod tests;
