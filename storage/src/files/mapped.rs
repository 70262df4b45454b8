//! The bytes of a file that never changes again: mapped on disk, copied from memory.

use std::fs;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;

/// The bytes of a file that never changes again.
#[derive(Debug)]
pub struct SealedBytes(Held);

#[derive(Debug)]
enum Held {
    Owned(Vec<u8>),
    Mapped(Mmap),
}

impl SealedBytes {
    /// Bytes in memory.
    pub const fn owned(bytes: Vec<u8>) -> Self {
        Self(Held::Owned(bytes))
    }

    /// The bytes of a file on disk.
    #[allow(unsafe_code, reason = "mapping a file is unsafe: the map of a sealed index file")]
    pub(super) fn mapped(file: &fs::File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::owned(Vec::new()));
        }
        // SAFETY: the map is read only, and `Files::sealed` is called for index files of sealed
        // segments alone. Nothing in this crate writes to or cuts such a file in place (it is
        // replaced by rename or unlinked, which leaves the mapped inode as it is), and the
        // directory lock keeps other owners out.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self(Held::Mapped(map)))
    }
}

impl Deref for SealedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Owned(bytes) => bytes,
            Held::Mapped(map) => map,
        }
    }
}
