//! Waiting for room without blocking a thread.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::driver::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::health::Vitals;
use crate::process::Process;
use crate::state::accumulator::Accumulator;
use crate::state::accumulator::memory::{Memory, Place};
use crate::state::parker::Sleeper;

/// Bytes that a record takes beside its key, value and headers, at most.
const OVERHEAD: usize = 128;

/// How long room is kept for who has waited for it, and may have given up.
const KEPT: Duration = Duration::from_millis(100);

/// Bytes of records that may wait outside of the buffer, if `buffer.memory` is not more.
const OUTSIDE_BYTES_MIN: usize = 16 * 1024 * 1024;

/// What is counted for a record that waits outside, beside its bytes: what a language keeps for it.
const OUTSIDE_RECORD: usize = 1024;

/// A future that is ready when there is room for a record.
///
/// It may be polled again when somebody else has taken the room, or for the next record
/// ([`Room::for_next`]): then it waits once more, for what is left of its time.
pub struct Room {
    face: Arc<Accumulator>,
    process: Process,
    bytes: usize,
    max_block: Duration,
    place: Option<Place>,
    /// When its time is over; the first poll says so.
    by: Option<Instant>,
    /// Since when it waits.
    waits_since: Option<Instant>,
    vitals: Option<Arc<Vitals>>,
}

impl Room {
    pub(crate) fn new(
        (face, process): (Arc<Accumulator>, Process),
        bytes: usize,
        max_block: Duration,
    ) -> Self {
        let bytes = face.memory.chunk_for(bytes.saturating_add(OVERHEAD));
        let (place, by, waits_since, vitals) = (None, None, None, None);
        Self { face, process, bytes, max_block, place, by, waits_since, vitals }
    }

    /// Has it say why no broker can be reached, as the client's connections tell it.
    pub(super) fn of_client(mut self, vitals: Option<Arc<Vitals>>) -> Self {
        self.vitals = vitals;
        self
    }

    /// Has its time run from now on, and not from its first poll: for who waits for something else
    /// before.
    #[must_use]
    pub fn begun(mut self) -> Self {
        self.by = Some(clock::now() + self.max_block);
        self
    }

    /// Has its time be over in so long, and after `max.block.ms` at the latest: for who has waited
    /// for something else before.
    #[must_use]
    pub fn within(mut self, left: Duration) -> Self {
        self.by = Some(clock::now() + left.min(self.max_block));
        self
    }

    /// Waits for room for a record of so many bytes from now on, for what is left of its time: so
    /// that all records of a call have `max.block.ms` together. When that is over, room that is
    /// there is still given.
    pub fn for_next(&mut self, bytes: usize) {
        self.bytes = self.face.memory.chunk_for(bytes.saturating_add(OVERHEAD));
        self.place = None;
    }

    /// Counts a wait that has ended.
    fn note_wait(&mut self) {
        if let Some(since) = self.waits_since.take() {
            self.face.counters.note_wait(clock::now().saturating_duration_since(since));
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.note_wait();
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
            return Poll::Ready(Err(too_large()));
        }
        let fresh = this.place.is_none();
        let (memory, now) = (&this.face.memory, clock::now());
        let by = *this.by.get_or_insert(now + this.max_block);
        let place = this.place.get_or_insert_with(|| memory.queue(this.bytes, Some(by)));
        if place.poll(Sleeper::Task(cx.waker().clone())) {
            if let Some(place) = this.place.take() {
                place.leave_room(now + KEPT);
                if memory.is_awaited() {
                    // Somebody must see when it was left in vain.
                    this.face.wake.wake();
                }
            }
            this.note_wait();
            return Poll::Ready(Ok(()));
        }
        // Its last wake may have come before there was anybody to wake.
        if this.face.is_refusing() {
            return Poll::Ready(Err(this.face.refusal()));
        }
        if by <= now || place.is_expired() {
            this.place = None;
            this.note_wait();
            return Poll::Ready(Err(late(&this.face.memory, this.vitals.as_deref())));
        }
        if fresh {
            this.waits_since.get_or_insert(now);
            // What is written already must go out for room to come.
            this.face.wake.wake();
        }
        Poll::Pending
    }
}

/// The error of a record for which there is no room, with how the buffer stands.
pub(super) fn full(memory: &Memory, text: &str) -> Error {
    let hint = format!(
        "{} of {} bytes of `buffer.memory` hold records not yet delivered",
        memory.used(),
        memory.total()
    );
    Error::new(ErrorKind::BufferFull, text).with_outcome(Outcome::NotSent).with_hint(hint)
}

