//! Damage in a data directory: found by looking, told before it is mended, and kept aside.
#![allow(clippy::expect_used, reason = "a test ends where its set-up does not work")]

mod place;

use std::collections::BTreeMap;
use std::path::Path;

use ottla_protocol::record::{BatchHeader, batches};
use ottla_storage::check::{DirectoryCheck, Severity, check_directory};
use ottla_storage::{CleanShutdown, LogErrorKind, OffsetCheckpoint, Opening, repair};
use place::{Draft, Place, append_in, on_both, read_from};

/// Forty batches of two records in four epochs and segments of a few batches, closed cleanly.
fn filled(place: Place) -> Place {
    let place = place.with(|config| {
        config.segment_bytes = 2000;
        config.index_interval_bytes = 400;
    });
    let mut log = place.clean();
    for sequence in 0..40 {
        let draft = Draft::of(2).producer(1, 0, sequence * 2);
        append_in(&mut log, &draft, sequence / 10);
    }
    let reached = log.close().expect("closed");
    let points = OffsetCheckpoint { entries: [(("orders".to_owned(), 0), reached)].into() };
    let path = root(&place).join("recovery-point-offset-checkpoint");
    points.write(place.files.as_ref(), &path).expect("written");
    CleanShutdown { broker_epoch: 7 }.write(place.files.as_ref(), root(&place)).expect("written");
    place
}

fn root(place: &Place) -> &Path {
    place.dir.parent().expect("a folder above")
}

fn check(place: &Place) -> DirectoryCheck {
    let before = bytes_of(place);
    let check = check_directory(place.files.as_ref(), root(place), None).expect("read");
    assert_eq!(bytes_of(place), before, "a check changes nothing");
    check
}

fn bytes_of(place: &Place) -> BTreeMap<String, Vec<u8>> {
    place.names().into_iter().map(|name| (name.clone(), place.read(&name))).collect()
}

/// Where the batches of a segment begin, and their headers.
fn layout(bytes: &[u8]) -> Vec<(usize, BatchHeader)> {
    let mut at = 0;
    let headers = batches(bytes).map(|batch| batch.expect("good").header);
    headers
        .map(|header| {
            let begin = at;
            at += header.size();
            (begin, header)
        })
        .collect()
}

fn damages(check: &DirectoryCheck) -> Vec<String> {
    let all = check.all_findings();
    let damages = all.filter(|finding| finding.severity == Severity::Damage);
    damages.map(ToString::to_string).collect()
}

fn apply(place: &Place, check: &DirectoryCheck) -> Vec<repair::RepairStep> {
    let before = bytes_of(place);
    let steps = repair::plan(check);
    assert_eq!(bytes_of(place), before, "a plan changes nothing");
    repair::apply(place.files.as_ref(), root(place), &steps).expect("mended");
    steps
}

fn offsets(place: &Place, opening: Opening) -> Vec<i64> {
    let (log, report) = place.open(opening);
    assert_eq!(report.truncated_bytes, 0, "{report:?}");
    let headers = read_from(&log.reader(), 0, 700);
    headers.iter().map(|header| header.base_offset).collect()
}

#[test]
fn a_whole_directory_has_nothing_to_tell() {
    on_both(|place| {
        let place = filled(place);
        let check = check(&place);
        assert_eq!((check.clean, check.logs.len()), (true, 1));
        let log = &check.logs[0];
        assert_eq!((log.topic.as_str(), log.partition), ("orders", 0));
        assert_eq!((log.batches, log.records, log.log_end), (40, 80, 80));
        assert_eq!(log.segments, place.names_of(".log").len());
        assert_eq!(check.all_findings().count(), 0, "{check:?}");
        assert!(repair::plan(&check).is_empty());
    });
}

