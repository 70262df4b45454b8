//! Producers: records in, and what becomes of them out.

use std::time::Duration;

use ottla::{
    ErrorKind, Producer as Core, Queued as CoreQueued, Record as CoreRecord, Sent as CoreSent,
    Stamp,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::aio::{Pending, Signal};
use crate::boundary::{Held, guard, seconds, seconds_or};
use crate::config;
use crate::error::OrRaise as _;
use crate::log;
use crate::record::{Data, Delivery, Headers, Item, Outgoing, nullable};
use crate::report::{Begun, Report};
use crate::wait;

/// The native half of Python's two producers.
#[pyclass(frozen, subclass, module = "ottla._ottla", name = "Producer")]
#[derive(Debug)]
pub(crate) struct Producer {
    core: Held<Core>,
    /// `max.block.ms`: how long a record may wait for room.
    max_block: Duration,
}

/// One record's arguments, as Python gives them.
struct Given<'a, 'py> {
    topic: &'a str,
    value: Option<&'a Bound<'py, PyAny>>,
    key: Option<&'a Bound<'py, PyAny>>,
    headers: Option<&'a Bound<'py, PyAny>>,
    partition: Option<i32>,
    timestamp: Option<i64>,
}

impl Given<'_, '_> {
    /// Has the core look at the record, for as long as Python's objects are held.
    fn with<T>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&CoreRecord<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        self.parts()?.with(py, self.topic, look)
    }

    fn parts(&self) -> PyResult<Parts> {
        Ok(Parts {
            key: nullable(self.key, "key")?,
            value: nullable(self.value, "value")?,
            headers: Headers::new(self.headers)?,
            partition: self.partition,
            timestamp: self.timestamp,
        })
    }
}

/// A record's parts but its topic: as they were given, whatever becomes of Python's buffers.
#[derive(Debug)]
struct Parts {
    key: Option<Data>,
    value: Option<Data>,
    headers: Headers,
    partition: Option<i32>,
    timestamp: Option<i64>,
}

impl Parts {
    fn with<T>(
        &self,
        py: Python<'_>,
        topic: &str,
        look: impl FnOnce(&CoreRecord<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let headers = self.headers.borrow(py)?;
        look(&CoreRecord {
            topic,
            partition: self.partition,
            key: self.key.as_ref().map(|key| key.as_slice(py)),
            value: self.value.as_ref().map(|value| value.as_slice(py)),
            headers: &headers,
            timestamp: self.timestamp,
        })
    }
}

/// A record that waits for room in an event loop; it counts among those until it is dropped.
#[pyclass(frozen, module = "ottla._ottla")]
#[derive(Debug)]
pub(crate) struct Queued {
    topic: String,
    parts: Parts,
    _counted: CoreQueued,
}

#[pymethods]
impl Producer {
    #[new]
    #[pyo3(signature = (bootstrap=None, /, **options))]
    fn new(
        py: Python<'_>,
        bootstrap: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        guard(py, || {
            log::look_twice(py);
            let options = config::options(bootstrap, options)?;
            let core = Held::new(Core::new(&options).or_raise(py)?);
            Ok(Self { core, max_block: config::millis(py, &options, "max.block.ms")? })
        })
    }

    /// Sends a record, and never waits for the network.
    ///
    /// topic: its name; it is created if the cluster allows that.
    /// value, key: bytes, anything with a contiguous buffer, str (sent as UTF-8), or None for null.
    /// headers: a dict, or (name, value) pairs; values as above.
    /// partition: None lets the partitioner choose.
    /// timestamp: milliseconds since the epoch; None is now, 0 is 1970.
    ///
    /// What it gives may be dropped, or asked for the delivery: .result(timeout). If buffer_memory
    /// is used up it waits for room, up to max_block_ms; then BufferFullError. Raises
    /// RecordTooLargeError, InvalidTopicError, InvalidPartitionError or ClosedError too; after an
    /// error nothing was kept of the record.
    #[pyo3(signature = (topic, value=None, *, key=None, headers=None, partition=None, timestamp=None))]
    #[allow(clippy::too_many_arguments, reason = "one for each part of a record")]
    fn send(
        &self,
        py: Python<'_>,
        topic: &str,
        value: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        partition: Option<i32>,
        timestamp: Option<i64>,
    ) -> PyResult<Sent> {
        let given = Given { topic, value, key, headers, partition, timestamp };
        guard(py, || {
            let core = self.core.get(py)?;
            given.with(py, |record| {
                let mut room = None;
                loop {
                    match core.try_send(record) {
                        Err(full) if full.kind() == ErrorKind::BufferFull => {
                            let room = room.get_or_insert_with(|| core.room(record.size()));
                            wait::finish(py, room, None, "waiting for room")?;
                        }
                        sent => return sent.map(Sent::new).or_raise(py),
                    }
                }
            })
        })
    }

