//! Values to bytes: keys and values of a program's own types, for records.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Outcome};
use crate::producer::{Producer, Sent};
use crate::record::Record;

/// What a serializer may fail with.
pub type SerialError = Box<dyn std::error::Error + Send + Sync>;

/// Makes the bytes of a key or of a value.
///
/// A closure is one: `|topic: &str, value: &T, into: &mut Vec<u8>| -> Result<(), E>`.
pub trait Serializer<T: ?Sized>: Send + Sync {
    /// Writes a value into an empty buffer. What it writes is what the record holds, and what a
    /// partitioner sees of a key. Null stays null, and does not come here.
    ///
    /// With an error nothing is sent: the call fails with `Serialization`, its outcome is `NotSent`.
    fn serialize(&self, topic: &str, value: &T, into: &mut Vec<u8>) -> Result<(), SerialError>;
}

impl<T: ?Sized, F, E> Serializer<T> for F
where
    F: Fn(&str, &T, &mut Vec<u8>) -> Result<(), E> + Send + Sync,
    E: Into<SerialError>,
{
    fn serialize(&self, topic: &str, value: &T, into: &mut Vec<u8>) -> Result<(), SerialError> {
        self(topic, value, into).map_err(Into::into)
    }
}

/// Bytes as they are, and text in UTF-8. Kafka: `ByteArraySerializer`, `StringSerializer`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl<T: AsRef<[u8]> + ?Sized> Serializer<T> for Plain {
    fn serialize(&self, _: &str, value: &T, into: &mut Vec<u8>) -> Result<(), SerialError> {
        into.extend_from_slice(value.as_ref());
        Ok(())
    }
}

/// Numbers, highest byte first. Kafka: `ShortSerializer`, `IntegerSerializer`, `LongSerializer`,
/// `FloatSerializer`, `DoubleSerializer`.
#[derive(Debug, Clone, Copy, Default)]
pub struct BigEndian;

macro_rules! big_endian {
    ($($number:ty),+) => {$(
        impl Serializer<$number> for BigEndian {
            fn serialize(
                &self,
                _: &str,
                value: &$number,
                into: &mut Vec<u8>,
            ) -> Result<(), SerialError> {
                into.extend_from_slice(&value.to_be_bytes());
                Ok(())
            }
        }
    )+};
}

big_endian!(i16, u16, i32, u32, i64, u64, f32, f64);

/// Sends keys and values of a program's own types. Made by [`Producer::typed`].
///
/// ```no_run
/// use ottla::{BigEndian, Options, Plain, Producer, Record};
/// # let options = Options::new().set("bootstrap.servers", "localhost:9092")?;
/// let producer = Producer::new(&options)?;
/// let orders = producer.typed::<i64, str>(BigEndian, Plain);
/// orders.send(&Record::to("orders"), Some(&7), Some("two apples"))?;
/// orders.send(&Record::to("orders"), Some(&7), None)?;
/// # Ok::<(), ottla::Error>(())
/// ```
pub struct Typed<K: ?Sized, V: ?Sized> {
    producer: Producer,
    key: Arc<dyn Serializer<K>>,
    value: Arc<dyn Serializer<V>>,
}

impl Producer {
    /// A way to send keys and values of other types than bytes.
    pub fn typed<K: ?Sized, V: ?Sized>(
        &self,
        key: impl Serializer<K> + 'static,
        value: impl Serializer<V> + 'static,
    ) -> Typed<K, V> {
        Typed { producer: self.clone(), key: Arc::new(key), value: Arc::new(value) }
    }
}

impl<K: ?Sized, V: ?Sized> Typed<K, V> {
    /// Sends a record with this key and value in place of its own, as [`Producer::send`] does.
    ///
    /// `Serialization` if a serializer fails.
    pub fn send(
        &self,
        record: &Record<'_>,
        key: Option<&K>,
        value: Option<&V>,
    ) -> Result<Sent, Error> {
        self.with(record, key, value, |record| self.producer.send(record))
    }

    /// Makes the record and hands it on, for any other way of sending: with callbacks, or without
    /// waiting for room.
    pub fn with<R>(
        &self,
        record: &Record<'_>,
        key: Option<&K>,
        value: Option<&V>,
        send: impl FnOnce(&Record<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut buffers = Buffers::take();
        let Buffers { key: key_bytes, value: value_bytes } = &mut buffers;
        let key = write(record.topic, "key", &*self.key, key, key_bytes)?;
        let value = write(record.topic, "value", &*self.value, value, value_bytes)?;
        let result = send(&Record { key, value, ..*record });
        buffers.give_back();
        result
    }

    /// The producer that it sends by.
    pub const fn producer(&self) -> &Producer {
        &self.producer
    }
}

impl<K: ?Sized, V: ?Sized> Clone for Typed<K, V> {
    fn clone(&self) -> Self {
        Self {
            producer: self.producer.clone(),
            key: Arc::clone(&self.key),
            value: Arc::clone(&self.value),
        }
    }
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for Typed<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed").field("producer", &self.producer).finish_non_exhaustive()
    }
}

fn write<'b, T: ?Sized>(
    topic: &str,
    what: &str,
    serializer: &dyn Serializer<T>,
    value: Option<&T>,
    into: &'b mut Vec<u8>,
) -> Result<Option<&'b [u8]>, Error> {
    let Some(value) = value else { return Ok(None) };
    match serializer.serialize(topic, value, into) {
        Ok(()) => Ok(Some(into)),
        Err(source) => {
            let text = format!("the record's {what} could not be serialized");
            let error = Error::new(ErrorKind::Serialization, text).with_topic(&topic.into());
            Err(error.with_outcome(Outcome::NotSent).with_foreign_source(source))
        }
    }
}

/// Where one record's key and value are written before they go into their batch.
#[derive(Default)]
struct Buffers {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Buffers up to this size are kept for the thread's next record.
const KEPT_MAX: usize = 1024 * 1024;

thread_local! {
    static KEPT: Cell<Option<Buffers>> = const { Cell::new(None) };
}

impl Buffers {
    /// Empty ones. A serializer that itself sends gets others.
    fn take() -> Self {
        KEPT.try_with(Cell::take).ok().flatten().unwrap_or_default()
    }

    fn give_back(mut self) {
        if self.key.capacity().max(self.value.capacity()) <= KEPT_MAX {
            self.key.clear();
            self.value.clear();
            // A thread that is ending needs none any more.
            let _ending = KEPT.try_with(|kept| kept.set(Some(self)));
        }
    }
}