#[test]
fn a_damaged_batch_is_cut_out_alone_and_kept_aside() {
    // In the records, in the length, in the magic: with the length gone it is searched for.
    for at in [80, 8, 16] {
        on_both(|place| {
            let place = filled(place);
            let name = place.names_of(".log")[1].clone();
            let mut bytes = place.read(&name);
            let layout = layout(&bytes);
            let (begin, header) = layout[2];
            bytes[begin + at] ^= 0x20;
            place.write(&name, &bytes);
            let found = check(&place);
            let told = damages(&found);
            assert_eq!(told.len(), 1, "{told:?}");
            let offsets_told =
                format!("byte {begin}, offsets {} to {}", header.base_offset, header.last_offset());
            assert!(told[0].contains(&name) && told[0].contains(&offsets_told), "{told:?}");
            let steps = apply(&place, &found);
            assert!(steps[0].to_string().contains(&format!("drop {} bytes", header.size())));
            let kept = place.read(&format!("{name}.{begin}.damaged"));
            assert_eq!(kept, bytes[begin..begin + header.size()]);
            assert_eq!(damages(&check(&place)), [""; 0]);
            let expected: Vec<_> =
                (0..80).step_by(2).filter(|base| *base != header.base_offset).collect();
            assert!(!CleanShutdown::is_there(place.files.as_ref(), root(&place)).expect("asked"));
            let opening = Opening { recovery_point: 80, ..Opening::unclean(place::NOW) };
            assert_eq!(offsets(&place, opening), expected, "at {at}");
            assert_eq!(offsets(&place, Opening::clean(place::NOW)), expected);
        });
    }
}

#[test]
fn a_batch_whose_offset_changed_is_the_one_that_goes() {
    on_both(|place| {
        let place = filled(place);
        let name = place.names_of(".log")[1].clone();
        let mut bytes = place.read(&name);
        let (begin, header) = layout(&bytes)[2];
        bytes[begin + 5] ^= 0x20;
        place.write(&name, &bytes);
        let found = check(&place);
        let told = damages(&found);
        assert!(told.iter().any(|one| one.contains("which no checksum covers")), "{told:?}");
        apply(&place, &found);
        let expected: Vec<_> =
            (0..80).step_by(2).filter(|base| *base != header.base_offset).collect();
        assert_eq!(offsets(&place, Opening::clean(place::NOW)), expected);
    });
}

#[test]
fn files_that_can_be_made_anew_are_put_aside() {
    on_both(|place| {
        let place = filled(place);
        let whole = offsets(&place, Opening::clean(place::NOW));
        let index = place.names_of(".index")[0].clone();
        let time_index = place.names_of(".timeindex")[1].clone();
        let snapshot = place.names_of(".snapshot").pop().expect("one");
        let names = [index.as_str(), &time_index, &snapshot, "leader-epoch-checkpoint"];
        for name in names {
            let good = place.read(name);
            for bad in [&good[..good.len() - 1], &[&good[..], &[7; 24]].concat()[..]] {
                place.write(name, bad);
                let found = check(&place);
                let told = damages(&found);
                assert!(told.iter().any(|one| one.contains(name)), "{name}: {told:?}");
                apply(&place, &found);
                assert!(!place.names().contains(&name.to_owned()), "{name}");
                assert_eq!(damages(&check(&place)), [""; 0], "{name}");
                let (log, _) = place.open(Opening::clean(place::NOW));
                log.close().expect("closed");
                assert_eq!(offsets(&place, Opening::clean(place::NOW)), whole, "{name}");
                place.write(name, &good);
                CleanShutdown { broker_epoch: 7 }
                    .write(place.files.as_ref(), root(&place))
                    .expect("written");
            }
        }
        let kept = |name: &str| name.contains(".damaged");
        assert_eq!(place.names().iter().filter(|name| kept(name)).count(), 8, "each try's own");
    });
}

#[test]
fn an_index_entry_that_lies_is_found() {
    on_both(|place| {
        let place = filled(place);
        for name in [place.names_of(".index")[1].clone(), place.names_of(".timeindex")[1].clone()] {
            let good = place.read(&name);
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 1;
                place.write(&name, &bad);
                let told = damages(&check(&place));
                // The last bit of a time entry's offset may name another record of its batch.
                let same = name.ends_with("timeindex") && at % 12 == 11;
                assert!(same || (told.len() == 1 && told[0].contains(&name)), "{name}, byte {at}");
            }
            place.write(&name, &good);
        }
    });
}

