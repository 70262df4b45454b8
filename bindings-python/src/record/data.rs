//! Keys, values and headers as Python gives them, held for as long as the core borrows them.

use ottla::{ErrorKind, Header};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PyString, PyTuple};

use super::Record;
use crate::error;

/// The bytes of a key or a value.
#[derive(Debug)]
pub(crate) enum Data {
    Bytes(Py<PyBytes>),
    /// A text that has been found to be UTF-8.
    Text(Py<PyString>),
}

/// The bytes of an object: bytes as they are, a text as UTF-8, any other buffer by one copy.
pub(crate) fn data(given: &Bound<'_, PyAny>, what: &str) -> PyResult<Data> {
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(Data::Bytes(bytes.clone().unbind()));
    }
    if let Ok(text) = given.cast::<PyString>() {
        text.to_str()?;
        return Ok(Data::Text(text.clone().unbind()));
    }
    let Ok(view) = PyMemoryView::from(given) else {
        let kind = given.get_type().name()?;
        let text = format!("{what} must be bytes, a buffer, str or None, not {kind}");
        return Err(PyTypeError::new_err(text));
    };
    let copy = view.call_method0(intern!(given.py(), "tobytes"))?;
    Ok(Data::Bytes(copy.cast_into::<PyBytes>()?.unbind()))
}

/// The same for what may be null.
pub(crate) fn nullable(given: Option<&Bound<'_, PyAny>>, what: &str) -> PyResult<Option<Data>> {
    given.filter(|given| !given.is_none()).map(|given| data(given, what)).transpose()
}

impl Data {
    pub(crate) fn as_slice<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(py),
            // Found to be UTF-8 when it was taken, and Python's texts do not change.
            Self::Text(text) => text.to_str(py).map_or(&[], str::as_bytes),
        }
    }

    pub(crate) fn into_bytes(self, py: Python<'_>) -> Py<PyBytes> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Text(_) => PyBytes::new(py, self.as_slice(py)).unbind(),
        }
    }
}

/// Headers: a dict or another mapping, or an iterable of pairs.
#[derive(Debug, Default)]
pub(crate) struct Headers(Vec<(Py<PyString>, Option<Data>)>);

impl Headers {
    pub(crate) fn new(given: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let mut headers = Self::default();
        let Some(given) = given else { return Ok(headers) };
        if let Ok(dict) = given.cast::<PyDict>() {
            for (key, value) in dict {
                headers.push(&key, &value)?;
            }
            return Ok(headers);
        }
        let items = intern!(given.py(), "items");
        let pairs = match given.getattr_opt(items)? {
            Some(items) => items.call0()?.try_iter()?,
            None => given.try_iter()?,
        };
        for pair in pairs {
            let pair = pair?;
            let Ok((key, value)) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
                let kind = pair.get_type().name()?;
                let text = format!("headers are a dict or (name, value) tuples, not {kind}");
                return Err(PyTypeError::new_err(text));
            };
            headers.push(&key, &value)?;
        }
        Ok(headers)
    }

    fn push(&mut self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(key) = key.cast::<PyString>() else {
            let kind = key.get_type().name()?;
            return Err(PyTypeError::new_err(format!("a header's name must be str, not {kind}")));
        };
        let value = nullable(Some(value), "a header's value")?;
        self.0.push((key.clone().unbind(), value));
        Ok(())
    }

    /// The headers as the core takes them.
    pub(crate) fn borrow<'a>(&'a self, py: Python<'a>) -> PyResult<Vec<Header<'a>>> {
        let borrow = |(key, value): &'a (Py<PyString>, Option<Data>)| {
            let value = value.as_ref().map(|value| value.as_slice(py));
            Ok(Header { key: key.to_str(py)?, value })
        };
        self.0.iter().map(borrow).collect()
    }

    pub(crate) fn into_bytes(self, py: Python<'_>) -> Vec<(Py<PyString>, Option<Py<PyBytes>>)> {
        let bytes = |(key, value): (Py<PyString>, Option<Data>)| {
            (key, value.map(|value| value.into_bytes(py)))
        };
        self.0.into_iter().map(bytes).collect()
    }
}

