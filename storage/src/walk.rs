//! Walking the batch headers of a segment, a window at a time.

use std::io;
use std::ops::ControlFlow;

use ottla_protocol::record::{Batch, BatchHeader, HEADER_LEN};

use crate::files::File;

/// Bytes read at once while headers are walked.
const WINDOW: usize = 8 * 1024;
/// Bytes read at once while whole batches are checked.
const CHUNK: usize = 1 << 20;

/// A batch and where it lies in its segment.
#[derive(Debug, Clone, Copy)]
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
    window: [u8; WINDOW],
    window_at: u64,
    window_len: usize,
}

impl<'a> HeaderWalk<'a> {
    /// `expected` is the least offset that the batch at `position` may begin with.
    pub(crate) const fn new(file: &'a dyn File, position: u64, end: u64, expected: i64) -> Self {
        let window = [0; WINDOW];
        Self { file, position, end, expected, window, window_at: 0, window_len: 0 }
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
        self.window_len = self.file.read_at(window, self.position)?;
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

/// Walks whole batches from the start of a segment and checks their checksums.
///
/// Calls `each` for every good batch until it breaks. Gives the position after the last good batch.
pub(crate) fn verify(
    file: &dyn File,
    end: u64,
    mut expected: i64,
    mut each: impl FnMut(&Located, &Batch<'_>) -> ControlFlow<String>,
) -> Result<u64, WalkError> {
    let mut buffer = Vec::new();
    let (mut at, mut have) = (0_u64, 0_usize);
    let mut position = 0_u64;
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
        batch.verify_crc().map_err(|fault| bad(fault.to_string()))?;
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
