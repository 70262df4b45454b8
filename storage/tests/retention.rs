//! Old records go, oldest first, and what is left is found as before.
#![allow(clippy::expect_used, reason = "a test ends where its set-up does not work")]

mod place;

use ottla_storage::{LogErrorKind, Opening, ReadError, Retention};
use place::{Draft, NOW, Place, append, on_both, read_from};

/// Three batches a segment.
fn small(place: Place) -> Place {
    let batch = u64::try_from(Draft::of(1).bytes().len()).expect("small");
    place.with(|config| config.segment_bytes = 3 * batch)
}

fn batch_bytes() -> u64 {
    u64::try_from(Draft::of(1).bytes().len()).expect("small")
}

const OLD: Retention = Retention { ms: Some(1000), bytes: None };

#[test]
fn segments_go_by_the_age_of_their_newest_record_up_to_the_first_that_stays() {
    on_both(|place| {
        let place = small(place);
        let mut log = place.clean();
        // Segments of 3: ages 5000, 900 (one record is young), 5000, 5000.
        for age in [5000, 5000, 5000, 5000, 900, 5000, 5000, 5000, 5000, 5000] {
            append(&mut log, &Draft::at(&[NOW - age]));
        }
        let reader = log.reader();
        assert_eq!(reader.expired(&OLD, 10, NOW).expect("asked"), 3, "the second stays");
        assert_eq!(reader.expired(&OLD, 2, NOW).expect("asked"), 0, "not above the high watermark");
        assert_eq!(reader.expired(&OLD, 10, NOW + 5000).expect("asked"), 10, "all are old");
        let forever = Retention::default();
        assert_eq!(reader.expired(&forever, 10, i64::MAX).expect("asked"), 0);
        let exactly = Retention { ms: Some(5000), bytes: None };
        assert_eq!(reader.expired(&exactly, 10, NOW).expect("asked"), 0, "as old as allowed");
    });
}

#[test]
fn segments_go_by_size_while_the_rest_has_bytes_enough() {
    on_both(|place| {
        let place = small(place);
        let mut log = place.clean();
        for _ in 0..9 {
            append(&mut log, &Draft::of(1));
        }
        let reader = log.reader();
        let keep = |batches: u64| {
            let limits = Retention { ms: None, bytes: Some(batches * batch_bytes()) };
            reader.expired(&limits, 9, NOW).expect("asked")
        };
        let expected = [(0, 9), (1, 6), (3, 6), (4, 3), (6, 3), (7, 0), (100, 0)];
        for (batches, start) in expected {
            assert_eq!(keep(batches), start, "{batches} batches are to stay");
        }
    });
}

#[test]
fn dropped_segments_are_set_aside_and_readers_in_flight_keep_their_file() {
    on_both(|place| {
        let place = small(place);
        let mut log = place.clean();
        for _ in 0..8 {
            append(&mut log, &Draft::of(1));
        }
        let reader = log.reader();
        let in_flight = reader.read(0, 1 << 20, 8, true).expect("in range");
        assert_eq!(log.advance_start(4).expect("moved"), 4);
        assert!(reader.has_dead_segments());
        assert_eq!(place.names_of(".deleted"), [""; 0], "the start is to be noted first");
        let below = reader.read(3, 1, 8, true).expect_err("below the log start");
        assert!(matches!(below, ReadError::OutOfRange { log_start: 4, log_end: 8 }), "{below}");
        let mut paths = log.drop_dead_segments(NOW).expect("dropped");
        paths.sort();
        assert!(!reader.has_dead_segments());
        let gone = ["index", "log", "timeindex"]
            .map(|kind| format!("00000000000000000000.{kind}.deleted"));
        assert_eq!(place.names_of(".deleted"), gone);
        assert_eq!(paths, gone.map(|name| place.path(&name)));
        assert_eq!(log.segment_count(), 2);
        assert_eq!(reader.earliest().offset, 4);
        assert_eq!(in_flight.read().expect("still open").len(), in_flight.len);
        assert_eq!(read_from(&reader, 4, 1000).len(), 4);
        assert_eq!(log.advance_start(2).expect("never back"), 4);
        assert_eq!(log.advance_start(9).expect_err("past the end").kind(), LogErrorKind::Usage);
        log.close().expect("closed");
        // As the directory's checkpoint tells; the batch of offset 3 is there and not read.
        let opening = Opening { log_start: 4, ..Opening::clean(NOW) };
        let (log, _) = place.open(opening);
        assert_eq!((log.log_start(), log.log_end()), (4, 8));
        assert_eq!(place.names_of(".deleted"), [""; 0], "removed at the next start");
    });
}

