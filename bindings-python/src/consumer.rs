//! Consumers: records and batches as they come, and what is done with them.

use std::time::Duration;

use ottla::{
    Batch as CoreBatch, Consumer as Core, ConsumerRecord, Error, ErrorKind, OffsetAndMetadata,
    OffsetAndTimestamp, TopicPartition,
};
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::aio::{Pending, Signal};
use crate::batch::Batch;
use crate::boundary::{Held, guard, seconds, seconds_or};
use crate::commit::What;
use crate::config;
use crate::error::{self, OrRaise as _};
use crate::log;
use crate::record::Record;
use crate::wait;

/// How long after its time a call of the core is waited for.
const GRACE: Duration = Duration::from_secs(1);

/// The native half of Python's two consumers.
#[pyclass(frozen, subclass, module = "ottla._ottla", name = "Consumer")]
#[derive(Debug)]
pub(crate) struct Consumer {
    core: Held<Core>,
}

/// One topic's name, or several.
fn topics(given: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(one) = given.cast::<PyString>() {
        return Ok(vec![one.to_str()?.to_owned()]);
    }
    given.try_iter()?.map(|name| name?.extract()).collect()
}

fn partitions(given: Vec<(String, i32)>) -> Vec<TopicPartition> {
    given.into_iter().map(|(topic, number)| TopicPartition::new(topic, number)).collect()
}

fn single(record: Option<ConsumerRecord>) -> Option<Record> {
    record.map(Record::single)
}

fn batch(batch: Option<CoreBatch>) -> Option<Batch> {
    batch.map(Batch::new)
}

#[pymethods]
impl Consumer {
    #[new]
    #[pyo3(signature = (bootstrap=None, /, *, topics=None, **options))]
    fn new(
        py: Python<'_>,
        bootstrap: Option<&Bound<'_, PyAny>>,
        topics: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        guard(py, || {
            log::look_twice(py);
            let options = config::options(bootstrap, options)?;
            let made = Self { core: Held::new(Core::new(&options).or_raise(py)?) };
            if let Some(topics) = topics {
                made.subscribe(topics)?;
            }
            Ok(made)
        })
    }

    /// Reads these topics, and no others from now on; the group shares out their partitions.
    ///
    /// topics: a name, or several. InvalidGroupError without the option group_id.
    fn subscribe(&self, topics: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = topics.py();
        guard(py, || {
            let names = self::topics(topics)?;
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            self.core.get(py)?.subscribe(&names).or_raise(py)
        })
    }

    /// Reads the topics whose whole names match a regular expression, and no others from now on.
    ///
    /// pattern: a text, in the syntax of Rust's crate regex, which is RE2's but for little. Topics
    /// that come later are read too, from their beginning, as soon as the metadata tell of them (the
    /// option metadata_max_age); Kafka's internal ones only with exclude_internal_topics=False.
    /// InvalidGroupError without the option group; InvalidArgumentError for a pattern that cannot be
    /// read, or grows beyond 1 MiB.
    fn subscribe_pattern(&self, py: Python<'_>, pattern: &str) -> PyResult<()> {
        guard(py, || self.core.get(py)?.subscribe_pattern(pattern).or_raise(py))
    }

    fn _assign(&self, py: Python<'_>, which: Vec<(String, i32)>) -> PyResult<()> {
        guard(py, || self.core.get(py)?.assign(&partitions(which)).or_raise(py))
    }

    /// Leaves the group, after what is finished was committed, and reads nothing.
    fn unsubscribe(&self, py: Python<'_>) -> PyResult<()> {
        guard(py, || self.core.get(py)?.unsubscribe().or_raise(py))
    }

    fn _assignment(&self, py: Python<'_>) -> PyResult<Vec<(String, i32)>> {
        guard(py, || {
            let all = self.core.get(py)?.assignment();
            Ok(all.into_iter().map(|one| (one.topic.to_string(), one.partition)).collect())
        })
    }

