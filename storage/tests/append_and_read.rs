//! Appending and reading back, on disk and in memory.

mod place;

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_protocol::record::{Attributes, Batch, TimestampType};
use ottla_storage::{Opening, Origin, ReadError};
use place::{Draft, NOW, append, append_in, batch_at, on_both, read_from, try_append};

#[test]
fn what_is_appended_is_read_back_from_any_offset() {
    on_both(|place| {
        let (mut log, report) = place.open(Opening::clean(NOW));
        assert!(report.created);
        let reader = log.reader();
        assert!(reader.read(0, 1000, i64::MAX, true).expect("empty").is_empty());
        for records in [1, 3, 2] {
            append(&mut log, &Draft::of(records));
        }
        assert_eq!((log.log_start(), log.log_end(), reader.log_end()), (0, 6, 6));
        for (offset, bases) in [(0, &[0, 1, 4][..]), (1, &[1, 4]), (3, &[1, 4]), (5, &[4])] {
            for max_bytes in [1, 300, 100_000] {
                let headers = read_from(&reader, offset, max_bytes);
                let found: Vec<_> = headers.iter().map(|header| header.base_offset).collect();
                assert_eq!(found, bases, "from {offset}");
            }
        }
        for offset in [-1, 7] {
            let error = reader.read(offset, 1000, i64::MAX, true).expect_err("out of range");
            assert!(matches!(error, ReadError::OutOfRange { log_start: 0, log_end: 6 }));
        }
    });
}

#[test]
fn bytes_are_stored_as_sent_but_for_offset_and_epoch() {
    on_both(|place| {
        let mut log = place.clean();
        append_in(&mut log, &Draft::of(2), 4);
        let draft = Draft::of(3);
        let appended = append_in(&mut log, &draft, 7);
        assert_eq!((appended.base_offset, appended.last_offset), (2, 4));
        assert_eq!((appended.timestamp, appended.duplicate), (-1, false));
        let (sent, stored) = (draft.bytes(), batch_at(&log.reader(), 2));
        assert_eq!(stored[16..], sent[16..]);
        assert_eq!(stored[8..12], sent[8..12]);
        let header = Batch::parse(&stored).expect("a batch").header;
        assert_eq!((header.base_offset, header.partition_leader_epoch), (2, 7));
        let epochs: Vec<_> =
            log.epochs().iter().map(|entry| (entry.epoch, entry.start_offset)).collect();
        assert_eq!(epochs, [(4, 0), (7, 2)]);
        assert_eq!(place.read("leader-epoch-checkpoint"), b"0\n2\n4 0\n7 2\n");
        assert_eq!(log.reader().end_of_epoch(5), Some((4, 2)));
        assert_eq!(log.reader().end_of_epoch(7), Some((7, 5)));
    });
}

#[test]
fn each_set_of_a_call_has_its_own_outcome() {
    on_both(|place| {
        let mut log = place.clean();
        let mut transactional = Draft::of(1).producer(9, 0, 0);
        transactional.seal.attributes = Attributes(0).with_transactional(true);
        let mut control = Draft::of(1);
        control.seal.attributes = Attributes(0).with_control(true);
        let mut cut = Draft::of(1).incoming();
        cut.bytes.truncate(100);
        let calls = vec![
            Draft::of(2).producer(1, 0, 0).incoming(),
            transactional.incoming(),
            Draft::of(2).producer(1, 0, 2).incoming(),
            Draft::of(2).producer(1, 0, 2).incoming(),
            control.incoming(),
            Draft::of(1).producer(1, 0, 9).incoming(),
            cut,
            Draft::of(1).incoming(),
        ];
        let outcomes = log.append(calls, 0, NOW).expect("written");
        let told: Vec<_> = outcomes
            .iter()
            .map(|outcome| match outcome {
                Ok(appended) => (appended.base_offset, appended.duplicate, ErrorCode::NONE),
                Err(rejected) => (-1, false, rejected.code),
            })
            .collect();
        let refused = |code| (-1, false, code);
        assert_eq!(
            told,
            [
                (0, false, ErrorCode::NONE),
                refused(ErrorCode::INVALID_TXN_STATE),
                (2, false, ErrorCode::NONE),
                (2, true, ErrorCode::NONE),
                refused(ErrorCode::INVALID_RECORD),
                refused(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER),
                refused(ErrorCode::INVALID_RECORD),
                (4, false, ErrorCode::NONE),
            ]
        );
        assert_eq!(log.log_end(), 5);
        assert_eq!(read_from(&log.reader(), 0, 10_000).len(), 3);
        control.origin = Origin::Raft;
        assert_eq!(append(&mut log, &control).base_offset, 5, "a broker may write control batches");
    });
}

