//! Values for the fields of samples: drawn from a seed, or told by the field's place.

use crate::uuid::Uuid;

/// `interop/vectors/Samples.java` has the same texts, but for the first, in the same order.
const TEXTS: [&str; 5] = ["", "a", "orders", "grüße", "a longer name, with spaces"];

/// Values for samples, the same for the same seed.
#[derive(Debug)]
pub(in crate::message) struct Numbers {
    state: u64,
    /// The place of the field whose value is next, if places tell the values.
    place: Option<String>,
}

impl Numbers {
    /// Values that differ from draw to draw.
    pub(super) fn seeded(seed: u64) -> Self {
        Self { state: seed, place: None }
    }

    /// Values that each field's place in the message called `name` tells, none of them null.
    pub(super) fn placed(name: &str) -> Self {
        Self { state: 0, place: Some(name.to_owned()) }
    }

    fn next(&mut self) -> u64 {
        if let Some(place) = &self.place {
            // FNV-1a
            return place.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, letter| {
                (hash ^ u64::from(letter)).wrapping_mul(0x100_0000_01b3)
            });
        }
        // xorshift64
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn bytes_of<const N: usize>(&mut self) -> [u8; N] {
        let next = self.next().to_le_bytes();
        std::array::from_fn(|index| next[index % next.len()])
    }

    /// What `draw` gives for the field called `name`, or for the element of this index.
    pub(in crate::message) fn field<T>(
        &mut self,
        name: &str,
        draw: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let length = self.place.as_ref().map(String::len);
        if let Some(place) = &mut self.place {
            place.push('.');
            place.push_str(name);
        }
        let drawn = draw(self);
        if let (Some(place), Some(length)) = (&mut self.place, length) {
            place.truncate(length);
        }
        drawn
    }

    /// Whether a field that may be null is.
    pub(in crate::message) fn null(&mut self) -> bool {
        self.place.is_none() && self.flip()
    }

    pub(in crate::message) fn flip(&mut self) -> bool {
        self.next() & 0x100 == 0
    }

    pub(in crate::message) fn int8(&mut self) -> i8 {
        i8::from_be_bytes(self.bytes_of())
    }

    pub(in crate::message) fn int16(&mut self) -> i16 {
        i16::from_be_bytes(self.bytes_of())
    }

    pub(in crate::message) fn int32(&mut self) -> i32 {
        i32::from_be_bytes(self.bytes_of())
    }

    pub(in crate::message) fn int64(&mut self) -> i64 {
        i64::from_be_bytes(self.bytes_of())
    }

    pub(in crate::message) fn uuid(&mut self) -> Uuid {
        Uuid(self.bytes_of())
    }

    pub(in crate::message) fn string(&mut self) -> &'static str {
        let texts = if self.place.is_some() { &TEXTS[1..] } else { &TEXTS[..] };
        let [byte] = self.bytes_of();
        texts[usize::from(byte) % texts.len()]
    }

    pub(in crate::message) fn bytes(&mut self) -> &'static [u8] {
        self.string().as_bytes()
    }

    pub(in crate::message) fn array<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> T,
    ) -> Vec<T> {
        let count = if self.place.is_some() { 2 } else { self.bytes_of::<1>()[0] % 3 };
        (0..count).map(|index| self.field(&index.to_string(), &mut element)).collect()
    }
}
