//! Hostile batches: the corpus and what chance makes of it, against a decoder that is only careful.
//!
//! The bodies are plain functions, run by `cargo test`. `OTTLA_FUZZ_RUNS=1000000` sets how many
//! inputs each of them is given. With any `left_out` rule of these readers one of them fails.

mod model;
mod mutate;

use std::fs;
use std::path::Path;

use bytes::Bytes;

use self::mutate::{Chance, mutated};
use super::*;
use crate::message::tests::allocator::most_in_use;

/// The most that a body may come to here.
const LIMIT: usize = 64 * 1024;
/// What reading may hold beyond what it gives: windows and blocks of the codecs.
const WINDOWS: usize = 13 << 20;

/// The corpus: batches of Kafka's own classes and of ours.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/batches");
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|fault| panic!("{}: {fault}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "batch"))
        .collect();
    paths.sort();
    let mut batches: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(batches.len() >= 6, "the corpus is committed");
    for codec in Compression::ALL {
        let mut builder = BatchBuilder::new(codec);
        let headers = [(&b"h"[..], None), (&b""[..], Some(&b"v"[..]))];
        for at in 0..5 {
            let key = (at % 2 == 0).then_some(&b"key"[..]);
            builder.push(at * 1_000, key, Some(&b"value"[..]), headers).unwrap();
            builder.push(-at, None, None, NO_HEADERS).unwrap();
        }
        batches.push(builder.finish(&BatchSeal::default()).unwrap().to_vec());
    }
    batches
}

/// Inputs for each body; a debug build does as many in a few seconds.
fn runs() -> u64 {
    let asked = std::env::var("OTTLA_FUZZ_RUNS").ok();
    asked.map_or(60_000, |runs| runs.parse().expect("OTTLA_FUZZ_RUNS is a number"))
}

/// Gives a body all of its seeds, and then what chance makes of them.
fn run(name: &str, seeds: &[Vec<u8>], body: impl Fn(&[u8])) {
    for seed in seeds {
        body(seed);
    }
    let mut chance = Chance::new(0x5eed_0000 + u64::try_from(name.len()).unwrap());
    for at in 0..runs() {
        let input = mutated(&mut chance, seeds);
        let before = input.clone();
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&input)));
        assert!(ran.is_ok(), "{name}, input {at}: {before:02x?}");
    }
    println!("{name}: {} inputs", runs() + u64::try_from(seeds.len()).unwrap());
}

/// A header is read as the model reads it, and a set of batches is walked to its end.
fn header_is_read_or_refused(bytes: &[u8]) {
    let read = BatchHeader::parse(bytes).is_ok();
    assert_eq!(read, model::header_is_good(bytes), "a header");
    let walked: usize = batches(bytes).map_while(Result::ok).map(|batch| batch.bytes.len()).sum();
    assert!(walked <= bytes.len());
    for batch in batches(bytes).map_while(Result::ok) {
        assert!(batch.header.body_len() == batch.body().len());
    }
}

/// Plain records: iterator, scan and index all say what the model says, and where.
fn records_are_read_or_refused(body: &[u8]) {
    // What the header says comes from the last bytes, so that chance reaches it.
    let Some((body, tail)) = body.split_last_chunk::<3>() else { return };
    let header = BatchHeader {
        base_offset: 100,
        batch_length: i32::try_from(body.len()).unwrap() + 49,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: Attributes::default(),
        last_offset_delta: i32::from(tail[0]),
        base_timestamp: 1_000,
        max_timestamp: 2_000,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records_count: i32::from(i16::from_be_bytes([tail[1] >> 3, tail[2]])),
    };
    let modelled = model::records(&header, body);
    let read: Result<Vec<_>, _> = RecordIter::new(&header, body).collect();
    match (&modelled, &read) {
        (Ok(modelled), Ok(read)) => {
            assert_eq!(modelled.len(), read.len());
            for (modelled, read) in modelled.iter().zip(read) {
                assert!(modelled.is(read), "{modelled:?} {read:?}");
            }
        }
        (Err(at), Err(fault)) => assert_eq!(*at, fault.at, "{fault}"),
        _ => panic!("{modelled:?} {read:?}"),
    }
    let mut bytes = vec![0; HEADER_LEN];
    header.write(bytes.first_chunk_mut().unwrap());
    bytes.extend_from_slice(body);
    // The count is not checked against a compressed body.
    let decoded = DecodedBatch::of_parts(header, Bytes::copy_from_slice(body));
    let (indexed, most) = most_in_use(|| decoded.index());
    assert!(most <= 64 + body.len() / 7 * 40, "{most} bytes for {}", body.len());
    assert_eq!(indexed.is_ok(), read.is_ok());
    let batch = Batch { header, bytes: &bytes };
    let scanned: Result<Vec<_>, _> = RecordScan::new(&batch, LIMIT).unwrap().collect();
    // A batch that counts no records has no body, for a scan.
    if header.records_count > 0 {
        assert_eq!(scanned.is_ok(), read.is_ok(), "{scanned:?} {read:?}");
        if let (Ok(scanned), Ok(read)) = (scanned, read) {
            let lens = read.iter().map(|read| read.value.map(<[u8]>::len));
            assert!(lens.eq(scanned.iter().map(|outline| outline.value_len)));
        }
    }
}

