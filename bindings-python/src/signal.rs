//! The descriptor by which a client wakes a thread or an event loop, once for all that waits there.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// A descriptor that is readable once it was raised, until it is cleared.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// The number, for an event loop.
    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes it readable.
    pub(crate) fn raise(&self) {
        // Fails only when the count is at its end, and then it is readable.
        let _full = rustix::io::write(&self.0, &1_u64.to_ne_bytes()).is_err();
    }

    /// Makes it unreadable; whether it was raised.
    pub(crate) fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok()
    }

    /// Waits until it is raised, and clears it; false if the time is over or a signal came.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        let longest = Timespec::try_from(longest).ok();
        let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
        // An interrupted wait is told as one whose time is over: the caller looks at signals then.
        poll(&mut watched, longest.as_ref()).is_ok_and(|ready| ready > 0) && self.clear()
    }
}
