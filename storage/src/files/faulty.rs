//! Files in memory that fail as disks and machines do, by a script and a seed.
//!
//! They know which bytes and names were flushed. A power cut takes the rest: all of it, or what a
//! seed decides ([`Survives`]). Single calls can fail or stop short ([`FaultyFiles::fail_at`]), the
//! room can end ([`FaultyFiles::leave_room`]), and a test can look at the moment before each change
//! ([`FaultyFiles::watch`]) and take the disk as a crash then would leave it.

mod image;

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DirEntry, File, Files, OpenMode};
use image::{Change, Disk, Edit, Node};

pub use image::Survives;

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and does nothing. A flush that fails so loses for good what it should have
    /// flushed, as Linux does: the next flush finds nothing to do.
    Io,
    /// The disk is full; of a write, this many bytes are there.
    Full {
        /// Bytes of the write that are there.
        written: usize,
    },
    /// A write fails after this many bytes, a read gives at most this many.
    Short {
        /// The bytes.
        bytes: usize,
    },
}

/// Files in memory that fail as disks and machines do. Clones are the same files.
#[derive(Clone, Default)]
pub struct FaultyFiles {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    disk: Disk,
    /// Calls so far, reads included.
    calls: u64,
    faults: Vec<(u64, Fault)>,
    /// Bytes until the disk is full.
    room: Option<usize>,
    watcher: Option<Watcher>,
}

type Watcher = Box<dyn FnMut(&Moment<'_>) + Send>;

/// The moment before a call that changes something.
pub struct Moment<'a> {
    disk: &'a Disk,
    /// The call's number, counted from 1 over all calls.
    pub call: u64,
    torn: Option<(usize, u64, Vec<u8>)>,
}

struct FaultyFile {
    shared: Arc<Mutex<Shared>>,
    inode: usize,
}

impl fmt::Debug for FaultyFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyFiles").finish_non_exhaustive()
    }
}

impl fmt::Debug for FaultyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyFile").field("inode", &self.inode).finish_non_exhaustive()
    }
}

impl fmt::Debug for Moment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moment").field("call", &self.call).finish_non_exhaustive()
    }
}

impl Moment<'_> {
    /// The disk if the machine, or the process, ends here.
    pub fn crash(&self, survives: Survives) -> FaultyFiles {
        FaultyFiles::over(self.disk.after(survives))
    }

    /// The disk if the process is killed in the middle of this call: of a write some bytes are
    /// there, as `seed` decides. As [`Self::crash`] where the call is no write.
    pub fn kill_inside(&self, seed: u64) -> FaultyFiles {
        let mut disk = self.disk.after(Survives::All);
        if let Some((inode, position, bytes)) = &self.torn
            && let Some(path) = self.disk.name_of(*inode)
        {
            disk.tear(path, *position, bytes, seed);
        }
        FaultyFiles::over(disk)
    }

    /// Bytes that the call is about to write; `None` if it is no write.
    pub fn write_len(&self) -> Option<usize> {
        self.torn.as_ref().map(|(_, _, bytes)| bytes.len())
    }
}

impl FaultyFiles {
    /// An empty place, all of it flushed, without faults.
    pub fn new() -> Self {
        Self::default()
    }

    fn over(disk: Disk) -> Self {
        Self { shared: Arc::new(Mutex::new(Shared { disk, ..Shared::default() })) }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        locked(&self.shared)
    }

    /// Calls so far, reads included.
    pub fn calls(&self) -> u64 {
        self.shared().calls
    }

    /// Lets the call of this number go wrong, counted from 1 over all calls.
    pub fn fail_at(&self, call: u64, fault: Fault) {
        self.shared().faults.push((call, fault));
    }

    /// Lets the disk be full once so many more bytes are written; `None` takes the limit away.
    pub fn leave_room(&self, bytes: Option<usize>) {
        self.shared().room = bytes;
    }

