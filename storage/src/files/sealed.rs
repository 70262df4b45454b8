//! Files that never change again: opened when they are first read, and closed where too many are.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwapOption;

use super::{Files, SealedBytes};

/// A file that never changes again; open from the first read on, until it is closed for others'
/// sake. Whoever reads it then has its bytes as long as it takes.
#[derive(Debug)]
pub struct SealedFile {
    path: PathBuf,
    bytes: ArcSwapOption<SealedBytes>,
    /// It was read since somebody last wanted to close it.
    used: AtomicBool,
}

impl SealedFile {
    /// A file that is not open.
    pub fn new(path: PathBuf) -> Self {
        Self { path, bytes: ArcSwapOption::empty(), used: AtomicBool::new(false) }
    }

    /// Its bytes, if it is open.
    pub fn opened(&self) -> Option<Arc<SealedBytes>> {
        let bytes = self.bytes.load_full()?;
        // Written only where it changes: readers on many cores share the line.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Some(bytes)
    }

    /// Its bytes; none if there is no such file, as for an index without a first entry.
    pub fn open(self: &Arc<Self>, files: &dyn Files) -> io::Result<Arc<SealedBytes>> {
        if let Some(bytes) = self.opened() {
            return Ok(bytes);
        }
        let bytes = match files.sealed(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => SealedBytes::owned(Vec::new()),
            read => read?,
        };
        let bytes = Arc::new(bytes);
        self.used.store(true, Ordering::Relaxed);
        let before = self.bytes.swap(Some(Arc::clone(&bytes)));
        // Of two that open it at once, one counts it.
        if before.is_none() && bytes.is_mapped() {
            files.note_mapped(self);
        }
        Ok(bytes)
    }

    /// Whether it was read since this was last asked.
    fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn close(&self) {
        self.bytes.store(None);
    }
}

/// The files that are mapped, and how many may be.
///
/// Where there would be more, the oldest are unmapped that nobody has read since the last such
/// round.
#[derive(Debug)]
pub(super) struct MappedFiles {
    max: usize,
    /// In the order in which they were mapped, or spared; each once.
    files: Mutex<VecDeque<Weak<SealedFile>>>,
}

impl MappedFiles {
    pub(super) const fn new(max: usize) -> Self {
        Self { max, files: Mutex::new(VecDeque::new()) }
    }

    pub(super) fn add(&self, file: &Arc<SealedFile>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        // One round: where all are in use the oldest goes, too.
        let mut spared = files.len();
        files.push_back(Arc::downgrade(file));
        while files.len() > self.max {
            let Some(oldest) = files.pop_front() else { break };
            // Those of deleted segments are gone.
            let Some(file) = oldest.upgrade() else { continue };
            if spared > 0 && file.take_used() {
                spared -= 1;
                files.push_back(oldest);
            } else {
                file.close();
            }
        }
    }

    /// How many are mapped.
    pub(super) fn count(&self) -> usize {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter().filter(|file| file.strong_count() > 0).count()
    }
}