    const fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// Waits for the next record; the iteration ends when the consumer is closed.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Record>> {
        guard(py, || {
            let core = self.core.get(py)?;
            loop {
                let found = match core.poll_begun() {
                    Ok(None) => wait::block_on(py, core.next(), None)?.unwrap_or(Ok(None)),
                    begun => begun,
                };
                match found {
                    Ok(None) => {}
                    Err(closed) if closed.kind() == ErrorKind::Closed => return Ok(None),
                    found => return found.map(single).or_raise(py),
                }
            }
        })
    }

    /// The next record, or None if the time is over before one comes.
    ///
    /// timeout: seconds; None waits for ever. What the call before gave counts as finished. An
    /// error tells of one partition or of the group; unless it is a FatalError, the next call goes
    /// on.
    #[pyo3(signature = (timeout=None))]
    fn poll(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Record>> {
        guard(py, || {
            let (core, timeout) = (self.core.get(py)?, seconds(py, timeout)?);
            if let Some(record) = core.poll_begun().or_raise(py)? {
                return Ok(Some(Record::single(record)));
            }
            match wait::block_on(py, core.next(), timeout)? {
                Some(record) => record.map(single).or_raise(py),
                // Tells why there is nothing, if it is known.
                None => core.poll(Duration::ZERO).map(single).or_raise(py),
            }
        })
    }

    /// The next batch of one partition, or None if the time is over before one comes.
    ///
    /// max_records: how many records at most; None gives what was fetched, or the option
    /// max_poll_records. timeout: seconds; None waits for ever. Else as poll().
    #[pyo3(signature = (max_records=None, timeout=None))]
    fn poll_batch(
        &self,
        py: Python<'_>,
        max_records: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Batch>> {
        guard(py, || {
            let core = self.core.get(py)?;
            let timeout = seconds(py, timeout)?;
            let max = at_least_one(py, max_records)?;
            match wait::block_on(py, core.next_batch_of(max), timeout)? {
                Some(found) => found.map(batch).or_raise(py),
                None => core.poll_batch(Duration::ZERO).map(batch).or_raise(py),
            }
        })
    }

    /// Commits, and waits until the group's coordinator has it.
    ///
    /// what: a Record or a Batch (it, and all before it in its partition), a dict of
    /// {(topic, partition): offset to read on at, or an OffsetAndMetadata}, or None for all that was
    /// given out so far.
    /// timeout: seconds; None is the option default_api_timeout_ms. CommitFencedError names
    /// partitions that went to another member meanwhile.
    #[pyo3(signature = (what=None, timeout=None))]
    fn commit(
        &self,
        py: Python<'_>,
        what: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        guard(py, || {
            let (core, what) = (self.core.get(py)?, What::new(what)?);
            let timeout = seconds_or(py, timeout, core.api_timeout())?;
            let done = core.commit_async_within(what.as_commit(), timeout);
            // It ends by itself, and tells what stood in its way.
            wait::finish(py, done, Some(timeout + GRACE), "the commit")
        })
    }

    /// The program has finished its work on a Record, or on all of a Batch.
    ///
    /// With acknowledgement="explicit", where no poll finishes anything: in any order, from any
    /// thread, and without a request, since commits and close() tell the group. Its first unfinished
    /// record is committed, and what is finished behind it beside that: a consumer that reads on from
    /// there is given only the rest. CommitFencedError if the partition went to another member;
    /// InvalidStateError where polls finish records.
    fn acknowledge(&self, py: Python<'_>, what: &Bound<'_, PyAny>) -> PyResult<()> {
        guard(py, || {
            let core = self.core.get(py)?;
            if let Ok(batch) = what.cast::<Batch>() {
                return core.acknowledge_batch(batch.get().core()).or_raise(py);
            }
            let Ok(record) = what.cast::<Record>() else {
                let kind = what.get_type().name()?;
                let text = format!("acknowledge a Record or a Batch, not {kind}");
                return Err(PyTypeError::new_err(text));
            };
            let read = record.get().read().ok_or_else(|| {
                PyTypeError::new_err("the record was not read by this consumer, or is a copy")
            })?;
            core.acknowledge(&read).or_raise(py)
        })
    }

    /// Commits without waiting; newer offsets take the place of older ones that wait.
    ///
    /// what: as in commit(). A failure is logged; the next commit, or close(), makes up for it.
    #[pyo3(signature = (what=None))]
    fn commit_soon(&self, py: Python<'_>, what: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        guard(py, || {
            let what = What::new(what)?;
            self.core.get(py)?.commit_soon(what.as_commit()).or_raise(py)
        })
    }

    /// The offset of the next record to be given of a partition; None while it is not known.
    fn position(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<Option<i64>> {
        guard(py, || Ok(self.core.get(py)?.position(&TopicPartition::new(topic, partition))))
    }

    /// How many offsets lie between the next record to be given of a partition and its end, as the
    /// last answers told; None while that is not known, or the partition is not assigned.
    fn current_lag(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<Option<i64>> {
        guard(py, || Ok(self.core.get(py)?.current_lag(&TopicPartition::new(topic, partition))))
    }

    /// Tells that the program lives while it works longer on what it was given than the option
    /// max_poll_interval, which counts anew from here. Unlike a poll it finishes nothing.
    fn keep_alive(&self, py: Python<'_>) -> PyResult<()> {
        guard(py, || {
            self.core.get(py)?.keep_alive();
            Ok(())
        })
    }

    /// Goes on with a partition from this offset. NotAssignedError if it is not this consumer's.
    fn seek(&self, py: Python<'_>, topic: &str, partition: i32, offset: i64) -> PyResult<()> {
        guard(py, || {
            let partition = TopicPartition::new(topic, partition);
            self.core.get(py)?.seek(&partition, offset).or_raise(py)
        })
    }

    // Of the calls that look something up, each waits without a signal; with one it is pending.

    fn _beginning_offsets(
        &self,
        py: Python<'_>,
        signal: Option<&Signal>,
        which: Vec<(String, i32)>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let call =
            |core: &Core, within| core.beginning_offsets_async_within(&partitions(which), within);
        self.look_up(py, signal, timeout, call, |found| rows(found, |offset| offset))
    }

    fn _end_offsets(
        &self,
        py: Python<'_>,
        signal: Option<&Signal>,
        which: Vec<(String, i32)>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let call = |core: &Core, within| core.end_offsets_async_within(&partitions(which), within);
        self.look_up(py, signal, timeout, call, |found| rows(found, |offset| offset))
    }

    fn _offsets_for_times(
        &self,
        py: Python<'_>,
        signal: Option<&Signal>,
        times: Vec<((String, i32), i64)>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let named = |((topic, number), time): ((String, i32), i64)| {
            (TopicPartition::new(topic, number), time)
        };
        let times: Vec<_> = times.into_iter().map(named).collect();
        let call = |core: &Core, within| core.offsets_for_times_async_within(&times, within);
        let of = |at: OffsetAndTimestamp| {
            (at.offset, at.timestamp, Some(at.leader_epoch).filter(|&epoch| epoch >= 0))
        };
        self.look_up(py, signal, timeout, call, move |found| rows(found, |at| at.map(of)))
    }

    fn _committed(
        &self,
        py: Python<'_>,
        signal: Option<&Signal>,
        which: Vec<(String, i32)>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let call = |core: &Core, within| {
            core.committed_with_metadata_async_within(&partitions(which), within)
        };
        let of = |at: OffsetAndMetadata| (at.offset, at.metadata, at.leader_epoch);
        self.look_up(py, signal, timeout, call, move |found| rows(found, |at| at.map(of)))
    }

    fn _seek_before_end(
        &self,
        py: Python<'_>,
        signal: Option<&Signal>,
        topic: &str,
        partition: i32,
        records: u64,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let at = TopicPartition::new(topic, partition);
        let call = |core: &Core, within| core.seek_before_end_async_within(&at, records, within);
        self.look_up(py, signal, timeout, call, |offset| offset)
    }

    fn _pause(&self, py: Python<'_>, which: Vec<(String, i32)>) -> PyResult<()> {
        guard(py, || self.core.get(py)?.pause(&partitions(which)).or_raise(py))
    }

    fn _resume(&self, py: Python<'_>, which: Vec<(String, i32)>) -> PyResult<()> {
        guard(py, || self.core.get(py)?.resume(&partitions(which)).or_raise(py))
    }

    /// Commits what is finished, leaves the group, and ends the consumer.
    ///
    /// timeout: seconds; None is the option default_api_timeout_ms. A second call does nothing.
    /// Batches and records stay good.
    #[pyo3(signature = (timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        guard(py, || {
            let Some(core) = self.core.if_ours() else { return Ok(()) };
            let timeout = seconds_or(py, timeout, core.api_timeout())?;
            wait::finish(py, core.close_async(timeout), None, "close")
        })
    }

    /// A record if one is there and needs no work, for the iterators.
    fn _begun(&self, py: Python<'_>) -> PyResult<Option<Record>> {
        guard(py, || self.core.get(py)?.poll_begun().map(single).or_raise(py))
    }

    fn _next(&self, py: Python<'_>, signal: &Signal) -> PyResult<Pending> {
        guard(py, || {
            Ok(Pending::new(signal, self.core.get(py)?.next(), |_, found| Ok(single(found))))
        })
    }

    fn _next_batch(
        &self,
        py: Python<'_>,
        signal: &Signal,
        max_records: Option<usize>,
    ) -> PyResult<Pending> {
        guard(py, || {
            let next = self.core.get(py)?.next_batch_of(at_least_one(py, max_records)?);
            Ok(Pending::new(signal, next, |_, found| Ok(batch(found))))
        })
    }

    /// Why nothing comes, if it is known: raised.
    fn _obstacle(&self, py: Python<'_>) -> PyResult<Option<Record>> {
        guard(py, || self.core.get(py)?.poll(Duration::ZERO).map(single).or_raise(py))
    }

    fn _commit(
        &self,
        py: Python<'_>,
        signal: &Signal,
        what: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Pending> {
        guard(py, || {
            let (core, what) = (self.core.get(py)?, What::new(what)?);
            let timeout = seconds_or(py, timeout, core.api_timeout())?;
            let done = core.commit_async_within(what.as_commit(), timeout);
            Ok(Pending::new(signal, done, |_, ()| Ok(())))
        })
    }

    fn _close(&self, py: Python<'_>, signal: &Signal, timeout: Option<f64>) -> PyResult<Pending> {
        guard(py, || {
            let core = self.core.get(py)?;
            let done = core.close_async(seconds_or(py, timeout, core.api_timeout())?);
            Ok(Pending::new(signal, done, |_, ()| Ok(())))
        })
    }
}