    /// Calls `watcher` before each call that changes something. It may make other files of the
    /// moment, and not use these.
    pub fn watch(&self, watcher: impl FnMut(&Moment<'_>) + Send + 'static) {
        self.shared().watcher = Some(Box::new(watcher));
    }

    /// What another start finds now.
    #[must_use]
    pub fn crash(&self, survives: Survives) -> Self {
        Self::over(self.shared().disk.after(survives))
    }

    /// Makes all bytes and names durable, as if everybody had flushed.
    pub fn flush_all(&self) {
        self.shared().disk.flush_all();
    }
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

fn broken() -> io::Error {
    io::Error::other("the disk failed (EIO)")
}

impl Shared {
    /// Counts a call, shows it to the watcher if it changes something, and gives its fault.
    fn begin(&mut self, changes: bool, torn: Option<(usize, u64, Vec<u8>)>) -> Option<Fault> {
        self.calls += 1;
        if changes && let Some(mut watcher) = self.watcher.take() {
            watcher(&Moment { disk: &self.disk, call: self.calls, torn });
            self.watcher = Some(watcher);
        }
        let at = self.faults.iter().position(|(call, _)| *call == self.calls)?;
        Some(self.faults.swap_remove(at).1)
    }

    /// A call whose only faults are that it fails, or that the disk is full.
    fn begin_plain(&mut self, changes: bool) -> io::Result<()> {
        match self.begin(changes, None) {
            None => Ok(()),
            Some(Fault::Io | Fault::Short { .. }) => Err(broken()),
            Some(Fault::Full { .. }) => Err(full()),
        }
    }

    fn write(&mut self, inode: usize, bytes: Vec<u8>, position: u64) -> io::Result<()> {
        let fault = self.begin(true, Some((inode, position, bytes.clone())));
        let (mut fits, mut outcome) = match fault {
            None => (bytes.len(), Ok(())),
            Some(Fault::Io) => (0, Err(broken())),
            Some(Fault::Full { written }) => (written.min(bytes.len()), Err(full())),
            Some(Fault::Short { bytes: written }) => (written.min(bytes.len()), Err(broken())),
        };
        if let Some(room) = &mut self.room {
            if *room < fits {
                (fits, outcome) = (*room, Err(full()));
            }
            *room -= fits;
        }
        let mut bytes = bytes;
        bytes.truncate(fits);
        let position = usize::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if !bytes.is_empty() {
            self.disk.edit(inode, Edit::Write { position, bytes });
        }
        outcome
    }
}

impl Files for FaultyFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut shared = self.shared();
        let makes = matches!(mode, OpenMode::Create | OpenMode::CreateNew)
            && !shared.disk.names.contains_key(path);
        shared.begin_plain(makes)?;
        let inode = match (shared.disk.names.get(path), mode) {
            (Some(Node::Dir), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(Node::File(_)), OpenMode::CreateNew) => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            (Some(Node::File(inode)), _) => *inode,
            (None, OpenMode::Read | OpenMode::Write) => return Err(not_found()),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                if !path.parent().is_none_or(|parent| shared.disk.is_dir(parent)) {
                    return Err(not_found());
                }
                if shared.room == Some(0) {
                    return Err(full());
                }
                let inode = shared.disk.new_inode();
                shared.disk.change(Change::Link(path.to_owned(), Node::File(inode)));
                inode
            }
        };
        Ok(Arc::new(FaultyFile { shared: Arc::clone(&self.shared), inode }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut shared = self.shared();
        shared.begin_plain(false)?;
        if !shared.disk.is_dir(dir) {
            return Err(not_found());
        }
        let below = shared.disk.names.iter().filter(|(path, _)| path.parent() == Some(dir));
        let entry = |(path, node): (&PathBuf, &Node)| {
            let name = path.file_name()?.to_str()?.to_owned();
            Some(match node {
                Node::Dir => DirEntry { name, is_dir: true, len: 0 },
                Node::File(inode) => {
                    let len = u64::try_from(shared.disk.bytes(*inode).len()).unwrap_or(u64::MAX);
                    DirEntry { name, is_dir: false, len }
                }
            })
        };
        Ok(below.filter_map(entry).collect())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut shared = self.shared();
        let above: Vec<PathBuf> = dir.ancestors().map(Path::to_owned).collect();
        let missing: Vec<_> =
            above.into_iter().rev().filter(|above| !shared.disk.is_dir(above)).collect();
        shared.begin_plain(!missing.is_empty())?;
        for path in missing {
            if shared.disk.names.contains_key(&path) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            shared.disk.change(Change::Link(path, Node::Dir));
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut shared = self.shared();
        shared.begin_plain(true)?;
        let node = *shared.disk.names.get(from).ok_or_else(not_found)?;
        if !to.parent().is_none_or(|parent| shared.disk.is_dir(parent)) {
            return Err(not_found());
        }
        shared.disk.change(Change::Rename(from.to_owned(), to.to_owned(), node));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut shared = self.shared();
        let there = shared.disk.names.get(path).copied();
        shared.begin_plain(there.is_some())?;
        match there {
            Some(Node::File(_)) => shared.disk.change(Change::Unlink(path.to_owned())),
            Some(Node::Dir) => return Err(io::ErrorKind::IsADirectory.into()),
            None => return Err(not_found()),
        }
        Ok(())
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut shared = self.shared();
        shared.begin_plain(true)?;
        if !shared.disk.is_dir(dir) {
            return Err(not_found());
        }
        shared.disk.change(Change::Unlink(dir.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut shared = self.shared();
        shared.begin_plain(true)?;
        if !shared.disk.is_dir(dir) {
            return Err(not_found());
        }
        shared.disk.flush_names(dir);
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut shared = self.shared();
        shared.begin_plain(false)?;
        Ok(shared.disk.names.contains_key(path) || shared.disk.is_dir(path))
    }
}

impl File for FaultyFile {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        let mut shared = locked(&self.shared);
        let most = match shared.begin(false, None) {
            None => into.len(),
            Some(Fault::Short { bytes }) => bytes.min(into.len()),
            Some(Fault::Io | Fault::Full { .. }) => return Err(broken()),
        };
        let bytes = shared.disk.bytes(self.inode);
        let position = usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
        let read = most.min(bytes.len() - position);
        into[..read].copy_from_slice(&bytes[position..position + read]);
        Ok(read)
    }

    fn write_at(&self, slices: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(slices.iter().map(|slice| slice.len()).sum());
        for slice in slices {
            bytes.extend_from_slice(slice);
        }
        locked(&self.shared).write(self.inode, bytes, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut shared = locked(&self.shared);
        let same = shared.disk.bytes(self.inode).len() == len;
        shared.begin_plain(!same)?;
        if !same {
            shared.disk.edit(self.inode, Edit::SetLen(len));
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut shared = locked(&self.shared);
        shared.begin_plain(false)?;
        Ok(u64::try_from(shared.disk.bytes(self.inode).len()).unwrap_or(u64::MAX))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut shared = locked(&self.shared);
        match shared.begin_plain(true) {
            Ok(()) => {
                shared.disk.flush(self.inode);
                Ok(())
            }
            Err(error) => {
                shared.disk.forget_unflushed(self.inode);
                Err(error)
            }
        }
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests;
