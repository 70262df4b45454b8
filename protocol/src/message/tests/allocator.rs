//! An allocator that counts what this thread holds, so that tests can bound it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[derive(Debug)]
struct Counting;

thread_local! {
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

fn note(change: impl FnOnce(usize) -> usize) {
    // A thread that is ending has no counter any more, and nobody who asks.
    let _ended = IN_USE.try_with(|in_use| {
        in_use.set(change(in_use.get()));
        MOST.try_with(|most| most.set(most.get().max(in_use.get())))
    });
}

#[allow(unsafe_code, reason = "a global allocator is an unsafe trait")]
// SAFETY: every call goes to the system's allocator unchanged; the counters hold no pointers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(|in_use| in_use.saturating_add(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(|in_use| in_use.saturating_sub(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What `work` gives, and the most bytes it held at a time beyond those held before.
pub(crate) fn most_in_use<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = IN_USE.get();
    MOST.set(before);
    let outcome = work();
    (outcome, MOST.get().saturating_sub(before))
}

#[test]
fn what_is_held_at_a_time_is_counted() {
    let (_, most) = most_in_use(|| {
        drop(vec![0_u8; 1_000]);
        vec![0_u8; 3_000]
    });
    assert_eq!(most, 3_000);
}
