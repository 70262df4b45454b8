//! What a data folder notes of each partition for its next start: three offsets.

use std::collections::BTreeSet;
use std::mem;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ottla_storage::checkpoint::{HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS};
use ottla_storage::{Files, LogError, OffsetCheckpoint};

/// Which of the offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// All below is synced.
    Recovery,
    /// The first offset, where it was moved.
    LogStart,
    /// All below is committed.
    HighWatermark,
}

impl Point {
    const ALL: [Self; 3] = [Self::Recovery, Self::LogStart, Self::HighWatermark];

    const fn file(self) -> &'static str {
        match self {
            Self::Recovery => RECOVERY_POINTS,
            Self::LogStart => LOG_STARTS,
            Self::HighWatermark => HIGH_WATERMARKS,
        }
    }
}

/// The checkpoints of a data folder, as they are to be written next.
#[derive(Debug)]
pub(super) struct Points {
    state: Mutex<State>,
    /// Held by the thread that writes: two at once would write the same file aside.
    writing: Mutex<()>,
}

#[derive(Debug)]
struct State {
    kept: [Kept; 3],
    /// Partitions that are gone and that the files may still name.
    gone: BTreeSet<(String, i32)>,
}

#[derive(Debug)]
struct Kept {
    checkpoint: OffsetCheckpoint,
    /// Whether the file has something else.
    changed: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Points {
    /// Reads the checkpoints; a broken one is empty, with a warning.
    pub(super) fn load(files: &dyn Files, dir: &Path) -> Self {
        let load = |point: Point| Kept {
            checkpoint: OffsetCheckpoint::load(files, &dir.join(point.file())),
            changed: false,
        };
        let state = State { kept: Point::ALL.map(load), gone: BTreeSet::new() };
        Self { state: Mutex::new(state), writing: Mutex::new(()) }
    }

    /// The offset of a partition; 0 if none is noted.
    pub(super) fn get(&self, point: Point, topic: &str, partition: i32) -> i64 {
        self.with(point, |kept| kept.checkpoint.get(topic, partition)).unwrap_or(0)
    }

    /// Notes an offset, for the next write.
    pub(super) fn note(&self, point: Point, topic: &str, partition: i32, offset: i64) {
        self.with(point, |kept| {
            let before = kept.checkpoint.entries.insert((topic.to_owned(), partition), offset);
            kept.changed |= before != Some(offset);
        });
    }

    /// Forgets a partition that is gone; true while the files may still name it.
    pub(super) fn forget(&self, topic: &str, partition: i32) -> bool {
        let key = (topic.to_owned(), partition);
        let mut state = locked(&self.state);
        let mut known = false;
        for kept in &mut state.kept {
            let removed = kept.checkpoint.entries.remove(&key).is_some();
            kept.changed |= removed;
            known |= removed;
        }
        if known {
            state.gone.insert(key.clone());
        }
        state.gone.contains(&key)
    }

    /// Writes for good what has changed.
    pub(super) fn write(&self, files: &dyn Files, dir: &Path) -> Result<(), LogError> {
        let _one = locked(&self.writing);
        let (mut points, mut checkpoints) = (Vec::new(), Vec::new());
        let gone = {
            let mut state = locked(&self.state);
            for (point, kept) in Point::ALL.into_iter().zip(&mut state.kept) {
                if mem::take(&mut kept.changed) {
                    points.push(point);
                    checkpoints.push((point.file(), kept.checkpoint.clone()));
                }
            }
            mem::take(&mut state.gone)
        };
        if checkpoints.is_empty() {
            return Ok(());
        }
        OffsetCheckpoint::write_all(files, dir, &checkpoints).inspect_err(|_error| {
            for point in points {
                self.with(point, |kept| kept.changed = true);
            }
            locked(&self.state).gone.extend(gone);
        })
    }

    /// Writes all three for good, also those that have not changed.
    pub(super) fn write_all(&self, files: &dyn Files, dir: &Path) -> Result<(), LogError> {
        for kept in &mut locked(&self.state).kept {
            kept.changed = true;
        }
        self.write(files, dir)
    }

    fn with<T>(&self, point: Point, act: impl FnOnce(&mut Kept) -> T) -> T {
        let [recovery, log_start, high_watermark] = &mut locked(&self.state).kept;
        act(match point {
            Point::Recovery => recovery,
            Point::LogStart => log_start,
            Point::HighWatermark => high_watermark,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use ottla_storage::{LogErrorKind, MemoryFiles};

    use super::*;

    #[test]
    fn what_changed_is_written_and_a_partition_that_is_gone_leaves_nothing() {
        let (files, dir) = (MemoryFiles::new(), PathBuf::from("/data"));
        files.create_dir_all(&dir).unwrap();
        let points = Points::load(&files, &dir);
        points.note(Point::LogStart, "orders", 0, 7);
        points.write(&files, &dir).unwrap();
        assert_eq!(files.read(&dir.join(LOG_STARTS)).unwrap(), b"0\n1\norders 0 7\n");
        assert!(!files.exists(&dir.join(RECOVERY_POINTS)).unwrap(), "nothing of it changed");
        let next = Points::load(&files, &dir);
        assert_eq!(next.get(Point::LogStart, "orders", 0), 7);
        assert_eq!(next.get(Point::Recovery, "orders", 0), 0);
        assert!(next.forget("orders", 0) && next.forget("orders", 0), "until that is written");
        next.write(&files, &dir).unwrap();
        assert!(!next.forget("orders", 0));
        assert_eq!(Points::load(&files, &dir).get(Point::LogStart, "orders", 0), 0);
    }

    #[test]
    fn what_could_not_be_written_is_written_the_next_time() {
        let (files, dir) = (MemoryFiles::new(), PathBuf::from("/data"));
        let points = Points::load(&files, &dir);
        points.note(Point::Recovery, "orders", 0, 7);
        assert_eq!(points.write(&files, &dir).unwrap_err().kind(), LogErrorKind::Io);
        files.create_dir_all(&dir).unwrap();
        points.write(&files, &dir).unwrap();
        assert_eq!(Points::load(&files, &dir).get(Point::Recovery, "orders", 0), 7);
    }
}
