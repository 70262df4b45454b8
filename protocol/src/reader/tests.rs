//! Each primitive at and beyond its bounds.

use std::fmt;

use super::*;
use DecodeErrorKind::{
    InvalidUtf8, MemoryLimit, NegativeLength, TagOrder, TooManyElements, TrailingBytes, Truncated,
    UnexpectedNull, VarintTooLong,
};

fn kind<T: fmt::Debug>(result: Result<T, DecodeError>) -> DecodeErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn integers_are_big_endian_and_need_all_their_bytes() {
    let bytes = [0xff, 0xfe, 0, 1, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0];
    let mut r = Reader::new(&bytes);
    assert_eq!(r.i8(), Ok(-1));
    assert_eq!(r.u8(), Ok(0xfe));
    assert_eq!(r.u16(), Ok(1));
    assert_eq!(r.i32(), Ok(i32::MIN + 1));
    assert_eq!(r.i64(), Ok(256));
    assert_eq!(r.clone().finish(), Ok(()));
    assert_eq!(kind(r.i8()), Truncated);
    for size in 0..8 {
        let mut r = Reader::new(&bytes[..size]);
        assert_eq!(kind(r.i64()), Truncated);
        assert_eq!(r.position(), 0, "a failed read moves nothing");
    }
    assert_eq!(Reader::new(&1.5_f64.to_be_bytes()).f64(), Ok(1.5));
    assert_eq!(Reader::new(&[2]).bool(), Ok(true));
    assert_eq!(kind(Reader::new(&[0; 15]).uuid()), Truncated);
}

#[test]
fn left_over_bytes_are_an_error_at_their_place() {
    let mut r = Reader::new(&[1, 2, 3]);
    r.i16().unwrap();
    let error = r.finish().unwrap_err();
    assert_eq!((error.kind(), error.at()), (TrailingBytes, 2));
}

#[test]
fn varints_have_at_most_5_bytes_and_32_bits() {
    let cases: [(&[u8], u32); 6] = [
        (&[0], 0),
        (&[0x7f], 127),
        (&[0x80, 0x01], 128),
        (&[0xff, 0xff, 0xff, 0xff, 0x0f], u32::MAX),
        // Padded with zero bits, as Kafka accepts it.
        (&[0x81, 0x80, 0x80, 0x80, 0x00], 1),
        (&[0x80, 0x00], 0),
    ];
    for (bytes, value) in cases {
        let mut r = Reader::new(bytes);
        assert_eq!(r.uvarint(), Ok(value), "{bytes:?}");
        assert_eq!(r.remaining(), 0);
    }
    for bytes in [&[0xff, 0xff, 0xff, 0xff, 0x1f][..], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]] {
        assert_eq!(kind(Reader::new(bytes).uvarint()), VarintTooLong, "{bytes:?}");
    }
    for bytes in [&[][..], &[0x80], &[0x80, 0x80, 0x80, 0x80]] {
        assert_eq!(kind(Reader::new(bytes).uvarint()), Truncated, "{bytes:?}");
    }
}

#[test]
fn varlongs_have_at_most_10_bytes_and_64_bits() {
    let mut most = [0xff; 10];
    most[9] = 0x01;
    assert_eq!(Reader::new(&most).uvarlong(), Ok(u64::MAX));
    let mut padded = [0x80; 10];
    padded[9] = 0;
    assert_eq!(Reader::new(&padded).uvarlong(), Ok(0));
    most[9] = 0x02;
    assert_eq!(kind(Reader::new(&most).uvarlong()), VarintTooLong);
    assert_eq!(kind(Reader::new(&[0x80; 11]).uvarlong()), VarintTooLong);
    assert_eq!(kind(Reader::new(&[0x80; 9]).uvarlong()), Truncated);
}

#[test]
fn zig_zag_puts_the_sign_in_the_lowest_bit() {
    for (byte, value) in [(0, 0), (1, -1), (2, 1), (3, -2), (0x7f, -64)] {
        assert_eq!(Reader::new(&[byte]).varint(), Ok(value));
        assert_eq!(Reader::new(&[byte]).varlong(), Ok(value.into()));
    }
    assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).varint(), Ok(i32::MIN));
    assert_eq!(Reader::new(&[0xfe, 0xff, 0xff, 0xff, 0x0f]).varint(), Ok(i32::MAX));
    let mut least = [0xff; 10];
    least[9] = 0x01;
    assert_eq!(Reader::new(&least).varlong(), Ok(i64::MIN));
}

#[test]
fn strings_are_bounded_and_utf8() {
    assert_eq!(Reader::new(&[0, 1, b'a']).string(), Ok("a"));
    assert_eq!(Reader::new(&[2, b'a']).compact_string(), Ok("a"));
    assert_eq!(Reader::new(&[0, 0]).string(), Ok(""));
    assert_eq!(Reader::new(&[1]).compact_string(), Ok(""));
    assert_eq!(Reader::new(&[0xff, 0xff]).nullable_string(), Ok(None));
    assert_eq!(Reader::new(&[0]).compact_nullable_string(), Ok(None));
    assert_eq!(kind(Reader::new(&[0xff, 0xff]).string()), UnexpectedNull);
    assert_eq!(kind(Reader::new(&[0]).compact_string()), UnexpectedNull);
    assert_eq!(kind(Reader::new(&[0xff, 0xfe]).nullable_string()), NegativeLength);
    assert_eq!(kind(Reader::new(&[0, 2, b'a']).string()), Truncated);
    assert_eq!(kind(Reader::new(&[3, b'a']).compact_string()), Truncated);
    let most = [0xff, 0xff, 0xff, 0xff, 0x0f, b'a'];
    assert_eq!(kind(Reader::new(&most).compact_string()), Truncated);
    let error = Reader::new(&[0, 3, b'a', 0xff, b'b']).string().unwrap_err();
    assert_eq!((error.kind(), error.at()), (InvalidUtf8, 3));
}

