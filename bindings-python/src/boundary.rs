//! What every call from Python passes: handles that know of forks, and no panic that gets out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ottla::{Error, ErrorKind, Process};
use pyo3::prelude::*;

use crate::error::{self, OrRaise as _};
use crate::log;

/// Runs the body of a method; a panic in it becomes an `InternalError`.
pub(crate) fn guard<T>(py: Python<'_>, body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    log::look_if_due(py);
    caught(py, body)
}

/// The same for what logging itself calls.
pub(crate) fn caught<T>(py: Python<'_>, body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // What a panic leaves behind is the core's, which treats it as failed.
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|payload| Err(error::to_py(py, &Error::from_panic(&*payload))))
}

/// A handle of the core, which only the process that made it may use.
///
/// Threads do not survive a fork, so in a child the handle is dead; it is not dropped there, since
/// its locks may be held by threads that are gone.
#[derive(Debug)]
pub(crate) struct Held<T> {
    inner: Option<T>,
    process: Process,
}

impl<T> Held<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner: Some(inner), process: Process::current() }
    }

    /// The handle; `ForkedError` in a child of the process that made it.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.process.check().or_raise(py)?;
        self.inner.as_ref().ok_or_else(|| {
            error::new(py, ErrorKind::Internal, "a handle lives as long as its holder")
        })
    }

    /// The handle, in the process that made it.
    pub(crate) fn if_ours(&self) -> Option<&T> {
        self.inner.as_ref().filter(|_| self.process.is_current())
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            std::mem::forget(self.inner.take());
        }
    }
}

/// The longest time-out.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// A time-out in seconds, as Python gives it; `None` is no limit.
pub(crate) fn seconds(py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(timeout) = timeout else { return Ok(None) };
    if timeout.is_nan() || timeout < 0.0 {
        let text = format!("a timeout is a number of seconds from 0 on, not {timeout}");
        return Err(error::new(py, ErrorKind::InvalidArgument, text));
    }
    // Longer than a year is as good as no limit, and no sum of times wraps.
    Ok(Some(Duration::try_from_secs_f64(timeout).unwrap_or(LONGEST).min(LONGEST)))
}

/// Refuses what is no time-out, for calls whose time asyncio keeps.
#[pyfunction]
pub(crate) fn check_timeout(py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
    guard(py, || seconds(py, timeout).map(|_| ()))
}

/// The same for a call that has a time of its own if it is given none.
pub(crate) fn seconds_or(
    py: Python<'_>,
    timeout: Option<f64>,
    otherwise: Duration,
) -> PyResult<Duration> {
    Ok(seconds(py, timeout)?.unwrap_or(otherwise))
}
