//! Opening a log again: after a clean close, after a crash, and after damage.

mod place;

use ottla_protocol::{ErrorCode, Uuid};
use ottla_storage::{Log, LogErrorKind, Opening};
use place::{
    Draft, NOW, Place, TOPIC_ID, append, append_in, batch_at, on_both, read_from, try_append,
};

fn small_segments(place: Place) -> Place {
    place.with(|config| {
        config.segment_bytes = 2000;
        config.index_interval_bytes = 400;
    })
}

/// Forty batches of producer 1 in four leader epochs.
fn fill(log: &mut Log) {
    for sequence in 0..40 {
        append_in(log, &Draft::of(1).producer(1, 0, sequence), sequence / 10);
    }
}

fn state(log: &Log) -> (i64, i64, Vec<(i32, i64)>, usize) {
    let epochs = log.epochs().iter().map(|entry| (entry.epoch, entry.start_offset)).collect();
    let records = read_from(&log.reader(), log.log_start(), 700).len();
    (log.log_start(), log.log_end(), epochs, records)
}

/// Which of producer 1's last six batches are known as duplicates, oldest first.
fn window(log: &mut Log, next_sequence: i32) -> Vec<bool> {
    let known = |sequence| match try_append(log, &Draft::of(1).producer(1, 0, sequence), 9) {
        Ok(appended) => {
            assert!(appended.duplicate, "nothing new was sent");
            assert_eq!(appended.base_offset, i64::from(sequence), "the old offset");
            true
        }
        Err(rejected) => {
            assert_eq!(rejected.code, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
            false
        }
    };
    (next_sequence - 6..next_sequence).map(known).collect()
}

#[test]
fn a_clean_close_keeps_everything_and_nothing_is_checked() {
    on_both(|place| {
        let place = small_segments(place);
        let mut log = place.clean();
        fill(&mut log);
        let before = state(&log);
        assert_eq!(log.close().expect("closed"), 40);
        let (mut log, report) = place.open(Opening { recovery_point: 40, ..Opening::clean(NOW) });
        assert_eq!(state(&log), before);
        assert_eq!((report.created, report.checked_segments), (false, 0));
        assert_eq!((report.rebuilt_indexes, report.warnings), (0, Vec::new()));
        assert_eq!(window(&mut log, 40), [false, false, false, false, false, true]);
        assert_eq!(append_in(&mut log, &Draft::of(1).producer(1, 0, 40), 9).base_offset, 40);
    });
}

#[test]
fn indexes_after_a_restart_are_those_of_a_run_without_one() {
    let files_after = |restarts: bool| {
        let place = small_segments(Place::in_memory());
        let mut log = place.clean();
        for round in 0..60 {
            if restarts && round % 7 == 0 {
                drop(log);
                log = place.after_crash().0;
            }
            append(&mut log, &Draft::at(&[NOW + round]));
        }
        log.close().expect("closed");
        let names: Vec<_> =
            place.names().into_iter().filter(|name| !name.ends_with("snapshot")).collect();
        names.into_iter().map(|name| (place.read(&name), name)).collect::<Vec<_>>()
    };
    assert_eq!(files_after(true), files_after(false));
}

#[test]
fn a_crash_loses_nothing_that_was_appended() {
    for recovery_point in [0, 17, 40] {
        on_both(|place| {
            let place = small_segments(place);
            let mut log = place.clean();
            fill(&mut log);
            let before = state(&log);
            let segments = log.segment_count();
            drop(log);
            let (mut log, report) = place.open(Opening { recovery_point, ..Opening::unclean(NOW) });
            assert_eq!(state(&log), before, "recovery point {recovery_point}");
            let all = report.checked_segments == segments;
            assert_eq!((all, report.truncated_bytes), (recovery_point == 0, 0));
            assert_eq!(report.warnings, Vec::<String>::new());
            let snapshots = place.names_of(".snapshot");
            let snapshot: i64 =
                snapshots.last().map_or(0, |name| name[..20].parse().expect("a number"));
            let flushed = snapshot < recovery_point.max(1);
            assert!(flushed, "what was not flushed is not trusted: {snapshots:?}");
            let known = window(&mut log, 40);
            let replayed = usize::try_from(40 - snapshot).expect("small");
            let expected: Vec<_> = (0..6).map(|back| 5 - back <= replayed.min(4)).collect();
            assert_eq!(known, expected, "snapshot at {snapshot}");
            assert_eq!(append_in(&mut log, &Draft::of(1).producer(1, 0, 40), 9).base_offset, 40);
        });
    }
}

#[test]
fn five_batches_are_known_again_by_replay() {
    on_both(|place| {
        let mut log = place.clean();
        fill(&mut log);
        drop(log);
        let (mut log, _) = place.after_crash();
        assert_eq!(window(&mut log, 40), [false, true, true, true, true, true]);
    });
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_at_the_last_whole_batch() {
    for place in [Place::on_disk(), Place::in_memory()] {
        let mut log = place.clean();
        append_in(&mut log, &Draft::of(3).producer(1, 0, 0), 0);
        append_in(&mut log, &Draft::of(2).producer(1, 0, 3), 1);
        let name = "00000000000000000000.log";
        let kept = place.read(name);
        append_in(&mut log, &Draft::of(1).value_len(30).producer(1, 0, 5), 2);
        let whole = place.read(name);
        drop(log);
        for end in kept.len()..whole.len() {
            for zeros in [0, 100] {
                let mut torn = whole[..end].to_vec();
                torn.resize(end + zeros, 0);
                if torn.starts_with(&whole) {
                    // The lost bytes were zeros as well.
                    continue;
                }
                place.write(name, &torn);
                let (mut log, report) = place.after_crash();
                assert_eq!(log.log_end(), 5, "torn at {end}, {zeros} zeros");
                let cut = u64::try_from(torn.len() - kept.len()).expect("small");
                assert_eq!(report.truncated_bytes, cut);
                assert_eq!(report.warnings.len(), usize::from(cut > 0));
                assert_eq!(place.read(name), kept);
                let epochs: Vec<_> = log.epochs().iter().map(|entry| entry.epoch).collect();
                assert_eq!(epochs, [0, 1], "the lost batch's epoch is forgotten");
                let again = append_in(&mut log, &Draft::of(1).producer(1, 0, 5), 2);
                assert_eq!((again.base_offset, again.duplicate), (5, false));
            }
        }
    }
}

#[test]
fn any_changed_byte_in_the_last_batch_is_found() {
    let place = Place::in_memory();
    let mut log = place.clean();
    append(&mut log, &Draft::of(1));
    let name = "00000000000000000000.log";
    let kept = place.read(name).len();
    append(&mut log, &Draft::of(1));
    let whole = place.read(name);
    drop(log);
    for at in kept..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 0x40;
        place.write(name, &bad);
        let (log, _) = place.after_crash();
        // Offset and epoch are not under the checksum: an offset that rises a little can be.
        let unseen = (kept + 4..kept + 8).contains(&at) || (kept + 12..kept + 16).contains(&at);
        assert_eq!(log.log_end() == 1, !unseen, "byte {}", at - kept);
    }
}

#[test]
fn segments_after_a_bad_batch_are_removed() {
    on_both(|place| {
        let place = small_segments(place);
        let mut log = place.clean();
        fill(&mut log);
        drop(log);
        let logs = place.names_of(".log");
        let bad = &logs[1];
        let base: i64 = bad[..20].parse().expect("a number");
        let mut bytes = place.read(bad);
        let at = bytes.len() - 1;
        bytes[at] ^= 1;
        place.write(bad, &bytes);
        let next: i64 = logs[2][..20].parse().expect("a number");
        let (mut log, report) = place.after_crash();
        assert_eq!(log.log_end(), next - 1);
        assert_eq!(report.removed_segments, logs.len() - 2);
        assert_eq!(place.names_of(".log"), logs[..2]);
        for name in place.names() {
            let offset: Option<i64> = name.get(..20).and_then(|digits| digits.parse().ok());
            assert!(offset.is_none_or(|offset| offset < next), "{name} is left");
        }
        assert!(base < log.log_end());
        let sequence = i32::try_from(log.log_end()).expect("small");
        let again = append_in(&mut log, &Draft::of(1).producer(1, 0, sequence), 9);
        assert_eq!(again.base_offset, next - 1);
        drop(log);
        assert_eq!(place.after_crash().0.log_end(), next);
    });
}

#[test]
fn damage_below_the_recovery_point_cuts_nothing() {
    on_both(|place| {
        let place = small_segments(place);
        let mut log = place.clean();
        fill(&mut log);
        let last = log.segment_count() - 1;
        drop(log);
        let logs = place.names_of(".log");
        for (segment, opening) in [
            (last, Opening { recovery_point: 40, ..Opening::unclean(NOW) }),
            (1, Opening { same_boot: true, ..Opening::unclean(NOW) }),
        ] {
            let name = &logs[segment];
            let good = place.read(name);
            let mut bad = good.clone();
            bad[100] ^= 1;
            place.write(name, &bad);
            let error = place.try_open(opening).expect_err("damaged");
            assert_eq!(error.kind(), LogErrorKind::Damaged);
            let base: i64 = name[..20].parse().expect("a number");
            assert_eq!(error.offset(), Some(base));
            let text = error.to_string();
            assert!(
                text.contains(name.as_str()) && text.contains("ottla-broker repair --data"),
                "{text}"
            );
            assert_eq!(place.read(name), bad, "nothing was cut");
            assert_eq!(place.names_of(".log"), logs);
            place.write(name, &good);
            assert_eq!(place.after_crash().0.log_end(), 40);
        }
    });
}

#[test]
fn wrong_indexes_are_built_anew() {
    on_both(|place| {
        let place = small_segments(place);
        let mut log = place.clean();
        fill(&mut log);
        let before = state(&log);
        log.close().expect("closed");
        let names: Vec<_> =
            place.names_of(".index").into_iter().chain(place.names_of(".timeindex")).collect();
        assert!(names.len() > 6);
        let last_log = place.names_of(".log").pop().expect("some");
        for name in names {
            let good = place.read(&name);
            let mut high = good.clone();
            let end = high.len();
            high[end - 8..].fill(0x7f);
            for bad in [Some(good[..good.len() - 1].to_vec()), Some(high), None] {
                match &bad {
                    Some(bad) => place.write(&name, bad),
                    None => place.remove(&name),
                }
                let (log, report) = place.open(Opening::clean(NOW));
                assert_eq!(state(&log), before, "{name}");
                assert!(!report.warnings.is_empty() || bad.is_none(), "{name}");
                if last_log[..20] != name[..20] {
                    assert_eq!(report.rebuilt_indexes, 1, "{name}");
                }
                log.close().expect("closed");
                assert_eq!(place.read(&name), good, "{name}");
            }
        }
    });
}

#[test]
fn an_index_that_lies_does_not_mislead_a_reader() {
    on_both(|place| {
        let place = small_segments(place);
        let mut log = place.clean();
        fill(&mut log);
        log.close().expect("closed");
        for name in place.names_of(".index") {
            let mut bytes = place.read(&name);
            let keep = bytes.len().saturating_sub(8);
            for entry in bytes[..keep].chunks_mut(8) {
                entry[7] ^= 0x15;
            }
            place.write(&name, &bytes);
        }
        let log = place.clean();
        for offset in 0..40 {
            let range = log.reader().read(offset, 400, i64::MAX, true).expect("found");
            assert_eq!(range.base_offset, offset);
        }
        assert_eq!(read_from(&log.reader(), 0, 700).len(), 40);
    });
}

#[test]
fn broken_small_files_are_rebuilt_with_a_warning() {
    on_both(|place| {
        let place = small_segments(place);
        let mut log = place.clean();
        fill(&mut log);
        let before = state(&log);
        log.close().expect("closed");
        let snapshot = place.names_of(".snapshot").pop().expect("one");
        let good_snapshot = place.read(&snapshot);
        for name in ["leader-epoch-checkpoint", "partition.metadata", snapshot.as_str()] {
            let good = place.read(name);
            for bad in [&b""[..], b"garbage\n", b"0\n7\n1 1\n", b"\xff\xfe"] {
                place.write(name, bad);
                let (mut log, report) = place.open(Opening::clean(NOW));
                assert_eq!(state(&log), before, "{name}");
                // An empty note of the topic is what a power cut leaves; nothing to be told.
                let told = usize::from(!(bad.is_empty() && name == "partition.metadata"));
                assert_eq!(report.warnings.len(), told, "{name}: {:?}", report.warnings);
                let known = window(&mut log, 40);
                assert!(known[5], "{name}");
                drop(log);
                place.write(&snapshot, &good_snapshot);
            }
            if name != snapshot {
                assert_eq!(place.read(name), good, "{name} stands again");
            }
            place.write(name, &good);
        }
        place.remove("leader-epoch-checkpoint");
        assert_eq!(state(&place.clean()), before, "also where it is missing");
    });
}

#[test]
fn the_folder_of_another_topic_is_refused() {
    on_both(|place| {
        place.clean().close().expect("closed");
        assert_eq!(
            place.read("partition.metadata"),
            format!("version: 0\ntopic_id: {TOPIC_ID}").as_bytes()
        );
        let files = std::sync::Arc::clone(&place.files);
        let opening = Opening::clean(NOW);
        let other = Log::open(files, &place.dir, Uuid([8; 16]), place.config.clone(), opening);
        let error = other.expect_err("another topic's");
        assert_eq!(error.kind(), LogErrorKind::Foreign);
        assert!(error.to_string().contains(&TOPIC_ID.to_string()), "{error}");
    });
}

#[test]
fn left_over_files_are_removed() {
    on_both(|place| {
        let place = small_segments(place);
        let mut log = place.clean();
        fill(&mut log);
        log.close().expect("closed");
        let names = place.names();
        for name in [
            "00000000000000000000.log.deleted",
            "00000000000000000000.index.deleted",
            "00000000000000000007.log.cleaned",
            "00000000000000000099.index",
            "00000000000000000099.timeindex",
            "00000000000000000099.snapshot",
            "00000000000000000003.snapshot",
            "leader-epoch-checkpoint.tmp",
        ] {
            place.write(name, b"something");
        }
        drop(place.clean());
        assert_eq!(place.names(), names);
        place.write("00000000000000000000.log.swap", b"");
        let error = place.try_open(Opening::clean(NOW)).expect_err("half a compaction");
        assert_eq!(error.kind(), LogErrorKind::Foreign);
    });
}

#[test]
fn the_log_start_may_lie_inside_a_batch() {
    on_both(|place| {
        let mut log = place.clean();
        for _ in 0..3 {
            append(&mut log, &Draft::of(4));
        }
        log.close().expect("closed");
        let (log, _) = place.open(Opening { log_start: 6, ..Opening::clean(NOW) });
        assert_eq!((log.log_start(), log.log_end()), (6, 12));
        assert_eq!(log.epochs()[0].start_offset, 6);
        let reader = log.reader();
        assert!(reader.read(5, 100, i64::MAX, true).is_err());
        assert_eq!(reader.read(6, 100, i64::MAX, true).expect("in range").base_offset, 4);
        assert_eq!(reader.earliest().offset, 6);
        let found = reader.offset_for_time(NOW, i64::MAX).expect("read").expect("found");
        assert_eq!(found.offset, 6, "never below the log start");
    });
}

#[test]
fn a_log_that_ends_below_its_start_begins_anew() {
    on_both(|place| {
        let mut log = place.clean();
        append(&mut log, &Draft::of(4));
        log.close().expect("closed");
        let (mut log, report) = place.open(Opening { log_start: 100, ..Opening::clean(NOW) });
        assert_eq!((log.log_start(), log.log_end(), report.warnings.len()), (100, 100, 1));
        assert_eq!(place.names_of(".log"), ["00000000000000000100.log"]);
        assert_eq!(append(&mut log, &Draft::of(1)).base_offset, 100);
        assert_eq!(batch_at(&log.reader(), 100).len(), Draft::of(1).bytes().len());
    });
}

#[test]
fn idle_producers_are_forgotten() {
    on_both(|place| {
        let day = place.config.producer_id_expiration_ms;
        let mut log = place.clean();
        append(&mut log, &Draft::at(&[10]).producer(1, 0, 0));
        log.expire_producers(NOW + day - 1);
        let again = append(&mut log, &Draft::at(&[10]).producer(1, 0, 0));
        assert!(again.duplicate, "a record's own time does not count");
        log.close().expect("closed");
        let (mut log, _) = place.open(Opening::clean(NOW + day));
        let new = append(&mut log, &Draft::at(&[10]).producer(1, 0, 0));
        assert_eq!((new.duplicate, new.base_offset), (false, 1));
        log.expire_producers(NOW + day);
        let newer = append(&mut log, &Draft::at(&[10]).producer(1, 0, 77));
        assert!(!newer.duplicate, "any sequence is taken of an unknown producer");
    });
}
