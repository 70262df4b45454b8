//! What goes wrong with a log: which file, at which offset, and what to do about it.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_protocol::ErrorCode;

/// What kind of trouble a [`LogError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogErrorKind {
    /// The operating system refused a file operation.
    Io,
    /// The disk is full. What was there before is whole, and the log goes on once there is room.
    StorageFull,
    /// The process, or the system, can open no more files. The log goes on once it can.
    OutOfDescriptors,
    /// Bytes in the log are damaged and valid records follow them; nothing was cut.
    Damaged,
    /// The folder belongs to something else: another topic, another cluster, another program.
    Foreign,
    /// Another process, or another part of this one, uses the directory.
    Locked,
    /// A small file does not have its format.
    Malformed,
    /// The log was failed by an earlier error and takes no more writes until it is opened again.
    Failed,
    /// The caller asked for what a log cannot do.
    Usage,
}

/// An error of a log or of a file beside it.
#[derive(Debug, Clone)]
pub struct LogError {
    kind: LogErrorKind,
    path: PathBuf,
    offset: Option<i64>,
    what: Cow<'static, str>,
    cause: Option<Arc<io::Error>>,
}

impl LogError {
    pub(crate) fn new(kind: LogErrorKind, path: &Path, what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, path: path.to_owned(), offset: None, what: what.into(), cause: None }
    }

    /// An error of the operating system while doing `what` with `path`.
    pub(crate) fn io(path: &Path, what: &'static str, cause: io::Error) -> Self {
        let kind = match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => LogErrorKind::StorageFull,
            _ => match rustix::io::Errno::from_io_error(&cause) {
                Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                    LogErrorKind::OutOfDescriptors
                }
                _ => LogErrorKind::Io,
            },
        };
        Self { cause: Some(Arc::new(cause)), ..Self::new(kind, path, what) }
    }

    /// An error of the operating system with a file or folder of a log directory.
    pub fn of_file(path: &Path, cause: io::Error) -> Self {
        Self::io(path, "cannot be used", cause)
    }

    pub(crate) fn malformed(path: &Path, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(LogErrorKind::Malformed, path, what)
    }

    pub(crate) const fn at(mut self, offset: i64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Whether it may be over soon, and leaves the log as it was.
    pub const fn is_passing(&self) -> bool {
        matches!(self.kind, LogErrorKind::StorageFull | LogErrorKind::OutOfDescriptors)
    }

    /// What kind of trouble it is.
    pub const fn kind(&self) -> LogErrorKind {
        self.kind
    }

    /// The file or folder concerned.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The record offset concerned, where there is one.
    pub const fn offset(&self) -> Option<i64> {
        self.offset
    }

    /// What went wrong, without the file's name and without the hint.
    pub fn reason(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {cause}", self.what),
            None => self.what.to_string(),
        }
    }

    /// What a person can do about it.
    pub const fn hint(&self) -> &'static str {
        match self.kind {
            LogErrorKind::Io => "look at the system's log for errors of this disk",
            LogErrorKind::StorageFull => "make room on the disk; nothing stored was lost",
            LogErrorKind::OutOfDescriptors => {
                "raise the limit of open files (ulimit -n); nothing stored was lost"
            }
            LogErrorKind::Damaged => {
                "`ottla-broker check` shows all damage, `ottla-broker repair` what it would drop"
            }
            LogErrorKind::Foreign => "point the log directory at the right folder",
            LogErrorKind::Locked => "stop the other broker, or give this one another directory",
            LogErrorKind::Malformed => "remove the file; it is rebuilt at the next start",
            LogErrorKind::Failed => "see the first error of this log; open it again to recover",
            LogErrorKind::Usage => "this is a mistake in the calling program",
        }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)?;
        if let Some(offset) = self.offset {
            write!(f, " (offset {offset})")?;
        }
        if let Some(cause) = &self.cause {
            write!(f, ": {cause}")?;
        }
        let partition = self.path.parent().filter(|_| self.kind == LogErrorKind::Damaged);
        if let Some(partition) = partition
            && let (Some(dir), Some(name)) = (partition.parent(), partition.file_name())
        {
            let (dir, name) = (dir.display(), name.to_string_lossy());
            return write!(
                f,
                "; stop the broker; `ottla-broker check --data {dir}` shows all damage, \
                 `ottla-broker repair --data {dir} --partition {name}` what it would drop"
            );
        }
        write!(f, "; {}", self.hint())
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause: &(dyn std::error::Error + 'static) = self.cause.as_deref()?;
        Some(cause)
    }
}

/// A set that is not stored, with what its producer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The error code of the answer.
    pub code: ErrorCode,
    /// The reason in words.
    pub message: String,
    /// The record at fault, counted from 0 in its batch, where it is one record's fault.
    pub batch_index: Option<i32>,
}

impl Rejected {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), batch_index: None }
    }

    pub(crate) const fn at_record(mut self, index: i32) -> Self {
        self.batch_index = Some(index);
        self
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        match self.batch_index {
            Some(index) => write!(f, " (record {index} of the batch)"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Rejected {}

/// Why a read gives nothing.
#[derive(Debug, Clone)]
pub enum ReadError {
    /// The offset is below the log start or above the log end.
    OutOfRange {
        /// First offset that can be read.
        log_start: i64,
        /// Offset of the next record to come.
        log_end: i64,
    },
    /// It would have to wait for the disk, and was told not to.
    Cold,
    /// The operating system failed.
    Io(LogError),
    /// The log's bytes make no sense at this place.
    Corrupt(LogError),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { log_start, log_end } => {
                write!(f, "offset out of range: the log holds {log_start} to below {log_end}")
            }
            Self::Cold => f.write_str("the bytes are on the disk only"),
            Self::Io(error) | Self::Corrupt(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OutOfRange { .. } | Self::Cold => None,
            Self::Io(error) | Self::Corrupt(error) => Some(error),
        }
    }
}
