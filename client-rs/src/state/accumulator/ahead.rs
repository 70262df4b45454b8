//! Memory that will be written to soon, asked for ahead.
#![allow(unsafe_code, reason = "a hint to the processor is unsafe by its type alone")]

/// Has the processor fetch the next lines of a chunk for writing; `spare` bytes of it are free.
///
/// The I/O thread, on another core, had them last. A record that is written there waits for each
/// line, and its partition's lock is not released before. As a rule the partition's next record
/// comes after some of other partitions, and finds them here.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn prefetch(chunk: &[u8], spare: usize) {
    use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};

    for ahead in [64, 128, 192] {
        if ahead < spare {
            let line = chunk.as_ptr().wrapping_add(chunk.len() + ahead);
            // SAFETY: a hint reads and writes nothing, whatever the address is.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.cast()) };
        }
    }
}

/// Elsewhere stable Rust has no such hint.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) const fn prefetch(_chunk: &[u8], _spare: usize) {}