#[test]
fn reads_end_below_the_upper_offset_and_within_the_bytes() {
    on_both(|place| {
        let mut log = place.clean();
        for _ in 0..200 {
            append(&mut log, &Draft::of(2));
        }
        let reader = log.reader();
        let size = batch_at(&reader, 0).len();
        for upper in [0, 1, 2, 3, 99, 250, 399, 400, 1000] {
            let range = reader.read(0, usize::MAX, upper, true).expect("in range");
            let whole = usize::try_from(upper.min(400) / 2).expect("small");
            assert_eq!(range.len, whole * size, "below {upper}");
            // It may end with a segment; never is there more than is below the upper offset.
            assert!(!range.more, "below {upper}");
        }
        for max_bytes in [size, size + 1, 2 * size - 1, 2 * size, 77 * size + 5] {
            let range = reader.read(100, max_bytes, i64::MAX, true).expect("in range");
            assert_eq!(range.len, max_bytes / size * size, "{max_bytes} bytes");
            assert_eq!(range.base_offset, 100);
            assert!(range.more, "{max_bytes} bytes");
            let below = 100 + i64::try_from(2 * (max_bytes / size)).expect("small");
            let range = reader.read(100, max_bytes, below, true).expect("in range");
            assert!(!range.more, "{max_bytes} bytes below {below}");
        }
        let range = reader.read(101, size - 1, i64::MAX, true).expect("in range");
        assert_eq!((range.len, range.base_offset), (size, 100), "the first comes whole");
        let range = reader.read(101, size - 1, i64::MAX, false).expect("in range");
        assert!(range.is_empty() && range.more, "it is there, and too large");
        let range = reader.read(400, 1000, i64::MAX, true).expect("the end");
        assert!(range.is_empty() && !range.more);
        assert!(reader.read(300, 1000, 300, true).expect("the upper end").is_empty());
    });
}

#[test]
fn the_log_dates_records_where_it_is_told_to() {
    on_both(|place| {
        let place = place.with(|config| config.timestamp_type = TimestampType::LogAppendTime);
        let mut log = place.clean();
        let draft = Draft::at(&[5, 6]).producer(1, 0, 0);
        let appended = append(&mut log, &draft);
        assert_eq!(appended.timestamp, NOW);
        let stored = batch_at(&log.reader(), 0);
        let batch = Batch::parse(&stored).expect("a batch");
        batch.verify_crc().expect("the checksum follows");
        assert_eq!(batch.header.max_timestamp, NOW);
        assert_eq!(batch.header.attributes.timestamp_type(), TimestampType::LogAppendTime);
        let records = batch.records(1000).expect("records");
        assert!(records.iter().all(|record| record.expect("good").timestamp == NOW));
        let again = append(&mut log, &draft);
        assert_eq!((again.duplicate, again.base_offset, again.timestamp), (true, 0, NOW));
        let newest = log.reader().max_timestamp(i64::MAX).expect("found").expect("dated");
        assert_eq!((newest.offset, newest.timestamp), (0, NOW));
    });
}

#[test]
fn a_follower_stores_what_its_leader_stored() {
    on_both(|place| {
        let mut leader = place.clean();
        for (records, epoch) in [(2, 0), (3, 0), (1, 2), (4, 3)] {
            append_in(&mut leader, &Draft::of(records), epoch);
        }
        let fetched = leader.reader().read(0, usize::MAX, i64::MAX, true).expect("in range");
        let bytes = fetched.read().expect("read");
        let follower_place = place::Place::in_memory();
        let mut follower = follower_place.clean();
        let mut append =
            |bytes: &Bytes, epoch| follower.append_unchanged(bytes, epoch, NOW).expect("written");
        // A cut batch at the end is left out, and one of an epoch that the fetch did not ask.
        let cut = bytes.slice(..bytes.len() - 1);
        let appended = append(&cut, 2).expect("good");
        assert_eq!((appended.batches, appended.log_end), (3, 6));
        let again = append(&bytes, 3).expect_err("known offsets");
        assert_eq!(again.code, ErrorCode::OFFSET_OUT_OF_RANGE);
        let rest = leader.reader().read(6, usize::MAX, i64::MAX, true).expect("in range");
        let rest = rest.read().expect("read");
        let mut damaged = rest.to_vec();
        damaged[80] ^= 1;
        let refused = append(&Bytes::from(damaged), 3).expect_err("damaged");
        assert_eq!(refused.code, ErrorCode::CORRUPT_MESSAGE);
        assert_eq!(append(&rest, 3).expect("good").log_end, 10);
        let copy = follower.reader().read(0, usize::MAX, i64::MAX, true).expect("in range");
        assert_eq!(copy.read().expect("read"), bytes);
        assert_eq!(follower.epochs(), leader.epochs());
    });
}

