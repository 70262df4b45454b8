//! The checksum of a batch's records, which grows as they come.

use ottla_protocol::record::crc;

/// Bytes of a record from which on it is checked as it is written.
///
/// Then it is still in the cache of the processor that wrote it: the I/O thread, on another one and
/// later, would have to fetch it once more. Small records are not worth one by one what it costs to
/// begin, and the sender's time; they are checked as one when the batch is taken.
pub(crate) const CHECK_FROM: usize = 512;

/// CRC-32C of the first bytes of a batch's records.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Checksum {
    crc: u32,
    covered: usize,
}

impl Checksum {
    /// Covers all of a body that has grown at its end since the last time, and gives its checksum.
    pub(crate) fn cover<'a>(&mut self, body: impl IntoIterator<Item = &'a [u8]>) -> u32 {
        let mut known = self.covered;
        for slice in body {
            match slice.split_at_checked(known) {
                Some((_, [])) => known = 0,
                Some((_, new)) => {
                    self.crc = crc::append(self.crc, new);
                    self.covered += new.len();
                    known = 0;
                }
                None => known -= slice.len(),
            }
        }
        self.crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_checked_as_it_grows_wherever_its_slices_begin() {
        let text: Vec<u8> = (0..=255).collect();
        for first in [0, 1, 100, 256] {
            for grown in [0, 1, 99, 100, 101, 200, 255] {
                let (early, rest) = text.split_at(first);
                let mut checksum = Checksum::default();
                let seen = &text[..grown];
                let before = match seen.split_at_checked(first) {
                    Some((early, rest)) => checksum.cover([early, rest]),
                    None => checksum.cover([seen]),
                };
                assert_eq!(before, crc::of(seen), "{first} {grown}");
                assert_eq!(checksum.cover([early, rest]), crc::of(&text), "{first} {grown}");
                assert_eq!(checksum.cover([early, rest]), crc::of(&text), "twice");
            }
        }
        assert_eq!(Checksum::default().cover([]), crc::of(&[]));
    }
}
