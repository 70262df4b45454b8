//! What is written is what the reader reads, and limits hold.

use super::*;
use crate::reader::Reader;

#[test]
fn varints_are_written_in_their_shortest_form() {
    for (value, length) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u32::MAX, 5)] {
        let mut w = Writer::new();
        w.uvarint(value);
        assert_eq!(w.len(), length, "{value}");
        assert_eq!(Reader::new(w.bytes()).uvarint(), Ok(value));
    }
    for value in [0, -1, 1, 63, -64, 64, i32::MAX, i32::MIN] {
        let mut w = Writer::new();
        w.varint(value);
        w.varlong(value.into());
        let mut r = Reader::new(w.bytes());
        assert_eq!((r.varint(), r.varlong()), (Ok(value), Ok(value.into())));
    }
    for value in [i64::MIN, i64::MAX] {
        let mut w = Writer::new();
        w.varlong(value);
        assert_eq!((w.len(), Reader::new(w.bytes()).varlong()), (10, Ok(value)));
    }
}

#[test]
fn primitives_round_trip_in_both_forms() {
    for form in [Form::Classic, Form::Compact] {
        let mut w = Writer::new();
        w.bool(true);
        w.f64(-0.5);
        w.uuid(Uuid([7; 16]));
        w.string_as(form, "é").unwrap();
        w.nullable_string_as(form, None).unwrap();
        w.bytes_as(form, &[1, 2]).unwrap();
        w.nullable_bytes_as(form, None).unwrap();
        w.nullable_array_as::<i32>(form, None, |_, _| Ok(())).unwrap();
        let put = |w: &mut Writer, value: &i16| {
            w.i16(*value);
            Ok(())
        };
        w.array_as(form, &[3, 4], put).unwrap();
        let mut r = Reader::new(w.bytes());
        assert_eq!((r.bool(), r.f64()), (Ok(true), Ok(-0.5)));
        assert_eq!(r.uuid(), Ok(Uuid([7; 16])));
        assert_eq!(r.string_as(form), Ok("é"));
        assert_eq!(r.nullable_string_as(form), Ok(None));
        assert_eq!(r.bytes_as(form), Ok(&[1, 2][..]));
        assert_eq!(r.nullable_bytes_as(form), Ok(None));
        assert_eq!(r.nullable_array_as(form, 4, Reader::i32), Ok(None));
        assert_eq!(r.array_as(form, 2, Reader::i16), Ok(vec![3, 4]));
        assert_eq!(r.finish(), Ok(()));
    }
}

#[test]
fn strings_over_32767_bytes_are_refused_in_both_forms() {
    let most = "a".repeat(32_767);
    let more = "a".repeat(32_768);
    for form in [Form::Classic, Form::Compact] {
        assert_eq!(Writer::new().string_as(form, &most), Ok(()));
        assert_eq!(
            Writer::new().string_as(form, &more),
            Err(EncodeError::TooLong { what: "string", length: 32_768 })
        );
    }
}

#[test]
fn detached_records_leave_their_length_and_a_cut() {
    let mut w = Writer::new();
    w.records_as(Form::Classic, Records::Detached(500)).unwrap();
    w.records_as(Form::Compact, Records::Inline(&[9, 9])).unwrap();
    w.records_as(Form::Compact, Records::Detached(300)).unwrap();
    w.records_as(Form::Compact, Records::Null).unwrap();
    assert_eq!(w.bytes(), [0, 0, 1, 0xf4, 3, 9, 9, 0xad, 2, 0]);
    assert_eq!(w.cuts(), [Cut { at: 4, len: 500 }, Cut { at: 9, len: 300 }]);
    w.truncate(8);
    assert_eq!(w.cuts(), [Cut { at: 4, len: 500 }]);
    w.clear();
    assert!(w.is_empty() && w.cuts().is_empty());
    let huge = Records::Detached(usize::MAX);
    for form in [Form::Classic, Form::Compact] {
        let told = w.records_as(form, huge);
        assert_eq!(told, Err(EncodeError::TooLong { what: "records", length: usize::MAX }));
    }
}

#[test]
fn the_size_of_a_tagged_field_stands_before_it() {
    for length in [0, 1, 127, 128, 20_000] {
        let body = vec![5; length];
        let mut w = Writer::new();
        w.i8(1);
        w.tag(3, |w| {
            w.raw(&body);
            Ok(())
        })
        .unwrap();
        let mut r = Reader::new(w.bytes());
        assert_eq!((r.i8(), r.uvarint()), (Ok(1), Ok(3)));
        assert_eq!(r.uvarint().map(usize::try_from), Ok(Ok(length)));
        assert_eq!(r.take_rest(), body);
    }
}