impl Consumer {
    /// A call that looks something up: waited for without a signal, pending with one.
    fn look_up<F, T, P>(
        &self,
        py: Python<'_>,
        signal: Option<&Signal>,
        timeout: Option<f64>,
        call: impl FnOnce(&Core, Duration) -> F,
        wrap: impl FnOnce(T) -> P + Send + 'static,
    ) -> PyResult<Py<PyAny>>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
        T: Send + 'static,
        P: for<'py> IntoPyObject<'py>,
    {
        guard(py, || {
            let core = self.core.get(py)?;
            let timeout = seconds_or(py, timeout, core.api_timeout())?;
            let call = call(core, timeout);
            if let Some(signal) = signal {
                return Pending::new(signal, call, |_, found| Ok(wrap(found))).into_py_any(py);
            }
            let found = wait::finish(py, call, Some(timeout + GRACE), "looking offsets up")?;
            wrap(found).into_py_any(py)
        })
    }
}

/// What was found of partitions, as tuples.
fn rows<T, P>(found: Vec<(TopicPartition, T)>, wrap: impl Fn(T) -> P) -> Vec<((String, i32), P)> {
    let row = |(at, one): (TopicPartition, T)| ((at.topic.to_string(), at.partition), wrap(one));
    found.into_iter().map(row).collect()
}

fn at_least_one(py: Python<'_>, max_records: Option<usize>) -> PyResult<usize> {
    if max_records == Some(0) {
        return Err(error::new(py, ErrorKind::InvalidArgument, "max_records is 1 at least"));
    }
    Ok(max_records.unwrap_or(usize::MAX))
}
