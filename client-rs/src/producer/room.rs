//! Waiting for room without blocking a thread.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::driver::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::process::Process;
use crate::state::accumulator::Accumulator;
use crate::state::accumulator::memory::Place;
use crate::state::parker::Sleeper;

/// Bytes that a record takes beside its key, value and headers, at most.
const OVERHEAD: usize = 128;

/// How long room is kept for who has waited for it, and may have given up.
const KEPT: Duration = Duration::from_millis(100);

/// A future that is ready when there is room for a record.
pub struct Room {
    face: Arc<Accumulator>,
    process: Process,
    bytes: usize,
    max_block: Duration,
    place: Option<Place>,
    /// Since when it waits.
    waits_since: Option<Instant>,
}

impl Room {
    pub(crate) fn new(
        (face, process): (Arc<Accumulator>, Process),
        bytes: usize,
        max_block: Duration,
    ) -> Self {
        let bytes = face.memory.chunk_for(bytes.saturating_add(OVERHEAD));
        Self { face, process, bytes, max_block, place: None, waits_since: None }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(since) = self.waits_since {
            self.face.counters.note_wait(clock::now().saturating_duration_since(since));
        }
    }
}

impl Future for Room {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.process.check()?;
        if this.face.is_refusing() {
            return Poll::Ready(Err(this.face.refusal()));
        }
        if this.bytes > this.face.memory.total() {
            let text = "the record is larger than `buffer.memory`";
            let error = Error::new(ErrorKind::RecordTooLarge, text);
            return Poll::Ready(Err(error.with_outcome(Outcome::NotSent)));
        }
        let fresh = this.place.is_none();
        let (memory, now) = (&this.face.memory, clock::now());
        let by = now + this.max_block;
        let place = this.place.get_or_insert_with(|| memory.queue(this.bytes, Some(by)));
        if place.poll(Sleeper::Task(cx.waker().clone())) {
            if let Some(place) = this.place.take() {
                place.leave_room(now + KEPT);
                if memory.is_awaited() {
                    // Somebody must see when it was left in vain.
                    this.face.wake.wake();
                }
            }
            return Poll::Ready(Ok(()));
        }
        // Its last wake may have come before there was anybody to wake.
        if this.face.is_refusing() {
            return Poll::Ready(Err(this.face.refusal()));
        }
        if place.is_expired() {
            let text = "there was no room for the record within `max.block.ms`";
            let error = Error::new(ErrorKind::BufferFull, text);
            return Poll::Ready(Err(error.with_outcome(Outcome::NotSent)));
        }
        if fresh {
            this.waits_since = Some(now);
            // What is written already must go out for room to come.
            this.face.wake.wake();
        }
        Poll::Pending
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
