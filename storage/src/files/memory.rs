//! Files in memory, with the disk's behaviour: names, folders, and open files that outlive a name.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{DirEntry, File, Files, OpenMode};

/// A file is held in pieces of this size, so growing never copies more than one piece.
const PIECE: usize = 64 * 1024;

/// Files that live and die with this value and its clones.
#[derive(Debug, Clone, Default)]
pub struct MemoryFiles {
    names: Arc<RwLock<BTreeMap<PathBuf, Node>>>,
}

#[derive(Debug, Clone)]
enum Node {
    Dir,
    File(Arc<MemoryFile>),
}

#[derive(Debug, Default)]
struct MemoryFile(RwLock<Pieces>);

/// All pieces but the last are full.
#[derive(Debug, Default)]
struct Pieces {
    pieces: Vec<Vec<u8>>,
    len: usize,
}

impl MemoryFiles {
    /// An empty place.
    pub fn new() -> Self {
        Self::default()
    }

    fn names(&self) -> RwLockReadGuard<'_, BTreeMap<PathBuf, Node>> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn names_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<PathBuf, Node>> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_dir(names: &BTreeMap<PathBuf, Node>, dir: &Path) -> bool {
    // The root of a path, of either kind, is always there.
    dir.parent().is_none()
        || dir.as_os_str().is_empty()
        || matches!(names.get(dir), Some(Node::Dir))
}

fn has_parent(names: &BTreeMap<PathBuf, Node>, path: &Path) -> bool {
    path.parent().is_none_or(|parent| is_dir(names, parent))
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Files for MemoryFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut names = self.names_mut();
        match (names.get(path), mode) {
            (Some(Node::Dir), _) => Err(io::ErrorKind::IsADirectory.into()),
            (Some(Node::File(_)), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Node::File(file)), _) => Ok(file.clone()),
            (None, OpenMode::Read | OpenMode::Write) => Err(not_found()),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                if !has_parent(&names, path) {
                    return Err(not_found());
                }
                let file = Arc::new(MemoryFile::default());
                names.insert(path.to_owned(), Node::File(Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let names = self.names();
        if !is_dir(&names, dir) {
            return Err(not_found());
        }
        let below = names.iter().filter(|(path, _)| path.parent() == Some(dir));
        Ok(below
            .filter_map(|(path, node)| {
                let name = path.file_name()?.to_str()?.to_owned();
                Some(match node {
                    Node::Dir => DirEntry { name, is_dir: true, len: 0 },
                    Node::File(file) => DirEntry { name, is_dir: false, len: file.bytes_len() },
                })
            })
            .collect())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut names = self.names_mut();
        for above in dir.ancestors().filter(|above| !above.as_os_str().is_empty()) {
            match names.get(above) {
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                Some(Node::Dir) => {}
                None => {
                    names.insert(above.to_owned(), Node::Dir);
                }
            }
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.names_mut();
        if !has_parent(&names, to) {
            return Err(not_found());
        }
        let node = names.remove(from).ok_or_else(not_found)?;
        if matches!(node, Node::Dir) {
            let below: Vec<PathBuf> =
                names.keys().filter(|path| path.starts_with(from)).cloned().collect();
            for old in below {
                let Ok(rest) = old.strip_prefix(from) else { continue };
                if let Some(node) = names.remove(&old) {
                    names.insert(to.join(rest), node);
                }
            }
        }
        names.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names_mut();
        match names.get(path) {
            Some(Node::File(_)) => {
                names.remove(path);
                Ok(())
            }
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(not_found()),
        }
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut names = self.names_mut();
        if !is_dir(&names, dir) {
            return Err(not_found());
        }
        names.retain(|path, _| !path.starts_with(dir));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if is_dir(&self.names(), dir) { Ok(()) } else { Err(not_found()) }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let names = self.names();
        Ok(names.contains_key(path) || is_dir(&names, path))
    }
}

impl MemoryFile {
    fn pieces(&self) -> RwLockReadGuard<'_, Pieces> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn pieces_mut(&self) -> RwLockWriteGuard<'_, Pieces> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes_len(&self) -> u64 {
        u64::try_from(self.pieces().len).unwrap_or(u64::MAX)
    }
}

fn too_large<E>(_: E) -> io::Error {
    io::ErrorKind::FileTooLarge.into()
}

impl File for MemoryFile {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        let position = usize::try_from(position).map_err(too_large)?;
        Ok(self.pieces().read(into, position))
    }

    fn write_at(&self, slices: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut position = usize::try_from(position).map_err(too_large)?;
        let mut pieces = self.pieces_mut();
        for slice in slices {
            pieces.write(slice, position);
            position += slice.len();
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(too_large)?;
        self.pieces_mut().set_len(len);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes_len())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Pieces {
    fn read(&self, into: &mut [u8], position: usize) -> usize {
        let want = self.len.saturating_sub(position).min(into.len());
        let mut filled = 0;
        while filled < want {
            let at = position + filled;
            let piece = self.pieces.get(at / PIECE).and_then(|piece| piece.get(at % PIECE..));
            let (Some(piece), Some(rest)) = (piece, into.get_mut(filled..want)) else { break };
            let count = piece.len().min(rest.len());
            if count == 0 {
                break;
            }
            rest[..count].copy_from_slice(&piece[..count]);
            filled += count;
        }
        filled
    }

    fn write(&mut self, mut bytes: &[u8], mut position: usize) {
        if position > self.len {
            self.set_len(position);
        }
        while !bytes.is_empty() {
            let (index, at) = (position / PIECE, position % PIECE);
            if index == self.pieces.len() {
                self.pieces.push(Vec::new());
            }
            let Some(piece) = self.pieces.get_mut(index) else { return };
            let count = bytes.len().min(PIECE - at);
            let (now, later) = bytes.split_at(count);
            let over = count.min(piece.len() - at);
            piece[at..at + over].copy_from_slice(&now[..over]);
            piece.extend_from_slice(&now[over..]);
            position += count;
            bytes = later;
        }
        self.len = self.len.max(position);
    }

    fn set_len(&mut self, len: usize) {
        self.pieces.truncate(len.div_ceil(PIECE));
        let mut start = 0;
        while start < len {
            let want = (len - start).min(PIECE);
            match self.pieces.get_mut(start / PIECE) {
                Some(piece) => piece.resize(want, 0),
                None => self.pieces.push(vec![0; want]),
            }
            start += PIECE;
        }
        self.len = len;
    }
}
