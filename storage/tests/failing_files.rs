//! Disks that fill up and disks that fail.
#![allow(clippy::expect_used, reason = "a test ends where its set-up does not work")]

mod place;

use std::sync::Arc;

use ottla_storage::{Fault, FaultyFiles, LogErrorKind, Opening, Survives};
use place::{Draft, NOW, Place, append, read_from, try_append};

/// A log on files that fail when told to, in segments of a few batches.
fn place(files: &FaultyFiles) -> Place {
    Place { files: Arc::new(files.clone()), ..Place::in_memory() }.with(|config| {
        config.segment_bytes = 1000;
        config.index_interval_bytes = 100;
    })
}

#[test]
fn a_disk_full_at_any_byte_refuses_and_loses_nothing() {
    for room in 0..2500 {
        let files = FaultyFiles::new();
        let place = place(&files);
        let mut log = place.clean();
        append(&mut log, &Draft::of(1).producer(1, 0, 0));
        files.leave_room(Some(room));
        let mut stored = 1;
        let error = loop {
            assert!(stored < 100, "the disk fills up");
            let batch = Draft::of(1).producer(1, 0, stored).incoming();
            match log.append(vec![batch], stored / 4, NOW) {
                Ok(outcomes) => {
                    assert!(outcomes[0].is_ok(), "{outcomes:?}");
                    stored += 1;
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), LogErrorKind::StorageFull, "{error}");
        let whole = usize::try_from(stored).expect("small");
        assert_eq!(read_from(&log.reader(), 0, 500).len(), whole, "reads go on, room {room}");
        let on_disk: usize = place.names_of(".log").iter().map(|name| place.read(name).len()).sum();
        let known = usize::try_from(log.size_bytes()).expect("small");
        assert_eq!(on_disk, known, "half a write is taken back, room {room}");
        files.leave_room(None);
        let crashed = Place { files: Arc::new(files.crash(Survives::All)), ..self::place(&files) };
        assert_eq!(crashed.after_crash().0.log_end(), i64::from(stored), "room {room}");
        let again = append(&mut log, &Draft::of(1).producer(1, 0, stored));
        assert_eq!((again.base_offset, again.duplicate), (i64::from(stored), false));
        let known = append(&mut log, &Draft::of(1).producer(1, 0, stored - 1));
        assert!(known.duplicate, "room {room}");
        assert_eq!(read_from(&log.reader(), 0, 500).len(), whole + 1);
        log.close().expect("closed");
        assert_eq!(place.clean().log_end(), i64::from(stored) + 1);
    }
}

#[test]
fn a_flush_that_fails_is_not_tried_again() {
    let files = FaultyFiles::new();
    let place = place(&files);
    let mut log = place.clean();
    append(&mut log, &Draft::of(1));
    assert_eq!(log.flush().expect("flushed"), 1);
    append(&mut log, &Draft::of(1));
    files.fail_at(files.calls() + 1, Fault::Io);
    let error = log.flush().expect_err("the disk failed");
    assert_eq!((error.kind(), log.recovery_point()), (LogErrorKind::Io, 1));
    assert_eq!(log.flush().expect_err("not again").kind(), LogErrorKind::Failed);
    let refused = log.append(vec![Draft::of(1).incoming()], 0, NOW).expect_err("failed");
    assert_eq!(refused.kind(), LogErrorKind::Failed);
    assert!(refused.to_string().contains("the disk failed"), "{refused}");
    assert!(log.failure().is_some());
    assert_eq!(read_from(&log.reader(), 0, 500).len(), 2, "reads go on");
    assert_eq!(log.close().expect_err("no clean close").kind(), LogErrorKind::Failed);
}

#[test]
fn a_flush_job_counts_only_if_the_log_was_not_truncated_meanwhile() {
    let place = Place::in_memory();
    let mut log = place.clean();
    for _ in 0..4 {
        append(&mut log, &Draft::of(1));
    }
    let job = log.flush_job().expect("a job");
    append(&mut log, &Draft::of(1));
    assert_eq!(log.finish_flush(job.run()).expect("flushed"), 4, "what came later is not");
    append(&mut log, &Draft::of(1));
    let job = log.flush_job().expect("a job");
    log.truncate_to(5, NOW).expect("truncated");
    append(&mut log, &Draft::of(1));
    assert_eq!(log.finish_flush(job.run()).expect("ran"), 4);
    assert_eq!(log.flush().expect("flushed"), 6);
    let known = try_append(&mut log, &Draft::of(1), 0).expect("passes");
    assert_eq!(known.base_offset, 6);
    drop(log);
    let opening = Opening { recovery_point: 6, ..Opening::unclean(NOW) };
    assert_eq!(place.open(opening).0.recovery_point(), 6);
}
