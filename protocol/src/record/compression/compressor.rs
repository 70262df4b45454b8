//! A body compressed a piece at a time, in the form that Kafka's own writers give it.

use std::io::Write;
use std::ops::RangeInclusive;

use flate2::{Compress, FlushCompress, Status};
use lz4::liblz4::BlockChecksum;
use lz4::{ContentChecksum, Encoder, EncoderBuilder};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{self, CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use super::shelf::Shelf;
use super::snappy::Writer;
use super::{Codec, Compression, CompressionError};

/// Deflate's largest window, 32 KiB.
const GZIP_WINDOW_BITS: u8 = 15;
/// Room that a codec is given at a time, at least.
const ROOM: usize = 4096;
/// Levels of lz4 that compress differently; those beyond compress as the nearest.
const LZ4_LEVELS: RangeInclusive<i32> = 2..=12;
/// A zstd context that has grown beyond this, as those of high levels do, is not kept.
const ZSTD_KEPT_BYTES_MAX: usize = 8 << 20;

static DEFLATERS: Shelf<(i32, Compress)> = Shelf::new();
static LZ4_ENCODERS: Shelf<FrameEncoder<Vec<u8>>> = Shelf::new();
static ZSTD_CONTEXTS: Shelf<CCtx<'static>> = Shelf::new();

/// Bytes on their way to a compressed body at the end of a buffer.
#[derive(Debug)]
pub struct Compressor<'o> {
    sink: Sink,
    out: &'o mut Vec<u8>,
}

enum Sink {
    Plain,
    Gzip(i32, Compress),
    Snappy(Box<Writer>),
    /// Taken when there are bytes to write: an encoder that wrote before writes no empty frame.
    Lz4(Option<FrameEncoder<Vec<u8>>>),
    /// Lz4 at a level of its own. What it has written so far is in a buffer of its own.
    HighLz4(Encoder<Vec<u8>>),
    Zstd(CCtx<'static>),
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain => "Plain",
            Self::Gzip(..) => "Gzip",
            Self::Snappy(_) => "Snappy",
            Self::Lz4(_) => "Lz4",
            Self::HighLz4(_) => "HighLz4",
            Self::Zstd(_) => "Zstd",
        })
    }
}

impl<'o> Compressor<'o> {
    /// Begins a body after what `out` holds. `total` is how many bytes will come, where it is
    /// known: it makes the memory of zstd smaller, for the writer and its readers.
    pub fn new(
        codec: Codec,
        total: Option<usize>,
        out: &'o mut Vec<u8>,
    ) -> Result<Self, CompressionError> {
        let level = codec.level();
        let sink = match codec.compression() {
            Compression::None => Sink::Plain,
            Compression::Gzip => {
                let kept = DEFLATERS.take(|(kept, _)| *kept == level);
                let deflater = kept.map_or_else(|| new_deflater(level), |(_, deflater)| deflater);
                Sink::Gzip(level, deflater)
            }
            Compression::Snappy => Sink::Snappy(Writer::start(out)),
            Compression::Lz4 if codec.is_default() => Sink::Lz4(None),
            Compression::Lz4 => Sink::HighLz4(high_lz4_encoder(level)?),
            Compression::Zstd => Sink::Zstd(zstd_context(level, total).map_err(zstd_fault)?),
        };
        Ok(Self { sink, out })
    }

    /// Bytes in the buffer, or on their way into it; the codec may hold back some more.
    pub fn written(&self) -> usize {
        let own = match &self.sink {
            Sink::HighLz4(encoder) => encoder.writer().len(),
            _ => 0,
        };
        self.out.len() + own
    }

    /// Takes bytes in.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CompressionError> {
        match &mut self.sink {
            Sink::Plain => {
                self.out.extend_from_slice(bytes);
                Ok(())
            }
            Sink::Gzip(_, deflater) => {
                deflate(deflater, bytes, self.out, FlushCompress::None).map(|_| ())
            }
            Sink::Snappy(writer) => writer.write(bytes, self.out),
            Sink::Lz4(encoder) => {
                if bytes.is_empty() {
                    return Ok(());
                }
                let encoder = encoder.get_or_insert_with(lz4_encoder);
                through(encoder, self.out, |encoder| encoder.write_all(bytes))
            }
            Sink::HighLz4(encoder) => encoder.write_all(bytes).map_err(lz4_fault),
            Sink::Zstd(context) => {
                pack_zstd(context, bytes, self.out, ZSTD_EndDirective::ZSTD_e_continue)
            }
        }
    }

    /// Ends the body.
    pub fn finish(self) -> Result<(), CompressionError> {
        let out = self.out;
        match self.sink {
            Sink::Plain => Ok(()),
            Sink::Gzip(level, mut deflater) => {
                while deflate(&mut deflater, &[], out, FlushCompress::Finish)? != Status::StreamEnd
                {
                }
                deflater.reset();
                DEFLATERS.give((level, deflater));
                Ok(())
            }
            Sink::Snappy(writer) => writer.finish(out),
            Sink::Lz4(encoder) => {
                let used = encoder.is_some();
                let mut encoder = encoder.unwrap_or_else(new_lz4_encoder);
                through(&mut encoder, out, |encoder| Ok(encoder.try_finish()?))?;
                if used {
                    LZ4_ENCODERS.give(encoder);
                }
                Ok(())
            }
            Sink::HighLz4(encoder) => {
                let (written, ended) = encoder.finish();
                ended.map_err(lz4_fault)?;
                out.extend_from_slice(&written);
                Ok(())
            }
            Sink::Zstd(mut context) => {
                pack_zstd(&mut context, &[], out, ZSTD_EndDirective::ZSTD_e_end)?;
                if context.sizeof() <= ZSTD_KEPT_BYTES_MAX {
                    ZSTD_CONTEXTS.give(context);
                }
                Ok(())
            }
        }
    }
}

