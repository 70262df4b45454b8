//! Opening a log: what its folder holds, what of it can be trusted, and what is mended.

mod check;
mod folder;

use std::path::Path;
use std::sync::Arc;

use ottla_protocol::Uuid;

use crate::checkpoint::{read_topic_id, write_topic_id};
use crate::config::LogConfig;
use crate::epochs::Epochs;
use crate::error::{LogError, LogErrorKind};
use crate::files::{File, Files, OpenMode};
use crate::folder::{LOG, file_name};
use crate::log::{Loaded, OpenReport, Opening};
use crate::producers::Producers;
use crate::segment::{ActiveSegment, Extent, Segment, segment_of};
use crate::walk::{HeaderWalk, WalkError};

use check::Checked;
use folder::Listing;
pub(crate) use folder::remove_segment;

/// An error of a walk as an error of the log.
pub(crate) fn walk_error(segment: &Segment, error: WalkError) -> LogError {
    match error {
        WalkError::Io(error) => LogError::io(&segment.path, "cannot read", error),
        WalkError::Bad { position, offset, what } => {
            let what = format!("no batch at byte {position}: {what}");
            LogError::new(LogErrorKind::Damaged, &segment.path, what).at(offset)
        }
    }
}

/// What is needed all along while a log is loaded.
pub(super) struct Loader<'a> {
    files: &'a Arc<dyn Files>,
    dir: &'a Path,
    config: &'a LogConfig,
    opening: Opening,
    listing: Listing,
    epochs: Epochs,
    report: OpenReport,
    changed: bool,
}

/// Loads the log of a folder, which is made if need be.
pub(crate) fn load(
    files: &Arc<dyn Files>,
    dir: &Path,
    topic_id: Uuid,
    config: &LogConfig,
    opening: Opening,
) -> Result<(Loaded, OpenReport), LogError> {
    let mut report = OpenReport::default();
    let mut listing = Listing::read(files.as_ref(), dir)?;
    if !opening.clean && !opening.same_boot {
        listing.drop_unflushed_snapshots(files.as_ref(), dir, opening.recovery_point)?;
    }
    note_topic_id(files.as_ref(), dir, topic_id, &mut report)?;
    let (epochs, known, broken) = match Epochs::read(files.as_ref(), dir) {
        Ok(Some(epochs)) => (epochs, true, false),
        Ok(None) => (Epochs::empty(dir), false, false),
        Err(error) if error.kind() == LogErrorKind::Malformed => {
            report.warn(dir, format!("leader epochs are read from the batches: {error}"));
            (Epochs::empty(dir), false, true)
        }
        Err(error) => return Err(error),
    };
    let mut loader =
        Loader { files, dir, config, opening, listing, epochs, report, changed: false };
    let before = Arc::clone(loader.epochs.entries());
    let (mut sealed, mut active, mut log_end) = loader.segments()?;
    let mut first_base = sealed.first().map_or_else(|| active.base(), |first| first.base);
    if log_end < opening.log_start && !loader.report.created {
        // Kafka's LogLoader does the same: all that is there lies below the log start.
        let warning = format!(
            "all records lie below the log start of {}: the log begins anew there",
            opening.log_start
        );
        loader.report.warn(dir, warning);
        for segment in sealed.drain(..).chain([Arc::clone(active.shared())]) {
            remove_segment(files.as_ref(), dir, segment.base)?;
        }
        log_end = opening.log_start;
        first_base = log_end;
        active = ActiveSegment::create(files.as_ref(), dir, log_end, config, opening.now_ms)?;
        loader.changed = true;
    }
    let log_start = opening.log_start.max(first_base);
    let extents = extents(&sealed, &active);
    if !known {
        loader.epochs_from_batches(&extents)?;
    }
    loader.epochs.truncate_end(log_end);
    loader.epochs.truncate_start(log_start);
    if broken || *loader.epochs.entries() != before {
        loader.epochs.write(files.as_ref())?;
        loader.changed = true;
    }
    let producers = loader.producers(&extents, log_start, log_end)?;
    let Loader { epochs, report, changed, .. } = loader;
    Ok((Loaded { sealed, active, epochs, producers, log_start, log_end, changed }, report))
}

/// Compares the topic id in the folder with the one that was asked for, or notes it.
fn note_topic_id(
    files: &dyn Files,
    dir: &Path,
    topic_id: Uuid,
    report: &mut OpenReport,
) -> Result<(), LogError> {
    let noted = match read_topic_id(files, dir) {
        Ok(noted) => noted,
        Err(error) if error.kind() == LogErrorKind::Malformed => {
            report.warn(dir, format!("the topic id is noted anew: {error}"));
            None
        }
        Err(error) => return Err(error),
    };
    match noted {
        _ if topic_id.is_zero() => Ok(()),
        Some(noted) if noted == topic_id => Ok(()),
        Some(noted) => {
            let what = format!("the folder is of topic id {noted}, not of {topic_id}");
            Err(LogError::new(LogErrorKind::Foreign, dir, what))
        }
        None => write_topic_id(files, dir, topic_id),
    }
}

