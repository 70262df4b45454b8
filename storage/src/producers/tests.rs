//! The table of answers to a sequence, and the snapshot.

use ottla_protocol::record::Attributes;

use super::*;
use crate::{LogErrorKind, MemoryFiles};

fn header(id: i64, epoch: i16, sequence: i32, records: i32, base_offset: i64) -> BatchHeader {
    BatchHeader {
        base_offset,
        batch_length: 100,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: Attributes(0),
        last_offset_delta: records - 1,
        base_timestamp: 0,
        max_timestamp: 0,
        producer_id: id,
        producer_epoch: epoch,
        base_sequence: sequence,
        records_count: records,
    }
}

/// A table that noted batches of (sequence, records) of producer 1, epoch 3.
fn after(batches: &[(i32, i32)]) -> Producers {
    let mut producers = Producers::default();
    let mut offset = 100;
    for &(sequence, records) in batches {
        producers.note(&header(1, 3, sequence, records, offset), 50);
        offset += i64::from(records);
    }
    producers
}

fn answer(producers: &Producers, epoch: i16, sequence: i32, records: i32) -> String {
    match producers.check(&header(1, epoch, sequence, records, 0)) {
        Ok(None) => "append".to_owned(),
        Ok(Some(old)) => format!("{}..{}", old.base_offset, old.last_offset),
        Err(rejected) => rejected.code.name().to_owned(),
    }
}

#[test]
fn sequences_are_answered_as_kafka_does() {
    let known = after(&[(0, 2), (2, 3)]);
    assert_eq!(answer(&known, 3, 5, 1), "append");
    assert_eq!(answer(&known, 3, 2, 3), "102..104");
    assert_eq!(answer(&known, 3, 0, 2), "100..101");
    let out_of_order = "OUT_OF_ORDER_SEQUENCE_NUMBER";
    for (sequence, records) in [(6, 1), (4, 1), (2, 2), (0, 5), (1, 1)] {
        assert_eq!(answer(&known, 3, sequence, records), out_of_order, "{sequence} {records}");
    }
    assert_eq!(answer(&known, 4, 0, 1), "append");
    assert_eq!(answer(&known, 4, 5, 1), out_of_order);
    assert_eq!(answer(&known, 2, 5, 1), "INVALID_PRODUCER_EPOCH");
    assert_eq!(answer(&Producers::default(), 3, 77, 1), "append", "unknown: any sequence");
}

#[test]
fn five_batches_are_remembered() {
    let batches: Vec<_> = (0..7).map(|sequence| (sequence, 1)).collect();
    let known = after(&batches);
    assert_eq!(answer(&known, 3, 1, 1), "OUT_OF_ORDER_SEQUENCE_NUMBER");
    for sequence in 2..7 {
        let old = 100 + sequence;
        assert_eq!(answer(&known, 3, sequence, 1), format!("{old}..{old}"));
    }
}

#[test]
fn after_the_largest_sequence_comes_0() {
    let known = after(&[(i32::MAX - 1, 1)]);
    assert_eq!(answer(&known, 3, i32::MAX, 1), "append");
    assert_eq!(answer(&known, 3, 0, 1), "OUT_OF_ORDER_SEQUENCE_NUMBER");
    let full = after(&[(i32::MAX, 1)]);
    assert_eq!(answer(&full, 3, 0, 1), "append");
    let wrapped = after(&[(i32::MAX - 1, 5)]);
    assert_eq!(answer(&wrapped, 3, 3, 1), "append");
    assert_eq!(answer(&wrapped, 3, i32::MAX - 1, 5), "100..104");
}

#[test]
fn a_new_epoch_forgets_the_batches_of_the_old() {
    let mut known = after(&[(0, 1), (1, 1)]);
    known.note(&header(1, 4, 0, 1, 102), 50);
    assert_eq!(answer(&known, 4, 0, 1), "102..102");
    assert_eq!(answer(&known, 4, 1, 1), "append");
    assert_eq!(answer(&known, 3, 1, 1), "INVALID_PRODUCER_EPOCH");
}

