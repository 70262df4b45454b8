//! The files of the operating system.

use std::fs::{self, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags};

use super::sealed::MappedFiles;
use super::{DirEntry, File, Files, OpenMode, SealedBytes, SealedFile, Space};

/// Slices that one `pwritev` takes: Linux's `UIO_MAXIOV`.
const SLICES_MAX: usize = 1024;

/// Sealed files that may be mapped at a time. A segment has two, and Linux lets a process have 65,530
/// maps (`vm.max_map_count`), which it needs for other things, too.
const MAPPED_MAX: usize = 4096;

/// The files of the operating system. Clones share the limit of the files that are mapped.
#[derive(Debug, Clone)]
pub struct DiskFiles {
    mapped: Arc<MappedFiles>,
}

impl Default for DiskFiles {
    fn default() -> Self {
        Self::new()
    }
}

impl DiskFiles {
    /// Files of which at most 4096 sealed ones are mapped at a time.
    pub fn new() -> Self {
        Self::with_mapped_max(MAPPED_MAX)
    }

    /// Files of which at most so many sealed ones are mapped at a time, at least one.
    pub fn with_mapped_max(max: usize) -> Self {
        Self { mapped: Arc::new(MappedFiles::new(max.max(1))) }
    }

    /// How many sealed files are mapped.
    pub fn mapped_files(&self) -> usize {
        self.mapped.count()
    }
}

#[derive(Debug)]
struct DiskFile(fs::File);

impl Files for DiskFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::Read);
        match mode {
            OpenMode::Read | OpenMode::Write => {}
            OpenMode::Create => {
                options.create(true).truncate(false);
            }
            OpenMode::CreateNew => {
                options.create_new(true);
            }
        }
        Ok(Arc::new(DiskFile(options.open(path)?)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Removed between the listing and the look at it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let is_dir = metadata.is_dir();
            let len = if is_dir { 0 } else { metadata.len() };
            entries.push(DirEntry { name, is_dir, len });
        }
        Ok(entries)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn space(&self, dir: &Path) -> io::Result<Option<Space>> {
        let found = rustix::fs::statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Some(Space { free: bytes(found.f_bavail), total: bytes(found.f_blocks) }))
    }

    fn sealed(&self, path: &Path) -> io::Result<SealedBytes> {
        SealedBytes::mapped(&fs::File::open(path)?)
    }

    fn note_mapped(&self, file: &Arc<SealedFile>) {
        self.mapped.add(file);
    }
}

impl File for DiskFile {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            let at = position.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
            let Some(rest) = into.get_mut(filled..) else { break };
            match self.0.read_at(rest, at) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn read_cached_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            let at = position.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
            let Some(rest) = into.get_mut(filled..) else { break };
            let slices = &mut [IoSliceMut::new(rest)];
            match rustix::io::preadv2(&self.0, slices, at, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                // The file system cannot tell, so there is no way not to wait.
                Err(Errno::OPNOTSUPP | Errno::INVAL) => return self.read_at(into, position),
                // EAGAIN among them.
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, slices: &[IoSlice<'_>], mut position: u64) -> io::Result<()> {
        for group in slices.chunks(SLICES_MAX) {
            let total: usize = group.iter().map(|slice| slice.len()).sum();
            let written = pwritev(&self.0, group, position)?;
            if written < total {
                write_rest(&self.0, group, written, position)?;
            }
            position = position.saturating_add(u64::try_from(total).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

fn pwritev(file: &fs::File, slices: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
    loop {
        match rustix::io::pwritev(file, slices, position) {
            Ok(written) => return Ok(written),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Goes on where a write stopped short: a full disk, a signal or a limit.
fn write_rest(
    file: &fs::File,
    slices: &[IoSlice<'_>],
    mut skip: usize,
    mut position: u64,
) -> io::Result<()> {
    for slice in slices {
        let done = skip.min(slice.len());
        skip -= done;
        let from = position.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
        file.write_all_at(slice.get(done..).unwrap_or_default(), from)?;
        position = position.saturating_add(u64::try_from(slice.len()).unwrap_or(u64::MAX));
    }
    Ok(())
}
