//! What a power cut leaves: bytes and names that were flushed, and nothing else.
#![allow(clippy::expect_used, reason = "a test ends where its set-up does not work")]

mod place;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_storage::{DirEntry, File, Files, MemoryFiles, OpenMode, Opening};
use place::{Draft, NOW, Place, append, read_from};

/// Files in memory that know which of their bytes and names were flushed. Stricter than any disk:
/// what was not flushed is lost, always.
#[derive(Debug, Clone, Default)]
struct Unsafe {
    now: MemoryFiles,
    flushed: Arc<Mutex<Flushed>>,
}

#[derive(Debug, Default)]
struct Flushed {
    /// Who stands behind a name now. A rename takes the number along.
    numbers: BTreeMap<PathBuf, u64>,
    /// Names as the disk has them; folders have no number.
    names: BTreeMap<PathBuf, Option<u64>>,
    bytes: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

#[derive(Debug)]
struct UnsafeFile {
    inner: Arc<dyn File>,
    number: u64,
    flushed: Arc<Mutex<Flushed>>,
}

impl Unsafe {
    fn flushed(&self) -> MutexGuard<'_, Flushed> {
        self.flushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is there once the power is back.
    fn cut_power(&self) -> MemoryFiles {
        let flushed = self.flushed();
        let after = MemoryFiles::new();
        after.create_dir_all(Path::new("/data")).expect("made");
        let known = |path: &Path| {
            let mut above =
                path.ancestors().skip(1).take_while(|above| *above != Path::new("/data"));
            above.all(|above| flushed.names.contains_key(above))
        };
        for (path, number) in &flushed.names {
            if !known(path) {
                continue;
            }
            let Some(number) = number else {
                after.create_dir_all(path).expect("made");
                continue;
            };
            let file = after.open(path, OpenMode::Create).expect("made");
            let bytes = flushed.bytes.get(number).map(Vec::as_slice).unwrap_or_default();
            file.write_at(&[IoSlice::new(bytes)], 0).expect("written");
        }
        after
    }
}

impl Files for Unsafe {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inner = self.now.open(path, mode)?;
        let mut state = self.flushed();
        let next = state.next;
        let number = *state.numbers.entry(path.to_owned()).or_insert(next);
        if number == next {
            state.next += 1;
        }
        Ok(Arc::new(UnsafeFile { inner, number, flushed: Arc::clone(&self.flushed) }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.now.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.now.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.now.rename(from, to)?;
        let mut state = self.flushed();
        if let Some(number) = state.numbers.remove(from) {
            state.numbers.insert(to.to_owned(), number);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.now.remove_file(path)?;
        self.flushed().numbers.remove(path);
        Ok(())
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.now.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let entries = self.now.list(dir)?;
        let mut state = self.flushed();
        state.names.retain(|path, _| path.parent() != Some(dir));
        for entry in entries {
            let path = dir.join(&entry.name);
            let number = state.numbers.get(&path).copied().filter(|_| !entry.is_dir);
            state.names.insert(path, number);
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.now.exists(path)
    }
}

impl File for UnsafeFile {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.read_at(into, position)
    }

    fn write_at(&self, slices: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        self.inner.write_at(slices, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        let len = usize::try_from(self.inner.len()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; len];
        self.inner.read_exact_at(&mut bytes, 0)?;
        let mut state = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        state.bytes.insert(self.number, bytes);
        Ok(())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A log on such files, with segments of a few batches.
fn place(files: &Unsafe) -> Place {
    Place { files: Arc::new(files.clone()), ..Place::in_memory() }.with(|config| {
        config.segment_bytes = 400;
        config.index_interval_bytes = 100;
    })
}

/// The same log after the power is back.
fn after(files: &Unsafe) -> Place {
    Place { files: Arc::new(files.cut_power()), ..place(files) }
}

#[test]
fn what_was_flushed_survives_at_every_length() {
    for count in 1..20_i32 {
        let files = Unsafe::default();
        let place = place(&files);
        let mut log = place.clean();
        for at in 0..count {
            let incoming = vec![Draft::of(1).producer(1, 0, at).incoming()];
            log.append(incoming, at / 3, NOW).expect("appended")[0].as_ref().expect("stored");
            if at % 2 == 0 {
                log.flush().expect("flushed");
            }
        }
        let reached = log.flush().expect("flushed");
        let epochs = log.epochs().to_vec();
        // Nobody flushes what comes now.
        log.append(vec![Draft::of(1).incoming()], 99, NOW).expect("appended");
        drop(log);
        let opening = Opening { recovery_point: reached, ..Opening::unclean(NOW) };
        let (mut log, report) = after(&files).open(opening);
        assert_eq!(log.log_end(), i64::from(count), "{report:?}");
        assert_eq!(read_from(&log.reader(), 0, 100).len(), usize::try_from(count).expect("few"));
        assert_eq!(log.epochs(), epochs, "after {count}");
        let known = append(&mut log, &Draft::of(1).producer(1, 0, count - 1));
        assert!(known.duplicate, "the producer's last batch is known, after {count}");
    }
}

#[test]
fn sealed_segments_need_no_check_below_the_recovery_point() {
    let files = Unsafe::default();
    let mut log = place(&files).clean();
    for at in 0..20 {
        log.append(vec![Draft::of(1).incoming()], at / 3, NOW).expect("appended");
        if at == 10 {
            log.flush().expect("flushed");
        }
    }
    let reached = log.flush().expect("flushed");
    let (epochs, segments) = (log.epochs().to_vec(), log.segment_count());
    assert!(segments > 3, "{segments} segments");
    drop(log);
    let opening = Opening { recovery_point: reached, ..Opening::unclean(NOW) };
    let (log, report) = after(&files).open(opening);
    assert_eq!((report.checked_segments, report.rebuilt_indexes), (1, 0), "{report:?}");
    assert!(report.warnings.is_empty(), "{report:?}");
    assert_eq!(log.epochs(), epochs, "also those of segments that are not read again");
}

#[test]
fn closed_log_is_whole_and_trusted() {
    // In one segment and in many.
    for count in [2, 20] {
        let files = Unsafe::default();
        let mut log = place(&files).clean();
        for at in 0..count {
            let incoming = vec![Draft::of(1).producer(1, 0, at).incoming()];
            log.append(incoming, at / 2, NOW).expect("appended")[0].as_ref().expect("stored");
        }
        let epochs = log.epochs().to_vec();
        log.close().expect("closed");
        let (mut log, report) = after(&files).open(Opening::clean(NOW));
        assert_eq!((log.log_end(), report.checked_segments), (i64::from(count), 0), "{report:?}");
        assert!(report.warnings.is_empty(), "{report:?}");
        assert_eq!(log.epochs(), epochs);
        assert!(append(&mut log, &Draft::of(1).producer(1, 0, count - 1)).duplicate);
    }
}

#[test]
fn folder_whose_maker_crashed_is_flushed_by_its_next_owner() {
    let files = Unsafe::default();
    drop(place(&files).clean());
    let (mut log, _) = place(&files).after_crash();
    append(&mut log, &Draft::of(1));
    log.flush().expect("flushed");
    drop(log);
    let (log, _) = after(&files).after_crash();
    assert_eq!(log.log_end(), 1);
}
