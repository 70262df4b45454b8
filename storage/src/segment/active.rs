//! The segment that is appended to, as its owner sees it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ottla_protocol::record::BatchHeader;

use super::{Extent, Segment};
use crate::config::LogConfig;
use crate::error::LogError;
use crate::files::{File, Files, OpenMode};
use crate::folder::{INDEX, LOG, TIME_INDEX, file_name};
use crate::index::{Entry, IndexWriter, OffsetEntry, TimeEntry};

/// Positions in an index are 32 bits with a sign.
const SIZE_MAX: u64 = 0x7fff_ffff;

/// The owner's side of the segment that is appended to.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    shared: Arc<Segment>,
    offsets: IndexWriter<OffsetEntry>,
    times: IndexWriter<TimeEntry>,
    size: u64,
    /// Bytes appended since the last index entry.
    since_entry: u64,
    index_interval: u64,
    /// Largest timestamp so far and the last offset of the batch that brought it.
    largest: (i64, i64),
    /// Largest timestamp of the first batch, from which the age counts.
    first_timestamp: Option<i64>,
    created_ms: i64,
}

/// What a batch that is about to come says about a roll.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RollRules<'a> {
    pub(crate) config: &'a LogConfig,
    /// Bytes and batches that will be appended before it.
    pub(crate) staged_bytes: u64,
    pub(crate) staged_batches: usize,
    /// Largest timestamp of the first of these.
    pub(crate) staged_first_timestamp: Option<i64>,
    pub(crate) now_ms: i64,
}

