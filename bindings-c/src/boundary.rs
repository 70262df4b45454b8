//! What every call from C passes: null, length and text checks, and no panic that gets out.
#![allow(unsafe_code, reason = "pointers that C gives are followed here")]

use std::ffi::{CStr, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::time::Duration;

use ottla::{Error, ErrorKind};

use crate::error::ottla_error_t;
use crate::handle;

/// As long as it takes. Not the largest time there is: clocks are added to it.
pub(crate) const FOREVER: Duration = Duration::from_hours(10 * 365 * 24);

/// Runs the body of a function that returns its error, or null.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), ottla_error_t>) -> *mut ottla_error_t {
    match caught(body) {
        Ok(()) => ptr::null_mut(),
        Err(error) => handle::give(error),
    }
}

/// Runs the body of a function that returns what it makes, and its error through `err`.
///
/// # Safety
///
/// `err` is null, or points to where a pointer may be written.
pub(crate) unsafe fn guard_give<T>(
    err: *mut *mut ottla_error_t,
    body: impl FnOnce() -> Result<*mut T, ottla_error_t>,
) -> *mut T {
    let (given, error) = match caught(body) {
        Ok(given) => (given, None),
        Err(error) => (ptr::null_mut(), Some(error)),
    };
    if !err.is_null() {
        let error = error.map_or(ptr::null_mut(), handle::give);
        // SAFETY: not null, so by this function's contract it may be written to.
        unsafe { err.write(error) };
    }
    given
}

/// Runs the body of a function that has no way to tell an error.
pub(crate) fn guard_or<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

fn caught<T>(body: impl FnOnce() -> Result<T, ottla_error_t>) -> Result<T, ottla_error_t> {
    // What a panic leaves behind is the core's, which treats it as failed.
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|payload| Err(Error::from_panic(&*payload).into()))
}

/// The error of an argument that makes no sense.
pub(crate) fn refused(name: impl Display, why: impl Display) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("`{name}` {why}"))
}

/// A text that C gives.
///
/// # Safety
///
/// `text` is null, or ends with a zero byte and stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: impl Display) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(refused(name, "is NULL"));
    }
    // SAFETY: not null, so by this function's contract it is a text that lives for `'a`.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| {
        refused(name, format_args!("is not UTF-8 from its byte {} on", error.valid_up_to()))
    })
}

/// What an argument points to.
///
/// # Safety
///
/// `pointer` is null, or points to a `T` that nobody writes to for `'a`.
pub(crate) unsafe fn pointee<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Error> {
    // SAFETY: null is sorted out; otherwise this function's contract is that of `as_ref`.
    unsafe { pointer.as_ref() }.ok_or_else(|| refused(name, "is NULL"))
}

/// An array that C gives; null is an empty one.
///
/// # Safety
///
/// `first` is null, or points to `len` values that nobody writes to for `'a`.
pub(crate) unsafe fn array<'a, T>(
    first: *const T,
    len: usize,
    name: impl Display,
) -> Result<&'a [T], Error> {
    if len == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(refused(name, format_args!("is NULL, but its length is {len}")));
    }
    if !fits(len, size_of::<T>()) {
        return Err(refused(name, format_args!("has the length {len}, which no array can have")));
    }
    // SAFETY: not null and of a possible size; the rest is this function's contract.
    Ok(unsafe { slice::from_raw_parts(first, len) })
}

/// Whether memory can hold so many of that size.
pub(crate) const fn fits(count: usize, size: usize) -> bool {
    match count.checked_mul(size) {
        Some(bytes) => bytes <= isize::MAX.unsigned_abs(),
        None => false,
    }
}

/// Writes a value through a pointer of C's, if that wants one.
///
/// # Safety
///
/// `place` is null, or points to where a `T` may be written.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, so by this function's contract it may be written to.
        unsafe { place.write(value) };
    }
}

/// A time in milliseconds as C gives it; below 0 it is without limit.
pub(crate) fn limit(timeout_ms: i32) -> Duration {
    u64::try_from(timeout_ms).map_or(FOREVER, Duration::from_millis)
}
