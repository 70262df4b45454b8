//! The two sparse indexes of a segment: offset to position, and timestamp to offset.
//!
//! The index of the segment that is appended to lives in memory, in blocks that never move, and is
//! written behind by whole runs of entries: its file appears with its first entry and grows by
//! append. `segment.index.bytes` limits it, since a full index begins a new segment: at its default
//! of 10 MiB an index takes 16 MiB of memory at most. Whatever was not written is rebuilt from the
//! log after a crash. The index of a sealed segment is its file, mapped when it is first needed, and
//! unmapped again where too many are mapped.

mod entry;
mod growing;
#[cfg(test)]
mod tests;
mod writer;

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::files::{Files, SealedBytes, SealedFile, Wait};

pub(crate) use self::entry::{Entry, OffsetEntry, TimeEntry};
use self::growing::Growing;
pub(crate) use self::writer::{IndexWriter, read_entries};

/// An index to search, in memory or in its file.
#[derive(Debug)]
pub(crate) enum Index<E> {
    Active(Arc<Growing<E>>),
    Sealed { files: Arc<dyn Files>, file: Arc<SealedFile> },
}

impl<E: Entry> Index<E> {
    pub(crate) fn sealed(files: Arc<dyn Files>, path: PathBuf) -> Self {
        Self::Sealed { files, file: Arc::new(SealedFile::new(path)) }
    }

    fn view(&self, wait: Wait) -> io::Result<View<'_, E>> {
        let source = match self {
            Self::Active(entries) => Source::Memory(entries),
            Self::Sealed { files, file } => Source::File(match (file.opened(), wait) {
                (Some(bytes), _) => bytes,
                (None, Wait::No) => return Err(io::ErrorKind::WouldBlock.into()),
                (None, Wait::Disk) => file.open(files.as_ref())?,
            }),
        };
        Ok(View { source, wait, resident: Cell::new(None) })
    }

    /// The last entry that passes `test`, where passing entries come before all others.
    ///
    /// `WouldBlock` where that takes a wait for the disk which `wait` rules out.
    pub(crate) fn last_where(
        &self,
        wait: Wait,
        test: impl Fn(&E) -> bool,
    ) -> io::Result<Option<E>> {
        let view = self.view(wait)?;
        let (mut low, mut high) = (0, view.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match view.get(middle)? {
                Some(entry) if test(&entry) => low = middle + 1,
                _ => high = middle,
            }
        }
        low.checked_sub(1).map_or(Ok(None), |index| view.get(index))
    }

    /// The last entry; `WouldBlock` as for [`Self::last_where`].
    pub(crate) fn last(&self, wait: Wait) -> io::Result<Option<E>> {
        let view = self.view(wait)?;
        view.len().checked_sub(1).map_or(Ok(None), |index| view.get(index))
    }
}

/// An index as one search sees it.
struct View<'a, E> {
    source: Source<'a, E>,
    wait: Wait,
    /// The page that was last found to be in memory.
    resident: Cell<Option<usize>>,
}

enum Source<'a, E> {
    Memory(&'a Growing<E>),
    File(Arc<SealedBytes>),
}

impl<E: Entry> View<'_, E> {
    fn len(&self) -> usize {
        match &self.source {
            Source::Memory(entries) => entries.len(),
            Source::File(bytes) => bytes.len() / E::SIZE,
        }
    }

    fn get(&self, index: usize) -> io::Result<Option<E>> {
        match &self.source {
            Source::Memory(entries) => Ok(entries.get(index)),
            Source::File(bytes) => {
                let start = index * E::SIZE;
                if self.wait == Wait::No {
                    self.touch(bytes, start)?;
                }
                Ok(bytes.get(start..).and_then(E::decode))
            }
        }
    }

    /// `WouldBlock` if the entry that begins at `start` is on the disk only.
    fn touch(&self, bytes: &SealedBytes, start: usize) -> io::Result<()> {
        // An entry may lie across the border of two pages.
        for at in [start, start + E::SIZE - 1] {
            let page = bytes.page_of(at);
            if self.resident.get() != Some(page) {
                if !bytes.is_resident(page) {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                self.resident.set(Some(page));
            }
        }
        Ok(())
    }
}
