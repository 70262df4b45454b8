//! Bytes that Apache Kafka's own classes wrote: read, compared and written again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Numbers, Sample, encoded, every_message};
use crate::api::ApiKey;
use crate::frame::{self, RequestHeader};
use crate::message::Message;
use crate::messages::*;
use crate::reader::{DecodeError, Reader};
use crate::writer::Writer;

/// One line of a file in `conformance/vectors`.
#[derive(Debug)]
pub(super) struct Vector {
    pub(super) message: String,
    pub(super) version: i16,
    /// Which sample of that version, or `header`.
    pub(super) kind: String,
    pub(super) bytes: Vec<u8>,
}

/// What Kafka keeps in files beside its logs, which are no messages.
const FILES: &str = "files.txt";
/// Groups that Kafka's assignors share out: a matter of the client's.
const GROUPS: &str = "assignors.txt";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/vectors")
}

/// All vectors of messages, in the order of their files.
pub(super) fn vectors() -> Vec<Vector> {
    let listed = std::fs::read_dir(folder()).unwrap();
    let mut files: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| !file.ends_with(FILES) && !file.ends_with(GROUPS));
    files.sort();
    lines(&files)
}

fn lines(files: &[PathBuf]) -> Vec<Vector> {
    let mut vectors = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            let [message, version, kind, hex] = *words else { panic!("{file:?}: {line}") };
            let bytes = if hex == "-" { Vec::new() } else { from_hex(hex) };
            let (message, version) = (message.to_owned(), version.parse().unwrap());
            vectors.push(Vector { message, version, kind: kind.to_owned(), bytes });
        }
    }
    vectors
}

fn from_hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Samples of each message and version, headers apart.
const KINDS: [&str; 6] = ["defaults", "set", "nulls", "inner-nulls", "empties", "long"];

/// What samples of answers to a Fetch begin with, which Kafka's classes write beside the others: with
/// no list, none and two of aborted transactions, and with records null and empty.
const ANSWER: &str = "aborted-";

#[test]
fn every_message_has_its_vectors_in_every_version() {
    let mut kinds: BTreeMap<(String, i16), Vec<String>> = BTreeMap::new();
    for Vector { message, version, kind, .. } in vectors() {
        if !kind.starts_with("header") && !kind.starts_with(ANSWER) {
            kinds.entry((message, version)).or_default().push(kind);
        }
    }
    macro_rules! complete {
        ($($name:ident,)*) => { $( for version in $name::VERSIONS {
            let there = kinds.remove(&(stringify!($name).to_owned(), version));
            assert_eq!(there.unwrap_or_default(), KINDS, "{} {version}", stringify!($name));
        } )* };
    }
    every_message!(complete);
    assert_eq!(kinds.keys().next(), None, "vectors of what we do not have");
}

/// Holds what was read of a vector against what was meant, and writes it again.
fn check<'a, M>(vector: &Vector, r: Reader<'a>, read: Result<M, DecodeError>, expected: Option<M>)
where
    M: Message<'a> + PartialEq + std::fmt::Debug,
{
    let Vector { message, version, kind, bytes } = vector;
    let read = match read {
        Ok(read) => read,
        Err(error) => panic!("{message} {version} {kind}: {error}"),
    };
    assert_eq!(r.finish(), Ok(()), "{message} {version} {kind}");
    if let Some(expected) = expected {
        assert_eq!(read, expected, "{message} {version} {kind}");
    }
    assert_eq!(encoded(&read, *version), *bytes, "{message} {version} {kind}");
}

#[test]
fn what_kafka_wrote_is_read_as_meant_and_written_byte_for_byte() {
    let vectors = vectors();
    for vector in vectors.iter().filter(|vector| !vector.kind.starts_with("header")) {
        let version = vector.version;
        macro_rules! checked {
            ($($name:ident,)*) => { match &*vector.message {
                $( stringify!($name) => {
                    let mut r = Reader::with_memory(&vector.bytes, $name::MEMORY_FACTOR);
                    let read = $name::decode(&mut r, version);
                    let expected = match &*vector.kind {
                        "defaults" => Some($name::default()),
                        "set" => {
                            let mut values = Numbers::placed(&vector.message);
                            Some($name::sample(version, &mut values))
                        }
                        _ => None,
                    };
                    check(vector, r, read, expected);
                } )*
                other => panic!("no message is called {other}"),
            } };
        }
        every_message!(checked);
    }
}