type Segments = (Vec<Arc<Segment>>, ActiveSegment, i64);

impl Loader<'_> {
    fn open(&self, base: i64) -> Result<Arc<dyn File>, LogError> {
        let path = self.dir.join(file_name(base, LOG));
        self.files
            .open(&path, OpenMode::Write)
            .map_err(|error| LogError::io(&path, "cannot open the segment", error))
    }

    /// Loads all segments: the sealed ones, the active one and the log end.
    fn segments(&mut self) -> Result<Segments, LogError> {
        let bases = self.listing.bases();
        let Some((&last, before)) = bases.split_last() else {
            let base = self.opening.log_start.max(0);
            let now_ms = self.opening.now_ms;
            self.report.created = true;
            let files = self.files.as_ref();
            let active = ActiveSegment::create(files, self.dir, base, self.config, now_ms)?;
            return Ok((Vec::new(), active, base));
        };
        let first_checked = if self.opening.clean {
            bases.len()
        } else {
            // The segment that ends where the last flush did is checked too: it may have been
            // sealed after that flush, and its indexes and epochs flushed by none.
            let below = bases.partition_point(|&base| base < self.opening.recovery_point);
            below.saturating_sub(1)
        };
        let mut sealed = Vec::with_capacity(before.len());
        let mut expected = 0;
        for (index, &base) in before.iter().enumerate() {
            let later = bases.get(index + 1..).unwrap_or_default();
            if index < first_checked {
                let next = later.first().copied().unwrap_or(i64::MAX);
                sealed.push(self.trust(base, next)?);
                continue;
            }
            match self.check(base, expected, later)? {
                Checked::Whole { active, end } if self.lost_its_end(end, later) => {
                    self.cut_after(&active, end, later)?;
                    return Ok((sealed, active, end));
                }
                Checked::Whole { mut active, end } => {
                    active.complete_indexes(self.files.as_ref())?;
                    sealed.push(Arc::new(active.to_sealed(self.files, self.dir)));
                    expected = end;
                }
                Checked::Cut { active, end } => return Ok((sealed, active, end)),
            }
        }
        let (active, end) = if first_checked < bases.len() {
            self.check(last, expected, &[])?.into_parts()
        } else {
            self.trust_last(last)?
        };
        Ok((sealed, active, end))
    }

    /// Loads a sealed segment without a look at its batches; wrong indexes are built anew.
    fn trust(&mut self, base: i64, next: i64) -> Result<Arc<Segment>, LogError> {
        let size = self.listing.log_len(base);
        let file = self.open(base)?;
        let segment = Segment::sealed(self.files, self.dir, base, Arc::clone(&file), size);
        if ottla_protocol::left_out("no_index_rebuild") || self.sane(&segment, next)? {
            return Ok(Arc::new(segment));
        }
        let mut active =
            ActiveSegment::over(self.dir, base, file, self.config, self.opening.now_ms);
        active.reset_indexes(self.files.as_ref())?;
        note_headers(&mut active, size).map_err(|error| walk_error(&segment, error))?;
        active.complete_indexes(self.files.as_ref())?;
        if active.has_time_entries() || active.has_offset_entries() {
            self.report.rebuilt_indexes += 1;
            self.report.warn(self.dir, format!("indexes of segment {base} were built anew"));
        }
        Ok(Arc::new(active.to_sealed(self.files, self.dir)))
    }

    /// Loads the last segment after a clean stop: its indexes, and the headers after their last
    /// entry.
    fn trust_last(&mut self, base: i64) -> Result<(ActiveSegment, i64), LogError> {
        let size = self.listing.log_len(base);
        let file = self.open(base)?;
        let (mut active, used) = ActiveSegment::load(
            self.files.as_ref(),
            self.dir,
            base,
            Arc::clone(&file),
            self.config,
            (size, i64::MAX, self.opening.now_ms),
        )?;
        let last_dated = active.last_dated_offset();
        let walked = note_headers(&mut active, size);
        if used && let Ok(end) = walked {
            let dated = first_timestamp(&active).is_some_and(|timestamp| timestamp >= 0);
            if last_dated.is_none_or(|offset| offset < end) && (active.has_time_entries() || !dated)
            {
                return Ok((active, end));
            }
        }
        if let Err(WalkError::Io(error)) = walked {
            return Err(walk_error(active.shared(), WalkError::Io(error)));
        }
        let warning = format!("segment {base} is checked in spite of a clean shutdown");
        self.report.warn(self.dir, warning);
        Ok(self.check(base, base, &[])?.into_parts())
    }

    fn epochs_from_batches(&mut self, extents: &[Extent<'_>]) -> Result<(), LogError> {
        for extent in extents {
            let epochs = &mut self.epochs;
            extent
                .for_headers_from(extent.base(), |batch| {
                    epochs.assign(batch.header.partition_leader_epoch, batch.header.base_offset);
                })
                .map_err(|error| walk_error(extent.segment(), error))?;
        }
        Ok(())
    }

    fn producers(
        &mut self,
        extents: &[Extent<'_>],
        log_start: i64,
        log_end: i64,
    ) -> Result<Producers, LogError> {
        let loaded = load_producers(
            self.files.as_ref(),
            self.dir,
            &mut self.listing.snapshots,
            extents,
            (log_start, log_end, self.opening.now_ms),
        );
        let (mut producers, warnings) = loaded?;
        for warning in warnings {
            self.report.warn(self.dir, warning);
        }
        producers.expire(self.opening.now_ms, self.config.producer_id_expiration_ms);
        Ok(producers)
    }
}

/// Notes all batches from the active segment's size on by their headers. Gives the next offset.
fn note_headers(active: &mut ActiveSegment, size: u64) -> Result<i64, WalkError> {
    let file = Arc::clone(&active.shared().file);
    let mut walk = HeaderWalk::new(file.as_ref(), active.size(), size, active.base());
    let mut end = active.base();
    let mut named = active.last_entry_offset();
    while let Some(batch) = walk.next()? {
        if let Some(named) = named.take()
            && named != batch.header.last_offset()
        {
            let what = format!("the index says that the batch ends with offset {named}");
            let (position, offset) = (batch.position, batch.header.base_offset);
            return Err(WalkError::Bad { position, offset, what });
        }
        active.note(&batch.header);
        end = batch.header.next_offset();
    }
    if let Some(timestamp) = first_timestamp(active) {
        active.set_first_timestamp(timestamp);
    }
    Ok(end)
}

fn first_timestamp(active: &ActiveSegment) -> Option<i64> {
    // Without it the age counts from now; a segment that cannot be read shows soon enough.
    active.extent().first_batch().ok().flatten().map(|first| first.header.max_timestamp)
}

/// The active segment and the producers of a log that was cut.
pub(crate) struct Reloaded {
    pub(crate) active: ActiveSegment,
    pub(crate) producers: Producers,
}

/// Loads the last segment again after its file was cut to `size` bytes, up to offset `end`.
pub(crate) fn reload(
    files: &Arc<dyn Files>,
    dir: &Path,
    config: &LogConfig,
    sealed: &[Arc<Segment>],
    (base, file, size, end): (i64, Arc<dyn File>, u64, i64),
    now_ms: i64,
) -> Result<Reloaded, LogError> {
    let (mut active, _) =
        ActiveSegment::load(files.as_ref(), dir, base, file, config, (size, end, now_ms))?;
    let noted = note_headers(&mut active, size);
    noted.map_err(|error| walk_error(active.shared(), error))?;
    let extents = extents(sealed, &active);
    let log_start = extents.first().map_or(end, Extent::base);
    let mut snapshots = Listing::read(files.as_ref(), dir)?.snapshots;
    let times = (log_start, end, now_ms);
    let (producers, warnings) =
        load_producers(files.as_ref(), dir, &mut snapshots, &extents, times)?;
    for warning in warnings {
        tracing::warn!(log = %dir.display(), "{warning}");
    }
    Ok(Reloaded { active, producers })
}

/// The producers at the log end: the newest good snapshot, and the batches after it.
///
/// Snapshots past the log end, and old ones that belong to no segment, are removed.
fn load_producers(
    files: &dyn Files,
    dir: &Path,
    snapshots: &mut Vec<i64>,
    extents: &[Extent<'_>],
    (log_start, log_end, now_ms): (i64, i64, i64),
) -> Result<(Producers, Vec<String>), LogError> {
    let mut warnings = Vec::new();
    snapshots.sort_unstable();
    while let Some(past) = snapshots.pop_if(|offset| *offset > log_end) {
        folder::remove_snapshot(files, dir, past)?;
    }
    let mut producers = Producers::default();
    let mut from = log_start;
    while let Some(&newest) = snapshots.last() {
        match Producers::read_snapshot(files, dir, newest) {
            Ok(Some(read)) => {
                producers = read;
                from = newest;
                break;
            }
            Ok(None) => {}
            Err(error) if error.kind() == LogErrorKind::Malformed => {
                warnings.push(format!("producers are read from the batches: {error}"));
                folder::remove_snapshot(files, dir, newest)?;
            }
            Err(error) => return Err(error),
        }
        snapshots.pop();
    }
    for &old in snapshots.iter().rev().skip(1) {
        if extents.binary_search_by_key(&old, Extent::base).is_err() {
            folder::remove_snapshot(files, dir, old)?;
        }
    }
    if from >= log_end {
        return Ok((producers, warnings));
    }
    let first = segment_of(extents, Extent::base, from).unwrap_or(0);
    for extent in extents.iter().skip(first) {
        extent
            .for_headers_from(from, |batch| {
                if batch.header.base_offset >= from {
                    // Whoever wrote after the snapshot counts as seen now: a record's own time may
                    // lie years back, and the producer be alive.
                    producers.note(&batch.header, now_ms);
                }
            })
            .map_err(|error| walk_error(extent.segment(), error))?;
    }
    Ok((producers, warnings))
}

fn extents<'a>(sealed: &'a [Arc<Segment>], active: &'a ActiveSegment) -> Vec<Extent<'a>> {
    sealed.iter().map(|segment| segment.whole()).chain([active.extent()]).collect()
}