fn new_deflater(level: i32) -> Compress {
    // Below zero is zlib's own choice.
    let level = u32::try_from(level).map_or_else(
        |_| flate2::Compression::default(),
        |level| flate2::Compression::new(level.min(9)),
    );
    Compress::new_gzip(level, GZIP_WINDOW_BITS)
}

/// Puts all bytes through.
fn deflate(
    deflater: &mut Compress,
    mut bytes: &[u8],
    out: &mut Vec<u8>,
    flush: FlushCompress,
) -> Result<Status, CompressionError> {
    loop {
        if out.len() == out.capacity() {
            out.reserve(ROOM);
        }
        let read = deflater.total_in();
        let status = deflater
            .compress_vec(bytes, out, flush)
            .map_err(|fault| Compression::Gzip.corrupt(fault))?;
        let taken = usize::try_from(deflater.total_in() - read).unwrap_or(usize::MAX);
        bytes = bytes.get(taken..).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(status);
        }
    }
}

/// Runs an encoder that owns its buffer over ours.
fn through(
    encoder: &mut FrameEncoder<Vec<u8>>,
    out: &mut Vec<u8>,
    run: impl FnOnce(&mut FrameEncoder<Vec<u8>>) -> std::io::Result<()>,
) -> Result<(), CompressionError> {
    std::mem::swap(encoder.get_mut(), out);
    let ran = run(encoder);
    std::mem::swap(encoder.get_mut(), out);
    ran.map_err(lz4_fault)
}

/// One frame of independent blocks of 64 KiB without checksums, as Kafka's own writer makes it.
///
/// Kafka's reader [Lz4BlockInputStream] refuses linked blocks; the batch's CRC does the rest.
fn new_lz4_encoder() -> FrameEncoder<Vec<u8>> {
    let frame = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    FrameEncoder::with_frame_info(frame, Vec::new())
}

fn lz4_encoder() -> FrameEncoder<Vec<u8>> {
    LZ4_ENCODERS.take(|_| true).unwrap_or_else(new_lz4_encoder)
}

/// The same frame at a level of its own, which takes more time and less room.
fn high_lz4_encoder(level: i32) -> Result<Encoder<Vec<u8>>, CompressionError> {
    let level = level.clamp(*LZ4_LEVELS.start(), *LZ4_LEVELS.end());
    EncoderBuilder::new()
        .level(level.unsigned_abs())
        .block_mode(lz4::BlockMode::Independent)
        .block_size(lz4::BlockSize::Max64KB)
        .block_checksum(BlockChecksum::NoBlockChecksum)
        .checksum(ContentChecksum::NoChecksum)
        .build(Vec::new())
        .map_err(lz4_fault)
}

fn lz4_fault(fault: std::io::Error) -> CompressionError {
    Compression::Lz4.corrupt(fault)
}

fn zstd_fault(code: usize) -> CompressionError {
    Compression::Zstd.corrupt(zstd_safe::get_error_name(code))
}

fn zstd_context(level: i32, total: Option<usize>) -> Result<CCtx<'static>, usize> {
    let mut context = ZSTD_CONTEXTS.take(|_| true).unwrap_or_default();
    context.reset(ResetDirective::SessionAndParameters)?;
    context.set_parameter(CParameter::CompressionLevel(level))?;
    context.set_pledged_src_size(total.and_then(|total| u64::try_from(total).ok()))?;
    Ok(context)
}

/// Puts all bytes through, and ends the frame if so told.
fn pack_zstd(
    context: &mut CCtx<'static>,
    bytes: &[u8],
    out: &mut Vec<u8>,
    end: ZSTD_EndDirective,
) -> Result<(), CompressionError> {
    let mut input = InBuffer::around(bytes);
    loop {
        if out.len() == out.capacity() {
            out.reserve(ROOM);
        }
        let at = out.len();
        let mut output = OutBuffer::around_pos(out, at);
        let left = context.compress_stream2(&mut output, &mut input, end).map_err(zstd_fault)?;
        let ended = match end {
            ZSTD_EndDirective::ZSTD_e_continue => input.pos() == bytes.len(),
            _ => left == 0,
        };
        if ended {
            return Ok(());
        }
    }
}
