//! Records on their way to a broker, and what is told when they have arrived.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};

/// A header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Name; need not be unique in a record.
    pub key: &'a str,
    /// Value; `None` is null, which is not the same as empty.
    pub value: Option<&'a [u8]>,
}

impl<'a> Header<'a> {
    /// A header with a value.
    pub const fn new(key: &'a str, value: &'a [u8]) -> Self {
        Self { key, value: Some(value) }
    }
}

/// A record to be sent. It borrows all that it holds; sending copies it once, into its batch.
///
/// ```
/// use ottla::{Header, Record};
/// let headers = [Header::new("trace", b"1")];
/// let record = Record::to("orders").key(b"k").value(b"v").headers(&headers);
/// assert_eq!(record.partition, None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it goes.
    pub topic: &'a str,
    /// Which partition; `None` lets the partitioner choose.
    pub partition: Option<i32>,
    /// Key; `None` is null. An empty key is a key.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is null.
    pub value: Option<&'a [u8]>,
    /// Headers, in order.
    pub headers: &'a [Header<'a>],
    /// Milliseconds since the epoch, 0 at least; `None` is the time of the call, to a tick of the
    /// system: records that a thread sends within one may share the time of the first.
    pub timestamp: Option<i64>,
}

impl<'a> Record<'a> {
    /// A record with null key, null value and no headers.
    #[inline]
    pub const fn to(topic: &'a str) -> Self {
        Self { topic, partition: None, key: None, value: None, headers: &[], timestamp: None }
    }

    /// Bytes of its key, value and headers, for which there must be room
    /// ([`Producer::room`](crate::Producer::room)).
    #[must_use]
    pub fn size(&self) -> usize {
        let len = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        // Beside a header's bytes stand two lengths, of five bytes at most each.
        let headers = self.headers.iter().map(|header| header.key.len() + len(header.value) + 10);
        len(self.key) + len(self.value) + headers.sum::<usize>()
    }

    /// The same with this key.
    #[must_use]
    #[inline]
    pub fn key(mut self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.key = Some(key.as_ref());
        self
    }

    /// The same with this value.
    #[must_use]
    #[inline]
    pub fn value(mut self, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.value = Some(value.as_ref());
        self
    }

    /// The same with these headers.
    #[must_use]
    #[inline]
    pub const fn headers(mut self, headers: &'a [Header<'a>]) -> Self {
        self.headers = headers;
        self
    }

    /// The same for this partition.
    #[must_use]
    #[inline]
    pub const fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The same with this time, in milliseconds since the epoch.
    #[must_use]
    #[inline]
    pub const fn timestamp(mut self, millis: i64) -> Self {
        self.timestamp = Some(millis);
        self
    }
}

/// Where a record has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: i32,
    /// Its offset; −1 if it is not known: with `acks=0`, or if the broker had it already.
    pub offset: i64,
    /// Its time in milliseconds since the epoch: the broker's, if the topic is set so, else its own.
    pub timestamp: i64,
}

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition's number.
    pub partition: i32,
}

impl TopicPartition {
    /// A partition of a topic.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl std::fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Whether there can be such a partition.
pub(crate) fn check_partition(at: &TopicPartition) -> Result<(), Error> {
    check_topic(&at.topic)?;
    if at.partition >= 0 {
        return Ok(());
    }
    let text = format!("no partition is {}: the first is 0", at.partition);
    Err(Error::new(ErrorKind::InvalidPartition, text).with_topic(&at.topic))
}

/// Kafka's rule for topic names [Topic.validate].
pub(crate) fn check_topic(name: &str) -> Result<(), Error> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let fault = if name.is_empty() {
        "it is empty"
    } else if name.len() > 249 {
        "it is longer than 249 characters"
    } else if name == "." || name == ".." {
        "`.` and `..` are no names"
    } else if !name.bytes().all(legal) {
        "it may hold letters of ASCII, digits, `.`, `_` and `-`"
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(64).collect();
    let text = format!("`{}` is no name of a topic: {fault}", shown.escape_debug());
    Err(Error::new(ErrorKind::InvalidTopic, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_records_size_is_its_bytes_and_the_lengths_of_its_headers() {
        assert_eq!(Record::to("orders").size(), 0);
        let headers = [Header::new("name", b"val"), Header { key: "", value: None }];
        let record = Record::to("orders").key(b"k").value(b"value").headers(&headers);
        assert_eq!(record.size(), 1 + 5 + (4 + 3 + 10) + 10);
    }
}
