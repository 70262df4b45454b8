//! Batches of records that were read.
#![allow(unsafe_code, reason = "functions for C, and pointers that C gives")]

use std::ffi::{CString, c_char};
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

use ottla::Batch;

use crate::boundary::guard_or;
use crate::error::c_text;
use crate::handle;
use crate::record::{ottla_bytes_t, ottla_header_view_t, ottla_record_view_t};

/// Records of one partition that came in one fetch, in the order of their offsets. Comes from
/// ottla_consumer_poll.
///
/// It never changes, so any thread may read it, also after its consumer is freed.
pub struct ottla_batch_t {
    batch: Batch,
    topic: CString,
    /// All records as C sees them, made when the first one is asked for.
    views: OnceLock<Box<[ottla_record_view_t]>>,
}

impl ottla_batch_t {
    pub(crate) fn new(batch: Batch) -> Self {
        let topic = c_text(batch.topic());
        Self { batch, topic, views: OnceLock::new() }
    }

    pub(crate) const fn core(&self) -> &Batch {
        &self.batch
    }

    fn views(&self) -> &[ottla_record_view_t] {
        self.views.get_or_init(|| {
            let each = self.batch.records().map(|record| ottla_record_view_t {
                key: ottla_bytes_t::of(record.key),
                value: ottla_bytes_t::of(record.value),
                offset: record.offset,
                timestamp: record.timestamp,
                headers_len: record.headers.len(),
            });
            each.collect()
        })
    }
}

impl fmt::Debug for ottla_batch_t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.batch.fmt(f)
    }
}

/// How many records it has: one at least; 0 if batch is NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_batch_len(batch: *const ottla_batch_t) -> usize {
    guard_or(0, || {
        // SAFETY: the header asks for NULL or a batch that is not freed.
        unsafe { batch.as_ref() }.map_or(0, |batch| batch.batch.len())
    })
}

/// One of its records. Borrowed, with all it points to, until the batch is freed; NULL past the end,
/// or if batch is NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_batch_get(
    batch: *const ottla_batch_t,
    index: usize,
) -> *const ottla_record_view_t {
    guard_or(ptr::null(), || {
        // SAFETY: the header asks for NULL or a batch that is not freed.
        let batch = unsafe { batch.as_ref() };
        let view = batch.and_then(|batch| batch.views().get(index));
        view.map_or(ptr::null(), ptr::from_ref)
    })
}

/// Writes headers of one of its records, in order, as many as there is room for.
///
/// headers has room for so many and is written; it may be NULL if room is 0. What they point to is
/// borrowed until the batch is freed. Gives how many the record has, which may be more than the
/// room; 0 past the end, or if batch is NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_batch_headers(
    batch: *const ottla_batch_t,
    index: usize,
    headers: *mut ottla_header_view_t,
    room: usize,
) -> usize {
    guard_or(0, || {
        // SAFETY: the header asks for NULL or a batch that is not freed.
        let batch = unsafe { batch.as_ref() };
        let Some(record) = batch.and_then(|batch| batch.batch.get(index)) else { return 0 };
        let room = if headers.is_null() { 0 } else { room };
        for (place, (key, value)) in record.headers.iter().take(room).enumerate() {
            let (key, value) = (ottla_bytes_t::of(Some(key)), ottla_bytes_t::of(value));
            // SAFETY: the header asks for room for so many, and the place is below that.
            unsafe { headers.add(place).write(ottla_header_view_t { key, value }) };
        }
        record.headers.len()
    })
}

/// Its topic. Borrowed until the batch is freed; NULL if batch is. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_batch_topic(batch: *const ottla_batch_t) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: the header asks for NULL or a batch that is not freed.
        unsafe { batch.as_ref() }.map_or(ptr::null(), |batch| batch.topic.as_ptr())
    })
}

/// Its partition; -1 if batch is NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_batch_partition(batch: *const ottla_batch_t) -> i32 {
    guard_or(-1, || {
        // SAFETY: the header asks for NULL or a batch that is not freed.
        unsafe { batch.as_ref() }.map_or(-1, |batch| batch.batch.partition())
    })
}

/// Ends a batch, its records and all they point to. It is not committed by that. NULL is legal. Any
/// thread, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_batch_free(batch: *mut ottla_batch_t) {
    guard_or((), || {
        // SAFETY: the header asks for NULL or a batch that is not freed.
        unsafe { handle::release(batch) }
    });
}
