//! Handles: what C holds of our objects, and what becomes of them in a forked process.
#![allow(unsafe_code, reason = "a handle is a pointer that C keeps and gives back")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use ottla::{Error, ErrorKind};

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

/// How often this process, or a parent of it, was made by a fork since the first client.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// What the system said to being asked to tell forks; 0 is well.
static WATCHED: LazyLock<i32> = LazyLock::new(|| {
    // SAFETY: `forked` only counts up an atomic, which is legal in a child of a fork.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) }
});

unsafe extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Something of the core's, which only the process that made it may use.
///
/// Threads do not survive a fork, so in a child it is dead; it is not dropped there, since its locks
/// may be held by threads that are gone.
pub(crate) struct Held<T> {
    inner: ManuallyDrop<T>,
    process: u32,
}

impl<T> Held<T> {
    /// Of this process. An error if the system cannot tell forks.
    pub(crate) fn new(inner: T) -> Result<Self, Error> {
        match *WATCHED {
            0 => {}
            code => {
                let cause = std::io::Error::from_raw_os_error(code);
                let text = "the system refuses to tell of forks";
                return Err(Error::new(ErrorKind::Internal, text).with_source(cause));
            }
        }
        let process = FORKS.load(Ordering::Relaxed);
        Ok(Self { inner: ManuallyDrop::new(inner), process })
    }

    /// Whether this process made it. An atomic load, so it is also for signal handlers.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == FORKS.load(Ordering::Relaxed)
    }

    /// What is held; `Forked` in a child of the process that made it.
    pub(crate) fn get(&self) -> Result<&T, Error> {
        if self.is_ours() {
            return Ok(&self.inner);
        }
        let text = "this was made before the fork; make a new one in the child";
        Err(Error::new(ErrorKind::Forked, text))
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