/// A compressed body: within the limit, in bounded memory, the same in one go and in pieces.
fn body_is_decompressed_or_refused(bytes: &[u8]) {
    let Some((&first, body)) = bytes.split_first() else { return };
    let Ok(codec) = Compression::from_id(first % 5) else { return };
    let (read, most) = most_in_use(|| codec.decompress(body, LIMIT));
    let beside = if codec == Compression::Snappy { 8 * 1024 + 66 * body.len() } else { WINDOWS };
    assert!(most <= 3 * LIMIT.min(beside) + beside, "{codec}: {most} bytes held");
    if let Ok(read) = &read {
        assert!(read.len() <= LIMIT, "{codec} gave {} bytes", read.len());
    }
    let mut pieces = Vec::new();
    let mut piece = Vec::with_capacity(1000);
    let streamed = Decompressor::new(codec, body, LIMIT).and_then(|mut decompressor| {
        while decompressor.fill(&mut piece)? > 0 {
            pieces.append(&mut piece);
        }
        Ok(pieces)
    });
    assert_eq!(streamed.is_ok(), read.is_ok(), "{codec}: {streamed:?} {read:?}");
    if let (Ok(streamed), Ok(read)) = (streamed, &read) {
        assert_eq!(&streamed, read);
    }
    if codec == Compression::Snappy && !model::xerial_blocks_fit(body) {
        assert!(read.is_err(), "a block passes the end");
    }
    if codec == Compression::Zstd && model::zstd_window_log(body).is_some_and(|log| log > 27) {
        assert!(read.is_err(), "a window of more than 128 MiB");
    }
}

#[test]
fn hostile_headers_are_read_as_the_format_says_or_refused() {
    run("headers", &corpus(), header_is_read_or_refused);
}

#[test]
fn hostile_records_are_read_as_the_format_says_or_refused() {
    let seeds: Vec<Vec<u8>> = corpus()
        .iter()
        .map(|bytes| {
            let batch = Batch::parse(bytes).unwrap();
            let mut body = batch.records(LIMIT).unwrap().body().to_vec();
            let [count, _] = u16::try_from(batch.header.records_count).unwrap().to_le_bytes();
            let [deltas, ..] = batch.header.last_offset_delta.to_le_bytes();
            body.extend_from_slice(&[deltas, 0, count]);
            body
        })
        .collect();
    run("records", &seeds, records_are_read_or_refused);
}

#[test]
fn hostile_bodies_are_decompressed_within_bounds_or_refused() {
    let mut seeds: Vec<Vec<u8>> = corpus()
        .iter()
        .map(|bytes| {
            let batch = Batch::parse(bytes).unwrap();
            let codec = batch.header.attributes.compression().unwrap();
            [&[codec.id()], batch.body()].concat()
        })
        .collect();
    for codec in Compression::ALL {
        let mut seed = vec![codec.id()];
        codec.compress([&vec![7; LIMIT - 1][..]], &mut seed).unwrap();
        seeds.push(seed);
    }
    let raw = snap::raw::Encoder::new().compress_vec(&[b'r'; 300]).unwrap();
    seeds.push([&[2], &raw[..]].concat());
    // One byte, in a frame of the largest window that is followed.
    seeds.push(vec![4, 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88, 0x09, 0x00, 0x00, 0x41]);
    run("bodies", &seeds, body_is_decompressed_or_refused);
}

#[test]
fn whole_batches_of_kafkas_classes_are_read_in_every_codec() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/batches");
    for codec in Compression::ALL {
        let bytes = fs::read(folder.join(format!("kafka-{codec}.batch"))).unwrap();
        let batch = Batch::parse(&bytes).unwrap();
        batch.verify_crc().unwrap();
        assert_eq!(batch.header.attributes.compression(), Ok(codec));
        let records = batch.records(LIMIT).unwrap();
        let records: Vec<_> = records.iter().map(Result::unwrap).collect();
        // Every second offset, as compaction leaves them.
        let offsets: Vec<i64> = records.iter().map(|record| record.offset).collect();
        assert_eq!(offsets, [100, 102, 104, 106, 108, 110], "{codec}");
        let values: Vec<_> = records.iter().map(|record| record.value).collect();
        let value = |at: usize| "value ".repeat(at * 4).into_bytes();
        for (at, read) in values.iter().enumerate() {
            assert_eq!(*read, (at != 4).then(|| value(at)).as_deref(), "{codec}, record {at}");
        }
        assert_eq!(records[1].headers.iter().count(), 2);
        assert_eq!(records[1].key, Some(&b"key-1"[..]));
    }
    let emptied = fs::read(folder.join("kafka-emptied.batch")).unwrap();
    let batch = Batch::parse(&emptied).unwrap();
    batch.verify_crc().unwrap();
    assert_eq!((batch.header.records_count, batch.header.next_offset()), (0, 120));
    assert_eq!(batch.records(LIMIT).unwrap().iter().count(), 0);
}
