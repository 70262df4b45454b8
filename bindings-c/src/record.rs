//! Records on their way in and out, as structs of C.
#![allow(unsafe_code, reason = "structs of C point to its memory")]

use std::ffi::{c_char, c_void};
use std::fmt::{self, Display};
use std::ptr;

use ottla::{Delivery, Error, ErrorKind, Header, Record};

use crate::boundary::{array, refused, text};
use crate::error::{ottla_error_t, ottla_outcome_t};
use crate::error_code::ottla_error_code_t;

/// Any partition: the partitioner chooses.
pub const OTTLA_PARTITION_ANY: i32 = -1;
/// No time of its own: a record gets the time of the call.
pub const OTTLA_TIMESTAMP_NOW: i64 = -1;

/// Bytes. A ptr of NULL is null, which is not the same as a len of 0. See OTTLA_BYTES.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_bytes_t {
    /// The first byte, or NULL.
    pub ptr: *const c_void,
    /// How many there are.
    pub len: usize,
}

/// A header of a record to be sent.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_header_t {
    /// Its name, in UTF-8; need not be unique in a record. Not NULL.
    pub key: *const c_char,
    /// Its value; null is not the same as empty.
    pub value: ottla_bytes_t,
}

/// A record to be sent. It borrows all that it points to, for the call alone.
///
/// Make it by OTTLA_RECORD. One whose memory was set to zero is also legal: there size is 0, and
/// partition 0 and timestamp 0 mean that none was chosen.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_record_t {
    /// What OTTLA_RECORD sets: the size of this struct.
    pub size: usize,
    /// Where it goes. Not NULL.
    pub topic: *const c_char,
    /// Its key. An empty key is a key, null is none.
    pub key: ottla_bytes_t,
    /// Its value; may be null.
    pub value: ottla_bytes_t,
    /// Its headers, in order; may be NULL if headers_len is 0.
    pub headers: *const ottla_header_t,
    /// How many headers there are.
    pub headers_len: usize,
    /// Milliseconds since the epoch, or OTTLA_TIMESTAMP_NOW.
    pub timestamp: i64,
    /// Yours: comes back in the record's ottla_result_t, and is never followed.
    pub opaque: *mut c_void,
    /// A partition's number, or OTTLA_PARTITION_ANY.
    pub partition: i32,
}

/// Where a record has arrived.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_delivery_t {
    /// Its topic. Borrowed; each function says from whom.
    pub topic: *const c_char,
    /// Its offset; -1 if it is not known: with acks=0, or if the broker had it already.
    pub offset: i64,
    /// Its time in milliseconds since the epoch: the broker's if the topic is set so, else its own.
    pub timestamp: i64,
    /// Its partition; -1 if it was not delivered.
    pub partition: i32,
}

/// What became of one record of many.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_result_t {
    /// Where it has arrived, if code is OTTLA_OK.
    pub delivery: ottla_delivery_t,
    /// The record's own opaque.
    pub opaque: *mut c_void,
    /// Why it was not delivered; NULL if it was. Borrowed: in a callback until that returns, from
    /// ottla_producer_send_many until the error that this returned is freed. Not to be freed.
    pub error: *const ottla_error_t,
    /// OTTLA_OK, or the kind of the error.
    pub code: ottla_error_code_t,
    /// What may have become of it all the same.
    pub outcome: ottla_outcome_t,
}

/// A record that was read. Its batch owns it and all that it points to.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_record_view_t {
    /// Its key; null and empty differ.
    pub key: ottla_bytes_t,
    /// Its value; null and empty differ.
    pub value: ottla_bytes_t,
    /// Its offset in the partition.
    pub offset: i64,
    /// Its time in milliseconds since the epoch.
    pub timestamp: i64,
    /// How many headers it has; ottla_batch_headers gives them.
    pub headers_len: usize,
}

/// A header of a record that was read. Its batch owns what it points to.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_header_view_t {
    /// Its name, in UTF-8, without a zero byte at the end. Never null.
    pub key: ottla_bytes_t,
    /// Its value; null and empty differ.
    pub value: ottla_bytes_t,
}

