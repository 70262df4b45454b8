//! Buffers that connections borrow while they have something to send.

use std::sync::{Mutex, PoisonError};

/// Bytes of one buffer: what one write to a socket carries at most.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;

/// Buffers that are kept when nobody uses them.
const KEPT: usize = 16;

/// Buffers of one size, shared by all connections, so that an idle one has none.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Mutex<Vec<Box<[u8]>>>,
}

impl Buffers {
    /// A buffer of [`BUFFER_BYTES`], with old bytes in it.
    pub(crate) fn take(&self) -> Box<[u8]> {
        let kept = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
    }

    /// Gives a buffer back.
    pub(crate) fn put(&self, buffer: Box<[u8]>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT {
            free.push(buffer);
        }
    }
}