impl ActiveSegment {
    /// Makes the file of a new segment. An empty one left by a roll that failed is taken over.
    pub(crate) fn create(
        files: &dyn Files,
        dir: &Path,
        base: i64,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<Self, LogError> {
        let path = dir.join(file_name(base, LOG));
        let file = match files.open(&path, OpenMode::CreateNew) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = files.open(&path, OpenMode::Write);
                let file = file.map_err(|error| LogError::io(&path, "cannot open", error))?;
                match file.is_empty() {
                    Ok(true) => file,
                    Ok(false) => {
                        let what = "a segment of this offset is there already";
                        let kind = crate::LogErrorKind::Damaged;
                        return Err(LogError::new(kind, &path, what).at(base));
                    }
                    Err(error) => return Err(LogError::io(&path, "cannot look at", error)),
                }
            }
            opened => {
                opened.map_err(|error| LogError::io(&path, "cannot make the segment", error))?
            }
        };
        let mut active = Self::over(dir, base, file, config, now_ms);
        active.reset_indexes(files)?;
        Ok(active)
    }

    /// The segment of a file, as if it were empty: its batches are yet to be noted.
    pub(crate) fn over(
        dir: &Path,
        base: i64,
        file: Arc<dyn File>,
        config: &LogConfig,
        created_ms: i64,
    ) -> Self {
        let offsets = IndexWriter::new(dir.join(file_name(base, INDEX)));
        let times = IndexWriter::new(dir.join(file_name(base, TIME_INDEX)));
        Self::with_indexes(dir, base, file, config, created_ms, offsets, times)
    }

    fn with_indexes(
        dir: &Path,
        base: i64,
        file: Arc<dyn File>,
        config: &LogConfig,
        created_ms: i64,
        offsets: IndexWriter<OffsetEntry>,
        times: IndexWriter<TimeEntry>,
    ) -> Self {
        let shared = Segment {
            base,
            path: dir.join(file_name(base, LOG)),
            file,
            size: 0,
            largest_timestamp: OnceLock::new(),
            offsets: offsets.index(),
            times: times.index(),
        };
        Self {
            shared: Arc::new(shared),
            offsets,
            times,
            size: 0,
            since_entry: 0,
            index_interval: config.index_interval_bytes,
            largest: (-1, base),
            first_timestamp: None,
            created_ms,
        }
    }

    /// The segment of a file with the entries of its index files up to offset `end`. What lies
    /// after the last entry is yet to be noted; [`Self::size`] tells from where on.
    ///
    /// Gives also whether all entries of the files could be used.
    pub(crate) fn load(
        files: &dyn Files,
        dir: &Path,
        base: i64,
        file: Arc<dyn File>,
        config: &LogConfig,
        (size, end, created_ms): (u64, i64, i64),
    ) -> Result<(Self, bool), LogError> {
        let below = |relative: u32| base.saturating_add(i64::from(relative)) < end;
        let offsets =
            |entry: &OffsetEntry| below(entry.relative) && u64::from(entry.position) < size;
        let times = |entry: &TimeEntry| below(entry.relative);
        let path = |kind| dir.join(file_name(base, kind));
        let (offsets, lost) = IndexWriter::load(files, path(INDEX), size, offsets)?;
        let (times, lost_times) = IndexWriter::load(files, path(TIME_INDEX), size, times)?;
        let mut active = Self::with_indexes(dir, base, file, config, created_ms, offsets, times);
        if let Some(last) = active.times.last() {
            active.largest = (last.timestamp, base.saturating_add(i64::from(last.relative)));
        }
        if let Some(last) = active.offsets.last() {
            active.size = u64::from(last.position);
        }
        Ok((active, lost == 0 && lost_times == 0))
    }

    pub(crate) fn shared(&self) -> &Arc<Segment> {
        &self.shared
    }

    pub(crate) fn base(&self) -> i64 {
        self.shared.base
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn has_time_entries(&self) -> bool {
        self.times.last().is_some()
    }

    pub(crate) fn has_offset_entries(&self) -> bool {
        self.offsets.last().is_some()
    }

    /// Last offset of the batch that the last index entry names.
    pub(crate) fn last_entry_offset(&self) -> Option<i64> {
        let last = self.offsets.last()?;
        Some(self.base().saturating_add(i64::from(last.relative)))
    }

    /// The offset that the last time entry names.
    pub(crate) fn last_dated_offset(&self) -> Option<i64> {
        let last = self.times.last()?;
        Some(self.base().saturating_add(i64::from(last.relative)))
    }

    pub(crate) fn index_paths(&self) -> [&Path; 2] {
        [self.offsets.path(), self.times.path()]
    }

    pub(crate) const fn set_first_timestamp(&mut self, timestamp: i64) {
        self.first_timestamp = Some(timestamp);
    }

    /// Notes a batch that now stands at the end of the file: size, times, index entries.
    pub(crate) fn note(&mut self, header: &BatchHeader) {
        if self.size == 0 {
            self.first_timestamp = Some(header.max_timestamp);
        }
        let last_offset = header.last_offset();
        if header.max_timestamp > self.largest.0 {
            self.largest = (header.max_timestamp, last_offset);
        }
        if self.since_entry > self.index_interval {
            self.push_entries(last_offset);
            self.since_entry = 0;
        }
        let bytes = u64::try_from(header.size()).unwrap_or(u64::MAX);
        self.size = self.size.saturating_add(bytes);
        self.since_entry = self.since_entry.saturating_add(bytes);
    }

    /// The segment as far as batches were noted.
    pub(crate) fn extent(&self) -> Extent<'_> {
        self.shared.up_to(self.size, self.largest.0)
    }

    pub(crate) const fn largest_timestamp(&self) -> i64 {
        self.largest.0
    }

    fn push_entries(&mut self, last_offset: i64) {
        let relative = u32::try_from(last_offset.saturating_sub(self.base()));
        let position = u32::try_from(self.size);
        // An index with a gap is still right; a roll comes before this can be.
        if let (Ok(relative), Ok(position)) = (relative, position) {
            self.offsets.push(OffsetEntry { relative, position });
            self.push_time();
        }
    }

    /// Adds (largest timestamp, its offset) if that is news.
    fn push_time(&mut self) {
        let (timestamp, offset) = self.largest;
        let news = self.times.last().map_or(-1, |last| last.timestamp);
        if timestamp > news
            && let Ok(relative) = u32::try_from(offset.saturating_sub(self.base()))
        {
            self.times.push(TimeEntry { timestamp, relative });
        }
    }

    /// Writes index entries that waited long enough. The log is right without them.
    pub(crate) fn write_behind(&mut self, files: &dyn Files) {
        for result in [self.offsets.write_behind(files), self.times.write_behind(files)] {
            if let Err(error) = result {
                tracing::warn!(%error, "index entries could not be written and are kept for later");
            }
        }
    }

    /// Completes the index files: with the last time entry all is found again without a walk.
    pub(crate) fn complete_indexes(&mut self, files: &dyn Files) -> Result<(), LogError> {
        self.push_time();
        self.offsets.write(files)?;
        if self.has_time_entries() {
            // Kafka takes a time index without the other one for damage.
            self.offsets.make_file(files)?;
        }
        self.times.write(files)
    }

    pub(crate) fn reset_indexes(&mut self, files: &dyn Files) -> Result<(), LogError> {
        self.offsets.reset(files)?;
        self.times.reset(files)
    }

    /// The segment as it is read once it is sealed. Its indexes must be complete.
    pub(crate) fn to_sealed(&self, files: &Arc<dyn Files>, dir: &Path) -> Segment {
        let file = Arc::clone(&self.shared.file);
        let sealed = Segment::sealed(files, dir, self.base(), file, self.size);
        Segment { largest_timestamp: OnceLock::from(self.largest.0), ..sealed }
    }

    /// Whether a new segment begins before a batch of `header` (Kafka's LogSegment.shouldRoll).
    pub(crate) fn should_roll(&self, header: &BatchHeader, rules: &RollRules<'_>) -> bool {
        let config = rules.config;
        let size = self.size.saturating_add(rules.staged_bytes);
        let incoming = u64::try_from(header.size()).unwrap_or(u64::MAX);
        if header.last_offset().saturating_sub(self.base()) > i64::from(i32::MAX) {
            return true;
        }
        // A batch larger than a segment gets one of its own.
        if size > 0 && size.saturating_add(incoming) > config.segment_bytes.min(SIZE_MAX) {
            return true;
        }
        let first = if self.size > 0 { self.first_timestamp } else { rules.staged_first_timestamp };
        let age = match first {
            Some(first) if first >= 0 && header.max_timestamp >= 0 => {
                header.max_timestamp.saturating_sub(first)
            }
            _ => rules.now_ms.saturating_sub(self.created_ms),
        };
        if size > 0 && age > config.segment_ms.saturating_sub(self.jitter_ms(config)) {
            return true;
        }
        let room = |entry: usize| {
            let bytes = usize::try_from(config.segment_index_bytes).unwrap_or(usize::MAX);
            bytes / entry
        };
        // The time index keeps one place for its last entry.
        size > 0
            && (self.offsets.len() + rules.staged_batches >= room(OffsetEntry::SIZE)
                || self.times.len() + rules.staged_batches + 1 >= room(TimeEntry::SIZE))
    }

    /// Differs between segments, and is the same for one segment whenever it is asked.
    fn jitter_ms(&self, config: &LogConfig) -> i64 {
        let most = config.segment_jitter_ms.min(config.segment_ms);
        let Ok(most) = u64::try_from(most) else { return 0 };
        if most == 0 {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        self.shared.path.hash(&mut hasher);
        i64::try_from(hasher.finish() % most).unwrap_or(0)
    }
}
