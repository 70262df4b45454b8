//! Whole batches: written, read back, cut, altered, compressed and stamped.

mod forms;
mod lz4;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::batch::MIN_RECORD_LEN;
use super::*;

type Field = Option<Vec<u8>>;
type Header = (Vec<u8>, Field);

/// A record that owns its bytes.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    timestamp: i64,
    key: Field,
    value: Field,
    headers: Vec<Header>,
}

impl Sample {
    fn headers(&self) -> impl Iterator<Item = HeaderPair<'_>> + Clone {
        self.headers.iter().map(|(key, value)| (&key[..], value.as_deref()))
    }

    fn of(view: &RecordView<'_>) -> Self {
        Self {
            timestamp: view.timestamp,
            key: view.key.map(<[u8]>::to_vec),
            value: view.value.map(<[u8]>::to_vec),
            headers: view
                .headers
                .iter()
                .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                .collect(),
        }
    }
}

fn sample() -> impl Strategy<Value = Sample> {
    let timestamp =
        prop_oneof![0_i64..4_000_000_000_000, Just(-1_i64), Just(i64::MAX), any::<i64>()];
    let field = || option::of(vec(any::<u8>(), 0..200));
    let headers = vec((vec(any::<u8>(), 0..10), field()), 0..4);
    (timestamp, field(), field(), headers).prop_map(|(timestamp, key, value, headers)| Sample {
        timestamp,
        key,
        value,
        headers,
    })
}

fn build(samples: &[Sample], codec: Compression, fields: &BatchSeal) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    for record in samples {
        builder
            .push(
                record.timestamp,
                record.key.as_deref(),
                record.value.as_deref(),
                record.headers(),
            )
            .unwrap();
    }
    builder.finish(fields).unwrap()
}

fn orders() -> Vec<Sample> {
    (0_u8..20)
        .map(|n| Sample {
            timestamp: 1_700_000_000_000 + i64::from(n) * 7 - 30,
            key: (n % 3 != 0).then(|| vec![n; usize::from(n)]),
            value: (n % 5 != 0)
                .then(|| format!("{{\"order\":{n},\"state\":\"paid\"}}").into_bytes()),
            headers: (0..n % 4).map(|h| (vec![h], (h != 1).then(|| vec![n, h]))).collect(),
        })
        .collect()
}

fn read(bytes: &Bytes) -> Vec<(i64, Sample)> {
    let batch = DecodedBatch::decode(bytes, 1 << 20).unwrap();
    batch.iter().map(|view| view.unwrap()).map(|view| (view.offset, Sample::of(&view))).collect()
}

