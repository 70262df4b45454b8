//! Records as a case writes them down.

use ottla_protocol::record::{BatchBuilder, BatchHeader, BatchSeal, NO_HEADERS, stamp};

/// The batches and other bytes of a line's words: base offset, next offset and bytes of each.
///
/// `10..19` is a batch of these offsets, whose values are the offsets; then `/10,12` leaves only
/// some of its records, as compaction does, `!` damages a byte, `~` has gzip's number and no gzip,
/// and `-` gives its first record a negative key length. `zeros:100` are so many zero bytes, and
/// `10@NAME` is a batch of `conformance/batches`.
pub(crate) fn pieces(text: &str, epoch: i32) -> Vec<(i64, i64, Vec<u8>)> {
    text.split_whitespace().map(|word| piece(word, epoch)).collect()
}

/// The batch of a name in `conformance/batches`, at an offset.
fn kept(first: i64, name: &str, epoch: i32) -> (i64, i64, Vec<u8>) {
    let text = include_str!("../../../conformance/batches/batches.txt");
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, hex) = lines.find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no {name}"));
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let mut bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    stamp(&mut bytes, first, epoch).unwrap();
    (first, BatchHeader::parse(&bytes).unwrap().next_offset(), bytes)
}

fn piece(word: &str, epoch: i32) -> (i64, i64, Vec<u8>) {
    if let Some((first, name)) = word.split_once('@') {
        return kept(first.parse().unwrap(), name, epoch);
    }
    if let Some(count) = word.strip_prefix("zeros:") {
        return (0, 0, vec![0; count.parse().unwrap()]);
    }
    let (first, rest) = word.split_once("..").unwrap_or_else(|| panic!("no offsets: {word}"));
    let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(rest.len());
    let dash = rest[1..].find('-').map_or(digits, |at| digits.min(at + 1));
    let (last, how) = rest.split_at(dash);
    let (first, last): (i64, i64) = (first.parse().unwrap(), last.parse().unwrap());
    let left: Option<Vec<i64>> =
        how.strip_prefix('/').map(|kept| kept.split(',').map(|at| at.parse().unwrap()).collect());
    let mut builder = BatchBuilder::default();
    for offset in first..=last {
        if left.as_ref().is_none_or(|left| left.contains(&offset)) {
            let value = offset.to_string();
            builder.push(1, None, Some(value.as_bytes()), NO_HEADERS).unwrap();
        } else {
            builder.skip(1);
        }
    }
    let seal =
        BatchSeal { base_offset: first, partition_leader_epoch: epoch, ..BatchSeal::default() };
    let mut bytes = builder.finish(&seal).unwrap().to_vec();
    match how {
        "!" => *bytes.last_mut().unwrap() ^= 0x55,
        // The codec's number stands in the low bits of the attributes.
        "~" => bytes[22] |= 1,
        // Length, attributes, and two deltas stand before the key's length.
        "-" => bytes[65] = 9,
        _ => assert!(how.is_empty() || how.starts_with('/'), "{word}"),
    }
    (first, last + 1, bytes)
}