    /// Sends a record if there is room for it now, else raises BufferFullError; as send().
    #[pyo3(signature = (topic, value=None, *, key=None, headers=None, partition=None, timestamp=None))]
    #[allow(clippy::too_many_arguments, reason = "one for each part of a record")]
    fn try_send(
        &self,
        py: Python<'_>,
        topic: &str,
        value: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        partition: Option<i32>,
        timestamp: Option<i64>,
    ) -> PyResult<Sent> {
        let given = Given { topic, value, key, headers, partition, timestamp };
        guard(py, || {
            let core = self.core.get(py)?;
            given.with(py, |record| core.try_send(record).map(Sent::new).or_raise(py))
        })
    }

    /// Sends records in order, in one crossing.
    ///
    /// records: an iterable of values, (key, value) tuples, and Records.
    ///
    /// The report tells what became of each; one that is refused does not keep the others back.
    /// Asked for its columns, the report waits for the deliveries; dropped, nobody waits. If
    /// buffer_memory is used up this waits for room, for max_block_ms in all; what finds none then
    /// is reported as BufferFullError.
    fn send_many(
        &self,
        py: Python<'_>,
        topic: String,
        records: &Bound<'_, PyAny>,
    ) -> PyResult<Report> {
        guard(py, || {
            let core = self.core.get(py)?;
            let outgoing = Outgoing { topic, items: Item::all(records)?, taken: 0 };
            let mut begun = Begun::new(outgoing, core.room(0));
            while begun.go_on(py, core)? {
                if let Some(waited) = wait::block_on(py, &mut begun.room, None)? {
                    begun.note(waited);
                }
            }
            Ok(Report::new(begun.sent))
        })
    }

