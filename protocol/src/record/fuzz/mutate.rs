//! Chance that can be repeated, and what it does to bytes.

/// A generator of numbers: xorshift64*.
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap();
        usize::try_from(self.next() % end).unwrap()
    }

    fn byte(&mut self) -> u8 {
        let [low, ..] = self.next().to_le_bytes();
        low
    }
}

/// Bytes at which lengths, counts and signs turn.
const EDGES: [u8; 12] = [0x00, 0x01, 0x02, 0x03, 0x04, 0x3f, 0x40, 0x7e, 0x7f, 0x80, 0xfe, 0xff];
/// Whole fields of that kind.
const FIELDS: [&[u8]; 7] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff],
    &[0x80, 0x00, 0x00, 0x00],
    &[0x00, 0x00, 0x00, 0x00],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xfe, 0xff, 0xff, 0xff, 0x0f],
    &[0x80, 0x80, 0x80, 0x80, 0x04],
];

/// One of the seeds, changed in a few places.
pub(super) fn mutated(chance: &mut Chance, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[chance.below(seeds.len())].clone();
    for _ in 0..=chance.below(3) {
        // The front and the end are where most lengths stand.
        let len = bytes.len();
        let at = match chance.below(4) {
            0 => chance.below(len.min(4)),
            1 => len.saturating_sub(1 + chance.below(4)),
            _ => chance.below(len),
        };
        change(chance, &mut bytes, at.min(len.saturating_sub(1)), seeds);
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

fn change(chance: &mut Chance, bytes: &mut Vec<u8>, at: usize, seeds: &[Vec<u8>]) {
    match chance.below(9) {
        0 => bytes[at] ^= 1 << chance.below(8),
        1 => bytes[at] = EDGES[chance.below(EDGES.len())],
        2 => bytes[at] = bytes[at].wrapping_add(chance.byte() % 9).wrapping_sub(4),
        3 => {
            let field = FIELDS[chance.below(FIELDS.len())];
            let end = bytes.len().min(at + field.len());
            bytes[at..end].copy_from_slice(&field[..end - at]);
        }
        4 => bytes.truncate(at),
        5 => {
            let end = (at + 1 + chance.below(8)).min(bytes.len());
            bytes.drain(at..end);
        }
        6 => bytes.insert(at, chance.byte()),
        7 => pad_number(chance, bytes, at),
        _ => {
            let other = &seeds[chance.below(seeds.len())];
            let from = chance.below(other.len());
            let piece = &other[from..(from + 1 + chance.below(40)).min(other.len())];
            bytes.splice(at..at, piece.iter().copied());
        }
    }
}

/// Makes a number of one byte longer than it need be, or than it may be.
fn pad_number(chance: &mut Chance, bytes: &mut Vec<u8>, at: usize) {
    if bytes[at] < 0x80 {
        let low = bytes[at] | 0x80;
        let zeros = std::iter::repeat_n(0x80, chance.below(10));
        bytes[at] = 0;
        bytes.splice(at..at, std::iter::once(low).chain(zeros));
    }
}
