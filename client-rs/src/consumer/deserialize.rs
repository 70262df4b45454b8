//! Bytes to values: keys and values of a program's own types, from records.

use super::ConsumerRecord;
use crate::error::{Error, ErrorKind};
use crate::serial::{BigEndian, Plain, SerialError};

/// Reads a key or a value from its bytes.
///
/// A closure is one: `|topic: &str, bytes: &[u8]| -> Result<T, E>`. What is read may borrow from the
/// bytes. Null stays null, and does not come here.
pub trait Deserializer<'b, T> {
    /// The value of these bytes.
    fn deserialize(&self, topic: &str, bytes: &'b [u8]) -> Result<T, SerialError>;
}

impl<'b, T, F, E> Deserializer<'b, T> for F
where
    F: Fn(&str, &'b [u8]) -> Result<T, E>,
    E: Into<SerialError>,
{
    fn deserialize(&self, topic: &str, bytes: &'b [u8]) -> Result<T, SerialError> {
        self(topic, bytes).map_err(Into::into)
    }
}

impl<'b> Deserializer<'b, &'b [u8]> for Plain {
    fn deserialize(&self, _: &str, bytes: &'b [u8]) -> Result<&'b [u8], SerialError> {
        Ok(bytes)
    }
}

impl<'b> Deserializer<'b, &'b str> for Plain {
    fn deserialize(&self, _: &str, bytes: &'b [u8]) -> Result<&'b str, SerialError> {
        Ok(std::str::from_utf8(bytes)?)
    }
}

impl Deserializer<'_, String> for Plain {
    fn deserialize(&self, topic: &str, bytes: &[u8]) -> Result<String, SerialError> {
        Deserializer::<'_, &str>::deserialize(self, topic, bytes).map(str::to_owned)
    }
}

impl Deserializer<'_, Vec<u8>> for Plain {
    fn deserialize(&self, _: &str, bytes: &[u8]) -> Result<Vec<u8>, SerialError> {
        Ok(bytes.to_vec())
    }
}

macro_rules! big_endian {
    ($($number:ty),+) => {$(
        impl Deserializer<'_, $number> for BigEndian {
            fn deserialize(&self, _: &str, bytes: &[u8]) -> Result<$number, SerialError> {
                let exact = bytes.try_into().map_err(|_| wrong_size(size_of::<$number>(), bytes))?;
                Ok(<$number>::from_be_bytes(exact))
            }
        }
    )+};
}

big_endian!(i16, u16, i32, u32, i64, u64, f32, f64);

fn wrong_size(wanted: usize, bytes: &[u8]) -> SerialError {
    format!("a number of {wanted} bytes was expected, and there are {}", bytes.len()).into()
}

impl ConsumerRecord {
    /// The key as another type than bytes; `None` is null.
    ///
    /// It is read here and now. `Deserialization` names topic, partition and offset, and has what
    /// the deserializer said as its source; [`Self::key`] still gives the bytes.
    pub fn key_with<'b, T>(
        &'b self,
        deserializer: &(impl Deserializer<'b, T> + ?Sized),
    ) -> Result<Option<T>, Error> {
        self.read("key", self.key(), deserializer)
    }

    /// The value as another type than bytes; `None` is null. Else as [`Self::key_with`].
    pub fn value_with<'b, T>(
        &'b self,
        deserializer: &(impl Deserializer<'b, T> + ?Sized),
    ) -> Result<Option<T>, Error> {
        self.read("value", self.value(), deserializer)
    }

    fn read<'b, T>(
        &self,
        what: &str,
        bytes: Option<&'b [u8]>,
        deserializer: &(impl Deserializer<'b, T> + ?Sized),
    ) -> Result<Option<T>, Error> {
        let Some(bytes) = bytes else { return Ok(None) };
        deserializer.deserialize(self.topic(), bytes).map(Some).map_err(|source| {
            let partition = self.topic_partition();
            let text = format!(
                "the {what} of the record at offset {} of {partition} could not be deserialized",
                self.offset()
            );
            Error::new(ErrorKind::Deserialization, text)
                .with_topic(&partition.topic)
                .with_partition(partition.partition)
                .with_foreign_source(source)
        })
    }
}
