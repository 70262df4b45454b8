//! A disk in memory that fills up, fails to sync, or has no descriptors left.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ottla_storage::{DirEntry, File, Files, MemoryFiles, OpenMode, Space};

/// Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    inner: MemoryFiles,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    fails: AtomicBool,
    no_descriptors: AtomicBool,
    syncs: AtomicUsize,
    free: AtomicU64,
}

#[derive(Debug)]
struct Open(Arc<dyn File>, Arc<State>);

impl Disk {
    /// From now on syncs fail, or do not.
    pub(super) fn set_failing(&self, fails: bool) {
        self.state.fails.store(fails, Ordering::SeqCst);
    }

    /// From now on no file can be opened, or can.
    pub(super) fn set_descriptors(&self, left: bool) {
        self.state.no_descriptors.store(!left, Ordering::SeqCst);
    }

    pub(super) fn set_free(&self, bytes: u64) {
        self.state.free.store(bytes, Ordering::SeqCst);
    }

    /// Syncs of files that were tried.
    pub(super) fn syncs(&self) -> usize {
        self.state.syncs.load(Ordering::SeqCst)
    }
}

impl Files for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if self.state.no_descriptors.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        Ok(Arc::new(Open(self.inner.open(path, mode)?, self.state.clone())))
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

    fn space(&self, _dir: &Path) -> io::Result<Option<Space>> {
        let free = self.state.free.load(Ordering::SeqCst);
        Ok(Some(Space { free, total: 1 << 30 }))
    }
}

impl File for Open {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(into, position)
    }

    fn write_at(&self, slices: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        self.0.write_at(slices, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.1.syncs.fetch_add(1, Ordering::SeqCst);
        if self.1.fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk lost the data"));
        }
        self.0.sync_data()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