proptest! {
    #[test]
    fn records_come_back_as_they_were_written(
        samples in vec(sample(), 0..20),
        id in 0_u8..5,
        base_offset in 0_i64..1_000_000_000_000,
    ) {
        let codec = Compression::from_id(id).unwrap();
        let bytes = build(&samples, codec, &BatchSeal { base_offset, ..BatchSeal::default() });
        let batch = Batch::parse(&bytes).unwrap();
        batch.verify_crc().unwrap();
        prop_assert!(Batch::is_whole(&bytes));
        prop_assert_eq!(batch.header.records_count, i32::try_from(samples.len()).unwrap());
        if let Some(max) = samples.iter().map(|record| record.timestamp).max() {
            prop_assert_eq!(batch.header.max_timestamp, max);
        }
        let decoded = DecodedBatch::decode(&bytes, 1 << 20).unwrap();
        let indexed = decoded.clone().index().unwrap();
        prop_assert_eq!(indexed.len(), samples.len());
        let borrowed = batch.records(1 << 20).unwrap();
        let mut streamed = borrowed.iter();
        let outlines: Vec<_> =
            RecordScan::new(&batch, 1 << 20).unwrap().map(|outline| outline.unwrap()).collect();
        prop_assert_eq!(outlines.len(), samples.len());
        for (at, record) in samples.iter().enumerate() {
            let view = streamed.next().unwrap().unwrap();
            prop_assert_eq!(view.offset, base_offset + i64::try_from(at).unwrap());
            prop_assert_eq!(&Sample::of(&view), record);
            prop_assert_eq!(outlines[at].offset, view.offset);
            prop_assert_eq!(outlines[at].timestamp, view.timestamp);
            prop_assert_eq!(outlines[at].key_len, view.key.map(<[u8]>::len));
            prop_assert_eq!(outlines[at].value_len, view.value.map(<[u8]>::len));
            prop_assert_eq!(indexed.get(at), Some(view));
            prop_assert_eq!(indexed.key(at).map(|key| key.to_vec()), record.key.clone());
            prop_assert_eq!(indexed.value(at).map(|value| value.to_vec()), record.value.clone());
            prop_assert_eq!(indexed.position_of(view.offset), at);
        }
        prop_assert!(streamed.next().is_none());
        prop_assert!(indexed.iter().eq((0..samples.len()).filter_map(|at| indexed.get(at))));
    }

    #[test]
    fn record_is_as_long_as_measured_whatever_room_there_is(
        record in sample(),
        offset_delta in 0_i32..=i32::MAX,
        shift in 0_u32..32,
        spare in 0_usize..40,
    ) {
        let new = NewRecord {
            offset_delta: offset_delta >> shift,
            timestamp_delta: record.timestamp,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: record.headers(),
        };
        let measured = new.measure().unwrap();
        let len = measured.len();
        prop_assert!(len >= MIN_RECORD_LEN);
        let mut roomy = Vec::with_capacity(len + 100);
        prop_assert_eq!(measured.clone().encode(&mut roomy), len);
        prop_assert_eq!(roomy.len(), len);
        let mut tight = Vec::with_capacity(len + spare);
        let room = tight.capacity();
        measured.encode(&mut tight);
        prop_assert_eq!(tight.capacity(), room, "a record that fits must not move the buffer");
        prop_assert_eq!(&tight, &roomy);
    }

    #[test]
    fn any_bytes_are_refused_or_read_but_never_panic(
        mut bytes in vec(any::<u8>(), 0..300),
        shape: bool,
    ) {
        if shape && bytes.len() > 61 {
            let length = i32::try_from(bytes.len() - 12).unwrap();
            bytes[0..8].fill(0);
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            bytes[16] = 2;
            bytes[22] &= 0xf8;
            bytes[23..27].copy_from_slice(&[0, 0, 1, 0]);
            bytes[57..61].copy_from_slice(&[0, 0, 0, 3]);
        }
        visit(&Bytes::from(bytes));
    }
}

/// Reads whatever can be read of `bytes`.
fn visit(bytes: &Bytes) -> bool {
    let mut whole = true;
    for batch in batches(bytes) {
        let Ok(batch) = batch else { return false };
        whole &= batch.verify_crc().is_ok();
        let Ok(records) = batch.records(1 << 16) else { return false };
        for record in &records {
            let Ok(record) = record else { return false };
            assert_eq!(record.headers.iter().count(), record.headers.len());
        }
    }
    let indexed = DecodedBatch::decode(bytes, 1 << 16).map(DecodedBatch::index);
    whole && matches!(indexed, Ok(Ok(_)))
}

#[test]
fn every_altered_byte_is_found_out() {
    for codec in Compression::ALL {
        let good = build(&orders(), codec, &BatchSeal::default());
        for at in (8..good.len()).filter(|at| !(12..16).contains(at)) {
            for flip in [0x01, 0x80, 0xff] {
                let mut bad = good.to_vec();
                bad[at] ^= flip;
                let bad = Bytes::from(bad);
                let read = Batch::parse(&bad).and_then(|batch| batch.verify_crc());
                assert!(read.is_err(), "byte {at} ^ {flip:02x} went unseen");
                visit(&bad);
            }
        }
    }
}

#[test]
fn altered_records_never_pass_as_more_than_the_body_holds() {
    // With the checksum set aside, every byte of the body takes every value.
    let good = build(&orders()[..6], Compression::None, &BatchSeal::default());
    for at in HEADER_LEN..good.len() {
        for value in 0..=255 {
            let mut bad = good.to_vec();
            bad[at] = value;
            visit(&Bytes::from(bad));
        }
    }
}

#[test]
fn cut_batch_says_how_much_is_missing() {
    let good = build(&orders(), Compression::None, &BatchSeal::default());
    for have in 0..good.len() {
        let need = if have < HEADER_LEN { HEADER_LEN } else { good.len() };
        assert_eq!(Batch::parse(&good[..have]), Err(BatchError::Truncated { have, need }));
        assert!(!Batch::is_whole(&good[..have]));
        assert_eq!(batches(&good[..have]).count(), 0);
    }
}

