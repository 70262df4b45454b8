//! Files behind a trait: the disk, or memory that behaves like it.

mod disk;
mod faulty;
mod mapped;
mod memory;
mod sealed;

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

pub use disk::DiskFiles;
pub use faulty::{Fault, FaultyFiles, Moment, Survives};
pub use mapped::SealedBytes;
pub use memory::MemoryFiles;
pub use sealed::SealedFile;

/// Whether a call may wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It may not: where it would have to, it fails with `WouldBlock`.
    No,
    /// It may.
    Disk,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// To read; it must exist.
    Read,
    /// To read and write; it must exist.
    Write,
    /// To read and write; made if it does not exist.
    Create,
    /// To read and write; it must not exist.
    CreateNew,
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without its folder.
    pub name: String,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// Bytes of the file; 0 for a folder.
    pub len: u64,
}

/// How much room a disk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that we may still write.
    pub free: u64,
    /// Bytes of the whole disk.
    pub total: u64,
}

/// A place that holds files. Errors are those of `std::io`, with their usual kinds.
pub trait Files: Send + Sync + Debug {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;
    /// What a folder holds, in no order. Names that are not UTF-8 are left out: none is ours.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Makes a folder and those above it.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Gives a file or folder another name; a file that had it is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name; who has it open reads on.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder and all in it.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Whether there is a file or folder of this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// How much room there is in the place of a folder; `None` where there is no telling.
    fn space(&self, _dir: &Path) -> io::Result<Option<Space>> {
        Ok(None)
    }

    /// The bytes of a file that will never change again, to be read at random.
    ///
    /// On disk they are mapped, so whoever wants other bytes in it must write another file and
    /// rename it over this one.
    fn sealed(&self, path: &Path) -> io::Result<SealedBytes> {
        read_whole(self.open(path, OpenMode::Read)?.as_ref()).map(SealedBytes::owned)
    }

    /// A file of [`Self::sealed`] is mapped from now on; it may close others to keep to a limit.
    fn note_mapped(&self, _file: &Arc<SealedFile>) {}

    /// A whole file, for those that are small.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        read_whole(self.open(path, OpenMode::Read)?.as_ref())
    }
}

/// One open file. Positions are explicit, so it may be shared.
pub trait File: Send + Sync + Debug {
    /// Reads at `position`; fewer bytes than asked for only at the end of the file.
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize>;
    /// As [`Self::read_at`], but never waits for the disk: `WouldBlock` where it would have to.
    fn read_cached_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at(into, position)
    }
    /// Writes all slices in a row at `position`: all of them, or an error.
    fn write_at(&self, slices: &[IoSlice<'_>], position: u64) -> io::Result<()>;
    /// Cuts the file, or grows it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;
    /// Makes what was written durable.
    fn sync_data(&self) -> io::Result<()>;
    /// The descriptor, where there is one.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads exactly as many bytes as `into` has; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        if self.read_at(into, position)? == into.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

fn read_whole(file: &dyn File) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn both(test: impl Fn(&dyn Files, PathBuf)) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        test(&DiskFiles::new(), dir.path().join("a/b"));
        test(&MemoryFiles::new(), PathBuf::from("/a/b"));
        test(&FaultyFiles::new(), PathBuf::from("/a/b"));
    }

    fn write(file: &dyn File, bytes: &[u8], position: u64) {
        file.write_at(&[IoSlice::new(bytes)], position).expect("written");
    }

    #[test]
    fn open_modes_agree_on_disk_and_in_memory() {
        both(|files, dir| {
            let path = dir.join("x");
            let missing = files.open(&path, OpenMode::Create).expect_err("its folder is missing");
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
            files.create_dir_all(&dir).expect("made");
            for mode in [OpenMode::Read, OpenMode::Write] {
                let missing = files.open(&path, mode).expect_err("missing");
                assert_eq!(missing.kind(), io::ErrorKind::NotFound);
            }
            write(files.open(&path, OpenMode::CreateNew).expect("made").as_ref(), b"hello", 0);
            let there = files.open(&path, OpenMode::CreateNew).expect_err("is there");
            assert_eq!(there.kind(), io::ErrorKind::AlreadyExists);
            let file = files.open(&path, OpenMode::Create).expect("opened, not emptied");
            assert_eq!(file.len().expect("its length"), 5);
        });
    }

    #[test]
    fn vectored_writes_gaps_and_cuts_agree() {
        both(|files, dir| {
            files.create_dir_all(&dir).expect("made");
            let file = files.open(&dir.join("x"), OpenMode::Create).expect("made");
            let part = vec![7_u8; 1000];
            let parts: Vec<_> = (0..3000).map(|_| IoSlice::new(&part)).collect();
            file.write_at(&parts, 10).expect("more slices than one system call takes");
            assert_eq!(file.len().expect("length"), 3_000_010);
            let mut read = vec![1; 20];
            assert_eq!(file.read_at(&mut read, 0).expect("read"), 20);
            assert_eq!(read, [[0; 10], [7; 10]].concat(), "the gap reads as zeros");
            assert_eq!(file.read_at(&mut read, 3_000_005).expect("read"), 5);
            assert_eq!(file.read_at(&mut read, 4_000_000).expect("read"), 0);
            file.set_len(12).expect("cut");
            file.set_len(14).expect("grown");
            assert_eq!(files.read(&dir.join("x")).expect("read")[10..], [7, 7, 0, 0]);
            let short = file.read_exact_at(&mut read, 0).expect_err("too short");
            assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
        });
    }

    #[test]
    fn renaming_and_removing_leave_open_files_readable() {
        both(|files, dir| {
            files.create_dir_all(&dir.join("deep/er")).expect("made");
            let old = files.open(&dir.join("x"), OpenMode::Create).expect("made");
            write(old.as_ref(), b"old", 0);
            let sealed = files.sealed(&dir.join("x")).expect("sealed");
            write(files.open(&dir.join("y"), OpenMode::Create).expect("made").as_ref(), b"new!", 0);
            files.rename(&dir.join("y"), &dir.join("x")).expect("renamed over");
            assert_eq!(files.read(&dir.join("x")).expect("read"), b"new!");
            let mut entries = files.list(&dir).expect("listed");
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            let named = |name: &str, is_dir, len| DirEntry { name: name.to_owned(), is_dir, len };
            assert_eq!(entries, [named("deep", true, 0), named("x", false, 4)]);
            files.remove_file(&dir.join("x")).expect("removed");
            assert!(!files.exists(&dir.join("x")).expect("asked"));
            let mut read = [0; 3];
            old.read_exact_at(&mut read, 0).expect("still open");
            assert_eq!((&read, &sealed[..]), (b"old", &b"old"[..]));
            files.rename(&dir.join("deep"), &dir.join("moved")).expect("folders move too");
            assert!(files.exists(&dir.join("moved/er")).expect("asked"));
            files.sync_dir(&dir).expect("synced");
            files.remove_dir_all(&dir).expect("removed");
            assert!(!files.exists(&dir).expect("asked"));
            let gone = files.remove_file(&dir.join("x")).expect_err("gone");
            assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        });
    }
}