    /// Waits until every record sent before is delivered or has failed.
    ///
    /// timeout: seconds; None waits as long as delivery_timeout_ms lets it take. Raises if records
    /// whose result nobody asked for have failed, and TimeoutError when the time is over.
    #[pyo3(signature = (timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        guard(py, || {
            let timeout = seconds(py, timeout)?;
            wait::finish(py, self.core.get(py)?.flush_async(), timeout, "flush")
        })
    }

    #[pyo3(signature = (timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        guard(py, || {
            let Some(core) = self.core.if_ours() else { return Ok(()) };
            let timeout = seconds_or(py, timeout, core.close_timeout())?;
            wait::finish(py, core.close_async(timeout), None, "close")
        })
    }

    /// Begins what send_many does, for a loop that goes on with the report.
    fn _send_many(
        &self,
        py: Python<'_>,
        topic: String,
        records: &Bound<'_, PyAny>,
    ) -> PyResult<Report> {
        guard(py, || {
            let room = self.core.get(py)?.room(0).begun();
            let outgoing = Outgoing { topic, items: Item::all(records)?, taken: 0 };
            Ok(Report::begun(Begun::new(outgoing, room)))
        })
    }

    /// Goes on with a report: the wait for room that it needs, or None when all is sent.
    fn _send_more(
        &self,
        py: Python<'_>,
        signal: &Signal,
        report: &Report,
    ) -> PyResult<Option<Pending>> {
        guard(py, || {
            let core = self.core.get(py)?;
            let room = report.send_more(py, core)?;
            Ok(room.map(|room| Pending::new(signal, room, |_, ()| Ok(()))))
        })
    }

    #[getter]
    const fn _max_block(&self) -> f64 {
        self.max_block.as_secs_f64()
    }

    #[getter]
    fn _close_timeout(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.core.get(py)?.close_timeout().as_secs_f64())
    }

    /// Takes a record that is to wait for room; BufferFullError if too much waits already.
    #[pyo3(signature = (topic, value=None, *, key=None, headers=None, partition=None, timestamp=None))]
    #[allow(clippy::too_many_arguments, reason = "one for each part of a record")]
    fn _queue(
        &self,
        py: Python<'_>,
        topic: &str,
        value: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        partition: Option<i32>,
        timestamp: Option<i64>,
    ) -> PyResult<Queued> {
        let given = Given { topic, value, key, headers, partition, timestamp };
        guard(py, || {
            let core = self.core.get(py)?;
            let parts = given.parts()?;
            let counted = parts.with(py, topic, |record| core.queue(record).or_raise(py))?;
            Ok(Queued { topic: topic.to_owned(), parts, _counted: counted })
        })
    }

    /// Waits for room: for this record, for what is left of its time, or for any.
    #[pyo3(signature = (signal, queued=None, left=None))]
    fn _room(
        &self,
        py: Python<'_>,
        signal: &Signal,
        queued: Option<&Queued>,
        left: Option<f64>,
    ) -> PyResult<Pending> {
        guard(py, || {
            let (core, left) = (self.core.get(py)?, seconds(py, left)?.unwrap_or(Duration::MAX));
            let size = |queued: &Queued| queued.parts.with(py, &queued.topic, |it| Ok(it.size()));
            let bytes = queued.map(size).transpose()?.unwrap_or(0);
            Ok(Pending::new(signal, core.room(bytes).within(left), |_, ()| Ok(())))
        })
    }

    /// Sends a record that waited, if there is room for it now.
    fn _send_queued(&self, py: Python<'_>, queued: &Queued) -> PyResult<Sent> {
        guard(py, || {
            let core = self.core.get(py)?;
            queued
                .parts
                .with(py, &queued.topic, |record| core.try_send(record).map(Sent::new).or_raise(py))
        })
    }

    fn _flush(&self, py: Python<'_>, signal: &Signal) -> PyResult<Pending> {
        guard(py, || Ok(Pending::new(signal, self.core.get(py)?.flush_async(), |_, ()| Ok(()))))
    }

    #[pyo3(signature = (signal, timeout=None))]
    fn _close(&self, py: Python<'_>, signal: &Signal, timeout: Option<f64>) -> PyResult<Pending> {
        guard(py, || {
            let core = self.core.get(py)?;
            let done = core.close_async(seconds_or(py, timeout, core.close_timeout())?);
            Ok(Pending::new(signal, done, |_, ()| Ok(())))
        })
    }
}

/// A record that was sent. Dropped, nobody waits for it; it is delivered all the same.
#[pyclass(frozen, module = "ottla", name = "Sent")]
#[derive(Debug)]
pub(crate) struct Sent(Held<CoreSent>);

impl Sent {
    fn new(core: CoreSent) -> Self {
        Self(Held::new(core))
    }

    /// What its batch is asked by when that comes out of the signal's queue.
    pub(crate) fn stamp(&self, py: Python<'_>) -> PyResult<Stamp> {
        Ok(self.0.get(py)?.stamp())
    }
}

#[pymethods]
impl Sent {
    /// Waits for the record's Delivery; raises what the record failed with.
    ///
    /// timeout: seconds; None waits as long as delivery_timeout_ms lets it take. TimeoutError when
    /// the time is over; the record stays on its way.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Delivery> {
        guard(py, || {
            let (core, timeout) = (self.0.get(py)?, seconds(py, timeout)?);
            if let Some(known) = core.result() {
                return known.map(Delivery::new).or_raise(py);
            }
            wait::finish(py, core.clone(), timeout, "the delivery").map(Delivery::new)
        })
    }

    /// Whether the record is delivered or has failed.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        guard(py, || Ok(self.0.get(py)?.result().is_some()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(match self.0.get(py)?.result() {
            None => "<Sent, on its way>".to_owned(),
            Some(Ok(at)) => format!("<Sent, {}-{} @{}>", at.topic, at.partition, at.offset),
            Some(Err(failed)) => format!("<Sent, failed: {failed}>"),
        })
    }

    fn _poll(&self, py: Python<'_>) -> PyResult<Option<Delivery>> {
        guard(py, || {
            self.0.get(py)?.result().transpose().or_raise(py).map(|at| at.map(Delivery::new))
        })
    }

    /// Has the signal told when the record's batch ends; gives the batch's number.
    fn _notify(&self, py: Python<'_>, signal: &Signal) -> PyResult<u64> {
        guard(py, || {
            let core = self.0.get(py)?;
            core.notify(signal.completions());
            Ok(core.batch_id())
        })
    }
}
