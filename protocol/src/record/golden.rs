//! Batches that Kafka 4.4.0 wrote, read and built again.
//!
//! Made by its `MemoryRecordsBuilder` and `MemoryRecords.withEndTransactionMarker`.

use bytes::Bytes;

use super::*;

/// Offsets 5 to 8, leader epoch 3.
const PLAIN: &str = "\
    0000000000000005000000d60000000302bd6dc2360000000000030000018bcfe568000000018bcfe6eea0ffffff\
    ffffffffffffffffffffff0000000448000000046b310a6669727374060a7472616365066162630a656d70747900\
    086e6f6e6501d80100c7010201c8017a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a\
    7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a\
    7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a001400c09a0c04046b3301000c000206000000";

/// The same in a transaction of producer 4242, epoch 7, from sequence 2³¹−2.
const LZ4: &str = "\
    0000000000000005000000890000000302d8b05de00013000000030000018bcfe568000000018bcfe6eea0000000\
    000000109200077ffffffe0000000404224d1860408249000000ff2048000000046b310a6669727374060a747261\
    6365066162630a656d70747900086e6f6e6501d80100c7010201c8017a010050f004001400c09a0c04046b330100\
    0c00020600000000000000";

/// The same, dated by the broker, from offset 0.
const LZ4_APPEND_TIME: &str = "\
    00000000000000000000008900000000024e10c7d8000b000000030000018bcfe568000000018bcfede223ffffff\
    ffffffffffffffffffffff0000000404224d1860408249000000ff2048000000046b310a6669727374060a747261\
    6365066162630a656d70747900086e6f6e6501d80100c7010201c8017a010050f004001400c09a0c04046b330100\
    0c00020600000000000000";

/// The same records at offsets 100, 107, 300 and 90000.
const GAPS: &str = "\
    0000000000000064000000d900000003028e35458b000000015f2c0000018bcfe568000000018bcfe6eea0ffffff\
    ffffffffffffffffffffff0000000448000000046b310a6669727374060a7472616365066162630a656d70747900\
    086e6f6e6501d80100c7010e01c8017a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a\
    7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a\
    7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a001600c09a0c9003046b330100100002d8fc0a000000";

/// A commit marker of coordinator epoch 11 at offset 17.
const COMMIT: &str = "\
    0000000000000011000000420000000302c451dbd80030000000000000018bcfe568000000018bcfe56800000000\
    00000010920007ffffffff000000012000000008000000010c00000000000b00";

fn bytes(hex: &str) -> Bytes {
    let digits: Vec<u8> =
        hex.chars().map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

type Row = (i64, Option<&'static [u8]>, Option<&'static [u8]>, &'static [HeaderPair<'static>]);

/// The four records of every batch but the marker.
const ROWS: [Row; 4] = [
    (
        1_700_000_000_000,
        Some(b"k1"),
        Some(b"first"),
        &[(b"trace", Some(b"abc")), (b"empty", Some(b"")), (b"none", None)],
    ),
    (1_699_999_999_900, None, Some(&[b'z'; 100]), &[]),
    (1_700_000_100_000, Some(b"k3"), None, &[]),
    (1_700_000_000_001, Some(b""), Some(b""), &[]),
];

fn assert_rows(hex: &str, offsets: [i64; 4], append_time: Option<i64>) {
    let bytes = bytes(hex);
    Batch::parse(&bytes).unwrap().verify_crc().unwrap();
    let batch = DecodedBatch::decode(&bytes, 1_000).unwrap().index().unwrap();
    assert_eq!(batch.len(), ROWS.len());
    for ((view, offset), (timestamp, key, value, headers)) in batch.iter().zip(offsets).zip(ROWS) {
        assert_eq!(view.offset, offset);
        assert_eq!(view.timestamp, append_time.unwrap_or(timestamp));
        assert_eq!((view.key, view.value), (key, value));
        assert!(view.headers.iter().eq(headers.iter().copied()), "headers at {offset}");
    }
}

/// The four records as our builder puts them, with that many offsets left out before each.
fn built(gaps: [i32; 4], codec: Compression, fields: &BatchSeal) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    for (gap, (timestamp, key, value, headers)) in gaps.into_iter().zip(ROWS) {
        if gap > 0 {
            builder.skip(gap);
        }
        builder.push(timestamp, key, value, headers.iter().copied()).unwrap();
    }
    builder.finish(fields).unwrap()
}

const FROM_LEADER_3: BatchSeal = BatchSeal {
    base_offset: 5,
    partition_leader_epoch: 3,
    attributes: Attributes(0),
    producer_id: -1,
    producer_epoch: -1,
    base_sequence: -1,
};

