//! Offsets that are committed by hand, what a group has committed, and texts that it keeps beside.
#![allow(unsafe_code, reason = "functions for C, and pointers that C gives")]

use std::ffi::{CString, c_int};
use std::ptr;

use ottla::{Commit, CommittedWithMetadata, OffsetAndMetadata, TopicPartition};

use crate::boundary::{array, guard, guard_give, guard_or, limit, text};
use crate::consumer::{ottla_consumer_t, partitions};
use crate::error::{c_text, ottla_error_t};
use crate::handle;
use crate::record::{ottla_topic_metadata_t, ottla_topic_offset_t, ottla_topic_partition_t};

/// What a group has committed for some partitions. Comes from ottla_consumer_committed.
#[derive(Debug)]
pub struct ottla_committed_t {
    rows: Vec<ottla_topic_metadata_t>,
    /// What the rows point to.
    texts: Vec<[CString; 2]>,
}

// SAFETY: the rows point to the texts, which are on the heap and do not change.
unsafe impl Send for ottla_committed_t {}
// SAFETY: the same.
unsafe impl Sync for ottla_committed_t {}

impl ottla_committed_t {
    fn new(found: Vec<CommittedWithMetadata>) -> Self {
        let mut made = Self { rows: Vec::new(), texts: Vec::new() };
        for (at, committed) in found {
            let committed = committed.unwrap_or_else(|| OffsetAndMetadata::new(-1));
            let [topic, metadata] = [c_text(&at.topic), c_text(&committed.metadata)];
            made.rows.push(ottla_topic_metadata_t {
                topic: topic.as_ptr(),
                partition: at.partition,
                leader_epoch: committed.leader_epoch.unwrap_or(-1),
                offset: committed.offset,
                metadata: metadata.as_ptr(),
            });
            made.texts.push([topic, metadata]);
        }
        made
    }
}

/// Looks up what the group has committed for these partitions, which need not be assigned. Waits for up
/// to timeout_ms; below 0 without limit.
///
/// partitions and its texts are borrowed for the call. Gives what there is, a row for each partition in
/// their order, to be freed by ottla_committed_free; or NULL, and an error through err, which may be
/// NULL: OTTLA_ERR_INVALID_GROUP without group.id. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_committed(
    consumer: *const ottla_consumer_t,
    partitions: *const ottla_topic_partition_t,
    partitions_len: usize,
    timeout_ms: i32,
    err: *mut *mut ottla_error_t,
) -> *mut ottla_committed_t {
    let body = || {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { handle::share(consumer, "consumer") }?;
        // SAFETY: the header asks for an array of that length with texts in it.
        let which = unsafe { self::partitions(partitions, partitions_len) }?;
        let core = consumer.consumer.get()?;
        let found = core.committed_with_metadata(&which, limit(timeout_ms))?;
        Ok(handle::give(ottla_committed_t::new(found)))
    };
    // SAFETY: the header asks for NULL or a place for an error.
    unsafe { guard_give(err, body) }
}

/// One of its rows. Borrowed, with its texts, until it is freed; NULL past the end, or if committed is
/// NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_committed_get(
    committed: *const ottla_committed_t,
    index: usize,
) -> *const ottla_topic_metadata_t {
    guard_or(ptr::null(), || {
        // SAFETY: the header asks for NULL or what is not freed.
        let committed = unsafe { committed.as_ref() };
        let row = committed.and_then(|committed| committed.rows.get(index));
        row.map_or(ptr::null(), ptr::from_ref)
    })
}

/// Ends it and its rows. NULL is legal. Any thread, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_committed_free(committed: *mut ottla_committed_t) {
    guard_or((), || {
        // SAFETY: the header asks for NULL or what is not freed.
        unsafe { handle::release(committed) }
    });
}

/// Commits for each partition the offset from which to read on. mode is a value of ottla_commit_t.
///
/// offsets and its texts are borrowed for the call. Gives NULL, or an error to be freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_commit_offsets(
    consumer: *const ottla_consumer_t,
    offsets: *const ottla_topic_offset_t,
    offsets_len: usize,
    mode: c_int,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { handle::borrow(consumer, "consumer") }?;
        // SAFETY: the header asks for an array of that length.
        let given = unsafe { array(offsets, offsets_len, "offsets") }?;
        let mut offsets = Vec::with_capacity(given.len());
        for (index, given) in given.iter().enumerate() {
            // SAFETY: the header asks for texts in it.
            let topic = unsafe { text(given.topic, format_args!("offsets[{index}].topic")) }?;
            offsets.push((TopicPartition::new(topic, given.partition), given.offset));
        }
        Ok(consumer.commit(Commit::Offsets(&offsets), mode)?)
    })
}

/// Commits for each partition the offset from which to read on, and what is kept beside it. mode is a
/// value of ottla_commit_t.
///
/// offsets and its texts are borrowed for the call. Gives NULL, or an error to be freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_commit_metadata(
    consumer: *const ottla_consumer_t,
    offsets: *const ottla_topic_metadata_t,
    offsets_len: usize,
    mode: c_int,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { handle::borrow(consumer, "consumer") }?;
        // SAFETY: the header asks for an array of that length.
        let given = unsafe { array(offsets, offsets_len, "offsets") }?;
        let mut offsets = Vec::with_capacity(given.len());
        for (index, given) in given.iter().enumerate() {
            // SAFETY: the header asks for texts in it.
            let topic = unsafe { text(given.topic, format_args!("offsets[{index}].topic")) }?;
            let mut place = OffsetAndMetadata::new(given.offset);
            place.leader_epoch = Some(given.leader_epoch).filter(|&epoch| epoch >= 0);
            if !given.metadata.is_null() {
                let name = format_args!("offsets[{index}].metadata");
                // SAFETY: the same.
                place = place.metadata(unsafe { text(given.metadata, name) }?);
            }
            offsets.push((TopicPartition::new(topic, given.partition), place));
        }
        Ok(consumer.commit(Commit::OffsetsAndMetadata(&offsets), mode)?)
    })
}