#[test]
fn set_is_walked_up_to_its_cut_tail() {
    let first = build(&orders()[..3], Compression::None, &BatchSeal::default());
    let second =
        build(&orders(), Compression::Lz4, &BatchSeal { base_offset: 3, ..BatchSeal::default() });
    let mut set = [&first[..], &second[..], &first[..]].concat();
    assert!(!Batch::is_whole(&set));
    set.truncate(set.len() - 1);
    let bases: Vec<i64> = batches(&set).map(|batch| batch.unwrap().header.base_offset).collect();
    assert_eq!(bases, [0, 3]);
    set[first.len() + 16] = 1;
    let walked: Vec<_> = batches(&set).collect();
    assert_eq!(walked.len(), 2);
    assert_eq!(walked[1], Err(BatchError::Magic { magic: 1 }));
}

#[test]
fn leader_stamps_a_batch_without_a_new_checksum() {
    let mut bytes = build(&orders(), Compression::None, &BatchSeal::default()).to_vec();
    stamp(&mut bytes, 1_000, 7).unwrap();
    let batch = Batch::parse(&bytes).unwrap();
    batch.verify_crc().unwrap();
    assert_eq!(batch.header.base_offset, 1_000);
    assert_eq!(batch.header.partition_leader_epoch, 7);
    assert_eq!(batch.header.last_offset(), 1_019);
    assert_eq!(batch.header.next_offset(), 1_020);
    assert_eq!(
        stamp(&mut bytes[..15], 0, 0),
        Err(BatchError::Truncated { have: 15, need: HEADER_LEN })
    );
}

#[test]
fn log_append_time_dates_every_record() {
    for codec in Compression::ALL {
        let mut bytes = build(&orders(), codec, &BatchSeal::default()).to_vec();
        stamp_append_time(&mut bytes, 1_800_000_000_000).unwrap();
        let bytes = Bytes::from(bytes);
        Batch::parse(&bytes).unwrap().verify_crc().unwrap();
        assert!(read(&bytes).iter().all(|(_, record)| record.timestamp == 1_800_000_000_000));
    }
}

#[test]
fn restamping_does_not_heal_a_damaged_record() {
    let mut bytes = build(&orders(), Compression::None, &BatchSeal::default()).to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    stamp_append_time(&mut bytes, 1_800_000_000_000).unwrap();
    assert!(matches!(Batch::parse(&bytes).unwrap().verify_crc(), Err(BatchError::Crc { .. })));
}

#[test]
fn epoch_bump_rewrites_the_header_alone() {
    let fields =
        BatchSeal { producer_id: 9, producer_epoch: 1, base_sequence: 40, ..BatchSeal::default() };
    let mut bytes = build(&orders(), Compression::None, &fields).to_vec();
    reseal(&mut bytes[..HEADER_LEN], 9, 2, 0).unwrap();
    let bumped = BatchSeal { producer_epoch: 2, base_sequence: 0, ..fields };
    assert_eq!(bytes, build(&orders(), Compression::None, &bumped));
}

#[test]
fn header_of_a_chain_equals_that_of_one_buffer() {
    let whole = build(&orders(), Compression::None, &BatchSeal::default());
    let mut first = vec![0; HEADER_LEN];
    let mut second = Vec::new();
    let mut span = BatchSpan::new(orders()[0].timestamp);
    for record in &orders() {
        let new = NewRecord {
            offset_delta: span.next_delta(),
            timestamp_delta: span.timestamp_delta(record.timestamp),
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: record.headers(),
        };
        let chunk = if span.records_count < 11 { &mut first } else { &mut second };
        new.measure().unwrap().encode(chunk);
        span.add(record.timestamp);
    }
    let (header, head) = first.split_first_chunk_mut::<HEADER_LEN>().unwrap();
    let body_crc = crc::append(crc::of(head), &second);
    seal(header, &BatchSeal::default(), &span, head.len() + second.len(), body_crc).unwrap();
    assert_eq!([first, second].concat(), whole);
}

