//! Who gets room, and in which order.

#![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

use std::time::Duration;

use super::*;
use crate::state::parker::Parker;

fn sleeper() -> Sleeper {
    Sleeper::Thread(Parker::current())
}

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
fn room_goes_to_those_who_wait_in_their_order() {
    let memory = Memory::new(4 * CHUNK_MIN);
    let mut chunks: Vec<_> = (0..4).map(|_| memory.try_chunk(CHUNK_MIN).unwrap()).collect();
    let large = memory.queue(2 * CHUNK_MIN, None);
    let small = memory.queue(CHUNK_MIN, None);
    assert!(memory.is_awaited());
    chunks.pop();
    assert!(!large.poll(sleeper()));
    assert!(!small.poll(sleeper()), "a small wish does not overtake a large one");
    chunks.pop();
    assert!(large.poll(sleeper()));
    assert!(!small.poll(sleeper()));
    chunks.pop();
    assert!(small.poll(sleeper()));
    assert!(large.take_chunk().is_some());
    assert!(!memory.is_awaited());
    drop((large, small));
    drop(chunks);
    assert_eq!(memory.used(), 0);
}

#[test]
fn who_gives_up_waiting_lets_the_next_one_in() {
    let memory = Memory::new(2 * CHUNK_MIN);
    let _chunk = memory.try_chunk(CHUNK_MIN).unwrap();
    let large = memory.queue(2 * CHUNK_MIN, None);
    let small = memory.queue(CHUNK_MIN, None);
    assert!(!small.poll(sleeper()));
    drop(large);
    assert!(small.poll(sleeper()));
}

#[test]
fn a_granted_place_that_is_given_up_lets_the_next_one_in() {
    let memory = Memory::new(CHUNK_MIN);
    let first = memory.queue(CHUNK_MIN, None);
    let second = memory.queue(CHUNK_MIN, None);
    assert!(first.poll(sleeper()));
    assert!(!second.poll(sleeper()));
    drop(first);
    assert!(second.poll(sleeper()));
}

#[test]
fn who_needs_more_than_was_granted_keeps_its_place() {
    let memory = Memory::new(2 * CHUNK_MIN);
    let held = memory.try_chunk(CHUNK_MIN).unwrap();
    let first = memory.queue(CHUNK_MIN, None);
    let second = memory.queue(CHUNK_MIN, None);
    drop(first.take_chunk().expect("granted"));
    assert!(second.poll(sleeper()));
    let third = memory.queue(CHUNK_MIN, None);
    let first = first.again(2 * CHUNK_MIN);
    drop(second);
    assert!(!third.poll(sleeper()), "one before it waits for more");
    drop(held);
    assert!(first.poll(sleeper()));
    assert!(!third.poll(sleeper()));
    drop(first);
    assert!(third.poll(sleeper()));
}

#[test]
fn room_that_is_left_for_a_try_is_not_given_to_those_behind() {
    let memory = Memory::new(CHUNK_MIN);
    let until = Instant::now() + Duration::from_millis(100);
    let first = memory.queue(CHUNK_MIN, None);
    let second = memory.queue(CHUNK_MIN, None);
    assert!(first.poll(sleeper()));
    first.leave_room(until);
    memory.grant();
    assert!(!second.poll(sleeper()));
    let chunk = memory.take_left().expect("it was left");
    assert!(memory.take_left().is_none());
    drop(chunk);
    assert!(second.poll(sleeper()));
}

#[test]
fn room_that_is_left_in_vain_goes_on_to_those_who_wait() {
    let memory = Memory::new(CHUNK_MIN);
    let now = Instant::now();
    let until = now + Duration::from_millis(100);
    let first = memory.queue(CHUNK_MIN, None);
    let second = memory.queue(CHUNK_MIN, None);
    first.leave_room(until);
    memory.expire(now + Duration::from_millis(99));
    assert!(!second.poll(sleeper()));
    memory.expire(until);
    assert!(second.poll(sleeper()));
    assert!(memory.take_left().is_none());
}

#[test]
fn who_waits_too_long_is_told_and_lets_the_next_one_in() {
    let memory = Memory::new(2 * CHUNK_MIN);
    let _chunk = memory.try_chunk(CHUNK_MIN).unwrap();
    let over = Instant::now();
    let large = memory.queue(2 * CHUNK_MIN, Some(over));
    let small = memory.queue(CHUNK_MIN, None);
    assert!(!small.poll(sleeper()));
    memory.expire(over);
    assert!(large.is_expired() && !large.poll(sleeper()));
    assert!(small.poll(sleeper()));
}

#[test]
fn in_a_child_of_a_fork_a_place_in_the_line_is_left_as_it_is() {
    let memory = Memory::new(CHUNK_MIN);
    let _full = memory.try_chunk(CHUNK_MIN).unwrap();
    let parents = memory.queue(CHUNK_MIN, None);
    let waiter = Arc::clone(&parents.waiter);
    drop(Place { waiter, memory: Arc::clone(&memory), process: Process::another() });
    assert!(memory.is_awaited(), "by the parent's thread");
    drop(parents);
    assert!(!memory.is_awaited());
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
    assert!(!waits.poll(sleeper()));
    drop((part, whole));
    assert!(waits.poll(sleeper()));
}
