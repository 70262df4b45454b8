//! A fetched batch of one partition: records made when touched, and columns made in one go.

use std::sync::atomic::{AtomicUsize, Ordering};

use ottla::Batch as CoreBatch;
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyIndexError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PySlice, PyString};

use crate::boundary::guard;
use crate::record::Record;

/// Records of one partition, in the order of their offsets; never empty.
///
/// It is iterated, indexed, sliced and measured by len(). It may be kept, and read from any thread, for as
/// long as one likes; it keeps the memory of its fetch alive.
#[pyclass(frozen, sequence, module = "ottla", name = "Batch")]
pub(crate) struct Batch {
    core: CoreBatch,
    topic: PyOnceLock<Py<PyString>>,
}

impl Batch {
    pub(crate) fn new(core: CoreBatch) -> Self {
        Self { core, topic: PyOnceLock::new() }
    }

    pub(crate) const fn core(&self) -> &CoreBatch {
        &self.core
    }

    /// The topic's name, made once a batch.
    pub(crate) fn topic_name(&self, py: Python<'_>) -> Py<PyString> {
        let made = || PyString::intern(py, self.core.topic()).unbind();
        self.topic.get_or_init(py, made).clone_ref(py)
    }
}

/// Whole numbers as a column: a read-only memoryview of 64-bit integers.
pub(crate) fn column(
    py: Python<'_>,
    numbers: impl ExactSizeIterator<Item = i64>,
) -> PyResult<Bound<'_, PyAny>> {
    let mut packed = Vec::with_capacity(numbers.len() * size_of::<i64>());
    numbers.for_each(|number| packed.extend_from_slice(&number.to_ne_bytes()));
    let view = PyMemoryView::from(&PyBytes::new(py, &packed))?;
    view.call_method1(intern!(py, "cast"), (intern!(py, "q"),))
}

/// What a batch is indexed by.
#[derive(FromPyObject)]
enum Index<'py> {
    At(isize),
    Slice(Bound<'py, PySlice>),
}

/// The place of an index among so many; one below 0 counts from the end.
pub(crate) fn place(index: isize, len: usize) -> PyResult<usize> {
    let place = if index < 0 { len.checked_add_signed(index) } else { usize::try_from(index).ok() };
    let missing = || PyIndexError::new_err(format!("no record {index} among {len}"));
    place.filter(|&place| place < len).ok_or_else(missing)
}

#[pymethods]
impl Batch {
    /// The topic.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<PyString> {
        self.topic_name(py)
    }

    /// The partition.
    #[getter]
    fn partition(&self) -> i32 {
        self.core.partition()
    }

    /// Offset of the first record.
    #[getter]
    fn base_offset(&self) -> i64 {
        self.core.base_offset()
    }

    /// Offset of the last record.
    #[getter]
    fn last_offset(&self) -> i64 {
        self.core.last_offset()
    }

    /// What committing this batch commits: the offset to read on at.
    #[getter]
    fn next_offset(&self) -> i64 {
        self.core.next_offset()
    }

    /// The end of what could be read of the partition when this was fetched.
    #[getter]
    fn high_watermark(&self) -> i64 {
        self.core.high_watermark()
    }

    /// All offsets: a memoryview of int64, for `list`, `numpy.asarray` and the like.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guard(py, || column(py, self.core.records().map(|record| record.offset)))
    }

    /// All timestamps, milliseconds since the epoch: a memoryview of int64.
    #[getter]
    fn timestamps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guard(py, || column(py, self.core.records().map(|record| record.timestamp)))
    }

    /// All values: a list of bytes, None for null.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let values = self.core.records().map(|record| record.value);
        guard(py, || {
            PyList::new(py, values.map(|value| value.map(|value| PyBytes::new(py, value))))
        })
    }

    /// All keys: a list of bytes, None for null.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys = self.core.records().map(|record| record.key);
        guard(py, || PyList::new(py, keys.map(|key| key.map(|key| PyBytes::new(py, key)))))
    }

    fn __len__(&self) -> usize {
        self.core.len()
    }

    /// A record, or those of a slice as a list.
    fn __getitem__<'py>(this: &Bound<'py, Self>, index: Index<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (py, len) = (this.py(), this.get().core.len());
        let at = |place| Record::in_batch(this.clone().unbind(), place);
        let slice = match index {
            Index::At(index) => return at(place(index, len)?).into_bound_py_any(py),
            Index::Slice(slice) => slice,
        };
        let range = slice.indices(isize::try_from(len)?)?;
        let list = PyList::empty(py);
        for step in 0..isize::try_from(range.slicelength)? {
            list.append(at(usize::try_from(range.start + step * range.step)?))?;
        }
        Ok(list.into_any())
    }

    fn __iter__(this: &Bound<'_, Self>) -> BatchIterator {
        let len = this.get().core.len();
        BatchIterator { batch: this.clone().unbind(), len, at: AtomicUsize::new(0) }
    }

    fn __repr__(&self) -> String {
        format!(
            "<Batch {}-{} @{}..{}, {} records>",
            self.core.topic(),
            self.core.partition(),
            self.core.base_offset(),
            self.core.last_offset(),
            self.core.len()
        )
    }
}

/// Walks through a batch.
#[pyclass(frozen, module = "ottla._ottla")]
#[derive(Debug)]
pub(crate) struct BatchIterator {
    batch: Py<Batch>,
    len: usize,
    at: AtomicUsize,
}

#[pymethods]
impl BatchIterator {
    const fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> Option<Record> {
        // A number is taken once, so that two threads never get the same record.
        let at = self.at.fetch_add(1, Ordering::Relaxed);
        if at < self.len {
            return Some(Record::in_batch(self.batch.clone_ref(py), at));
        }
        self.at.store(self.len, Ordering::Relaxed);
        None
    }

    fn __length_hint__(&self) -> usize {
        self.len.saturating_sub(self.at.load(Ordering::Relaxed))
    }
}
