//! Rolling: sealing the active segment and beginning the next.

use std::sync::Arc;

use super::Log;
use crate::error::LogError;
use crate::segment::ActiveSegment;

impl Log {
    /// Seals the active segment and begins one at `base_offset`.
    ///
    /// Nothing changes until the new segment's file is there, so a disk that fills up during a roll
    /// leaves the log as it was, and the roll can be tried again.
    pub(super) fn roll(&mut self, base_offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.begin_segment(base_offset, now_ms).map_err(|error| self.judge(error))
    }

    fn begin_segment(&mut self, base_offset: i64, now_ms: i64) -> Result<(), LogError> {
        let files = Arc::clone(&self.files);
        self.active.complete_indexes(files.as_ref())?;
        self.producers.write_snapshot(files.as_ref(), &self.dir, base_offset)?;
        let next =
            ActiveSegment::create(files.as_ref(), &self.dir, base_offset, &self.config, now_ms)?;
        let sealed = Arc::new(self.active.to_sealed(&files, &self.dir));
        let segments = Arc::make_mut(&mut self.segments);
        segments.pop();
        segments.push(sealed);
        segments.push(Arc::clone(next.shared()));
        self.active = next;
        self.unsynced_names = true;
        self.changed = true;
        Ok(())
    }
}
