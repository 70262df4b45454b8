//! Frames over a stream: what waits to be written, and what has come of the next answer.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use ottla_protocol::Writer;
use ottla_protocol::frame::{MAX_FRAME, SIZE_LEN, frame_size};
use tokio::io::AsyncReadExt;

use super::hint;
use super::transport::Stream;
use crate::error::{Error, ErrorKind};
use crate::state::machine::Body;

/// Slices of one write; Linux takes 1,024.
const SLICES_MAX: usize = 1024;
/// Room kept for what comes next.
const READ_BYTES: usize = 32 * 1024;
/// An answer's buffer grows by at most so much before bytes have come to fill it, so that a length
/// alone cannot take memory.
const GROW_BYTES: usize = 1024 * 1024;

/// A stream with what is on its way in both directions.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    queue: VecDeque<Bytes>,
    queued: usize,
    /// Bytes handed to the stream since it was opened.
    written: u64,
    /// Bytes put into the queue since it was opened.
    accepted: u64,
    input: BytesMut,
    /// Answers read.
    frames: u64,
}

impl Wire {
    pub(crate) fn new(stream: Box<dyn Stream>) -> Self {
        let (queue, input) = (VecDeque::new(), BytesMut::new());
        Self { stream, queue, queued: 0, written: 0, accepted: 0, input, frames: 0 }
    }

    /// Bytes that wait to be written.
    pub(crate) const fn queued(&self) -> usize {
        self.queued
    }

    /// Bytes handed to the stream since it was opened.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    /// Bytes put into the queue since it was opened: where the next frame starts.
    pub(crate) const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Queues a frame: what was written, with the body's own bytes at its cuts.
    pub(crate) fn push(&mut self, writer: Writer, body: &dyn Body) {
        let (bytes, cuts) = writer.into_parts();
        let bytes = Bytes::from(bytes);
        let mut from = 0;
        for (index, cut) in cuts.iter().enumerate() {
            self.push_slice(bytes.slice(from..cut.at));
            from = cut.at;
            let mut total = 0;
            for piece in body.detached(index) {
                total += piece.len();
                self.push_slice(piece.clone());
            }
            debug_assert_eq!(total, cut.len, "as many bytes go into a cut as its length says");
        }
        self.push_slice(bytes.slice(from..));
    }

    fn push_slice(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.queued += slice.len();
            self.accepted += u64::try_from(slice.len()).unwrap_or(0);
            self.queue.push_back(slice);
        }
    }

    /// Takes back what is in the queue: one frame, of which nothing is written.
    pub(crate) fn take_back(&mut self) {
        self.accepted -= u64::try_from(self.queued).unwrap_or(0);
        self.queue.clear();
        self.queued = 0;
    }

    /// Writes as much as the stream takes; ready when all is written.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while !self.queue.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                self.queue.iter().take(SLICES_MAX).map(|slice| IoSlice::new(slice)).collect();
            let stream = Pin::new(&mut *self.stream);
            match ready!(stream.poll_write_vectored(cx, &slices)) {
                Ok(0) => return Poll::Ready(Err(lost(io::ErrorKind::WriteZero.into()))),
                Ok(count) => self.advance(count),
                Err(error) => return Poll::Ready(Err(lost(error))),
            }
        }
        match ready!(Pin::new(&mut *self.stream).poll_flush(cx)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(lost(error))),
        }
    }

    fn advance(&mut self, mut count: usize) {
        self.queued = self.queued.saturating_sub(count);
        self.written += u64::try_from(count).unwrap_or(0);
        while let Some(front) = self.queue.front_mut() {
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.queue.pop_front();
        }
    }

    /// The next answer, without its size.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Error>> {
        loop {
            match self.take_frame() {
                Ok(Some(frame)) => {
                    self.frames += 1;
                    return Poll::Ready(Ok(frame));
                }
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            let read = pin!(self.stream.read_buf(&mut self.input));
            match ready!(read.poll(cx)) {
                Ok(0) => return Poll::Ready(Err(self.closed())),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(lost(error))),
            }
        }
    }

    /// A whole answer, if it is there; else makes room for more of it.
    fn take_frame(&mut self) -> Result<Option<Bytes>, Error> {
        let mut wanted = READ_BYTES;
        if let Some(prefix) = self.input.first_chunk::<SIZE_LEN>() {
            let size = frame_size(*prefix, MAX_FRAME).map_err(|error| {
                let fault = Error::new(ErrorKind::Protocol, "what the broker sends is no answer");
                match hint::for_garbage(&self.input) {
                    Some(hint) => fault.with_hint(hint),
                    None => fault,
                }
                .with_source(error)
            })?;
            if self.input.len() - SIZE_LEN >= size {
                self.input.advance(SIZE_LEN);
                return Ok(Some(self.input.split_to(size).freeze()));
            }
            let missing = size + SIZE_LEN - self.input.len();
            wanted = missing.min(self.input.len().max(GROW_BYTES));
        }
        if self.input.capacity() - self.input.len() < wanted.min(READ_BYTES) {
            self.input.reserve(wanted);
        }
        Ok(None)
    }

    fn closed(&self) -> Error {
        let error = Error::new(ErrorKind::Disconnected, "the broker closed the connection");
        if self.frames == 0 { error.with_hint(hint::CLOSED_AT_ONCE) } else { error }
    }
}

fn lost(error: io::Error) -> Error {
    Error::new(ErrorKind::Disconnected, "the connection to the broker is lost").with_source(error)
}
