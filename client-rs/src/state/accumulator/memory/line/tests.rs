//! Who gets room, and in which order.

#![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

use std::time::Duration;

use super::*;
use crate::state::accumulator::memory::CHUNK_MIN;
use crate::state::parker::Parker;

fn sleeper() -> Sleeper {
    Sleeper::Thread(Parker::current())
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
