//! What all generated messages can do.

use std::ops::RangeInclusive;

use crate::api::ApiKey;
use crate::reader::{DecodeError, DecodeErrorKind, Reader};
use crate::writer::{EncodeError, Writer};

#[cfg(test)]
mod samples;
#[cfg(test)]
pub(crate) mod tests;

/// A struct with a version that knows its bytes.
pub trait Message<'a>: Sized + Default {
    /// Kafka's name of the message.
    const NAME: &'static str;
    /// The versions that can be read and written.
    const VERSIONS: RangeInclusive<i16>;
    /// The first flexible version; `i16::MAX` if none is.
    const FIRST_FLEXIBLE: i16;
    /// How many times the size of its bytes a decoded message may take in memory.
    const MEMORY_FACTOR: usize = crate::reader::MEMORY_FACTOR;

    /// Reads the fields that `version` has, without asking whether there is such a version.
    #[doc(hidden)]
    fn read(r: &mut Reader<'a>, version: i16) -> Result<Self, DecodeError>;

    /// Writes the fields that `version` has, without asking whether there is such a version.
    #[doc(hidden)]
    fn write(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError>;

    /// Whether `version` writes lengths as varints and ends structs with tagged fields (KIP-482).
    fn is_flexible(version: i16) -> bool {
        version >= Self::FIRST_FLEXIBLE
    }

    /// Reads a message; bytes after it are left to the reader's owner.
    fn decode(r: &mut Reader<'a>, version: i16) -> Result<Self, DecodeError> {
        if Self::VERSIONS.contains(&version) {
            Self::read(r, version)
        } else {
            Err(r.error(Self::NAME, DecodeErrorKind::UnsupportedVersion))
        }
    }

    /// Writes the message.
    ///
    /// An error if there is no such version, or if a field that the version cannot carry is set
    /// and the definition does not let it be left out. What was written by then stays in `w`.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {
        if Self::VERSIONS.contains(&version) {
            self.write(w, version)
        } else {
            Err(EncodeError::UnsupportedVersion { message: Self::NAME, version })
        }
    }
}

/// A question to a broker.
pub trait Request<'a>: Message<'a> {
    /// The API it belongs to.
    const KEY: ApiKey;
    /// Its answer.
    type Response<'b>: Response<'b>;
}

/// A broker's answer.
pub trait Response<'a>: Message<'a> {
    /// The API it belongs to.
    const KEY: ApiKey;

    /// Milliseconds for which the broker wants nothing more on this connection (KIP-219). 0 if it
    /// does not ask for a pause, or cannot.
    fn throttle_time_ms(&self) -> i32 {
        0
    }
}

/// A record of a log of Kafka's own, whose kind is told by a number stored beside it.
pub trait KeyedMessage<'a>: Message<'a> {
    /// That number.
    const RECORD_KEY: i16;
}
