//! A partition's folder that Apache Kafka 4.4 wrote: read, gone on with, and left whole.
#![allow(clippy::expect_used, reason = "a test ends where its set-up does not work")]

mod place;

use std::fs;
use std::path::Path;

use bytes::BytesMut;
use ottla_protocol::record::{Batch, stamp};
use ottla_storage::check::{Known, check_log};
use ottla_storage::{Incoming, Log, OpenReport, Opening, Origin};
use place::{Draft, Place, batch_at, read_from};

/// A moment after Kafka wrote it, when it still knows its producers.
const NOW: i64 = 1_796_104_100_000;

/// A copy of the folder, to be opened without asking for its topic's id.
fn copied() -> Place {
    let place = Place::on_disk();
    fs::create_dir(&place.dir).expect("made");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/logs/kafka-4.4/orders-0");
    for entry in fs::read_dir(from).expect("the folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, place.dir.join(path.file_name().expect("a name"))).expect("copied");
    }
    place
}

fn open(place: &Place, opening: Opening) -> (Log, OpenReport) {
    let files = std::sync::Arc::clone(&place.files);
    Log::open(files, &place.dir, ottla_protocol::Uuid::ZERO, place.config.clone(), opening)
        .expect("opens")
}

#[test]
fn a_log_that_kafka_closed_is_whole_in_our_eyes() {
    let place = copied();
    let known = Known {
        clean: true,
        same_boot: true,
        recovery_point: 80,
        log_start: 0,
        index_interval_bytes: Some(200),
    };
    let check = check_log(place.files.as_ref(), &place.dir, known).expect("read");
    assert_eq!(check.findings, []);
    assert_eq!((check.segments, check.batches, check.records, check.log_end), (4, 28, 80, 80));
}

#[test]
fn a_log_of_kafkas_has_the_same_end_epochs_and_duplicates_here() {
    let clean = Opening { recovery_point: 80, ..Opening::clean(NOW) };
    for opening in [clean, Opening { clean: false, recovery_point: 0, ..clean }] {
        let place = copied();
        let (mut log, report) = open(&place, opening);
        assert_eq!((report.truncated_bytes, report.warnings), (0, Vec::new()));
        assert_eq!(report.checked_segments > 0, !opening.clean);
        assert_eq!((log.log_start(), log.log_end(), log.segment_count()), (0, 80, 4));
        let epochs: Vec<_> = log.epochs().iter().map(|one| (one.epoch, one.start_offset)).collect();
        assert_eq!(epochs, [(0, 0), (2, 60)]);
        let reader = log.reader();
        let headers = read_from(&reader, 0, 700);
        assert_eq!(headers.len(), 28);
        // Each producer's last batch, sent again, is where it was; its next one is new.
        for (last, producer) in [(18, 0), (38, 1), (58, 2), (78, 1000)] {
            let stored = batch_at(&reader, last);
            let header = Batch::parse(&stored).expect("a batch").header;
            assert_eq!((header.producer_id, header.base_offset), (producer, last));
            let mut again = BytesMut::from(&stored[..]);
            stamp(&mut again, 0, 0).expect("a batch");
            let again = Incoming::parse(again, Origin::Client).expect("a batch");
            let next = Draft::of(1).producer(producer, 0, header.last_sequence() + 1).incoming();
            let end = log.log_end();
            let outcomes = log.append(vec![again, next], 3, NOW).expect("written");
            let [Ok(known), Ok(new)] = outcomes.as_slice() else { panic!("{outcomes:?}") };
            assert_eq!((known.duplicate, known.base_offset), (true, last));
            assert_eq!((new.duplicate, new.base_offset), (false, end));
        }
        log.close().expect("closed");
        let (log, report) = open(&place, Opening { recovery_point: 84, ..clean });
        assert_eq!((log.log_end(), report.checked_segments, report.warnings), (84, 0, Vec::new()));
    }
}
