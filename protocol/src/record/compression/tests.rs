//! Codecs held against themselves, against what others write, and against what nobody should.

use std::io::Write;

use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use proptest::prelude::*;

use super::*;
use crate::message::tests::allocator::most_in_use;

const CODECS: [Compression; 4] =
    [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

fn packed(codec: Codec, pieces: &[&[u8]]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    codec.compress(pieces.iter().copied(), &mut out).unwrap();
    assert!(out.starts_with(b"before"), "what stood in the buffer stays");
    out.split_off(6)
}

fn plain(codec: Compression, body: &[u8]) -> Vec<u8> {
    codec.decompress(body, 1 << 26).unwrap()
}

/// Text that can be compressed, never the same for two lengths.
fn text(len: usize) -> Vec<u8> {
    (0..).flat_map(|at: u32| format!("{at}:paid;").into_bytes()).take(len).collect()
}

/// Bytes that cannot be compressed.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

proptest! {
    #[test]
    fn bytes_come_back_however_they_were_cut(
        len in 0_usize..200_000,
        cuts in prop::collection::vec(0_usize..200_000, 0..6),
        random: bool,
        id in 0_u8..5,
    ) {
        let codec = Codec::new(Compression::from_id(id).unwrap());
        let whole = if random { noise(len) } else { text(len) };
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(len)).collect();
        cuts.extend([0, len]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &whole[cut[0]..cut[1]]).collect();
        let body = packed(codec, &pieces);
        prop_assert_eq!(&plain(codec.compression(), &body), &whole);
        prop_assert!(codec.compression().decompress(&body, len).is_ok(), "just the limit");
        if len > 0 {
            prop_assert_eq!(
                codec.compression().decompress(&body, len - 1),
                Err(CompressionError::TooLarge { limit: len - 1 })
            );
        }
        let mut pieces = Vec::with_capacity(1000);
        let mut decompressor = Decompressor::new(codec.compression(), &body, len).unwrap();
        let mut given = Vec::new();
        while decompressor.fill(&mut pieces).unwrap() > 0 {
            prop_assert_eq!(pieces.capacity(), 1000, "the room is the caller's");
            given.append(&mut pieces);
        }
        prop_assert_eq!(given, whole);
    }

    #[test]
    fn damaged_bodies_are_refused_or_read_within_the_limit(
        id in 1_u8..5,
        at in 0_usize..400,
        value: u8,
        cut in 0_usize..400,
    ) {
        let codec = Compression::from_id(id).unwrap();
        let mut body = packed(Codec::new(codec), &[&text(1_000)]);
        if let Some(byte) = body.get_mut(at) {
            *byte = value;
        }
        body.truncate(body.len().saturating_sub(cut));
        if let Ok(read) = codec.decompress(&body, 5_000) {
            prop_assert!(read.len() <= 5_000);
        }
    }
}

#[test]
fn every_level_of_kafkas_is_taken_and_the_next_is_not() {
    let sample = text(10_000);
    for codec in CODECS {
        let Some(levels) = codec.levels() else {
            assert!(Codec::with_level(codec, 1).is_err(), "{codec}");
            continue;
        };
        let (least, most) = (*levels.start(), *levels.end());
        for level in [least, most, codec.default_level().unwrap()] {
            let leveled = Codec::with_level(codec, level).unwrap();
            assert_eq!(plain(codec, &packed(leveled, &[&sample])), sample, "{codec} {level}");
        }
        for level in [least - 1, most + 1] {
            if Some(level) == codec.default_level() {
                continue;
            }
            let refused = Codec::with_level(codec, level);
            assert_eq!(refused, Err(CompressionError::Level { codec, level }));
        }
    }
    assert!(Codec::with_level(Compression::Gzip, 0).is_err(), "Kafka has no stored gzip");
    let gzip = |level| packed(Codec::with_level(Compression::Gzip, level).unwrap(), &[&sample]);
    assert!(gzip(9).len() < gzip(1).len());
    assert_eq!(gzip(-1), gzip(6));
    let zstd = |level| packed(Codec::with_level(Compression::Zstd, level).unwrap(), &[&sample]);
    assert!(zstd(19).len() < zstd(-1000).len());
}

#[test]
fn a_used_codec_writes_what_a_fresh_one_would() {
    for codec in CODECS.map(Codec::new) {
        let (empty, first) = (packed(codec, &[]), packed(codec, &[&text(100_000)]));
        for _ in 0..3 {
            assert_eq!(packed(codec, &[&text(100_000)]), first, "{codec:?}");
            assert_eq!(packed(codec, &[]), empty, "{codec:?}");
            packed(codec, &[&noise(3_000)]);
            assert_eq!(plain(codec.compression(), &empty), b"");
        }
    }
}

