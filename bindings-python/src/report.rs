//! What became of records that were sent together: outcomes one by one, and columns.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use ottla::{Delivery as CoreDelivery, Error, Producer, Record, SentMany};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::aio::{Pending, Signal};
use crate::batch::{column, place};
use crate::boundary::{Held, guard, seconds};
use crate::error::{self, OrRaise as _};
use crate::record::{Delivery, Outgoing, lost};
use crate::wait;

type Outcome = Result<CoreDelivery, Error>;

/// What became of each record of one send_many().
///
/// Its columns and errors are there when every record is delivered or has failed: asked for before,
/// they wait, without limit but delivery_timeout_ms. len() is the number of records, and indexing
/// gives a record's Delivery, or raises what it failed with.
#[pyclass(frozen, module = "ottla", name = "Report")]
#[derive(Debug)]
pub(crate) struct Report(Held<Arc<Mutex<State>>>);

#[derive(Debug)]
enum State {
    /// Some records found no room yet.
    Begun(Outgoing, SentMany),
    OnTheirWay(SentMany),
    Ended(Vec<Outcome>),
}

impl State {
    fn len(&self) -> usize {
        match self {
            Self::Begun(outgoing, _) => outgoing.items.len(),
            Self::OnTheirWay(sent) => sent.len(),
            Self::Ended(outcomes) => outcomes.len(),
        }
    }

    /// Refuses the records that were not taken.
    fn refuse_rest(&mut self, refused: &Error) {
        *self = match std::mem::replace(self, Self::Ended(Vec::new())) {
            Self::Begun(outgoing, mut sent) => {
                for _ in outgoing.taken..outgoing.items.len() {
                    sent.refuse(refused.clone());
                }
                Self::OnTheirWay(sent)
            }
            other => other,
        };
    }

    /// Goes on waiting for all outcomes.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Begun(..) => Poll::Pending,
            Self::OnTheirWay(sent) => {
                Pin::new(sent).poll(cx).map(|outcomes| *self = Self::Ended(outcomes))
            }
            Self::Ended(_) => Poll::Ready(()),
        }
    }
}

/// Has the core take records for which there is room. The bytes that the next one needs room for,
/// or nothing when all are taken.
pub(crate) fn taken(
    py: Python<'_>,
    core: &Producer,
    outgoing: &mut Outgoing,
    sent: &mut SentMany,
) -> PyResult<Option<usize>> {
    let (taken, room) = outgoing.with_rest(py, |rest| {
        let taken = py.detach(|| core.try_send_many(rest, sent));
        (taken, rest.get(taken).map(Record::size))
    })?;
    outgoing.taken += taken;
    Ok(room)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Report {
    pub(crate) fn new(sent: SentMany) -> Self {
        Self(Held::new(Arc::new(Mutex::new(State::OnTheirWay(sent)))))
    }

    /// Of records none of which has been taken yet.
    pub(crate) fn begun(outgoing: Outgoing) -> Self {
        Self(Held::new(Arc::new(Mutex::new(State::Begun(outgoing, SentMany::default())))))
    }

    /// Has the core take records for which there is room; as [`taken`].
    pub(crate) fn send_more(&self, py: Python<'_>, core: &Producer) -> PyResult<Option<usize>> {
        let state = self.0.get(py)?;
        let held = std::mem::replace(&mut *lock(state), State::Ended(Vec::new()));
        let (next, outcome) = match held {
            State::Begun(mut outgoing, mut sent) => {
                match taken(py, core, &mut outgoing, &mut sent) {
                    Ok(None) => (State::OnTheirWay(sent), Ok(None)),
                    other => (State::Begun(outgoing, sent), other),
                }
            }
            done => (done, Ok(None)),
        };
        *lock(state) = next;
        outcome
    }

    /// What to wait for before more is sent: room for so many bytes. Records that get none in time
    /// are refused.
    pub(crate) fn room(
        &self,
        py: Python<'_>,
        core: &Producer,
        bytes: usize,
    ) -> PyResult<impl Future<Output = Result<(), Error>> + Send + use<>> {
        let (state, room) = (Arc::clone(self.0.get(py)?), core.room(bytes));
        Ok(async move {
            if let Err(refused) = room.await {
                lock(&state).refuse_rest(&refused);
            }
            Ok(())
        })
    }

    /// All outcomes, waited for.
    fn ended<T>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&[Outcome]) -> PyResult<T>,
    ) -> PyResult<T> {
        guard(py, || {
            let state = self.0.get(py)?;
            // What has ended is looked at often, and needs no release of the interpreter.
            if !matches!(*lock(state), State::Ended(_)) {
                wait::block_on(py, poll_fn(|cx| lock(state).poll(cx)), None)?;
            }
            match &*lock(state) {
                State::Ended(outcomes) => look(outcomes),
                State::Begun(..) | State::OnTheirWay(_) => look(&[]),
            }
        })
    }

    fn column<'py>(
        &self,
        py: Python<'py>,
        of: impl Fn(&CoreDelivery) -> i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.ended(py, |outcomes| {
            column(py, outcomes.iter().map(|outcome| outcome.as_ref().map_or(-1, &of)))
        })
    }
}

