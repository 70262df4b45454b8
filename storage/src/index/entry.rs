//! What the two indexes of a segment hold: the entries, in their files and in memory.

use std::fmt::Debug;

/// An entry of an index: its form in the file, and in memory as 64-bit words.
pub(crate) trait Entry: Copy + Debug {
    /// Bytes in the file.
    const SIZE: usize;
    /// Words in memory, 1 or 2.
    const WORDS: usize;
    fn encode(&self, out: &mut Vec<u8>);
    fn decode(bytes: &[u8]) -> Option<Self>;
    fn words(&self) -> [u64; 2];
    fn from_words(words: [u64; 2]) -> Self;
    /// The offset it names, less the segment's base.
    fn relative(&self) -> u32;
}

/// Where the batch begins whose last offset this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    pub(crate) relative: u32,
    pub(crate) position: u32,
}

/// The largest timestamp up to an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    pub(crate) timestamp: i64,
    pub(crate) relative: u32,
}

impl Entry for OffsetEntry {
    const SIZE: usize = 8;
    const WORDS: usize = 1;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.relative.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let &[r0, r1, r2, r3, p0, p1, p2, p3] = bytes.first_chunk()?;
        let relative = u32::from_be_bytes([r0, r1, r2, r3]);
        Some(Self { relative, position: u32::from_be_bytes([p0, p1, p2, p3]) })
    }

    fn words(&self) -> [u64; 2] {
        [u64::from(self.relative) << 32 | u64::from(self.position), 0]
    }

    fn from_words([word, _]: [u64; 2]) -> Self {
        let [r0, r1, r2, r3, p0, p1, p2, p3] = word.to_be_bytes();
        let relative = u32::from_be_bytes([r0, r1, r2, r3]);
        Self { relative, position: u32::from_be_bytes([p0, p1, p2, p3]) }
    }

    fn relative(&self) -> u32 {
        self.relative
    }
}

impl Entry for TimeEntry {
    const SIZE: usize = 12;
    const WORDS: usize = 2;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.relative.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let timestamp = i64::from_be_bytes(*bytes.first_chunk()?);
        let relative = u32::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
        Some(Self { timestamp, relative })
    }

    fn words(&self) -> [u64; 2] {
        [self.timestamp.cast_unsigned(), u64::from(self.relative)]
    }

    fn from_words([timestamp, relative]: [u64; 2]) -> Self {
        let relative = u32::try_from(relative).unwrap_or(u32::MAX);
        Self { timestamp: timestamp.cast_signed(), relative }
    }

    fn relative(&self) -> u32 {
        self.relative
    }
}
