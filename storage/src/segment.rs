//! A segment: batches in a row in one file, with an index to find offsets and one to find times.

mod active;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ottla_protocol::record::{Batch, Compression, RecordScan};

use crate::error::{LogError, LogErrorKind, ReadError};
use crate::files::{File, Files, Wait};
use crate::folder::{INDEX, TIME_INDEX, file_name};
use crate::index::{Index, OffsetEntry, TimeEntry};
use crate::walk::{HeaderWalk, Located, WalkError};

pub(crate) use active::{ActiveSegment, RollRules};

/// So much of a batch is decompressed at most, piece by piece, to find a record by its time.
const SEARCHED_BYTES_MAX: usize = 64 << 20;

/// A batch in which records are looked at by a search that must not wait: one that is larger, or
/// compressed, keeps a thread that serves others for too long.
const SEARCHED_AT_ONCE: usize = 64 << 10;

/// What readers share of a segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: i64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    /// Bytes; 0 in the active segment, of which a view tells.
    size: u64,
    /// Largest timestamp of a sealed segment, once it was asked for.
    largest_timestamp: OnceLock<i64>,
    offsets: Index<OffsetEntry>,
    times: Index<TimeEntry>,
}

/// A segment as far as somebody sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent<'a> {
    segment: &'a Segment,
    size: u64,
    /// Known for the active segment.
    largest_timestamp: Option<i64>,
    /// Whether a read may wait for the disk; otherwise it is an error of kind `WouldBlock`.
    wait: Wait,
}

/// A record found by its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeMatch {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
}

/// How a batch was found in a segment, step by step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Found {
    /// The index entry from which batches were walked; none where that was the segment's start.
    pub(crate) entry: Option<OffsetEntry>,
    /// Batches whose headers were looked at.
    pub(crate) walked_batches: usize,
    /// Bytes from the walk's begin to the end of the batch that was found.
    pub(crate) walked_bytes: u64,
    /// The batch, if there is one.
    pub(crate) batch: Option<Located>,
}

/// How a record was found by its time, step by step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FoundTime {
    /// The entry of the time index that names the offset to begin with.
    pub(crate) entry: Option<TimeEntry>,
    /// How that offset was found.
    pub(crate) start: Found,
    /// Batches whose headers were looked at from there on.
    pub(crate) walked_batches: usize,
    /// Bytes from there to the end of the last of them.
    pub(crate) walked_bytes: u64,
    /// The record, if there is one.
    pub(crate) record: Option<TimeMatch>,
}

impl Segment {
    /// A segment that will not change again.
    pub(crate) fn sealed(
        files: &Arc<dyn Files>,
        dir: &Path,
        base: i64,
        file: Arc<dyn File>,
        size: u64,
    ) -> Self {
        let index = |kind| dir.join(file_name(base, kind));
        Self {
            base,
            path: index(crate::folder::LOG),
            file,
            size,
            largest_timestamp: OnceLock::new(),
            offsets: Index::sealed(Arc::clone(files), index(INDEX)),
            times: Index::sealed(Arc::clone(files), index(TIME_INDEX)),
        }
    }

    /// The whole of a sealed segment.
    pub(crate) const fn whole(&self) -> Extent<'_> {
        Extent { segment: self, size: self.size, largest_timestamp: None, wait: Wait::Disk }
    }

    /// The active segment up to where its owner, or a view, says that it reaches.
    pub(crate) const fn up_to(&self, size: u64, largest_timestamp: i64) -> Extent<'_> {
        let largest_timestamp = Some(largest_timestamp);
        Extent { segment: self, size, largest_timestamp, wait: Wait::Disk }
    }

    fn relative(&self, offset: i64) -> u32 {
        u32::try_from(offset.saturating_sub(self.base).max(0)).unwrap_or(u32::MAX)
    }

    pub(crate) fn read_error(&self, error: WalkError) -> ReadError {
        match error {
            WalkError::Io(error) => ReadError::Io(LogError::io(&self.path, "cannot read", error)),
            WalkError::Bad { position, offset, what } => {
                let what = format!("no batch at byte {position}: {what}");
                ReadError::Corrupt(
                    LogError::new(LogErrorKind::Damaged, &self.path, what).at(offset),
                )
            }
        }
    }

    fn warn_index(&self, position: u64, what: &str) {
        tracing::warn!(
            segment = %self.path.display(),
            position,
            "index of a segment is wrong ({what}); batches are found without it"
        );
    }
}