/// What `send_many` takes one record from.
#[derive(Debug)]
pub(crate) enum Item {
    Value(Option<Data>),
    Pair(Option<Data>, Option<Data>),
    Record(Py<Record>),
}

impl Item {
    /// A value, a tuple of key and value, or a record.
    pub(crate) fn new(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(Self::Value(Some(Data::Bytes(bytes.clone().unbind()))));
        }
        if let Ok(record) = given.cast::<Record>() {
            return Ok(Self::Record(record.clone().unbind()));
        }
        let Ok(pair) = given.cast::<PyTuple>() else {
            return nullable(Some(given), "a record").map(Self::Value);
        };
        if pair.len() != 2 {
            let text = format!("a tuple is (key, value), not of {} parts", pair.len());
            return Err(PyTypeError::new_err(text));
        }
        let (key, value) = (pair.get_item(0)?, pair.get_item(1)?);
        Ok(Self::Pair(nullable(Some(&key), "key")?, nullable(Some(&value), "value")?))
    }

    /// All items of an iterable.
    ///
    /// One text is refused, though Python iterates over its letters: nobody means these.
    pub(crate) fn all(given: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
            let kind = given.get_type().name()?;
            let text = format!("records are a list or another iterable, not one {kind}");
            return Err(PyTypeError::new_err(text));
        }
        let mut items = Vec::with_capacity(expected(given)?);
        for item in given.try_iter()? {
            items.push(Self::new(&item?)?);
        }
        Ok(items)
    }

    /// The record to be sent; `headers` is where its headers are laid down.
    pub(crate) fn borrow<'a>(
        &'a self,
        py: Python<'a>,
        topic: &'a str,
        headers: &'a [Header<'a>],
    ) -> ottla::Record<'a> {
        let record = ottla::Record::to(topic);
        match self {
            Self::Value(value) => {
                ottla::Record { value: value.as_ref().map(|value| value.as_slice(py)), ..record }
            }
            Self::Pair(key, value) => ottla::Record {
                key: key.as_ref().map(|key| key.as_slice(py)),
                value: value.as_ref().map(|value| value.as_slice(py)),
                ..record
            },
            Self::Record(given) => {
                let parts = given.get().parts(py);
                ottla::Record {
                    topic,
                    partition: parts.partition,
                    key: parts.key,
                    value: parts.value,
                    headers,
                    timestamp: parts.timestamp,
                }
            }
        }
    }
}

/// Most records for which room is made before they are seen: a length is but what an object says.
const EXPECTED_MAX: usize = 64 * 1024;

/// How many items an iterable may have: none, if it does not say.
fn expected(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    match given.len() {
        Ok(len) => Ok(len.min(EXPECTED_MAX)),
        Err(fault) if fault.is_instance_of::<PyTypeError>(given.py()) => Ok(0),
        Err(fault) => Err(fault),
    }
}

/// Parts of records that do not fit together, which cannot be.
pub(crate) fn lost(py: Python<'_>) -> PyErr {
    error::new(py, ErrorKind::Internal, "records were lost on their way to the core")
}

/// Records on their way from Python to the core.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) items: Vec<Item>,
    /// Items before it were taken.
    pub(crate) taken: usize,
}

impl Outgoing {
    /// Has the core look at the records not taken yet.
    pub(crate) fn with_rest<T>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&[ottla::Record<'_>]) -> T,
    ) -> PyResult<T> {
        let rest = self.items.get(self.taken..).ok_or_else(|| lost(py))?;
        let mut headers = Vec::new();
        let mut ends = Vec::new();
        for item in rest {
            if let Item::Record(record) = item {
                record.get().push_headers(py, &mut headers)?;
                ends.push(headers.len());
            }
        }
        let (mut ends, mut from) = (ends.into_iter(), 0);
        let records = rest
            .iter()
            .map(|item| {
                let mut own: &[Header<'_>] = &[];
                if let Item::Record(_) = item
                    && let Some(to) = ends.next()
                {
                    own = headers.get(from..to).ok_or_else(|| lost(py))?;
                    from = to;
                }
                Ok(item.borrow(py, &self.topic, own))
            })
            .collect::<PyResult<Vec<ottla::Record<'_>>>>()?;
        Ok(look(&records))
    }
}
