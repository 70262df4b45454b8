//! Flushing what was appended, and closing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Log;
use crate::checkpoint::sync_dir;
use crate::epochs::UnsyncedEpochs;
use crate::error::{LogError, LogErrorKind};
use crate::files::{File, Files, OpenMode};
use crate::folder::{INDEX, LOG, SNAPSHOT, TIME_INDEX, file_name};
use crate::segment::segment_of;

/// A flush of a log, to be run by any thread while the owner appends on.
///
/// Hand what it gives to [`Log::finish_flush`].
#[derive(Debug)]
#[must_use = "nothing is flushed until the job runs"]
pub struct FlushJob {
    files: Arc<dyn Files>,
    dir: PathBuf,
    data: Vec<(PathBuf, Arc<dyn File>)>,
    /// Indexes and snapshots of sealed segments, as far as they are there.
    beside: Vec<PathBuf>,
    epochs: Option<UnsyncedEpochs>,
    /// Whether the names in the folder are to be flushed, and its own name.
    names: bool,
    folder: bool,
    flushed: Flushed,
}

/// What a [`FlushJob`] did, for [`Log::finish_flush`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flushed {
    log_end: i64,
    truncations: u64,
}

impl FlushJob {
    /// Flushes.
    pub fn run(self) -> Result<Flushed, LogError> {
        let files = self.files.as_ref();
        for (path, file) in &self.data {
            file.sync_data().map_err(|error| LogError::io(path, "cannot flush", error))?;
        }
        for path in &self.beside {
            match files.open(path, OpenMode::Read).and_then(|file| file.sync_data()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(LogError::io(path, "cannot flush", error));
                }
                _ => {}
            }
        }
        if let Some(epochs) = &self.epochs {
            epochs.write(files)?;
        }
        // A new file, or a new folder, can vanish if what holds its name is not flushed
        // (KAFKA-3968). Once for all names of this job.
        if self.names || self.epochs.is_some() {
            sync_dir(files, &self.dir)?;
        }
        if self.folder
            && let Some(parent) = self.dir.parent()
        {
            sync_dir(files, parent)?;
        }
        Ok(self.flushed)
    }
}

impl Log {
    /// Makes all that was appended durable. Gives the new recovery point.
    ///
    /// A flush that fails fails the log: a second one could succeed with the data gone.
    pub fn flush(&mut self) -> Result<i64, LogError> {
        let outcome = self.flush_job()?.run();
        self.finish_flush(outcome)
    }

    /// The flush as a job for another thread.
    pub fn flush_job(&mut self) -> Result<FlushJob, LogError> {
        self.writable()?;
        let first =
            segment_of(&self.segments, |segment| segment.base, self.recovery_point).unwrap_or(0);
        // What was sealed since: also the segment that ended where the last flush did.
        let sealed = self.segments.partition_point(|segment| segment.base < self.recovery_point);
        let sealed = sealed.saturating_sub(1);
        // After a crash the batches tell the epochs that begin in the recovery point's segment and
        // later. Only for those before it the file must be right, so a flush of the active segment
        // alone can do without.
        let seals = sealed + 1 < self.segments.len();
        let mut job = FlushJob {
            files: Arc::clone(&self.files),
            dir: self.dir.clone(),
            data: Vec::new(),
            beside: Vec::new(),
            epochs: if seals { self.epochs.take_unsynced() } else { None },
            names: std::mem::take(&mut self.unsynced_names),
            folder: std::mem::take(&mut self.unsynced_folder),
            flushed: Flushed { log_end: self.log_end, truncations: self.truncations },
        };
        if self.recovery_point == self.log_end {
            return Ok(job);
        }
        for segment in self.segments.iter().skip(first) {
            job.data.push((self.dir.join(file_name(segment.base, LOG)), Arc::clone(&segment.file)));
        }
        // Indexes of the active segment are rebuilt after a crash, so they need no flush.
        for pair in self.segments.windows(2).skip(sealed) {
            if let [sealed, next] = pair {
                let named = |base, kind| self.dir.join(file_name(base, kind));
                job.beside.push(named(sealed.base, INDEX));
                job.beside.push(named(sealed.base, TIME_INDEX));
                job.beside.push(named(next.base, SNAPSHOT));
            }
        }
        Ok(job)
    }

    /// Tells that others changed names in the folder, or beside it: the next flush makes these
    /// durable together with the log's own.
    pub fn note_names(&mut self) {
        self.unsynced_names = true;
        self.unsynced_folder = true;
    }

    /// Takes what a [`FlushJob`] gave. A failed one fails the log, unless a file could not be opened
    /// for lack of descriptors: then nothing failed to be flushed, and the next job does it.
    pub fn finish_flush(&mut self, outcome: Result<Flushed, LogError>) -> Result<i64, LogError> {
        match outcome {
            Ok(flushed) => {
                // What was truncated while the job ran may have been written anew since.
                if flushed.truncations == self.truncations {
                    self.recovery_point = self.recovery_point.max(flushed.log_end);
                }
                Ok(self.recovery_point)
            }
            Err(error) if error.kind() == LogErrorKind::OutOfDescriptors => {
                self.unsynced_names = true;
                self.unsynced_folder = true;
                self.epochs.note_unsynced();
                Err(error)
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Ends the log cleanly: all flushed, indexes complete, a snapshot of the producers at its end.
    ///
    /// Gives the recovery point, for the checkpoint. Only if every log of a directory closed
    /// without an error may the directory get its marker of a clean shutdown (KAFKA-13773).
    pub fn close(mut self) -> Result<i64, LogError> {
        self.writable()?;
        if !self.changed && self.recovery_point == self.log_end {
            return Ok(self.recovery_point);
        }
        let files = Arc::clone(&self.files);
        self.active.complete_indexes(files.as_ref())?;
        self.producers.write_snapshot(files.as_ref(), &self.dir, self.log_end)?;
        self.unsynced_names = true;
        let mut job = self.flush_job()?;
        // A clean start trusts the file.
        job.epochs = job.epochs.or_else(|| self.epochs.take_unsynced());
        job.beside.extend(self.active.index_paths().map(Path::to_owned));
        job.beside.push(self.dir.join(file_name(self.log_end, SNAPSHOT)));
        let outcome = job.run();
        self.finish_flush(outcome)
    }
}
