//! Which leader epoch began at which offset (`leader-epoch-checkpoint`).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::checkpoint::{parse_rows, read_text, replace, replace_flushed, rows_text};
use crate::error::LogError;
use crate::files::Files;

/// Name of the file.
pub(crate) const FILE: &str = "leader-epoch-checkpoint";

/// A leader epoch and the offset of its first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: i32,
    /// Offset of the first record stored under it.
    pub start_offset: i64,
}

/// The epochs of a log, both columns rising, and their file.
#[derive(Debug)]
pub(crate) struct Epochs {
    path: PathBuf,
    entries: Arc<Vec<EpochEntry>>,
    /// Whether the file must be flushed before the log counts as flushed.
    unsynced: bool,
    /// Texts that were taken to be flushed.
    taken: u64,
    /// The newest of them that is in the file; held by who flushes one.
    flushed: Arc<Mutex<u64>>,
}

impl Epochs {
    pub(crate) fn empty(dir: &Path) -> Self {
        Self::of(dir.join(FILE), Vec::new())
    }

    fn of(path: PathBuf, entries: Vec<EpochEntry>) -> Self {
        let entries = Arc::new(entries);
        Self { path, entries, unsynced: false, taken: 0, flushed: Arc::default() }
    }

    /// Reads the file; `None` if there is none, `Malformed` if it is broken.
    pub(crate) fn read(files: &dyn Files, dir: &Path) -> Result<Option<Self>, LogError> {
        let path = dir.join(FILE);
        let Some(text) = read_text(files, &path)? else { return Ok(None) };
        let mut entries: Vec<EpochEntry> = Vec::new();
        for row in parse_rows(&path, &text)? {
            let entry = parse_row(row)
                .filter(|entry| entries.last().is_none_or(|last| entry.follows(last)))
                .ok_or_else(|| LogError::malformed(&path, format!("row {row:?} cannot be")))?;
            entries.push(entry);
        }
        Ok(Some(Self::of(path, entries)))
    }

    pub(crate) fn entries(&self) -> &Arc<Vec<EpochEntry>> {
        &self.entries
    }

    pub(crate) fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// Notes that records from `start_offset` on are of `epoch`; false if that was known.
    ///
    /// Entries that contradict it go: the newer word is the true one (Kafka's
    /// LeaderEpochFileCache).
    pub(crate) fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        if epoch < 0 {
            return false;
        }
        if let Some(last) = self.latest()
            && last.epoch == epoch
            && last.start_offset <= start_offset
        {
            return false;
        }
        let entry = EpochEntry { epoch, start_offset };
        let entries = Arc::make_mut(&mut self.entries);
        while entries.pop_if(|last| !entry.follows(last)).is_some() {}
        entries.push(entry);
        self.unsynced = true;
        true
    }

    /// Forgets epochs that begin at `end` or later; false if there are none.
    pub(crate) fn truncate_end(&mut self, end: i64) -> bool {
        if self.latest().is_none_or(|last| last.start_offset < end) {
            return false;
        }
        let entries = Arc::make_mut(&mut self.entries);
        while entries.pop_if(|last| last.start_offset >= end).is_some() {}
        self.unsynced = true;
        true
    }

    /// Forgets epochs that end at `start` or before; false if there are none.
    pub(crate) fn truncate_start(&mut self, start: i64) -> bool {
        let begun = self.entries.partition_point(|entry| entry.start_offset <= start);
        let first = self.entries.first().copied();
        let Some(keep) = begun.checked_sub(1) else { return false };
        if keep == 0 && first.is_some_and(|first| first.start_offset == start) {
            return false;
        }
        let entries = Arc::make_mut(&mut self.entries);
        entries.drain(..keep);
        if let Some(first) = entries.first_mut() {
            first.start_offset = start;
        }
        self.unsynced = true;
        true
    }

    fn text(&self) -> String {
        let rows = self.entries.iter();
        rows_text(rows.map(|entry| format!("{} {}", entry.epoch, entry.start_offset)))
    }

    /// Writes the file; a power cut may lose it, and recovery then finds the epochs in the batches.
    pub(crate) fn write(&self, files: &dyn Files) -> Result<(), LogError> {
        replace(files, &self.path, self.text().as_bytes())
    }

    /// The file was not flushed after all.
    pub(crate) fn note_unsynced(&mut self) {
        self.unsynced = true;
    }

    /// What must be written for good before what follows counts as flushed.
    pub(crate) fn take_unsynced(&mut self) -> Option<UnsyncedEpochs> {
        if !std::mem::take(&mut self.unsynced) {
            return None;
        }
        self.taken += 1;
        Some(UnsyncedEpochs {
            path: self.path.clone(),
            text: self.text(),
            number: self.taken,
            flushed: Arc::clone(&self.flushed),
        })
    }
}

/// The epochs file as it must stand on the disk.
#[derive(Debug)]
pub(crate) struct UnsyncedEpochs {
    path: PathBuf,
    text: String,
    number: u64,
    flushed: Arc<Mutex<u64>>,
}

impl UnsyncedEpochs {
    /// Writes the file for good, but for its name: the folder is yet to be flushed.
    ///
    /// Several flushes may run at a time, and end in another order than they began in: one at a
    /// time writes, and an older text never takes the place of a newer.
    pub(crate) fn write(&self, files: &dyn Files) -> Result<(), LogError> {
        let mut flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        if *flushed < self.number {
            replace_flushed(files, &self.path, self.text.as_bytes())?;
            *flushed = self.number;
        }
        Ok(())
    }
}

impl EpochEntry {
    const fn follows(&self, last: &Self) -> bool {
        self.epoch > last.epoch && self.start_offset > last.start_offset
    }
}

