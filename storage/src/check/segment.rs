//! Every batch of a log, segment after segment, and the indexes beside them.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ottla_protocol::record::Batch;

use super::beside::Folder;
use super::{Finding, Known, LogCheck, Remedy, Severity};
use crate::epochs::{EpochEntry, Epochs, epoch_of};
use crate::files::{File, Files, OpenMode};
use crate::folder::{INDEX, LOG, TIME_INDEX, file_name};
use crate::index::{Entry, OffsetEntry, TimeEntry, read_entries};
use crate::walk::{Located, Next, WalkError, good_at, next_good, verify};

/// A batch is decompressed to at most this to look at its records.
const DECOMPRESSED_MAX: usize = 256 << 20;

/// A log that is being checked.
pub(super) struct LogWalk<'a> {
    files: &'a dyn Files,
    dir: &'a Path,
    known: Known,
    epochs: Option<Vec<EpochEntry>>,
    /// Least offset that the next batch may begin with.
    expected: i64,
    holes: Vec<Hole>,
    check: LogCheck,
}

/// Bytes that are no batch.
struct Hole {
    path: PathBuf,
    base: i64,
    position: u64,
    len: u64,
    offset: i64,
    what: String,
    /// Good batches that came before it.
    batches_before: u64,
    /// Offset of the first good batch after it.
    next_offset: Option<i64>,
}

/// What an index is held against.
struct Seen {
    position: u64,
    /// Least offset that it could begin with.
    expected: i64,
    records: u64,
    base_offset: i64,
    last_offset: i64,
    max_timestamp: i64,
    end: u64,
}

impl<'a> LogWalk<'a> {
    pub(super) fn new(files: &'a dyn Files, dir: &'a Path, known: Known) -> Self {
        let epochs = Epochs::read(files, dir).ok().flatten();
        let epochs = epochs.map(|epochs| epochs.entries().to_vec());
        let check = LogCheck::default();
        Self { files, dir, known, epochs, expected: 0, holes: Vec::new(), check }
    }

