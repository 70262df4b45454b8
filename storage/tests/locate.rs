//! Finding offsets and times: equal to a linear scan, and never far to walk.
#![allow(clippy::expect_used, reason = "a test ends where its set-up does not work")]

mod place;

use ottla_storage::LogReader;
use place::{Draft, Place, append, drafts, filled, layouts, on_both};
use proptest::prelude::*;

/// A batch as a scan from the front finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scanned {
    segment: i64,
    position: u64,
    size: u64,
    base: i64,
    last: i64,
}

fn scan(place: &Place) -> Vec<Scanned> {
    let mut scanned = Vec::new();
    for name in place.names_of(".log") {
        let segment = name[..20].parse().expect("a number");
        let mut position = 0;
        for batch in ottla_protocol::record::batches(&place.read(&name)) {
            let batch = batch.expect("good");
            let size = u64::try_from(batch.bytes.len()).expect("small");
            let (base, last) = (batch.header.base_offset, batch.header.last_offset());
            scanned.push(Scanned { segment, position, size, base, last });
            position += size;
        }
    }
    scanned
}

fn largest(scanned: &[Scanned]) -> u64 {
    scanned.iter().map(|batch| batch.size).max().expect("some")
}

fn offsets_are_found(reader: &LogReader, scanned: &[Scanned], interval: u64) {
    for offset in 0..reader.log_end() {
        let lookup = reader.locate(offset).expect("read").expect("there");
        let batch = lookup.batch.expect("there");
        let found = Scanned {
            segment: lookup.segment,
            position: batch.position,
            size: batch.size,
            base: batch.base_offset,
            last: batch.last_offset,
        };
        let expected = scanned.iter().find(|one| one.last >= offset).expect("there");
        assert_eq!(found, *expected, "offset {offset}: {lookup}");
        let most = interval + 2 * largest(scanned);
        assert!(lookup.walked_bytes <= most, "offset {offset}: {lookup}; at most {most}");
        let range = reader.read(offset, 1, i64::MAX, true).expect("in range");
        assert_eq!((range.position, range.base_offset), (found.position, found.base));
    }
    assert_eq!(reader.locate(reader.log_end()).expect("read"), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn offsets_are_found_as_a_scan_finds_them_without_a_long_walk(
        batches in drafts(),
        layout in layouts(),
    ) {
        let (place, log) = filled(&batches, layout);
        offsets_are_found(&log.reader(), &scan(&place), layout.index_interval_bytes);
    }

    #[test]
    fn times_are_found_as_a_scan_finds_them_without_a_long_walk(
        batches in prop::collection::vec((1_i64..50, 1_usize..4, 0_usize..300), 1..60),
        layout in layouts(),
    ) {
        // Each record is newer than all before it, as a producer's clock has it.
        let mut now = 0;
        let mut records = Vec::new();
        let dated: Vec<(Vec<i64>, usize)> = batches
            .iter()
            .map(|&(step, count, len)| {
                let times: Vec<i64> = (0..count).map(|_| { now += step; now }).collect();
                records.extend(times.iter().copied());
                (times, len)
            })
            .collect();
        let (place, log) = filled(&dated, layout);
        let (reader, scanned) = (log.reader(), scan(&place));
        let most = layout.index_interval_bytes + 2 * largest(&scanned);
        for timestamp in 0..=now {
            let lookup = reader.locate_time(timestamp).expect("read").expect("there");
            let found = lookup.found.expect("there");
            let first = records.iter().position(|time| *time >= timestamp).expect("there");
            let expected = i64::try_from(first).expect("small");
            prop_assert_eq!((found.offset, found.timestamp), (expected, records[first]));
            let real = reader.offset_for_time(timestamp, i64::MAX).expect("read");
            prop_assert_eq!(real, Some(found));
            prop_assert!(lookup.walked_bytes <= most, "{}: {:?}", timestamp, lookup);
            prop_assert!(lookup.start.walked_bytes <= most, "{}: {:?}", timestamp, lookup);
        }
        prop_assert_eq!(reader.locate_time(now + 1).expect("read"), None);
    }
}

#[test]
fn each_step_of_a_lookup_is_told() {
    on_both(|place| {
        let place = place.with(|config| {
            config.segment_bytes = 2000;
            config.index_interval_bytes = 400;
        });
        let mut log = place.clean();
        for round in 0..30 {
            append(&mut log, &Draft::at(&[round * 10, round * 10 + 5]));
        }
        let reader = log.reader();
        let lookup = reader.locate(41).expect("read").expect("there");
        let batch = lookup.batch.expect("there");
        assert_eq!((batch.base_offset, batch.last_offset), (40, 41));
        let (offset, position) = lookup.entry.expect("an entry");
        assert!(offset <= 41 && position <= batch.position && lookup.segment <= 40);
        let told = lookup.to_string();
        assert!(told.contains(&format!("segment {}", lookup.segment)), "{told}");
        assert!(told.contains(&format!("batch 40 to 41 at byte {}", batch.position)), "{told}");
        let lookup = reader.locate_time(205).expect("read").expect("there");
        assert_eq!(lookup.found.map(|found| found.offset), Some(41));
        let (timestamp, offset) = lookup.entry.expect("an entry");
        assert!(timestamp <= 205 && offset <= 41);
    });
}
