//! Walking the batch headers of a segment, a window at a time.

use std::io;
use std::ops::ControlFlow;

use ottla_protocol::record::{Batch, BatchHeader, HEADER_LEN, batch};

use crate::files::{File, Wait};

/// Bytes read at once while headers are walked.
const WINDOW: usize = 8 * 1024;
/// Bytes read at once while whole batches are checked.
const CHUNK: usize = 1 << 20;
/// Windows that a walk reads at most where it must not wait: longer ones keep a thread that serves
/// others for too long, also where all is in memory.
const WINDOWS_AT_ONCE: usize = 64;

/// A batch and where it lies in its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) position: u64,
    pub(crate) header: BatchHeader,
}

impl Located {
    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.header.size()).unwrap_or(u64::MAX)
    }

    pub(crate) fn end(&self) -> u64 {
        self.position.saturating_add(self.size())
    }
}

/// Why a walk ends early.
#[derive(Debug)]
pub(crate) enum WalkError {
    Io(io::Error),
    /// At `position` there is no batch that could stand there.
    Bad {
        position: u64,
        offset: i64,
        what: String,
    },
}

/// Walks headers from a position to the end of a segment.
pub(crate) struct HeaderWalk<'a> {
    file: &'a dyn File,
    position: u64,
    end: u64,
    /// Least base offset that the next batch may have.
    expected: i64,
    wait: Wait,
    /// Windows that may be read where it must not wait.
    windows_left: usize,
    window: [u8; WINDOW],
    window_at: u64,
    window_len: usize,
}

impl<'a> HeaderWalk<'a> {
    /// `expected` is the least offset that the batch at `position` may begin with.
    pub(crate) const fn new(file: &'a dyn File, position: u64, end: u64, expected: i64) -> Self {
        Self {
            file,
            position,
            end,
            expected,
            wait: Wait::Disk,
            windows_left: WINDOWS_AT_ONCE,
            window: [0; WINDOW],
            window_at: 0,
            window_len: 0,
        }
    }

    /// With [`Wait::No`] it fails with `WouldBlock` in place of a wait for the disk, and where the
    /// way is long.
    pub(crate) const fn waiting(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// The next batch; `None` at the end of the segment.
    pub(crate) fn next(&mut self) -> Result<Option<Located>, WalkError> {
        if self.position >= self.end {
            return Ok(None);
        }
        self.fill().map_err(WalkError::Io)?;
        let start = usize::try_from(self.position - self.window_at).unwrap_or(WINDOW);
        let bytes = self.window.get(start..self.window_len).unwrap_or_default();
        match check_header(bytes, self.position, self.end, self.expected) {
            Ok(located) => {
                self.position = located.end();
                self.expected = located.header.next_offset();
                Ok(Some(located))
            }
            Err(what) => {
                Err(WalkError::Bad { position: self.position, offset: self.expected, what })
            }
        }
    }

    /// Has a whole header in the window, as far as the file has one.
    fn fill(&mut self) -> io::Result<()> {
        let header_end = self.position.saturating_add(u64::try_from(HEADER_LEN).unwrap_or(0));
        let have = self.window_at + u64::try_from(self.window_len).unwrap_or(0);
        if self.position >= self.window_at && header_end.min(self.end) <= have {
            return Ok(());
        }
        let want = usize::try_from(self.end - self.position).unwrap_or(WINDOW).min(WINDOW);
        self.window_at = self.position;
        self.window_len = 0;
        let Some(window) = self.window.get_mut(..want) else { return Ok(()) };
        self.window_len = match self.wait {
            Wait::Disk => self.file.read_at(window, self.position)?,
            Wait::No => {
                let left = self.windows_left.checked_sub(1);
                self.windows_left = left.ok_or(io::ErrorKind::WouldBlock)?;
                self.file.read_cached_at(window, self.position)?
            }
        };
        Ok(())
    }
}

/// The header at the front of `bytes`, if such a batch can stand at `position`.
fn check_header(bytes: &[u8], position: u64, end: u64, expected: i64) -> Result<Located, String> {
    let header = BatchHeader::parse(bytes).map_err(|fault| fault.to_string())?;
    let located = Located { position, header };
    if located.end() > end {
        return Err(format!("the batch of {} bytes passes the end of the file", located.size()));
    }
    if header.base_offset < expected {
        return Err(format!(
            "the batch begins at offset {}, but {expected} comes next",
            header.base_offset
        ));
    }
    Ok(located)
}

/// Walks whole batches from a position of a segment and checks their checksums.
///
/// Calls `each` for every good batch until it breaks. Gives the position after the last good batch.
pub(crate) fn verify(
    file: &dyn File,
    (start, end): (u64, u64),
    mut expected: i64,
    mut each: impl FnMut(&Located, &Batch<'_>) -> ControlFlow<String>,
) -> Result<u64, WalkError> {
    let mut buffer = Vec::new();
    let (mut at, mut have) = (start, 0_usize);
    let mut position = start;
    while position < end {
        let bad = |what| WalkError::Bad { position, offset: expected, what };
        let mut start = usize::try_from(position - at).unwrap_or(usize::MAX);
        let bytes = buffer.get(start..have).unwrap_or_default();
        let need = match check_header(bytes, position, end, expected) {
            Ok(located) => located.header.size(),
            Err(what) if bytes.len() >= HEADER_LEN || rest(position, end) <= bytes.len() => {
                return Err(bad(what));
            }
            Err(_) => HEADER_LEN,
        };
        if bytes.len() < need {
            let want = need.max(CHUNK).min(rest(position, end));
            buffer.resize(want.max(buffer.len()), 0);
            let into = buffer.get_mut(..want).unwrap_or_default();
            have = file.read_at(into, position).map_err(WalkError::Io)?;
            at = position;
            start = 0;
            if have < want {
                return Err(bad("the file is shorter than it was".to_owned()));
            }
            if need == HEADER_LEN {
                continue;
            }
        }
        let bytes = buffer.get(start..have).unwrap_or_default();
        let batch = Batch::parse(bytes).map_err(|fault| bad(fault.to_string()))?;
        // Left out on purpose by a build that must be found out; see `cargo xtask test gallery`.
        if !ottla_protocol::left_out("no_crc_check") {
            batch.verify_crc().map_err(|fault| bad(fault.to_string()))?;
        }
        let located = Located { position, header: batch.header };
        if let ControlFlow::Break(what) = each(&located, &batch) {
            return Err(bad(what));
        }
        position = located.end();
        expected = batch.header.next_offset();
    }
    Ok(position)
}

fn rest(position: u64, end: u64) -> usize {
    usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX)
}

/// Bytes that a search for the next good batch may check, for each byte that it looks through.
const SEARCH_FACTOR: u64 = 4;
const SEARCH_LEAST: u64 = 16 << 20;
/// Where the magic stands in a batch.
const MAGIC_AT: usize = 16;

/// What comes after a bad batch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Next {
    /// A whole batch with the right checksum.
    Good(Located),
    /// None.
    Nothing,
    /// So much looks like a batch and is none that the search was given up.
    GaveUp,
}

