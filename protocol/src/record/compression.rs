//! The codecs of a batch body: names, ids, and compression and decompression under a cap.

use std::fmt;
use std::io::{BufRead, Write};
use std::str::FromStr;

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

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
    /// A codec of Kafka's that this build cannot handle.
    Unsupported {
        /// The codec.
        codec: Compression,
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
            Self::Unsupported { codec } => {
                write!(f, "compression codec {codec} is not supported; none and lz4 are")
            }
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

/// First bytes of an LZ4 frame. Its reader would also take the legacy format, which Kafka refuses.
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

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

    /// Whether this build can compress and decompress with the codec.
    pub const fn is_supported(self) -> bool {
        matches!(self, Self::None | Self::Lz4)
    }

    /// Appends the compressed form of a chain of slices to `out`; `None` copies them.
    ///
    /// On an error `out` is as long as before.
    pub fn compress<'a>(
        self,
        chain: impl IntoIterator<Item = &'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        match self {
            Self::None => {
                chain.into_iter().for_each(|slice| out.extend_from_slice(slice));
                Ok(())
            }
            Self::Lz4 => {
                let before = out.len();
                compress_lz4(chain, out).map_err(|fault| {
                    out.truncate(before);
                    self.corrupt(fault)
                })
            }
            Self::Gzip | Self::Snappy | Self::Zstd => {
                Err(CompressionError::Unsupported { codec: self })
            }
        }
    }

    /// The decompressed form of `body`, at most `limit` bytes; work stops where they are passed.
    ///
    /// Beside the result it holds the codec's own window: up to 12 MiB where the sender chose LZ4
    /// blocks of 4 MiB.
    pub fn decompress(self, body: &[u8], limit: usize) -> Result<Vec<u8>, CompressionError> {
        match self {
            Self::None if body.len() > limit => Err(CompressionError::TooLarge { limit }),
            Self::None => Ok(body.to_vec()),
            Self::Lz4 if !body.starts_with(&LZ4_MAGIC) => Err(self.corrupt("not an LZ4 frame")),
            Self::Lz4 => {
                let guess = body.len().saturating_mul(3).min(limit);
                read_capped(self, FrameDecoder::new(body), Vec::with_capacity(guess), limit)
            }
            Self::Gzip | Self::Snappy | Self::Zstd => {
                Err(CompressionError::Unsupported { codec: self })
            }
        }
    }

    fn corrupt(self, detail: impl fmt::Display) -> CompressionError {
        CompressionError::Corrupt { codec: self, detail: detail.to_string() }
    }
}

/// One frame of independent blocks of 64 KiB without checksums, as Kafka's own writer makes it.
///
/// Kafka's reader [KafkaLZ4BlockInputStream] refuses linked blocks; the batch's CRC does the rest.
fn compress_lz4<'a>(
    chain: impl IntoIterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let frame = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(frame, out);
    for slice in chain {
        encoder.write_all(slice)?;
    }
    encoder.try_finish()?;
    Ok(())
}

fn read_capped(
    codec: Compression,
    mut reader: impl BufRead,
    mut out: Vec<u8>,
    limit: usize,
) -> Result<Vec<u8>, CompressionError> {
    loop {
        let block = reader.fill_buf().map_err(|fault| codec.corrupt(fault))?;
        if block.is_empty() {
            return Ok(out);
        }
        if block.len() > limit - out.len() {
            return Err(CompressionError::TooLarge { limit });
        }
        out.extend_from_slice(block);
        let taken = block.len();
        reader.consume(taken);
    }
}
