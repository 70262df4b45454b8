//! What is decoded of a fetch at a time.

use ottla_protocol::record::{BatchBuilder, BatchSeal, Compression, NO_HEADERS};

use super::*;
use crate::error::ErrorKind;
use crate::state::fetcher::Fetched;

/// A batch of two records, each of so many zeros.
fn zeros(base_offset: i64, len: usize) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::Zstd);
    for _ in 0..2 {
        builder.push(1, None, Some(&vec![0; len]), NO_HEADERS).unwrap();
    }
    builder.finish(&BatchSeal { base_offset, ..BatchSeal::default() }).unwrap()
}

fn fetched(start: i64, batches: Vec<Bytes>) -> Fetched {
    Fetched {
        partition: TopicPartition::new("t", 0),
        position: 7,
        start,
        next: i64::try_from(batches.len()).unwrap() * 2 + 5,
        bytes: 100,
        pinned: 100,
        high_watermark: 1_000,
        batches,
    }
}

fn offsets(shared: &Shared) -> Vec<i64> {
    (0..shared.len()).filter_map(|at| shared.get(at)).map(|record| record.offset).collect()
}

/// So much is decoded at a time.
const LIMIT: usize = 32 * 1024 * 1024;

#[test]
fn a_fetch_that_holds_more_than_its_bytes_is_decoded_part_by_part() {
    let mib = 1024 * 1024;
    let batches: Vec<Bytes> = (0..6).map(|at| zeros(at * 2, 6 * mib)).collect();
    assert!(batches.iter().map(Bytes::len).sum::<usize>() < mib);
    let (shared, rest) = Shared::decode(&fetched(1, batches.clone()), 3, LIMIT).unwrap();
    assert_eq!(offsets(&shared), [1, 2, 3], "24 MiB, and another 12 are too many");
    let rest = rest.expect("four more batches");
    assert_eq!((rest.start, rest.next, rest.position), (4, 17, 7));
    assert_eq!(rest.batches, batches[2..]);
    assert_eq!(rest.bytes, batches[2..].iter().map(Bytes::len).sum::<usize>());
    assert_eq!(shared.mark(3).offset, 4, "finished up to the rest");
    let (shared, rest) = Shared::decode(&rest, 3, 48 * mib).unwrap();
    assert_eq!(offsets(&shared), [4, 5, 6, 7, 8, 9], "with the records' places it is more");
    assert!((36 * mib..48 * mib).contains(&shared.memory_bytes()));
    let (shared, rest) = Shared::decode(&rest.expect("one more"), 3, 0).unwrap();
    assert_eq!((offsets(&shared), rest), (vec![10, 11], None), "one batch in any case");
    assert_eq!(shared.mark(2).offset, 17);
}

#[test]
fn good_batches_come_before_the_error_of_a_bad_one() {
    let mut bad = zeros(2, 10).to_vec();
    bad[61] ^= 0xff;
    let batches = vec![zeros(0, 10), Bytes::from(bad), zeros(4, 10)];
    let (shared, rest) = Shared::decode(&fetched(0, batches), 3, LIMIT).unwrap();
    assert_eq!((offsets(&shared), shared.mark(2).offset), (vec![0, 1], 2));
    let error = Shared::decode(&rest.expect("the bad one"), 3, LIMIT).err().expect("corrupt");
    assert_eq!(error.kind(), ErrorKind::CorruptBatch);
    assert!(error.to_string().contains("offset 2 of"), "{error}");
}

#[test]
fn a_batch_that_holds_more_than_a_request_could_is_an_error_and_not_memory() {
    // A zstd frame of a 128 MiB window and blocks of one byte, 128 KiB times each: 1.2 GiB.
    let mut body = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88];
    (0..10_000).for_each(|_| body.extend_from_slice(&[0x02, 0x00, 0x10, 0x41]));
    let mut bomb = zeros(0, 10)[..61].to_vec();
    let length = i32::try_from(body.len() + 49).unwrap();
    bomb[8..12].copy_from_slice(&length.to_be_bytes());
    bomb.extend_from_slice(&body);
    let error =
        Shared::decode(&fetched(0, vec![Bytes::from(bomb)]), 3, LIMIT).err().expect("too large");
    assert_eq!(error.kind(), ErrorKind::CorruptBatch);
    assert!(error.to_string().contains("more than the limit of 104857600 bytes"), "{error}");
}

/// The bytes of an answer, whose end is told.
struct Held {
    bytes: Vec<u8>,
    _alive: Arc<()>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[test]
fn what_is_detached_is_the_same_and_holds_nothing_of_its_answer() {
    let batch = |base_offset: i64| {
        let mut builder = BatchBuilder::new(Compression::None);
        for number in base_offset..base_offset + 3 {
            let (key, value) = (number.to_be_bytes(), [7; 1000]);
            builder.push(number, Some(&key), Some(&value), NO_HEADERS).unwrap();
        }
        let seal = BatchSeal { base_offset, partition_leader_epoch: 4, ..BatchSeal::default() };
        builder.finish(&seal).unwrap()
    };
    let answer = [batch(10), batch(20), vec![0; 100_000].into()].concat();
    let alive = Arc::new(());
    let answer = Bytes::from_owner(Held { bytes: answer, _alive: Arc::clone(&alive) });
    let len = batch(10).len();
    let batches = vec![answer.slice(..len), answer.slice(len..2 * len)];
    drop(answer);
    let (shared, _) = Shared::decode(&fetched(11, batches), 3, LIMIT).unwrap();
    let whole = Batch::new(Arc::new(shared.numbered(5)), 0, 5);
    let some = Batch::new(Arc::clone(&whole.shared), 1, 4);
    for batch in [&whole, &some] {
        let own = batch.detached();
        assert!(own.records().eq(batch.records()), "{own:?}");
        assert_eq!((own.len(), own.base_offset()), (batch.len(), batch.base_offset()));
        assert_eq!((own.mark(), own.leader_epoch()), (batch.mark(), batch.leader_epoch()));
        assert_eq!(own.high_watermark(), batch.high_watermark());
        assert!(!own.shared.is_same(&batch.shared));
        for at in 0..batch.len() {
            let (record, own) = (batch.record(at).unwrap(), own.record(at).unwrap().detached());
            assert_eq!((own.view(), own.mark()), (record.view(), record.mark()));
            assert_eq!(own.leader_epoch(), 4);
        }
    }
    let own = (some.detached(), some.record(0).unwrap().detached());
    assert!(own.0.shared.memory_bytes() < 3 * 1100 && own.1.shared.memory_bytes() < 1100);
    drop((whole, some));
    assert_eq!(Arc::strong_count(&alive), 1, "nothing of the answer is held");
    assert_eq!((own.0.len(), own.1.offset(), own.1.value()), (3, 12, Some(&[7; 1000][..])));
}