impl<'a> Extent<'a> {
    pub(crate) const fn segment(&self) -> &'a Segment {
        self.segment
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    pub(crate) const fn base(&self) -> i64 {
        self.segment.base
    }

    fn walk(&self, position: u64, expected: i64) -> HeaderWalk<'a> {
        HeaderWalk::new(self.segment.file.as_ref(), position, self.size, expected)
            .waiting(self.wait)
    }

    /// The same; with [`Wait::No`] only that is read which needs no wait for the disk.
    pub(crate) const fn waiting(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// The first batch that holds `offset` or comes after it; `None` if all come before.
    pub(crate) fn locate(&self, offset: i64) -> Result<Found, WalkError> {
        let relative = self.segment.relative(offset);
        let hint = self.segment.offsets.last_where(self.wait, |entry| entry.relative <= relative);
        if let Some(hint) = hint.map_err(WalkError::Io)? {
            match self.locate_from(hint, offset) {
                Err(WalkError::Bad { position, what, .. }) => {
                    self.segment.warn_index(position, &what);
                }
                found => return found,
            }
        }
        walk_until(self.walk(0, self.base()), 0, offset)
    }

    /// Walks from an index entry, which must name the batch that is there.
    fn locate_from(&self, hint: OffsetEntry, offset: i64) -> Result<Found, WalkError> {
        let position = u64::from(hint.position);
        let mut walk = self.walk(position, self.base());
        let Some(first) = walk.next()? else {
            let what = "the index points past the end".to_owned();
            return Err(WalkError::Bad { position, offset, what });
        };
        if first.header.last_offset().saturating_sub(self.base()) != i64::from(hint.relative) {
            let what = "the index names another batch".to_owned();
            return Err(WalkError::Bad { position, offset, what });
        }
        if first.header.last_offset() >= offset {
            let (walked_bytes, batch) = (first.size(), Some(first));
            return Ok(Found { entry: Some(hint), walked_batches: 1, walked_bytes, batch });
        }
        let found = walk_until(walk, position, offset)?;
        Ok(Found { entry: Some(hint), walked_batches: found.walked_batches + 1, ..found })
    }

    /// Bytes from `first` on that are whole batches below `upper` and at most `max_bytes`, but
    /// `first` at least; and whether more below `upper` comes behind them. `segment_end` is the
    /// offset after the segment's last batch.
    pub(crate) fn range_len(
        &self,
        first: &Located,
        segment_end: i64,
        max_bytes: u64,
        upper: i64,
    ) -> Result<(u64, bool), WalkError> {
        let size = self.size;
        let limit = first.position.saturating_add(max_bytes.max(first.size()));
        if segment_end <= upper && size <= limit {
            return Ok((size - first.position, segment_end < upper));
        }
        let below = self.segment.relative(upper);
        let hint = self.segment.offsets.last_where(self.wait, |entry| {
            entry.relative < below && u64::from(entry.position) <= limit
        });
        let start = hint
            .map_err(WalkError::Io)?
            .map(|entry| u64::from(entry.position))
            .filter(|&position| position >= first.end() && position <= size);
        let end = match start {
            None => self.end_of_range(first.end(), first.header.next_offset(), limit, upper),
            Some(start) => match self.end_of_range(start, first.header.next_offset(), limit, upper)
            {
                Err(WalkError::Bad { position, what, .. }) if position == start => {
                    self.segment.warn_index(position, &what);
                    self.end_of_range(first.end(), first.header.next_offset(), limit, upper)
                }
                end => end,
            },
        };
        match end {
            // What is good can be read; a reader that comes to the bad batch is told so.
            Err(WalkError::Bad { position, .. }) => Ok((position - first.position, true)),
            end => {
                let (end, cut) = end?;
                Ok((end - first.position, cut || segment_end < upper))
            }
        }
    }

    /// Where the last batch ends that is wanted, and whether the limit alone ended it there.
    fn end_of_range(
        &self,
        start: u64,
        expected: i64,
        limit: u64,
        upper: i64,
    ) -> Result<(u64, bool), WalkError> {
        let mut walk = self.walk(start, expected);
        let mut end = start;
        while let Some(batch) = walk.next()? {
            let below = batch.header.next_offset() <= upper;
            if batch.end() > limit || !below {
                return Ok((end, below));
            }
            end = batch.end();
        }
        Ok((end, false))
    }

    /// The largest timestamp in the segment, −1 if its records have none.
    pub(crate) fn largest_timestamp(&self) -> Result<i64, WalkError> {
        if let Some(&known) =
            self.largest_timestamp.as_ref().or_else(|| self.segment.largest_timestamp.get())
        {
            return Ok(known);
        }
        // The last entry was made when the segment was sealed.
        let mut largest = match self.segment.times.last(self.wait).map_err(WalkError::Io)? {
            Some(entry) => entry.timestamp,
            None => -1,
        };
        if largest == -1 {
            if self.wait == Wait::No {
                // All of the segment would have to be walked.
                return Err(WalkError::Io(io::ErrorKind::WouldBlock.into()));
            }
            let mut walk = self.walk(0, self.base());
            while let Some(batch) = walk.next()? {
                largest = largest.max(batch.header.max_timestamp);
            }
        }
        Ok(*self.segment.largest_timestamp.get_or_init(|| largest))
    }

    /// The largest timestamp of a record at offset `from` or later, −1 if none has one.
    ///
    /// In a batch that cannot be looked into, as [`Self::find_record`] says, its header counts.
    pub(crate) fn largest_timestamp_from(&self, from: i64) -> Result<i64, WalkError> {
        let (mut largest, mut cut) = (-1, None);
        self.for_headers_from(from, |batch| {
            if batch.header.base_offset < from {
                cut = Some(*batch);
            } else {
                largest = largest.max(batch.header.max_timestamp);
            }
        })?;
        // What is left of a batch may all be older than what is gone of it.
        let cut = cut.filter(|cut| cut.header.max_timestamp > largest);
        let of_cut = cut.map(|cut| self.largest_in(&cut, from)).transpose()?;
        Ok(of_cut.map_or(largest, |of_cut| of_cut.max(largest)))
    }

    /// The largest timestamp of a batch's records at offset `from` or later.
    fn largest_in(&self, located: &Located, from: i64) -> Result<i64, WalkError> {
        let bytes = self.read_batch(located).map_err(WalkError::Io)?;
        let whole = located.header.max_timestamp;
        let scan =
            Batch::parse(&bytes).and_then(|batch| RecordScan::new(&batch, SEARCHED_BYTES_MAX));
        let Ok(scan) = scan else { return Ok(whole) };
        let mut largest = -1;
        for record in scan {
            let Ok(record) = record else { return Ok(whole) };
            if record.offset >= from {
                largest = largest.max(record.timestamp);
            }
        }
        Ok(largest)
    }

    /// When the newest record came: its timestamp or, where records have none, the last write to
    /// the file. `None` where neither is known (Kafka's LogSegment.largestTimestamp).
    pub(crate) fn newest_ms(&self) -> Result<Option<i64>, WalkError> {
        let largest = self.largest_timestamp()?;
        if largest >= 0 {
            return Ok(Some(largest));
        }
        let Some(file) = self.segment.file.as_fd() else { return Ok(None) };
        let found = rustix::fs::fstat(file).map_err(|error| WalkError::Io(error.into()))?;
        Ok(Some(found.st_mtime.saturating_mul(1000)))
    }

    /// The first record at or after offset `from` that is of `timestamp` or later.
    pub(crate) fn find_time(&self, timestamp: i64, from: i64) -> Result<FoundTime, WalkError> {
        let hint = self.segment.times.last_where(self.wait, |entry| entry.timestamp <= timestamp);
        let entry = hint.map_err(WalkError::Io)?;
        let after = entry.map_or(0, |entry| i64::from(entry.relative));
        let start = self.locate(self.base().saturating_add(after).max(from))?;
        let mut found = FoundTime { entry, start, ..FoundTime::default() };
        let Some(first) = start.batch else { return Ok(found) };
        let mut walk = self.walk(first.position, first.header.base_offset);
        while let Some(batch) = walk.next()? {
            found.walked_batches += 1;
            found.walked_bytes = batch.end().saturating_sub(first.position);
            if batch.header.max_timestamp < timestamp || batch.header.last_offset() < from {
                continue;
            }
            found.record = self.find_record(&batch, timestamp, from)?;
            if found.record.is_some() {
                break;
            }
        }
        Ok(found)
    }

    fn find_record(
        &self,
        located: &Located,
        timestamp: i64,
        from: i64,
    ) -> Result<Option<TimeMatch>, WalkError> {
        let bytes = self.read_batch(located).map_err(WalkError::Io)?;
        let whole = TimeMatch {
            offset: located.header.base_offset.max(from),
            timestamp: located.header.max_timestamp,
        };
        let scan =
            Batch::parse(&bytes).and_then(|batch| RecordScan::new(&batch, SEARCHED_BYTES_MAX));
        // Records that cannot be looked at: from the batch's start on none is missed.
        let Ok(scan) = scan else { return Ok(Some(whole)) };
        for record in scan {
            let Ok(record) = record else { return Ok(Some(whole)) };
            if record.timestamp >= timestamp && record.offset >= from {
                return Ok(Some(TimeMatch { offset: record.offset, timestamp: record.timestamp }));
            }
        }
        Ok(None)
    }

    fn read_batch(&self, located: &Located) -> io::Result<Vec<u8>> {
        let file = &self.segment.file;
        let len = located.header.size();
        if self.wait == Wait::Disk {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, located.position)?;
            return Ok(bytes);
        }
        if len > SEARCHED_AT_ONCE
            || located.header.attributes.compression() != Ok(Compression::None)
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut bytes = vec![0; len];
        let read = file.read_cached_at(&mut bytes, located.position)?;
        if read == len { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The header of the first batch; `None` in an empty segment.
    pub(crate) fn first_batch(&self) -> Result<Option<Located>, WalkError> {
        self.walk(0, self.base()).next()
    }

    /// Calls `each` for the header of every batch that ends after `from`.
    pub(crate) fn for_headers_from(
        &self,
        from: i64,
        mut each: impl FnMut(&Located),
    ) -> Result<(), WalkError> {
        let Some(first) = self.locate(from)?.batch else { return Ok(()) };
        let expected = first.header.base_offset;
        let mut walk = self.walk(first.position, expected);
        while let Some(batch) = walk.next()? {
            each(&batch);
        }
        Ok(())
    }
}

/// Walks to the batch that holds `offset`; what is walked counts from the position `begin`.
fn walk_until(mut walk: HeaderWalk<'_>, begin: u64, offset: i64) -> Result<Found, WalkError> {
    let mut found = Found::default();
    while let Some(batch) = walk.next()? {
        found.walked_batches += 1;
        found.walked_bytes = batch.end().saturating_sub(begin);
        if batch.header.last_offset() >= offset {
            found.batch = Some(batch);
            break;
        }
    }
    Ok(found)
}

/// Which of the bases, rising, is that of the segment that holds `offset`: the last not above it.
pub(crate) fn segment_of<T>(
    segments: &[T],
    base: impl Fn(&T) -> i64,
    offset: i64,
) -> Option<usize> {
    segments.partition_point(|segment| base(segment) <= offset).checked_sub(1)
}