#[test]
fn bytes_are_bounded() {
    assert_eq!(Reader::new(&[0, 0, 0, 1, 7]).bytes(), Ok(&[7][..]));
    assert_eq!(Reader::new(&[2, 7]).compact_bytes(), Ok(&[7][..]));
    assert_eq!(Reader::new(&[0xff; 4]).nullable_bytes(), Ok(None));
    assert_eq!(Reader::new(&[0]).compact_nullable_bytes(), Ok(None));
    assert_eq!(kind(Reader::new(&[0xff; 4]).bytes()), UnexpectedNull);
    assert_eq!(kind(Reader::new(&[0xff, 0xff, 0xff, 0xfe]).nullable_bytes()), NegativeLength);
    assert_eq!(kind(Reader::new(&[0x7f, 0xff, 0xff, 0xff, 7]).bytes()), Truncated);
}

#[test]
fn an_array_may_not_announce_more_than_the_bytes_can_hold() {
    assert_eq!(Reader::new(&[0, 0, 0, 2, 1, 2, 3, 4]).array_len(2), Ok(Some(2)));
    assert_eq!(kind(Reader::new(&[0, 0, 0, 2, 1, 2, 3]).array_len(2)), TooManyElements);
    assert_eq!(kind(Reader::new(&[0x7f, 0xff, 0xff, 0xff]).array_len(1)), TooManyElements);
    assert_eq!(kind(Reader::new(&[3, 1]).compact_array_len(1)), TooManyElements);
    // An element of no bytes counts as one of one byte, or a count would be free.
    assert_eq!(kind(Reader::new(&[3, 1]).compact_array_len(0)), TooManyElements);
    assert_eq!(Reader::new(&[0xff; 4]).array_len(1), Ok(None));
    assert_eq!(Reader::new(&[0]).compact_array_len(1), Ok(None));
    assert_eq!(Reader::new(&[1]).compact_array_len(1), Ok(Some(0)));
    let null = Reader::new(&[0]).array_as(Form::Compact, 4, Reader::i32);
    assert_eq!(kind(null), UnexpectedNull);
}

#[test]
fn arrays_take_their_memory_from_one_limit() {
    // 4,000 elements of one byte become 4,000 of 24 bytes: more than 64 KiB, less than 64 times.
    let mut bytes = vec![0, 0, 0x0f, 0xa0];
    bytes.resize(4 + 4_000, 0);
    let element = |r: &mut Reader<'_>| r.u8().map(|byte| [u64::from(byte); 3]);
    let read = Reader::new(&bytes).array_as(Form::Classic, 1, element);
    assert_eq!(read.map(|read| read.len()), Ok(4_000));
    let refused = Reader::with_memory(&bytes, 1).array_as(Form::Classic, 1, element);
    assert_eq!(kind(refused), MemoryLimit);
    // The limit is for all arrays together.
    let small = [0, 0, 0, 3, 0, 0, 0];
    let mut r = Reader::with_memory(&small, 0);
    let large = |_: &mut Reader<'_>| Ok([0_u64; 2_000]);
    assert_eq!(r.array_as(Form::Classic, 1, large).map(|read| read.len()), Ok(3));
    r.at = 0;
    assert_eq!(kind(r.array_as(Form::Classic, 1, large)), MemoryLimit);
}

#[test]
fn known_tags_are_read_and_others_skipped() {
    let bytes = [3, 0, 2, 0, 5, 4, 1, 9, 7, 0, 42];
    let mut r = Reader::new(&bytes);
    let mut seen = None;
    r.tags(Form::Compact, |tag, r| {
        if tag == 0 {
            seen = Some(r.i16()?);
        }
        Ok(tag == 0)
    })
    .unwrap();
    assert_eq!((seen, r.i8()), (Some(5), Ok(42)));
    assert_eq!(r.finish(), Ok(()));
    // In the classic form there are none.
    let mut r = Reader::new(&bytes);
    r.skip_tags(Form::Classic).unwrap();
    assert_eq!(r.position(), 0);
}

#[test]
fn tags_must_rise_and_fit() {
    let skip = |bytes: &[u8]| Reader::new(bytes).skip_tags(Form::Compact);
    assert_eq!(kind(skip(&[2, 1, 0, 1, 0])), TagOrder);
    assert_eq!(kind(skip(&[2, 1, 0, 0, 0])), TagOrder);
    assert_eq!(kind(skip(&[1, 0, 2, 7])), Truncated);
    assert_eq!(kind(skip(&[2, 0, 0])), Truncated);
    assert_eq!(kind(skip(&[0xff, 0xff, 0xff, 0xff, 0x0f])), Truncated);
    assert_eq!(skip(&[2, 0, 0, 9, 1, 7]), Ok(()));
}

#[test]
fn a_tagged_field_ends_where_its_size_says() {
    let known = |_: u32, r: &mut Reader<'_>| r.i16().map(|_| true);
    let read = |bytes: &[u8]| Reader::new(bytes).tags(Form::Compact, known);
    assert_eq!(read(&[1, 0, 2, 0, 5]), Ok(()));
    // The field wants 2 bytes of which 1 lies outside of it.
    assert_eq!(kind(read(&[1, 0, 1, 0, 5])), Truncated);
    assert_eq!(kind(read(&[1, 0, 3, 0, 5, 0])), TrailingBytes);
}