#[pymethods]
impl Report {
    /// Whether every record is delivered.
    #[getter]
    fn ok(&self, py: Python<'_>) -> PyResult<bool> {
        self.ended(py, |outcomes| Ok(outcomes.iter().all(Result::is_ok)))
    }

    /// The errors of those that failed: a dict from the record's index.
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.ended(py, |outcomes| {
            let errors = PyDict::new(py);
            for (index, outcome) in outcomes.iter().enumerate() {
                if let Err(failed) = outcome {
                    errors.set_item(index, error::instance(py, failed)?)?;
                }
            }
            Ok(errors)
        })
    }

    /// The partitions: a memoryview of int64; -1 for a record that failed.
    #[getter]
    fn partitions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, |at| i64::from(at.partition))
    }

    /// The offsets: a memoryview of int64; -1 for a record that failed, or if it is not known.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, |at| at.offset)
    }

    /// The timestamps, milliseconds since the epoch: a memoryview of int64; -1 for one that failed.
    #[getter]
    fn timestamps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, |at| at.timestamp)
    }

    /// Waits until every record is delivered or has failed.
    ///
    /// timeout: seconds; None waits as long as delivery_timeout_ms lets it take. TimeoutError when
    /// the time is over; the records stay on their way.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        guard(py, || {
            let state = self.0.get(py)?;
            let timeout = seconds(py, timeout)?;
            let done = poll_fn(|cx| lock(state).poll(cx).map(Ok));
            wait::finish(py, done, timeout, "the deliveries")
        })
    }

    /// Whether every record is delivered or has failed.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        guard(py, || {
            let mut asked = Context::from_waker(std::task::Waker::noop());
            Ok(lock(self.0.get(py)?).poll(&mut asked).is_ready())
        })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(lock(self.0.get(py)?).len())
    }

    fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<Delivery> {
        self.ended(py, |outcomes| {
            let place = place(index, outcomes.len())?;
            let outcome = outcomes.get(place).cloned().ok_or_else(|| lost(py))?;
            outcome.map(Delivery::new).or_raise(py)
        })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(match &*lock(self.0.get(py)?) {
            State::Ended(outcomes) => {
                let stored = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
                format!("<Report, {stored} of {} delivered>", outcomes.len())
            }
            state => format!("<Report, {} on their way>", state.len()),
        })
    }

    fn _settle(&self, py: Python<'_>, signal: &Signal) -> PyResult<Pending> {
        guard(py, || {
            let state = Arc::clone(self.0.get(py)?);
            let done = poll_fn(move |cx| lock(&state).poll(cx).map(Ok));
            Ok(Pending::new(signal, done, |_, ()| Ok(())))
        })
    }
}
