//! The last bytes of a disk, which records do not get: with them groups go on, topics can be deleted
//! and logs be closed.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ottla_storage::{Files, Space};

/// Bytes after which the disk is looked at again, since others write to it, too.
const LOOK_AGAIN: u64 = 16 << 20;

/// The most that is kept free where nothing else is said.
const KEPT_MOST: u64 = 1 << 30;

/// Of the whole disk, one part in so many is kept free where nothing else is said.
const KEPT_PART: u64 = 20;

/// How much of a disk is kept free. `disk.reserve.bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// Nothing.
    None,
    /// The smaller of a part of the disk and 1 GiB.
    Part,
    /// So many bytes.
    Bytes(u64),
}

impl Reserve {
    /// By the option's value.
    pub(crate) fn of_option(value: i64) -> Self {
        match u64::try_from(value) {
            Err(_) => Self::Part,
            Ok(0) => Self::None,
            Ok(bytes) => Self::Bytes(bytes),
        }
    }

    fn of(self, space: Space) -> u64 {
        match self {
            Self::None => 0,
            Self::Part => (space.total / KEPT_PART).min(KEPT_MOST),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// What is known of a disk's room.
#[derive(Debug)]
pub(super) struct Room {
    reserve: Reserve,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that may be written before the disk is looked at again.
    left: u64,
    full: bool,
}

impl Room {
    pub(super) fn new(reserve: Reserve) -> Self {
        Self { reserve, state: Mutex::default() }
    }

    /// Whether so many more bytes of records may be written; an error says why not.
    pub(super) fn take(&self, files: &dyn Files, dir: &Path, bytes: u64) -> Result<(), Arc<str>> {
        if self.reserve == Reserve::None {
            return Ok(());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.full && bytes <= state.left {
            state.left -= bytes;
            return Ok(());
        }
        let space = match files.space(dir) {
            Ok(Some(space)) => space,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "how full the disk is cannot be read");
                return Ok(());
            }
        };
        let reserve = self.reserve.of(space);
        let above = space.free.saturating_sub(reserve);
        let full = above < bytes;
        if full != std::mem::replace(&mut state.full, full) {
            let free = space.free;
            if full {
                tracing::error!(dir = %dir.display(), free, reserve,
                    "the disk is almost full: records are refused until there is room");
            } else {
                tracing::info!(dir = %dir.display(), free, "there is room again");
            }
        }
        if full {
            return Err(format!(
                "the disk has {} bytes left, and the last {reserve} are kept free \
                 (disk.reserve.bytes); records are taken again once there is room",
                space.free
            )
            .into());
        }
        state.left = (above - bytes).min(LOOK_AGAIN);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_the_options_bytes_or_a_part_of_the_disk() {
        let disk = |total| Space { free: 0, total };
        assert_eq!(Reserve::of_option(0).of(disk(1 << 40)), 0);
        assert_eq!(Reserve::of_option(7).of(disk(1 << 40)), 7);
        assert_eq!(Reserve::of_option(-1).of(disk(1 << 40)), 1 << 30);
        assert_eq!(Reserve::of_option(-1).of(disk(2000)), 100);
    }
}
