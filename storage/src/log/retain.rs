//! Old records go: by age, by size, or because somebody asked for it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::read::{SegmentError, in_segment};
use super::{Log, LogReader, View};
use crate::error::{LogError, LogErrorKind, ReadError};
use crate::folder::{INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, file_name};

/// How much of a log is kept. `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Age in ms of a segment's newest record above which the segment goes. Kafka: `retention.ms`.
    pub ms: Option<i64>,
    /// Bytes that stay at least when older segments go. Kafka: `retention.bytes`.
    pub bytes: Option<u64>,
}

impl LogReader {
    /// The offset below which whole segments are beyond the limits; the log start if none is.
    ///
    /// Oldest first, up to the first that stays, and only segments wholly below the offset `upper`
    /// (Kafka's UnifiedLog.deletableSegments). The active segment counts like any other.
    pub fn expired(&self, limits: &Retention, upper: i64, now_ms: i64) -> Result<i64, ReadError> {
        self.with_view(|view| view.expired(limits, upper, now_ms))
    }

    /// The time of the newest record in the oldest segment, which keeps the segment until it is old
    /// enough itself; `None` if records have no times.
    pub fn oldest_segment_ms(&self) -> Result<Option<i64>, ReadError> {
        self.with_view(|view| {
            let mut alive = (0..).zip(view.extents_from(0));
            let oldest = alive.find(|(index, _)| view.segment_end(*index) > view.log_start);
            let Some((_, (segment, extent))) = oldest else { return Ok(None) };
            let newest = extent.largest_timestamp().map_err(in_segment(segment))?;
            Ok((newest >= 0).then_some(newest))
        })
    }

    /// Whether a segment lies wholly below the log start.
    pub fn has_dead_segments(&self) -> bool {
        let view = self.view.load();
        let first_end = view.segment_end(0);
        first_end <= view.log_start && (view.segments.len() > 1 || view.active_size > 0)
    }
}

impl View {
    fn expired(&self, limits: &Retention, upper: i64, now_ms: i64) -> Result<i64, SegmentError> {
        let mut kept: u64 = (0..)
            .zip(self.extents_from(0))
            .filter(|(index, _)| self.segment_end(*index) > self.log_start)
            .map(|(_, (_, extent))| extent.size())
            .sum();
        let mut start = self.log_start;
        for (index, (segment, extent)) in (0..).zip(self.extents_from(0)) {
            let end = self.segment_end(index);
            if end <= self.log_start {
                continue;
            }
            if end > upper || extent.size() == 0 {
                break;
            }
            let without = kept.saturating_sub(extent.size());
            let too_many = limits.bytes.is_some_and(|least| without >= least);
            let too_old = || match limits.ms {
                None => Ok(false),
                Some(age) => {
                    let newest = extent.newest_ms().map_err(in_segment(segment))?;
                    Ok(newest.is_some_and(|newest| now_ms.saturating_sub(newest) > age))
                }
            };
            if !too_many && !too_old()? {
                break;
            }
            kept = without;
            start = end;
        }
        Ok(start)
    }
}

impl Log {
    /// Moves the log start up to `offset`: what lies below can no longer be read. Gives the log
    /// start, which never moves back.
    ///
    /// Nothing is removed yet. Note the start in the directory's checkpoint, then call
    /// [`Self::drop_dead_segments`]: a start that was promised must not be forgotten in a crash.
    /// An offset above the log end is an error of kind `Usage`.
    pub fn advance_start(&mut self, offset: i64) -> Result<i64, LogError> {
        self.writable()?;
        if offset > self.log_end {
            let what = format!("the log start cannot pass the log end of {}", self.log_end);
            return Err(LogError::new(LogErrorKind::Usage, &self.dir, what).at(offset));
        }
        if offset <= self.log_start {
            return Ok(self.log_start);
        }
        self.log_start = offset;
        self.changed = true;
        // The next start does the same by the log start, so nothing hangs on the file.
        if self.epochs.truncate_start(offset)
            && let Err(error) = self.epochs.write(self.files.as_ref())
        {
            tracing::warn!(%error, "leader epochs could not be written and are kept for later");
        }
        self.publish();
        Ok(offset)
    }

    /// Gives up the segments that lie wholly below the log start. A log without a record left
    /// begins a new segment first, so the active one goes like any other.
    ///
    /// Their files get `.deleted` after their names; gives their paths, to be removed once readers
    /// had time. Readers that hold a segment keep its file.
    pub fn drop_dead_segments(&mut self, now_ms: i64) -> Result<Vec<PathBuf>, LogError> {
        self.writable()?;
        if self.log_start == self.log_end && self.active.size() > 0 {
            self.roll(self.log_end, now_ms)?;
        }
        let next_bases = self.segments.iter().skip(1).map(|segment| segment.base);
        let dead = next_bases.take_while(|base| *base <= self.log_start).count();
        if dead == 0 {
            self.publish();
            return Ok(Vec::new());
        }
        let bases: Vec<i64> =
            Arc::make_mut(&mut self.segments).drain(..dead).map(|segment| segment.base).collect();
        self.changed = true;
        self.publish();
        let mut renamed = Vec::with_capacity(bases.len() * 4);
        for base in bases {
            // The log first: without it the others are left-overs, also after a crash.
            for kind in [LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT] {
                match self.set_aside(&file_name(base, kind)) {
                    Ok(path) => renamed.extend(path),
                    Err(error) => return Err(self.judge(error)),
                }
            }
        }
        Ok(renamed)
    }

    /// Adds `.deleted` to a file's name; `None` if there is no such file.
    fn set_aside(&self, name: &str) -> Result<Option<PathBuf>, LogError> {
        let path = self.dir.join(name);
        let aside = self.dir.join(format!("{name}.deleted"));
        match self.files.rename(&path, &aside) {
            Ok(()) => Ok(Some(aside)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LogError::io(&path, "cannot set aside", error)),
        }
    }
}
