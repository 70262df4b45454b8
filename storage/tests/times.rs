//! Finding offsets by time.
#![allow(clippy::expect_used, reason = "a test ends where its set-up does not work")]

mod place;

use ottla_protocol::record::Compression;
use ottla_storage::{LogReader, Opening, ReadError, TimedOffset};
use place::{Draft, NOW, append, append_in, drafts, filled, layouts, on_both};
use proptest::prelude::*;

fn offset_for(reader: &LogReader, timestamp: i64) -> Option<(i64, i64)> {
    let found = reader.offset_for_time(timestamp, i64::MAX).expect("read");
    found.map(|found| (found.offset, found.timestamp))
}

#[test]
fn a_record_older_than_its_segments_first_does_not_upset_the_time_index() {
    on_both(|place| {
        let size = u64::try_from(Draft::at(&[1000]).bytes().len()).expect("small");
        let place = place.with(|config| config.segment_bytes = 3 * size);
        let mut log = place.clean();
        for timestamp in [1000, 10, 900] {
            append(&mut log, &Draft::at(&[timestamp]));
        }
        append(&mut log, &Draft::at(&[2000]));
        assert_eq!(log.segment_count(), 2, "rolled");
        let check = |reader: &LogReader| {
            assert_eq!(offset_for(reader, 500), Some((0, 1000)));
            assert_eq!(offset_for(reader, 1000), Some((0, 1000)));
            assert_eq!(offset_for(reader, 1001), Some((3, 2000)));
            assert_eq!(offset_for(reader, 0), Some((0, 1000)));
            let newest = reader.max_timestamp(3).expect("read");
            assert_eq!(newest, None, "the newest is not below 3");
        };
        check(&log.reader());
        drop(log);
        let time_index = "00000000000000000000.timeindex";
        let entry = [&1000_i64.to_be_bytes()[..], &0_u32.to_be_bytes()].concat();
        assert_eq!(place.read(time_index), entry, "largest time 1000, at the first record");
        let (log, _) = place.after_crash();
        check(&log.reader());
        log.close().expect("closed");
        assert_eq!(place.read(time_index), entry, "and so again after the rebuild");
        check(&place.clean().reader());
    });
}

#[test]
fn the_first_record_at_or_after_a_time_is_found_inside_its_batch() {
    on_both(|place| {
        let mut log = place.clean();
        for codec in Compression::ALL {
            let base = log.log_end();
            let start = 100 + base * 10;
            let times: Vec<_> = [0, 30, 10, 20, 30].iter().map(|add| start + add).collect();
            append(&mut log, &Draft { compression: codec, ..Draft::at(&times) });
            let reader = log.reader();
            assert_eq!(offset_for(&reader, start), Some((base, start)));
            assert_eq!(offset_for(&reader, start + 1), Some((base + 1, start + 30)));
            assert_eq!(offset_for(&reader, start + 31), None);
        }
        append_in(&mut log, &Draft::at(&[50]), 3);
        let reader = log.reader();
        assert_eq!(offset_for(&reader, 0), Some((0, 100)));
        let newest = reader.max_timestamp(i64::MAX).expect("read").expect("there");
        assert_eq!((newest.offset, newest.timestamp, newest.leader_epoch), (21, 330, 0));
        assert_eq!(reader.offset_for_time(151, 6).expect("read"), None, "not below 6");
        assert_eq!((reader.latest(i64::MAX).offset, reader.latest(4).offset), (26, 4));
        assert_eq!(reader.latest(i64::MAX).leader_epoch, 3);
        assert_eq!((reader.earliest().offset, reader.earliest().leader_epoch), (0, 0));
    });
}

/// KIP-734 asks for a record that is there: Kafka's brokers name the one that is gone.
#[test]
fn the_newest_record_of_a_batch_that_the_log_start_cuts_is_one_that_is_left() {
    on_both(|place| {
        let mut log = place.clean();
        for codec in Compression::ALL {
            let base = log.log_end();
            append(&mut log, &Draft { compression: codec, ..Draft::at(&[900, 300, 500, 400]) });
            append(&mut log, &Draft::at(&[100]));
            let reader = log.reader();
            let newest = |start| {
                log.advance_start(base + start).expect("moved");
                let found = reader.max_timestamp(i64::MAX).expect("read").expect("there");
                (found.offset - base, found.timestamp)
            };
            let found = [0, 1, 2, 3, 4].map(newest);
            assert_eq!(found, [(0, 900), (2, 500), (2, 500), (3, 400), (4, 100)], "{codec:?}");
        }
    });
}

