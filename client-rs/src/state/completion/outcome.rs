//! How a batch ended, and what that says of each of its records.

use std::sync::Arc;

use super::Completion;
use crate::error::Error;

/// How a batch ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is stored.
    Stored {
        /// Offset of the first record; −1 if it is not known.
        base_offset: i64,
        /// The broker's time, if the topic's records get that; else −1.
        append_time: i64,
    },
    /// It is not, or not for certain.
    Failed(Error),
    /// Its records have gone on to other batches.
    Forwarded(Forward),
}

/// Where each record of a batch went.
#[derive(Debug, Default)]
pub(crate) struct Forward {
    targets: Vec<Arc<Completion>>,
    /// Of each record: which of `targets`, and its index there.
    places: Vec<(u32, u32)>,
}

impl Forward {
    /// Notes where the next record went.
    pub(crate) fn push(&mut self, target: &Arc<Completion>, index: u32) {
        let known = self.targets.iter().rposition(|known| Arc::ptr_eq(known, target));
        let place = known.unwrap_or_else(|| {
            self.targets.push(Arc::clone(target));
            self.targets.len() - 1
        });
        self.places.push((u32::try_from(place).unwrap_or(u32::MAX), index));
    }

    pub(super) fn get(&self, index: u32) -> Option<(&Arc<Completion>, u32)> {
        let &(target, index) = self.places.get(usize::try_from(index).ok()?)?;
        Some((self.targets.get(usize::try_from(target).ok()?)?, index))
    }
}
