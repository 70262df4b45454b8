//! How much chunks take, and when they are used again.

use super::*;
use crate::state::parker::{Parker, Sleeper};

#[test]
fn chunks_are_charged_by_capacity_up_to_the_limit_and_used_again() {
    let memory = Memory::new(3 * CHUNK_MIN);
    let first = memory.try_chunk(CHUNK_MIN).unwrap();
    assert_eq!(first.data.capacity(), CHUNK_MIN);
    let _second = memory.try_chunk(2 * CHUNK_MIN).unwrap();
    assert_eq!(memory.used(), 3 * CHUNK_MIN);
    assert!(memory.try_chunk(CHUNK_MIN).is_none());
    let address = first.data.as_ptr();
    drop(first);
    assert_eq!(memory.try_chunk(CHUNK_MIN).unwrap().data.as_ptr(), address);
}

#[test]
fn chunk_sizes_are_powers_of_two_up_to_a_mebibyte() {
    let sizes = [0, 1, CHUNK_MIN, CHUNK_MIN + 1, 1 << 20, (1 << 20) + 1].map(chunk_for);
    assert_eq!(sizes, [CHUNK_MIN, CHUNK_MIN, CHUNK_MIN, 2 * CHUNK_MIN, 1 << 20, (1 << 20) + 1]);
    assert_eq!((class_of(CHUNK_MIN), class_of(1 << 20)), (Some(0), Some(CLASSES - 1)));
    assert_eq!((class_of(CHUNK_MIN + 1), class_of(1 << 21)), (None, None));
}

#[test]
fn chunks_that_are_kept_are_within_the_budget_too() {
    let memory = Memory::new(4 * CHUNK_MIN);
    let small: Vec<_> = (0..4).map(|_| memory.try_chunk(CHUNK_MIN).unwrap()).collect();
    drop(small);
    assert_eq!(lock(&memory.pool).bytes, 4 * CHUNK_MIN);
    let large = memory.try_chunk(2 * CHUNK_MIN).unwrap();
    assert_eq!(lock(&memory.pool).bytes, 2 * CHUNK_MIN);
    let _small = memory.try_chunk(CHUNK_MIN).unwrap();
    drop(large);
    assert_eq!(lock(&memory.pool).bytes, 3 * CHUNK_MIN);
}

#[test]
fn a_chunk_in_the_place_of_others_is_charged_what_they_were() {
    let memory = Memory::new(2 * CHUNK_MIN);
    let old: Vec<_> = (0..2).map(|_| memory.try_chunk(CHUNK_MIN).unwrap()).collect();
    let waits = memory.queue(CHUNK_MIN, None);
    let part = old[0].part(100);
    assert_eq!((part.charged(), old[0].charged(), memory.used()), (100, CHUNK_MIN - 100, 32_768));
    let whole = memory.uncharged(Vec::with_capacity(CHUNK_MIN));
    let taken: usize = old.iter().map(|old| whole.take_charge(old, CHUNK_MIN - 150)).sum();
    assert_eq!(taken, 2 * CHUNK_MIN - 300);
    drop(old);
    assert_eq!(memory.used(), 2 * CHUNK_MIN - 200);
    assert!(!waits.poll(Sleeper::Thread(Parker::current())));
    drop((part, whole));
    assert!(waits.poll(Sleeper::Thread(Parker::current())));
}
