//! Records, as they are sent and as they are read, and what a delivered one is told.

mod data;

use std::sync::Arc;

use ottla::{
    ConsumerRecord, Delivery as CoreDelivery, ErrorKind, Header, Headers as CoreHeaders,
    TopicPartition,
};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::batch::Batch;
use crate::error;

pub(crate) use data::{Data, Headers, Item, Outgoing, lost, nullable};

/// A record: one to be sent, or one that was read.
///
/// Record(value=None, *, key=None, headers=None, partition=None, timestamp=None)
///
/// value, key: bytes, anything with a contiguous buffer, str (sent as UTF-8), or None.
/// headers: a dict, or a sequence of (name, value); values as above.
/// partition: where it goes; None lets the partitioner choose.
/// timestamp: milliseconds since the epoch; None is the time of sending, 0 is 1970.
///
/// One that was read has also topic and offset. It is lazy: each attribute is made when it is
/// asked for, and the record keeps the memory of its batch alive. Given to `send_many`, it is sent
/// with its key, value, headers and timestamp, to a partition chosen anew. A copy (by pickle or
/// copy) is the same in all of this, and may be committed too.
#[pyclass(frozen, module = "ottla", name = "Record")]
#[derive(Debug)]
pub(crate) struct Record(Source);

#[derive(Debug)]
enum Source {
    InBatch { batch: Py<Batch>, index: usize },
    Single(ConsumerRecord),
    Own(Box<Own>),
}

/// A record that Python made.
#[derive(Debug)]
struct Own {
    topic: Option<Py<PyString>>,
    partition: Option<i32>,
    offset: Option<i64>,
    timestamp: Option<i64>,
    key: Option<Py<PyBytes>>,
    value: Option<Py<PyBytes>>,
    headers: Vec<(Py<PyString>, Option<Py<PyBytes>>)>,
}

/// A record's parts, borrowed from wherever they are.
pub(crate) struct Parts<'a> {
    pub(crate) partition: Option<i32>,
    pub(crate) timestamp: Option<i64>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
}

impl Record {
    pub(crate) const fn in_batch(batch: Py<Batch>, index: usize) -> Self {
        Self(Source::InBatch { batch, index })
    }

    pub(crate) const fn single(record: ConsumerRecord) -> Self {
        Self(Source::Single(record))
    }

    /// The core's record, if it was read.
    pub(crate) fn read(&self) -> Option<ConsumerRecord> {
        match &self.0 {
            Source::InBatch { batch, index } => batch.get().core().record(*index),
            Source::Single(record) => Some(record.clone()),
            Source::Own(_) => None,
        }
    }

    /// Of a copy of a record that was read: where its partition is read on after it.
    pub(crate) fn next_offset(&self, py: Python<'_>) -> Option<(TopicPartition, i64)> {
        let Source::Own(own) = &self.0 else { return None };
        let topic = own.topic.as_ref()?.to_str(py).ok()?;
        Some((TopicPartition::new(topic, own.partition?), own.offset?.checked_add(1)?))
    }

    /// What is sent of it.
    pub(crate) fn parts<'a>(&'a self, py: Python<'a>) -> Parts<'a> {
        match &self.0 {
            Source::InBatch { batch, index } => {
                let view = batch.get().core().get(*index);
                Parts {
                    partition: None,
                    timestamp: view.map(|view| view.timestamp),
                    key: view.and_then(|view| view.key),
                    value: view.and_then(|view| view.value),
                }
            }
            Source::Single(record) => {
                let view = record.view();
                Parts {
                    partition: None,
                    timestamp: Some(view.timestamp),
                    key: view.key,
                    value: view.value,
                }
            }
            Source::Own(own) => Parts {
                // Where one was read is not where it goes.
                partition: own.partition.filter(|_| own.offset.is_none()),
                timestamp: own.timestamp,
                key: own.key.as_ref().map(|key| key.as_bytes(py)),
                value: own.value.as_ref().map(|value| value.as_bytes(py)),
            },
        }
    }

