//! Log lines of the core, for `ottla/_log.py`: no thread of the core's ever runs Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ottla::log::{self, Level};
use pyo3::intern;
use pyo3::prelude::*;

use crate::boundary::caught;
use crate::error::OrRaise as _;

/// Longest sleep of the thread that hands lines on.
const SLICE: Duration = Duration::from_mins(1);

/// Whether the next call looks at what Python's loggers want.
static DUE: AtomicBool = AtomicBool::new(false);

/// A client is being made: looks at what loggers want, now and once more at the next call, since
/// many a program makes its clients before it sets up logging.
pub(crate) fn look_twice(py: Python<'_>) {
    look(py);
    DUE.store(true, Ordering::Relaxed);
}

/// Looks at what loggers want, if that is due.
#[inline]
pub(crate) fn look_if_due(py: Python<'_>) {
    if DUE.load(Ordering::Relaxed) && DUE.swap(false, Ordering::Relaxed) {
        look(py);
    }
}

#[cold]
fn look(py: Python<'_>) {
    let module = py.import(intern!(py, "ottla._log"));
    let looked = module.and_then(|module| module.call_method0(intern!(py, "look")));
    if let Err(fault) = looked {
        // Of the program's own loggers: told as such things are, and no fault of the call.
        fault.write_unraisable(py, None);
    }
}

/// Has lines up to this level kept: 1 is errors, 5 is everything, 0 none.
#[pyfunction]
pub(crate) fn collect_log(py: Python<'_>, level: u8) -> PyResult<()> {
    caught(py, || log::collect(Level::of(level), || ()).or_raise(py))
}

/// Waits until lines can be taken, or some time has passed; whether there are any.
#[pyfunction]
pub(crate) fn wait_log(py: Python<'_>) -> PyResult<bool> {
    caught(py, || Ok(py.detach(|| log::wait(SLICE))))
}

/// Level, who wrote it, which module of his, when, and text of a line.
type Row = (u8, &'static str, &'static str, i64, String);

/// The lines since the last call.
#[pyfunction]
pub(crate) fn take_log(py: Python<'_>) -> PyResult<Vec<Row>> {
    caught(py, || {
        let lines = py.detach(log::take).into_iter();
        let row = |line: log::Line| {
            (line.level.number(), line.source(), line.target, line.time_ms, line.message)
        };
        Ok(lines.map(row).collect())
    })
}
