//! When a new segment begins, and what lies beside the old one then.
#![allow(clippy::expect_used, reason = "a test ends where its set-up does not work")]

mod place;

use ottla_protocol::record::{BatchHeader, batches};
use place::{Draft, NOW, append, on_both, read_from};

/// Entries of an index as pairs: (offset, position) or (timestamp, offset).
fn offset_entries(bytes: &[u8], base: i64) -> Vec<(i64, u32)> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("4 bytes"));
    bytes
        .chunks(8)
        .map(|entry| (base + i64::from(number(&entry[..4])), number(&entry[4..])))
        .collect()
}

fn time_entries(bytes: &[u8], base: i64) -> Vec<(i64, i64)> {
    let entry = |entry: &[u8]| {
        let timestamp = i64::from_be_bytes(entry[..8].try_into().expect("8 bytes"));
        let relative = u32::from_be_bytes(entry[8..].try_into().expect("4 bytes"));
        (timestamp, base + i64::from(relative))
    };
    bytes.chunks(12).map(entry).collect()
}

/// Offset entries and time entries.
type Entries = (Vec<(i64, u32)>, Vec<(i64, i64)>);

/// What Kafka's rule gives for the batches of a sealed segment.
fn expected_entries(log: &[u8], interval: usize) -> Entries {
    let (mut offsets, mut times) = (Vec::new(), Vec::new());
    let (mut position, mut since) = (0, 0);
    let mut largest = (-1, 0);
    for batch in batches(log) {
        let BatchHeader { max_timestamp, .. } = batch.as_ref().expect("good").header;
        let batch = batch.expect("good");
        if max_timestamp > largest.0 {
            largest = (max_timestamp, batch.header.last_offset());
        }
        if since > interval {
            offsets.push((batch.header.last_offset(), position));
            if times.last().is_none_or(|last: &(i64, i64)| last.0 < largest.0) {
                times.push(largest);
            }
            since = 0;
        }
        position += u32::try_from(batch.bytes.len()).expect("small");
        since += batch.bytes.len();
    }
    if times.last().is_none_or(|last| last.0 < largest.0) {
        times.push(largest);
    }
    (offsets, times)
}

#[test]
fn a_full_segment_is_sealed_with_its_indexes() {
    on_both(|place| {
        let place = place.with(|config| {
            config.segment_bytes = 10_000;
            config.index_interval_bytes = 700;
        });
        let mut log = place.clean();
        for round in 0..100_i64 {
            let draft = Draft::at(&[NOW + round * 7 % 50, NOW + round * 3]).value_len(40);
            append(&mut log, &draft);
        }
        let reader = log.reader();
        let logs = place.names_of(".log");
        assert!(logs.len() >= 2 && logs.len() == log.segment_count());
        for name in &logs[..logs.len() - 1] {
            let base: i64 = name[..20].parse().expect("a number");
            let bytes = place.read(name);
            assert!(bytes.len() <= 10_000);
            let (offsets, times) = expected_entries(&bytes, 700);
            let index = place.read(&name.replace(".log", ".index"));
            assert_eq!(offset_entries(&index, base), offsets, "{name}");
            let time_index = place.read(&name.replace(".log", ".timeindex"));
            assert_eq!(time_entries(&time_index, base), times, "{name}");
        }
        for name in &logs[1..] {
            assert!(place.names().contains(&name.replace(".log", ".snapshot")), "{name}");
        }
        assert_eq!(read_from(&reader, 0, 3000).len(), 100);
        for offset in 0..200 {
            let range = reader.read(offset, 1, i64::MAX, true).expect("in range");
            assert_eq!(range.base_offset, offset / 2 * 2);
        }
        log.close().expect("closed");
        let (last, before) = logs.split_last().expect("some");
        let base: i64 = last[..20].parse().expect("a number");
        let (offsets, times) = expected_entries(&place.read(last), 700);
        if !offsets.is_empty() {
            let index = place.read(&last.replace(".log", ".index"));
            assert_eq!(offset_entries(&index, base), offsets, "the active one, closed");
        }
        let time_index = place.read(&last.replace(".log", ".timeindex"));
        assert_eq!(time_entries(&time_index, base), times, "the active one, closed");
        assert!(!before.is_empty());
    });
}

#[test]
fn index_files_appear_with_their_first_entry() {
    on_both(|place| {
        let mut log = place.clean();
        append(&mut log, &Draft::of(1));
        let expected =
            ["00000000000000000000.log", "leader-epoch-checkpoint", "partition.metadata"];
        assert_eq!(place.names(), expected);
        log.close().expect("closed");
        assert_eq!(place.names_of(".timeindex"), ["00000000000000000000.timeindex"]);
        assert_eq!(place.names_of(".index"), ["00000000000000000000.index"], "empty, for Kafka");
        assert_eq!(place.read("00000000000000000000.index").len(), 0);
        assert_eq!(place.names_of(".snapshot"), ["00000000000000000001.snapshot"]);
    });
}

