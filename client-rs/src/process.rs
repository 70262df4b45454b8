//! Which process something was made in: threads and locks do not survive a fork.
#![allow(unsafe_code, reason = "the system tells of a fork by calling a C function")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::error::{Error, ErrorKind};

/// How often this process, or a parent of it, was made by a fork since [`Process::watch`].
static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCHED: AtomicBool = AtomicBool::new(false);

/// The process in which something was made. To ask for it costs one load of a word in memory.
///
/// For whoever keeps clients in handles of their own: all that a client has is dead in a child of
/// the process that made it, and its locks may be held there by threads that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// Has the system tell of forks from now on, as each new client does; a second time it does
    /// nothing. `Internal` if the system refuses.
    pub fn watch() -> Result<(), Error> {
        if WATCHED.load(Ordering::Acquire) {
            return Ok(());
        }
        // No lock is held meanwhile, which a fork at this moment would leave locked in the child.
        // Two threads may both come here, and each fork counts twice then: it still counts.
        // SAFETY: `forked` only counts up an atomic, which is legal in a child of a fork.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        if failed != 0 {
            let text = "the system refuses to tell of forks";
            let cause = std::io::Error::from_raw_os_error(failed);
            return Err(Error::new(ErrorKind::Internal, text).with_source(cause));
        }
        WATCHED.store(true, Ordering::Release);
        Ok(())
    }

    /// One that does not run here.
    #[cfg(test)]
    pub(crate) const fn another() -> Self {
        Self(u32::MAX)
    }

    /// The one that runs now. Forks before [`Process::watch`] are not told apart.
    #[inline]
    pub fn current() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// How many forks have led to it.
    pub(crate) fn number(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Whether it runs now: false in a child that it forked. Also for signal handlers.
    #[inline]
    pub fn is_current(self) -> bool {
        self == Self::current()
    }

    /// `Forked` in a child that it forked.
    #[inline]
    pub fn check(self) -> Result<(), Error> {
        if self.is_current() { Ok(()) } else { Err(forked_error()) }
    }
}

unsafe extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[cold]
fn forked_error() -> Error {
    let text = "this was made before the fork, and belongs to the parent process";
    Error::new(ErrorKind::Forked, text).with_hint("make a new one in the child")
}
