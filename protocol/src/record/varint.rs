//! The variable-length numbers of record bodies: zig-zag, 7 bits a byte, low bits first.
//!
//! The writer gives the shortest form. The reader also takes padded forms of up to 5 bytes (32
//! bits) and 10 bytes (64 bits), as Kafka does.

/// Longest form of a 32-bit number.
pub const MAX_VARINT_LEN: usize = 5;
/// Longest form of a 64-bit number.
pub const MAX_VARLONG_LEN: usize = 10;

#[inline]
pub(super) const fn zigzag32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)).cast_unsigned()
}

#[inline]
pub(super) const fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// Bytes that `value` takes as a varint.
#[inline]
pub const fn varint_len(value: i32) -> usize {
    let zigzag = zigzag32(value);
    if zigzag < 0x80 { 1 } else { len_of_bits(32 - zigzag.leading_zeros()) }
}

/// Bytes that `value` takes as a varlong.
#[inline]
pub const fn varlong_len(value: i64) -> usize {
    let zigzag = zigzag64(value);
    if zigzag < 0x80 { 1 } else { len_of_bits(64 - zigzag.leading_zeros()) }
}

/// `bits / 7` rounded up, for 1 to 64 bits, without a division.
#[inline]
#[expect(clippy::as_conversions, reason = "at most 10, and From is not const")]
const fn len_of_bits(bits: u32) -> usize {
    ((bits * 9 + 64) / 64) as usize
}

/// A number encoded, in the low bytes of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Varint {
    /// The bytes, the first one lowest, and zeros above.
    pub(super) word: u64,
    /// How many they are.
    pub(super) len: usize,
}

impl Varint {
    #[inline]
    pub(super) fn of(value: i32) -> Self {
        Self::of_35_bits(u64::from(zigzag32(value)))
    }

    /// Encodes a number of at most 35 bits that is in zig-zag already.
    #[inline]
    pub(super) const fn of_35_bits(zigzag: u64) -> Self {
        debug_assert!(zigzag >> 35 == 0, "five bytes hold 35 bits");
        if zigzag < 0x80 {
            return Self { word: zigzag, len: 1 };
        }
        if zigzag < 0x4000 {
            return Self { word: (zigzag & 0x7f) | 0x80 | (zigzag >> 7) << 8, len: 2 };
        }
        let len = len_of_bits(64 - zigzag.leading_zeros());
        let groups = (zigzag & 0x7f)
            | (zigzag & (0x7f << 7)) << 1
            | (zigzag & (0x7f << 14)) << 2
            | (zigzag & (0x7f << 21)) << 3
            | (zigzag & (0x7f << 28)) << 4;
        // Every byte but the last says that another follows.
        Self { word: groups | (0x80_8080_8080 & ((1 << (8 * (len - 1))) - 1)), len }
    }
}

/// A place in a record body. Reads give `None` when the bytes end or the number is too long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) const fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// The next `len` bytes; `None` if fewer remain.
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let taken = rest.get(..len)?;
        self.at += len;
        Some(taken)
    }

    /// The next number; where it is cut or too long, `None`, and the place stays.
    #[inline]
    pub(super) fn varint(&mut self) -> Option<i32> {
        let (zigzag, len) = match *self.bytes.get(self.at..)? {
            [a, ..] if a < 0x80 => (u32::from(a), 1),
            [a, b, ..] if b < 0x80 => (u32::from(a & 0x7f) | u32::from(b) << 7, 2),
            [a, b, c, ..] if c < 0x80 => {
                (u32::from(a & 0x7f) | u32::from(b & 0x7f) << 7 | u32::from(c) << 14, 3)
            }
            _ => {
                let longer = crate::left_out("varint_length");
                let most = if longer { MAX_VARLONG_LEN } else { MAX_VARINT_LEN };
                let (zigzag, len) = self.long_number(most)?;
                (u32::try_from(zigzag).ok()?, len)
            }
        };
        self.at += len;
        Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// As [`Cursor::varint`], of 64 bits.
    #[inline]
    pub(super) fn varlong(&mut self) -> Option<i64> {
        let (zigzag, len) = match *self.bytes.get(self.at..)? {
            [a, ..] if a < 0x80 => (u64::from(a), 1),
            [a, b, ..] if b < 0x80 => (u64::from(a & 0x7f) | u64::from(b) << 7, 2),
            _ => self.long_number(MAX_VARLONG_LEN)?,
        };
        self.at += len;
        Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// A number of at most `most` bytes, still in zig-zag, and how many bytes it takes.
    #[inline(never)]
    fn long_number(&self, most: usize) -> Option<(u64, usize)> {
        let mut value = 0_u64;
        let mut shift = 0_u32;
        for (at, &byte) in self.bytes.get(self.at..)?.iter().take(most).enumerate() {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for the last of 64 bits alone.
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            shift += 7;
            if byte < 0x80 {
                return Some((value, at + 1));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(mut zigzag: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let low = u8::try_from(zigzag & 0x7f).unwrap();
            zigzag >>= 7;
            if zigzag == 0 {
                bytes.push(low);
                return bytes;
            }
            bytes.push(low | 0x80);
        }
    }

    fn read32(bytes: &[u8]) -> Option<i32> {
        Cursor { bytes, at: 0 }.varint()
    }

    fn read64(bytes: &[u8]) -> Option<i64> {
        Cursor { bytes, at: 0 }.varlong()
    }

    proptest! {
        #[test]
        fn numbers_come_back_and_lengths_agree(value: i64, shift in 0_u32..64) {
            let long = value >> shift;
            let bytes = plain(zigzag64(long));
            prop_assert_eq!(bytes.len(), varlong_len(long));
            prop_assert_eq!(read64(&bytes), Some(long));
            let int = i32::try_from(value >> 32).unwrap() >> (shift % 32);
            let bytes = plain(u64::from(zigzag32(int)));
            prop_assert_eq!(bytes.len(), varint_len(int));
            prop_assert_eq!(read32(&bytes), Some(int));
            let Varint { word, len } = Varint::of(int);
            prop_assert_eq!(&word.to_le_bytes()[..len], &bytes[..]);
        }
    }

    #[test]
    fn padded_forms_are_read_and_overlong_ones_are_not() {
        assert_eq!(read32(&[0x82, 0x80, 0x80, 0x80, 0x00]), Some(1));
        assert_eq!(read32(&[0x82, 0x80, 0x80, 0x80, 0x80, 0x00]), None);
        assert_eq!(read32(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Some(i32::MIN));
        assert_eq!(read32(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None);
        assert_eq!(read64(&[0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), Some(1));
        assert_eq!(read64(&[0xff; 10]), None);
        assert_eq!(read64(&[0x80; 3]), None);
    }
}