#[test]
fn what_others_write_and_kafka_reads_is_read() {
    // Each number in five bytes (ten for the timestamp), attributes that nobody has defined yet.
    let int = |zigzag: u8| [zigzag | 0x80, 0x80, 0x80, 0x80, 0x00];
    let long = [0x88, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00];
    let mut record = vec![0x7f];
    record.extend_from_slice(&long);
    for part in [&int(6)[..], &int(2), b"k", &int(1), &int(4), &int(2), b"h", &int(1)] {
        record.extend_from_slice(part);
    }
    record.extend_from_slice(&int(0));
    record.extend_from_slice(&int(2));
    record.extend_from_slice(b"v");
    let len = u8::try_from(record.len() * 2).unwrap();
    let body = [&int(len & 0x7f)[..1], &[len >> 7], &record].concat();
    let span = BatchSpan {
        max_timestamp: 9,
        last_offset_delta: 40,
        records_count: 1,
        ..BatchSpan::new(5)
    };
    let fields = BatchSeal {
        base_offset: 100,
        attributes: Attributes(0x100).with_delete_horizon(true),
        ..BatchSeal::default()
    };
    let mut bytes = vec![0; HEADER_LEN];
    let header = bytes.first_chunk_mut().unwrap();
    seal(header, &fields, &span, body.len(), crc::of(&body)).unwrap();
    bytes.extend_from_slice(&body);
    let bytes = Bytes::from(bytes);
    Batch::parse(&bytes).unwrap().verify_crc().unwrap();
    let records = read(&bytes);
    let [(offset, record)] = &records[..] else { panic!("one record") };
    assert_eq!(*offset, 103, "in a gap");
    let headers = vec![(b"h".to_vec(), None), (Vec::new(), Some(b"v".to_vec()))];
    let expected = Sample { timestamp: 9, key: Some(b"k".to_vec()), value: None, headers };
    assert_eq!(record, &expected);
    assert_eq!(Batch::parse(&bytes).unwrap().header.next_offset(), 141);
}

#[test]
fn compacted_batch_keeps_its_offsets() {
    let mut builder = BatchBuilder::default();
    builder.skip(4);
    builder.push(5, Some(b"k"), Some(b"v"), NO_HEADERS).unwrap();
    builder.skip(10);
    builder.push(6, Some(b"l"), None, NO_HEADERS).unwrap();
    builder.skip(3);
    let bytes = builder.finish(&BatchSeal { base_offset: 100, ..BatchSeal::default() }).unwrap();
    let header = Batch::parse(&bytes).unwrap().header;
    assert_eq!((header.records_count, header.next_offset()), (2, 119));
    let offsets: Vec<i64> = read(&bytes).iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [104, 115]);
    let indexed = DecodedBatch::decode(&bytes, 1_000).unwrap().index().unwrap();
    assert_eq!(
        [100, 104, 105, 115, 116].map(|offset| indexed.position_of(offset)),
        [0, 0, 1, 1, 2]
    );
}

#[test]
fn emptied_batch_still_moves_the_offset_on() {
    let mut builder = BatchBuilder::default();
    builder.skip(12);
    let bytes = builder.finish(&BatchSeal::default()).unwrap();
    assert_eq!(Batch::parse(&bytes).unwrap().header.next_offset(), 12);
    assert_eq!(read(&bytes), []);
}

#[test]
fn uncompressed_records_share_the_buffer_they_came_in() {
    let bytes = build(&orders(), Compression::None, &BatchSeal::default());
    let indexed = DecodedBatch::decode(&bytes, 1 << 20).unwrap().index().unwrap();
    let value = indexed.value(7).unwrap();
    assert!(bytes.as_ptr_range().contains(&value.as_ptr()));
    assert_eq!(indexed.key(0), None);
    assert_eq!(indexed.get(20), None);
    assert_eq!(indexed.headers_of_record(7), 3);
}

impl IndexedBatch {
    fn headers_of_record(&self, index: usize) -> usize {
        self.get(index).unwrap().headers.iter().count()
    }
}

