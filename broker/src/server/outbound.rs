//! Answers to a socket: in order, a bounded piece at a time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::driver::clock::Clock;
use crate::server::buffers::Buffers;
use crate::server::inbound::Ended;
use crate::server::outbox::{Outbox, Piece, Sending};

/// How long a peer may take no byte of an answer that waits for it.
const STALL_DEADLINE: Duration = Duration::from_secs(30);

/// When the writing half ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Never by itself: requests may still come.
    Forever,
    /// All open answers are sent.
    Drained,
}

/// The writing half of a connection. Holds at most one buffer of records at a time, whatever the
/// size of an answer.
#[derive(Debug)]
pub(crate) struct Outbound<'a> {
    stream: &'a TcpStream,
    outbox: &'a Arc<Outbox>,
    buffers: &'a Buffers,
    clock: Clock,
    /// Borrowed while there is something to send.
    buffer: Option<Box<[u8]>>,
    /// The part of the buffer that is filled and not sent.
    unsent: std::ops::Range<usize>,
    sending: Option<Sending>,
    /// The connection ends once the buffer is sent.
    closing: Option<String>,
}

impl<'a> Outbound<'a> {
    /// Nothing to send yet.
    pub(crate) fn new(
        stream: &'a TcpStream,
        outbox: &'a Arc<Outbox>,
        buffers: &'a Buffers,
        clock: Clock,
    ) -> Self {
        Self {
            stream,
            outbox,
            buffers,
            clock,
            buffer: None,
            unsent: 0..0,
            sending: None,
            closing: None,
        }
    }

    /// Sends until there is nothing more to send; an error is why the connection ends.
    ///
    /// May be dropped while it waits and called again.
    pub(crate) async fn run(&mut self, until: Until) -> Result<(), Ended> {
        loop {
            if self.unsent.is_empty() {
                let drained = self.fill().map_err(|error| {
                    Ended::Broken(format!("records of an answer cannot be read: {error}"))
                })?;
                if self.unsent.is_empty() {
                    self.release();
                    if let Some(reason) = self.closing.take() {
                        return Err(Ended::Broken(reason));
                    }
                    if drained && until == Until::Drained {
                        return Ok(());
                    }
                    self.outbox.ready().await;
                    continue;
                }
            }
            self.send().await?;
        }
    }

    /// Fills the buffer with what can be sent; true if no answer is open.
    fn fill(&mut self) -> io::Result<bool> {
        let mut filled = 0;
        let mut drained = false;
        while self.closing.is_none() {
            let Some(sending) = &mut self.sending else {
                match self.outbox.poll_piece() {
                    Piece::Answer(answer) => self.sending = Some(Sending::new(answer)),
                    Piece::Close(reason) => self.closing = Some(reason),
                    Piece::Waiting => break,
                    Piece::Empty => {
                        drained = true;
                        break;
                    }
                }
                continue;
            };
            let buffer = self.buffer.get_or_insert_with(|| self.buffers.take());
            let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) else {
                break;
            };
            let count = sending.fill(room)?;
            filled += count;
            if sending.is_done() {
                self.sending = None;
            }
        }
        self.unsent = 0..filled;
        Ok(drained)
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
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let deadline = self.clock.now() + STALL_DEADLINE;
                match self.clock.until(deadline, self.stream.writable()).await {
                    Ok(writable) => Ok(writable?),
                    Err(_elapsed) => {
                        let seconds = STALL_DEADLINE.as_secs();
                        let reason = format!("the peer took no answer for {seconds} s");
                        Err(Ended::Broken(reason))
                    }
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn release(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.buffers.put(buffer);
        }
    }
}

impl Drop for Outbound<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
