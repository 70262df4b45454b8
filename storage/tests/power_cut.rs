//! What a power cut leaves: bytes and names that were flushed, and nothing else.
#![allow(clippy::expect_used, reason = "a test ends where its set-up does not work")]

mod place;

use std::path::Path;
use std::sync::Arc;

use ottla_storage::{FaultyFiles, Files, Opening, Survives};
use place::{Draft, NOW, Place, append, read_from};

/// Files whose folder of logs is durable. Stricter than any disk, as they are used here: what was
/// not flushed is lost, always.
fn unsafe_files() -> FaultyFiles {
    let files = FaultyFiles::new();
    files.create_dir_all(Path::new("/data")).expect("made");
    files.flush_all();
    files
}

/// A log on such files, with segments of a few batches.
fn place(files: &FaultyFiles) -> Place {
    Place { files: Arc::new(files.clone()), ..Place::in_memory() }.with(|config| {
        config.segment_bytes = 400;
        config.index_interval_bytes = 100;
    })
}

/// The same log after the power is back.
fn after(files: &FaultyFiles) -> Place {
    Place { files: Arc::new(files.crash(Survives::Flushed)), ..place(files) }
}

#[test]
fn what_was_flushed_survives_at_every_length() {
    for count in 1..20_i32 {
        let files = unsafe_files();
        let place = place(&files);
        let mut log = place.clean();
        for at in 0..count {
            let incoming = vec![Draft::of(1).producer(1, 0, at).incoming()];
            log.append(incoming, at / 3, NOW).expect("appended")[0].as_ref().expect("stored");
            if at % 2 == 0 {
                log.flush().expect("flushed");
            }
        }
        let reached = log.flush().expect("flushed");
        let epochs = log.epochs().to_vec();
        // Nobody flushes what comes now.
        log.append(vec![Draft::of(1).incoming()], 99, NOW).expect("appended");
        drop(log);
        let opening = Opening { recovery_point: reached, ..Opening::unclean(NOW) };
        let (mut log, report) = after(&files).open(opening);
        assert_eq!(log.log_end(), i64::from(count), "{report:?}");
        assert_eq!(read_from(&log.reader(), 0, 100).len(), usize::try_from(count).expect("few"));
        assert_eq!(log.epochs(), epochs, "after {count}");
        let known = append(&mut log, &Draft::of(1).producer(1, 0, count - 1));
        assert!(known.duplicate, "the producer's last batch is known, after {count}");
    }
}

#[test]
fn sealed_segments_need_no_check_below_the_recovery_point() {
    let files = unsafe_files();
    let mut log = place(&files).clean();
    for at in 0..20 {
        log.append(vec![Draft::of(1).incoming()], at / 3, NOW).expect("appended");
        if at == 10 {
            log.flush().expect("flushed");
        }
    }
    let reached = log.flush().expect("flushed");
    let (epochs, segments) = (log.epochs().to_vec(), log.segment_count());
    assert!(segments > 3, "{segments} segments");
    drop(log);
    let opening = Opening { recovery_point: reached, ..Opening::unclean(NOW) };
    let (log, report) = after(&files).open(opening);
    assert_eq!((report.checked_segments, report.rebuilt_indexes), (1, 0), "{report:?}");
    assert!(report.warnings.is_empty(), "{report:?}");
    assert_eq!(log.epochs(), epochs, "also those of segments that are not read again");
}

#[test]
fn closed_log_is_whole_and_trusted() {
    // In one segment and in many.
    for count in [2, 20] {
        let files = unsafe_files();
        let mut log = place(&files).clean();
        for at in 0..count {
            let incoming = vec![Draft::of(1).producer(1, 0, at).incoming()];
            log.append(incoming, at / 2, NOW).expect("appended")[0].as_ref().expect("stored");
        }
        let epochs = log.epochs().to_vec();
        log.close().expect("closed");
        let (mut log, report) = after(&files).open(Opening::clean(NOW));
        assert_eq!((log.log_end(), report.checked_segments), (i64::from(count), 0), "{report:?}");
        assert!(report.warnings.is_empty(), "{report:?}");
        assert_eq!(log.epochs(), epochs);
        assert!(append(&mut log, &Draft::of(1).producer(1, 0, count - 1)).duplicate);
    }
}

#[test]
fn folder_whose_maker_crashed_is_flushed_by_its_next_owner() {
    let files = unsafe_files();
    drop(place(&files).clean());
    let (mut log, _) = place(&files).after_crash();
    append(&mut log, &Draft::of(1));
    log.flush().expect("flushed");
    drop(log);
    let (log, _) = after(&files).after_crash();
    assert_eq!(log.log_end(), 1);
}
