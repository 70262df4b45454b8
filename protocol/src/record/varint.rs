//! The variable-length numbers of record bodies: zig-zag, 7 bits a byte, low bits first.
//!
//! The writer gives the shortest form. The reader also takes padded forms of up to 5 bytes (32 bits)
//! and 10 bytes (64 bits), as Kafka does.

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
    len_of_bits(32 - (zigzag32(value) | 1).leading_zeros())
}

/// Bytes that `value` takes as a varlong.
#[inline]
pub const fn varlong_len(value: i64) -> usize {
    len_of_bits(64 - (zigzag64(value) | 1).leading_zeros())
}

/// `bits / 7` rounded up, for 1 to 64 bits, without a division.
#[inline]
#[expect(clippy::as_conversions, reason = "at most 10, and From is not const")]
const fn len_of_bits(bits: u32) -> usize {
    ((bits * 9 + 64) / 64) as usize
}

/// Bytes of a number that fits 35 bits: its encoding in the low bytes of a word, and how many.
#[inline]
pub(super) const fn spread35(zigzag: u64, len: usize) -> u64 {
    let groups = (zigzag & 0x7f)
        | (zigzag & (0x7f << 7)) << 1
        | (zigzag & (0x7f << 14)) << 2
        | (zigzag & (0x7f << 21)) << 3
        | (zigzag & (0x7f << 28)) << 4;
    // Every byte but the last says that another follows.
    groups | (0x80_8080_8080 & ((1 << (8 * (len - 1))) - 1))
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

    #[inline]
    pub(super) fn varint(&mut self) -> Option<i32> {
        let first = self.byte()?;
        let zigzag = if first < 0x80 { u32::from(first) } else { self.long_varint(first)? };
        Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    fn long_varint(&mut self, first: u8) -> Option<u32> {
        let mut value = u32::from(first & 0x7f);
        for shift in [7, 14, 21, 28] {
            let byte = self.byte()?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && bits > 0x0f {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    pub(super) fn varlong(&mut self) -> Option<i64> {
        let first = self.byte()?;
        let zigzag = if first < 0x80 { u64::from(first) } else { self.long_varlong(first)? };
        Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    fn long_varlong(&mut self, first: u8) -> Option<u64> {
        let mut value = u64::from(first & 0x7f);
        for shift in [7, 14, 21, 28, 35, 42, 49, 56, 63] {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
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
            let word = spread35(u64::from(zigzag32(int)), bytes.len()).to_le_bytes();
            prop_assert_eq!(&word[..bytes.len()], &bytes[..]);
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