#[test]
fn notes_can_be_taken_back() {
    let mut known = after(&[(0, 1)]);
    let before = known.producers.clone();
    let mut notes = Vec::new();
    notes.extend(known.note(&header(1, 3, 1, 1, 101), 60));
    notes.extend(known.note(&header(1, 4, 0, 1, 102), 60));
    notes.extend(known.note(&header(9, 0, 0, 1, 103), 60));
    notes.extend(known.note(&header(-1, -1, -1, 1, 104), 60));
    assert_eq!(notes.len(), 3, "without a producer there is nothing to note");
    known.undo(&mut notes);
    assert_eq!(known.producers, before);
}

#[test]
fn an_open_transaction_keeps_its_producer() {
    let mut known = Producers::default();
    let mut transactional = header(1, 0, 0, 1, 10);
    transactional.attributes = Attributes(0).with_transactional(true);
    known.note(&transactional, 0);
    assert_eq!(answer(&known, 0, 1, 1), "INVALID_TXN_STATE");
    known.expire(1_000_000, 1000);
    assert_eq!(answer(&known, 0, 1, 1), "INVALID_TXN_STATE");
    let mut marker = header(1, 0, -1, 1, 11);
    marker.attributes = Attributes(0).with_transactional(true).with_control(true);
    known.note(&marker, 1000);
    assert_eq!(answer(&known, 0, 1, 1), "append");
    known.expire(1999, 1000);
    assert_eq!(known.producers.len(), 1);
    known.expire(2000, 1000);
    assert_eq!(known.producers.len(), 0);
}

#[test]
fn a_snapshot_keeps_the_last_batch() {
    let (files, dir) = (MemoryFiles::new(), Path::new("/d"));
    files.create_dir_all(dir).expect("made");
    let known = after(&[(0, 2), (2, 3)]);
    known.write_snapshot(&files, dir, 105).expect("written");
    let bytes = files.read(&dir.join("00000000000000000105.snapshot")).expect("read");
    let mut expected = vec![0, 1];
    let body = [
        &1_i32.to_be_bytes()[..],
        &1_i64.to_be_bytes(),
        &3_i16.to_be_bytes(),
        &4_i32.to_be_bytes(),
        &104_i64.to_be_bytes(),
        &2_i32.to_be_bytes(),
        &50_i64.to_be_bytes(),
        &(-1_i32).to_be_bytes(),
        &(-1_i64).to_be_bytes(),
    ]
    .concat();
    expected.extend_from_slice(&crc::of(&body).to_be_bytes());
    expected.extend_from_slice(&body);
    assert_eq!(bytes, expected);
    let read = Producers::read_snapshot(&files, dir, 105).expect("read").expect("there");
    assert_eq!(answer(&read, 3, 2, 3), "102..104");
    assert_eq!(answer(&read, 3, 0, 2), "OUT_OF_ORDER_SEQUENCE_NUMBER");
    assert_eq!(answer(&read, 3, 5, 1), "append");
}

#[test]
fn a_snapshot_that_kafka_wrote_is_read_and_written_byte_for_byte() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/vectors/files.txt");
    let text = std::fs::read_to_string(path).expect("committed");
    let line = text.lines().find_map(|line| line.strip_prefix("producer-snapshot 1 two "));
    let pairs = line.expect("a snapshot").as_bytes().chunks(2);
    let hex = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16);
    let bytes: Vec<u8> = pairs.map(|pair| hex(pair).expect("hexadecimal")).collect();
    let read = Producers::parse(&bytes).expect("read");
    assert_eq!(read.producers.len(), 2);
    assert_eq!(read.snapshot(), bytes);
}

#[test]
fn a_broken_snapshot_is_found() {
    let (files, dir) = (MemoryFiles::new(), Path::new("/d"));
    files.create_dir_all(dir).expect("made");
    assert!(Producers::read_snapshot(&files, dir, 5).expect("none").is_none());
    let good = after(&[(0, 2)]).snapshot();
    let path = dir.join("00000000000000000005.snapshot");
    let broken = |bytes: &[u8]| {
        replace(&files, &path, bytes).expect("written");
        let error = Producers::read_snapshot(&files, dir, 5).expect_err("broken");
        assert_eq!(error.kind(), LogErrorKind::Malformed);
    };
    for cut in 0..good.len() {
        broken(&good[..cut]);
    }
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        broken(&bad);
    }
    // A count that the bytes do not hold, under a checksum that fits.
    let mut many = good.clone();
    many[6..10].copy_from_slice(&i32::MAX.to_be_bytes());
    let crc = crc::of(&many[6..]);
    many[2..6].copy_from_slice(&crc.to_be_bytes());
    broken(&many);
}