#[test]
fn index_takes_no_more_than_it_says() {
    let decode = |bytes: &Bytes| DecodedBatch::decode(bytes, 1 << 20).unwrap();
    let batch = decode(&build(&orders(), Compression::Lz4, &BatchSeal::default()));
    assert_eq!(batch.index_bytes(), 20 * 40);
    assert_eq!(size_of::<RecordRow>(), 40);
    let body = batch.body().len();
    let indexed = batch.index().unwrap();
    assert_eq!(indexed.memory_bytes(), body + 20 * 40);
    // A compressed body's count cannot be judged by the header alone.
    let mut bytes = build(&orders(), Compression::Lz4, &BatchSeal::default()).to_vec();
    bytes[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    let lying = decode(&Bytes::from(bytes));
    assert!(lying.index_bytes() <= body / MIN_RECORD_LEN * 40);
    assert!(lying.index().is_err());
}

#[test]
fn decompression_stops_at_its_limit() {
    let zeros = vec![0; 1 << 20];
    let mut packed = Vec::new();
    Compression::Lz4.compress([&zeros[..]], &mut packed).unwrap();
    assert!(packed.len() < 10_000);
    assert_eq!(Compression::Lz4.decompress(&packed, zeros.len()).unwrap(), zeros);
    let limit = zeros.len() - 1;
    assert_eq!(
        Compression::Lz4.decompress(&packed, limit),
        Err(CompressionError::TooLarge { limit })
    );
    assert_eq!(
        Compression::None.decompress(&zeros, limit),
        Err(CompressionError::TooLarge { limit })
    );
    let bytes = build(&orders(), Compression::None, &BatchSeal::default());
    let size = bytes.len() - HEADER_LEN;
    assert!(DecodedBatch::decode(&bytes, size).is_ok());
    assert!(DecodedBatch::decode(&bytes, size - 1).is_err());
    assert!(Batch::parse(&bytes).unwrap().records(size - 1).is_err());
}

#[test]
fn chain_compresses_as_one_frame() {
    let text = b"to be or not to be, that is the question".repeat(4_000);
    let mut packed = vec![1, 2, 3];
    Compression::Lz4.compress(text.chunks(1_000), &mut packed).unwrap();
    assert_eq!(packed[..3], [1, 2, 3]);
    // Magic; version 1, independent blocks, no checksums; 64 KiB; the header's checksum.
    assert_eq!(packed[3..10], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
    assert_eq!(Compression::Lz4.decompress(&packed[3..], 1 << 20).unwrap(), text);
    let mut copied = Vec::new();
    Compression::None.compress(text.chunks(1_000), &mut copied).unwrap();
    assert_eq!(copied, text);
}

#[test]
fn numbers_without_a_codec_are_named() {
    assert_eq!(Attributes(5).compression(), Err(CompressionError::UnknownCodec { id: 5 }));
    let bytes = build(&orders(), Compression::None, &BatchSeal::default()).to_vec();
    let bytes = Bytes::from([&bytes[..22], &[5], &bytes[23..]].concat());
    let fault = DecodedBatch::decode(&bytes, 1 << 20).unwrap_err();
    assert!(fault.to_string().contains("unknown compression codec 5"), "{fault}");
}

#[test]
fn attribute_bits_stand_where_kafka_puts_them() {
    let bits = Attributes::default()
        .with_compression(Compression::Zstd)
        .with_timestamp_type(TimestampType::LogAppendTime)
        .with_transactional(true)
        .with_control(true)
        .with_delete_horizon(true);
    assert_eq!(bits, Attributes(0x7c));
    assert!(!bits.has_unknown() && Attributes(0x80).has_unknown());
    assert!(bits.is_transactional() && bits.is_control() && bits.has_delete_horizon());
    assert_eq!(bits.with_control(false).with_compression(Compression::None), Attributes(0x58));
}

#[test]
fn sequence_goes_on_at_zero_after_its_maximum() {
    let bytes = build(&orders(), Compression::None, &BatchSeal::default());
    let header = Batch::parse(&bytes).unwrap().header;
    assert_eq!((header.last_sequence(), header.has_producer()), (-1, false));
    let at = |base_sequence| BatchHeader { base_sequence, ..header }.last_sequence();
    assert_eq!(at(0), 19);
    assert_eq!(at(i32::MAX - 19), i32::MAX);
    assert_eq!(at(i32::MAX - 18), 0);
    assert_eq!(at(i32::MAX), 18);
}

#[test]
fn impossible_headers_are_named() {
    let good = build(&orders(), Compression::None, &BatchSeal::default());
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.to_vec();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        Batch::parse(&bad).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(8, &48_i32.to_be_bytes()), BatchError::Length { length: 48 });
    assert_eq!(with(8, &(-1_i32).to_be_bytes()), BatchError::Length { length: -1 });
    assert_eq!(with(16, &[3]), BatchError::Magic { magic: 3 });
    assert_eq!(with(23, &(-1_i32).to_be_bytes()), BatchError::LastOffsetDelta { delta: -1 });
    assert_eq!(with(0, &i64::MAX.to_be_bytes()), BatchError::LastOffsetDelta { delta: 19 });
    assert_eq!(with(57, &(-1_i32).to_be_bytes()), BatchError::RecordsCount { count: -1 });
    let most = i32::try_from((good.len() - HEADER_LEN) / MIN_RECORD_LEN).unwrap();
    assert_eq!(with(57, &(most + 1).to_be_bytes()), BatchError::RecordsCount { count: most + 1 });
    let huge = with(8, &i32::MAX.to_be_bytes());
    assert!(matches!(huge, BatchError::Truncated { need: 0x8000_000b, .. }), "{huge}");
}

/// What the first record's error says, for a body of one record with these bytes after the length.
fn fault(body: &[u8], count: i32) -> (usize, usize, &'static str) {
    let mut bytes = build(&[], Compression::None, &BatchSeal::default()).to_vec();
    bytes.extend_from_slice(body);
    let mut header = Batch::parse(&bytes).unwrap().header;
    header.records_count = count;
    let fault = RecordIter::new(&header, body).find_map(Result::err).unwrap();
    (fault.index, fault.at, fault.what)
}

#[test]
fn broken_records_say_where_and_what() {
    let good = [12, 0, 0, 0, 1, 1, 0];
    assert!(fault(&good, 2).2.contains("length is cut"));
    assert_eq!(fault(&good, 0), (0, 0, "bytes follow the last record"));
    assert_eq!(fault(&[12, 0, 0, 0, 1, 1, 0, 0], 1).0, 1);
    assert_eq!(fault(&[14, 0, 0, 0, 1, 1, 0], 1), (0, 0, "its length passes the end of the batch"));
    assert_eq!(fault(&[11, 0, 0, 0, 1, 1, 0], 1), (0, 0, "its length is negative"));
    assert_eq!(fault(&[12, 0, 0, 2, 1, 1, 0], 1), (0, 3, "its offset lies outside the batch"));
    assert_eq!(fault(&[12, 0, 0, 1, 1, 1, 0], 1), (0, 3, "its offset lies outside the batch"));
    assert_eq!(fault(&[12, 0, 0, 0, 3, 1, 0], 1), (0, 4, "its key's length is wrong"));
    assert_eq!(fault(&[12, 0, 0, 0, 1, 4, 0], 1), (0, 5, "its value's length is wrong"));
    let many = "its header count is more than its bytes can hold";
    assert_eq!(fault(&[12, 0, 0, 0, 1, 1, 2], 1), (0, 6, many));
    assert_eq!(fault(&[12, 0, 0, 0, 1, 1, 1], 1), (0, 6, many));
    let null_key = "a header's key is null or its length is wrong";
    assert_eq!(fault(&[16, 0, 0, 0, 1, 1, 2, 1, 1], 1), (0, 7, null_key));
    assert_eq!(
        fault(&[14, 0, 0, 0, 1, 1, 0, 0], 1),
        (0, 7, "its fields end before its length does")
    );
    // The first record must not borrow bytes from the second.
    assert_eq!(fault(&[10, 0, 0, 0, 1, 1, 12, 0, 0, 0, 1, 1, 0], 2).0, 0);
}

#[test]
fn control_keys_and_markers_come_back() {
    for id in -1..9 {
        let record = ControlRecord::of(ControlKind::from_id(id));
        assert_eq!(ControlRecord::parse(&record.key()), Some(record));
        assert_eq!(record.kind.id(), id);
    }
    assert_eq!(ControlRecord::of(ControlKind::Commit).key(), [0, 0, 0, 1]);
    assert_eq!(ControlRecord::parse(&[0, 0, 0]), None);
    assert_eq!(ControlRecord::parse(&[0xff, 0xff, 0, 1]), None);
    let marker = EndTxnMarker { coordinator_epoch: 0x0102_0304 };
    assert_eq!(marker.value(), [0, 0, 1, 2, 3, 4]);
    assert_eq!(EndTxnMarker::parse(&marker.value()), Some(marker));
    assert_eq!(EndTxnMarker::parse(&[0; 5]), None);
}

#[test]
fn last_header_of_a_key_wins() {
    let headers: [HeaderPair<'_>; 3] = [(b"a", Some(b"1")), (b"b", None), (b"a", Some(b"2"))];
    let mut builder = BatchBuilder::default();
    builder.push(0, None, None, headers).unwrap();
    let bytes = builder.finish(&BatchSeal::default()).unwrap();
    let batch = Batch::parse(&bytes).unwrap().records(1_000).unwrap();
    let record = batch.iter().next().unwrap().unwrap();
    assert_eq!(record.headers.last(b"a"), Some(Some(&b"2"[..])));
    assert_eq!(record.headers.last(b"b"), Some(None));
    assert_eq!(record.headers.last(b"c"), None);
}
