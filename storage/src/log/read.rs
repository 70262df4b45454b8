//! Reading beside the owner, without a lock: ranges of whole batches, offsets of times and epochs.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::View;
use crate::epochs::{EpochEntry, end_of_epoch, epoch_of};
use crate::error::ReadError;
use crate::files::{File, Wait};
use crate::segment::{Extent, Segment, TimeMatch};
use crate::walk::WalkError;

/// Reads a log while its owner appends. Cheap to clone; ask it as often as you like, it sees every
/// append that was done when the call began.
#[derive(Clone)]
pub struct LogReader {
    pub(super) view: Arc<ArcSwap<View>>,
    dir: Arc<Path>,
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Whole batches in a row in one file, found but not read.
#[derive(Debug, Clone)]
pub struct ReadRange {
    /// The segment's file. It stays readable after the segment is deleted.
    pub file: Arc<dyn File>,
    /// Where the first batch begins.
    pub position: u64,
    /// Bytes; 0 if there is nothing to read yet.
    pub len: usize,
    /// Offset of the first batch's first record, which may lie below the offset asked for.
    pub base_offset: i64,
    /// Whether there is more than these bytes, which the limit or the segment's end left out.
    pub more: bool,
}

impl ReadRange {
    /// Whether there is nothing to read.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads the bytes. An error of kind `UnexpectedEof` means that the log was truncated since.
    pub fn read(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.len];
        self.file.read_exact_at(&mut bytes, self.position)?;
        Ok(Bytes::from(bytes))
    }
}

/// An offset found by time, or an end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOffset {
    /// The offset.
    pub offset: i64,
    /// The record's timestamp; −1 where no record was looked at.
    pub timestamp: i64,
    /// The leader epoch of the offset; −1 if unknown.
    pub leader_epoch: i32,
}

impl LogReader {
    pub(super) const fn new(view: Arc<ArcSwap<View>>, dir: Arc<Path>) -> Self {
        Self { view, dir }
    }

    /// The log's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// First offset that can be read.
    pub fn log_start(&self) -> i64 {
        self.view.load().log_start
    }

    /// Offset of the next record.
    pub fn log_end(&self) -> i64 {
        self.view.load().log_end
    }

    /// Bytes in all segments, without indexes.
    pub fn size_bytes(&self) -> u64 {
        self.view.load().size_bytes()
    }

