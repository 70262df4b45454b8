//! Kafka's 128-bit ids, printed as Kafka prints them.

use std::fmt;
use std::str::FromStr;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A topic, directory, incarnation or cluster id; all zero means none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The id that means none.
    pub const ZERO: Self = Self([0; 16]);

    /// Whether this means none.
    pub const fn is_zero(&self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }
}

impl fmt::Display for Uuid {
    /// URL-safe base64 without padding: 22 characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0_u8; 22];
        // 128 bits and 4 zero bits make 22 groups of 6.
        let bits = u128::from_be_bytes(self.0);
        for (index, slot) in (0_u32..).zip(text.iter_mut()) {
            let group = if index == 21 { bits << 4 } else { bits >> (122 - 6 * index) } & 0x3f;
            let digit = usize::try_from(group).map_err(|_| fmt::Error)?;
            *slot = ALPHABET.get(digit).copied().ok_or(fmt::Error)?;
        }
        f.pad(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not 22 characters of URL-safe base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseUuidError;

impl fmt::Display for ParseUuidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id is 22 characters of URL-safe base64")
    }
}

impl std::error::Error for ParseUuidError {}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, ParseUuidError> {
        let text = text.strip_suffix("==").unwrap_or(text);
        if text.len() != 22 {
            return Err(ParseUuidError);
        }
        let mut bits: u128 = 0;
        for (index, byte) in text.bytes().enumerate() {
            let digit = ALPHABET.iter().position(|&symbol| symbol == byte).ok_or(ParseUuidError)?;
            let digit = u128::try_from(digit).map_err(|_| ParseUuidError)?;
            bits = if index == 21 {
                // The last character carries 2 bits of the id.
                bits << 2 | digit >> 4
            } else {
                bits << 6 | digit
            };
        }
        Ok(Self(bits.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses_as_kafka_does() {
        // Kafka's Uuid.METADATA_TOPIC_ID is (0, 1), printed so in its own tools.
        let mut one = [0; 16];
        one[15] = 1;
        assert_eq!(Uuid(one).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!("AAAAAAAAAAAAAAAAAAAAAQ".parse(), Ok(Uuid(one)));
        let all = Uuid([0xff; 16]);
        assert_eq!(all.to_string(), "_____________________w");
        assert_eq!(all.to_string().parse(), Ok(all));
        let mixed = Uuid(*b"0123456789abcdef");
        assert_eq!(mixed.to_string(), "MDEyMzQ1Njc4OWFiY2RlZg");
        assert_eq!(mixed.to_string().parse(), Ok(mixed));
    }

    #[test]
    fn refuses_text_that_is_no_id() {
        for text in ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAA+", "AAAAAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(text.parse::<Uuid>(), Err(ParseUuidError), "{text}");
        }
    }
}