#[test]
fn a_producer_snapshot_of_kafkas_is_read_and_written_byte_for_byte() {
    let files = lines(&[folder().join(FILES)]);
    let snapshot = files.iter().find(|file| file.message == "producer-snapshot").unwrap();
    let (version, body) = snapshot.bytes.split_first_chunk().unwrap();
    assert_eq!(i16::from_be_bytes(*version), snapshot.version);
    let read: ProducerSnapshot = frame::decode_body(body, snapshot.version).unwrap();
    let [wrote, idle] = &*read.producer_entries else { panic!("{read:?}") };
    assert_eq!((wrote.producer_id, wrote.epoch, wrote.last_sequence), (1000, 3, 41));
    assert_eq!((wrote.last_offset, wrote.offset_delta), (104, 2));
    assert_eq!((wrote.coordinator_epoch, wrote.current_txn_first_offset), (7, 90));
    assert_eq!((idle.last_sequence, idle.last_offset, idle.current_txn_first_offset), (-1, -1, -1));
    assert_eq!(encoded(&read, snapshot.version), body);
}

/// What `interop/vectors/Vectors.java` puts in headers.
const CORRELATION_ID: i32 = 0x0102_0304;

#[test]
fn headers_that_kafka_wrote_are_read_and_written_byte_for_byte() {
    let mut compared = 0;
    for Vector { message, version, kind, bytes } in vectors() {
        let client_id = match &*kind {
            "header" => Some("a client"),
            "header-without-client" => None,
            _ => continue,
        };
        let at = format!("{message} {version} {kind}");
        let api = |end: &str| {
            let name = message.strip_suffix(end)?;
            ApiKey::ALL.iter().copied().find(|api| api.name() == name)
        };
        let mut r = Reader::new(&bytes);
        let mut w = Writer::new();
        if let Some(api) = api("Request") {
            let header = RequestHeader::new(api, version, CORRELATION_ID, client_id);
            assert_eq!(RequestHeader::decode(&mut r), Ok(header), "{at}");
            header.encode(&mut w).unwrap();
        } else {
            let api = api("Response").unwrap();
            let read = frame::decode_response_header(&mut r, api, version);
            assert_eq!(read, Ok(CORRELATION_ID), "{at}");
            w.i32(CORRELATION_ID);
            if api.response_header_version(version) > 0 {
                w.uvarint(0);
            }
        }
        assert_eq!(r.finish(), Ok(()), "{at}");
        assert_eq!(w.bytes(), bytes, "{at}");
        compared += 1;
    }
    let served = |api: &ApiKey| api.served().count();
    let versions: usize = ApiKey::WITH_MESSAGES.iter().map(served).sum();
    assert_eq!(compared, 3 * versions, "two headers for each request, one for each answer");
}

#[test]
fn there_is_an_answer_to_a_fetch_for_each_way_to_write_nothing() {
    let mut answers = vectors();
    answers.retain(|vector| vector.kind.starts_with(ANSWER));
    assert_eq!(answers.len(), 15 * 3 * 2, "versions, lists, records");
    for Vector { message, version, kind, bytes } in answers {
        assert_eq!(message, "FetchResponse");
        let mut r = Reader::with_memory(&bytes, FetchResponse::MEMORY_FACTOR);
        let answer = FetchResponse::decode(&mut r, version).unwrap();
        let part = &answer.responses[0].partitions[0];
        let aborted = part.aborted_transactions.as_ref().map(Vec::len);
        let listed = kind.split('-').nth(1).unwrap();
        assert_eq!(
            aborted,
            match listed {
                "null" => None,
                "empty" => Some(0),
                _ => Some(2),
            }
        );
        assert_eq!(part.records.bytes().is_none(), kind.ends_with("null"), "{version} {kind}");
        assert_eq!(part.preferred_read_replica, -1, "{version} {kind}");
    }
}
