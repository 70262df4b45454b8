//! Inputs that chance makes: of samples, or of bytes that mean something as lengths.

/// Numbers that look drawn, the same for the same seed.
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number below `end`, or 0.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap().max(1);
        usize::try_from(self.next() % end).unwrap()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A byte, more often than not one at the end of a range.
    fn byte(&mut self) -> u8 {
        const TELLING: [u8; 12] = [0, 0, 1, 1, 2, 3, 4, 0x0f, 0x7f, 0x80, 0xfe, 0xff];
        if self.below(4) == 0 { self.next().to_le_bytes()[0] } else { self.one_of(&TELLING) }
    }
}

/// Lengths and counts as liars write them, in either form.
const LIES: [&[u8]; 9] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xfe],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0x07],
    &[0x81, 0x80, 0x80, 0x80, 0x80, 0x00],
    &[0x00, 0x00, 0x10, 0x00],
    &[0x80, 0x20],
    &[0x00, 0x00, 0x00, 0x10],
];

/// `seed` after one to four changes.
pub(super) fn mutated(chance: &mut Chance, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len());
        let until = (at + chance.below(9)).min(bytes.len());
        match chance.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            1 if at < bytes.len() => bytes[at] = chance.byte(),
            2 => {
                let lie = chance.one_of(&LIES);
                let end = (at + lie.len()).min(bytes.len());
                bytes.splice(at..end, lie.iter().copied());
            }
            3 => drop(bytes.drain(at..until)),
            4 => {
                let twice = bytes[at..until].to_vec();
                bytes.splice(at..at, twice);
            }
            5 => bytes.truncate(at),
            // So much that a lie about a count could be the truth for small elements.
            6 if chance.below(16) == 0 => {
                let fill = chance.one_of(&[0, 1]);
                bytes.resize(bytes.len() + chance.below(16 * 1024), fill);
            }
            _ => bytes.insert(at, chance.byte()),
        }
    }
    bytes
}

/// The most that is allowed, a size that may be a lie, and some bytes.
pub(super) fn frame(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = vec![chance.byte()];
    match chance.below(3) {
        0 => bytes.extend((0..chance.below(5)).map(|_| chance.byte()).collect::<Vec<u8>>()),
        _ => bytes.extend([0, 0, 0, chance.byte()]),
    }
    bytes.resize(bytes.len() + chance.below(300), 7);
    bytes
}

/// What the model takes for a list of fields to read, and the bytes that these are read from.
pub(super) fn fields(chance: &mut Chance) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..super::model::HEAD).map(|_| chance.next().to_le_bytes()[0]).collect();
    let count = chance.below(40);
    bytes.extend((0..count).map(|_| chance.byte()).collect::<Vec<u8>>());
    bytes
}
