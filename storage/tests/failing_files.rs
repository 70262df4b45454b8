//! Disks that fill up and disks that fail.
#![allow(clippy::expect_used, reason = "a test ends where its set-up does not work")]

mod place;

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use ottla_storage::{
    DirEntry, File, Files, LogErrorKind, MemoryFiles, OpenMode, Opening, SealedBytes,
};
use place::{Draft, NOW, Place, append, read_from, try_append};

/// Files in memory that take so many more bytes, and flush or do not.
#[derive(Debug, Clone)]
struct Failing {
    inner: MemoryFiles,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct Faults {
    room: AtomicI64,
    flushes: AtomicBool,
}

#[derive(Debug)]
struct FailingFile(Arc<dyn File>, Arc<Faults>);

impl Failing {
    fn new() -> Self {
        let faults = Faults { room: AtomicI64::new(i64::MAX), flushes: AtomicBool::new(true) };
        Self { inner: MemoryFiles::new(), faults: Arc::new(faults) }
    }

    fn leave_room(&self, bytes: i64) {
        self.faults.room.store(bytes, Ordering::Relaxed);
    }

    fn place(&self) -> Place {
        Place { files: Arc::new(self.clone()), ..Place::in_memory() }.with(|config| {
            config.segment_bytes = 1000;
            config.index_interval_bytes = 100;
        })
    }
}

impl Files for Failing {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let makes = matches!(mode, OpenMode::Create | OpenMode::CreateNew);
        if makes && !self.inner.exists(path)? && self.faults.room.load(Ordering::Relaxed) <= 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = self.inner.open(path, mode)?;
        Ok(Arc::new(FailingFile(file, Arc::clone(&self.faults))))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn sealed(&self, path: &Path) -> io::Result<SealedBytes> {
        self.inner.sealed(path)
    }
}

impl File for FailingFile {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(into, position)
    }

    fn write_at(&self, slices: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let want = i64::try_from(all.len()).expect("small");
        let room = self.1.room.fetch_sub(want, Ordering::Relaxed);
        if room >= want {
            return self.0.write_at(slices, position);
        }
        // As a disk does: what fits is written.
        let fits = usize::try_from(room.max(0)).expect("small");
        self.0.write_at(&[IoSlice::new(&all[..fits])], position)?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.1.flushes.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err(io::Error::other("the disk lost the data"))
        }
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn a_disk_full_at_any_byte_refuses_and_loses_nothing() {
    for room in 0..2500 {
        let files = Failing::new();
        let place = files.place();
        let mut log = place.clean();
        append(&mut log, &Draft::of(1).producer(1, 0, 0));
        files.leave_room(room);
        let mut stored = 1;
        let error = loop {
            assert!(stored < 100, "the disk fills up");
            let batch = Draft::of(1).producer(1, 0, stored).incoming();
            match log.append(vec![batch], stored / 4, NOW) {
                Ok(outcomes) => {
                    assert!(outcomes[0].is_ok(), "{outcomes:?}");
                    stored += 1;
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), LogErrorKind::StorageFull, "{error}");
        let whole = usize::try_from(stored).expect("small");
        assert_eq!(read_from(&log.reader(), 0, 500).len(), whole, "reads go on, room {room}");
        let on_disk: usize = place.names_of(".log").iter().map(|name| place.read(name).len()).sum();
        let known = usize::try_from(log.size_bytes()).expect("small");
        assert_eq!(on_disk, known, "half a write is taken back, room {room}");
        let crashed = Place { files: Arc::new(files.clone()), ..files.place() };
        files.leave_room(i64::MAX);
        assert_eq!(crashed.after_crash().0.log_end(), i64::from(stored), "room {room}");
        let again = append(&mut log, &Draft::of(1).producer(1, 0, stored));
        assert_eq!((again.base_offset, again.duplicate), (i64::from(stored), false));
        let known = append(&mut log, &Draft::of(1).producer(1, 0, stored - 1));
        assert!(known.duplicate, "room {room}");
        assert_eq!(read_from(&log.reader(), 0, 500).len(), whole + 1);
        log.close().expect("closed");
        assert_eq!(place.clean().log_end(), i64::from(stored) + 1);
    }
}

#[test]
fn a_flush_that_fails_is_not_tried_again() {
    let files = Failing::new();
    let place = files.place();
    let mut log = place.clean();
    append(&mut log, &Draft::of(1));
    assert_eq!(log.flush().expect("flushed"), 1);
    append(&mut log, &Draft::of(1));
    files.faults.flushes.store(false, Ordering::Relaxed);
    let error = log.flush().expect_err("the disk failed");
    assert_eq!((error.kind(), log.recovery_point()), (LogErrorKind::Io, 1));
    files.faults.flushes.store(true, Ordering::Relaxed);
    assert_eq!(log.flush().expect_err("not again").kind(), LogErrorKind::Failed);
    let refused = log.append(vec![Draft::of(1).incoming()], 0, NOW).expect_err("failed");
    assert_eq!(refused.kind(), LogErrorKind::Failed);
    assert!(refused.to_string().contains("the disk lost the data"), "{refused}");
    assert!(log.failure().is_some());
    assert_eq!(read_from(&log.reader(), 0, 500).len(), 2, "reads go on");
    assert_eq!(log.close().expect_err("no clean close").kind(), LogErrorKind::Failed);
}

#[test]
fn a_flush_job_counts_only_if_the_log_was_not_truncated_meanwhile() {
    let place = Place::in_memory();
    let mut log = place.clean();
    for _ in 0..4 {
        append(&mut log, &Draft::of(1));
    }
    let job = log.flush_job().expect("a job");
    append(&mut log, &Draft::of(1));
    assert_eq!(log.finish_flush(job.run()).expect("flushed"), 4, "what came later is not");
    append(&mut log, &Draft::of(1));
    let job = log.flush_job().expect("a job");
    log.truncate_to(5, NOW).expect("truncated");
    append(&mut log, &Draft::of(1));
    assert_eq!(log.finish_flush(job.run()).expect("ran"), 4);
    assert_eq!(log.flush().expect("flushed"), 6);
    let known = try_append(&mut log, &Draft::of(1), 0).expect("passes");
    assert_eq!(known.base_offset, 6);
    drop(log);
    let opening = Opening { recovery_point: 6, ..Opening::unclean(NOW) };
    assert_eq!(place.open(opening).0.recovery_point(), 6);
}