/// A partition of a topic.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_topic_partition_t {
    /// The topic. Borrowed by the function it is given to, for the call alone.
    pub topic: *const c_char,
    /// The partition's number.
    pub partition: i32,
}

/// A place in a partition.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_topic_offset_t {
    /// The topic. Borrowed by the function it is given to, for the call alone.
    pub topic: *const c_char,
    /// The partition's number.
    pub partition: i32,
    /// The offset from which to read on.
    pub offset: i64,
}

/// A place in a partition, with what a group keeps beside it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_topic_metadata_t {
    /// The topic. Borrowed; each function says from whom.
    pub topic: *const c_char,
    /// The partition's number.
    pub partition: i32,
    /// The leader epoch of the record before the offset; -1 if it is not known.
    pub leader_epoch: i32,
    /// The offset from which to read on; -1 if none is committed.
    pub offset: i64,
    /// A text of the program's own; NULL is an empty one. Brokers take 4,096 bytes unless they are
    /// told otherwise (offset.metadata.max.bytes), and no client can send more than 32,767.
    pub metadata: *const c_char,
}

/// A time to look for in a partition.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_topic_timestamp_t {
    /// The topic. Borrowed by the function it is given to, for the call alone.
    pub topic: *const c_char,
    /// The partition's number.
    pub partition: i32,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
}

/// The first record of a time or later.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ottla_offset_timestamp_t {
    /// Its offset; -1 if there is none.
    pub offset: i64,
    /// Its time in milliseconds since the epoch; -1 if there is none.
    pub timestamp: i64,
    /// The epoch of the leader that took it; -1 if it is not known.
    pub leader_epoch: i32,
}

// SAFETY: the pointers go into the memory of the batch that owns these, which does not change.
unsafe impl Send for ottla_record_view_t {}
// SAFETY: the same.
unsafe impl Sync for ottla_record_view_t {}

/// Most bytes in one field: Kafka's lengths have 32 bits.
const FIELD_BYTES_MAX: usize = 0x7fff_ffff;

impl ottla_bytes_t {
    pub(crate) fn of(bytes: Option<&[u8]>) -> Self {
        bytes.map_or(Self { ptr: ptr::null(), len: 0 }, |bytes| Self {
            ptr: bytes.as_ptr().cast(),
            len: bytes.len(),
        })
    }

    /// # Safety
    ///
    /// `ptr` is null, or points to `len` bytes that nobody writes to for `'a`.
    unsafe fn to_core<'a>(self, name: impl Display) -> Result<Option<&'a [u8]>, Error> {
        if self.ptr.is_null() && self.len == 0 {
            return Ok(None);
        }
        if self.len > FIELD_BYTES_MAX {
            let text = format!("`{name}` has the length {}: more than any record", self.len);
            return Err(Error::new(ErrorKind::RecordTooLarge, text));
        }
        // SAFETY: this function's contract.
        unsafe { array(self.ptr.cast(), self.len, name) }.map(Some)
    }
}

/// What a record is called in an error: `record`, or which of an array.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Called {
    Record,
    OneOf(usize),
}

impl Display for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record => f.write_str("record"),
            Self::OneOf(index) => write!(f, "records[{index}]"),
        }
    }
}

impl ottla_record_t {
    /// The record for the core, without its headers.
    ///
    /// # Safety
    ///
    /// The header's rules for records: what it points to is there, and nobody writes to it for `'a`.
    pub(crate) unsafe fn record<'a>(&self, called: Called) -> Result<Record<'a>, Error> {
        let zeroed = self.size == 0;
        if !zeroed && self.size != size_of::<Self>() {
            let what = format_args!("{called}.size");
            let why = format_args!("is {}: make the record by OTTLA_RECORD", self.size);
            return Err(refused(what, why));
        }
        // What is no partition and no time is for the core to refuse.
        let partition = match self.partition {
            0 if zeroed => None,
            OTTLA_PARTITION_ANY => None,
            partition => Some(partition),
        };
        let timestamp = match self.timestamp {
            0 if zeroed => None,
            OTTLA_TIMESTAMP_NOW => None,
            timestamp => Some(timestamp),
        };
        // SAFETY: this function's contract.
        let (topic, key, value) = unsafe {
            (
                text(self.topic, format_args!("{called}.topic"))?,
                self.key.to_core(format_args!("{called}.key"))?,
                self.value.to_core(format_args!("{called}.value"))?,
            )
        };
        Ok(Record { topic, partition, key, value, headers: &[], timestamp })
    }