    /// Reads one segment and its indexes.
    pub(super) fn segment(&mut self, base: i64, size: u64, folder: &Folder) {
        let path = self.dir.join(file_name(base, LOG));
        self.check.bytes += size;
        self.expected = self.expected.max(base);
        let file = match self.files.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) => {
                let what = format!("it cannot be opened: {error}");
                self.check.findings.push(Finding::new(Severity::Damage, &path, what));
                return;
            }
        };
        let seen = match self.batches(file.as_ref(), &path, base, size) {
            Ok(seen) => seen,
            Err(error) => {
                let what = format!("it cannot be read: {error}");
                self.check.findings.push(Finding::new(Severity::Damage, &path, what));
                return;
            }
        };
        let last = folder.segments.last().is_some_and(|(last, _)| *last == base);
        // What an index says of a segment with a hole is not to be held against anything, and goes
        // with the repair.
        if self.holes.iter().all(|hole| hole.base != base) {
            self.indexes(base, &seen, last);
        }
    }

    /// Reads all batches of a segment; notes what is none, and goes on after it.
    fn batches(
        &mut self,
        file: &dyn File,
        path: &Path,
        base: i64,
        size: u64,
    ) -> std::io::Result<Vec<Seen>> {
        let mut seen = Vec::new();
        let (mut at, mut wrong_epoch) = (0, None);
        loop {
            let least = self.expected;
            let Self { expected, check, epochs, known, .. } = self;
            let each = |located: &Located, batch: &Batch<'_>| {
                let header = &located.header;
                let records = u64::try_from(header.records_count).unwrap_or(0);
                check.batches += 1;
                check.records += records;
                let before = std::mem::replace(expected, header.next_offset());
                if header.base_offset >= known.log_start
                    && let Some(epochs) = epochs
                    && epoch_of(epochs, header.base_offset) != Some(header.partition_leader_epoch)
                    && header.partition_leader_epoch >= 0
                {
                    wrong_epoch.get_or_insert((header.base_offset, header.partition_leader_epoch));
                }
                if let Some(what) = unreadable_record(batch) {
                    let position = Some(located.position);
                    let offsets = Some((header.base_offset, Some(header.next_offset())));
                    let note = Finding::new(Severity::Note, path, what);
                    check.findings.push(Finding { position, offsets, ..note });
                }
                seen.push(Seen {
                    position: located.position,
                    expected: before,
                    records,
                    base_offset: header.base_offset,
                    last_offset: header.last_offset(),
                    max_timestamp: header.max_timestamp,
                    end: located.end(),
                });
                ControlFlow::Continue(())
            };
            let (position, what) = match verify(file, (at, size), least, each) {
                Ok(_) => break,
                Err(WalkError::Io(error)) => return Err(error),
                Err(WalkError::Bad { position, what, .. }) => (position, what),
            };
            if let Some(jumped) = seen.pop_if(|last| jumps(last, file, position, size)) {
                self.take_back(path, base, &jumped);
                at = position;
                continue;
            }
            let offset = self.expected;
            let next = match next_good(file, (position, size), (base, offset))? {
                Next::Good(next) => Some(next),
                Next::Nothing | Next::GaveUp => None,
            };
            let end = next.map_or(size, |next| next.position);
            self.holes.push(Hole {
                path: path.to_owned(),
                base,
                position,
                len: end - position,
                offset,
                what,
                batches_before: self.check.batches,
                next_offset: next.map(|next| next.header.base_offset),
            });
            if next.is_none() {
                break;
            }
            at = end;
        }
        self.note_wrong_epoch(wrong_epoch);
        Ok(seen)
    }

    /// A batch that was taken for good has an offset that cannot be.
    fn take_back(&mut self, path: &Path, base: i64, jumped: &Seen) {
        self.check.batches -= 1;
        self.check.records -= jumped.records;
        self.expected = jumped.expected;
        let what =
            format!("its offset {}, which no checksum covers, cannot be", jumped.base_offset);
        self.holes.push(Hole {
            path: path.to_owned(),
            base,
            position: jumped.position,
            len: jumped.end - jumped.position,
            offset: jumped.expected,
            what,
            batches_before: self.check.batches,
            next_offset: None,
        });
    }

    fn note_wrong_epoch(&mut self, wrong: Option<(i64, i32)>) {
        let Some((offset, epoch)) = wrong else { return };
        let severity = self.severity_from(offset);
        let path = self.dir.join(crate::epochs::FILE);
        let what = format!("the batch at this offset is of epoch {epoch}, which the file denies");
        let finding = Finding::broken(severity, &path, what);
        // One is enough: the file is made anew as a whole.
        if !self.check.findings.iter().any(|other| other.path == path) {
            self.check.findings.push(Finding { offsets: Some((offset, None)), ..finding });
        }
    }

    /// How bad it is that a file beside the log is wrong about an offset.
    fn severity_from(&self, offset: i64) -> Severity {
        if self.known.clean || offset < self.known.recovery_point {
            Severity::Damage
        } else {
            Severity::Note
        }
    }

    fn indexes(&mut self, base: i64, seen: &[Seen], active: bool) {
        // After a crash the start builds the indexes of the last segments anew.
        let end = seen.last().map_or(base, |last| last.last_offset.saturating_add(1));
        let severity = self.severity_from(end.saturating_sub(1));
        let relative = |entry: u32| base.saturating_add(i64::from(entry));
        let mut last = None;
        let mut position = 0;
        let path = self.dir.join(file_name(base, INDEX));
        let offsets = |entry: &OffsetEntry| {
            let at = u64::from(entry.position);
            let named = seen.binary_search_by_key(&at, |batch| batch.position).ok();
            let named = named.and_then(|index| seen.get(index));
            let right = named.is_some_and(|batch| batch.last_offset == relative(entry.relative));
            let rises = last.is_none_or(|last| entry.relative > last && at > position);
            (last, position) = (Some(entry.relative), at);
            if right && rises { Ok(()) } else { Err("names a batch that is not there") }
        };
        let positions = self.index(&path, severity, active, offsets);
        if let (Some(interval), Some(positions)) = (self.known.index_interval_bytes, positions) {
            let positions = positions.iter().map(|entry| u64::from(entry.position));
            self.gaps(&path, seen, positions, interval, active);
        }
        let path = self.dir.join(file_name(base, TIME_INDEX));
        let mut before: Option<TimeEntry> = None;
        let times = |entry: &TimeEntry| {
            let rises = before.is_none_or(|before| {
                entry.timestamp > before.timestamp && entry.relative >= before.relative
            });
            before = Some(*entry);
            let offset = relative(entry.relative);
            let until = seen.partition_point(|batch| batch.base_offset <= offset);
            let upto = seen.get(..until).unwrap_or_default();
            let largest = upto.iter().map(|batch| batch.max_timestamp).max();
            if rises && offset < end && largest == Some(entry.timestamp) {
                Ok(())
            } else {
                Err("tells a time that the batches do not")
            }
        };
        self.index(&path, severity, active, times);
    }

    /// Holds the entries of one index file against `right`; gives them if all are.
    fn index<E: Entry>(
        &mut self,
        path: &Path,
        severity: Severity,
        active: bool,
        mut right: impl FnMut(&E) -> Result<(), &'static str>,
    ) -> Option<Vec<E>> {
        let (mut entries, rest) = match read_entries::<E>(self.files, path) {
            Ok(read) => read,
            Err(error) => {
                let what = format!("the index cannot be read: {error}");
                self.check.findings.push(Finding::new(Severity::Damage, path, what));
                return None;
            }
        };
        if rest > 0 {
            let what = format!("the index ends with {rest} bytes that are no entry");
            self.check.findings.push(Finding::broken(severity, path, what));
            return None;
        }
        if active && entries.last().is_some_and(is_unused) {
            // Kafka makes room ahead, and does not take it back in the metadata log.
            let used =
                entries.iter().rposition(|entry| !is_unused(entry)).map_or(0, |last| last + 1);
            let what = format!("room for {} entries is unused", entries.len() - used);
            self.check.findings.push(Finding::new(Severity::Note, path, what));
            entries.truncate(used);
        }
        for (number, entry) in entries.iter().enumerate() {
            if let Err(what) = right(entry) {
                let what = format!("entry {number} {what} ({entry:?})");
                let position = u64::try_from(number * E::SIZE).ok();
                let finding = Finding::broken(severity, path, what);
                self.check.findings.push(Finding { position, ..finding });
                return None;
            }
        }
        Some(entries)
    }

    /// Finds places of the log that an index leaves out, where a reader would walk too far.
    fn gaps(
        &mut self,
        path: &Path,
        seen: &[Seen],
        positions: impl Iterator<Item = u64>,
        interval: u64,
        active: bool,
    ) {
        let largest = seen.iter().map(|batch| batch.end - batch.position).max().unwrap_or(0);
        let most = interval.saturating_add(largest.saturating_mul(2));
        // Entries of the active segment may still wait in memory.
        let end = seen.last().map(|last| last.end).filter(|_| !active);
        let mut before = 0;
        for position in positions.chain(end) {
            if position.saturating_sub(before) > most {
                let what = format!("no entry for the bytes {before} to {position} of the log");
                self.check.findings.push(Finding::broken(Severity::Damage, path, what));
                return;
            }
            before = position;
        }
    }

    /// Judges the holes, now that it is known what follows them.
    pub(super) fn finish(mut self) -> LogCheck {
        let known = self.known;
        for hole in self.holes {
            let followed = self.check.batches > hole.batches_before;
            let safe = known.clean || hole.offset < known.recovery_point;
            let damage = safe || (followed && known.same_boot);
            let end = match (followed, damage) {
                (false, false) => "; what a crash leaves: the next start cuts it",
                (true, false) => "; a power cut may have torn it: the next start cuts the log here",
                (true, true) => ", and good batches follow",
                (false, true) => ", where all was flushed",
            };
            let what = format!("{} bytes are no batch ({}){end}", hole.len, hole.what);
            let severity = if damage { Severity::Damage } else { Severity::Note };
            let Hole { base, position, len, .. } = hole;
            self.check.findings.push(Finding {
                position: Some(position),
                offsets: Some((hole.offset, hole.next_offset)),
                remedy: Some(Remedy::CutOut { base, position, len }),
                ..Finding::new(severity, &hole.path, what)
            });
        }
        self.check.log_end = self.expected;
        self.check
    }
}

/// Whether an entry is of zeros, which no entry is that somebody wrote: the first is due after the
/// first batch.
fn is_unused<E: Entry>(entry: &E) -> bool {
    entry.words() == [0, 0]
}

/// Whether a batch goes so far ahead that the good one after it, at `position`, could not follow.
///
/// An offset is not under its batch's checksum.
fn jumps(last: &Seen, file: &dyn File, position: u64, size: u64) -> bool {
    last.end == position
        && last.base_offset > last.expected
        && good_at(file, position, size, last.expected)
            .is_ok_and(|next| next.is_some_and(|next| next.header.base_offset < last.base_offset))
}

/// What is wrong with a batch's records, whose checksum is right: so their producer sent them.
fn unreadable_record(batch: &Batch<'_>) -> Option<String> {
    let records = match batch.records(DECOMPRESSED_MAX) {
        Ok(records) => records,
        Err(fault) => {
            return Some(format!("its records were sent so that none is readable: {fault}"));
        }
    };
    let fault = records.iter().find_map(Result::err)?;
    Some(format!("a record was sent so that it cannot be read: {fault}"))
}
