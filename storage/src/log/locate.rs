//! Finding offsets and times, with each step told: what every read does first.

use std::fmt;
use std::sync::Arc;

use super::View;
use super::read::{LogReader, SegmentError, TimedOffset, in_segment};
use crate::error::ReadError;
use crate::files::Wait;
use crate::segment::{Extent, Found, FoundTime, Segment, segment_of};

/// How the batch of an offset was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookup {
    /// Base offset of the segment that was chosen.
    pub segment: i64,
    /// Offset and position that the index names to begin with; none where that is the segment's
    /// start.
    pub entry: Option<(i64, u64)>,
    /// Batches whose headers were looked at.
    pub walked_batches: usize,
    /// Bytes from the walk's begin to the end of the batch.
    pub walked_bytes: u64,
    /// The batch that holds the offset, or the first after it; none at the log end.
    pub batch: Option<BatchPlace>,
}

/// Where a batch lies in its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlace {
    /// Where it begins.
    pub position: u64,
    /// Its bytes.
    pub size: u64,
    /// Its first offset.
    pub base_offset: i64,
    /// Its last offset.
    pub last_offset: i64,
}

/// How the first record of a time was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLookup {
    /// Timestamp and offset that the time index names to begin with; none where that is the
    /// segment's start.
    pub entry: Option<(i64, i64)>,
    /// How that offset was found.
    pub start: Lookup,
    /// Batches whose headers were looked at from there on.
    pub walked_batches: usize,
    /// Bytes from there to the end of the last of them.
    ///
    /// More than `index.interval.bytes` and two batches only where no record for so long was newer
    /// than all before it: the format has no entries there.
    pub walked_bytes: u64,
    /// The record, with its own time.
    pub found: Option<TimedOffset>,
}

impl Lookup {
    fn new(segment: &Segment, found: &Found) -> Self {
        let named = |relative: u32| segment.base.saturating_add(i64::from(relative));
        Self {
            segment: segment.base,
            entry: found.entry.map(|entry| (named(entry.relative), u64::from(entry.position))),
            walked_batches: found.walked_batches,
            walked_bytes: found.walked_bytes,
            batch: found.batch.map(|batch| BatchPlace {
                position: batch.position,
                size: batch.size(),
                base_offset: batch.header.base_offset,
                last_offset: batch.header.last_offset(),
            }),
        }
    }
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}, ", self.segment)?;
        match self.entry {
            Some((offset, position)) => write!(f, "index entry {offset} at byte {position}, ")?,
            None => f.write_str("no index entry, ")?,
        }
        write!(f, "{} batches and {} bytes walked, ", self.walked_batches, self.walked_bytes)?;
        match self.batch {
            Some(BatchPlace { position, base_offset, last_offset, .. }) => {
                write!(f, "batch {base_offset} to {last_offset} at byte {position}")
            }
            None => f.write_str("no batch"),
        }
    }
}

impl LogReader {
    /// Finds the batch that holds `offset`, or the first after it, and tells each step; `None` at
    /// the log end and beyond. Offsets below the log start are found as long as they are there.
    pub fn locate(&self, offset: i64) -> Result<Option<Lookup>, ReadError> {
        self.with_view(|view| {
            let chosen = view.locate(offset, view.log_end, Wait::Disk)?;
            Ok(chosen.map(|chosen| Lookup::new(chosen.segment, &chosen.found)))
        })
    }

    /// Finds the first record of `timestamp` or later, and tells each step; `None` where no segment
    /// has one.
    pub fn locate_time(&self, timestamp: i64) -> Result<Option<TimeLookup>, ReadError> {
        self.with_view(|view| {
            let chosen = view.locate_time(timestamp, view.log_end, Wait::Disk)?;
            Ok(chosen.map(|ChosenTime { segment, found }| TimeLookup {
                entry: found.entry.map(|entry| {
                    (entry.timestamp, segment.base.saturating_add(i64::from(entry.relative)))
                }),
                start: Lookup::new(segment, &found.start),
                walked_batches: found.walked_batches,
                walked_bytes: found.walked_bytes,
                found: found.record.map(|record| view.timed(record)),
            }))
        })
    }
}

/// A segment that holds an offset, and how the offset was found in it.
pub(super) struct Chosen<'a> {
    pub(super) index: usize,
    pub(super) segment: &'a Arc<Segment>,
    pub(super) extent: Extent<'a>,
    pub(super) found: Found,
}

/// A segment that holds a record of a time, and how the record was found in it.
pub(super) struct ChosenTime<'a> {
    pub(super) segment: &'a Arc<Segment>,
    pub(super) found: FoundTime,
}

impl View {
    /// The segment of `offset` and the batch in it; `None` from the offset `upper` on.
    pub(super) fn locate(
        &self,
        offset: i64,
        upper: i64,
        wait: Wait,
    ) -> Result<Option<Chosen<'_>>, SegmentError> {
        if offset >= upper {
            return Ok(None);
        }
        let start = segment_of(&self.segments, |segment| segment.base, offset).unwrap_or(0);
        for (index, (segment, extent)) in (start..).zip(self.extents_from(start)) {
            if segment.base >= upper {
                break;
            }
            let extent = extent.waiting(wait);
            let found = extent.locate(offset).map_err(in_segment(segment))?;
            // Compaction may have taken the rest of a segment; the next one goes on.
            if found.batch.is_some() {
                return Ok(Some(Chosen { index, segment, extent, found }));
            }
        }
        Ok(None)
    }

    /// The first segment with a record of `timestamp` or later, and the record; `None` if there is
    /// none that begins below the offset `upper`.
    pub(super) fn locate_time(
        &self,
        timestamp: i64,
        upper: i64,
        wait: Wait,
    ) -> Result<Option<ChosenTime<'_>>, SegmentError> {
        for (index, (segment, extent)) in (0..).zip(self.extents_from(0)) {
            if segment.base >= upper {
                break;
            }
            if self.segment_end(index) <= self.log_start {
                continue;
            }
            let extent = extent.waiting(wait);
            if extent.largest_timestamp().map_err(in_segment(segment))? < timestamp {
                continue;
            }
            let found = extent.find_time(timestamp, self.log_start);
            let found = found.map_err(in_segment(segment))?;
            if found.record.is_some() {
                return Ok(Some(ChosenTime { segment, found }));
            }
        }
        Ok(None)
    }
}