    /// Puts the record's headers into a list that may have others; the place of the first.
    ///
    /// # Safety
    ///
    /// As of [`Self::record`].
    pub(crate) unsafe fn push_headers<'a>(
        &self,
        called: Called,
        into: &mut impl Extend<Header<'a>>,
    ) -> Result<(), Error> {
        let name = format_args!("{called}.headers");
        // SAFETY: this function's contract.
        let headers = unsafe { array(self.headers, self.headers_len, name) }?;
        for (index, header) in headers.iter().enumerate() {
            // SAFETY: this function's contract.
            let (key, value) = unsafe {
                (
                    text(header.key, format_args!("{called}.headers[{index}].key"))?,
                    header.value.to_core(format_args!("{called}.headers[{index}].value"))?,
                )
            };
            into.extend([Header { key, value }]);
        }
        Ok(())
    }
}

/// Headers of one record up to which no list is allocated for them.
const FEW: usize = 8;

/// Headers on the stack.
struct Few<'a> {
    headers: [Header<'a>; FEW],
    len: usize,
}

impl<'a> Extend<Header<'a>> for Few<'a> {
    fn extend<T: IntoIterator<Item = Header<'a>>>(&mut self, headers: T) {
        for (place, header) in self.headers.iter_mut().skip(self.len).zip(headers) {
            *place = header;
            self.len += 1;
        }
    }
}

/// Uses one record of C's.
///
/// # Safety
///
/// As of [`ottla_record_t::record`].
pub(crate) unsafe fn with_core<R>(
    given: &ottla_record_t,
    body: impl FnOnce(&Record<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    // SAFETY: this function's contract.
    let record = unsafe { given.record(Called::Record) }?;
    if given.headers_len <= FEW {
        let mut few = Few { headers: [Header { key: "", value: None }; FEW], len: 0 };
        // SAFETY: this function's contract.
        unsafe { given.push_headers(Called::Record, &mut few) }?;
        let lost = || Error::new(ErrorKind::Internal, "headers were lost on their way to the core");
        let headers = few.headers.get(..few.len).ok_or_else(lost)?;
        return body(&Record { headers, ..record });
    }
    let mut headers = Vec::new();
    // SAFETY: this function's contract.
    unsafe { given.push_headers(Called::Record, &mut headers) }?;
    body(&Record { headers: &headers, ..record })
}

impl ottla_delivery_t {
    pub(crate) const fn unknown(topic: *const c_char) -> Self {
        Self { topic, offset: -1, timestamp: -1, partition: -1 }
    }

    pub(crate) const fn new(topic: *const c_char, delivery: &Delivery) -> Self {
        let Delivery { partition, offset, timestamp, .. } = *delivery;
        Self { topic, offset, timestamp, partition }
    }
}

impl ottla_result_t {
    /// The result of a record; the error, if it has one, is still to be put there.
    pub(crate) fn new(
        topic: *const c_char,
        opaque: *mut c_void,
        result: &Result<Delivery, ottla_error_t>,
    ) -> Self {
        match result {
            Ok(delivery) => Self {
                delivery: ottla_delivery_t::new(topic, delivery),
                opaque,
                error: ptr::null(),
                code: ottla_error_code_t::OTTLA_OK,
                outcome: ottla_outcome_t::OTTLA_OUTCOME_NONE,
            },
            Err(error) => Self {
                delivery: ottla_delivery_t::unknown(topic),
                opaque,
                error,
                code: error.code(),
                outcome: error.outcome(),
            },
        }
    }
}