#[test]
fn gzip_of_several_members_is_one_body() {
    let member = |text: &[u8]| packed(Codec::new(Compression::Gzip), &[text]);
    let body = [member(b"one "), member(b""), member(&text(70_000)), member(b"two")].concat();
    assert_eq!(
        plain(Compression::Gzip, &body),
        [&b"one "[..], &text(70_000), &b"two"[..]].concat()
    );
    let followed = [&member(b"one")[..], &[0; 8]].concat();
    assert_eq!(plain(Compression::Gzip, &followed), b"one", "Java passes over what follows");
    let mut bad = member(b"one");
    *bad.iter_mut().rev().nth(4).unwrap() ^= 1;
    assert!(matches!(
        Compression::Gzip.decompress(&bad, 100),
        Err(CompressionError::Corrupt { codec: Compression::Gzip, .. })
    ));
}

#[test]
fn zstd_frames_with_and_without_a_size_follow_one_another() {
    let sized = packed(Codec::new(Compression::Zstd), &[b"sized "]);
    let mut unsized_ = Vec::new();
    let codec = Codec::new(Compression::Zstd);
    let mut writer = Compressor::new(codec, None, &mut unsized_).unwrap();
    writer.write(b"unsized ").unwrap();
    writer.write(&text(300_000)).unwrap();
    writer.finish().unwrap();
    let size = |frame: &[u8]| zstd::zstd_safe::get_frame_content_size(frame).unwrap();
    assert_eq!((size(&sized), size(&unsized_)), (Some(6), None));
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let body = [&sized[..], &skippable, &unsized_, &sized].concat();
    assert_eq!(
        plain(Compression::Zstd, &body),
        [&b"sized unsized "[..], &text(300_000), &b"sized "[..]].concat()
    );
    for cut in 1..20 {
        let cut = &body[..body.len() - cut];
        let read = Compression::Zstd.decompress(cut, 1 << 20);
        let frame_ended = cut.len() == body.len() - sized.len();
        assert_eq!(read.is_ok(), frame_ended, "{} bytes", cut.len());
    }
}

#[test]
fn lz4_frames_of_others_are_read() {
    let sample = text(200_000);
    let forms = [
        FrameInfo::new().content_size(Some(200_000)),
        FrameInfo::new().block_checksums(true),
        FrameInfo::new().content_checksum(true).block_size(BlockSize::Max4MB),
        FrameInfo::new().block_mode(BlockMode::Linked).block_size(BlockSize::Max256KB),
    ];
    for form in forms {
        let mut encoder = FrameEncoder::with_frame_info(form, Vec::new());
        encoder.write_all(&sample).unwrap();
        let mut body = encoder.finish().unwrap();
        assert_eq!(plain(Compression::Lz4, &body), sample);
        body[100] ^= 0x55;
        let read = Compression::Lz4.decompress(&body, 1 << 20);
        assert_ne!(read.as_deref(), Ok(&sample[..]), "damage is never passed over");
    }
    assert!(Compression::Lz4.decompress(&[0x02, 0x21, 0x4c, 0x18, 0, 0, 0, 0], 100).is_err());
}

/// Names that recur in an order of their own, as in events: a patient search finds more of them.
fn events(len: usize) -> Vec<u8> {
    let names = ["order-created", "order-paid", "order-shipped", "cart-emptied", "user-seen"];
    let pick = noise(len).into_iter().map(|byte| names[usize::from(byte) % names.len()]);
    pick.flat_map(str::bytes).take(len).collect()
}

#[test]
fn lz4_takes_less_room_at_levels_of_its_own_and_the_default_is_the_fast_one() {
    let sample = events(200_000);
    let at = |level| packed(Codec::with_level(Compression::Lz4, level).unwrap(), &[&sample]);
    let fast = packed(Codec::new(Compression::Lz4), &[&sample]);
    assert_eq!(at(9), fast);
    let sizes = [2, 5, 12].map(|level| at(level).len());
    assert!(fast.len() > sizes[0] && sizes.is_sorted_by(|one, next| one > next), "{sizes:?}");
    assert_eq!((at(1), at(17)), (at(2), at(12)), "those beyond are the nearest");
    for level in 1..=17 {
        let body = at(level);
        assert_eq!(plain(Compression::Lz4, &body), sample, "level {level}");
        assert_eq!(body[..6], fast[..6], "the same frame: independent blocks, no checksums");
    }
    for sample in [&b""[..], b"x", &noise(70_000)] {
        let body = packed(Codec::with_level(Compression::Lz4, 12).unwrap(), &[sample]);
        assert_eq!(plain(Compression::Lz4, &body), sample);
    }
}

fn raw_snappy(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).unwrap()
}

