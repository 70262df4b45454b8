//! The two sparse indexes of a segment: offset to position, and timestamp to offset.
//!
//! The index of the segment that is appended to lives in memory, in blocks that never move, and is
//! written behind by whole runs of entries: its file appears with its first entry and grows by
//! append. Whatever was not written is rebuilt from the log after a crash. The index of a sealed
//! segment is its file, mapped when it is first needed.

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ottla_protocol::record::HEADER_LEN;

use crate::error::LogError;
use crate::files::{File, Files, OpenMode, SealedBytes};

/// Words in the first block of an active index; each further block has twice as many.
const FIRST_BLOCK: usize = 64;
/// Blocks at most: room for more words than the largest index file has.
const BLOCKS: usize = 24;
/// Most bytes that are read of an index: more than a segment of 2 GiB has entries for.
const INDEX_MAX: usize = 512 << 20;
/// Entries that may wait in memory before they are written behind.
const WRITE_BEHIND: usize = 64;

/// An entry of an index: its form in the file, and in memory as 64-bit words.
pub(crate) trait Entry: Copy + Debug {
    /// Bytes in the file.
    const SIZE: usize;
    /// Words in memory, 1 or 2.
    const WORDS: usize;
    fn encode(&self, out: &mut Vec<u8>);
    fn decode(bytes: &[u8]) -> Option<Self>;
    fn words(&self) -> [u64; 2];
    fn from_words(words: [u64; 2]) -> Self;
    /// The offset it names, less the segment's base.
    fn relative(&self) -> u32;
}

/// Where the batch begins whose last offset this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    pub(crate) relative: u32,
    pub(crate) position: u32,
}

/// The largest timestamp up to an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    pub(crate) timestamp: i64,
    pub(crate) relative: u32,
}

impl Entry for OffsetEntry {
    const SIZE: usize = 8;
    const WORDS: usize = 1;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.relative.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let &[r0, r1, r2, r3, p0, p1, p2, p3] = bytes.first_chunk()?;
        let relative = u32::from_be_bytes([r0, r1, r2, r3]);
        Some(Self { relative, position: u32::from_be_bytes([p0, p1, p2, p3]) })
    }

    fn words(&self) -> [u64; 2] {
        [u64::from(self.relative) << 32 | u64::from(self.position), 0]
    }

    fn from_words([word, _]: [u64; 2]) -> Self {
        let [r0, r1, r2, r3, p0, p1, p2, p3] = word.to_be_bytes();
        let relative = u32::from_be_bytes([r0, r1, r2, r3]);
        Self { relative, position: u32::from_be_bytes([p0, p1, p2, p3]) }
    }

    fn relative(&self) -> u32 {
        self.relative
    }
}

impl Entry for TimeEntry {
    const SIZE: usize = 12;
    const WORDS: usize = 2;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.relative.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let timestamp = i64::from_be_bytes(*bytes.first_chunk()?);
        let relative = u32::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
        Some(Self { timestamp, relative })
    }

    fn words(&self) -> [u64; 2] {
        [self.timestamp.cast_unsigned(), u64::from(self.relative)]
    }

    fn from_words([timestamp, relative]: [u64; 2]) -> Self {
        let relative = u32::try_from(relative).unwrap_or(u32::MAX);
        Self { timestamp: timestamp.cast_signed(), relative }
    }

    fn relative(&self) -> u32 {
        self.relative
    }
}

/// Entries that one thread adds to while others search them.
#[derive(Debug)]
pub(crate) struct Growing<E> {
    blocks: [OnceLock<Box<[AtomicU64]>>; BLOCKS],
    len: AtomicUsize,
    kind: PhantomData<E>,
}

impl<E: Entry> Growing<E> {
    pub(crate) fn new() -> Self {
        let blocks = [const { OnceLock::new() }; BLOCKS];
        Self { blocks, len: AtomicUsize::new(0), kind: PhantomData }
    }

    fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    fn place(word: usize) -> (usize, usize) {
        let shifted = word + FIRST_BLOCK;
        let block = shifted.ilog2().saturating_sub(FIRST_BLOCK.ilog2());
        let block = usize::try_from(block).unwrap_or(BLOCKS);
        (block, shifted - (FIRST_BLOCK << block))
    }

    fn word(&self, word: usize) -> Option<u64> {
        let (block, at) = Self::place(word);
        Some(self.blocks.get(block)?.get()?.get(at)?.load(Ordering::Relaxed))
    }

    fn get(&self, index: usize) -> Option<E> {
        let first = index * E::WORDS;
        let second = if E::WORDS == 2 { self.word(first + 1)? } else { 0 };
        Some(E::from_words([self.word(first)?, second]))
    }

    /// Adds an entry; false when there is no room. Called by one thread only.
    fn push(&self, entry: E) -> bool {
        let len = self.len();
        let words = entry.words();
        for (word, &value) in (len * E::WORDS..).zip(words.iter().take(E::WORDS)) {
            let (block, at) = Self::place(word);
            let Some(cell) = self.blocks.get(block) else { return false };
            let block =
                cell.get_or_init(|| (0..FIRST_BLOCK << block).map(|_| AtomicU64::new(0)).collect());
            let Some(slot) = block.get(at) else { return false };
            slot.store(value, Ordering::Relaxed);
        }
        // Readers that see the length see the words.
        self.len.store(len + 1, Ordering::Release);
        true
    }
}

/// An index to search, in memory or in its file.
#[derive(Debug)]
pub(crate) enum Index<E> {
    Active(Arc<Growing<E>>),
    Sealed { files: Arc<dyn Files>, path: PathBuf, bytes: OnceLock<SealedBytes> },
}

