//! Handles: what C holds of our objects, and what becomes of them in a forked process.
#![allow(unsafe_code, reason = "a handle is a pointer that C keeps and gives back")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use ottla::{Error, Process};

use crate::boundary::refused;

/// A new handle: one count of what is behind it, which children of it may share.
pub(crate) fn give<T: Send + Sync + 'static>(value: T) -> *mut T {
    Arc::into_raw(Arc::new(value)).cast_mut()
}

/// What is behind a handle, for one call.
///
/// # Safety
///
/// `handle` is null, or came from [`give`] and is not released for `'a`.
pub(crate) unsafe fn borrow<'a, T>(handle: *const T, name: &str) -> Result<&'a T, Error> {
    // SAFETY: null is sorted out; otherwise the count that the handle is keeps the value alive.
    unsafe { handle.as_ref() }.ok_or_else(|| refused(name, "is NULL"))
}

/// The same, kept alive also if the handle is released meanwhile.
///
/// # Safety
///
/// `handle` is null, or came from [`give`] and is not released yet.
pub(crate) unsafe fn share<T>(handle: *const T, name: &str) -> Result<Arc<T>, Error> {
    if handle.is_null() {
        return Err(refused(name, "is NULL"));
    }
    // SAFETY: it came from `Arc::into_raw`, and its own count is still there.
    unsafe { Arc::increment_strong_count(handle) };
    // SAFETY: this takes the count that was just added.
    Ok(unsafe { Arc::from_raw(handle) })
}

/// Ends a handle. Null is none.
///
/// # Safety
///
/// `handle` is null, or came from [`give`]; it is not used again.
pub(crate) unsafe fn release<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: it came from `Arc::into_raw`, and nobody takes its count a second time.
        drop(unsafe { Arc::from_raw(handle.cast_const()) });
    }
}

/// Something of the core's, which only the process that made it may use.
///
/// Threads do not survive a fork, so in a child it is dead; it is not dropped there, since its locks
/// may be held by threads that are gone.
pub(crate) struct Held<T> {
    inner: ManuallyDrop<T>,
    process: Process,
}

impl<T> Held<T> {
    /// Of this process. An error if the system cannot tell forks.
    pub(crate) fn new(inner: T) -> Result<Self, Error> {
        Process::watch()?;
        Ok(Self { inner: ManuallyDrop::new(inner), process: Process::current() })
    }

    /// Whether this process made it. An atomic load, so it is also for signal handlers.
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_current()
    }

    /// What is held; `Forked` in a child of the process that made it.
    pub(crate) fn get(&self) -> Result<&T, Error> {
        self.process.check().map(|()| &*self.inner)
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: nothing uses it after its holder's drop.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Ok(inner) => inner.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}
