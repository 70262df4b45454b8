//! Looking at a data directory without changing it: what is whole, and what is not.
//!
//! [`check_directory`] reads every batch of every log, and holds indexes, epochs, snapshots and
//! checkpoints against them. [`crate::repair`] takes what it found and mends it.

mod beside;
mod segment;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::checkpoint::{
    CleanShutdown, HIGH_WATERMARKS, LOG_STARTS, MetaProperties, OffsetCheckpoint, RECOVERY_POINTS,
};
use crate::error::LogError;
use crate::files::Files;
use crate::folder::{folder_name, parse_folder_name};
use crate::lock::DirectoryLock;

use segment::LogWalk;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// What a stop without a marker leaves behind, or a producer sent: the next start deals with
    /// it, or nobody needs to.
    Note,
    /// What was safe is gone or changed.
    Damage,
}

/// What a repair would do about a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Take these bytes out of the segment of this base offset.
    CutOut { base: i64, position: u64, len: u64 },
    /// Put the file out of the way: the next start makes it anew.
    SetAside,
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub path: PathBuf,
    /// Byte in the file where it begins.
    pub position: Option<u64>,
    /// First offset concerned, and the one after the last, if that is known.
    pub offsets: Option<(i64, Option<i64>)>,
    /// What is wrong.
    pub what: String,
    pub(crate) remedy: Option<Remedy>,
}

impl Finding {
    fn new(severity: Severity, path: &Path, what: impl Into<String>) -> Self {
        let (path, what) = (path.to_owned(), what.into());
        Self { severity, path, position: None, offsets: None, what, remedy: None }
    }

    /// A file that can be made anew from others.
    fn broken(severity: Severity, path: &Path, what: impl Into<String>) -> Self {
        Self { remedy: Some(Remedy::SetAside), ..Self::new(severity, path, what) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.severity {
            Severity::Damage => "damage: ",
            Severity::Note => "note: ",
        })?;
        write!(f, "{}", self.path.display())?;
        if let Some(position) = self.position {
            write!(f, ", byte {position}")?;
        }
        match self.offsets {
            Some((from, Some(end))) if end > from => {
                write!(f, ", offsets {from} to {}", end - 1)?;
            }
            Some((from, _)) => write!(f, ", offset {from}")?,
            None => {}
        }
        write!(f, ": {}", self.what)
    }
}

/// What is known about a log before its batches are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Whether its last owner stopped in good order: then nothing can be torn.
    pub clean: bool,
    /// Whether the machine has run on since: then only the very end can be torn.
    pub same_boot: bool,
    /// Offset below which all was flushed.
    pub recovery_point: i64,
    /// Least offset to read.
    pub log_start: i64,
    /// Bytes of the log between two index entries, where a gap in an index is to be found.
    pub index_interval_bytes: Option<u64>,
}

/// What one log holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogCheck {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Segments.
    pub segments: usize,
    /// Good batches.
    pub batches: u64,
    /// Records, as the good batches count them.
    pub records: u64,
    /// Bytes in all segments.
    pub bytes: u64,
    /// Offset after the last good batch.
    pub log_end: i64,
    /// What is not as it should be.
    pub findings: Vec<Finding>,
}

/// What a data directory holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryCheck {
    /// Whether its last owner stopped in good order.
    pub clean: bool,
    /// Its logs, in the order of their folders' names.
    pub logs: Vec<LogCheck>,
    /// What is wrong with the files beside them.
    pub findings: Vec<Finding>,
}

impl DirectoryCheck {
    /// All findings, those of the directory's own files first.
    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().chain(self.logs.iter().flat_map(|log| &log.findings))
    }

    /// How many findings are damage.
    pub fn damages(&self) -> usize {
        self.all_findings().filter(|finding| finding.severity == Severity::Damage).count()
    }
}

/// Reads a data directory and tells what is wrong with it. Changes nothing.
///
/// An error where the directory itself cannot be read. With `only`, of all logs but that one
/// nothing is read.
pub fn check_directory(
    files: &dyn Files,
    dir: &Path,
    only: Option<(&str, i32)>,
) -> Result<DirectoryCheck, LogError> {
    let entries = files.list(dir).map_err(|error| LogError::io(dir, "cannot list", error))?;
    let clean = CleanShutdown::is_there(files, dir)?;
    let same_boot = DirectoryLock::noted_this_boot(dir);
    let mut check = DirectoryCheck { clean, ..DirectoryCheck::default() };
    let mut checkpoint = |name: &str| {
        let path = dir.join(name);
        OffsetCheckpoint::read(files, &path).unwrap_or_else(|error| {
            check.findings.push(beside::unreadable(&path, &error));
            OffsetCheckpoint::default()
        })
    };
    let recovery_points = checkpoint(RECOVERY_POINTS);
    let log_starts = checkpoint(LOG_STARTS);
    checkpoint(HIGH_WATERMARKS);
    if let Err(error) = MetaProperties::read(files, dir) {
        // Nothing tells whose directory it is but this file, so it is not for a repair.
        check.findings.push(Finding::new(Severity::Damage, error.path(), error.reason()));
    }
    let mut names: Vec<_> = entries.into_iter().filter(|entry| entry.is_dir).collect();
    names.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in names {
        let Some((topic, partition)) = parse_folder_name(&entry.name) else { continue };
        if only.is_some_and(|only| only != (topic, partition)) {
            continue;
        }
        let point = |checkpoint: &OffsetCheckpoint| checkpoint.get(topic, partition).unwrap_or(0);
        let known = Known {
            clean,
            same_boot,
            recovery_point: point(&recovery_points),
            log_start: point(&log_starts),
            index_interval_bytes: None,
        };
        let log = check_log(files, &dir.join(folder_name(topic, partition)), known)?;
        check.logs.push(LogCheck { topic: topic.to_owned(), partition, ..log });
    }
    Ok(check)
}

/// Reads the log of one folder and tells what is wrong with it. Changes nothing.
pub fn check_log(files: &dyn Files, dir: &Path, known: Known) -> Result<LogCheck, LogError> {
    let entries = files.list(dir).map_err(|error| LogError::io(dir, "cannot list", error))?;
    let mut walk = LogWalk::new(files, dir, known);
    let folder = beside::Folder::of(&entries);
    for &(base, size) in &folder.segments {
        walk.segment(base, size, &folder);
    }
    let mut check = walk.finish();
    beside::check(files, dir, known, &folder, &mut check);
    check.segments = folder.segments.len();
    Ok(check)
}
