//! Where partitions begin and end, which offset a time stands for, how far reading is behind.
#![allow(unsafe_code, reason = "functions for C, and pointers that C gives")]

use std::ffi::c_char;
use std::time::Duration;

use ottla::{Consumer, Error, OffsetAndTimestamp, TopicPartition};

use crate::boundary::{array, guard, limit, put, refused, text};
use crate::consumer::{ottla_consumer_t, partitions};
use crate::error::ottla_error_t;
use crate::handle;
use crate::record::{ottla_offset_timestamp_t, ottla_topic_partition_t, ottla_topic_timestamp_t};

/// A call of the core that finds an offset for each partition.
type LookUp =
    fn(&Consumer, &[TopicPartition], Duration) -> Result<Vec<(TopicPartition, i64)>, Error>;

/// Looks offsets up, and writes them in the order of their partitions.
///
/// # Safety
///
/// The consumer is null, or not freed while this runs; `which` and `offsets` are null, or have room
/// for `len`, and the topics are null or texts.
unsafe fn look_up(
    consumer: *const ottla_consumer_t,
    which: *const ottla_topic_partition_t,
    len: usize,
    offsets: *mut i64,
    timeout_ms: i32,
    call: LookUp,
) -> Result<(), ottla_error_t> {
    // SAFETY: this function's contract.
    let consumer = unsafe { handle::share(consumer, "consumer") }?;
    // SAFETY: the same.
    let which = unsafe { partitions(which, len) }?;
    if offsets.is_null() && len > 0 {
        return Err(refused("offsets", "is NULL").into());
    }
    let found = call(consumer.consumer.get()?, &which, limit(timeout_ms))?;
    for (index, (_, offset)) in found.into_iter().take(len).enumerate() {
        // SAFETY: not null, so there is room for `len`, and the index is below that.
        unsafe { offsets.add(index).write(offset) };
    }
    Ok(())
}

/// Writes the offset of the first record of each of these partitions; that of the next one where there
/// is none. They need not be assigned.
///
/// partitions and its texts are borrowed for the call; offsets has room for so many, and is written if
/// there is no error. Faults that may pass, such as a topic that does not exist, are tried again for
/// timeout_ms, below 0 without limit; OTTLA_ERR_TIMEOUT then names the last. Gives NULL, or an error to
/// be freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_beginning_offsets(
    consumer: *const ottla_consumer_t,
    partitions: *const ottla_topic_partition_t,
    partitions_len: usize,
    offsets: *mut i64,
    timeout_ms: i32,
) -> *mut ottla_error_t {
    let call = Consumer::beginning_offsets;
    // SAFETY: the header asks for what this needs.
    guard(|| unsafe { look_up(consumer, partitions, partitions_len, offsets, timeout_ms, call) })
}

/// Writes the offset behind the last record of each of these partitions: that of the next one to be
/// written. Else as ottla_consumer_beginning_offsets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_end_offsets(
    consumer: *const ottla_consumer_t,
    partitions: *const ottla_topic_partition_t,
    partitions_len: usize,
    offsets: *mut i64,
    timeout_ms: i32,
) -> *mut ottla_error_t {
    let call = Consumer::end_offsets;
    // SAFETY: the header asks for what this needs.
    guard(|| unsafe { look_up(consumer, partitions, partitions_len, offsets, timeout_ms, call) })
}

/// Writes the first record of each of these partitions whose time is the one given or later.
///
/// times and its texts are borrowed for the call; found has room for so many, and is written if there
/// is no error. OTTLA_ERR_INVALID_ARGUMENT for a time before the epoch, and for two times of one
/// partition. Else as ottla_consumer_beginning_offsets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_offsets_for_times(
    consumer: *const ottla_consumer_t,
    times: *const ottla_topic_timestamp_t,
    times_len: usize,
    found: *mut ottla_offset_timestamp_t,
    timeout_ms: i32,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed.
        let consumer = unsafe { handle::share(consumer, "consumer") }?;
        // SAFETY: the header asks for an array of that length.
        let given = unsafe { array(times, times_len, "times") }?;
        let mut times = Vec::with_capacity(given.len());
        for (index, given) in given.iter().enumerate() {
            // SAFETY: the header asks for texts in it.
            let topic = unsafe { text(given.topic, format_args!("times[{index}].topic")) }?;
            times.push((TopicPartition::new(topic, given.partition), given.timestamp));
        }
        if found.is_null() && times_len > 0 {
            return Err(refused("found", "is NULL").into());
        }
        let rows = consumer.consumer.get()?.offsets_for_times(&times, limit(timeout_ms))?;
        for (index, (_, row)) in rows.into_iter().take(times_len).enumerate() {
            // SAFETY: not null, so the header asks for room for so many.
            unsafe { found.add(index).write(ottla_offset_timestamp_t::of(row)) };
        }
        Ok(())
    })
}

impl ottla_offset_timestamp_t {
    fn of(found: Option<OffsetAndTimestamp>) -> Self {
        found.map_or(Self { offset: -1, timestamp: -1, leader_epoch: -1 }, |found| Self {
            offset: found.offset,
            timestamp: found.timestamp,
            leader_epoch: found.leader_epoch,
        })
    }
}

/// Goes on with a partition so many records before its end, or at its beginning if it has fewer.
/// Compaction and transactions leave gaps: then so many offsets.
///
/// topic is borrowed for the call; offset is that at which reading goes on, and may be NULL. Gives
/// NULL, or an error to be freed: OTTLA_ERR_NOT_ASSIGNED if the partition is not this consumer's. Else
/// as ottla_consumer_beginning_offsets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_seek_before_end(
    consumer: *const ottla_consumer_t,
    topic: *const c_char,
    partition: i32,
    records: u64,
    timeout_ms: i32,
    offset: *mut i64,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed, and for a text.
        let (consumer, topic) =
            unsafe { (handle::share(consumer, "consumer")?, text(topic, "topic")?) };
        let partition = TopicPartition::new(topic, partition);
        let core = consumer.consumer.get()?;
        let found = core.seek_before_end(&partition, records, limit(timeout_ms))?;
        // SAFETY: the header asks for NULL or a place for an offset.
        unsafe { put(offset, found) };
        Ok(())
    })
}

/// Writes how many offsets lie between the next record to be given of a partition and its end, as the
/// last answers told; -1 while that is not known, or if the partition is not assigned.
///
/// topic is borrowed for the call; lag is written. Gives NULL, or an error to be freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_consumer_current_lag(
    consumer: *const ottla_consumer_t,
    topic: *const c_char,
    partition: i32,
    lag: *mut i64,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a consumer that is not freed, and for a text.
        let (consumer, topic) =
            unsafe { (handle::borrow(consumer, "consumer")?, text(topic, "topic")?) };
        if lag.is_null() {
            return Err(refused("lag", "is NULL").into());
        }
        let found = consumer.consumer.get()?.current_lag(&TopicPartition::new(topic, partition));
        // SAFETY: not null, so the header asks for a place for a number.
        unsafe { lag.write(found.unwrap_or(-1)) };
        Ok(())
    })
}