#[test]
fn a_log_whose_records_all_go_begins_a_segment_and_knows_its_producers() {
    on_both(|place| {
        let mut log = place.clean();
        for sequence in 0..3 {
            append(&mut log, &Draft::of(1).producer(7, 0, sequence));
        }
        log.advance_start(3).expect("moved");
        log.drop_dead_segments(NOW).expect("dropped");
        assert_eq!(place.names_of(".log"), ["00000000000000000003.log"]);
        assert_eq!((log.log_start(), log.log_end(), log.size_bytes()), (3, 3, 0));
        assert!(log.drop_dead_segments(NOW).expect("nothing to do").is_empty());
        let known = append(&mut log, &Draft::of(1).producer(7, 0, 2));
        assert!(known.duplicate, "the retry of a batch that is gone is no new record");
        drop(log);
        let opening = Opening { log_start: 3, same_boot: true, ..Opening::unclean(NOW) };
        let (mut log, _) = place.open(opening);
        let known = append(&mut log, &Draft::of(1).producer(7, 0, 2));
        assert!(known.duplicate, "nor after the process was killed");
        assert_eq!(append(&mut log, &Draft::of(1).producer(7, 0, 3)).base_offset, 3);
    });
}

#[test]
fn time_queries_never_answer_below_the_log_start() {
    on_both(|place| {
        let place = small(place);
        let mut log = place.clean();
        for round in 0..6 {
            append(&mut log, &Draft::at(&[NOW - round]));
        }
        let reader = log.reader();
        assert_eq!(reader.max_timestamp(6).expect("asked").map(|found| found.offset), Some(0));
        log.advance_start(1).expect("moved");
        let found = reader.max_timestamp(6).expect("asked").expect("there");
        assert_eq!((found.offset, found.timestamp), (1, NOW - 1));
        for start in 1..6 {
            log.advance_start(start).expect("moved");
            let first = reader.offset_for_time(0, 6).expect("asked").expect("there");
            assert_eq!(first.offset, start);
            let newest = reader.max_timestamp(6).expect("asked").expect("there");
            assert_eq!((newest.offset, newest.timestamp), (start, NOW - start));
            log.drop_dead_segments(NOW).expect("dropped");
            assert_eq!(reader.max_timestamp(6).expect("asked"), Some(newest));
        }
    });
}

#[test]
fn a_log_start_inside_a_batch_hides_the_records_before_it_from_time_queries() {
    on_both(|place| {
        let mut log = place.clean();
        append(&mut log, &Draft::at(&[10, 30, 20]));
        let reader = log.reader();
        let find = |timestamp| {
            let found = reader.offset_for_time(timestamp, 3).expect("asked");
            found.map(|found| (found.offset, found.timestamp))
        };
        assert_eq!(find(0), Some((0, 10)));
        log.advance_start(1).expect("moved");
        assert_eq!(find(0), Some((1, 30)));
        log.advance_start(2).expect("moved");
        assert_eq!(find(0), Some((2, 20)));
        assert_eq!(find(25), None);
    });
}

#[test]
fn leader_epochs_below_the_log_start_are_forgotten() {
    on_both(|place| {
        let place = small(place);
        let mut log = place.clean();
        for epoch in [0, 0, 1, 1, 2, 2] {
            place::append_in(&mut log, &Draft::of(1), epoch);
        }
        log.advance_start(3).expect("moved");
        let rows: Vec<_> = log.epochs().iter().map(|row| (row.epoch, row.start_offset)).collect();
        assert_eq!(rows, [(1, 3), (2, 4)]);
        assert_eq!(place.read("leader-epoch-checkpoint"), b"0\n2\n1 3\n2 4\n");
    });
}

#[test]
fn records_without_a_time_age_from_the_last_write_to_their_file() {
    let place = Place::on_disk();
    let mut log = place.clean();
    append(&mut log, &Draft::at(&[-1]));
    let written = std::fs::metadata(place.path("00000000000000000000.log"))
        .and_then(|found| found.modified())
        .expect("a time")
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after the epoch");
    let written = i64::try_from(written.as_millis()).expect("in range");
    let reader = log.reader();
    assert_eq!(reader.expired(&OLD, 1, written).expect("asked"), 0);
    assert_eq!(reader.expired(&OLD, 1, written + 2001).expect("asked"), 1);
}

#[test]
fn flush_and_an_owner_that_goes_on_do_not_take_each_others_files() {
    let place = Place::in_memory().with(|config| config.segment_bytes = 200);
    let mut log = place.clean();
    for round in 0..500_i32 {
        for _ in 0..3 {
            place::append_in(&mut log, &Draft::of(1), 2 * round);
        }
        let job = log.flush_job().expect("a job");
        let flushing = std::thread::spawn(move || job.run());
        // Each of these writes the file of leader epochs, as the flush does.
        log.advance_start(log.log_end() - 1).expect("moved");
        place::append_in(&mut log, &Draft::of(1), 2 * round + 1);
        log.drop_dead_segments(NOW).expect("dropped");
        let outcome = flushing.join().expect("ran");
        log.finish_flush(outcome).expect("flushed");
    }
}
