//! Numbers and lengths in bytes, never past their end.

/// Bytes to read from.
pub(super) struct Bytes<'b> {
    rest: &'b [u8],
}

impl<'b> Bytes<'b> {
    pub(super) fn new(rest: &'b [u8]) -> Self {
        Self { rest }
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'b [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("it ends too soon")?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn all(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(super) fn end(&self) -> Result<(), String> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(format!("{left} bytes are left over")),
        }
    }

    /// A signed number of one to eight bytes, the high one first.
    pub(super) fn number(&mut self, width: usize) -> Result<i64, String> {
        let bytes = self.take(width)?;
        let sign = if bytes.first().is_some_and(|first| *first >= 0x80) { -1 } else { 0 };
        Ok(bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
    }

    pub(super) fn uvarint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?.first().copied().unwrap_or_default();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a varint has no end".to_owned())
    }

    /// A number in zig-zag form, as records have them.
    pub(super) fn varint(&mut self) -> Result<i64, String> {
        let number = self.uvarint()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// Bytes after their length; -1 is null.
    pub(super) fn prefixed(&mut self) -> Result<Option<&'b [u8]>, String> {
        match self.varint()? {
            -1 => Ok(None),
            size => self.take(usize::try_from(size).map_err(|_| "a length below -1")?).map(Some),
        }
    }
}

pub(super) fn put_uvarint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap_or_default());
}

pub(super) fn put_varint(out: &mut Vec<u8>, number: i64) {
    put_uvarint(out, (number << 1 ^ number >> 63).cast_unsigned());
}

/// The CRC-32C (Castagnoli) of all bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let fold = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    };
    !bytes.iter().fold(!0, fold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for number in [0, 1, -1, 63, -64, 64, 300, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            assert_eq!(Bytes::new(&out).varint(), Ok(number));
        }
        assert_eq!(Bytes::new(&[0xff, 0xfe]).number(2), Ok(-2));
        assert!(Bytes::new(&[0xff; 11]).uvarint().is_err());
        assert!(Bytes::new(&[0]).number(2).is_err());
    }

    #[test]
    fn checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
