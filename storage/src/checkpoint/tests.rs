//! The small files: what we write is read back, what is broken is found.

use super::*;
use crate::{LogErrorKind, MemoryFiles};

fn dir() -> (MemoryFiles, PathBuf) {
    let (files, dir) = (MemoryFiles::new(), PathBuf::from("/d"));
    files.create_dir_all(&dir).expect("made");
    (files, dir)
}

fn put(files: &dyn Files, path: &Path, text: &[u8]) {
    replace(files, path, text).expect("written");
}

#[test]
fn offsets_come_back_in_kafkas_text() {
    let (files, dir) = dir();
    let path = dir.join(RECOVERY_POINTS);
    assert_eq!(OffsetCheckpoint::read(&files, &path).expect("none"), OffsetCheckpoint::default());
    let mut checkpoint = OffsetCheckpoint::default();
    checkpoint.entries.insert(("b".to_owned(), 10), 7);
    checkpoint.entries.insert(("a.x-1".to_owned(), 0), i64::MAX);
    checkpoint.write(&files, &path).expect("written");
    let text = files.read(&path).expect("read");
    assert_eq!(text, b"0\n2\na.x-1 0 9223372036854775807\nb 10 7\n");
    assert_eq!(OffsetCheckpoint::read(&files, &path).expect("read"), checkpoint);
    assert_eq!(checkpoint.get("b", 10), Some(7));
    assert!(!files.exists(&dir.join("recovery-point-offset-checkpoint.tmp")).expect("asked"));
}

#[test]
fn broken_checkpoints_are_found_and_count_as_empty() {
    let (files, dir) = dir();
    let path = dir.join(LOG_STARTS);
    let broken: [&[u8]; 10] = [
        b"",
        b"1\n0\n",
        b"0\n",
        b"0\nx\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0 1\nb 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 -5\n",
        b"0\n2\na 0 1\na 0 2\n",
        b"0\n1\na 0 \xff\n",
    ];
    for text in broken {
        put(&files, &path, text);
        let error = OffsetCheckpoint::read(&files, &path).expect_err("broken");
        assert_eq!(error.kind(), LogErrorKind::Malformed, "{text:?}");
        assert!(OffsetCheckpoint::load(&files, &path).entries.is_empty());
    }
}

#[test]
fn meta_properties_come_back_and_kafkas_are_read() {
    let (files, dir) = dir();
    assert_eq!(MetaProperties::read(&files, &dir).expect("none"), None);
    let directory_id: Uuid = "hwaSbBqqQaahDvgGtqRVtA".parse().expect("an id");
    let ours = MetaProperties { cluster_id: "c=1\\".to_owned(), node_id: 3, directory_id };
    ours.write(&files, &dir).expect("written");
    assert_eq!(MetaProperties::read(&files, &dir).expect("read"), Some(ours.clone()));
    let theirs = b"#\n#Thu Jan 01 00:00:00 UTC 2026\ncluster.id=c\\=1\\\\\n\
        directory.id=hwaSbBqqQaahDvgGtqRVtA\nnode.id=3\nversion=1\n";
    put(&files, &dir.join("meta.properties"), theirs);
    assert_eq!(MetaProperties::read(&files, &dir).expect("read"), Some(ours));
    // As a power cut leaves it in the first moments of a directory.
    put(&files, &dir.join("meta.properties"), b"");
    assert_eq!(MetaProperties::read(&files, &dir).expect("read"), None);
    for broken in ["\n", "version=2\ncluster.id=a\nnode.id=1", "version=1\ncluster.id=a\nnode.id=x"]
    {
        put(&files, &dir.join("meta.properties"), broken.as_bytes());
        assert!(MetaProperties::read(&files, &dir).is_err(), "{broken}");
    }
}

#[test]
fn shutdown_marker_can_be_taken_once() {
    let (files, dir) = dir();
    assert_eq!(CleanShutdown::take(&files, &dir).expect("none"), None);
    CleanShutdown { broker_epoch: 9 }.write(&files, &dir).expect("written");
    let text = files.read(&dir.join(".kafka_cleanshutdown")).expect("read");
    assert_eq!(text, br#"{"version":0,"brokerEpoch":9}"#);
    let taken = CleanShutdown::take(&files, &dir).expect("taken");
    assert_eq!(taken, Some(CleanShutdown { broker_epoch: 9 }));
    assert_eq!(CleanShutdown::take(&files, &dir).expect("gone"), None);
    for broken in [&b""[..], b"{", b"{\"version\":1}", b"\xff\xff"] {
        put(&files, &dir.join(".kafka_cleanshutdown"), broken);
        assert_eq!(CleanShutdown::take(&files, &dir).expect("broken is no marker"), None);
        assert!(!files.exists(&dir.join(".kafka_cleanshutdown")).expect("asked"));
    }
}

#[test]
fn topic_id_is_noted_as_kafka_does() {
    let (files, dir) = dir();
    assert_eq!(read_topic_id(&files, &dir).expect("none"), None);
    let id: Uuid = "hwaSbBqqQaahDvgGtqRVtA".parse().expect("an id");
    write_topic_id(&files, &dir, id).expect("written");
    let text = files.read(&dir.join("partition.metadata")).expect("read");
    assert_eq!(text, b"version: 0\ntopic_id: hwaSbBqqQaahDvgGtqRVtA");
    assert_eq!(read_topic_id(&files, &dir).expect("read"), Some(id));
    put(&files, &dir.join("partition.metadata"), b"version: 0\ntopic_id: what");
    assert!(read_topic_id(&files, &dir).is_err());
}
