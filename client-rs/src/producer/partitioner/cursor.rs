//! Where a topic's records were put last by the rules that do not look at keys.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::state::backoff::mix;

/// Where a topic's keyless records were put last.
#[derive(Debug)]
pub(crate) struct Cursor {
    next: AtomicU32,
    random: AtomicU64,
    /// The partition that records stick to, plus 1; 0 before the first.
    stuck: AtomicUsize,
    /// Bytes put there.
    put: AtomicUsize,
}

impl Cursor {
    /// From a seed, lest producers that live shortly all begin with partition 0.
    pub(crate) fn new(seed: u64) -> Self {
        let next = u32::try_from(mix(seed) >> 32).unwrap_or(0);
        Self {
            next: AtomicU32::new(next),
            random: AtomicU64::new(seed),
            stuck: AtomicUsize::new(0),
            put: AtomicUsize::new(0),
        }
    }

    /// A number below `count`, each in its turn.
    pub(super) fn next(&self, count: usize) -> usize {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        usize::try_from(at).unwrap_or(0).checked_rem(count).unwrap_or(0)
    }

    /// Any number below `count`.
    pub(super) fn any(&self, count: usize) -> usize {
        // A counter that all threads share, mixed by each for itself.
        let at = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        usize::try_from(mix(at).checked_rem(count).unwrap_or(0)).unwrap_or(0)
    }

    /// The partition that records stick to, if there is one.
    pub(super) fn stuck(&self) -> Option<usize> {
        self.stuck.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Bytes put there so far.
    pub(crate) fn put(&self) -> usize {
        self.put.load(Ordering::Relaxed)
    }

    /// Notes that a record of about so many bytes went where records stick.
    pub(crate) fn note_put(&self, bytes: usize) {
        self.put.fetch_add(bytes, Ordering::Relaxed);
    }

    /// From one partition to the next, and where that is: another thread may have been first.
    pub(super) fn switch(&self, from: Option<usize>, to: usize) -> usize {
        let code = |index: Option<usize>| index.map_or(0, |index| index + 1);
        let (old, new) = (code(from), code(Some(to)));
        match self.stuck.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                self.put.store(0, Ordering::Relaxed);
                to
            }
            Err(other) => other.checked_sub(1).unwrap_or(to),
        }
    }
}
