//! Requests from a socket: whole frames, within the budget and within a deadline.

use std::io;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, BytesMut};
use tokio::net::TcpStream;

use crate::driver::clock::Clock;
use crate::server::budget::{Charge, RequestBudget, SMALL_FRAME, STEP};
use crate::server::first_bytes::what_came;

/// Bytes of the size field.
const SIZE_BYTES: usize = 4;

/// The least room for a read whose size is not known yet.
const LEAST_READ: usize = 4 * 1024;

/// The most room made at once, since bytes that are announced need not come. What is read into it
/// is charged before.
const MOST_AHEAD: usize = 1024 * 1024;

/// How long a request may wait for room in the budget. By then its client has given it up: Kafka's
/// clients do so after `request.timeout.ms`, 30 s.
const ROOM_DEADLINE: Duration = Duration::from_secs(30);

/// One request as it came.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Header and body, without the size field. Nothing else refers to these bytes.
    pub(crate) bytes: BytesMut,
    /// What the frame takes of the budget.
    pub(crate) charge: Charge,
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The peer closed between two requests.
    Closed,
    /// The peer has sent nothing for as long as it may.
    Idle,
    /// The connection failed, as connections do.
    Lost(io::Error),
    /// The peer broke a rule; the text says which.
    Broken(String),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// How long a connection may wait for what its peer sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For its first request.
    pub(crate) first: Duration,
    /// For the next one.
    pub(crate) idle: Duration,
    /// For a request, from its first byte to its last, while we read.
    pub(crate) request: Duration,
}

/// The reading half of a connection.
#[derive(Debug)]
pub(crate) struct Inbound<'a> {
    stream: &'a TcpStream,
    budget: &'a RequestBudget,
    clock: Clock,
    max_frame: usize,
    patience: Patience,
    /// No request has come yet.
    is_new: bool,
    buffer: BytesMut,
    /// Bytes that the first read of a frame takes, after the last frame's size. Nobody is charged
    /// for them, so there are no more than the system itself keeps for a connection.
    room: usize,
}

impl<'a> Inbound<'a> {
    /// Nothing read yet.
    pub(crate) fn new(
        stream: &'a TcpStream,
        budget: &'a RequestBudget,
        clock: Clock,
        max_frame: usize,
        patience: Patience,
    ) -> Self {
        let buffer = BytesMut::new();
        let is_new = true;
        Self { stream, budget, clock, max_frame, patience, is_new, buffer, room: LEAST_READ }
    }

    /// The next frame.
    pub(crate) async fn next_frame(&mut self) -> Result<Frame, Ended> {
        let mut deadline = None;
        while self.buffer.len() < SIZE_BYTES {
            let until = if self.buffer.is_empty() {
                // An idle connection holds no buffer.
                self.buffer = BytesMut::new();
                let wait = if self.is_new { self.patience.first } else { self.patience.idle };
                self.clock.now() + wait
            } else {
                *deadline.get_or_insert_with(|| self.clock.now() + self.patience.request)
            };
            self.read(self.room, self.room, until).await?;
        }
        let size = self.size()?;
        let Some(mut charge) = self.budget.account(size) else {
            let reason = format!("a request of {size} bytes is above queued.max.request.bytes");
            return Err(Ended::Broken(reason));
        };
        let deadline = deadline.unwrap_or_else(|| self.clock.now() + self.patience.request);
        let bytes = self.body(size, &mut charge, deadline).await?;
        self.room = size.clamp(LEAST_READ, SMALL_FRAME) + SIZE_BYTES;
        self.is_new = false;
        Ok(Frame { bytes, charge })
    }

    /// The announced size of the frame that the buffer begins with.
    fn size(&self) -> Result<usize, Ended> {
        let prefix = self.buffer.first_chunk::<SIZE_BYTES>().copied().unwrap_or_default();
        let size = i32::from_be_bytes(prefix);
        let fits = usize::try_from(size).ok().filter(|size| *size <= self.max_frame);
        fits.ok_or_else(|| Ended::Broken(what_came(prefix, self.max_frame)))
    }

    /// Waits for the rest of a frame, and takes its bytes from the budget: a large one's as they
    /// arrive, a small one's when it is whole.
    async fn body(
        &mut self,
        size: usize,
        charge: &mut Charge,
        mut deadline: Instant,
    ) -> Result<BytesMut, Ended> {
        loop {
            let arrived = self.buffer.len().saturating_sub(SIZE_BYTES).min(size);
            let next = if size <= SMALL_FRAME { size } else { size.min(arrived + STEP) };
            if (size > SMALL_FRAME || arrived == size) && !charge.try_reach(next) {
                self.wait_for_room(charge, next).await?;
                // The wait was ours, not the client's.
                deadline = self.clock.now() + self.patience.request;
            }
            if arrived == size {
                self.buffer.advance(SIZE_BYTES);
                return Ok(self.buffer.split_to(size));
            }
            let left = size - arrived;
            // Room for all of it, so that the bytes are not moved again; for a very large one as
            // much again as has come.
            let ahead = left.min(MOST_AHEAD.max(arrived));
            self.read(ahead, next - arrived, deadline).await?;
        }
    }

    async fn wait_for_room(&self, charge: &mut Charge, bytes: usize) -> Result<(), Ended> {
        let deadline = self.clock.now() + ROOM_DEADLINE;
        self.clock.until(deadline, charge.reach(bytes)).await.map_err(|_elapsed| {
            let seconds = ROOM_DEADLINE.as_secs();
            Ended::Broken(format!(
                "no room for a request within {seconds} s: others hold all of \
                 queued.max.request.bytes"
            ))
        })
    }

    /// Reads what is there, at least a byte and at most so many, and has room for `room` if the
    /// buffer must grow.
    async fn read(&mut self, room: usize, most: usize, deadline: Instant) -> Result<(), Ended> {
        loop {
            if self.buffer.capacity() - self.buffer.len() < room.min(LEAST_READ) {
                self.buffer.reserve(room);
            }
            match self.stream.try_read_buf(&mut (&mut self.buffer).limit(most)) {
                Ok(0) if self.buffer.is_empty() => return Err(Ended::Closed),
                Ok(0) => {
                    let reason =
                        format!("the peer closed after {} bytes of a request", self.buffer.len());
                    return Err(Ended::Broken(reason));
                }
                Ok(_read) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if self.buffer.is_empty() {
                // An idle connection holds no buffer.
                self.buffer = BytesMut::new();
            }
            match self.clock.until(deadline, self.stream.readable()).await {
                Ok(readable) => readable?,
                Err(_elapsed) => return Err(self.late()),
            }
        }
    }

    /// What has come by its deadline is too little.
    fn late(&self) -> Ended {
        let wait = |wait: Duration| wait.as_millis();
        if !self.buffer.is_empty() {
            let ms = wait(self.patience.request);
            return Ended::Broken(format!(
                "a request did not come whole within {ms} ms: socket.request.max.ms"
            ));
        }
        if self.is_new {
            let ms = wait(self.patience.first);
            return Ended::Broken(format!(
                "no request came within {ms} ms: connections.first.request.max.ms"
            ));
        }
        Ended::Idle
    }
}
