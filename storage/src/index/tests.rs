//! Indexes in memory and in their files.
use std::fs::File;

use rustix::fs::{Advice, fadvise};

use super::*;
use crate::{DiskFiles, LogConfig, MemoryFiles};

#[test]
fn entries_stay_readable_while_the_index_grows() {
    let index = IndexWriter::<TimeEntry>::new(PathBuf::from("/x"));
    let view = index.index();
    assert_eq!(view.last(Wait::No).expect("memory"), None);
    for relative in 0..10_000_u32 {
        assert!(index.push(TimeEntry { timestamp: i64::from(relative) * 3, relative }));
    }
    let found = view.last_where(Wait::No, |entry| entry.timestamp <= 2_999).expect("memory");
    assert_eq!(found, Some(TimeEntry { timestamp: 2_997, relative: 999 }));
    assert_eq!(view.last_where(Wait::No, |_| false).expect("memory"), None);
    assert_eq!(view.last(Wait::No).expect("memory").map(|last| last.relative), Some(9_999));
}

#[test]
fn file_appears_with_its_first_entry_and_comes_back() {
    let files: Arc<dyn Files> = Arc::new(MemoryFiles::new());
    let path = PathBuf::from("/00000000000000000000.index");
    let mut index = IndexWriter::<OffsetEntry>::new(path.clone());
    index.write(files.as_ref()).expect("nothing to write");
    assert!(!files.exists(&path).expect("asked"));
    for relative in 1..=100 {
        index.push(OffsetEntry { relative, position: relative * 4096 });
        index.write_behind(files.as_ref()).expect("written");
    }
    assert_eq!(files.read(&path).expect("read").len(), 64 * 8, "the rest waits");
    index.write(files.as_ref()).expect("written");
    let bytes = files.read(&path).expect("read");
    assert_eq!((bytes.len(), &bytes[..8]), (800, &[0, 0, 0, 1, 0, 0, 16, 0][..]));
    let sealed = Index::<OffsetEntry>::sealed(Arc::clone(&files), path.clone());
    let found = sealed.last_where(Wait::Disk, |entry| entry.relative <= 50).expect("read");
    assert_eq!(found, Some(OffsetEntry { relative: 50, position: 50 * 4096 }));
    let (loaded, refused) =
        IndexWriter::<OffsetEntry>::load(files.as_ref(), path, 1 << 20, |entry| {
            entry.relative < 60
        })
        .expect("loaded");
    assert_eq!((loaded.len(), refused), (59, 41));
    assert_eq!(loaded.last().map(|entry| entry.relative), Some(59));
}

#[test]
fn entries_that_fall_are_refused() {
    let files = MemoryFiles::new();
    let path = PathBuf::from("/x");
    let mut index = IndexWriter::<OffsetEntry>::new(path.clone());
    for relative in [1, 5, 3, 8] {
        index.push(OffsetEntry { relative, position: relative });
    }
    index.write(&files).expect("written");
    let (loaded, refused) =
        IndexWriter::<OffsetEntry>::load(&files, path, 1 << 20, |_| true).expect("loaded");
    assert_eq!((loaded.len(), refused), (2, 2));
}

#[test]
fn a_file_longer_than_its_segment_allows_is_refused() {
    let files = MemoryFiles::new();
    let path = PathBuf::from("/x");
    let mut index = IndexWriter::<OffsetEntry>::new(path.clone());
    let mut load = |log_size| {
        index.reset(&files).expect("removed");
        for relative in 0..100 {
            index.push(OffsetEntry { relative, position: relative });
        }
        index.write(&files).expect("written");
        let path = path.clone();
        IndexWriter::<OffsetEntry>::load(&files, path, log_size, |_| true)
            .map(|(index, refused)| (index.len(), refused))
            .expect("loaded")
    };
    assert_eq!(load(100 * 61), (100, 0));
    assert_eq!(load(99 * 61), (99, 1));
}

/// An index of so many entries, one for each offset, in its file.
fn written(files: &dyn Files, path: &std::path::Path, entries: u32) {
    let mut index = IndexWriter::<OffsetEntry>::new(path.to_owned());
    for relative in 0..entries {
        assert!(index.push(OffsetEntry { relative, position: relative }));
    }
    index.write(files).expect("written");
}

fn find(index: &Index<OffsetEntry>, wait: Wait, relative: u32) -> io::Result<Option<u32>> {
    let found = index.last_where(wait, |entry| entry.relative <= relative)?;
    Ok(found.map(|entry| entry.position))
}

#[test]
fn a_search_that_must_not_wait_reads_no_page_that_is_on_the_disk_only() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("x");
    let files: Arc<dyn Files> = Arc::new(DiskFiles::new());
    written(files.as_ref(), &path, 400_000);
    let on_disk = File::open(&path).expect("a file");
    on_disk.sync_all().expect("synced");
    let index = Index::<OffsetEntry>::sealed(Arc::clone(&files), path);
    let cold = |index: &Index<OffsetEntry>| {
        let error = find(index, Wait::No, 7).expect_err("it would have to wait");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    };
    cold(&index);
    let Index::Sealed { file, .. } = &index else { panic!("it is sealed") };
    // Mapped, and not a page of it looked at.
    file.open(files.as_ref()).expect("opened");
    fadvise(&on_disk, 0, None, Advice::DontNeed).expect("dropped from memory");
    cold(&index);
    assert_eq!(find(&index, Wait::Disk, 7).expect("read"), Some(7));
    assert_eq!(find(&index, Wait::No, 7).expect("what was read is in memory"), Some(7));
}

#[test]
fn of_sealed_indexes_so_many_are_mapped_as_may_and_those_in_use_stay() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = DiskFiles::with_mapped_max(3);
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let indexes: Vec<_> = (0..6)
        .map(|number| {
            let path = dir.path().join(number.to_string());
            written(files.as_ref(), &path, 10);
            Index::<OffsetEntry>::sealed(Arc::clone(&files), path)
        })
        .collect();
    let is_mapped = |index: &Index<OffsetEntry>| find(index, Wait::No, 5).is_ok();
    for (number, index) in indexes.iter().enumerate() {
        assert_eq!(find(index, Wait::Disk, 5).expect("read"), Some(5));
        assert_eq!(disk.mapped_files(), 3.min(number + 1));
        // The first is read again and again.
        assert!(is_mapped(&indexes[0]), "after {number} others");
    }
    assert_eq!(indexes.iter().filter(|index| is_mapped(index)).count(), 3);
    assert_eq!(find(&indexes[1], Wait::Disk, 9).expect("mapped again"), Some(9));
    assert_eq!(disk.mapped_files(), 3);
    drop(indexes);
    assert_eq!(disk.mapped_files(), 0);
}

#[test]
fn full_indexes_of_an_active_segment_take_as_much_memory_as_is_told() {
    let limit = usize::try_from(LogConfig::default().segment_index_bytes).expect("small");
    let offsets = Growing::<OffsetEntry>::new();
    for relative in 0..limit / OffsetEntry::SIZE {
        let relative = u32::try_from(relative).expect("small");
        assert!(offsets.push(OffsetEntry { relative, position: 0 }));
    }
    let times = Growing::<TimeEntry>::new();
    for relative in 0..limit / TimeEntry::SIZE {
        let relative = u32::try_from(relative).expect("small");
        assert!(times.push(TimeEntry { timestamp: 0, relative }));
    }
    // `a_full_index_begins_a_segment` shows that there are no more entries than these.
    assert!(offsets.memory() <= 16 << 20, "{}", offsets.memory());
    assert!(times.memory() <= 16 << 20, "{}", times.memory());
}
