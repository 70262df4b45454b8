//! Record batches of format 2: parse, check, iterate, build and seal, with as few copies as can be.
//!
//! * Reading a set of batches in place: [`batches`], [`Batch`], [`BatchHeader`], [`stamp`].
//! * Records of a batch: [`Batch::records`] while the bytes are borrowed, [`DecodedBatch`] to keep
//!   them, [`IndexedBatch`] to take any record at once and without a further check.
//! * Looking at records without holding them, and packing them anew: [`RecordScan`].
//! * Writing: [`NewRecord`] straight into a buffer, [`seal()`] for the header, [`BatchBuilder`] where
//!   one contiguous batch is all that is wanted.
//!
//! Stored and received bytes are hostile: each length is bounded by what remains, nothing panics,
//! and [`BatchError`] and [`RecordError`] say where the bytes stop making sense.

pub mod batch;
pub mod builder;
pub mod compression;
pub mod control;
pub mod crc;
pub mod decoded;
pub mod error;
mod fields;
pub mod iter;
pub mod scan;
pub mod seal;
pub mod varint;

pub use batch::{
    Attributes, Batch, BatchHeader, HEADER_LEN, TimestampType, batches, stamp, stamp_append_time,
    stamp_max_timestamp,
};
pub use builder::{BatchBuilder, HeaderPair, MeasuredRecord, NO_HEADERS, NewRecord, NoHeaders};
pub use compression::{Codec, Compression, CompressionError, Compressor, Decompressor};
pub use control::{ControlKind, ControlRecord, EndTxnMarker};
pub use decoded::{BatchRecords, DecodedBatch, IndexedBatch, RecordRow};
pub use error::{BatchError, RecordError};
pub use iter::{Headers, RecordIter, RecordView};
pub use scan::{RecordOutline, RecordScan, ScanError};
pub use seal::{BatchSeal, BatchSpan, reseal, seal};

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
