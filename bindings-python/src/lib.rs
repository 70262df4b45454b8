//! Ottla for Python: the native half of the package `ottla`.
//!
//! Its classes are the ones that Python's users see, or the bases of those; what needs no speed
//! (context managers, asyncio's face) stands in Python, beside it.

mod aio;
mod batch;
mod boundary;
mod broker;
mod commit;
mod config;
mod consumer;
mod error;
mod log;
mod producer;
mod record;
mod report;
mod signal;
mod wait;

use pyo3::prelude::*;

#[pymodule(name = "_ottla", gil_used = false)]
mod native {
    #[pymodule_export]
    use crate::aio::{Completed, Pending, Signal};
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::boundary::check_timeout;
    #[pymodule_export]
    use crate::broker::Broker;
    #[pymodule_export]
    use crate::consumer::Consumer;
    #[pymodule_export]
    use crate::log::{collect_log, take_log, wait_log};
    #[pymodule_export]
    use crate::producer::{Producer, Queued, Sent};
    #[pymodule_export]
    use crate::record::{Delivery, Record, restore_record};
    #[pymodule_export]
    use crate::report::Report;

    #[allow(clippy::wildcard_imports, reason = "pyo3's macros look up its whole prelude here")]
    use super::*;
    use crate::error::OrRaise as _;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        ottla::Process::watch().or_raise(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
