//! What of a file is in memory, and how the rest gets there without a network thread waiting for
//! the disk.

use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ottla_storage::File;
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::driver::aside::aside;

/// Bytes that are read into memory in one go.
pub(crate) const WARM_BYTES: usize = 1024 * 1024;

/// Bytes behind those that the disk is told to read, too.
const AHEAD_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of a read whose only end is that the page is in memory.
const SCRATCH_BYTES: usize = 64 * 1024;

/// A part of a file.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    /// The file, which stays open.
    pub(crate) file: Arc<dyn File>,
    /// The first byte.
    pub(crate) position: u64,
    /// How many.
    pub(crate) len: usize,
}

impl Span {
    /// Whether it can be read without waiting for the disk, judged by its first and its last page.
    ///
    /// Also where the file system does not tell: then nothing better can be known.
    pub(crate) fn is_cached(&self) -> bool {
        let Some(fd) = self.file.as_fd() else { return true };
        let last = u64::try_from(self.len.saturating_sub(1)).unwrap_or(0);
        has_page(fd, self.position) && has_page(fd, self.position.saturating_add(last))
    }

    /// Reads it into memory, on a thread that may wait for the disk, and has the disk go on with
    /// what comes after it.
    pub(crate) async fn warm(self) -> io::Result<()> {
        let read = aside(move || {
            if let (Some(fd), Some(ahead)) = (self.file.as_fd(), NonZeroU64::new(AHEAD_BYTES)) {
                let end = self.position.saturating_add(u64::try_from(self.len).unwrap_or(0));
                // Advice: where it is not taken, reads are only slower.
                let _taken = fadvise(fd, end, Some(ahead), Advice::WillNeed).is_ok();
            }
            let mut scratch = vec![0; SCRATCH_BYTES.min(self.len)];
            let (mut position, mut left) = (self.position, self.len);
            while left > 0 {
                let want = left.min(scratch.len());
                let read =
                    self.file.read_at(scratch.get_mut(..want).unwrap_or_default(), position)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                left -= read;
                position = position.saturating_add(u64::try_from(read).unwrap_or(0));
            }
            Ok(())
        });
        read.await.map_err(io::Error::other)?
    }
}

/// Reads what is in memory of the bytes at `position`, at least one; `WouldBlock` if none is.
pub(crate) fn read_cached(file: &dyn File, into: &mut [u8], position: u64) -> io::Result<usize> {
    let Some(fd) = file.as_fd() else { return file.read_at(into, position) };
    match read_now(fd, into, position) {
        Err(Errno::AGAIN) => Err(io::ErrorKind::WouldBlock.into()),
        // The file system cannot tell: all that is left is to wait.
        Err(Errno::OPNOTSUPP | Errno::INVAL) => file.read_at(into, position),
        read => Ok(read?),
    }
}

fn read_now(fd: impl AsFd, into: &mut [u8], position: u64) -> Result<usize, Errno> {
    loop {
        let read = preadv2(&fd, &mut [IoSliceMut::new(into)], position, ReadWriteFlags::NOWAIT);
        if read != Err(Errno::INTR) {
            return read;
        }
    }
}

fn has_page(fd: BorrowedFd<'_>, position: u64) -> bool {
    read_now(fd, &mut [0], position) != Err(Errno::AGAIN)
}
