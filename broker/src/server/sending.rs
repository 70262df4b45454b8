//! One answer on its way out: written bytes, with ranges of files in between.

use std::io;

use crate::server::counts::ReadCounts;
use crate::server::outbox::Answer;
use crate::server::page_cache::{Span, read_cached};

/// Ranges of at least so many bytes go by `sendfile`: for smaller ones its extra calls cost more
/// than copying them together with the bytes around them.
pub(crate) const SENDFILE_LEAST: usize = 64 * 1024;

/// An answer that is being sent, piece by piece.
#[derive(Debug)]
pub(crate) struct Sending {
    answer: Answer,
    /// How many written bytes are sent.
    at: usize,
    /// The range being sent, and how much of it is.
    range: usize,
    range_sent: usize,
    /// No range goes by `sendfile`: its file system cannot do that.
    copy_all: bool,
}

/// Why no more was copied.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The buffer is full, or the answer is at its end.
    Full,
    /// A range is next that need not be copied.
    File,
    /// The next bytes are on the disk only.
    Cold(Span),
}

impl Sending {
    /// Starts with the first byte.
    pub(crate) fn new(answer: Answer) -> Self {
        Self { answer, at: 0, range: 0, range_sent: 0, copy_all: false }
    }

    /// Whether all is sent.
    pub(crate) fn is_done(&self) -> bool {
        self.at == self.answer.bytes.len() && self.range == self.answer.ranges.len()
    }

    /// Copies into `out` as far as that is the way to send it; says how much, and what is next.
    pub(crate) fn fill(
        &mut self,
        out: &mut [u8],
        counts: &ReadCounts,
    ) -> io::Result<(usize, Stop)> {
        let mut filled = 0;
        while let Some(room) = out.get_mut(filled..).filter(|room| !room.is_empty()) {
            let next = self.answer.ranges.get(self.range);
            let until = next.map_or(self.answer.bytes.len(), |(at, _)| *at);
            if let Some(bytes) = self.answer.bytes.get(self.at..until).filter(|b| !b.is_empty()) {
                let count = bytes.len().min(room.len());
                let (Some(to), Some(from)) = (room.get_mut(..count), bytes.get(..count)) else {
                    break;
                };
                to.copy_from_slice(from);
                self.at += count;
                filled += count;
                continue;
            }
            if self.file_span().is_some() {
                return Ok((filled, Stop::File));
            }
            let Some(span) = self.span() else { break };
            let count = span.len.min(room.len());
            let Some(to) = room.get_mut(..count) else { break };
            match read_cached(span.file.as_ref(), to, span.position) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    counts.note_copied(read);
                    self.advance(read);
                    filled += read;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((filled, Stop::Cold(Span { len: count, ..span })));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((filled, Stop::Full))
    }

    /// The rest of the range that is next.
    fn span(&self) -> Option<Span> {
        let (_, range) = self.answer.ranges.get(self.range)?;
        let sent = u64::try_from(self.range_sent).unwrap_or(u64::MAX);
        Some(Span {
            file: range.file.clone(),
            position: range.position.saturating_add(sent),
            len: range.len - self.range_sent,
        })
    }

    /// The rest of the range that is next, if it need not be copied.
    pub(crate) fn file_span(&self) -> Option<Span> {
        let (at, range) = self.answer.ranges.get(self.range)?;
        let large = range.len >= SENDFILE_LEAST && !self.copy_all && range.file.as_fd().is_some();
        if *at == self.at && large { self.span() } else { None }
    }

    /// So many bytes of the range are sent; true if it is at its end.
    pub(crate) fn advance(&mut self, bytes: usize) -> bool {
        self.range_sent += bytes;
        let len = self.answer.ranges.get(self.range).map(|(_, range)| range.len);
        let ended = len == Some(self.range_sent);
        if ended {
            self.range += 1;
            self.range_sent = 0;
        }
        ended
    }

    /// Sends the rest by copying.
    pub(crate) fn copy_all(&mut self) {
        self.copy_all = true;
    }
}
