//! Sending records, and hearing of what became of them.
#![allow(unsafe_code, reason = "functions for C, and pointers that C gives")]

use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::ptr;

use ottla::{Delivery, Error, ErrorKind, Header, Producer, Record};

use crate::boundary::{FOREVER, array, guard, guard_give, guard_or, limit, pointee, put, text};
use crate::config;
use crate::error::ottla_error_t;
use crate::error_code::ottla_error_code_t;
use crate::handle::{self, Held};
use crate::log;
use crate::record::{Called, ottla_delivery_t, ottla_record_t, ottla_result_t, with_core};
use crate::reports::{Reports, ottla_on_delivery_t};
use crate::sent::ottla_sent_t;

/// Sends records to topics. Made by ottla_producer_new. Any thread may use it.
#[derive(Debug)]
pub struct ottla_producer_t {
    producer: Held<Producer>,
    reports: Reports,
}

/// Makes a producer. Nothing is connected or resolved before the first record is sent.
///
/// options is name=value pairs separated by ; or new lines, by Kafka's names or our short ones;
/// bootstrap.servers is needed. Borrowed for the call.
///
/// Gives the producer, to be ended by ottla_producer_free; or NULL, and an error through err, which
/// may be NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_producer_new(
    options: *const c_char,
    err: *mut *mut ottla_error_t,
) -> *mut ottla_producer_t {
    let body = || {
        // SAFETY: the header asks for NULL or a text.
        let options = unsafe { config::options(options) }?;
        let producer = Held::new(Producer::new(&options)?)?;
        Ok(handle::give(ottla_producer_t { producer, reports: Reports::new()? }))
    };
    // SAFETY: the header asks for NULL or a place for an error.
    unsafe { guard_give(err, body) }
}

/// Sends a record without waiting for its delivery. If buffer.memory is used up it waits for room,
/// for max.block.ms at most.
///
/// record and all it points to is copied; it is borrowed for the call alone, also if that fails.
/// sent is NULL, or where a token is put to wait for the delivery by ottla_sent_wait, to be freed by
/// ottla_sent_free. A record without a token is reported to the function that
/// ottla_producer_on_delivery was given, if one is set when it is sent.
///
/// Gives NULL, or an error to be freed: then nothing was kept of the record, it is reported nowhere
/// else, and no token is put. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_producer_send(
    producer: *const ottla_producer_t,
    record: *const ottla_record_t,
    sent: *mut *mut ottla_sent_t,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a producer that is not freed, and for a record.
        let (producer, given) =
            unsafe { (handle::borrow(producer, "producer")?, pointee(record, "record")?) };
        let core = producer.producer.get()?;
        if sent.is_null() && !producer.reports.are_wanted() {
            // SAFETY: the header asks for a record whose pointers are good.
            return Ok(unsafe { with_core(given, |record| core.push(record)) }?);
        }
        // SAFETY: as above.
        let token = unsafe { with_core(given, |record| core.send(record)) }?;
        if sent.is_null() {
            producer.reports.watch(&token, given.opaque);
        } else {
            // SAFETY: not null, so the header asks for a place for a token.
            unsafe { put(sent, handle::give(ottla_sent_t::new(token)?)) };
        }
        Ok(())
    })
}

/// Sends a record and waits for its delivery, for timeout_ms at most; below 0 without limit.
///
/// record is borrowed for the call. delivery is NULL or is written; its topic is that of record.
///
/// Gives NULL if the record was delivered, or an error to be freed. OTTLA_ERR_TIMEOUT: it stays on
/// its way. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_producer_send_wait(
    producer: *const ottla_producer_t,
    record: *const ottla_record_t,
    timeout_ms: i32,
    delivery: *mut ottla_delivery_t,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a producer that is not freed, and for a record.
        let (producer, given) =
            unsafe { (handle::share(producer, "producer")?, pointee(record, "record")?) };
        // SAFETY: the header asks for NULL or a place for a delivery.
        unsafe { put(delivery, ottla_delivery_t::unknown(given.topic)) };
        let core = producer.producer.get()?;
        // SAFETY: the header asks for a record whose pointers are good.
        let token = unsafe { with_core(given, |record| core.send(record)) }?;
        let stored = token.wait(limit(timeout_ms))?;
        // SAFETY: the header asks for NULL or a place for a delivery.
        unsafe { put(delivery, ottla_delivery_t::new(given.topic, &stored)) };
        Ok(())
    })
}

