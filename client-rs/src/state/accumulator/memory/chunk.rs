//! Bytes that are charged to the budget, and give it back when they are dropped.

use std::sync::Arc;

use super::Memory;
use crate::process::Process;
use crate::state::sync::{AtomicUsize, Ordering};

/// Bytes of a batch. Dropped, it gives its memory back.
///
/// The checksum of a batch covers neither topic nor partition, so a chunk must outlive the last
/// write of it, or another batch's records go out as this one's (KAFKA-19012).
#[derive(Debug)]
pub(crate) struct Chunk {
    /// What it holds. Its capacity is the chunk's; it must not grow beyond.
    pub(crate) data: Vec<u8>,
    charged: AtomicUsize,
    memory: Arc<Memory>,
}

impl Chunk {
    /// A chunk for which so many bytes of the budget are charged already.
    pub(super) fn new(data: Vec<u8>, charged: usize, memory: &Arc<Memory>) -> Self {
        Self { data, charged: AtomicUsize::new(charged), memory: Arc::clone(memory) }
    }

    /// Bytes it has room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.data.capacity() - self.data.len()
    }

    /// Bytes charged for it.
    pub(crate) fn charged(&self) -> usize {
        self.charged.load(Ordering::Relaxed)
    }

    /// Takes over what another chunk is charged for, up to so many bytes; how many that are. The
    /// other one is to be given up.
    pub(crate) fn take_charge(&self, from: &Self, most: usize) -> usize {
        let bytes = from.charged().min(most);
        from.charged.fetch_sub(bytes, Ordering::Relaxed);
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// A new chunk for so many bytes, charged for as a part of this one, which is to be given up.
    pub(crate) fn part(&self, bytes: usize) -> Self {
        let part = self.memory.uncharged(self.memory.buffer(bytes));
        let taken = part.take_charge(self, part.data.capacity());
        debug_assert_eq!(taken, part.data.capacity(), "the parts are not more than the whole");
        part
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    bytes: usize,
    memory: Arc<Memory>,
    process: Process,
}

impl Charge {
    /// So many bytes, which are charged already.
    pub(super) fn new(bytes: usize, memory: &Arc<Memory>) -> Self {
        Self { bytes, memory: Arc::clone(memory), process: Process::current() }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // In a child of a fork nobody waits for room, and a lock may be held for ever.
        if self.process.is_current() {
            self.memory.release(self.bytes);
        }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.memory.give_back(std::mem::take(&mut self.data), self.charged());
    }
}

/// A chunk that is written into no more, shared with those who send it.
#[derive(Debug, Clone)]
pub(crate) struct Written(Arc<Chunk>);

impl Written {
    pub(crate) fn new(chunk: Chunk) -> Self {
        Self(Arc::new(chunk))
    }

    /// Bytes charged for it.
    pub(crate) fn charged(&self) -> usize {
        self.0.charged()
    }

    /// What a chunk that takes this one's place is charged for: so many bytes of its charge, at most.
    pub(crate) fn hand_on(&self, to: &Chunk, most: usize) -> usize {
        to.take_charge(&self.0, most)
    }
}

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        &self.0.data
    }
}
