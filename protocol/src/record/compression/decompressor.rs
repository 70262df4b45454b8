//! A body decompressed a piece at a time, under a cap, whatever lengths it claims.

use flate2::{Decompress, FlushDecompress, Status};
use lz4_flex::frame::FrameDecoder;
use zstd::zstd_safe::{self, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use std::io::BufRead;

use super::shelf::Shelf;
use super::snappy::Blocks;
use super::{Compression, CompressionError};

/// First bytes of an LZ4 frame. Its reader would also take the legacy format, which Kafka refuses.
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// First bytes of each member of a gzip body.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Deflate's largest window, 32 KiB: the only one that gzip knows.
const GZIP_WINDOW_BITS: u8 = 15;
/// Largest zstd window that is followed, 128 MiB: what its level 22 writes, and the library's own
/// bound, which Kafka keeps.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// A zstd context that has grown beyond this is not kept for the next body.
const ZSTD_KEPT_BYTES_MAX: usize = 4 << 20;
/// Room that a result is given first, at least.
const FIRST_ROOM: usize = 512;

static INFLATERS: Shelf<Decompress> = Shelf::new();
static ZSTD_CONTEXTS: Shelf<DCtx<'static>> = Shelf::new();

/// A compressed body on its way to its plain form.
///
/// Beside what the caller holds, memory is the codec's window: 32 KiB for gzip, up to 12 MiB for
/// lz4 blocks of 4 MiB, a block for snappy, and for zstd what its frame asks for, up to 128 MiB,
/// of which the system gives only what is written to.
#[derive(Debug)]
pub struct Decompressor<'a> {
    codec: Compression,
    source: Source<'a>,
    limit: usize,
    given: usize,
}

enum Source<'a> {
    Plain(&'a [u8]),
    Gzip { rest: &'a [u8], inflater: Decompress },
    Snappy(Blocks<'a>),
    Lz4(Box<FrameDecoder<&'a [u8]>>),
    Zstd { rest: &'a [u8], context: DCtx<'static>, in_frame: bool },
    Ended,
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Gzip { .. } => "Gzip",
            Self::Snappy(_) => "Snappy",
            Self::Lz4(_) => "Lz4",
            Self::Zstd { .. } => "Zstd",
            Self::Ended => "Ended",
        })
    }
}

impl<'a> Decompressor<'a> {
    /// Begins with a body that may come to at most `limit` bytes.
    pub fn new(codec: Compression, body: &'a [u8], limit: usize) -> Result<Self, CompressionError> {
        let source = match codec {
            Compression::None => Source::Plain(body),
            Compression::Gzip => {
                let kept = INFLATERS.take(|_| true);
                let inflater = kept.unwrap_or_else(|| Decompress::new_gzip(GZIP_WINDOW_BITS));
                Source::Gzip { rest: body, inflater }
            }
            Compression::Snappy => Source::Snappy(Blocks::new(body)),
            Compression::Lz4 if body.starts_with(&LZ4_MAGIC) => {
                Source::Lz4(Box::new(FrameDecoder::new(body)))
            }
            Compression::Lz4 => return Err(codec.corrupt("not an LZ4 frame")),
            Compression::Zstd => {
                let context = zstd_context().map_err(|detail| codec.corrupt(detail))?;
                Source::Zstd { rest: body, context, in_frame: true }
            }
        };
        Ok(Self { codec, source, limit, given: 0 })
    }

    /// Appends the next bytes to the spare room of `out`, which never grows; gives how many.
    ///
    /// 0 is the end, or there was no room. After an error nothing more comes.
    pub fn fill(&mut self, out: &mut Vec<u8>) -> Result<usize, CompressionError> {
        let before = out.len();
        if out.capacity() == before {
            return Ok(0);
        }
        let filled = self.fill_from_source(out);
        let count = out.len() - before;
        self.given += count;
        let checked = match filled {
            Ok(()) if self.given > self.limit && !crate::left_out("decompressed_limit") => {
                Err(CompressionError::TooLarge { limit: self.limit })
            }
            Err(CompressionError::TooLarge { .. }) => {
                Err(CompressionError::TooLarge { limit: self.limit })
            }
            other => other,
        };
        if let Err(fault) = checked {
            out.truncate(before);
            self.source = Source::Ended;
            return Err(fault);
        }
        if count == 0 {
            self.end();
        }
        Ok(count)
    }

    /// Appends all that is left, growing `out` as the bytes come and never far beyond the limit.
    pub fn read_to_end(&mut self, out: &mut Vec<u8>) -> Result<(), CompressionError> {
        let before = out.len();
        if let Source::Plain(rest) = self.source {
            out.reserve_exact(rest.len().min(self.limit));
        }
        let mut grow = self.guess();
        loop {
            if out.capacity() == out.len() {
                // One more than allowed, so that a body of just the limit shows its end.
                out.reserve_exact(grow.min(self.left().saturating_add(1)));
            }
            match self.fill(out) {
                Ok(0) => return Ok(()),
                Ok(_) => grow = (out.len() - before).max(FIRST_ROOM),
                Err(fault) => {
                    out.truncate(before);
                    return Err(fault);
                }
            }
        }
    }

