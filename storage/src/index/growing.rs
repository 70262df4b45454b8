//! The entries of the index that is appended to, in memory.

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Entry;

/// Words in the first block of an active index; each further block has twice as many.
const FIRST_BLOCK: usize = 64;
/// Blocks at most: room for more words than the largest index file has.
const BLOCKS: usize = 24;

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

    /// Bytes of memory that the entries take.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.blocks.iter().filter_map(OnceLock::get).map(|block| size_of_val(&**block)).sum()
    }

    pub(super) fn len(&self) -> usize {
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

    pub(super) fn get(&self, index: usize) -> Option<E> {
        let first = index * E::WORDS;
        let second = if E::WORDS == 2 { self.word(first + 1)? } else { 0 };
        Some(E::from_words([self.word(first)?, second]))
    }

    /// Adds an entry; false when there is no room. Called by one thread only.
    pub(super) fn push(&self, entry: E) -> bool {
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
