//! The descriptor by which a client tells threads and event loops that something waits.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla::{Error, ErrorKind};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// A descriptor that is readable once it was raised, until it is cleared.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> Result<Arc<Self>, Error> {
        match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(descriptor) => Ok(Arc::new(Self(descriptor))),
            Err(error) => {
                let text = "the system gives no descriptor for events";
                Err(Error::new(ErrorKind::Internal, text).with_source(io::Error::from(error)))
            }
        }
    }

    /// The number, for an event loop.
    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes it readable. One system call, so it is also for signal handlers.
    pub(crate) fn raise(&self) {
        // Fails only when the count is at its end, and then it is readable.
        let _full = rustix::io::write(&self.0, &1_u64.to_ne_bytes()).is_err();
    }

    /// Makes it unreadable.
    pub(crate) fn clear(&self) {
        // Fails only when it was not readable.
        let _clear = rustix::io::read(&self.0, &mut [0_u8; 8]).is_err();
    }

    /// Waits until it is readable or the time is over, or a signal came; look again after it.
    pub(crate) fn wait(&self, longest: Duration) {
        let longest = Timespec::try_from(longest).ok();
        let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
        let _interrupted = poll(&mut watched, longest.as_ref()).is_err();
    }
}

/// When a call's time is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    #[allow(clippy::disallowed_methods, reason = "a wait of this border's own: poll(2) on its fd")]
    fn now() -> Instant {
        Instant::now()
    }

    /// So long from now.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self(Self::now() + timeout)
    }

    /// How long it is until then.
    pub(crate) fn left(self) -> Duration {
        self.0.saturating_duration_since(Self::now())
    }
}