#[test]
fn records_without_a_time_are_passed_over() {
    on_both(|place| {
        let mut log = place.clean();
        assert_eq!(log.reader().max_timestamp(i64::MAX).expect("read"), None, "empty");
        append(&mut log, &Draft::at(&[-1]));
        assert_eq!(log.reader().max_timestamp(i64::MAX).expect("read"), None, "undated");
        assert_eq!(offset_for(&log.reader(), 0), None);
        log.close().expect("closed");
        let (mut log, report) = place.open(Opening::clean(NOW));
        assert_eq!(report.checked_segments, 0, "a missing time index is right here");
        append(&mut log, &Draft::at(&[7]));
        assert_eq!(offset_for(&log.reader(), 0), Some((1, 7)));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lookups_equal_a_linear_scan(batches in drafts(), layout in layouts()) {
        let (_place, log) = filled(&batches, layout);
        let times = batches.iter().flat_map(|(times, _)| times.iter().copied());
        let records: Vec<(i64, i64)> = (0..).zip(times).collect();
        let counts = batches.iter().map(|(times, _)| i64::try_from(times.len()).expect("small"));
        let bases: Vec<i64> = counts
            .scan(0, |next, count| Some(std::mem::replace(next, *next + count)))
            .collect();
        let reader = log.reader();
        for &(offset, _) in &records {
            let range = reader.read(offset, 1, i64::MAX, true).expect("in range");
            let base = bases.iter().rev().find(|&&base| base <= offset);
            prop_assert_eq!(Some(&range.base_offset), base);
        }
        for timestamp in 0..=200 {
            let scanned = records.iter().find(|record| record.1 >= timestamp).copied();
            prop_assert_eq!(offset_for(&reader, timestamp), scanned, "time {}", timestamp);
        }
        let largest = records.iter().map(|record| record.1).max().expect("some");
        let scanned = records.iter().find(|record| record.1 == largest).expect("some");
        let newest = reader.max_timestamp(i64::MAX).expect("read").expect("there");
        prop_assert_eq!((newest.offset, newest.timestamp), *scanned);
    }
}

/// What a search that must not wait gives once it may.
fn warm(
    cached: impl Fn() -> Result<Option<TimedOffset>, ReadError>,
    read: impl Fn() -> Result<Option<TimedOffset>, ReadError>,
) -> Option<TimedOffset> {
    assert!(matches!(cached(), Err(ReadError::Cold)), "the index of a sealed segment is not open");
    let read = read().expect("read");
    assert_eq!(cached().expect("in memory by now"), read);
    read
}

#[test]
fn a_search_that_must_not_wait_finds_the_same_or_says_so() {
    on_both(|place| {
        let size = u64::try_from(Draft::at(&[1000]).bytes().len()).expect("small");
        let place = place.with(|config| config.segment_bytes = 3 * size);
        let mut log = place.clean();
        for timestamp in 0..9 {
            append(&mut log, &Draft::at(&[timestamp * 10]));
        }
        log.close().expect("closed");
        let reader = place.clean().reader();
        let found = warm(
            || reader.offset_for_time_cached(35, i64::MAX),
            || reader.offset_for_time(35, i64::MAX),
        );
        assert_eq!(found.map(|found| found.offset), Some(4));
        let reader = place.clean().reader();
        let found =
            warm(|| reader.max_timestamp_cached(i64::MAX), || reader.max_timestamp(i64::MAX));
        assert_eq!(found.map(|found| found.offset), Some(8));
    });
}

#[test]
fn a_search_that_must_not_wait_decompresses_nothing_and_walks_no_long_way() {
    on_both(|place| {
        let place = place.with(|config| config.index_interval_bytes = 1 << 30);
        let mut log = place.clean();
        append(&mut log, &Draft { compression: Compression::Lz4, ..Draft::at(&[10, 20]) });
        let reader = log.reader();
        let cold = |timestamp| {
            let found = reader.offset_for_time_cached(timestamp, i64::MAX);
            assert!(matches!(found, Err(ReadError::Cold)), "{found:?}");
        };
        cold(15);
        assert_eq!(offset_for(&reader, 15), Some((1, 20)));
        let size = Draft::at(&[30]).bytes().len();
        for _ in 0..(65 * 8192) / size {
            append(&mut log, &Draft::at(&[5]));
        }
        append(&mut log, &Draft::at(&[30]));
        cold(25);
        assert_eq!(offset_for(&reader, 25).map(|(_, timestamp)| timestamp), Some(30));
    });
}
