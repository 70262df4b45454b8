//! What survives which crash, and calls that fail when told to.

use std::path::PathBuf;

use super::*;

const DIR: &str = "/d";

fn place() -> FaultyFiles {
    let files = FaultyFiles::new();
    files.create_dir_all(Path::new(DIR)).expect("made");
    files.flush_all();
    files
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn create(files: &FaultyFiles, name: &str) -> Arc<dyn File> {
    files.open(&path(name), OpenMode::Create).expect("opened")
}

fn write(file: &dyn File, bytes: &[u8], position: u64) {
    file.write_at(&[IoSlice::new(bytes)], position).expect("written");
}

fn left(files: &FaultyFiles, name: &str) -> Option<Vec<u8>> {
    files.read(&path(name)).ok()
}

#[test]
fn only_flushed_bytes_under_flushed_names_survive_a_strict_cut() {
    let files = place();
    let file = create(&files, "x");
    write(file.as_ref(), b"flushed", 0);
    file.sync_data().expect("flushed");
    assert_eq!(left(&files.crash(Survives::Flushed), "x"), None, "its name is not");
    files.sync_dir(Path::new(DIR)).expect("flushed");
    write(file.as_ref(), b" not", 7);
    assert_eq!(left(&files.crash(Survives::Flushed), "x").as_deref(), Some(&b"flushed"[..]));
    assert_eq!(left(&files.crash(Survives::All), "x").as_deref(), Some(&b"flushed not"[..]));
    files.rename(&path("x"), &path("y")).expect("renamed");
    files.remove_file(&path("y")).expect("removed");
    let after = files.crash(Survives::Flushed);
    assert_eq!((left(&after, "x").is_some(), left(&after, "y")), (true, None));
    files.sync_dir(Path::new(DIR)).expect("flushed");
    assert_eq!(left(&files.crash(Survives::Flushed), "x"), None);
}

#[test]
fn a_folder_that_is_lost_takes_its_files_along() {
    let files = place();
    let inner = path("inner");
    files.create_dir_all(&inner).expect("made");
    let file = files.open(&inner.join("x"), OpenMode::Create).expect("made");
    file.sync_data().expect("flushed");
    files.sync_dir(&inner).expect("flushed");
    let after = files.crash(Survives::Flushed);
    assert!(!after.exists(&inner.join("x")).expect("asked"));
    files.sync_dir(Path::new(DIR)).expect("flushed");
    let after = files.crash(Survives::Flushed);
    assert!(after.exists(&inner.join("x")).expect("asked"));
}

#[test]
fn a_seed_decides_what_else_survives_and_always_the_same() {
    let files = place();
    let file = create(&files, "x");
    write(file.as_ref(), b"base", 0);
    file.sync_data().expect("flushed");
    files.sync_dir(Path::new(DIR)).expect("flushed");
    write(file.as_ref(), b"11", 4);
    write(file.as_ref(), b"22", 6);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let some = Survives::Some { seed };
        let bytes = left(&files.crash(some), "x").expect("its name is durable");
        assert_eq!(left(&files.crash(some), "x").as_deref(), Some(bytes.as_slice()));
        assert!(bytes.starts_with(b"base"));
        seen.insert(bytes);
    }
    for expected in [&b"base"[..], b"base1", b"base11", b"base112", b"base1122", b"base\0\x0022"] {
        assert!(seen.contains(expected), "{expected:?} of {seen:?}");
    }
}

#[test]
fn a_flush_that_fails_loses_what_it_should_have_flushed() {
    let files = place();
    let file = create(&files, "x");
    files.sync_dir(Path::new(DIR)).expect("flushed");
    write(file.as_ref(), b"gone", 0);
    files.fail_at(files.calls() + 1, Fault::Io);
    file.sync_data().expect_err("told to");
    file.sync_data().expect("and then it seems well");
    assert_eq!(left(&files, "x").as_deref(), Some(&b"gone"[..]));
    assert_eq!(left(&files.crash(Survives::Flushed), "x").as_deref(), Some(&b""[..]));
}

#[test]
fn calls_fail_or_stop_short_when_told_to() {
    let files = place();
    let file = create(&files, "x");
    for (fault, kind, kept) in [
        (Fault::Io, io::ErrorKind::Other, 0),
        (Fault::Full { written: 3 }, io::ErrorKind::StorageFull, 3),
        (Fault::Short { bytes: 2 }, io::ErrorKind::Other, 2),
    ] {
        file.set_len(0).expect("emptied");
        files.fail_at(files.calls() + 1, fault);
        let failed = file.write_at(&[IoSlice::new(b"abcdef")], 0).expect_err("told to");
        assert_eq!((failed.kind(), left(&files, "x").map(|x| x.len())), (kind, Some(kept)));
    }
    let mut into = [0; 2];
    files.fail_at(files.calls() + 1, Fault::Short { bytes: 1 });
    assert_eq!(file.read_at(&mut into, 0).expect("read"), 1);
    assert_eq!(file.read_at(&mut into, 0).expect("read"), 2);
    files.leave_room(Some(4));
    let failed = file.write_at(&[IoSlice::new(b"123456")], 0).expect_err("full");
    assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
    assert_eq!(left(&files, "x").as_deref(), Some(&b"1234"[..]));
    assert!(files.open(&path("y"), OpenMode::Create).is_err(), "no room for a name");
    files.leave_room(None);
    write(file.as_ref(), b"123456", 0);
}

#[test]
fn every_change_can_be_watched_and_a_write_killed_in_its_middle() {
    let files = place();
    let file = create(&files, "x");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    files.watch(move |moment| {
        let mut lengths: Vec<_> = (0..50)
            .map(|seed| left(&moment.kill_inside(seed), "x").expect("there").len())
            .collect();
        lengths.sort_unstable();
        lengths.dedup();
        note.lock().expect("whole").push((moment.write_len(), lengths));
    });
    write(file.as_ref(), b"ab", 0);
    file.len().expect("no change");
    file.sync_data().expect("flushed");
    let seen = seen.lock().expect("whole");
    assert_eq!(*seen, [(Some(2), vec![0, 1, 2]), (None, vec![2])]);
}
