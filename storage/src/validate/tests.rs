//! What is refused, and under which code.

use ottla_protocol::record::{
    Attributes, BatchBuilder, BatchSeal, Compressor, HEADER_LEN, NO_HEADERS, crc,
};

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
    let accepted = validate_set(&bytes, &AppendRules::default(), 9, NOW).expect("good");
    assert_eq!(accepted.header, BatchHeader::parse(&bytes).expect("a batch"));
    assert_eq!(accepted.rewritten, None);
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
    for magic in [0, 1] {
        let mut old = bytes.clone();
        old[16] = magic;
        assert_eq!(plain(&old), ErrorCode::INVALID_RECORD, "magic {magic}");
    }
}

#[test]
fn what_no_format_has_was_harmed_on_its_way() {
    let bytes = batch();
    for magic in [3, 0x80, 0xff] {
        let mut harmed = bytes.clone();
        harmed[16] = magic;
        assert_eq!(plain(&harmed), ErrorCode::CORRUPT_MESSAGE, "magic {magic}");
    }
    for length in [-1_i32, 0, 13, 48] {
        let mut harmed = bytes.clone();
        harmed[8..12].copy_from_slice(&length.to_be_bytes());
        assert_eq!(plain(&harmed), ErrorCode::CORRUPT_MESSAGE, "length {length}");
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
    for codec in Compression::ALL {
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
    let late = [(NOW + 3_600_001, None)];
    assert_eq!(plain(&batch_of(&late, seal, Compression::None)), ErrorCode::INVALID_TIMESTAMP);
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
    let no_gzip = with(|header| header.attributes = Attributes(1));
    assert_eq!(code(&no_gzip, &compacted), ErrorCode::INVALID_RECORD);
    assert_eq!(plain(&no_gzip), ErrorCode::NONE, "not looked at");

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

fn strict() -> AppendRules {
    AppendRules { strict: true, ..AppendRules::default() }
}

fn stored_as(compression: Compression) -> AppendRules {
    AppendRules { compression: Some(Codec::new(compression)), ..AppendRules::default() }
}

#[test]
fn a_false_largest_timestamp_is_corrected_where_records_are_looked_at() {
    for codec in Compression::ALL {
        let records = [(NOW, Some(&b"k"[..])), (NOW + 7, None), (NOW - 3, None)];
        let mut bytes = batch_of(&records, BatchSeal::default(), codec);
        let good = BatchHeader::parse(&bytes).expect("a batch");
        rewrite(&mut bytes, &BatchHeader { max_timestamp: NOW - 9_999, ..good });
        let kept = validate_set(&bytes, &AppendRules::default(), 9, NOW).expect("good");
        assert_eq!((kept.header.max_timestamp, kept.rewritten), (NOW - 9_999, None));
        let corrected = validate_set(&bytes, &strict(), 9, NOW).expect("good");
        assert_eq!(corrected.header.max_timestamp, NOW + 7);
        let stored = corrected.rewritten.expect("rewritten");
        let batch = Batch::parse(&stored).expect("a batch");
        batch.verify_crc().expect("a new checksum");
        assert_eq!(batch.header, corrected.header);
        assert_eq!(batch.body(), &bytes[HEADER_LEN..], "{codec}");
    }
}

#[test]
fn batches_are_stored_in_the_topics_codec_and_nothing_else_changes() {
    let records: Vec<_> =
        (0..50).map(|at| (NOW + at, (at % 2 == 0).then_some(&b"k"[..]))).collect();
    let attributes = Attributes::default().with_transactional(true);
    let seal = BatchSeal {
        producer_id: 9,
        producer_epoch: 2,
        base_sequence: 70,
        attributes,
        ..BatchSeal::default()
    };
    for from in Compression::ALL {
        let bytes = batch_of(&records, seal, from);
        let sent = Batch::parse(&bytes).expect("a batch");
        for to in Compression::ALL {
            let accepted = validate_set(&bytes, &stored_as(to), 9, NOW).expect("good");
            let Some(stored) = accepted.rewritten else {
                assert_eq!(from, to, "as it came");
                continue;
            };
            assert_ne!(from, to);
            let batch = Batch::parse(&stored).expect("a batch");
            batch.verify_crc().expect("its checksum");
            assert_eq!(batch.bytes.len(), stored.len());
            let expected = BatchHeader {
                attributes: attributes.with_compression(to),
                crc: batch.header.crc,
                batch_length: batch.header.batch_length,
                ..sent.header
            };
            assert_eq!(batch.header, expected, "{from} to {to}");
            assert_eq!(accepted.header, expected);
            assert_eq!(
                batch.records(1 << 20).expect("records").body(),
                sent.records(1 << 20).expect("records").body()
            );
        }
    }
}

#[test]
fn a_batch_that_grows_beyond_the_limit_in_the_topics_codec_is_refused() {
    let zeros = vec![0; 400_000];
    for from in [Compression::Gzip, Compression::Lz4, Compression::Snappy, Compression::Zstd] {
        let mut builder = BatchBuilder::new(from);
        builder.push(NOW, None, Some(&zeros), NO_HEADERS).expect("fits");
        let bytes = builder.finish(&BatchSeal::default()).expect("sealed");
        let limit = |compression, max_message_bytes| AppendRules {
            max_message_bytes,
            ..stored_as(compression)
        };
        assert_eq!(code(&bytes, &limit(Compression::None, 400_100)), ErrorCode::NONE);
        assert_eq!(
            code(&bytes, &limit(Compression::None, 399_999)),
            ErrorCode::MESSAGE_TOO_LARGE,
            "{from}"
        );
    }
    // 21 to 1 at best.
    let mut builder = BatchBuilder::new(Compression::Gzip);
    builder.push(NOW, None, Some(&zeros), NO_HEADERS).expect("fits");
    let bytes = builder.finish(&BatchSeal::default()).expect("sealed");
    let refused = |bytes: &[u8], max_message_bytes| {
        let rules = AppendRules { max_message_bytes, ..stored_as(Compression::Snappy) };
        let refused = validate_set(bytes, &rules, 9, NOW).expect_err("grown");
        assert_eq!(refused.code, ErrorCode::MESSAGE_TOO_LARGE);
        assert!(refused.message.contains("max.message.bytes"), "{}", refused.message);
    };
    refused(&bytes, 15_000);
    // Sixteen letters in no order: half for Gzip, nothing for Snappy. That shows at the end only.
    let mut state = 1_u64;
    let letters = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b'a' + (state.to_le_bytes()[0] & 15)
    });
    let letters: Vec<u8> = letters.take(20_000).collect();
    let mut builder = BatchBuilder::new(Compression::Gzip);
    builder.push(NOW, None, Some(&letters), NO_HEADERS).expect("fits");
    let bytes = builder.finish(&BatchSeal::default()).expect("sealed");
    assert_eq!(plain(&bytes), ErrorCode::NONE);
    assert!(bytes.len() < 15_000, "{}", bytes.len());
    refused(&bytes, 15_000);
    let rules = AppendRules { max_message_bytes: 25_000, ..stored_as(Compression::Snappy) };
    assert_eq!(code(&bytes, &rules), ErrorCode::NONE);
}

#[test]
fn records_are_checked_before_they_are_packed_anew() {
    let mut broken = batch();
    broken[HEADER_LEN] = 0x7e;
    let header = BatchHeader::parse(&broken).expect("a header");
    rewrite(&mut broken, &header);
    let refused = validate_set(&broken, &stored_as(Compression::Zstd), 9, NOW).expect_err("broken");
    assert_eq!((refused.code, refused.batch_index), (ErrorCode::INVALID_RECORD, Some(0)));
}

#[test]
fn a_record_is_limited_at_max_decompressed_message_bytes() {
    let large = vec![b'v'; 10_000];
    for codec in Compression::ALL {
        let mut builder = BatchBuilder::new(codec);
        builder.push(NOW, None, Some(b"small"), NO_HEADERS).expect("fits");
        builder.push(NOW, None, Some(&large), NO_HEADERS).expect("fits");
        let bytes = builder.finish(&BatchSeal::default()).expect("sealed");
        // Attributes, both deltas, the key's length and the headers' count; three for the value's.
        let rules = |limit| AppendRules { max_decompressed_bytes: limit, ..strict() };
        assert_eq!(code(&bytes, &rules(10_008)), ErrorCode::NONE, "{codec}");
        let refused = validate_set(&bytes, &rules(10_007), 9, NOW).expect_err("too large");
        assert_eq!((refused.code, refused.batch_index), (ErrorCode::INVALID_RECORD, Some(1)));
        let loose = AppendRules { strict: false, ..rules(1) };
        assert_eq!(code(&bytes, &loose), ErrorCode::NONE, "not looked at");
    }
}

#[test]
fn a_bomb_is_looked_at_without_being_held() {
    // One record that says it has 1.5 GiB, in a few KiB of zstd blocks of one byte each.
    let mut body = Vec::new();
    let mut compressor =
        Compressor::new(Codec::new(Compression::Zstd), None, &mut body).expect("a codec");
    compressor.write(&[0x80, 0x80, 0x80, 0x80, 0x0c, 0, 0, 0, 1]).expect("written");
    compressor.write(&[0x80, 0x80, 0x80, 0x80, 0x0c]).expect("written");
    let zeros = vec![0; 1 << 20];
    for _ in 0..1_100 {
        compressor.write(&zeros).expect("written");
    }
    compressor.finish().expect("written");
    let seal = BatchSeal {
        attributes: Attributes::default().with_compression(Compression::Zstd),
        ..BatchSeal::default()
    };
    let mut bytes = batch_of(&[(NOW, None)], seal, Compression::Zstd);
    bytes.truncate(HEADER_LEN);
    bytes.extend_from_slice(&body);
    let header = BatchHeader::parse(&bytes).expect("a header");
    let batch_length = i32::try_from(bytes.len() - 12).expect("short");
    rewrite(&mut bytes, &BatchHeader { batch_length, ..header });
    let before = peak_kib();
    let refused = validate_set(&bytes, &strict(), 9, NOW).expect_err("a bomb");
    assert_eq!(refused.code, ErrorCode::INVALID_RECORD);
    assert!(refused.message.contains("more than the limit"), "{}", refused.message);
    let refused = validate_set(&bytes, &stored_as(Compression::None), 9, NOW).expect_err("a bomb");
    assert_eq!(refused.code, ErrorCode::MESSAGE_TOO_LARGE);
    let grown = peak_kib() - before;
    assert!(grown < 64 << 10, "{grown} KiB more were held, of more than 1 GiB");
}

/// The most memory that this process ever held, in KiB: what C code allocates is counted too.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the peak");
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number")
}
