//! The owner's side of the index that is appended to, and the reading of whole index files.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_protocol::record::HEADER_LEN;

use super::growing::Growing;
use super::{Entry, Index};
use crate::error::LogError;
use crate::files::{File, Files, OpenMode};

/// Most bytes that are read of an index: more than a segment of 2 GiB has entries for.
const INDEX_MAX: usize = 512 << 20;
/// Entries that may wait in memory before they are written behind.
const WRITE_BEHIND: usize = 64;

/// The owner's side of the index that is appended to.
#[derive(Debug)]
pub(crate) struct IndexWriter<E> {
    entries: Arc<Growing<E>>,
    path: PathBuf,
    file: Option<Arc<dyn File>>,
    written: usize,
}

impl<E: Entry> IndexWriter<E> {
    /// An index without entries; its file, if there is one, is not looked at.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { entries: Arc::new(Growing::new()), path, file: None, written: 0 }
    }

    /// An index with the entries of a file, up to the first that `keep` refuses.
    ///
    /// A segment of `log_size` bytes has room for so many batches, so a file that is far too long
    /// is not read to its end. Entries must rise; what comes after one that does not is refused
    /// too. Gives the number of entries that were refused beside the index.
    pub(crate) fn load(
        files: &dyn Files,
        path: PathBuf,
        log_size: u64,
        keep: impl Fn(&E) -> bool,
    ) -> Result<(Self, usize), LogError> {
        let mut index = Self::new(path);
        let bytes = match read_at_most(files, &index.path, entries_max::<E>(log_size)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((index, 0)),
            Err(error) => return Err(LogError::io(&index.path, "cannot read the index", error)),
        };
        let total = bytes.len().div_ceil(E::SIZE);
        let mut last = None;
        for entry in bytes.chunks_exact(E::SIZE).map_while(E::decode) {
            let rises = last.is_none_or(|last| last <= entry.relative());
            if !rises || !keep(&entry) || !index.entries.push(entry) {
                break;
            }
            last = Some(entry.relative());
        }
        let kept = index.entries.len();
        if kept == total {
            index.written = kept;
        } else {
            // Readers of the log before this one may have mapped the file: it is replaced, not cut.
            index.unlink(files)?;
        }
        Ok((index, total - kept))
    }

    pub(crate) fn index(&self) -> Index<E> {
        Index::Active(Arc::clone(&self.entries))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn last(&self) -> Option<E> {
        self.entries.get(self.len().checked_sub(1)?)
    }

    /// Adds an entry; false when there is no room.
    pub(crate) fn push(&self, entry: E) -> bool {
        self.entries.push(entry)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the entries behind once enough of them wait.
    pub(crate) fn write_behind(&mut self, files: &dyn Files) -> Result<(), LogError> {
        if self.len() - self.written < WRITE_BEHIND {
            return Ok(());
        }
        self.write(files)
    }

    /// Writes all entries that are not in the file yet.
    pub(crate) fn write(&mut self, files: &dyn Files) -> Result<(), LogError> {
        let len = self.len();
        if len == self.written {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity((len - self.written) * E::SIZE);
        for entry in (self.written..len).filter_map(|index| self.entries.get(index)) {
            entry.encode(&mut bytes);
        }
        let position = u64::try_from(self.written * E::SIZE).unwrap_or(u64::MAX);
        let write = || {
            let file = match &self.file {
                Some(file) => Arc::clone(file),
                None => files.open(&self.path, OpenMode::Create)?,
            };
            file.write_at(&[IoSlice::new(&bytes)], position)?;
            Ok(file)
        };
        match write() {
            Ok(file) => {
                self.file = Some(file);
                self.written = len;
                Ok(())
            }
            Err(error) => Err(LogError::io(&self.path, "cannot write the index", error)),
        }
    }

    /// Makes the file where no entry has done so.
    pub(crate) fn make_file(&mut self, files: &dyn Files) -> Result<(), LogError> {
        if self.file.is_some() || self.written > 0 {
            return Ok(());
        }
        match files.open(&self.path, OpenMode::Create) {
            Ok(file) => {
                self.file = Some(file);
                Ok(())
            }
            Err(error) => Err(LogError::io(&self.path, "cannot make the index", error)),
        }
    }

    /// Removes the file, so that the next write makes a new one of all entries.
    fn unlink(&mut self, files: &dyn Files) -> Result<(), LogError> {
        self.file = None;
        self.written = 0;
        match files.remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LogError::io(&self.path, "cannot remove the index", error))
            }
            _ => Ok(()),
        }
    }

    /// Forgets all entries and the file, to build the index anew.
    pub(crate) fn reset(&mut self, files: &dyn Files) -> Result<(), LogError> {
        // Readers of an index that is empty already see what will be pushed.
        if self.len() > 0 {
            self.entries = Arc::new(Growing::new());
        }
        self.unlink(files)
    }
}

/// All entries of an index file, and the bytes after the last; none if there is no file.
pub(crate) fn read_entries<E: Entry>(
    files: &dyn Files,
    path: &Path,
) -> io::Result<(Vec<E>, usize)> {
    match read_at_most(files, path, INDEX_MAX) {
        Ok(bytes) => {
            let chunks = bytes.chunks_exact(E::SIZE);
            let rest = chunks.remainder().len();
            Ok((chunks.filter_map(E::decode).collect(), rest))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((Vec::new(), 0)),
        Err(error) => Err(error),
    }
}

/// A byte more than the index of a segment of this size can have.
fn entries_max<E: Entry>(log_size: u64) -> usize {
    let log_size = usize::try_from(log_size).unwrap_or(usize::MAX);
    (log_size / HEADER_LEN).saturating_mul(E::SIZE).saturating_add(1)
}

fn read_at_most(files: &dyn Files, path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let file = files.open(path, OpenMode::Read)?;
    let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len.min(max)];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}
