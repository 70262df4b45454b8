//! Snappy's two forms in Kafka: one raw block, or the framing of the Java library (xerial).

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use super::shelf::Shelf;
use super::{Compression, CompressionError};

/// What a stream of the Java library begins with; each one may follow another.
const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Magic, version, and least version that can read it.
const HEADER_LEN: usize = 16;
/// The version of the framing that is written and the least that is read.
const VERSION: i32 = 1;
/// Bytes of a block before compression, as the Java library cuts them.
const BLOCK_BYTES: usize = 32 * 1024;
/// More than a block can grow by: a copy of 64 bytes takes three.
const GROWTH_MAX: usize = 22;

static ENCODERS: Shelf<Box<Writer>> = Shelf::new();

/// The blocks of a body in either form.
#[derive(Debug)]
pub(super) struct Blocks<'a> {
    rest: &'a [u8],
    framed: bool,
    /// A block that was larger than the room there was for it, and how much of it was given.
    pending: Vec<u8>,
    given: usize,
}

fn corrupt(detail: impl std::fmt::Display) -> CompressionError {
    Compression::Snappy.corrupt(detail)
}

impl<'a> Blocks<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        // The Java library, too, takes what lacks the magic for one raw block.
        let framed = body.starts_with(&MAGIC);
        Self { rest: body, framed, pending: Vec::new(), given: 0 }
    }

    /// Compressed bytes not yet looked at.
    pub(super) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Appends to the spare room of `out`; nothing at the end. `most` is what may still come.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>, most: usize) -> Result<(), CompressionError> {
        loop {
            let room = out.capacity() - out.len();
            if self.given < self.pending.len() {
                let rest = self.pending.get(self.given..).unwrap_or_default();
                let piece = rest.get(..room).unwrap_or(rest);
                out.extend_from_slice(piece);
                self.given += piece.len();
                return Ok(());
            }
            let Some(block) = self.next_block()? else { return Ok(()) };
            let len = checked_len(block, most)?;
            if len <= room {
                decode(block, len, out)?;
            } else {
                self.pending.clear();
                self.pending.reserve_exact(len);
                decode(block, len, &mut self.pending)?;
                self.given = 0;
            }
            if len > 0 && len <= room {
                return Ok(());
            }
        }
    }

    /// The next compressed block.
    fn next_block(&mut self) -> Result<Option<&'a [u8]>, CompressionError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        if !self.framed {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        while self.rest.starts_with(&MAGIC) {
            self.skip_header()?;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let Some((length, rest)) = self.rest.split_first_chunk::<4>() else {
            return Err(corrupt("a block's length is cut"));
        };
        let length = i32::from_be_bytes(*length);
        let length = if crate::left_out("snappy_block") {
            i32::try_from(rest.len()).map_or(length, |most| length.min(most))
        } else {
            length
        };
        let Some((block, rest)) =
            usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length))
        else {
            return Err(corrupt(format!("a block of {length} bytes passes the end")));
        };
        self.rest = rest;
        Ok(Some(block))
    }

    fn skip_header(&mut self) -> Result<(), CompressionError> {
        let Some((header, rest)) = self.rest.split_first_chunk::<HEADER_LEN>() else {
            return Err(corrupt("the header of the framing is cut"));
        };
        let [.., v0, v1, v2, v3, _, _, _, _] = *header;
        let version = i32::from_be_bytes([v0, v1, v2, v3]);
        if version < VERSION {
            return Err(corrupt(format!("version {version} of the framing is not known")));
        }
        self.rest = rest;
        Ok(())
    }
}

/// How long a block will be; an error where it may not, or cannot, be so long.
fn checked_len(block: &[u8], most: usize) -> Result<usize, CompressionError> {
    let len = decompress_len(block).map_err(corrupt)?;
    // The length comes from the sender, and memory is asked for by it.
    let growth = len > block.len().saturating_mul(GROWTH_MAX);
    if growth && !crate::left_out("snappy_growth") {
        let have = block.len();
        return Err(corrupt(format!("{have} bytes cannot hold {len}")));
    }
    if len > most {
        return Err(CompressionError::TooLarge { limit: most });
    }
    Ok(len)
}

/// Appends a block whose length was checked.
fn decode(block: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let before = out.len();
    out.resize(before + len, 0);
    let decoded = Decoder::new().decompress(block, out.get_mut(before..).unwrap_or_default());
    let whole = matches!(decoded, Ok(written) if written == len);
    if !whole {
        out.truncate(before);
    }
    decoded.map_err(corrupt)?;
    if whole { Ok(()) } else { Err(corrupt("a block is shorter than it says")) }
}

/// Writes the Java library's framing.
pub(super) struct Writer {
    encoder: Encoder,
    /// What does not fill a block yet.
    block: Vec<u8>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("block", &self.block.len()).finish_non_exhaustive()
    }
}

impl Writer {
    /// Begins a stream with its header.
    pub(super) fn start(out: &mut Vec<u8>) -> Box<Self> {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&VERSION.to_be_bytes());
        ENCODERS.take(|_| true).unwrap_or_else(|| {
            let block = Vec::with_capacity(BLOCK_BYTES);
            Box::new(Self { encoder: Encoder::new(), block })
        })
    }

    pub(super) fn write(
        &mut self,
        mut bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        while !bytes.is_empty() {
            if self.block.is_empty()
                && let Some((whole, rest)) = bytes.split_at_checked(BLOCK_BYTES)
            {
                self.write_block(whole, out)?;
                bytes = rest;
                continue;
            }
            let room = BLOCK_BYTES - self.block.len();
            let (piece, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            self.block.extend_from_slice(piece);
            bytes = rest;
            if self.block.len() == BLOCK_BYTES {
                self.write_pending(out)?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self: Box<Self>, out: &mut Vec<u8>) -> Result<(), CompressionError> {
        self.write_pending(out)?;
        ENCODERS.give(self);
        Ok(())
    }

    fn write_pending(&mut self, out: &mut Vec<u8>) -> Result<(), CompressionError> {
        let block = std::mem::take(&mut self.block);
        if !block.is_empty() {
            self.write_block(&block, out)?;
        }
        self.block = block;
        self.block.clear();
        Ok(())
    }

    fn write_block(&mut self, block: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
        let at = out.len();
        out.resize(at + 4 + max_compress_len(block.len()), 0);
        let (length, space) = out.get_mut(at..).unwrap_or_default().split_at_mut(4);
        let written = self.encoder.compress(block, space).map_err(corrupt)?;
        length.copy_from_slice(&i32::try_from(written).map_err(corrupt)?.to_be_bytes());
        out.truncate(at + 4 + written);
        Ok(())
    }
}
