//! asyncio's half of a client: a descriptor for the event loop, and futures of the core it polls.

use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use ottla::{Completed as CoreCompleted, Completions, Error};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;

use crate::boundary::guard;
use crate::error::{self, OrRaise as _};
use crate::producer::Sent;
use crate::record::Delivery;
use crate::signal::EventFd;

/// Batches that one turn of the loop settles at most.
const BATCHES_A_TURN: usize = 1024;

/// What the event loop watches: one descriptor a client, readable when anything is to be settled.
#[pyclass(frozen, module = "ottla._ottla")]
#[derive(Debug)]
pub(crate) struct Signal {
    shared: Arc<Shared>,
    completions: Arc<Completions>,
}

#[derive(Debug)]
struct Shared {
    fd: EventFd,
    /// Numbers of pending calls that are to be polled again.
    ready: Mutex<Vec<u64>>,
    numbers: AtomicU64,
}

impl Shared {
    fn push(&self, number: u64) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.push(number);
        let first = ready.len() == 1;
        drop(ready);
        if first {
            self.fd.raise();
        }
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.ready.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Signal {
    pub(crate) const fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }
}

#[pymethods]
impl Signal {
    #[new]
    fn new() -> PyResult<Self> {
        let (ready, numbers) = (Mutex::default(), AtomicU64::new(1));
        let shared = Arc::new(Shared { fd: EventFd::new()?, ready, numbers });
        let raised = Arc::clone(&shared);
        Ok(Self { shared, completions: Completions::new(move || raised.fd.raise()) })
    }

    /// The descriptor's number.
    fn fileno(&self) -> RawFd {
        self.shared.fd.number()
    }

    /// Ended batches that were asked about, and the numbers of the pending calls to poll again.
    fn drain(&self, py: Python<'_>) -> PyResult<(Vec<Completed>, Vec<u64>)> {
        guard(py, || {
            // Cleared before anything is taken: what comes meanwhile raises it anew.
            self.shared.fd.clear();
            let ready = self.shared.take();
            let batches = self.completions.drain(BATCHES_A_TURN);
            if batches.len() == BATCHES_A_TURN {
                self.shared.fd.raise();
            }
            Ok((batches.into_iter().map(Completed).collect(), ready))
        })
    }
}

/// A batch with records that were asked about, some or all of which have ended.
#[pyclass(frozen, module = "ottla._ottla")]
#[derive(Debug)]
pub(crate) struct Completed(CoreCompleted);

#[pymethods]
impl Completed {
    /// The batch's number in its producer.
    #[getter]
    fn batch(&self) -> u64 {
        self.0.batch_id()
    }

    /// A record's delivery, or its error as an object; None if it has not ended.
    fn result(&self, py: Python<'_>, sent: &Sent) -> PyResult<Option<Py<PyAny>>> {
        guard(py, || match self.0.result(sent.stamp(py)?) {
            None => Ok(None),
            Some(Ok(delivery)) => Ok(Some(Py::new(py, Delivery::new(delivery))?.into_any())),
            Some(Err(failed)) => Ok(Some(error::instance(py, &failed)?.unbind())),
        })
    }
}

type Finished = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// A call of the core that has not ended, for one loop.
#[pyclass(frozen, module = "ottla._ottla")]
pub(crate) struct Pending {
    future: Mutex<Option<Pin<Box<dyn Future<Output = Finished> + Send>>>>,
    call: Arc<Call>,
}

/// Puts the call's number where the loop finds it.
struct Call {
    number: u64,
    /// Whether the number is there and was not polled for since.
    told: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.told.swap(true, Ordering::AcqRel) {
            self.shared.push(self.number);
        }
    }
}

impl Pending {
    /// `wrap` makes of the result what Python gets.
    pub(crate) fn new<T, P>(
        signal: &Signal,
        future: impl Future<Output = Result<T, Error>> + Send + 'static,
        wrap: impl FnOnce(Python<'_>, T) -> PyResult<P> + Send + 'static,
    ) -> Self
    where
        T: Send + 'static,
        P: for<'py> IntoPyObject<'py>,
    {
        let future = async move {
            let result = future.await;
            let finished: Finished =
                Box::new(move |py| wrap(py, result.or_raise(py)?)?.into_py_any(py));
            finished
        };
        let shared = Arc::clone(&signal.shared);
        let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
        let call = Arc::new(Call { number, told: AtomicBool::new(false), shared });
        Self { future: Mutex::new(Some(Box::pin(future))), call }
    }
}

#[pymethods]
impl Pending {
    /// The call's number at its signal.
    #[getter]
    fn number(&self) -> u64 {
        self.call.number
    }

    /// Goes on: a tuple of the one result, or None if there is none yet. Raises what the call does.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>,)>> {
        guard(py, || {
            let finished = py.detach(|| {
                let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
                self.call.told.store(false, Ordering::Release);
                let waker = Waker::from(Arc::clone(&self.call));
                let running = future.as_mut()?;
                let polled = running.as_mut().poll(&mut Context::from_waker(&waker));
                let Poll::Ready(finished) = polled else { return None };
                *future = None;
                Some(finished)
            });
            finished.map(|finished| Ok((finished(py)?,))).transpose()
        })
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("number", &self.call.number).finish_non_exhaustive()
    }
}
