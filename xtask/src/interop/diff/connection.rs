//! One connection of a conversation: frames out, frames in, and what became of it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::outcome::{Doing, Done};

/// The longest that an answer is waited for.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The longest that the end of a connection is waited for.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);
/// The largest answer that is read.
const MOST_BYTES: usize = 64 << 20;

/// A request whose answer has not come.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) id: i32,
    pub(super) api: String,
    pub(super) version: i16,
    /// Whether the request was as the definitions say.
    pub(super) regular: bool,
}

/// What was read in place of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instead {
    /// The broker ended the connection.
    Closed,
    /// Nothing came.
    Silence,
    /// Something came.
    Bytes,
}

/// A connection to one broker.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// The requests in the order of their answers.
    pub(super) asked: VecDeque<Asked>,
    next_id: i32,
    /// What is held back of a frame.
    held: Vec<u8>,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Done<Self> {
        let stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT).doing("cannot connect")?;
        stream.set_nodelay(true).doing("cannot set an option of a socket")?;
        stream.set_write_timeout(Some(ANSWER_LIMIT)).doing("cannot set a limit")?;
        Ok(Self { stream, asked: VecDeque::new(), next_id: 1, held: Vec::new() })
    }

    pub(super) fn next_id(&mut self) -> i32 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Sends what it can: a peer that has closed shows when its answer is read.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let _gone = self.stream.write_all(bytes);
    }

    /// Sends the first bytes and keeps the others for `send_rest`.
    pub(super) fn send_part(&mut self, bytes: &[u8], first: usize) {
        let (now, later) = bytes.split_at(first.min(bytes.len()));
        self.send(now);
        self.held = later.to_vec();
    }

    pub(super) fn send_rest(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.send(&held);
    }

    /// The next frame without its size.
    pub(super) fn receive(&mut self) -> Result<Vec<u8>, Instead> {
        let end = Instant::now() + ANSWER_LIMIT;
        let mut size = [0; 4];
        self.fill(&mut size, end)?;
        let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        if size > MOST_BYTES {
            return Err(Instead::Bytes);
        }
        let mut frame = vec![0; size];
        self.fill(&mut frame, end)?;
        Ok(frame)
    }

    fn fill(&mut self, buffer: &mut [u8], end: Instant) -> Result<(), Instead> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            self.limit(end.saturating_duration_since(Instant::now()));
            match self.stream.read(rest) {
                Ok(0) => return Err(Instead::Closed),
                Ok(count) => filled += count,
                Err(error) => instead(&error)?,
            }
        }
        Ok(())
    }

    fn limit(&self, limit: Duration) {
        // Zero would be no limit.
        let limit = limit.max(Duration::from_millis(1));
        let _closed = self.stream.set_read_timeout(Some(limit));
    }

    /// What comes within the time, without taking it.
    pub(super) fn peek(&self, limit: Duration) -> Instead {
        let end = Instant::now() + limit;
        loop {
            self.limit(end.saturating_duration_since(Instant::now()));
            match self.stream.peek(&mut [0; 1]) {
                Ok(0) => return Instead::Closed,
                Ok(_) => return Instead::Bytes,
                Err(error) => {
                    if let Err(instead) = instead(&error) {
                        return instead;
                    }
                }
            }
        }
    }

    /// Whether the broker ends the connection, or does something else.
    pub(super) fn closed(&self) -> Instead {
        self.peek(CLOSE_LIMIT)
    }
}

/// What an error of reading means; an interrupted read means nothing.
fn instead(error: &io::Error) -> Result<(), Instead> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(Instead::Silence),
        _ => Err(Instead::Closed),
    }
}
