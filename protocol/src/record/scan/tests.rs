//! Scans: what they hold, what they refuse, and the copy that they write.

use bytes::Bytes;

use super::*;
use crate::message::tests::allocator::most_in_use;
use crate::record::{BatchBuilder, BatchSeal, Codec, HEADER_LEN, NO_HEADERS, RecordIter};

fn batch_of(codec: Compression, values: &[&[u8]]) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    for (at, value) in (0..).zip(values) {
        let key = (at % 2 == 0).then_some(&b"key"[..]);
        builder.push(1_000 + at, key, Some(value), NO_HEADERS).unwrap();
    }
    builder.finish(&BatchSeal::default()).unwrap()
}

fn scanned(bytes: &[u8], limit: usize) -> Result<Vec<RecordOutline>, String> {
    let batch = Batch::parse(bytes).unwrap();
    let scan = RecordScan::new(&batch, limit).map_err(|fault| fault.to_string())?;
    scan.collect::<Result<_, _>>().map_err(|fault| fault.to_string())
}

#[test]
fn a_record_larger_than_any_buffer_is_scanned_in_little_memory() {
    let large = vec![7; 8 << 20];
    for codec in Compression::ALL {
        let bytes = batch_of(codec, &[b"first", &large, b"last"]);
        let (outlines, most) = most_in_use(|| scanned(&bytes, 1 << 24).unwrap());
        assert_eq!(
            outlines.iter().map(|outline| outline.value_len).collect::<Vec<_>>(),
            [Some(5), Some(8 << 20), Some(4)]
        );
        assert_eq!(
            outlines.iter().map(|outline| outline.key_len).collect::<Vec<_>>(),
            [Some(3), None, Some(3)]
        );
        assert_eq!(outlines[2].timestamp, 1_002);
        assert_eq!(outlines[1].len, (8 << 20) + 9);
        assert!(most < 512 << 10, "{codec}: {most} bytes held");
    }
}

#[test]
fn what_passes_the_limit_is_refused() {
    for codec in Compression::ALL {
        let bytes = batch_of(codec, &[&[7_u8; 1_000][..]; 300]);
        let whole = Batch::parse(&bytes).unwrap().records(1 << 20).unwrap().body().len();
        assert_eq!(scanned(&bytes, whole).unwrap().len(), 300);
        let refused = scanned(&bytes, whole - 1).unwrap_err();
        assert!(refused.contains("more than the limit"), "{codec}: {refused}");
    }
}

#[test]
fn a_scan_refuses_what_the_iterator_refuses_and_where() {
    let good = batch_of(Compression::None, &[b"one", b"two", b"three"]);
    let header = Batch::parse(&good).unwrap().header;
    for at in HEADER_LEN..good.len() {
        for value in 0..=255 {
            let mut bad = good.to_vec();
            bad[at] = value;
            let iterated: Result<Vec<_>, _> =
                RecordIter::new(&header, &bad[HEADER_LEN..]).collect();
            let batch = Batch::parse(&bad).unwrap();
            let scanned: Result<Vec<_>, _> = RecordScan::new(&batch, 1 << 20).unwrap().collect();
            match (iterated, scanned) {
                (Ok(records), Ok(outlines)) => {
                    let lens = records.iter().map(|record| record.value.map(<[u8]>::len));
                    assert!(lens.eq(outlines.iter().map(|outline| outline.value_len)));
                }
                (Err(iterated), Err(ScanError::Record(scanned))) => assert_eq!(
                    (iterated.index, iterated.what),
                    (scanned.index, scanned.what),
                    "byte {at} = {value}"
                ),
                (iterated, scanned) => panic!("byte {at} = {value}: {iterated:?}, {scanned:?}"),
            }
        }
    }
}

#[test]
fn the_copy_holds_all_records_in_the_new_codec() {
    let values: Vec<Vec<u8>> = (0..200_usize).map(|at| vec![b'v'; at * 7]).collect();
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    for from in Compression::ALL {
        let bytes = batch_of(from, &values);
        let batch = Batch::parse(&bytes).unwrap();
        let records = batch.records(1 << 20).unwrap();
        for to in Compression::ALL {
            let mut out = Vec::new();
            let copy = Compressor::new(Codec::new(to), None, &mut out).unwrap();
            let mut scan = RecordScan::copying(&batch, 1 << 20, copy).unwrap();
            assert_eq!(scan.by_ref().flatten().count(), 200);
            assert!(scan.copied_bytes() <= 1 << 20);
            scan.into_copy().unwrap().finish().unwrap();
            assert_eq!(to.decompress(&out, 1 << 20).unwrap(), records.body(), "{from} to {to}");
        }
    }
}

#[test]
fn a_batch_that_counts_no_records_holds_none_whatever_follows() {
    for codec in Compression::ALL {
        let mut bytes = batch_of(codec, &[b"gone"]).to_vec();
        bytes[57..61].fill(0);
        let bytes = Bytes::from(bytes);
        assert_eq!(scanned(&bytes, 100), Ok(Vec::new()));
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!(batch.records(100).unwrap().iter().count(), 0, "{codec}");
        let decoded = crate::record::DecodedBatch::decode(&bytes, 100).unwrap();
        assert!(decoded.index().unwrap().is_empty());
    }
}