/// Sends records in order; one that is refused does not keep the others back.
///
/// records has records_len records, borrowed for the call.
///
/// With results, which has room for as many, it waits until each was delivered or failed, and writes
/// one result for each record, in order; their topics are those of the records. They are reported
/// nowhere else. Without (NULL) it does not wait, and all are reported, also those that are refused,
/// to the function that ottla_producer_on_delivery was given, if one is set.
///
/// Gives NULL if all records were delivered (without results: accepted); else the error of the first
/// that was not, to be freed, which owns the errors in results. If it is about producer, records or
/// records_len, nothing was sent and no result is written; nor if it is OTTLA_ERR_INVALID_STATE, since
/// 10,000 refused records wait to be polled for. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_producer_send_many(
    producer: *const ottla_producer_t,
    records: *const ottla_record_t,
    records_len: usize,
    results: *mut ottla_result_t,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a producer that is not freed.
        let producer = unsafe { handle::share(producer, "producer") }?;
        // SAFETY: the header asks for an array of that length.
        let given = unsafe { array(records, records_len, "records") }?;
        producer.producer.get()?;
        let outcomes = if results.is_null() {
            producer.reports.check_refused()?;
            // SAFETY: the header asks for records whose pointers are good.
            unsafe { producer.send_many(given) }?
        } else {
            // SAFETY: the same.
            unsafe { producer.send_many_and_wait(given) }?
        };
        let first = outcomes.iter().find_map(|outcome| outcome.as_ref().err().cloned());
        let parts: Vec<Result<Delivery, ottla_error_t>> =
            outcomes.into_iter().map(|outcome| outcome.map_err(ottla_error_t::from)).collect();
        settle(given, parts, first, results)
    })
}

/// Writes the results, and hands their errors to the one that is returned.
fn settle(
    given: &[ottla_record_t],
    outcomes: Vec<Result<Delivery, ottla_error_t>>,
    first: Option<Error>,
    results: *mut ottla_result_t,
) -> Result<(), ottla_error_t> {
    let mut rows = Vec::new();
    let mut errors = Vec::new();
    if !results.is_null() {
        for (record, outcome) in given.iter().zip(outcomes) {
            let mut row = ottla_result_t::new(record.topic, record.opaque, &outcome);
            row.error = ptr::null();
            rows.push(row);
            errors.extend(outcome.err());
        }
    }
    // From here on the errors stay where they are.
    let errors: Box<[ottla_error_t]> = errors.into_boxed_slice();
    let failed = rows.iter_mut().filter(|row| row.code != ottla_error_code_t::OTTLA_OK);
    for (row, error) in failed.zip(&errors) {
        row.error = error;
    }
    for (index, row) in rows.into_iter().enumerate() {
        // SAFETY: not null, so the header asks for room for as many results as records.
        unsafe { results.add(index).write(row) };
    }
    first.map_or(Ok(()), |first| Err(ottla_error_t::of_many(first, errors)))
}

/// Records of C's for the core; of each, its index among those that the core gets, or an error.
struct Parsed<'a> {
    records: Vec<Record<'a>>,
    places: Vec<Result<usize, Error>>,
}

/// Headers of many records, one after the other, and where those of each record are.
///
/// # Safety
///
/// As of [`ottla_record_t::record`].
unsafe fn headers_of<'a>(
    given: &[ottla_record_t],
) -> (Vec<Header<'a>>, Vec<Result<Range<usize>, Error>>) {
    let mut headers = Vec::new();
    let mut ranges = Vec::with_capacity(given.len());
    for (index, record) in given.iter().enumerate() {
        let start = headers.len();
        // SAFETY: this function's contract.
        let pushed = unsafe { record.push_headers(Called::OneOf(index), &mut headers) };
        ranges.push(pushed.map(|()| start..headers.len()));
    }
    (headers, ranges)
}

/// # Safety
///
/// As of [`ottla_record_t::record`].
unsafe fn parse<'a>(
    given: &[ottla_record_t],
    headers: &'a [Header<'a>],
    ranges: Vec<Result<Range<usize>, Error>>,
) -> Parsed<'a> {
    let mut parsed = Parsed { records: Vec::with_capacity(given.len()), places: Vec::new() };
    for ((index, record), range) in given.iter().enumerate().zip(ranges) {
        // SAFETY: this function's contract.
        let record = unsafe { record.record(Called::OneOf(index)) };
        let record = record.and_then(|record| {
            let headers = headers.get(range?).ok_or_else(lost)?;
            Ok(Record { headers, ..record })
        });
        parsed.places.push(record.map(|record| {
            parsed.records.push(record);
            parsed.records.len() - 1
        }));
    }
    parsed
}

/// What a call gives for a record without a result, which cannot be.
fn lost() -> Error {
    Error::new(ErrorKind::Internal, "a record was lost on its way to the core")
}

impl ottla_producer_t {
    /// Sends, and waits for what became of each.
    ///
    /// # Safety
    ///
    /// As of [`ottla_record_t::record`].
    unsafe fn send_many_and_wait(
        &self,
        given: &[ottla_record_t],
    ) -> Result<Vec<Result<Delivery, Error>>, Error> {
        // SAFETY: this function's contract.
        let (headers, ranges) = unsafe { headers_of(given) };
        // SAFETY: this function's contract.
        let Parsed { records, places } = unsafe { parse(given, &headers, ranges) };
        // Each ends in its delivery timeout, so this ends.
        let sent = self.producer.get()?.send_many(&records).wait(FOREVER);
        let each = |place: Result<usize, Error>| {
            place.and_then(|place| sent.get(place).cloned().unwrap_or_else(|| Err(lost())))
        };
        Ok(places.into_iter().map(each).collect())
    }

