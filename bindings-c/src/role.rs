//! Roles: what one thread does at a time, and others leave to it without waiting.

use std::sync::atomic::{AtomicBool, Ordering};

/// A role that is held, and given back at the end, whatever that is.
#[derive(Debug)]
pub(crate) struct Role<'a>(&'a AtomicBool);

impl<'a> Role<'a> {
    /// Takes it, unless somebody has it.
    pub(crate) fn take(taken: &'a AtomicBool) -> Option<Self> {
        (!taken.swap(true, Ordering::Acquire)).then_some(Self(taken))
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