#[test]
fn both_snappy_forms_are_read_and_javas_is_written() {
    let sample = text(100_000);
    assert_eq!(plain(Compression::Snappy, &raw_snappy(&sample)), sample, "as librdkafka writes");
    let body = packed(Codec::new(Compression::Snappy), &[&sample]);
    assert!(body.starts_with(b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"));
    let mut blocks = 0;
    let mut rest = &body[16..];
    while let Some((len, tail)) = rest.split_first_chunk::<4>() {
        let len = usize::try_from(u32::from_be_bytes(*len)).unwrap();
        assert!(snap::raw::decompress_len(&tail[..len]).unwrap() <= 32 * 1024);
        rest = &tail[len..];
        blocks += 1;
    }
    assert_eq!(blocks, 4, "100,000 bytes in blocks of 32 KiB");
    let twice = [&body[..], &body].concat();
    assert_eq!(plain(Compression::Snappy, &twice), [&sample[..], &sample].concat());
    assert_eq!(plain(Compression::Snappy, &body[..16]), b"", "a header alone holds nothing");
}

#[test]
fn false_snappy_lengths_are_refused_before_memory_is_asked_for() {
    let refused = |body: &[u8]| {
        let (read, most) = most_in_use(|| Compression::Snappy.decompress(body, 1 << 30));
        assert!(most < 1 << 16, "{most} bytes for {body:02x?}");
        read.unwrap_err().to_string()
    };
    let framed = |tail: &[u8]| [&b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"[..], tail].concat();
    let gigabyte = [0x80, 0x80, 0x80, 0x80, 0x04, 0x00, 0x01];
    assert!(refused(&gigabyte).contains("7 bytes cannot hold 1073741824"));
    assert!(refused(&framed(&[0x7f, 0xff, 0xff, 0xff])).contains("passes the end"));
    assert!(refused(&framed(&[0xff, 0xff, 0xff, 0xff, 0])).contains("passes the end"));
    assert!(refused(&framed(&[0, 0])).contains("length is cut"));
    let in_a_block = framed(&[&[0, 0, 0, 7], &gigabyte[..]].concat());
    assert!(refused(&in_a_block).contains("cannot hold"));
    assert!(refused(&b"\x82SNAPPY\0\0\0\0\0\0\0\0\x01"[..]).contains("version 0"));
    assert!(refused(b"\x82SNAPPY\0\0\0").contains("cut"));
}

/// Bodies of a few KiB to a few hundred that hold a hundred times as much and more.
fn bombs() -> [(Compression, Vec<u8>); 5] {
    let zeros = vec![0; 32 << 20];
    let snappy = raw_snappy(&zeros[..1 << 20]);
    let length = u32::try_from(snappy.len()).unwrap().to_be_bytes();
    let block = [&length[..], &snappy].concat();
    let framed = [&b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"[..], &block.repeat(32)].concat();
    // A window of 128 MiB and blocks of one byte, repeated 131,072 times each.
    let mut zstd = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88];
    for _ in 0..10_000 {
        zstd.extend_from_slice(&[0x02, 0x00, 0x10, 0x41]);
    }
    [
        (Compression::Gzip, packed(Codec::new(Compression::Gzip), &[&zeros])),
        (Compression::Snappy, framed),
        (Compression::Snappy, raw_snappy(&zeros)),
        (Compression::Lz4, packed(Codec::new(Compression::Lz4), &[&zeros])),
        (Compression::Zstd, zstd),
    ]
}

#[test]
fn bombs_stop_at_the_limit_and_their_memory_with_them() {
    const LIMIT: usize = 1 << 20;
    for (codec, bomb) in bombs() {
        let (read, most) = most_in_use(|| codec.decompress(&bomb, LIMIT));
        assert_eq!(read, Err(CompressionError::TooLarge { limit: LIMIT }), "{codec}");
        assert!(most <= 3 * LIMIT + (256 << 10), "{codec}: {most} bytes held");
        let (read, most) = most_in_use(|| {
            let mut piece = Vec::with_capacity(64 << 10);
            let mut decompressor = Decompressor::new(codec, &bomb, LIMIT).unwrap();
            loop {
                piece.clear();
                if let Err(fault) = decompressor.fill(&mut piece) {
                    return fault;
                }
            }
        });
        assert_eq!(read, CompressionError::TooLarge { limit: LIMIT }, "{codec}");
        assert!(most <= LIMIT + (256 << 10), "{codec}: {most} bytes held piece by piece");
    }
}

#[test]
fn a_zstd_window_beyond_what_kafka_writes_is_refused() {
    // 128 MiB, 256 MiB, 2 GiB.
    for (window, fits) in [(0x88_u8, true), (0x90, false), (0xa8, false)] {
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, window, 0x0b, 0x00, 0x00, 0x41];
        let read = Compression::Zstd.decompress(&frame, 100);
        assert_eq!(read.as_deref(), if fits { Ok(&b"A"[..]) } else { read.as_deref() });
        assert_eq!(read.is_ok(), fits, "window {window:#x}: {read:?}");
    }
}

#[test]
fn names_numbers_and_messages() {
    for codec in Compression::ALL {
        assert_eq!(codec.name().parse(), Ok(codec));
        assert_eq!(Compression::from_id(codec.id()), Ok(codec));
    }
    assert!("lzo".parse::<Compression>().is_err());
    let level = CompressionError::Level { codec: Compression::Zstd, level: 23 };
    assert_eq!(level.to_string(), "zstd has no compression level 23: give -131072 to 22");
}