#[test]
fn a_batch_that_fills_the_segment_to_its_last_byte_stays() {
    on_both(|place| {
        let size = u64::try_from(Draft::of(1).bytes().len()).expect("small");
        let place = place.with(|config| config.segment_bytes = 3 * size);
        let mut log = place.clean();
        let calls = (0..7).map(|_| Draft::of(1).incoming()).collect();
        log.append(calls, 0, NOW).expect("written");
        let names =
            ["00000000000000000000.log", "00000000000000000003.log", "00000000000000000006.log"];
        assert_eq!(place.names_of(".log"), names, "also within one call");
    });
}

#[test]
fn age_counts_from_the_first_batchs_own_time() {
    on_both(|place| {
        let place = place.with(|config| config.segment_ms = 1000);
        let mut log = place.clean();
        append(&mut log, &Draft::at(&[5_000]));
        append(&mut log, &Draft::at(&[6_000]));
        assert_eq!(log.segment_count(), 1, "exactly as old as allowed");
        append(&mut log, &Draft::at(&[6_001]));
        assert_eq!(log.segment_count(), 2);
        append(&mut log, &Draft::at(&[3]));
        assert_eq!(log.segment_count(), 2, "a record of the past does not age the segment");
        log.close().expect("closed");
        let mut log = place.clean();
        append(&mut log, &Draft::at(&[7_002]));
        assert_eq!(log.segment_count(), 3, "the first batch's time is known after a restart");
    });
}

#[test]
fn batches_without_a_time_age_by_the_clock() {
    on_both(|place| {
        let place = place.with(|config| config.segment_ms = 1000);
        let mut log = place.clean();
        let undated = || vec![Draft::at(&[-1]).incoming()];
        log.append(undated(), 0, NOW).expect("written");
        log.append(undated(), 0, NOW + 1000).expect("written");
        assert_eq!(log.segment_count(), 1);
        log.append(undated(), 0, NOW + 1001).expect("written");
        assert_eq!(log.segment_count(), 2);
    });
}

#[test]
fn a_full_index_begins_a_segment() {
    on_both(|place| {
        let place = place.with(|config| {
            config.index_interval_bytes = 0;
            config.segment_index_bytes = 80;
        });
        let mut log = place.clean();
        for round in 0..40 {
            append(&mut log, &Draft::at(&[NOW + round]));
        }
        for name in place.names_of("index") {
            let (len, room) = (place.read(&name).len(), 80);
            assert!(len <= room, "{name} has {len} bytes");
        }
        let in_one_call = place.names_of(".log").len();
        assert!(in_one_call > 4, "{in_one_call}");
        let calls = (0..40).map(|round| Draft::at(&[NOW + 100 + round]).incoming()).collect();
        log.append(calls, 0, NOW).expect("written");
        log.close().expect("closed");
        for name in place.names_of("index") {
            assert!(place.read(&name).len() <= 80, "{name}");
        }
        assert_eq!(read_from(&place.clean().reader(), 0, 1000).len(), 80);
    });
}

#[test]
fn a_full_index_of_offsets_begins_a_segment_where_no_record_is_newer_than_the_first() {
    on_both(|place| {
        let place = place.with(|config| {
            config.index_interval_bytes = 0;
            config.segment_index_bytes = 80;
        });
        let mut log = place.clean();
        for _ in 0..40 {
            append(&mut log, &Draft::at(&[NOW]));
        }
        log.close().expect("closed");
        for name in place.names_of(".index") {
            assert!(place.read(&name).len() <= 80, "{name}");
        }
        assert_eq!(read_from(&place.clean().reader(), 0, 1000).len(), 40);
    });
}

#[test]
fn offsets_too_far_from_the_base_begin_a_segment() {
    on_both(|place| {
        let mut log = place.clean();
        append(&mut log, &Draft::of(1));
        let mut far = Draft::of(1).bytes();
        let offset = i64::from(i32::MAX) + 1;
        ottla_protocol::record::stamp(&mut far, offset, 0).expect("a batch");
        let appended = log.append_unchanged(&far.freeze(), 0, NOW).expect("written");
        assert_eq!(appended.expect("good").log_end, offset + 1);
        let names = ["00000000000000000000.log", "00000000002147483648.log"];
        assert_eq!(place.names_of(".log"), names);
        assert_eq!(read_from(&log.reader(), 0, 1000).len(), 2, "gaps are legal");
    });
}