#[test]
fn room_that_kafka_made_ahead_in_the_newest_index_is_no_damage() {
    on_both(|place| {
        let place = filled(place);
        for kind in [".index", ".timeindex"] {
            for (name, expected) in [
                (place.names_of(kind)[0].clone(), 1),
                (place.names_of(kind).pop().expect("one"), 0),
            ] {
                let good = place.read(&name);
                place.write(&name, &[&good[..], &[0; 240]].concat());
                let found = check(&place);
                assert_eq!(found.damages(), expected, "{name}: {found:?}");
                assert!(found.all_findings().count() > 0, "{name}");
                place.write(&name, &good);
            }
        }
    });
}

#[test]
fn what_a_crash_leaves_is_no_damage() {
    on_both(|place| {
        let place = filled(place);
        CleanShutdown::take(place.files.as_ref(), root(&place)).expect("taken");
        let name = place.names_of(".log").pop().expect("one");
        let bytes = place.read(&name);
        let torn = [&bytes[..], &Draft::of(1).bytes()[..50]].concat();
        place.write(&name, &torn);
        let found = check(&place);
        assert_eq!(damages(&found), [""; 0]);
        let notes: Vec<_> = found.all_findings().map(ToString::to_string).collect();
        assert!(notes[0].contains("50 bytes") && notes[0].contains("the next start"), "{notes:?}");
        // After a clean stop nothing can be torn.
        CleanShutdown { broker_epoch: 7 }
            .write(place.files.as_ref(), root(&place))
            .expect("written");
        let found = check(&place);
        assert_eq!(found.damages(), 1, "{found:?}");
        apply(&place, &found);
        assert_eq!((place.read(&name), place.read(&format!("{name}.{}.damaged", bytes.len()))), {
            (bytes.clone(), torn[bytes.len()..].to_vec())
        });
    });
}

#[test]
fn broken_checkpoints_and_another_brokers_properties_are_told() {
    on_both(|place| {
        let place = filled(place);
        let files = place.files.as_ref();
        let path = root(&place).join("recovery-point-offset-checkpoint");
        place::write(files, &path, b"0\n1\norders 0 8");
        let found = check(&place);
        assert!(damages(&found)[0].contains("its last row is cut") || found.damages() == 1);
        apply(&place, &found);
        assert!(files.exists(&path.with_extension("damaged")).is_ok());
        assert_eq!(damages(&check(&place)), [""; 0]);
        let path = root(&place).join("meta.properties");
        place::write(files, &path, b"version=9\n");
        let found = check(&place);
        assert!(damages(&found)[0].contains("version 9"), "{found:?}");
        assert!(repair::plan(&found).is_empty(), "whose directory it is nobody can make anew");
    });
}

#[test]
fn only_the_partition_that_is_asked_for_is_read() {
    on_both(|place| {
        let place = filled(place);
        let name = place.names_of(".log")[0].clone();
        let mut bytes = place.read(&name);
        bytes[100] ^= 1;
        place.write(&name, &bytes);
        let of = |topic| check_directory(place.files.as_ref(), root(&place), Some((topic, 0)));
        assert_eq!(of("orders").expect("read").damages(), 1);
        assert_eq!(of("others").expect("read").logs.len(), 0);
        let error = place.try_open(Opening { recovery_point: 80, ..Opening::unclean(place::NOW) });
        // Below the recovery point nothing is read at a start, so the command alone finds it.
        assert!(error.is_ok());
        let opening = Opening { same_boot: true, ..Opening::unclean(place::NOW) };
        let error = place.try_open(opening).expect_err("damaged");
        assert_eq!(error.kind(), LogErrorKind::Damaged);
    });
}
