//! Where codecs' working memory lies between two batches, so that not every batch allocates it.

use std::sync::{Mutex, PoisonError};

/// Most that one shelf keeps: about as many as threads compress at a time.
const KEPT_MAX: usize = 4;

/// A few things of one kind, to be taken and given back.
#[derive(Debug)]
pub(super) struct Shelf<T> {
    kept: Mutex<Vec<T>>,
}

impl<T> Shelf<T> {
    pub(super) const fn new() -> Self {
        Self { kept: Mutex::new(Vec::new()) }
    }

    /// One that lies there and is wanted, if there is one.
    pub(super) fn take(&self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().rposition(wanted)?;
        Some(kept.swap_remove(at))
    }

    /// Lays one there; where the shelf is full, the one that came first goes.
    pub(super) fn give(&self, item: T) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let displaced = (kept.len() >= KEPT_MAX).then(|| kept.remove(0));
        kept.push(item);
        drop(kept);
        drop(displaced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shelf_keeps_a_few_and_gives_the_wanted_one() {
        let shelf = Shelf::new();
        assert_eq!(shelf.take(|_: &usize| true), None);
        (0..=KEPT_MAX).for_each(|item| shelf.give(item));
        assert_eq!(shelf.take(|item| *item == 0), None, "the first had to go");
        assert_eq!(shelf.take(|item| *item == 1), Some(1));
        assert_eq!(shelf.take(|item| *item == 1), None, "taken is taken");
    }
}