    const fn left(&self) -> usize {
        self.limit.saturating_sub(self.given)
    }

    /// Room to begin with: what text usually comes to.
    fn guess(&self) -> usize {
        let compressed = match &self.source {
            Source::Gzip { rest, .. } | Source::Zstd { rest, .. } | Source::Plain(rest) => {
                rest.len()
            }
            Source::Snappy(blocks) => blocks.remaining(),
            Source::Lz4(decoder) => decoder.get_ref().len(),
            Source::Ended => 0,
        };
        compressed.saturating_mul(3).max(FIRST_ROOM)
    }

    fn fill_from_source(&mut self, out: &mut Vec<u8>) -> Result<(), CompressionError> {
        let (codec, left) = (self.codec, self.left());
        match &mut self.source {
            Source::Plain(rest) => {
                let room = out.capacity() - out.len();
                let (piece, left) = rest.split_at_checked(room).unwrap_or((rest, &[]));
                out.extend_from_slice(piece);
                *rest = left;
                Ok(())
            }
            Source::Gzip { rest, inflater } => inflate(rest, inflater, out),
            Source::Snappy(blocks) => blocks.fill(out, left),
            Source::Lz4(decoder) => {
                let block = decoder.fill_buf().map_err(|fault| codec.corrupt(fault))?;
                let room = out.capacity() - out.len();
                let piece = block.get(..room).unwrap_or(block);
                out.extend_from_slice(piece);
                let taken = piece.len();
                decoder.consume(taken);
                Ok(())
            }
            Source::Zstd { rest, context, in_frame } => unpack_zstd(rest, context, in_frame, out),
            Source::Ended => Ok(()),
        }
    }

    /// Gives working memory back for the next body.
    fn end(&mut self) {
        match std::mem::replace(&mut self.source, Source::Ended) {
            Source::Gzip { mut inflater, .. } => {
                inflater.reset(true);
                INFLATERS.give(inflater);
            }
            Source::Zstd { context, .. } if context.sizeof() <= ZSTD_KEPT_BYTES_MAX => {
                ZSTD_CONTEXTS.give(context);
            }
            _ => {}
        }
    }
}

/// One step of a gzip body: members one after the other, which count as one.
fn inflate(
    rest: &mut &[u8],
    inflater: &mut Decompress,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let codec = Compression::Gzip;
    loop {
        if rest.is_empty() && inflater.total_in() == 0 {
            return Ok(());
        }
        let (read, written) = (inflater.total_in(), out.len());
        let status = inflater
            .decompress_vec(rest, out, FlushDecompress::None)
            .map_err(|fault| codec.corrupt(fault))?;
        let taken = usize::try_from(inflater.total_in() - read).unwrap_or(usize::MAX);
        *rest = rest.get(taken..).unwrap_or_default();
        match status {
            Status::StreamEnd => {
                inflater.reset(true);
                // Java's reader, too, passes over what follows and is no member.
                if !rest.starts_with(&GZIP_MAGIC) {
                    *rest = &[];
                }
            }
            // Bytes went in or came out, or there is no room left for more.
            Status::Ok | Status::BufError if taken == 0 && out.len() == written => {
                return Err(codec.corrupt("the body is cut"));
            }
            Status::Ok | Status::BufError => {}
        }
        if out.len() > written {
            return Ok(());
        }
    }
}

fn zstd_context() -> Result<DCtx<'static>, &'static str> {
    let mut context = match ZSTD_CONTEXTS.take(|_| true) {
        Some(context) => context,
        None => DCtx::try_create().ok_or("no memory for a context")?,
    };
    context.reset(ResetDirective::SessionOnly).map_err(zstd_safe::get_error_name)?;
    let log = ZSTD_WINDOW_LOG_MAX + if crate::left_out("zstd_window") { 4 } else { 0 };
    context.set_parameter(DParameter::WindowLogMax(log)).map_err(zstd_safe::get_error_name)?;
    Ok(context)
}

/// One step of a zstd body: frames one after the other, with sizes or without.
fn unpack_zstd(
    rest: &mut &[u8],
    context: &mut DCtx<'static>,
    in_frame: &mut bool,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let codec = Compression::Zstd;
    let before = out.len();
    loop {
        if rest.is_empty() && !*in_frame {
            return Ok(());
        }
        let mut input = InBuffer::around(rest);
        let mut output = OutBuffer::around_pos(out, before);
        let hint = context
            .decompress_stream(&mut output, &mut input)
            .map_err(|code| codec.corrupt(zstd_safe::get_error_name(code)))?;
        let (taken, written) = (input.pos(), output.pos() - before);
        *rest = rest.get(taken..).unwrap_or_default();
        *in_frame = hint != 0;
        if written > 0 {
            return Ok(());
        }
        if taken == 0 && *in_frame {
            return Err(codec.corrupt("the body is cut"));
        }
    }
}
