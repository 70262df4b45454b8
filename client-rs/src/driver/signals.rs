//! Signals, kept away from the clients' threads.
#![allow(unsafe_code, reason = "signal masks have no safe interface")]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// What a thread's own fault raises, and what a profiler samples with.
///
/// Blocked, the faults would end the process without a trace, and a profiler would see nothing.
const LET_THROUGH: [libc::c_int; 8] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
    libc::SIGPROF,
];

/// Blocks signals on this thread until dropped; threads started meanwhile keep them blocked.
///
/// A signal then always runs its handler on a thread of the program that uses the client.
#[derive(Debug)]
pub(super) struct Blocked {
    before: libc::sigset_t,
    /// The mask belongs to a thread.
    _stays: PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks all signals but those that a thread's own fault raises.
    pub(super) fn all() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `set` is valid for writes, and sigfillset initialises it whole.
        let mut set: libc::sigset_t = unsafe {
            libc::sigfillset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in LET_THROUGH {
            // SAFETY: `set` was initialised above, and the numbers are signals of this system.
            unsafe { libc::sigdelset(&raw mut set, signal) };
        }
        let mut before = MaybeUninit::uninit();
        // SAFETY: both pointers are valid, and `before` is written when the call succeeds.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: the call succeeded, so it wrote the mask from before.
        let before = unsafe { before.assume_init() };
        Ok(Self { before, _stays: PhantomData })
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