fn parse_row(row: &str) -> Option<EpochEntry> {
    let (epoch, start_offset) = row.trim().split_once(' ')?;
    let entry = EpochEntry { epoch: epoch.parse().ok()?, start_offset: start_offset.parse().ok()? };
    (entry.epoch >= 0 && entry.start_offset >= 0).then_some(entry)
}

/// The largest epoch of `entries` that is at most `epoch`, and the offset at which it ended.
///
/// `None` if nothing is known about it (Kafka answers −1, −1).
pub(crate) fn end_of_epoch(entries: &[EpochEntry], epoch: i32, log_end: i64) -> Option<(i32, i64)> {
    let latest = entries.last()?;
    if epoch == latest.epoch {
        return Some((epoch, log_end));
    }
    let above = entries.partition_point(|entry| entry.epoch <= epoch);
    let end = entries.get(above)?.start_offset;
    // An epoch below all that are known: none of its records is here, all come after it.
    let floor = above.checked_sub(1).and_then(|index| entries.get(index));
    Some((floor.map_or(epoch, |entry| entry.epoch), end))
}

/// The epoch that the record at `offset` was stored under.
pub(crate) fn epoch_of(entries: &[EpochEntry], offset: i64) -> Option<i32> {
    let begun = entries.partition_point(|entry| entry.start_offset <= offset);
    entries.get(begun.checked_sub(1)?).map(|entry| entry.epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogErrorKind, MemoryFiles};

    fn epochs(rows: &[(i32, i64)]) -> Epochs {
        let mut epochs = Epochs::empty(Path::new("/d"));
        for &(epoch, start) in rows {
            epochs.assign(epoch, start);
        }
        epochs
    }

    fn rows(epochs: &Epochs) -> Vec<(i32, i64)> {
        epochs.entries.iter().map(|entry| (entry.epoch, entry.start_offset)).collect()
    }

    #[test]
    fn a_newer_word_removes_what_contradicts_it() {
        assert_eq!(rows(&epochs(&[(0, 0), (0, 5), (2, 10), (2, 30)])), [(0, 0), (2, 10)]);
        assert_eq!(rows(&epochs(&[(0, 0), (2, 10), (3, 10)])), [(0, 0), (3, 10)]);
        assert_eq!(rows(&epochs(&[(0, 0), (2, 10), (1, 12)])), [(0, 0), (1, 12)]);
        assert_eq!(rows(&epochs(&[(0, 0), (2, 10), (3, 4)])), [(0, 0), (3, 4)]);
        assert_eq!(rows(&epochs(&[(-1, 0)])), []);
    }

    #[test]
    fn ends_follow_kafkas_rule() {
        let known = epochs(&[(2, 10), (4, 20)]);
        let end = |epoch| end_of_epoch(&known.entries, epoch, 33);
        assert_eq!(end(4), Some((4, 33)));
        assert_eq!(end(3), Some((2, 20)));
        assert_eq!(end(2), Some((2, 20)));
        assert_eq!(end(1), Some((1, 10)));
        assert_eq!(end(5), None);
        assert_eq!(end_of_epoch(&[], 0, 33), None);
        let of = |offset| epoch_of(&known.entries, offset);
        assert_eq!([of(9), of(10), of(19), of(20)], [None, Some(2), Some(2), Some(4)]);
    }

    #[test]
    fn both_ends_can_be_cut() {
        let mut known = epochs(&[(0, 0), (1, 10), (2, 20)]);
        assert!(!known.truncate_end(21));
        assert!(known.truncate_end(20));
        assert_eq!(rows(&known), [(0, 0), (1, 10)]);
        assert!(!known.truncate_start(0));
        assert!(known.truncate_start(4));
        assert_eq!(rows(&known), [(0, 4), (1, 10)]);
        assert!(known.truncate_start(10));
        assert!(!known.truncate_start(10));
        assert_eq!(rows(&known), [(1, 10)]);
        assert!(known.truncate_end(0));
        assert_eq!(rows(&known), []);
    }

    #[test]
    fn older_text_takes_no_newer_ones_place_though_it_is_flushed_later() {
        let (files, dir) = (MemoryFiles::new(), Path::new("/d"));
        files.create_dir_all(dir).expect("made");
        let mut known = epochs(&[(0, 0)]);
        let older = known.take_unsynced().expect("to be flushed");
        known.assign(7, 1234);
        let newer = known.take_unsynced().expect("to be flushed");
        newer.write(&files).expect("written");
        older.write(&files).expect("passed over");
        assert_eq!(files.read(&dir.join(FILE)).expect("read"), b"0\n2\n0 0\n7 1234\n");
    }

    #[test]
    fn file_is_kafkas_text_and_broken_ones_are_found() {
        let (files, dir) = (MemoryFiles::new(), Path::new("/d"));
        files.create_dir_all(dir).expect("made");
        assert!(Epochs::read(&files, dir).expect("none").is_none());
        let mut known = epochs(&[(0, 0), (7, 1234)]);
        known.write(&files).expect("written");
        assert_eq!(files.read(&dir.join(FILE)).expect("read"), b"0\n2\n0 0\n7 1234\n");
        known.take_unsynced().expect("to be flushed").write(&files).expect("written");
        assert!(known.take_unsynced().is_none());
        assert_eq!(rows(&Epochs::read(&files, dir).expect("read").expect("there")), rows(&known));
        for text in ["", "0\n1\n", "0\n2\n1 0\n1 5\n", "0\n2\n1 5\n2 5\n", "0\n1\n-1 0\n"] {
            replace(&files, &dir.join(FILE), text.as_bytes()).expect("written");
            let error = Epochs::read(&files, dir).expect_err("broken");
            assert_eq!(error.kind(), LogErrorKind::Malformed, "{text:?}");
        }
    }
}
