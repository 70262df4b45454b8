//! One batch in each form in which producers pack records (`conformance/batches`).

use super::*;

/// Each form's name and batch.
fn forms() -> Vec<(&'static str, Vec<u8>)> {
    let text = include_str!("../../../../conformance/batches/batches.txt");
    let byte = |hex: &str| u8::from_str_radix(hex, 16).unwrap();
    let form = |line: &'static str| {
        let (name, hex) = line.split_once(' ').unwrap();
        (name, (0..hex.len()).step_by(2).map(|at| byte(&hex[at..at + 2])).collect())
    };
    text.lines().map(form).collect()
}

#[test]
fn every_form_that_producers_pack_records_in_holds_the_same_records() {
    let mut codecs = Vec::new();
    for (name, bytes) in forms().iter().filter(|(name, _)| !name.starts_with("corrupt-")) {
        let batch = Batch::parse(bytes).unwrap();
        batch.verify_crc().unwrap_or_else(|error| panic!("{name}: {error}"));
        codecs.push(batch.header.attributes.compression().unwrap());
        let records = batch.records(1 << 16).unwrap_or_else(|error| panic!("{name}: {error}"));
        let found: Vec<_> = records
            .iter()
            .map(|record| record.unwrap_or_else(|error| panic!("{name}: {error}")))
            .map(|record| (record.offset, record.timestamp, record.key, record.value))
            .map(|(offset, time, key, value)| (offset, time, key.unwrap(), value.unwrap().to_vec()))
            .collect();
        let key = b"a key that repeats".as_slice();
        let wanted: Vec<_> =
            (0..12).map(|at| (at, 1 + at, key, at.to_string().into_bytes())).collect();
        assert_eq!(found, wanted, "{name}");
    }
    for codec in Compression::ALL {
        assert!(codecs.contains(&codec), "no form of {codec:?}");
    }
}

#[test]
fn bytes_that_only_say_they_are_packed_are_corrupt_in_bounded_memory() {
    use crate::message::tests::allocator::most_in_use;
    let corrupt: Vec<_> =
        forms().into_iter().filter(|(name, _)| name.starts_with("corrupt-")).collect();
    assert_eq!(corrupt.len(), 8);
    for (name, bytes) in corrupt {
        let batch = Batch::parse(&bytes).unwrap();
        batch.verify_crc().unwrap();
        let (read, most) = most_in_use(|| batch.records(1 << 16).map(drop));
        assert!(read.is_err(), "{name} was read");
        assert!(most < 1 << 20, "{name} took {most} bytes");
    }
}
