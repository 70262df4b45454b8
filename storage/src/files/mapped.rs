//! The bytes of a file that never changes again: mapped on disk, copied from memory.

use std::ffi::c_void;
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
    /// A map, and the bytes of a page.
    Mapped(Mmap, usize),
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
        Ok(Self(Held::Mapped(map, rustix::param::page_size())))
    }

    /// Whether it is a map of a file.
    pub(super) const fn is_mapped(&self) -> bool {
        matches!(self.0, Held::Mapped(..))
    }

    /// The page that byte `at` lies in.
    pub(crate) const fn page_of(&self, at: usize) -> usize {
        match &self.0 {
            Held::Owned(_) => 0,
            Held::Mapped(_, page_bytes) => at / *page_bytes,
        }
    }

    /// Whether a page can be read without waiting for the disk; true also where the system does
    /// not tell, since then nothing better can be known.
    #[allow(unsafe_code, reason = "asking the system about a map takes its address")]
    pub(crate) fn is_resident(&self, page: usize) -> bool {
        let Held::Mapped(map, page_bytes) = &self.0 else { return true };
        let start = page.saturating_mul(*page_bytes);
        let Some(rest) = map.get(start..) else { return true };
        let len = rest.len().min(*page_bytes);
        if len == 0 {
            return true;
        }
        let mut status = 0_u8;
        let address = rest.as_ptr().cast::<c_void>().cast_mut();
        // SAFETY: `address` lies in the map, at the begin of a page since the map begins at one;
        // `len` bytes from there are mapped and are one page at most, for which the system writes
        // one byte. It does not write to the map.
        let asked = unsafe { libc::mincore(address, len, &raw mut status) };
        asked != 0 || status & 1 == 1
    }
}

impl Deref for SealedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Owned(bytes) => bytes,
            Held::Mapped(map, _) => map,
        }
    }
}