    /// Appends its headers to `out`.
    pub(crate) fn push_headers<'a>(
        &'a self,
        py: Python<'a>,
        out: &mut Vec<Header<'a>>,
    ) -> PyResult<()> {
        let headers = match &self.0 {
            Source::InBatch { batch, index } => {
                batch.get().core().get(*index).map(|view| view.headers)
            }
            Source::Single(record) => Some(record.view().headers),
            Source::Own(own) => {
                for (key, value) in &own.headers {
                    let value = value.as_ref().map(|value| value.as_bytes(py));
                    out.push(Header { key: key.to_str(py)?, value });
                }
                None
            }
        };
        for (key, value) in headers.iter().flat_map(CoreHeaders::iter) {
            let key = std::str::from_utf8(key).map_err(|_| {
                let text = "a header's name is not UTF-8, so the record cannot be sent on";
                error::new(py, ErrorKind::InvalidArgument, text)
            })?;
            out.push(Header { key, value });
        }
        Ok(())
    }
}

fn bytes(py: Python<'_>, bytes: Option<&[u8]>) -> Option<Py<PyBytes>> {
    bytes.map(|bytes| PyBytes::new(py, bytes).unbind())
}

fn header<'py>(py: Python<'py>, key: &[u8], value: Option<&[u8]>) -> PyResult<Bound<'py, PyTuple>> {
    let key = match std::str::from_utf8(key) {
        Ok(key) => PyString::new(py, key).into_any(),
        // What is no UTF-8 is kept as Python keeps it in file names.
        Err(_) => PyBytes::new(py, key)
            .call_method1(intern!(py, "decode"), ("utf-8", "surrogateescape"))?,
    };
    (key, bytes(py, value)).into_pyobject(py)
}

#[pymethods]
impl Record {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str, &'static str, &'static str, &'static str, &'static str) =
        ("topic", "partition", "offset", "key", "value");

    #[new]
    #[pyo3(signature = (value=None, *, key=None, headers=None, partition=None, timestamp=None))]
    fn new(
        py: Python<'_>,
        value: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        partition: Option<i32>,
        timestamp: Option<i64>,
    ) -> PyResult<Self> {
        let own = Own {
            topic: None,
            partition,
            offset: None,
            timestamp,
            key: nullable(key, "key")?.map(|key| key.into_bytes(py)),
            value: nullable(value, "value")?.map(|value| value.into_bytes(py)),
            headers: Headers::new(headers)?.into_bytes(py),
        };
        Ok(Self(Source::Own(Box::new(own))))
    }

    /// The topic; None if the record was not read.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Option<Py<PyString>> {
        match &self.0 {
            Source::InBatch { batch, .. } => Some(batch.get().topic_name(py)),
            Source::Single(record) => Some(PyString::intern(py, record.topic()).unbind()),
            Source::Own(own) => own.topic.as_ref().map(|topic| topic.clone_ref(py)),
        }
    }

    /// The partition; None if it is to be chosen.
    #[getter]
    fn partition(&self) -> Option<i32> {
        match &self.0 {
            Source::InBatch { batch, .. } => Some(batch.get().core().partition()),
            Source::Single(record) => Some(record.partition()),
            Source::Own(own) => own.partition,
        }
    }

    /// The offset in the partition; None if the record was not read.
    #[getter]
    fn offset(&self) -> Option<i64> {
        match &self.0 {
            Source::InBatch { batch, index } => {
                batch.get().core().get(*index).map(|view| view.offset)
            }
            Source::Single(record) => Some(record.offset()),
            Source::Own(own) => own.offset,
        }
    }

    /// Milliseconds since the epoch; None if it is to be the time of sending.
    #[getter]
    fn timestamp(&self, py: Python<'_>) -> Option<i64> {
        self.parts(py).timestamp
    }

    /// The key; None is null, which differs from empty.
    #[getter]
    fn key(&self, py: Python<'_>) -> Option<Py<PyBytes>> {
        match &self.0 {
            Source::Own(own) => own.key.as_ref().map(|key| key.clone_ref(py)),
            _ => bytes(py, self.parts(py).key),
        }
    }

    /// The value; None is null.
    #[getter]
    fn value(&self, py: Python<'_>) -> Option<Py<PyBytes>> {
        match &self.0 {
            Source::Own(own) => own.value.as_ref().map(|value| value.clone_ref(py)),
            _ => bytes(py, self.parts(py).value),
        }
    }

    /// The headers in order, as a list of (name, value or None).
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let read = match &self.0 {
            Source::Own(own) => {
                for (key, value) in &own.headers {
                    list.append((key, value))?;
                }
                return Ok(list);
            }
            Source::InBatch { batch, index } => {
                batch.get().core().get(*index).map(|view| view.headers)
            }
            Source::Single(record) => Some(record.view().headers),
        };
        for (key, value) in read.iter().flat_map(CoreHeaders::iter) {
            list.append(header(py, key, value)?)?;
        }
        Ok(list)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shown = |bytes: Option<&[u8]>| -> PyResult<String> {
            Ok(bytes.map(|bytes| PyBytes::new(py, bytes)).into_pyobject(py)?.repr()?.to_string())
        };
        let parts = self.parts(py);
        let place = match (self.topic(py), self.partition(), self.offset()) {
            (Some(topic), Some(partition), Some(offset)) => {
                format!("{}-{partition} @{offset}, ", topic.to_str(py)?)
            }
            (_, Some(partition), _) => format!("partition={partition}, "),
            _ => String::new(),
        };
        let (key, value) = (shown(parts.key)?, shown(parts.value)?);
        let headers = self.headers(py)?;
        let headers = if headers.is_empty() {
            String::new()
        } else {
            format!(", headers={}", headers.repr()?)
        };
        let timestamp = parts.timestamp.map(|timestamp| format!(", timestamp={timestamp}"));
        let timestamp = timestamp.unwrap_or_default();
        Ok(format!("Record({place}key={key}, value={value}{headers}{timestamp})"))
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        self.fields(py)?.eq(other.get().fields(py)?)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        let parts = (self.topic(py), self.partition(), self.offset(), self.key(py), self.value(py));
        parts.into_pyobject(py)?.hash()
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let native = py.import(intern!(py, "ottla._ottla"))?;
        Ok((native.getattr(intern!(py, "restore_record"))?, self.fields(py)?))
    }
}

