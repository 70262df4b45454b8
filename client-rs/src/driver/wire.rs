//! Frames over a stream: what waits to be written, and what has come of the next answer.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ottla_protocol::Writer;
use ottla_protocol::frame::{MAX_FRAME, SIZE_LEN, frame_size};
use tokio::io::AsyncReadExt;

use super::buffers::{Buffer, Buffers};
use super::hint;
use super::transport::Stream;
use crate::error::{Error, ErrorKind};
use crate::state::machine::Body;

/// Slices of one write; Linux takes 1,024.
const SLICES_MAX: usize = 1024;
/// Room kept for what comes next.
const READ_BYTES: usize = 32 * 1024;
/// An answer of so many bytes gets a buffer of its own, and is read into it without being moved.
const LARGE_BYTES: usize = 64 * 1024;

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
    /// The large answer that is being read.
    large: Option<Large>,
    buffers: Buffers,
    /// Answers read.
    frames: u64,
}

/// An answer with a buffer of its own.
struct Large {
    size: usize,
    buffer: Buffer,
}

impl Wire {
    pub(super) fn new(stream: Box<dyn Stream>, buffers: Buffers) -> Self {
        Self {
            stream,
            queue: VecDeque::new(),
            queued: 0,
            written: 0,
            accepted: 0,
            input: BytesMut::new(),
            large: None,
            buffers,
            frames: 0,
        }
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
            match ready!(self.poll_read(cx)) {
                Ok(0) => return Poll::Ready(Err(self.closed())),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(lost(error))),
            }
        }
    }

    /// Reads what has come, of a large answer no more than belongs to it.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(Large { size, buffer }) = &mut self.large else {
            return pin!(self.stream.read_buf(&mut self.input)).poll(cx);
        };
        let missing = *size - buffer.len();
        buffer.grow(missing);
        let mut rest = buffer.data().limit(missing);
        pin!(self.stream.read_buf(&mut rest)).poll(cx)
    }

    /// A whole answer, if it is there; else makes room for more of it.
    fn take_frame(&mut self) -> Result<Option<Bytes>, Error> {
        if let Some(Large { size, buffer }) = self.large.take() {
            if buffer.len() == size {
                return Ok(Some(buffer.lend()));
            }
            self.large = Some(Large { size, buffer });
            return Ok(None);
        }
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
                self.buffers.note_small();
                return Ok(Some(self.input.split_to(size).freeze()));
            }
            if size >= LARGE_BYTES {
                let mut buffer = self.buffers.take(size);
                let begun = self.input.get(SIZE_LEN..).unwrap_or_default();
                buffer.data().extend_from_slice(begun);
                self.input.clear();
                self.large = Some(Large { size, buffer });
                return Ok(None);
            }
            wanted = wanted.max(size + SIZE_LEN - self.input.len());
        }
        if self.input.capacity() - self.input.len() < wanted {
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::runtime::Builder;

    use super::*;
    use crate::driver::buffers::Store;

    /// What a wire reads of such answers, one after the other, of a stream that holds so many bytes:
    /// they come in pieces of that, or are all there before they are read.
    fn read(answers: &[Vec<u8>], stream_bytes: usize) -> Vec<Bytes> {
        let runtime = || Builder::new_current_thread().build().unwrap();
        let (near, mut far) = duplex(stream_bytes);
        let mut wire = Wire::new(Box::new(near), Buffers::new(Store::new(8 << 20, Arc::default())));
        let written = answers.to_vec();
        let total: usize = written.iter().map(|answer| SIZE_LEN + answer.len()).sum();
        let writer = std::thread::spawn(move || {
            runtime().block_on(async {
                for answer in written {
                    far.write_i32(i32::try_from(answer.len()).unwrap()).await.unwrap();
                    far.write_all(&answer).await.unwrap();
                }
                // Else the stream would end.
                far
            })
        });
        let late = if stream_bytes < total { Ok(writer) } else { Err(writer.join()) };
        let frames = runtime().block_on(async {
            let mut frames = Vec::new();
            for _ in answers {
                frames.push(poll_fn(|cx| wire.poll_frame(cx)).await.unwrap());
            }
            frames
        });
        drop(late.map_or_else(|far| far, std::thread::JoinHandle::join).unwrap());
        frames
    }

    #[test]
    fn large_and_small_answers_come_whole_one_after_the_other() {
        let sizes = [10, LARGE_BYTES, 9, 8, 3_000_000, LARGE_BYTES - 1, 0, 200_000];
        let answers: Vec<Vec<u8>> = sizes
            .iter()
            .zip(0_u8..)
            .map(|(&size, seed)| {
                (0..size).map(|at| seed ^ u8::try_from(at % 251).unwrap()).collect()
            })
            .collect();
        for stream_bytes in [50_000, 10_000_000] {
            for (frame, answer) in read(&answers, stream_bytes).iter().zip(&answers) {
                assert!(frame == answer, "an answer of {} bytes", answer.len());
            }
        }
    }

    #[test]
    fn an_answer_larger_than_what_is_asked_for_ahead_comes_whole() {
        let answer = vec![7; 40 * 1024 * 1024];
        assert!(read(std::slice::from_ref(&answer), 50_000)[0] == answer);
    }
}
