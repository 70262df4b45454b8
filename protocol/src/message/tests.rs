//! Every message in every version: there and back, cut short, and lying about its counts.

#![allow(clippy::too_many_lines, reason = "macros spell out every message")]

pub(crate) mod allocator;
mod fuzz;
mod numbers;
mod oracle;
mod vectors;

use super::samples::every_message;
use crate::error_code::ErrorCode;
use crate::message::Message;
use crate::messages::*;
use crate::reader::{DecodeErrorKind, Reader};
use crate::writer::{EncodeError, Writer};

pub(super) use numbers::Numbers;

/// A message whose fields are set to values that differ from each other.
pub(super) trait Sample: Sized + Default {
    fn sample(version: i16, n: &mut Numbers) -> Self;
}

fn encoded<'a, M: Message<'a>>(message: &M, version: i16) -> Vec<u8> {
    let mut w = Writer::new();
    if let Err(error) = message.encode(&mut w, version) {
        panic!("{} {version}: {error}", M::NAME);
    }
    w.into_bytes()
}

/// Seeds enough to have every nullable field null and not, and every array empty and not.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;

macro_rules! round_trips {
    ($($name:ident,)*) => { $( for version in $name::VERSIONS { for seed in SEEDS {
        let sample = $name::sample(version, &mut Numbers::seeded(seed));
        let bytes = encoded(&sample, version);
        let mut r = Reader::new(&bytes);
        let read = $name::decode(&mut r, version);
        assert_eq!(read, Ok(sample), "{} {version}, seed {seed}", stringify!($name));
        assert_eq!(r.finish(), Ok(()), "{} {version}, seed {seed}", stringify!($name));
    } } )* };
}

#[test]
fn every_message_in_every_version_is_read_as_it_was_written() {
    every_message!(round_trips);
}

macro_rules! default_round_trips {
    ($($name:ident,)*) => { $( for version in $name::VERSIONS {
        let mut w = Writer::new();
        $name::default().encode(&mut w, version).unwrap();
        let mut r = Reader::new(w.bytes());
        assert_eq!($name::decode(&mut r, version), Ok($name::default()), "{version}");
        assert_eq!(r.finish(), Ok(()));
    } )* };
}

#[test]
fn unset_fields_are_read_as_unset() {
    every_message!(default_round_trips);
}

macro_rules! truncated {
    ($($name:ident,)*) => { $( for version in $name::VERSIONS { for seed in SEEDS {
        let bytes = encoded(&$name::sample(version, &mut Numbers::seeded(seed)), version);
        for end in 0..bytes.len() {
            let read = $name::decode(&mut Reader::new(&bytes[..end]), version);
            assert!(read.is_err(), "{} {version} of {end} bytes", stringify!($name));
        }
    } } )* };
}

#[test]
fn a_message_cut_short_anywhere_is_an_error() {
    every_message!(truncated);
}

/// Lengths and counts as liars write them.
const LIES: [&[u8]; 6] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0x07],
    &[0x00, 0x01, 0x00, 0x00],
    &[0x00, 0x00, 0x00, 0x10],
];

macro_rules! corrupted {
    ($($name:ident,)*) => { $( for version in $name::VERSIONS { for seed in [1, 5] {
        let bytes = encoded(&$name::sample(version, &mut Numbers::seeded(seed)), version);
        for at in 0..bytes.len() {
            for lie in LIES {
                let mut bad = bytes.clone();
                bad.splice(at..(at + lie.len()).min(bytes.len()), lie.iter().copied());
                bad.resize(bad.len() + 512, 1);
                let limit = bad.len() * $name::MEMORY_FACTOR + 64 * 1024;
                let (_read, most) = allocator::most_in_use(|| {
                    $name::decode(&mut Reader::with_memory(&bad, $name::MEMORY_FACTOR), version)
                });
                assert!(most <= limit, "{} {version} took {most} bytes", stringify!($name));
            }
        }
    } } )* };
}

