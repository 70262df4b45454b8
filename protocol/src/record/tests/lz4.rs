//! LZ4 bodies as others frame them, damaged and cut.

use super::*;

/// A frame as other writers of LZ4 make it.
fn frame(text: &[u8], mode: lz4_flex::frame::BlockMode) -> Vec<u8> {
    let info = lz4_flex::frame::FrameInfo::new()
        .block_mode(mode)
        .block_size(lz4_flex::frame::BlockSize::Max64KB)
        .block_checksums(true)
        .content_checksum(true)
        .content_size(Some(u64::try_from(text.len()).unwrap()));
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    std::io::Write::write_all(&mut encoder, text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn frames_with_linked_blocks_and_checksums_are_read() {
    use lz4_flex::frame::BlockMode::{Independent, Linked};
    let text: Vec<u8> =
        (0..20_000_u32).flat_map(|n| (n * n / 7).to_string().into_bytes()).collect();
    assert!(text.len() > 2 * 65_536, "more than two blocks");
    for mode in [Independent, Linked] {
        let packed = frame(&text, mode);
        assert_eq!(Compression::Lz4.decompress(&packed, text.len()).unwrap(), text);
        let mut bad = packed.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        assert!(matches!(
            Compression::Lz4.decompress(&bad, text.len()),
            Err(CompressionError::Corrupt { codec: Compression::Lz4, .. })
        ));
    }
}

#[test]
fn body_that_is_no_lz4_frame_is_corrupt() {
    // The last is the magic number of the format before frames.
    for body in [&b""[..], b"\x04\x22\x4d", b"plain text", b"\x02\x21\x4c\x18\x00\x00\x00\x00"] {
        assert!(matches!(
            Compression::Lz4.decompress(body, 1_000),
            Err(CompressionError::Corrupt { .. })
        ));
    }
}

#[test]
fn cut_lz4_body_is_missed_by_its_records() {
    let good = build(&orders(), Compression::Lz4, &BatchSeal::default());
    let header = Batch::parse(&good).unwrap().header;
    for end in HEADER_LEN..good.len() - 4 {
        let Ok(body) = Compression::Lz4.decompress(&good[HEADER_LEN..end], 1 << 16) else {
            continue;
        };
        assert!(RecordIter::new(&header, &body).any(|record| record.is_err()), "cut at {end}");
    }
}
