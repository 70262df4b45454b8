//! Hostile messages: what Kafka's classes wrote and what chance makes of it.
//!
//! The bodies are plain functions, run by `cargo test`. `OTTLA_FUZZ_RUNS=1000000` sets how many
//! inputs each of them is given. With any `left_out` rule of the readers one of them fails.

#![allow(elided_lifetimes_in_paths, reason = "a macro does not know which messages borrow")]

mod model;
mod mutate;

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::allocator::most_in_use;
use super::vectors::{Vector, vectors};
use super::{encoded, every_message};
use crate::frame::{self, RequestHeader};
use crate::message::Message;
use crate::messages::*;
use crate::reader::{DecodeError, DecodeErrorKind, MEMORY_FACTOR, Reader};
use crate::writer::Writer;
use mutate::Chance;

/// Arrays lie in each other no deeper than this in any message.
const LEVELS: usize = 4;

/// A body: a version and the bytes that come as that version.
type Body = fn(i16, &[u8]);

/// What must hold of the memory that reading took, whatever came of it.
fn is_within_bounds<M>(read: &Result<M, DecodeError>, held: usize, given: usize, factor: usize) {
    assert!(held <= factor * given + 64 * 1024, "{held} bytes held for {given}");
    // No array takes more than its elements, if they were all there, could need.
    assert!(held <= MEMORY_FACTOR * LEVELS * given, "{held} bytes held for {given}");
    if let Err(error) = read {
        assert!(error.at() <= given, "{error}");
    }
}

macro_rules! bodies {
    ($($name:ident,)*) => { &[ $( (stringify!($name), |version, bytes| {
        let (read, held) = most_in_use(|| frame::decode_body::<$name>(bytes, version));
        is_within_bounds(&read, held, bytes.len(), $name::MEMORY_FACTOR);
        let Ok(read) = read else { return };
        // Bytes are compared, since a number that is none does not equal itself.
        let again = encoded(&read, version);
        let reread = frame::decode_body::<$name>(&again, version);
        assert_eq!(reread.map(|reread| encoded(&reread, version)), Ok(again));
        let longer = [bytes, &[0]].concat();
        let error = frame::decode_body::<$name>(&longer, version).map_err(|error| error.kind());
        assert_eq!(error.err(), Some(DecodeErrorKind::TrailingBytes));
    }), )* ] };
}

/// A body for each message: it is read within bounds or refused, and what is read is whole.
const MESSAGES: &[(&str, Body)] = every_message!(bodies);

/// The header of a request, with what follows it left alone.
fn header_is_read_or_refused(bytes: &[u8]) {
    let mut r = Reader::new(bytes);
    let (read, held) = most_in_use(|| RequestHeader::decode(&mut r));
    assert_eq!(held, 0);
    let Ok(read) = read else { return };
    let mut w = Writer::new();
    read.encode(&mut w).unwrap();
    assert_eq!(RequestHeader::decode(&mut Reader::new(w.bytes())), Ok(read));
}

/// A stream's first frame: there whole, not yet, or of a size that is refused.
fn frame_is_split_or_refused(bytes: &[u8]) {
    let Some((&most, bytes)) = bytes.split_first() else { return };
    let most = usize::from(most);
    let split = frame::split_frame(bytes, most);
    assert_eq!(split.map_err(|_| ()), model::frame(bytes, most));
}

/// Inputs for each body; a debug build does as many in a few seconds.
fn runs() -> u64 {
    let asked = std::env::var("OTTLA_FUZZ_RUNS").ok();
    asked.map_or(100_000, |runs| runs.parse().unwrap())
}

/// Calls `body` with a number for each run, and tells the input of one that fails.
fn run(name: &str, mut input: impl FnMut(u64) -> Vec<u8>, body: impl Fn(u64, &[u8])) {
    for at in 0..runs() {
        let bytes = input(at);
        let ran = catch_unwind(AssertUnwindSafe(|| body(at, &bytes)));
        assert!(ran.is_ok(), "{name}, input {at}: {bytes:02x?}");
    }
    println!("{name}: {} inputs", runs());
}

/// The vectors of messages, each with its body.
fn seeds(vectors: &[Vector]) -> Vec<(&Vector, Body)> {
    let bodies = |name: &str| MESSAGES.iter().find(|(message, _)| *message == name);
    let samples = vectors.iter().filter(|vector| !vector.kind.starts_with("header"));
    samples.map(|vector| (vector, bodies(&vector.message).unwrap().1)).collect()
}

#[test]
fn hostile_messages_are_read_within_bounds_or_refused() {
    let vectors = vectors();
    let seeds = seeds(&vectors);
    for (vector, body) in &seeds {
        body(vector.version, &vector.bytes);
    }
    let mut chance = Chance::new(0x5eed_1000);
    let seed = |at: u64| &seeds[usize::try_from(at).unwrap() % seeds.len()];
    run(
        "messages",
        |at| mutate::mutated(&mut chance, &seed(at).0.bytes),
        |at, bytes| seed(at).1(seed(at).0.version, bytes),
    );
}

#[test]
fn hostile_headers_are_read_or_refused() {
    let vectors = vectors();
    let headers: Vec<&Vector> = vectors
        .iter()
        .filter(|vector| vector.kind.starts_with("header") && vector.message.ends_with("Request"))
        .collect();
    let mut chance = Chance::new(0x5eed_2000);
    let seed = |at: u64| &headers[usize::try_from(at).unwrap() % headers.len()];
    run(
        "headers",
        |at| mutate::mutated(&mut chance, &seed(at).bytes),
        |_, bytes| header_is_read_or_refused(bytes),
    );
}

#[test]
fn hostile_frames_are_split_as_the_format_says_or_refused() {
    let mut chance = Chance::new(0x5eed_3000);
    run("frames", |_| mutate::frame(&mut chance), |_, bytes| frame_is_split_or_refused(bytes));
}

#[test]
fn hostile_fields_are_read_as_the_format_says_or_refused() {
    let mut chance = Chance::new(0x5eed_4000);
    run(
        "fields",
        |_| mutate::fields(&mut chance),
        |_, bytes| model::fields_are_read_as_modelled(bytes),
    );
}
