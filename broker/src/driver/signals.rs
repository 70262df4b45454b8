//! Signals: kept away from the broker's threads, and awaited by the program's own.
#![allow(unsafe_code, reason = "signal masks have no safe interface")]

use std::io;
use std::mem::MaybeUninit;

/// Blocks signals on this thread until dropped; threads started meanwhile keep them blocked.
///
/// A signal then always runs its handler on a thread of the program that embeds the broker.
#[derive(Debug)]
pub(crate) struct Blocked {
    before: libc::sigset_t,
    /// The mask belongs to a thread.
    _stays: std::marker::PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks all signals but those that a thread's own fault raises.
    pub(crate) fn all() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `set` is valid for writes, and sigfillset initialises it whole.
        let mut set: libc::sigset_t = unsafe {
            libc::sigfillset(set.as_mut_ptr());
            set.assume_init()
        };
        // Blocked, these would end the process without a trace, or a profiler would see nothing.
        for fault in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGABRT,
            libc::SIGSYS,
            libc::SIGPROF,
        ] {
            // SAFETY: `set` was initialised above, and the numbers are signals of this system.
            unsafe { libc::sigdelset(&raw mut set, fault) };
        }
        Self::set(libc::SIG_BLOCK, &set)
    }

    fn set(how: libc::c_int, set: &libc::sigset_t) -> io::Result<Self> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both pointers are valid, and `before` is written when the call succeeds.
        let failed = unsafe { libc::pthread_sigmask(how, set, before.as_mut_ptr()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: the call succeeded, so it wrote the mask from before.
        let before = unsafe { before.assume_init() };
        Ok(Self { before, _stays: std::marker::PhantomData })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // Setting a mask that the system gave out cannot fail.
        // SAFETY: `before` is a whole mask, and a null pointer asks for no old one.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

/// SIGTERM and SIGINT, kept for [`StopSignals::wait`].
#[derive(Debug)]
pub struct StopSignals {
    set: libc::sigset_t,
    blocked: Blocked,
}

impl StopSignals {
    /// From now on they wait to be asked for, on this thread and on those that it starts.
    pub fn hold() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `set` is valid for writes, and sigemptyset initialises it whole.
        let mut set: libc::sigset_t = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: `set` was initialised above, and the numbers are signals of this system.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        let blocked = Blocked::set(libc::SIG_BLOCK, &set)?;
        Ok(Self { set, blocked })
    }

    /// Waits for one of them. After it, another one ends the process.
    pub fn wait(self) -> io::Result<()> {
        let mut signal: libc::c_int = 0;
        // SAFETY: both pointers are valid, and the set's signals are blocked on this thread.
        let failed = unsafe { libc::sigwait(&raw const self.set, &raw mut signal) };
        drop(self.blocked);
        if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
    }
}
