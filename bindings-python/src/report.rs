//! What became of records that were sent together: outcomes one by one, and columns.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use ottla::{Delivery as CoreDelivery, Error, ErrorKind, Producer, Record, Room, SentMany};
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
    Begun(Begun),
    OnTheirWay(SentMany),
    Ended(Arc<[Outcome]>),
}

impl State {
    fn len(&self) -> usize {
        match self {
            Self::Begun(begun) => begun.outgoing.items.len(),
            Self::OnTheirWay(sent) => sent.len(),
            Self::Ended(outcomes) => outcomes.len(),
        }
    }

    /// Goes on waiting for room for the next record.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self::Begun(begun) = self else { return Poll::Ready(()) };
        Pin::new(&mut begun.room).poll(cx).map(|waited| begun.note(waited))
    }

    /// Goes on waiting for all outcomes.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Begun(..) => Poll::Pending,
            Self::OnTheirWay(sent) => {
                Pin::new(sent).poll(cx).map(|outcomes| *self = Self::Ended(outcomes.into()))
            }
            Self::Ended(_) => Poll::Ready(()),
        }
    }
}

/// Records of one call, as far as the core has taken them.
#[derive(Debug)]
pub(crate) struct Begun {
    outgoing: Outgoing,
    pub(crate) sent: SentMany,
    /// The wait for room, whose time is that of all of them together.
    pub(crate) room: Room,
    /// What is told of a record without room, once that time is over.
    late: Option<Error>,
}

impl Begun {
    pub(crate) fn new(outgoing: Outgoing, room: Room) -> Self {
        Self { outgoing, sent: SentMany::default(), room, late: None }
    }

    /// Has the core take records for which there is room. Whether the wait for room comes next, or
    /// all are taken.
    pub(crate) fn go_on(&mut self, py: Python<'_>, core: &Producer) -> PyResult<bool> {
        let Self { outgoing, sent, late, .. } = self;
        let (taken, next) = outgoing.with_rest(py, |rest| {
            let taken = py.detach(|| take(core, rest, sent, late.as_ref()));
            (taken, rest.get(taken).map(Record::size))
        })?;
        outgoing.taken += taken;
        if let Some(bytes) = next {
            self.room.for_next(bytes);
        }
        Ok(next.is_some())
    }

    /// How the wait for the next record's room has ended.
    pub(crate) fn note(&mut self, waited: Result<(), Error>) {
        let Err(refused) = waited else { return };
        if refused.kind() == ErrorKind::BufferFull {
            self.late = Some(refused);
        } else {
            self.sent.refuse(refused);
            self.outgoing.taken += 1;
        }
    }
}

/// How many of these the core has taken or refused: all, if those without room are `late`.
fn take(
    core: &Producer,
    records: &[Record<'_>],
    sent: &mut SentMany,
    late: Option<&Error>,
) -> usize {
    let mut rest = records;
    loop {
        rest = rest.get(core.try_send_many(rest, sent)..).unwrap_or_default();
        let (Some(late), [_, others @ ..]) = (late, rest) else { break };
        sent.refuse(late.clone());
        rest = others;
    }
    records.len() - rest.len()
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Report {
    pub(crate) fn new(sent: SentMany) -> Self {
        Self(Held::new(Arc::new(Mutex::new(State::OnTheirWay(sent)))))
    }

    /// Of records none of which has been taken yet.
    pub(crate) fn begun(begun: Begun) -> Self {
        Self(Held::new(Arc::new(Mutex::new(State::Begun(begun)))))
    }

    /// Has the core take records for which there is room. What to wait for before it is called
    /// again; nothing when all are taken.
    pub(crate) fn send_more(
        &self,
        py: Python<'_>,
        core: &Producer,
    ) -> PyResult<Option<impl Future<Output = Result<(), Error>> + Send + use<>>> {
        let state = self.0.get(py)?;
        let held = std::mem::replace(&mut *lock(state), State::Ended(Arc::default()));
        let (next, waits) = match held {
            State::Begun(mut begun) => match begun.go_on(py, core) {
                Ok(false) => (State::OnTheirWay(begun.sent), Ok(false)),
                other => (State::Begun(begun), other),
            },
            done => (done, Ok(false)),
        };
        *lock(state) = next;
        let state = Arc::clone(state);
        let room = poll_fn(move |cx| lock(&state).poll_room(cx).map(Ok));
        Ok(waits?.then_some(room))
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
            let outcomes = match &*lock(state) {
                State::Ended(outcomes) => Arc::clone(outcomes),
                State::Begun(..) | State::OnTheirWay(_) => Arc::default(),
            };
            // Not under the lock: Python may run anything meanwhile, and let another thread go on
            // that wants it.
            look(&outcomes)
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