impl Record {
    /// All it holds, as `restore_record` takes it.
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (
            self.topic(py),
            self.partition(),
            self.offset(),
            self.timestamp(py),
            self.key(py),
            self.value(py),
            self.headers(py)?,
        )
            .into_pyobject(py)
    }
}

/// A record as it was when it was pickled or copied.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "one for each field of the record")]
pub(crate) fn restore_record(
    topic: Option<Py<PyString>>,
    partition: Option<i32>,
    offset: Option<i64>,
    timestamp: Option<i64>,
    key: Option<Py<PyBytes>>,
    value: Option<Py<PyBytes>>,
    headers: &Bound<'_, PyAny>,
) -> PyResult<Record> {
    let headers = Headers::new(Some(headers))?.into_bytes(headers.py());
    Ok(Record(Source::Own(Box::new(Own {
        topic,
        partition,
        offset,
        timestamp,
        key,
        value,
        headers,
    }))))
}

/// Where a record has arrived: topic, partition, offset, timestamp.
///
/// offset: -1 if it is not known: with acks=0, or if the broker had the record already.
/// timestamp: milliseconds since the epoch: the broker's, if the topic is set so, else the record's.
#[pyclass(frozen, module = "ottla", name = "Delivery")]
#[derive(Debug)]
pub(crate) struct Delivery(CoreDelivery);

impl Delivery {
    pub(crate) const fn new(core: CoreDelivery) -> Self {
        Self(core)
    }
}

#[pymethods]
impl Delivery {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str, &'static str, &'static str, &'static str) =
        ("topic", "partition", "offset", "timestamp");

    #[new]
    fn new_py(topic: &str, partition: i32, offset: i64, timestamp: i64) -> PyResult<Self> {
        if topic.is_empty() {
            return Err(PyValueError::new_err("a topic has a name"));
        }
        Ok(Self(CoreDelivery { topic: Arc::from(topic), partition, offset, timestamp }))
    }

    /// The topic.
    #[getter]
    fn topic<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::intern(py, &self.0.topic)
    }

    /// The partition.
    #[getter]
    const fn partition(&self) -> i32 {
        self.0.partition
    }

    /// The offset in the partition; -1 if it is not known.
    #[getter]
    const fn offset(&self) -> i64 {
        self.0.offset
    }

    /// Milliseconds since the epoch.
    #[getter]
    const fn timestamp(&self) -> i64 {
        self.0.timestamp
    }

    fn __repr__(&self) -> String {
        let CoreDelivery { topic, partition, offset, timestamp } = &self.0;
        format!("Delivery({topic:?}, {partition}, {offset}, {timestamp})")
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().0 == self.0)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.__getnewargs__().into_pyobject(py)?.hash()
    }

    fn __getnewargs__(&self) -> (&str, i32, i64, i64) {
        (&self.0.topic, self.0.partition, self.0.offset, self.0.timestamp)
    }
}