    /// Sends, and has the records reported; the errors of those that were refused.
    ///
    /// # Safety
    ///
    /// As of [`ottla_record_t::record`].
    unsafe fn send_many(
        &self,
        given: &[ottla_record_t],
    ) -> Result<Vec<Result<Delivery, Error>>, Error> {
        // SAFETY: this function's contract.
        let (headers, ranges) = unsafe { headers_of(given) };
        // SAFETY: this function's contract.
        let Parsed { records, places } = unsafe { parse(given, &headers, ranges) };
        let sent = self.producer.get()?.send_many(&records);
        let wanted = self.reports.are_wanted();
        let mut refused = Vec::new();
        for (record, place) in given.iter().zip(places) {
            let token = place.and_then(|place| sent.sent(place).unwrap_or_else(|| Err(lost())));
            match token {
                Ok(token) if wanted => self.reports.watch(&token, record.opaque),
                Ok(_) => {}
                Err(error) => {
                    if wanted {
                        // SAFETY: this function's contract.
                        // One that is no text is what the error is about.
                        let topic = unsafe { text(record.topic, "topic") }.unwrap_or_default();
                        self.reports.refuse(topic, record.opaque, error.clone());
                    }
                    refused.push(Err(error));
                }
            }
        }
        Ok(refused)
    }
}

/// Has a function called with what becomes of the records that are sent from now on, by
/// ottla_producer_poll and on its thread; NULL: has none called, and drops what waits.
///
/// A record stays counted in buffer.memory until the function has been told of it: a program that sends
/// and does not poll finds the buffer full. Its sends then wait for max.block.ms, and give
/// OTTLA_ERR_BUFFER_FULL; polls make room.
///
/// user is given to each call, and must be good until this is called again or the producer freed. A
/// call that another thread is in when this returns may still use the former one.
/// Gives NULL, or an error to be freed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_producer_on_delivery(
    producer: *const ottla_producer_t,
    callback: ottla_on_delivery_t,
    user: *mut c_void,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a producer that is not freed.
        let producer = unsafe { handle::borrow(producer, "producer") }?;
        producer.producer.get()?;
        producer.reports.set(callback, user);
        Ok(())
    })
}

/// Calls the function that ottla_producer_on_delivery was given with all results that are known, on
/// this thread. If there is none it waits for one, for timeout_ms at most; below 0 without limit.
///
/// Gives how many records that were: 0 if the time is over, if the producer is closed and all is
/// told, if another poll runs, or if producer is NULL. Records are delivered whether it is called or
/// not, and leave buffer.memory when they are told. One thread at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_producer_poll(
    producer: *const ottla_producer_t,
    timeout_ms: i32,
) -> usize {
    guard_or(0, || {
        // SAFETY: the header asks for NULL or a producer that is not freed. Shared, since the
        // callback may free it.
        let Ok(producer) = (unsafe { handle::share(producer, "producer") }) else { return 0 };
        match producer.producer.get() {
            Ok(_) => {
                log::hand_on_now();
                producer.reports.run(limit(timeout_ms))
            }
            Err(_) => 0,
        }
    })
}

/// A descriptor that is readable while results wait for ottla_producer_poll, and once the producer
/// is closed. It may be readable once more than needed.
///
/// The producer's: watch it, but do not read or close it. -1 if producer is NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_producer_fd(producer: *const ottla_producer_t) -> c_int {
    guard_or(-1, || {
        // SAFETY: the header asks for NULL or a producer that is not freed.
        let producer = unsafe { handle::borrow(producer, "producer") };
        producer.map_or(-1, |producer| producer.reports.descriptor())
    })
}

/// Sends all records at once, and waits until each was delivered or failed, for timeout_ms at most;
/// below 0 without limit. It calls no function of yours.
///
/// Gives NULL, or an error to be freed: OTTLA_ERR_TIMEOUT, or that of the first record that failed
/// since the last flush and of which nothing else tells. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_producer_flush(
    producer: *const ottla_producer_t,
    timeout_ms: i32,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a producer that is not freed.
        let producer = unsafe { handle::share(producer, "producer") }?;
        Ok(producer.producer.get()?.flush(limit(timeout_ms))?)
    })
}

/// Refuses further records, delivers those it has, and ends, within timeout_ms; below 0 without
/// limit. A second call does nothing. Results that wait may still be polled for; a send gives
/// OTTLA_ERR_CLOSED from now on.
///
/// Gives NULL, or an error to be freed that tells what was not delivered, if nothing else does. Any
/// thread, also in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_producer_close(
    producer: *const ottla_producer_t,
    timeout_ms: i32,
) -> *mut ottla_error_t {
    guard(|| {
        // SAFETY: the header asks for NULL or a producer that is not freed.
        let producer = unsafe { handle::share(producer, "producer") }?;
        let closed = producer.producer.get()?.close(limit(timeout_ms));
        producer.reports.close();
        Ok(closed?)
    })
}

/// Ends a producer; this never waits. Records that one which was not closed still has are given up.
/// NULL is legal. Any thread, also in a callback, once, and when no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_producer_free(producer: *mut ottla_producer_t) {
    guard_or((), || {
        // SAFETY: the header asks for NULL or a producer that is not freed.
        unsafe { handle::release(producer) }
    });
}
