//! A disk that knows what of it is durable, and what a crash makes of the rest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a crash leaves of that which was not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// Nothing: stricter than any disk.
    Flushed,
    /// Some of it, as a seed decides: names up to a point, since file systems keep their order; of
    /// each file nothing, all, a front part that is torn at any byte, or writes in any order, with
    /// zeros where one is missing.
    Some {
        /// The same seed leaves the same.
        seed: u64,
    },
    /// All: the process ended, and the machine runs on.
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(usize),
}

/// A change of names.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Link(PathBuf, Node),
    /// With all that is below it.
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, Node),
}

/// A change of bytes.
#[derive(Debug, Clone)]
pub(super) enum Edit {
    Write { position: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    flushed: Vec<u8>,
    unflushed: Vec<Edit>,
}

type Names = BTreeMap<PathBuf, Node>;

#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) names: Names,
    durable: Names,
    /// Changes of names that are not durable, oldest first.
    changes: Vec<Change>,
    inodes: Vec<Inode>,
}

impl Change {
    fn is_in(&self, dir: &Path) -> bool {
        let of = |path: &Path| path.parent() == Some(dir);
        match self {
            Self::Link(path, _) | Self::Unlink(path) => of(path),
            Self::Rename(from, to, _) => of(from) || of(to),
        }
    }

    fn apply(&self, names: &mut Names) {
        match self {
            Self::Link(path, node) => {
                names.insert(path.clone(), *node);
            }
            Self::Unlink(path) => names.retain(|other, _| !other.starts_with(path)),
            Self::Rename(from, to, node) => {
                let below: Vec<PathBuf> =
                    names.keys().filter(|path| path.starts_with(from)).cloned().collect();
                for old in below {
                    if let (Ok(rest), Some(node)) =
                        (old.strip_prefix(from), names.get(&old).copied())
                    {
                        names.remove(&old);
                        let new =
                            if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                        names.insert(new, node);
                    }
                }
                names.insert(to.clone(), *node);
            }
        }
    }
}

impl Edit {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::SetLen(len) => to.resize(*len, 0),
            Self::Write { position, bytes } => write(to, *position, bytes),
        }
    }
}

fn write(to: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    let end = position + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[position..end].copy_from_slice(bytes);
}

/// Numbers that a seed decides (SplitMix64).
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.roll() % end).unwrap_or(0)
    }
}

impl Inode {
    fn after(&self, dice: &mut Dice) -> Vec<u8> {
        let mut left = self.flushed.clone();
        match dice.below(4) {
            0 => {}
            1 => self.unflushed.iter().for_each(|edit| edit.apply(&mut left)),
            2 => {
                let whole = dice.below(self.unflushed.len() + 1);
                let (front, rest) = self.unflushed.split_at(whole);
                for edit in front {
                    edit.apply(&mut left);
                }
                if let Some(Edit::Write { position, bytes }) = rest.first() {
                    write(&mut left, *position, &bytes[..dice.below(bytes.len() + 1)]);
                }
            }
            _ => {
                let kept = self.unflushed.iter().filter(|_| dice.below(2) == 0);
                kept.for_each(|edit| edit.apply(&mut left));
            }
        }
        left
    }
}

impl Disk {
    /// The root of a path, of either kind, is always there.
    pub(super) fn is_dir(&self, dir: &Path) -> bool {
        dir.parent().is_none()
            || dir.as_os_str().is_empty()
            || self.names.get(dir) == Some(&Node::Dir)
    }

    pub(super) fn new_inode(&mut self) -> usize {
        self.inodes.push(Inode::default());
        self.inodes.len() - 1
    }

    pub(super) fn bytes(&self, inode: usize) -> &[u8] {
        self.inodes.get(inode).map(|inode| inode.bytes.as_slice()).unwrap_or_default()
    }

    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    pub(super) fn edit(&mut self, inode: usize, edit: Edit) {
        if let Some(inode) = self.inodes.get_mut(inode) {
            edit.apply(&mut inode.bytes);
            inode.unflushed.push(edit);
        }
    }

    pub(super) fn flush(&mut self, inode: usize) {
        if let Some(inode) = self.inodes.get_mut(inode) {
            inode.unflushed.drain(..).for_each(|edit| edit.apply(&mut inode.flushed));
        }
    }

    pub(super) fn forget_unflushed(&mut self, inode: usize) {
        if let Some(inode) = self.inodes.get_mut(inode) {
            inode.unflushed.clear();
        }
    }

    pub(super) fn flush_names(&mut self, dir: &Path) {
        let durable = &mut self.durable;
        self.changes.retain(|change| {
            let flushed = change.is_in(dir);
            if flushed {
                change.apply(durable);
            }
            !flushed
        });
    }

    pub(super) fn flush_all(&mut self) {
        (0..self.inodes.len()).for_each(|inode| self.flush(inode));
        self.changes.clear();
        self.durable.clone_from(&self.names);
    }

    /// The disk after a crash, all of it durable.
    pub(super) fn after(&self, survives: Survives) -> Self {
        let mut dice = Dice::new(match survives {
            Survives::Some { seed } => seed,
            Survives::Flushed | Survives::All => 0,
        });
        let names = match survives {
            Survives::All => self.names.clone(),
            Survives::Flushed => self.durable.clone(),
            Survives::Some { .. } => {
                let mut names = self.durable.clone();
                let kept = dice.below(self.changes.len() + 1);
                self.changes.iter().take(kept).for_each(|change| change.apply(&mut names));
                names
            }
        };
        // What lies below a folder whose own name is lost is lost with it.
        let known = |path: &Path| {
            let mut above = path.ancestors().skip(1);
            above.all(|above| {
                above.parent().is_none()
                    || above.as_os_str().is_empty()
                    || names.get(above) == Some(&Node::Dir)
            })
        };
        let mut left = Self::default();
        for (path, node) in names.iter().filter(|(path, _)| known(path)) {
            let node = match node {
                Node::Dir => Node::Dir,
                Node::File(inode) => {
                    let bytes = self.inodes.get(*inode).map(|inode| match survives {
                        Survives::All => inode.bytes.clone(),
                        Survives::Flushed => inode.flushed.clone(),
                        Survives::Some { .. } => inode.after(&mut dice),
                    });
                    let bytes = bytes.unwrap_or_default();
                    let flushed = bytes.clone();
                    left.inodes.push(Inode { bytes, flushed, unflushed: Vec::new() });
                    Node::File(left.inodes.len() - 1)
                }
            };
            left.names.insert(path.clone(), node);
        }
        left.durable.clone_from(&left.names);
        left
    }

    /// The name that a file has now.
    pub(super) fn name_of(&self, inode: usize) -> Option<&Path> {
        let node = Node::File(inode);
        self.names.iter().find(|(_, other)| **other == node).map(|(path, _)| path.as_path())
    }

    /// Writes a part of `bytes`, of a length that the seed decides, durably.
    pub(super) fn tear(&mut self, path: &Path, position: u64, bytes: &[u8], seed: u64) {
        let Some(Node::File(inode)) = self.names.get(path).copied() else { return };
        let Ok(position) = usize::try_from(position) else { return };
        let part = bytes[..Dice::new(seed).below(bytes.len() + 1)].to_vec();
        self.edit(inode, Edit::Write { position, bytes: part });
        self.flush(inode);
    }
}
