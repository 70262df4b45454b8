//! The small files beside a log's segments.

use std::path::Path;

use super::{Finding, Known, LogCheck, Severity};
use crate::epochs::Epochs;
use crate::error::LogError;
use crate::files::{DirEntry, Files};
use crate::folder::{INDEX, LOG, SNAPSHOT, TIME_INDEX, file_name, parse_file_name};
use crate::producers::Producers;

/// What a log's folder holds, by the names alone.
pub(super) struct Folder {
    /// Base offset and bytes of each segment, rising.
    pub(super) segments: Vec<(i64, u64)>,
    snapshots: Vec<i64>,
    indexes: Vec<(i64, &'static str)>,
    /// Files that the next start removes, or cannot deal with.
    others: Vec<String>,
}

impl Folder {
    pub(super) fn of(entries: &[DirEntry]) -> Self {
        let mut folder = Self {
            segments: Vec::new(),
            snapshots: Vec::new(),
            indexes: Vec::new(),
            others: Vec::new(),
        };
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            match parse_file_name(&entry.name) {
                Some((base, LOG)) => folder.segments.push((base, entry.len)),
                Some((offset, SNAPSHOT)) => folder.snapshots.push(offset),
                Some((base, INDEX)) => folder.indexes.push((base, INDEX)),
                Some((base, TIME_INDEX)) => folder.indexes.push((base, TIME_INDEX)),
                _ => folder.others.push(entry.name.clone()),
            }
        }
        folder.segments.sort_unstable();
        folder.snapshots.sort_unstable();
        folder.others.sort_unstable();
        folder
    }
}

/// A small file that does not have its format, or cannot be read.
pub(super) fn unreadable(path: &Path, error: &LogError) -> Finding {
    Finding::broken(Severity::Damage, path, error.reason())
}

/// Looks at the epochs, the snapshots, and the names that do not belong there.
pub(super) fn check(
    files: &dyn Files,
    dir: &Path,
    known: Known,
    folder: &Folder,
    check: &mut LogCheck,
) {
    if let Err(error) = Epochs::read(files, dir) {
        check.findings.push(unreadable(error.path(), &error));
    }
    for &offset in &folder.snapshots {
        let path = dir.join(file_name(offset, SNAPSHOT));
        if let Err(error) = Producers::read_snapshot(files, dir, offset) {
            // A snapshot that was not flushed may be anything after a power cut.
            let safe = known.clean || offset <= known.recovery_point;
            let severity = if safe { Severity::Damage } else { Severity::Note };
            check.findings.push(Finding::broken(severity, &path, error.reason()));
        } else if offset > check.log_end {
            let what = format!("the log ends with {}: the next start removes it", check.log_end);
            check.findings.push(Finding::new(Severity::Note, &path, what));
        }
    }
    for &(base, kind) in &folder.indexes {
        if folder.segments.binary_search_by_key(&base, |segment| segment.0).is_err() {
            let what = "an index without a segment: the next start removes it";
            let path = dir.join(file_name(base, kind));
            check.findings.push(Finding::new(Severity::Note, &path, what));
        }
    }
    for name in &folder.others {
        let what = match name.rsplit_once('.') {
            Some((_, "swap")) => {
                "a compaction of another broker was cut short here; this one does not open the log"
            }
            Some((_, "deleted" | "cleaned" | "tmp")) => "left over: the next start removes it",
            _ => continue,
        };
        check.findings.push(Finding::new(Severity::Note, &dir.join(name), what));
    }
    if known.recovery_point > check.log_end {
        let what = format!(
            "all below {} was flushed, but the log ends with {}",
            known.recovery_point, check.log_end
        );
        check.findings.push(Finding::new(Severity::Note, dir, what));
    }
}
