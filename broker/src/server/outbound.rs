//! Answers to a socket: in order, a bounded piece at a time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::driver::clock::Clock;
use crate::server::buffers::Buffers;
use crate::server::counts::ReadCounts;
use crate::server::inbound::Ended;
use crate::server::outbox::{Outbox, Piece};
use crate::server::page_cache::{Span, WARM_BYTES};
use crate::server::sending::{Sending, Stop};

/// How long a peer may take no byte of an answer that waits for it.
const STALL_DEADLINE: Duration = Duration::from_secs(30);

/// The most that one call sends from a file, so that a fast peer does not keep a thread.
const SENDFILE_MOST: usize = WARM_BYTES;

/// When the writing half ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Never by itself: requests may still come.
    Forever,
    /// All open answers are sent.
    Drained,
}

/// What there is to do.
enum Next {
    /// The buffer has bytes to send.
    Buffer,
    /// A range of a file is next.
    File,
    /// Bytes that are next are on the disk only.
    Cold(Span),
    /// Nothing; whether no answer is open.
    Nothing { drained: bool },
}

/// The writing half of a connection. Holds at most one buffer of records at a time, whatever the
/// size of an answer; large ranges of files go by `sendfile` and through no buffer at all.
#[derive(Debug)]
pub(crate) struct Outbound<'a> {
    stream: &'a TcpStream,
    outbox: &'a Arc<Outbox>,
    buffers: &'a Buffers,
    counts: &'a ReadCounts,
    clock: Clock,
    /// Borrowed while there is something to send.
    buffer: Option<Box<[u8]>>,
    /// The part of the buffer that is filled and not sent.
    unsent: std::ops::Range<usize>,
    sending: Option<Sending>,
    /// The byte up to which the file of this range was read into memory.
    warmed: u64,
    /// The connection ends once the buffer is sent.
    closing: Option<String>,
}

impl<'a> Outbound<'a> {
    /// Nothing to send yet.
    pub(crate) fn new(
        stream: &'a TcpStream,
        outbox: &'a Arc<Outbox>,
        buffers: &'a Buffers,
        counts: &'a ReadCounts,
        clock: Clock,
    ) -> Self {
        Self {
            stream,
            outbox,
            buffers,
            counts,
            clock,
            buffer: None,
            unsent: 0..0,
            sending: None,
            warmed: 0,
            closing: None,
        }
    }

    /// Sends until there is nothing more to send; an error is why the connection ends.
    ///
    /// May be dropped while it waits and called again.
    pub(crate) async fn run(&mut self, until: Until) -> Result<(), Ended> {
        loop {
            if !self.unsent.is_empty() {
                self.send().await?;
                continue;
            }
            match self.fill().map_err(unreadable)? {
                Next::Buffer => {}
                Next::File => self.send_file().await?,
                Next::Cold(span) => self.warm(span).await?,
                Next::Nothing { drained } => {
                    self.release();
                    if let Some(reason) = self.closing.take() {
                        return Err(Ended::Broken(reason));
                    }
                    if drained && until == Until::Drained {
                        return Ok(());
                    }
                    self.outbox.ready().await;
                }
            }
        }
    }

    /// Fills the buffer with what can be sent.
    fn fill(&mut self) -> io::Result<Next> {
        let mut filled = 0;
        let mut next = Next::Nothing { drained: false };
        while self.closing.is_none() {
            let Some(sending) = &mut self.sending else {
                match self.outbox.poll_piece() {
                    Piece::Answer(answer) => {
                        self.sending = Some(Sending::new(answer));
                        self.warmed = 0;
                    }
                    Piece::Close(reason) => self.closing = Some(reason),
                    Piece::Waiting => break,
                    Piece::Empty => {
                        next = Next::Nothing { drained: true };
                        break;
                    }
                }
                continue;
            };
            let buffer = self.buffer.get_or_insert_with(|| self.buffers.take());
            let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) else {
                break;
            };
            let (count, stop) = sending.fill(room, self.counts)?;
            filled += count;
            match stop {
                Stop::Full => {}
                Stop::File => next = Next::File,
                Stop::Cold(span) => next = Next::Cold(span),
            }
            if !matches!(next, Next::Nothing { .. }) {
                break;
            }
            if sending.is_done() {
                self.sending = None;
            }
        }
        self.unsent = 0..filled;
        // What is next is found again once the buffer is sent.
        Ok(if filled > 0 { Next::Buffer } else { next })
    }

    /// Sends some of a file straight from the system's page cache, waiting for the peer if need be.
    async fn send_file(&mut self) -> Result<(), Ended> {
        self.release();
        let Some(sending) = &mut self.sending else { return Ok(()) };
        let Some(span) = sending.file_span() else { return Ok(()) };
        let span = Span { len: span.len.min(SENDFILE_MOST), ..span };
        // What was read a moment ago is not asked for again: the system may keep none of it.
        if self.warmed <= span.position && !span.is_cached() {
            return self.warm(span).await;
        }
        let sent = self.stream.try_io(Interest::WRITABLE, || {
            let Some(file) = span.file.as_fd() else { return Err(Errno::INVAL.into()) };
            let mut position = span.position;
            Ok(rustix::fs::sendfile(self.stream, file, Some(&mut position), span.len)?)
        });
        match sent {
            Ok(0) => Err(unreadable(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.counts.note_sendfile(count);
                if sending.advance(count) {
                    self.warmed = 0;
                }
                if sending.is_done() {
                    self.sending = None;
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INVAL | Errno::NOSYS) => {
                    sending.copy_all();
                    Ok(())
                }
                Some(Errno::IO) => Err(unreadable(error)),
                _ => Err(error.into()),
            },
        }
    }

    /// Has bytes read from the disk that are to be sent next.
    async fn warm(&mut self, span: Span) -> Result<(), Ended> {
        self.counts.note_cold();
        let end = span.position.saturating_add(u64::try_from(span.len).unwrap_or(0));
        span.warm().await.map_err(unreadable)?;
        self.warmed = end;
        Ok(())
    }

    /// Writes some of the buffer, waiting for the peer if need be.
    async fn send(&mut self) -> Result<(), Ended> {
        let filled = self.buffer.as_ref().and_then(|buffer| buffer.get(self.unsent.clone()));
        let unsent = filled.unwrap_or_default();
        match self.stream.try_write(unsent) {
            Ok(count) => {
                self.unsent.start += count;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await,
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the peer takes more.
    async fn writable(&self) -> Result<(), Ended> {
        let deadline = self.clock.now() + STALL_DEADLINE;
        match self.clock.until(deadline, self.stream.writable()).await {
            Ok(writable) => Ok(writable?),
            Err(_elapsed) => {
                let seconds = STALL_DEADLINE.as_secs();
                Err(Ended::Broken(format!("the peer took no answer for {seconds} s")))
            }
        }
    }

    fn release(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.buffers.put(buffer);
        }
    }
}

fn unreadable(error: io::Error) -> Ended {
    Ended::Broken(format!("records of an answer cannot be read: {error}"))
}

impl Drop for Outbound<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
