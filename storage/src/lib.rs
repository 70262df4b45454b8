//! One partition's log on disk, in Apache Kafka's own formats.
//!
//! [`Log`] is owned by one thread at a time: it appends, rolls, truncates and flushes. Any number
//! of [`LogReader`]s read beside it without a lock. Everything goes through [`Files`], so a log
//! lives on disk ([`DiskFiles`]) or in memory ([`MemoryFiles`]) and behaves the same.
//! [`validate_set`] judges what a producer sent before it comes to the log; `checkpoint` holds the
//! small files that lie beside the partitions, and [`DirectoryLock`] keeps a second owner out.
//!
//! There is no thread, no clock and no randomness in here: time is an argument.

pub mod check;
pub mod checkpoint;
pub mod config;
pub mod epochs;
pub mod error;
pub mod files;
pub mod folder;
mod index;
pub mod lock;
pub mod log;
mod producers;
mod recovery;
pub mod repair;
mod segment;
pub mod validate;
mod walk;

pub use checkpoint::{CleanShutdown, MetaProperties, OffsetCheckpoint};
pub use config::LogConfig;
pub use epochs::EpochEntry;
pub use error::{LogError, LogErrorKind, ReadError, Rejected};
pub use files::{
    DirEntry, DiskFiles, Fault, FaultyFiles, File, Files, MemoryFiles, Moment, OpenMode,
    SealedBytes, SealedFile, Space, Survives, Wait,
};
pub use lock::DirectoryLock;
pub use log::{
    Appended, BatchPlace, FlushJob, Flushed, Incoming, Log, LogReader, Lookup, OpenReport, Opening,
    Origin, ReadRange, ReplicaAppended, Retention, TimeLookup, TimedOffset,
};
pub use producers::ActiveProducer;
pub use validate::{Accepted, AppendRules, validate_set};
