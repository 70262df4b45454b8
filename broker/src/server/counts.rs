//! By which way records went from files to sockets.

use std::sync::atomic::{AtomicU64, Ordering};

/// By which way records went from files to clients, since the broker started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadStats {
    /// Bytes that the system sent straight from its page cache (`sendfile`).
    pub sendfile_bytes: u64,
    /// Bytes that were copied through a buffer of ours.
    pub copied_bytes: u64,
    /// Reads that had to wait for the disk, on threads of their own.
    pub cold_reads: u64,
}

/// The counters behind [`ReadStats`].
#[derive(Debug, Default)]
pub(crate) struct ReadCounts {
    sendfile_bytes: AtomicU64,
    copied_bytes: AtomicU64,
    cold_reads: AtomicU64,
}

impl ReadCounts {
    pub(crate) fn note_sendfile(&self, bytes: usize) {
        add(&self.sendfile_bytes, bytes);
    }

    pub(crate) fn note_copied(&self, bytes: usize) {
        add(&self.copied_bytes, bytes);
    }

    pub(crate) fn note_cold(&self) {
        add(&self.cold_reads, 1);
    }

    /// What was counted so far.
    pub(crate) fn stats(&self) -> ReadStats {
        ReadStats {
            sendfile_bytes: self.sendfile_bytes.load(Ordering::Relaxed),
            copied_bytes: self.copied_bytes.load(Ordering::Relaxed),
            cold_reads: self.cold_reads.load(Ordering::Relaxed),
        }
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
}
