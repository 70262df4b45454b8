//! Memory for large answers, which is used again when all have let go of what came in it.

use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;

use crate::state::guard::lock;

/// Most bytes that wait for their next use.
const KEPT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most bytes that are asked of the system for an answer before bytes have come to fill them; it
/// gives pages only as they are filled, so that a length alone takes none.
const AHEAD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// So many small answers in a row, and what is kept for large ones is let go.
const SMALL_ANSWERS: u32 = 8;

/// The buffers of one connection.
///
/// Fresh memory of the size of an answer costs more than a fifth of reading it: each page is asked
/// for and cleared by the kernel anew.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    kept: Arc<Mutex<Kept>>,
    small_answers: u32,
}

#[derive(Debug, Default)]
struct Kept {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// A buffer that others read. Dropped, it goes back if its connection is still there.
struct Lent {
    data: Vec<u8>,
    home: Weak<Mutex<Kept>>,
}

impl Buffers {
    /// An empty buffer for so many bytes. It may have to grow for more than 32 MiB.
    pub(super) fn take(&mut self, size: usize) -> Vec<u8> {
        self.small_answers = 0;
        let kept = &mut *lock(&self.kept);
        // The one that came back last: it is the likeliest to be in the processor still.
        let fitting = kept.buffers.iter().rposition(|buffer| buffer.capacity() >= size);
        if let Some(at) = fitting {
            let buffer = kept.buffers.swap_remove(at);
            kept.bytes -= buffer.capacity();
            return buffer;
        }
        // Answers differ in size; the next one shall fit too.
        Vec::with_capacity(size.next_power_of_two().min(AHEAD_BYTES_MAX))
    }

    /// What came in a buffer, to be read by anybody.
    pub(super) fn lend(&self, data: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { data, home: Arc::downgrade(&self.kept) })
    }

    /// An answer came that needed no buffer of its own.
    pub(super) fn note_small(&mut self) {
        self.small_answers = self.small_answers.saturating_add(1);
        if self.small_answers == SMALL_ANSWERS {
            *lock(&self.kept) = Kept::default();
        }
    }

    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        lock(&self.kept).bytes
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        // Somebody else is at it; or, in a child of a fork, nobody will ever unlock it.
        let Ok(mut kept) = home.try_lock() else { return };
        let mut data = std::mem::take(&mut self.data);
        if kept.bytes.saturating_add(data.capacity()) <= KEPT_BYTES_MAX {
            data.clear();
            kept.bytes += data.capacity();
            kept.buffers.push(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_the_last_slice_of_it_is_gone() {
        let mut buffers = Buffers::default();
        let mut data = buffers.take(100_000);
        data.extend_from_slice(b"record");
        let place = data.as_ptr();
        let whole = buffers.lend(data);
        let slice = whole.slice(1..3);
        drop(whole);
        assert_eq!((buffers.kept_bytes(), &slice[..]), (0, &b"ec"[..]));
        drop(slice);
        let again = buffers.take(90_000);
        assert_eq!((again.as_ptr(), again.len(), buffers.kept_bytes()), (place, 0, 0));
    }

    #[test]
    fn no_more_is_kept_than_the_limit_and_nothing_of_a_connection_that_is_gone() {
        let mut buffers = Buffers::default();
        let lent: Vec<Bytes> = (0..3)
            .map(|_| {
                let data = buffers.take(KEPT_BYTES_MAX / 2);
                buffers.lend(data)
            })
            .collect();
        drop(lent);
        assert_eq!(buffers.kept_bytes(), KEPT_BYTES_MAX, "two of three");
        let late = buffers.take(1);
        let late = buffers.lend(late);
        drop(buffers);
        drop(late);
    }

    #[test]
    fn small_answers_alone_let_go_of_what_is_kept() {
        let mut buffers = Buffers::default();
        let data = buffers.take(1);
        drop(buffers.lend(data));
        for _ in 1..SMALL_ANSWERS {
            buffers.note_small();
        }
        assert!(buffers.kept_bytes() > 0);
        buffers.note_small();
        assert_eq!(buffers.kept_bytes(), 0);
    }

    #[test]
    fn a_length_alone_does_not_ask_for_all_of_it() {
        assert_eq!(Buffers::default().take(100 * 1024 * 1024).capacity(), AHEAD_BYTES_MAX);
    }
}
