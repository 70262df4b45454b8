//! What a commit takes: records, batches, offsets.

use ottla::{Commit, ConsumerRecord, OffsetAndMetadata, TopicPartition};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyTuple};

use crate::batch::Batch;
use crate::record::Record;

/// What is to be committed.
pub(crate) enum What<'py> {
    Finished,
    Batch(Bound<'py, Batch>),
    Record(ConsumerRecord),
    Offsets(Vec<(TopicPartition, OffsetAndMetadata)>),
}

impl<'py> What<'py> {
    pub(crate) fn new(given: Option<&Bound<'py, PyAny>>) -> PyResult<Self> {
        let Some(given) = given else { return Ok(Self::Finished) };
        if let Ok(batch) = given.cast::<Batch>() {
            return Ok(Self::Batch(batch.clone()));
        }
        if let Ok(record) = given.cast::<Record>() {
            let record = record.get();
            let offset = || {
                let (partition, next) = record.next_offset(given.py())?;
                Some(Self::Offsets(vec![(partition, OffsetAndMetadata::new(next))]))
            };
            let what = record.read().map(Self::Record).or_else(offset);
            return what
                .ok_or_else(|| PyTypeError::new_err("the record was not read by a consumer"));
        }
        if let Ok(offsets) = given.cast::<PyMapping>() {
            let mut all = Vec::with_capacity(offsets.len()?);
            for row in offsets.items()? {
                let ((topic, partition), offset): ((String, i32), Bound<'_, PyAny>) =
                    row.extract()?;
                all.push((TopicPartition::new(topic, partition), place(&offset)?));
            }
            return Ok(Self::Offsets(all));
        }
        let kind = given.get_type().name()?;
        let text = format!("commit a Record, a Batch, a dict of offsets or None, not {kind}");
        Err(PyTypeError::new_err(text))
    }

    pub(crate) fn as_commit(&self) -> Commit<'_> {
        match self {
            Self::Finished => Commit::Finished,
            Self::Batch(batch) => Commit::Batch(batch.get().core()),
            Self::Record(record) => Commit::Record(record),
            Self::Offsets(offsets) => Commit::OffsetsAndMetadata(offsets),
        }
    }
}

/// An offset, with what is kept beside it or without.
fn place(given: &Bound<'_, PyAny>) -> PyResult<OffsetAndMetadata> {
    if !given.is_instance_of::<PyTuple>() {
        return given.extract().map(OffsetAndMetadata::new);
    }
    let (offset, metadata, leader_epoch) = given.extract()?;
    Ok(OffsetAndMetadata { offset, leader_epoch, metadata })
}