impl<E: Entry> Index<E> {
    pub(crate) const fn sealed(files: Arc<dyn Files>, path: PathBuf) -> Self {
        Self::Sealed { files, path, bytes: OnceLock::new() }
    }

    /// Whether it can be searched without opening its file.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Active(_) => true,
            Self::Sealed { bytes, .. } => bytes.get().is_some(),
        }
    }

    fn view(&self) -> io::Result<View<'_, E>> {
        match self {
            Self::Active(entries) => {
                Ok(View { source: Source::Memory(entries), len: entries.len() })
            }
            Self::Sealed { files, path, bytes } => {
                let bytes = if let Some(bytes) = bytes.get() {
                    bytes
                } else {
                    let read = match files.sealed(path) {
                        // Without a first entry there is no file.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {
                            SealedBytes::owned(Vec::new())
                        }
                        read => read?,
                    };
                    bytes.get_or_init(|| read)
                };
                Ok(View { source: Source::File(bytes), len: bytes.len() / E::SIZE })
            }
        }
    }

    /// The last entry that passes `test`, where passing entries come before all others.
    pub(crate) fn last_where(&self, test: impl Fn(&E) -> bool) -> io::Result<Option<E>> {
        let view = self.view()?;
        let (mut low, mut high) = (0, view.len);
        while low < high {
            let middle = low + (high - low) / 2;
            match view.get(middle) {
                Some(entry) if test(&entry) => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low.checked_sub(1).and_then(|index| view.get(index)))
    }

    pub(crate) fn last(&self) -> io::Result<Option<E>> {
        let view = self.view()?;
        Ok(view.len.checked_sub(1).and_then(|index| view.get(index)))
    }
}

struct View<'a, E> {
    source: Source<'a, E>,
    len: usize,
}

enum Source<'a, E> {
    Memory(&'a Growing<E>),
    File(&'a SealedBytes),
}

impl<E: Entry> View<'_, E> {
    fn get(&self, index: usize) -> Option<E> {
        match self.source {
            Source::Memory(entries) => entries.get(index),
            Source::File(bytes) => E::decode(bytes.get(index * E::SIZE..)?),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFiles;

    #[test]
    fn entries_stay_readable_while_the_index_grows() {
        let index = IndexWriter::<TimeEntry>::new(PathBuf::from("/x"));
        let view = index.index();
        assert_eq!(view.last().expect("memory"), None);
        for relative in 0..10_000_u32 {
            assert!(index.push(TimeEntry { timestamp: i64::from(relative) * 3, relative }));
        }
        let found = view.last_where(|entry| entry.timestamp <= 2_999).expect("memory");
        assert_eq!(found, Some(TimeEntry { timestamp: 2_997, relative: 999 }));
        assert_eq!(view.last_where(|_| false).expect("memory"), None);
        assert_eq!(view.last().expect("memory").map(|last| last.relative), Some(9_999));
    }

    #[test]
    fn file_appears_with_its_first_entry_and_comes_back() {
        let files: Arc<dyn Files> = Arc::new(MemoryFiles::new());
        let path = PathBuf::from("/00000000000000000000.index");
        let mut index = IndexWriter::<OffsetEntry>::new(path.clone());
        index.write(files.as_ref()).expect("nothing to write");
        assert!(!files.exists(&path).expect("asked"));
        for relative in 1..=100 {
            index.push(OffsetEntry { relative, position: relative * 4096 });
            index.write_behind(files.as_ref()).expect("written");
        }
        assert_eq!(files.read(&path).expect("read").len(), 64 * 8, "the rest waits");
        index.write(files.as_ref()).expect("written");
        let bytes = files.read(&path).expect("read");
        assert_eq!((bytes.len(), &bytes[..8]), (800, &[0, 0, 0, 1, 0, 0, 16, 0][..]));
        let sealed = Index::<OffsetEntry>::sealed(Arc::clone(&files), path.clone());
        let found = sealed.last_where(|entry| entry.relative <= 50).expect("read");
        assert_eq!(found, Some(OffsetEntry { relative: 50, position: 50 * 4096 }));
        let (loaded, refused) =
            IndexWriter::<OffsetEntry>::load(files.as_ref(), path, 1 << 20, |entry| {
                entry.relative < 60
            })
            .expect("loaded");
        assert_eq!((loaded.len(), refused), (59, 41));
        assert_eq!(loaded.last().map(|entry| entry.relative), Some(59));
    }

    #[test]
    fn entries_that_fall_are_refused() {
        let files = MemoryFiles::new();
        let path = PathBuf::from("/x");
        let mut index = IndexWriter::<OffsetEntry>::new(path.clone());
        for relative in [1, 5, 3, 8] {
            index.push(OffsetEntry { relative, position: relative });
        }
        index.write(&files).expect("written");
        let (loaded, refused) =
            IndexWriter::<OffsetEntry>::load(&files, path, 1 << 20, |_| true).expect("loaded");
        assert_eq!((loaded.len(), refused), (2, 2));
    }

    #[test]
    fn a_file_longer_than_its_segment_allows_is_refused() {
        let files = MemoryFiles::new();
        let path = PathBuf::from("/x");
        let mut index = IndexWriter::<OffsetEntry>::new(path.clone());
        let mut load = |log_size| {
            index.reset(&files).expect("removed");
            for relative in 0..100 {
                index.push(OffsetEntry { relative, position: relative });
            }
            index.write(&files).expect("written");
            let path = path.clone();
            IndexWriter::<OffsetEntry>::load(&files, path, log_size, |_| true)
                .map(|(index, refused)| (index.len(), refused))
                .expect("loaded")
        };
        assert_eq!(load(100 * 61), (100, 0));
        assert_eq!(load(99 * 61), (99, 1));
    }
}