#[test]
fn lies_about_lengths_and_counts_take_no_more_memory_than_the_limit() {
    every_message!(corrupted);
}

#[test]
fn a_count_of_two_thousand_million_is_refused_before_any_allocation() {
    // KAFKA CVE-2022-34917; in one Rust decoder 12 bytes of Metadata asked for 206 GB.
    let classic = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
    let compact = [0xff, 0xff, 0xff, 0xff, 0x07, 0, 0, 0, 0, 0, 0, 0];
    for (bytes, version) in [(&classic, 1), (&compact, 9)] {
        let (read, most) =
            allocator::most_in_use(|| MetadataRequest::decode(&mut Reader::new(bytes), version));
        assert_eq!(read.unwrap_err().kind(), DecodeErrorKind::TooManyElements);
        assert_eq!(most, 0);
    }
}

#[test]
fn a_version_that_there_is_not_is_an_error_both_ways() {
    for version in [-1, 2, 14, i16::MAX] {
        let read = ProduceRequest::decode(&mut Reader::new(&[0; 64]), version);
        assert_eq!(read.unwrap_err().kind(), DecodeErrorKind::UnsupportedVersion);
        let written = ProduceRequest::default().encode(&mut Writer::new(), version);
        let expected = EncodeError::UnsupportedVersion { message: "ProduceRequest", version };
        assert_eq!(written, Err(expected));
    }
}

#[test]
fn a_field_that_a_version_cannot_carry_is_an_error_unless_it_may_be_left_out() {
    let held = JoinGroupRequest { group_instance_id: Some("a"), ..Default::default() };
    assert_eq!(
        held.encode(&mut Writer::new(), 4),
        Err(EncodeError::FieldNotInVersion { field: "GroupInstanceId", version: 4 })
    );
    assert_eq!(held.encode(&mut Writer::new(), 5), Ok(()));
    let reason = JoinGroupRequest { reason: Some("a"), ..Default::default() };
    assert_eq!(reason.encode(&mut Writer::new(), 7), Ok(()));
    let state = fetch_request::ReplicaState { replica_id: 1, replica_epoch: 1 };
    let fetch = FetchRequest { replica_state: state, ..Default::default() };
    assert_eq!(
        fetch.encode(&mut Writer::new(), 14),
        Err(EncodeError::FieldNotInVersion { field: "ReplicaState", version: 14 })
    );
}

#[test]
fn null_where_a_version_has_no_form_for_it_is_an_error_both_ways() {
    let all = MetadataRequest { topics: None, ..Default::default() };
    assert_eq!(
        all.encode(&mut Writer::new(), 0),
        Err(EncodeError::NullField { field: "Topics", version: 0 })
    );
    let read = MetadataRequest::decode(&mut Reader::new(&[0xff; 4]), 0);
    assert_eq!(read.unwrap_err().kind(), DecodeErrorKind::UnexpectedNull);
    assert_eq!(MetadataRequest::decode(&mut Reader::new(&[0xff; 4]), 1), Ok(all));
}

#[test]
fn error_codes_are_read_as_such() {
    let read = HeartbeatResponse::decode(&mut Reader::new(&[0, 27]), 0).unwrap();
    assert_eq!(read.error_code, ErrorCode::REBALANCE_IN_PROGRESS);
}

#[test]
fn a_tag_of_a_later_version_is_skipped() {
    let state = fetch_request::ReplicaState { replica_id: 1, replica_epoch: 1 };
    let sent = FetchRequest { replica_state: state, ..Default::default() };
    // Version 15 took the replica id out of the fields before the tags.
    let mut bytes = vec![0xff; 4];
    bytes.extend(encoded(&sent, 15));
    let read = FetchRequest::decode(&mut Reader::new(&bytes), 14).unwrap();
    assert_eq!(read, FetchRequest::default());
}