/// The next good batch after a bad one at `position`, of offset `least` or later.
///
/// First where the bad batch's own length says; only if there is none, at every byte, since records
/// may hold batches of their own.
pub(crate) fn next_good(
    file: &dyn File,
    (position, end): (u64, u64),
    (base, least): (i64, i64),
) -> io::Result<Next> {
    let mut head = [0; HEADER_LEN];
    let read = file.read_at(&mut head, position)?;
    if let Ok(header) = BatchHeader::parse(head.get(..read).unwrap_or_default())
        && let Some(good) = good_at(file, Located { position, header }.end(), end, least)?
    {
        return Ok(Next::Good(good));
    }
    let highest = base.saturating_add(i64::from(i32::MAX));
    let mut budget = end.saturating_sub(position).saturating_mul(SEARCH_FACTOR).max(SEARCH_LEAST);
    let mut chunk = vec![0; CHUNK];
    let mut at = position.saturating_add(1);
    while at < end {
        let want = CHUNK.min(rest(at, end));
        let Some(into) = chunk.get_mut(..want) else { break };
        let read = file.read_at(into, at)?;
        let seen = chunk.get(..read).unwrap_or_default();
        let starts = seen.len().saturating_sub(HEADER_LEN - 1);
        for start in 0..starts {
            if seen.get(start + MAGIC_AT) != Some(&batch::MAGIC.to_be_bytes()[0]) {
                continue;
            }
            let Ok(header) = BatchHeader::parse(&seen[start..]) else { continue };
            let position = at.saturating_add(u64::try_from(start).unwrap_or(u64::MAX));
            let located = Located { position, header };
            let possible = (least..=highest).contains(&header.base_offset)
                && header.last_offset() >= header.base_offset
                && located.end() <= end;
            if !possible {
                continue;
            }
            let Some(left) = budget.checked_sub(located.size()) else { return Ok(Next::GaveUp) };
            budget = left;
            if let Some(good) = good_at(file, position, end, least)? {
                return Ok(Next::Good(good));
            }
        }
        if starts == 0 {
            break;
        }
        at = at.saturating_add(u64::try_from(starts).unwrap_or(u64::MAX));
    }
    Ok(Next::Nothing)
}

/// The whole, good batch of offset `least` or later that begins at `position`.
pub(crate) fn good_at(
    file: &dyn File,
    position: u64,
    end: u64,
    least: i64,
) -> io::Result<Option<Located>> {
    let mut head = [0; HEADER_LEN];
    let read = file.read_at(&mut head, position)?;
    let Ok(header) = BatchHeader::parse(head.get(..read).unwrap_or_default()) else {
        return Ok(None);
    };
    let located = Located { position, header };
    if located.end() > end || header.base_offset < least {
        return Ok(None);
    }
    let mut bytes = vec![0; header.size()];
    file.read_exact_at(&mut bytes, position)?;
    let good = Batch::parse(&bytes).is_ok_and(|batch| batch.verify_crc().is_ok());
    Ok(good.then_some(located))
}