/// The error of a wait for room that was in vain; with the reason, if no broker can be reached.
pub(super) fn late(memory: &Memory, vitals: Option<&Vitals>) -> Error {
    let error = full(memory, "there was no room for the record within `max.block.ms`");
    match vitals.and_then(Vitals::cut_off) {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}

fn too_large() -> Error {
    let text = "the record is larger than `buffer.memory`";
    Error::new(ErrorKind::RecordTooLarge, text).with_outcome(Outcome::NotSent)
}

/// A record that a face keeps outside of the buffer while it waits for room, counted until this is
/// dropped. From [`Producer::queue`](super::Producer::queue).
#[derive(Debug)]
pub struct Queued {
    outside: Arc<AtomicUsize>,
    bytes: usize,
}

impl Queued {
    /// Counts a record of so many bytes, for a buffer of `memory` bytes.
    pub(super) fn new(
        outside: &Arc<AtomicUsize>,
        record: usize,
        memory: usize,
    ) -> Result<Self, Error> {
        if record > memory {
            return Err(too_large());
        }
        let (bytes, most) = (record.saturating_add(OUTSIDE_RECORD), memory.max(OUTSIDE_BYTES_MIN));
        let fits = |waiting: usize| waiting.checked_add(bytes).filter(|&sum| sum <= most);
        let before = outside.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
        before.map(|_| Self { outside: Arc::clone(outside), bytes }).map_err(|waiting| {
            let text = "there is no room for the record, and others wait for room already";
            Error::new(ErrorKind::BufferFull, text)
                .with_outcome(Outcome::NotSent)
                .with_hint(format!("records of {waiting} bytes wait, and {most} bytes may"))
        })
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.outside.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

    use std::task::Waker;

    use super::*;
    use crate::config::{Options, ProducerConfig};

    const KIB: usize = 1024;
    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn who_was_given_room_that_another_took_waits_only_for_the_rest_of_its_time() {
        let options = Options::new().set("bootstrap.servers", "127.0.0.1:1").unwrap();
        let config = ProducerConfig::new(&options.set("buffer.memory", "32768").unwrap()).unwrap();
        let face = Accumulator::new(&config, Arc::default());
        let mut room = Room::new((Arc::clone(&face), Process::current()), 20_000, HOUR);
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = || Pin::new(&mut room).poll(&mut cx);
        assert!(matches!(poll(), Poll::Ready(Ok(()))));
        let by = clock::now() + HOUR;
        let taken = face.memory.take_left().unwrap();
        while clock::now() + HOUR <= by {
            std::hint::spin_loop();
        }
        assert!(poll().is_pending());
        face.memory.expire(by);
        assert!(matches!(poll(), Poll::Ready(Err(late)) if late.kind() == ErrorKind::BufferFull));
        drop(taken);
    }

    #[test]
    fn all_records_of_a_call_have_one_time_together_and_then_still_the_room_that_is_there() {
        let options = Options::new().set("bootstrap.servers", "127.0.0.1:1").unwrap();
        let config = ProducerConfig::new(&options.set("buffer.memory", "65536").unwrap()).unwrap();
        let face = Accumulator::new(&config, Arc::default());
        let mut cx = Context::from_waker(Waker::noop());
        let room = |time| Room::new((Arc::clone(&face), Process::current()), 40_000, time);
        // The first has room, and takes it: the second finds none, and none comes in time.
        let mut waits = room(HOUR).begun();
        let by = waits.by.unwrap();
        assert!(matches!(Pin::new(&mut waits).poll(&mut cx), Poll::Ready(Ok(()))));
        let taken = face.memory.take_left().unwrap();
        waits.for_next(30_000);
        assert!(Pin::new(&mut waits).poll(&mut cx).is_pending());
        assert_eq!(face.memory.expire(by.checked_sub(HOUR).unwrap()), Some(by));
        face.memory.expire(by);
        let Poll::Ready(Err(late)) = Pin::new(&mut waits).poll(&mut cx) else { panic!("it waits") };
        assert_eq!(late.kind(), ErrorKind::BufferFull);
        // Of a time that is over nothing is left for those behind it: none waits any more.
        let mut over = room(Duration::ZERO).begun();
        for bytes in [30_000, 20_000, 40_000] {
            over.for_next(bytes);
            let polled = Pin::new(&mut over).poll(&mut cx);
            assert!(
                matches!(polled, Poll::Ready(Err(late)) if late.kind() == ErrorKind::BufferFull)
            );
        }
        assert!(!face.memory.is_awaited());
        drop(taken);
        over.for_next(30_000);
        assert!(matches!(Pin::new(&mut over).poll(&mut cx), Poll::Ready(Ok(()))));
    }

    #[test]
    fn what_waits_outside_of_the_buffer_takes_no_more_than_the_buffer_may() {
        let (outside, memory) = (Arc::default(), 32 * 1024 * KIB);
        // With what is counted beside it, each is half of what may wait.
        let half = memory / 2 - OUTSIDE_RECORD;
        let first = Queued::new(&outside, half, memory).unwrap();
        let second = Queued::new(&outside, half, memory).unwrap();
        let refused = Queued::new(&outside, 0, memory).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BufferFull);
        assert_eq!(refused.outcome(), Some(Outcome::NotSent));
        drop(first);
        Queued::new(&outside, half + 1, memory).unwrap_err();
        let third = Queued::new(&outside, half, memory).unwrap();
        drop((second, third));
        assert_eq!(outside.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn behind_a_small_buffer_sixteen_mebibytes_may_wait_and_records_of_no_bytes_count_too() {
        let outside = Arc::default();
        let waiting: Vec<_> = (0..16 * KIB).map(|_| Queued::new(&outside, 0, 1).unwrap()).collect();
        Queued::new(&outside, 0, 1).unwrap_err();
        drop(waiting);
    }

    #[test]
    fn a_record_that_can_never_have_room_does_not_wait_for_it() {
        let memory = 64 * KIB;
        Queued::new(&Arc::default(), memory, memory).unwrap();
        let refused = Queued::new(&Arc::default(), memory + 1, memory).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::RecordTooLarge);
    }
}