#[test]
fn readers_see_whole_batches_while_the_log_grows() {
    on_both(|place| {
        let place = place.with(|config| {
            config.segment_bytes = 20_000;
            config.index_interval_bytes = 500;
        });
        let mut log = place.clean();
        let reader = log.reader();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|index| {
                    let (reader, done) = (reader.clone(), &done);
                    scope.spawn(move || {
                        let mut next = 0;
                        loop {
                            let last = done.load(Ordering::Acquire);
                            let upper = reader.log_end();
                            let range =
                                reader.read(next, 3000 + index, upper, true).expect("in range");
                            let bytes = range.read().expect("read");
                            for batch in ottla_protocol::record::batches(&bytes) {
                                let batch = batch.expect("whole");
                                batch.verify_crc().expect("good");
                                assert_eq!(batch.header.base_offset, next);
                                next = batch.header.next_offset();
                                assert!(next <= upper, "nothing above the upper offset");
                            }
                            if range.is_empty() && last {
                                return next;
                            }
                        }
                    })
                })
                .collect();
            for round in 0..300 {
                let batches = (0..=round % 3).map(|_| Draft::of(round % 4 + 1).incoming());
                let outcomes = log.append(batches.collect(), 0, NOW).expect("written");
                assert!(outcomes.iter().all(Result::is_ok));
            }
            done.store(true, Ordering::Release);
            for reader in readers {
                assert_eq!(reader.join().expect("no panic"), log.log_end());
            }
        });
        assert!(log.segment_count() > 5);
    });
}

#[test]
fn truncation_removes_batches_and_what_belongs_to_them() {
    on_both(|place| {
        let place = place.with(|config| {
            config.segment_bytes = 2000;
            config.index_interval_bytes = 200;
        });
        let mut log = place.clean();
        for sequence in 0..40 {
            append_in(&mut log, &Draft::of(1).producer(1, 0, sequence), sequence / 10);
        }
        let before = log.reader().read(5, usize::MAX, i64::MAX, true).expect("in range");
        let segments = log.segment_count();
        log.truncate_to(25, NOW).expect("truncated");
        assert!(log.segment_count() < segments);
        assert_eq!((log.log_end(), log.reader().log_end()), (25, 25));
        assert_eq!(log.epochs().last().map(|entry| entry.epoch), Some(2));
        assert_eq!(read_from(&log.reader(), 0, 1000).len(), 25);
        assert!(before.read().is_ok(), "an older range below the cut stays readable");
        assert_eq!(append_in(&mut log, &Draft::of(1).producer(1, 0, 25), 4).base_offset, 25);
        let old = try_append(&mut log, &Draft::of(1).producer(1, 0, 30), 4).expect_err("cut off");
        assert_eq!(old.code, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        log.truncate_to(1000, NOW).expect("above the end nothing happens");
        assert_eq!(log.log_end(), 26);
        log.close().expect("closed");
        assert_eq!(place.clean().log_end(), 26);
        assert_eq!(place.after_crash().0.log_end(), 26);
    });
}

#[test]
fn truncation_inside_a_batch_removes_the_whole_batch() {
    on_both(|place| {
        let mut log = place.clean();
        append(&mut log, &Draft::of(3));
        append(&mut log, &Draft::of(3));
        log.truncate_to(5, NOW).expect("truncated");
        assert_eq!(log.log_end(), 3);
        log.truncate_to(0, NOW).expect("truncated");
        assert_eq!((log.log_end(), log.size_bytes()), (0, 0));
        assert_eq!(append(&mut log, &Draft::of(2)).base_offset, 0);
    });
}