    /// The batches from the one that holds `offset` on, in one segment: whole batches only, up to
    /// `max_bytes` and below the offset `upper`.
    ///
    /// `upper` is the high watermark, or the last stable offset; `i64::MAX` for all. The first
    /// batch comes even if it is larger than `max_bytes`, if `first_batch_whole` (KIP-74);
    /// otherwise the range is empty then. Fewer bytes than `max_bytes` do not mean the end of the
    /// log: the next segment may go on. `OutOfRange` below the log start and above the log end.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: usize,
        upper: i64,
        first_batch_whole: bool,
    ) -> Result<ReadRange, ReadError> {
        let wanted = Wanted { offset, max_bytes, upper, first_batch_whole, wait: Wait::Disk };
        self.find(wanted)
    }

    /// As [`Self::read`], but never waits for the disk: `Cold` where it would have to.
    pub fn read_cached(
        &self,
        offset: i64,
        max_bytes: usize,
        upper: i64,
        first_batch_whole: bool,
    ) -> Result<ReadRange, ReadError> {
        let wanted = Wanted { offset, max_bytes, upper, first_batch_whole, wait: Wait::No };
        self.find(wanted)
    }

    fn find(&self, wanted: Wanted) -> Result<ReadRange, ReadError> {
        self.with_view(|view| {
            if wanted.offset < view.log_start || wanted.offset > view.log_end {
                let (log_start, log_end) = (view.log_start, view.log_end);
                return Ok(Err(ReadError::OutOfRange { log_start, log_end }));
            }
            or_cold(wanted.wait, view.range(wanted))
        })?
    }

    /// The first record of `timestamp` or later, below the offset `upper`; `None` if there is none.
    ///
    /// In a batch that cannot be decompressed, or holds more than 64 MiB before its record, the
    /// batch's first offset: nothing later is missed from there.
    pub fn offset_for_time(
        &self,
        timestamp: i64,
        upper: i64,
    ) -> Result<Option<TimedOffset>, ReadError> {
        self.above_start(Wait::Disk, |view| view.find_time(timestamp, upper, Wait::Disk))
    }

    /// As [`Self::offset_for_time`], but never waits for the disk, nor works for long: `Cold` where
    /// it would have to.
    pub fn offset_for_time_cached(
        &self,
        timestamp: i64,
        upper: i64,
    ) -> Result<Option<TimedOffset>, ReadError> {
        self.above_start(Wait::No, |view| view.find_time(timestamp, upper, Wait::No))
    }

    /// The record with the largest timestamp, below the offset `upper`; of several the first.
    /// `None` in a log without records or timestamps (KIP-734).
    pub fn max_timestamp(&self, upper: i64) -> Result<Option<TimedOffset>, ReadError> {
        self.above_start(Wait::Disk, |view| view.find_newest(upper, Wait::Disk))
    }

    /// As [`Self::max_timestamp`], but never waits for the disk, nor works for long: `Cold` where
    /// it would have to.
    pub fn max_timestamp_cached(&self, upper: i64) -> Result<Option<TimedOffset>, ReadError> {
        self.above_start(Wait::No, |view| view.find_newest(upper, Wait::No))
    }

    /// The log start, as the answer to a question for the earliest offset.
    pub fn earliest(&self) -> TimedOffset {
        let view = self.view.load();
        view.end_at(view.log_start)
    }

    /// The smaller of `upper` and the log end, as the answer to a question for the latest offset.
    pub fn latest(&self, upper: i64) -> TimedOffset {
        let view = self.view.load();
        let latest = view.epochs.last().map_or(-1, |entry| entry.epoch);
        TimedOffset { leader_epoch: latest, ..view.end_at(upper.min(view.log_end)) }
    }

    /// Leader epochs and their first offsets, both rising.
    pub fn epochs(&self) -> Arc<Vec<EpochEntry>> {
        Arc::clone(&self.view.load().epochs)
    }

    /// The newest leader epoch in the log.
    pub fn latest_epoch(&self) -> Option<i32> {
        self.view.load().epochs.last().map(|entry| entry.epoch)
    }

    /// The largest known epoch that is at most `epoch`, and the offset at which it ended; `None`
    /// if the log knows of neither it nor a later one (KIP-101, KIP-279).
    pub fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let view = self.view.load();
        end_of_epoch(&view.epochs, epoch, view.log_end)
    }

    /// Runs a search by time; once more if the log start passed what it found. An answer below the
    /// log start would send a consumer into a loop.
    fn above_start(
        &self,
        wait: Wait,
        search: impl Fn(&View) -> Result<Option<TimedOffset>, SegmentError>,
    ) -> Result<Option<TimedOffset>, ReadError> {
        loop {
            let found = self.with_view(|view| or_cold(wait, search(view)))??;
            if found.is_none_or(|found| found.offset >= self.log_start()) {
                return Ok(found);
            }
        }
    }

    /// Runs a search; once more if what it searched was truncated meanwhile.
    pub(super) fn with_view<T>(
        &self,
        search: impl Fn(&View) -> Result<T, SegmentError>,
    ) -> Result<T, ReadError> {
        loop {
            let view = self.view.load_full();
            match search(&view) {
                Ok(found) => return Ok(found),
                Err(error) => {
                    let unchanged = Arc::ptr_eq(&view.segments, &self.view.load().segments);
                    if unchanged {
                        return Err(error.segment.read_error(error.error));
                    }
                }
            }
        }
    }
}

/// What a reader asks for.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    offset: i64,
    max_bytes: usize,
    upper: i64,
    first_batch_whole: bool,
    wait: Wait,
}

/// A search that failed, and where.
pub(super) struct SegmentError {
    segment: Arc<Segment>,
    error: WalkError,
}

pub(super) fn in_segment(segment: &Arc<Segment>) -> impl FnOnce(WalkError) -> SegmentError {
    let segment = Arc::clone(segment);
    move |error| SegmentError { segment, error }
}

