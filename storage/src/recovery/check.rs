//! Checking segments after a crash: every batch, up to the first that is bad.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ottla_protocol::record::Batch;

use super::{Loader, folder, walk_error};
use crate::checkpoint::sync_dir;
use crate::error::{LogError, LogErrorKind};
use crate::files::{Files, OpenMode};
use crate::folder::{INDEX, TIME_INDEX, file_name};
use crate::index::{Entry, OffsetEntry, TimeEntry};
use crate::segment::{ActiveSegment, Segment};
use crate::walk::{Located, Next, WalkError, good_at, next_good, verify};

/// A segment whose batches were all looked at, and the offset after the last.
pub(super) enum Checked {
    /// All are good.
    Whole { active: ActiveSegment, end: i64 },
    /// The log was cut in this segment, and ends with it.
    Cut { active: ActiveSegment, end: i64 },
}

impl Checked {
    pub(super) fn into_parts(self) -> (ActiveSegment, i64) {
        match self {
            Self::Whole { active, end } | Self::Cut { active, end } => (active, end),
        }
    }
}

impl Loader<'_> {
    /// Checks every batch of a segment and builds its indexes anew. At a bad batch the log is cut
    /// and the segments `later` are removed, unless that would throw away what was safe before.
    pub(super) fn check(
        &mut self,
        base: i64,
        expected: i64,
        later: &[i64],
    ) -> Result<Checked, LogError> {
        let size = self.listing.log_len(base);
        let file = self.open(base)?;
        let now_ms = self.opening.now_ms;
        let mut active =
            ActiveSegment::over(self.dir, base, Arc::clone(&file), self.config, now_ms);
        if !ottla_protocol::left_out("no_index_rebuild") {
            active.reset_indexes(self.files.as_ref())?;
        }
        self.report.checked_segments += 1;
        self.changed = true;
        let mut end = base.max(expected);
        // What began before is known; what begins here is told by the batches.
        self.epochs.truncate_end(base);
        let epochs = &mut self.epochs;
        let each = |located: &Located, _: &Batch<'_>| {
            let header = &located.header;
            if header.last_offset().saturating_sub(base) > i64::from(i32::MAX) {
                return ControlFlow::Break("its offset is too far from the segment's".to_owned());
            }
            epochs.assign(header.partition_leader_epoch, header.base_offset);
            active.note(header);
            end = header.next_offset();
            ControlFlow::Continue(())
        };
        match verify(file.as_ref(), (0, size), base.max(expected), each) {
            Ok(_) => Ok(Checked::Whole { active, end }),
            Err(WalkError::Io(error)) => Err(walk_error(active.shared(), WalkError::Io(error))),
            Err(WalkError::Bad { position, offset, what }) => {
                let fault = Fault { position, offset, what };
                self.judge(active.shared(), &fault, size, later)?;
                self.cut(&active, &fault, size, later)?;
                Ok(Checked::Cut { active, end })
            }
        }
    }

    /// An error where good batches follow a bad one that no crash can have torn: it lies below the
    /// recovery point, or the machine never lost power.
    fn judge(
        &self,
        segment: &Segment,
        fault: &Fault,
        size: u64,
        later: &[i64],
    ) -> Result<(), LogError> {
        let could_be_torn = !self.opening.same_boot && fault.offset >= self.opening.recovery_point;
        if could_be_torn || !self.good_follows(segment, fault, size, later)? {
            return Ok(());
        }
        let what = format!(
            "the batch at byte {} is damaged ({}) and good ones follow it; nothing was cut",
            fault.position, fault.what
        );
        Err(LogError::new(LogErrorKind::Damaged, &segment.path, what).at(fault.offset))
    }

    /// Whether a good batch follows, in this segment or in a later one.
    fn good_follows(
        &self,
        segment: &Segment,
        fault: &Fault,
        size: u64,
        later: &[i64],
    ) -> Result<bool, LogError> {
        let io = |error| LogError::io(&segment.path, "cannot read", error);
        let (file, base) = (segment.file.as_ref(), segment.base);
        // A good batch whose offset comes too early: then it is the one before that is not what it
        // was, since no checksum covers an offset.
        if good_at(file, fault.position, size, base).map_err(io)?.is_some() {
            return Ok(true);
        }
        match next_good(file, (fault.position, size), (base, base)).map_err(io)? {
            Next::Nothing => {}
            // Not knowing is no reason to throw away.
            Next::Good(_) | Next::GaveUp => return Ok(true),
        }
        for &base in later {
            let file = self.open(base)?;
            let size = self.listing.log_len(base);
            if good_at(file.as_ref(), 0, size, base).map_err(io)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a power cut has taken the last batches of a segment that others follow.
    ///
    /// Whoever wrote the next segment began it where this one ended; gaps at such a place come from
    /// compaction or a repair, and these flush what they leave. The next segment goes too: a log is
    /// a front part of what was appended, never one with a hole.
    pub(super) fn lost_its_end(&self, end: i64, later: &[i64]) -> bool {
        let unflushed = !self.opening.same_boot && end >= self.opening.recovery_point;
        unflushed && later.first().is_some_and(|&next| next > end)
    }

    /// Removes the segments `later`: the log ends with this one.
    pub(super) fn cut_after(
        &mut self,
        active: &ActiveSegment,
        end: i64,
        later: &[i64],
    ) -> Result<(), LogError> {
        let what = "the batches before the next segment are lost".to_owned();
        let fault = Fault { position: active.size(), offset: end, what };
        self.cut(active, &fault, active.size(), later)
    }

    fn cut(
        &mut self,
        active: &ActiveSegment,
        fault: &Fault,
        size: u64,
        later: &[i64],
    ) -> Result<(), LogError> {
        // From the back, so that a crash in between leaves a log without holes.
        for &base in later.iter().rev() {
            self.report.truncated_bytes += self.listing.log_len(base);
            self.report.removed_segments += 1;
            folder::remove_segment(self.files.as_ref(), self.dir, base)?;
        }
        if !later.is_empty() {
            // Were the bad batch gone and a later segment back after a power cut, its batches would
            // be taken for good ones after a gap.
            sync_dir(self.files.as_ref(), self.dir)?;
        }
        let segment = active.shared();
        segment
            .file
            .set_len(fault.position)
            .map_err(|error| LogError::io(&segment.path, "cannot truncate", error))?;
        self.report.truncated_bytes += size - fault.position;
        let warning = format!(
            "segment {} was cut at byte {}, offset {}: {} bytes and {} later segments were not \
             whole batches ({})",
            segment.base,
            fault.position,
            fault.offset,
            self.report.truncated_bytes,
            later.len(),
            fault.what
        );
        self.report.warn(self.dir, warning);
        Ok(())
    }

    /// Whether the indexes of a sealed segment can be right, by their sizes and last entries.
    pub(super) fn sane(&self, segment: &Segment, next: i64) -> Result<bool, LogError> {
        let size = segment.whole().size();
        let (offsets, times) = self.listing.index_lens(segment.base);
        if size == 0 {
            return Ok(true);
        }
        let below = |relative: u32| segment.base.saturating_add(i64::from(relative)) < next;
        let offsets_sane = match offsets {
            None => size <= self.config.index_interval_bytes,
            Some(len) => {
                let path = self.dir.join(file_name(segment.base, INDEX));
                match last_entry::<OffsetEntry>(self.files.as_ref(), &path, len)? {
                    Last::Entry(last) => below(last.relative) && u64::from(last.position) < size,
                    Last::None => true,
                    Last::Cut => false,
                }
            }
        };
        let times_sane = match times {
            None => {
                let first =
                    segment.whole().first_batch().map_err(|error| walk_error(segment, error))?;
                first.is_none_or(|first| first.header.max_timestamp < 0)
            }
            Some(len) => {
                let path = self.dir.join(file_name(segment.base, TIME_INDEX));
                match last_entry::<TimeEntry>(self.files.as_ref(), &path, len)? {
                    Last::Entry(last) => below(last.relative),
                    Last::None => true,
                    Last::Cut => false,
                }
            }
        };
        Ok(offsets_sane && times_sane)
    }
}

struct Fault {
    position: u64,
    offset: i64,
    what: String,
}

enum Last<E> {
    Entry(E),
    None,
    /// The file's length is no multiple of an entry's.
    Cut,
}

fn last_entry<E: Entry>(files: &dyn Files, path: &Path, len: u64) -> Result<Last<E>, LogError> {
    let size = u64::try_from(E::SIZE).unwrap_or(u64::MAX);
    if !len.is_multiple_of(size) {
        return Ok(Last::Cut);
    }
    let Some(position) = len.checked_sub(size) else { return Ok(Last::None) };
    let mut bytes = vec![0; E::SIZE];
    files
        .open(path, OpenMode::Read)
        .and_then(|file| file.read_exact_at(&mut bytes, position))
        .map_err(|error| LogError::io(path, "cannot read the index", error))?;
    Ok(E::decode(&bytes).map_or(Last::Cut, Last::Entry))
}
