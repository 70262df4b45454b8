//! What a log's folder holds, and the removal of what does not belong there.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::error::{LogError, LogErrorKind};
use crate::files::Files;
use crate::folder::{INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, file_name, parse_file_name};

/// The files of a log's folder.
#[derive(Debug, Default)]
pub(super) struct Listing {
    logs: BTreeMap<i64, u64>,
    indexes: BTreeMap<i64, u64>,
    time_indexes: BTreeMap<i64, u64>,
    pub(super) snapshots: Vec<i64>,
}

impl Listing {
    /// Lists a folder, which is made if it is not there, and removes left-overs from it.
    pub(super) fn read(files: &dyn Files, dir: &Path) -> Result<Self, LogError> {
        let entries = match files.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                files
                    .create_dir_all(dir)
                    .map_err(|error| LogError::io(dir, "cannot make the folder", error))?;
                return Ok(Self::default());
            }
            entries => {
                entries.map_err(|error| LogError::io(dir, "cannot list the folder", error))?
            }
        };
        let mut listing = Self::default();
        let mut transactions = Vec::new();
        for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
            let name = entry.name.as_str();
            if let Some(left_over) =
                [".deleted", ".cleaned", ".tmp"].into_iter().find(|&ending| name.ends_with(ending))
            {
                tracing::debug!(file = name, left_over, "removing what an earlier run left");
                remove(files, &dir.join(name))?;
                continue;
            }
            if name.strip_suffix(".swap").is_some() {
                let what = "a compaction of another broker was cut short here; \
                    start and stop that broker once, so that it completes it";
                return Err(LogError::new(LogErrorKind::Foreign, &dir.join(name), what));
            }
            match parse_file_name(name) {
                Some((base, LOG)) => {
                    listing.logs.insert(base, entry.len);
                }
                Some((base, INDEX)) => {
                    listing.indexes.insert(base, entry.len);
                }
                Some((base, TIME_INDEX)) => {
                    listing.time_indexes.insert(base, entry.len);
                }
                Some((base, TXN_INDEX)) => transactions.push(base),
                Some((offset, SNAPSHOT)) => listing.snapshots.push(offset),
                _ => {}
            }
        }
        listing.remove_orphans(files, dir, &transactions)?;
        Ok(listing)
    }

    /// Removes indexes whose segment is gone.
    fn remove_orphans(
        &mut self,
        files: &dyn Files,
        dir: &Path,
        transactions: &[i64],
    ) -> Result<(), LogError> {
        let orphans = |bases: Vec<i64>, kind: &str| {
            let orphans = bases.into_iter().filter(|base| !self.logs.contains_key(base));
            orphans.map(|base| dir.join(file_name(base, kind))).collect::<Vec<_>>()
        };
        let mut paths = orphans(self.indexes.keys().copied().collect(), INDEX);
        paths.extend(orphans(self.time_indexes.keys().copied().collect(), TIME_INDEX));
        paths.extend(orphans(transactions.to_vec(), TXN_INDEX));
        for path in paths {
            tracing::warn!(path = %path.display(), "removing an index without a segment");
            remove(files, &path)?;
        }
        Ok(())
    }

    /// Removes snapshots that are not below the recovery point: after a power cut they may be those
    /// of batches that were truncated since. The batches tell all that they did; only of those that
    /// went before the first segment a snapshot is all that is left.
    pub(super) fn drop_unflushed_snapshots(
        &mut self,
        files: &dyn Files,
        dir: &Path,
        recovery_point: i64,
    ) -> Result<(), LogError> {
        self.snapshots.sort_unstable();
        let first = self.logs.first_key_value().map_or(0, |(base, _)| *base);
        let unflushed = |offset: &mut i64| *offset >= recovery_point && *offset > first;
        while let Some(unflushed) = self.snapshots.pop_if(unflushed) {
            remove_snapshot(files, dir, unflushed)?;
        }
        Ok(())
    }

    /// Base offsets of the segments, rising.
    pub(super) fn bases(&self) -> Vec<i64> {
        self.logs.keys().copied().collect()
    }

    pub(super) fn log_len(&self, base: i64) -> u64 {
        self.logs.get(&base).copied().unwrap_or(0)
    }

    /// Bytes of a segment's two indexes; `None` where the file is missing.
    pub(super) fn index_lens(&self, base: i64) -> (Option<u64>, Option<u64>) {
        (self.indexes.get(&base).copied(), self.time_indexes.get(&base).copied())
    }
}

/// Removes a file; one that is not there is removed already.
fn remove(files: &dyn Files, path: &Path) -> Result<(), LogError> {
    match files.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(LogError::io(path, "cannot remove", error))
        }
        _ => Ok(()),
    }
}

/// Removes the files of a segment, the log first: without it the others are left-overs.
pub(crate) fn remove_segment(files: &dyn Files, dir: &Path, base: i64) -> Result<(), LogError> {
    for kind in [LOG, INDEX, TIME_INDEX, TXN_INDEX] {
        remove(files, &dir.join(file_name(base, kind)))?;
    }
    Ok(())
}

pub(super) fn remove_snapshot(files: &dyn Files, dir: &Path, offset: i64) -> Result<(), LogError> {
    remove(files, &dir.join(file_name(offset, SNAPSHOT)))
}