/// What a search found, or that it would have had to wait.
fn or_cold<T>(
    wait: Wait,
    found: Result<T, SegmentError>,
) -> Result<Result<T, ReadError>, SegmentError> {
    match found {
        Err(SegmentError { error: WalkError::Io(error), .. })
            if wait == Wait::No && error.kind() == io::ErrorKind::WouldBlock =>
        {
            Ok(Err(ReadError::Cold))
        }
        found => found.map(Ok),
    }
}

impl View {
    fn end_at(&self, offset: i64) -> TimedOffset {
        let leader_epoch = epoch_of(&self.epochs, offset).unwrap_or(-1);
        TimedOffset { offset, timestamp: -1, leader_epoch }
    }

    /// Offset after the last batch of a segment, or a little more where compaction took the end.
    pub(super) fn segment_end(&self, index: usize) -> i64 {
        self.segments.get(index + 1).map_or(self.log_end, |next| next.base)
    }

    /// The segments from the one of an index on, as far as this view sees them.
    pub(super) fn extents_from(
        &self,
        index: usize,
    ) -> impl Iterator<Item = (&Arc<Segment>, Extent<'_>)> {
        self.segments.iter().skip(index).map(|segment| {
            let extent = if Arc::ptr_eq(segment, &self.active) {
                segment.up_to(self.active_size, self.active_largest)
            } else {
                segment.whole()
            };
            (segment, extent)
        })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.extents_from(0).map(|(_, extent)| extent.size()).sum()
    }

    fn range(&self, wanted: Wanted) -> Result<ReadRange, SegmentError> {
        let Wanted { offset, max_bytes, upper, first_batch_whole, wait } = wanted;
        let upper = upper.min(self.log_end);
        let max_bytes = u64::try_from(max_bytes).unwrap_or(u64::MAX);
        let mut more = false;
        if let Some(chosen) = self.locate(offset, upper, wait)?
            && let Some(first) = chosen.found.batch
            && first.header.next_offset() <= upper
        {
            if first.size() <= max_bytes || first_batch_whole {
                let (len, more) = chosen
                    .extent
                    .range_len(&first, self.segment_end(chosen.index), max_bytes, upper)
                    .map_err(in_segment(chosen.segment))?;
                return Ok(ReadRange {
                    file: Arc::clone(&chosen.segment.file),
                    position: first.position,
                    len: usize::try_from(len).unwrap_or(usize::MAX),
                    base_offset: first.header.base_offset,
                    more,
                });
            }
            more = true;
        }
        Ok(ReadRange {
            file: Arc::clone(&self.active.file),
            position: self.active_size,
            len: 0,
            base_offset: offset,
            more,
        })
    }

    fn find_time(
        &self,
        timestamp: i64,
        upper: i64,
        wait: Wait,
    ) -> Result<Option<TimedOffset>, SegmentError> {
        let chosen = self.locate_time(timestamp, upper.min(self.log_end), wait)?;
        let found = chosen.and_then(|chosen| chosen.found.record);
        Ok(found.filter(|found| found.offset < upper).map(|found| self.timed(found)))
    }

    fn find_newest(&self, upper: i64, wait: Wait) -> Result<Option<TimedOffset>, SegmentError> {
        let mut largest = -1;
        for (index, (segment, extent)) in (0..).zip(self.extents_from(0)) {
            if self.segment_end(index) <= self.log_start {
                continue;
            }
            let extent = extent.waiting(wait);
            // What lies below the log start no longer counts.
            let of_segment = if segment.base < self.log_start {
                extent.largest_timestamp_from(self.log_start)
            } else {
                extent.largest_timestamp()
            };
            largest = largest.max(of_segment.map_err(in_segment(segment))?);
        }
        if largest < 0 { Ok(None) } else { self.find_time(largest, upper, wait) }
    }

    /// A record that was found, with its epoch.
    pub(super) fn timed(&self, found: TimeMatch) -> TimedOffset {
        let leader_epoch = epoch_of(&self.epochs, found.offset).unwrap_or(-1);
        TimedOffset { offset: found.offset, timestamp: found.timestamp, leader_epoch }
    }
}
