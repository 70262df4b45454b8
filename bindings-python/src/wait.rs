//! How a Python thread sleeps until the core has something for it.
//!
//! The interpreter is released while it sleeps. Python's main thread, the only one that runs signal
//! handlers, sleeps in `poll` on a descriptor of its own, so that a signal ends the sleep at once;
//! all others are parked.

use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ottla::{ErrorKind, Process};
use pyo3::intern;
use pyo3::prelude::*;

use crate::error::{self, OrRaise as _};
use crate::signal::EventFd;

/// A signal that comes between the look at it and the sleep would be seen only after the sleep.
const SLICE: Duration = Duration::from_secs(1);

/// Where one thread sleeps.
enum Sleeper {
    /// Python's main thread.
    Main(EventFd),
    /// Any other one.
    Other { thread: Thread, woken: AtomicBool },
}

thread_local! {
    /// The thread's sleeper, and the process it was made in.
    static SLEEPER: RefCell<Option<(Process, Arc<Sleeper>)>> = const { RefCell::new(None) };
}

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slept {
    Woken,
    Over,
}

impl Sleeper {
    fn current(py: Python<'_>) -> PyResult<Arc<Self>> {
        let process = Process::current();
        let known = SLEEPER.with_borrow(|known| {
            known.as_ref().filter(|(made_in, _)| *made_in == process).map(|(_, own)| own.clone())
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Arc::new(Self::new(py)?);
        SLEEPER.with_borrow_mut(|known| *known = Some((process, made.clone())));
        Ok(made)
    }

    fn new(py: Python<'_>) -> PyResult<Self> {
        let threading = py.import(intern!(py, "threading"))?;
        let main = threading.call_method0(intern!(py, "main_thread"))?;
        let main = main.getattr(intern!(py, "ident"))?;
        if main.eq(threading.call_method0(intern!(py, "get_ident"))?)? {
            return Ok(Self::Main(EventFd::new()?));
        }
        Ok(Self::Other { thread: thread::current(), woken: AtomicBool::new(false) })
    }

    /// Sleeps at most so long.
    fn sleep(&self, longest: Duration) -> Slept {
        match self {
            Self::Main(fd) => {
                if fd.wait(longest.min(SLICE)) {
                    Slept::Woken
                } else {
                    Slept::Over
                }
            }
            Self::Other { woken, .. } => {
                if !woken.swap(false, Ordering::Acquire) {
                    thread::park_timeout(longest);
                    if !woken.swap(false, Ordering::Acquire) {
                        return Slept::Over;
                    }
                }
                Slept::Woken
            }
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match &**self {
            Self::Main(fd) => fd.raise(),
            Self::Other { thread, woken } => {
                woken.store(true, Ordering::Release);
                thread.unpark();
            }
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the deadline of a call that blocks its thread")]
fn now() -> Instant {
    Instant::now()
}

/// Runs a future of the core to its end; `None` if the time was over before.
///
/// The interpreter is released from the start, since a future may work when it is polled. A signal
/// handler that raises ends the wait with what it raised.
pub(crate) fn block_on<F>(
    py: Python<'_>,
    future: F,
    timeout: Option<Duration>,
) -> PyResult<Option<F::Output>>
where
    F: Future + Send,
    F::Output: Send,
{
    let mut future = pin!(future);
    let sleeper = Sleeper::current(py)?;
    let waker = Waker::from(sleeper.clone());
    let polled = py.detach(|| future.as_mut().poll(&mut Context::from_waker(&waker)));
    if let Poll::Ready(output) = polled {
        return Ok(Some(output));
    }
    let until = timeout.and_then(|timeout| now().checked_add(timeout));
    loop {
        let output = py.detach(|| step(future.as_mut(), &waker, &sleeper, until));
        if output.is_some() {
            return Ok(output);
        }
        py.check_signals()?;
        if until.is_some_and(|until| now() >= until) {
            return Ok(None);
        }
    }
}

/// Sleeps and polls until the future is ready, or something else is to be looked at.
fn step<F: Future>(
    mut future: Pin<&mut F>,
    waker: &Waker,
    sleeper: &Sleeper,
    until: Option<Instant>,
) -> Option<F::Output> {
    loop {
        let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(now()));
        let slept = sleeper.sleep(left);
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
            return Some(output);
        }
        if slept == Slept::Over {
            return None;
        }
    }
}

/// The same, with `TimeoutError` when the time is over; `what` names the call.
pub(crate) fn finish<T: Send>(
    py: Python<'_>,
    future: impl Future<Output = Result<T, ottla::Error>> + Send,
    timeout: Option<Duration>,
    what: &str,
) -> PyResult<T> {
    if let Some(result) = block_on(py, future, timeout)? {
        return result.or_raise(py);
    }
    let seconds = timeout.unwrap_or_default().as_secs_f64();
    Err(error::new(py, ErrorKind::Timeout, format!("{what} did not end within {seconds} s")))
}
