//! What is refused, and under which code.

use ottla_protocol::record::{Attributes, BatchBuilder, BatchSeal, HEADER_LEN, NO_HEADERS, crc};

use super::*;

const NOW: i64 = 1_700_000_000_000;

fn batch_of(records: &[(i64, Option<&[u8]>)], seal: BatchSeal, codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    for &(timestamp, key) in records {
        builder.push(timestamp, key, Some(b"value"), NO_HEADERS).expect("fits");
    }
    builder.finish(&seal).expect("sealed").to_vec()
}

fn batch() -> Vec<u8> {
    batch_of(&[(NOW, Some(b"k")), (NOW + 1, None)], BatchSeal::default(), Compression::None)
}

/// The batch with other header fields and a checksum that fits them.
fn with(change: impl FnOnce(&mut BatchHeader)) -> Vec<u8> {
    let mut bytes = batch();
    let mut header = BatchHeader::parse(&bytes).expect("a batch");
    change(&mut header);
    rewrite(&mut bytes, &header);
    bytes
}

fn rewrite(bytes: &mut [u8], header: &BatchHeader) {
    header.write(bytes.first_chunk_mut::<HEADER_LEN>().expect("a header"));
    let crc = crc::of(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn code(bytes: &[u8], rules: &AppendRules) -> ErrorCode {
    match validate_set(bytes, rules, 9, NOW) {
        Ok(_) => ErrorCode::NONE,
        Err(rejected) => {
            assert!(!rejected.message.is_empty());
            rejected.code
        }
    }
}

fn plain(bytes: &[u8]) -> ErrorCode {
    code(bytes, &AppendRules::default())
}

#[test]
fn a_good_batch_passes_and_gives_its_header() {
    let bytes = batch();
    let header = validate_set(&bytes, &AppendRules::default(), 9, NOW).expect("good");
    assert_eq!(header, BatchHeader::parse(&bytes).expect("a batch"));
    let strict = AppendRules { strict: true, ..AppendRules::default() };
    assert_eq!(code(&bytes, &strict), ErrorCode::NONE);
}

#[test]
fn a_set_is_one_batch_and_all_its_bytes() {
    let bytes = batch();
    assert_eq!(plain(&[]), ErrorCode::INVALID_RECORD);
    assert_eq!(plain(&[bytes.clone(), bytes.clone()].concat()), ErrorCode::INVALID_RECORD);
    assert_eq!(plain(&[bytes.clone(), vec![0]].concat()), ErrorCode::INVALID_RECORD);
    for cut in 0..bytes.len() {
        assert_eq!(plain(&bytes[..cut]), ErrorCode::INVALID_RECORD, "cut at {cut}");
    }
    assert_eq!(plain(&with(|header| header.base_offset = 1)), ErrorCode::INVALID_RECORD);
    for magic in [0, 1, 3] {
        let mut old = bytes.clone();
        old[16] = magic;
        assert_eq!(plain(&old), ErrorCode::INVALID_RECORD, "magic {magic}");
    }
}

#[test]
fn no_byte_can_be_changed_unseen() {
    let good = batch();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let outcome = plain(&bad);
        // The leader epoch is the broker's to write, and not under the checksum.
        assert_eq!(outcome.is_none(), (12..16).contains(&at), "byte {at}: {outcome}");
    }
    let mut bad = good;
    *bad.last_mut().expect("bytes") ^= 1;
    assert_eq!(plain(&bad), ErrorCode::CORRUPT_MESSAGE);
}

#[test]
fn codecs_are_known_and_zstd_comes_with_version_7() {
    let codec = |id: i16| with(|header| header.attributes = Attributes(id));
    for id in 5..=7 {
        assert_eq!(plain(&codec(id)), ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
    }
    let rules = AppendRules::default();
    assert!(validate_set(&codec(4), &rules, 7, NOW).is_ok());
    let refused = validate_set(&codec(4), &rules, 6, NOW).expect_err("too early");
    assert_eq!(refused.code, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
    assert!(validate_set(&codec(3), &rules, 3, NOW).is_ok());
}

#[test]
fn sizes_are_limited_at_the_limit() {
    let bytes = batch();
    let batch_limit = |limit| AppendRules { max_message_bytes: limit, ..AppendRules::default() };
    assert_eq!(code(&bytes, &batch_limit(bytes.len())), ErrorCode::NONE);
    assert_eq!(code(&bytes, &batch_limit(bytes.len() - 1)), ErrorCode::MESSAGE_TOO_LARGE);
    let set_limit = |limit| AppendRules { segment_bytes: limit, ..AppendRules::default() };
    assert_eq!(code(&bytes, &set_limit(bytes.len())), ErrorCode::NONE);
    assert_eq!(code(&bytes, &set_limit(bytes.len() - 1)), ErrorCode::RECORD_LIST_TOO_LARGE);
}

#[test]
fn headers_that_a_producer_does_not_write_are_refused() {
    let bad: [(&str, Vec<u8>); 6] = [
        ("count", with(|header| header.records_count = 1)),
        ("no records", with(|header| header.records_count = 0)),
        ("control", with(|header| header.attributes = header.attributes.with_control(true))),
        ("horizon", with(|header| header.attributes = header.attributes.with_delete_horizon(true))),
        ("unknown bit", with(|header| header.attributes = Attributes(0x100))),
        ("sequence", with(|header| header.producer_id = 5)),
    ];
    for (what, bytes) in bad {
        assert_eq!(plain(&bytes), ErrorCode::INVALID_RECORD, "{what}");
    }
}

#[test]
fn a_time_in_microseconds_is_refused_and_its_record_named() {
    let seal = BatchSeal::default();
    let records = [(NOW, None), (NOW + 3_600_000, None), (NOW * 1000, None)];
    for codec in [Compression::None, Compression::Lz4] {
        let bytes = batch_of(&records, seal, codec);
        let refused = validate_set(&bytes, &AppendRules::default(), 9, NOW).expect_err("far ahead");
        assert_eq!((refused.code, refused.batch_index), (ErrorCode::INVALID_TIMESTAMP, Some(2)));
        let lifted = AppendRules { timestamp_after_max_ms: i64::MAX, ..AppendRules::default() };
        assert_eq!(code(&bytes, &lifted), ErrorCode::NONE);
        let dated_here =
            AppendRules { timestamp_type: TimestampType::LogAppendTime, ..AppendRules::default() };
        assert_eq!(code(&bytes, &dated_here), ErrorCode::NONE);
    }
    assert_eq!(plain(&batch_of(&records[..2], seal, Compression::None)), ErrorCode::NONE);
    assert_eq!(plain(&batch_of(&[(-1, None)], seal, Compression::None)), ErrorCode::NONE);
}

#[test]
fn records_are_looked_at_where_a_rule_needs_it() {
    let compacted = AppendRules { compacted: true, ..AppendRules::default() };
    let seal = BatchSeal::default();
    let keyless = [(NOW, Some(&b"k"[..])), (NOW, None)];
    let refused = validate_set(&batch_of(&keyless, seal, Compression::Lz4), &compacted, 9, NOW)
        .expect_err("no key");
    assert_eq!((refused.code, refused.batch_index), (ErrorCode::INVALID_RECORD, Some(1)));
    assert_eq!(code(&batch_of(&keyless[..1], seal, Compression::Lz4), &compacted), ErrorCode::NONE);
    let gzip = with(|header| header.attributes = Attributes(1));
    assert_eq!(code(&gzip, &compacted), ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);

    let recent = AppendRules { timestamp_before_max_ms: 1000, ..AppendRules::default() };
    let old = batch_of(&[(NOW, None), (NOW - 1001, None)], seal, Compression::None);
    let refused = validate_set(&old, &recent, 9, NOW).expect_err("too old");
    assert_eq!((refused.code, refused.batch_index), (ErrorCode::INVALID_TIMESTAMP, Some(1)));
    assert_eq!(plain(&old), ErrorCode::NONE);
    let edge = batch_of(&[(NOW - 1000, None), (-1, None)], seal, Compression::None);
    assert_eq!(code(&edge, &recent), ErrorCode::NONE);

    // A record that breaks its batch: stored by default, as its readers judge it; not if strict.
    let mut broken = batch();
    let at = HEADER_LEN;
    broken[at] = 0x7e;
    let header = BatchHeader::parse(&broken).expect("a header");
    rewrite(&mut broken, &header);
    let strict = AppendRules { strict: true, ..AppendRules::default() };
    assert_eq!(plain(&broken), ErrorCode::NONE);
    let refused = validate_set(&broken, &strict, 9, NOW).expect_err("broken");
    assert_eq!((refused.code, refused.batch_index), (ErrorCode::INVALID_RECORD, Some(0)));
}
