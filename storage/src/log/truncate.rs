//! Truncation: a follower's records that its leader does not have go.

use std::sync::Arc;

use super::Log;
use crate::checkpoint::sync_dir;
use crate::error::{LogError, LogErrorKind};
use crate::recovery;
use crate::segment::segment_of;

impl Log {
    /// Removes all records from `offset` on; a batch that holds it goes whole.
    ///
    /// Offsets at or above the log end change nothing. Below the log start is an error: a follower
    /// that far off starts a new log.
    pub fn truncate_to(&mut self, offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.writable()?;
        if offset >= self.log_end {
            return Ok(());
        }
        if offset < self.log_start {
            let what = format!("cannot truncate below the log start of {}", self.log_start);
            return Err(LogError::new(LogErrorKind::Usage, &self.dir, what).at(offset));
        }
        match self.cut(offset, now_ms) {
            Ok(()) => {
                self.publish();
                Ok(())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    fn cut(&mut self, offset: i64, now_ms: i64) -> Result<(), LogError> {
        let files = Arc::clone(&self.files);
        let index = segment_of(&self.segments, |segment| segment.base, offset).unwrap_or(0);
        let Some(segment) = self.segments.get(index).map(Arc::clone) else { return Ok(()) };
        for later in self.segments.iter().skip(index + 1).rev() {
            recovery::remove_segment(files.as_ref(), &self.dir, later.base)?;
        }
        if index + 1 < self.segments.len() {
            // Were the end of this segment gone and a later one back after a power cut, a gap would
            // stand between them that no leader wrote.
            sync_dir(files.as_ref(), &self.dir)?;
        }
        let extent =
            if index + 1 == self.segments.len() { self.active.extent() } else { segment.whole() };
        let found = extent.locate(offset);
        let cut = found.map_err(|error| recovery::walk_error(&segment, error))?.batch;
        let (size, end) = match cut {
            Some(batch) => (batch.position, batch.header.base_offset.min(offset)),
            // Compaction may have taken the records from there on.
            None => (extent.size(), offset),
        };
        segment
            .file
            .set_len(size)
            .map_err(|error| LogError::io(&segment.path, "cannot truncate", error))?;
        let sealed = self.segments.get(..index).unwrap_or_default().to_vec();
        let rebuilt = recovery::reload(
            &files,
            &self.dir,
            &self.config,
            &sealed,
            (segment.base, Arc::clone(&segment.file), size, end),
            now_ms,
        )?;
        self.active = rebuilt.active;
        self.producers = rebuilt.producers;
        self.log_end = end;
        self.log_start = self.log_start.min(end);
        self.recovery_point = self.recovery_point.min(end);
        self.truncations += 1;
        if self.epochs.truncate_end(end) {
            self.epochs.write(files.as_ref())?;
        }
        let mut segments = sealed;
        segments.push(Arc::clone(self.active.shared()));
        self.segments = Arc::new(segments);
        self.unsynced_names = true;
        self.changed = true;
        Ok(())
    }
}