const IN_TRANSACTION: BatchSeal = BatchSeal {
    attributes: Attributes(0x10),
    producer_id: 4242,
    producer_epoch: 7,
    base_sequence: i32::MAX - 1,
    ..FROM_LEADER_3
};

#[test]
fn kafkas_plain_batch_is_read_and_built_byte_for_byte() {
    assert_rows(PLAIN, [5, 6, 7, 8], None);
    let header = Batch::parse(&bytes(PLAIN)).unwrap().header;
    assert_eq!(header.partition_leader_epoch, 3);
    assert_eq!(header.max_timestamp, 1_700_000_100_000);
    assert_eq!(built([0; 4], Compression::None, &FROM_LEADER_3), bytes(PLAIN));
}

#[test]
fn kafkas_batch_with_gaps_is_read_and_built_byte_for_byte() {
    assert_rows(GAPS, [100, 107, 300, 90_000], None);
    assert_eq!(Batch::parse(&bytes(GAPS)).unwrap().header.next_offset(), 90_001);
    let fields = BatchSeal { base_offset: 100, ..FROM_LEADER_3 };
    assert_eq!(built([0, 6, 192, 89_699], Compression::None, &fields), bytes(GAPS));
}

#[test]
fn kafkas_lz4_batch_is_read() {
    assert_rows(LZ4, [5, 6, 7, 8], None);
    let header = Batch::parse(&bytes(LZ4)).unwrap().header;
    assert_eq!(header.attributes.compression(), Ok(Compression::Lz4));
    assert!(header.attributes.is_transactional());
    assert_eq!((header.producer_id, header.producer_epoch), (4_242, 7));
    assert_eq!(header.last_sequence(), 1);
}

#[test]
fn our_lz4_batch_differs_from_kafkas_in_nothing_but_how_it_is_packed() {
    let ours = built([0; 4], Compression::Lz4, &IN_TRANSACTION);
    let theirs = bytes(LZ4);
    let (ours, theirs) = (Batch::parse(&ours).unwrap(), Batch::parse(&theirs).unwrap());
    let packed = |header: BatchHeader| BatchHeader { crc: 0, batch_length: 0, ..header };
    assert_eq!(packed(ours.header), packed(theirs.header));
    assert_eq!(ours.body()[..7], theirs.body()[..7], "the frame's header");
    assert_eq!(ours.records(1_000).unwrap().body(), theirs.records(1_000).unwrap().body());
}

#[test]
fn log_append_time_counts_for_every_record() {
    assert_rows(LZ4_APPEND_TIME, [0, 1, 2, 3], Some(1_700_000_555_555));
    // The same batch, as a producer sends it and as our leader dates it.
    let mut ours = built([0; 4], Compression::None, &BatchSeal::default()).to_vec();
    stamp(&mut ours, 0, 0).unwrap();
    stamp_append_time(&mut ours, 1_700_000_555_555).unwrap();
    let theirs = Batch::parse(&bytes(LZ4_APPEND_TIME)).unwrap().header;
    let ours = Batch::parse(&ours).unwrap();
    ours.verify_crc().unwrap();
    assert_eq!(ours.header.max_timestamp, theirs.max_timestamp);
    assert_eq!(ours.header.base_timestamp, theirs.base_timestamp);
    assert_eq!(ours.header.attributes.with_compression(Compression::Lz4), theirs.attributes);
}

#[test]
fn kafkas_commit_marker_is_read_and_built_byte_for_byte() {
    let theirs = bytes(COMMIT);
    let batch = Batch::parse(&theirs).unwrap();
    assert!(batch.header.attributes.is_control() && batch.header.attributes.is_transactional());
    let records = batch.records(100).unwrap();
    let record = records.iter().next().unwrap().unwrap();
    let key = ControlRecord::parse(record.key.unwrap()).unwrap();
    assert_eq!(key, ControlRecord::of(ControlKind::Commit));
    let marker = EndTxnMarker::parse(record.value.unwrap()).unwrap();
    assert_eq!(marker.coordinator_epoch, 11);
    let mut builder = BatchBuilder::default();
    builder.push(1_700_000_000_000, Some(&key.key()), Some(&marker.value()), NO_HEADERS).unwrap();
    let fields = BatchSeal {
        base_offset: 17,
        attributes: Attributes::default().with_control(true).with_transactional(true),
        base_sequence: -1,
        ..IN_TRANSACTION
    };
    assert_eq!(builder.finish(&fields).unwrap(), theirs);
}
