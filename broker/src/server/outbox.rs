//! The answers of one connection: given in any order, sent in the order of the requests.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_protocol::frame::encode_response;
use ottla_protocol::{ApiKey, Response, Writer};
use ottla_storage::ReadRange;
use tokio::sync::Notify;

/// The most requests of one connection that may wait for their answer.
pub(crate) const OPEN_ANSWERS: usize = 64;

/// The most bytes of answers that may wait to be sent before a connection takes no more requests.
/// Records do not count: they are read from their files as they are sent.
pub(crate) const READY_BYTES: usize = 4 * 1024 * 1024;

/// The most bytes of answers that may wait in all connections, before those that have any waiting
/// take no more requests.
const READY_BYTES_IN_ALL: usize = 64 * 1024 * 1024;

/// Bytes of answers that are in memory, in all connections of a broker.
pub(crate) type HeldBytes = Arc<AtomicUsize>;

/// Room that is left for an answer's header and body before it is written.
const ANSWER_BYTES: usize = 256;

/// A frame to send: written bytes, with ranges of files in between.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The bytes, size field first.
    pub(crate) bytes: Vec<u8>,
    /// Where ranges belong: after so many of the bytes. In order.
    pub(crate) ranges: Vec<(usize, ReadRange)>,
    held: HeldBytes,
}

impl Answer {
    fn new(bytes: Vec<u8>, ranges: Vec<(usize, ReadRange)>, held: HeldBytes) -> Self {
        held.fetch_add(bytes.len(), Ordering::Relaxed);
        Self { bytes, ranges, held }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// The next piece to send.
#[derive(Debug)]
pub(crate) enum Piece {
    /// An answer.
    Answer(Answer),
    /// Nothing is to be sent now, and answers are open.
    Waiting,
    /// Nothing is to be sent now, and no answer is open.
    Empty,
    /// The connection ends now, for this reason.
    Close(String),
}

/// Answers of one connection, in the order of their requests.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    held: HeldBytes,
    /// An answer is ready to be sent.
    ready: Notify,
    /// An answer was taken, or the last one asked for was given.
    progress: Notify,
}

#[derive(Debug, Default)]
struct State {
    slots: VecDeque<Slot>,
    /// The number of the first slot.
    first: u64,
    /// How many of the slots wait for their answer.
    unanswered: usize,
    /// Bytes of the answers that are ready and not taken.
    bytes: usize,
    /// The sender was told and has not looked yet.
    signalled: bool,
}

#[derive(Debug)]
enum Slot {
    Open,
    Ready(Answer),
    /// acks=0 has no answer.
    Silent,
    Close(String),
}

impl Outbox {
    /// No answer is open. What waits to be sent is counted in `held`, too.
    pub(crate) fn new(held: HeldBytes) -> Self {
        Self { state: Mutex::default(), held, ready: Notify::new(), progress: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A slot is replaced in one move, so a panic leaves no half state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the place of the next answer.
    pub(crate) fn open(self: &Arc<Self>, api: ApiKey, version: i16, correlation_id: i32) -> Reply {
        let mut state = self.state();
        let number = state.first + u64::try_from(state.slots.len()).unwrap_or(u64::MAX);
        state.slots.push_back(Slot::Open);
        state.unanswered += 1;
        Reply { outbox: Some(self.clone()), number, api, version, correlation_id }
    }

    /// Whether an answer is to be given or sent yet.
    pub(crate) fn has_open(&self) -> bool {
        !self.state().slots.is_empty()
    }

    /// Waits until another request may be taken.
    pub(crate) async fn room(&self) {
        loop {
            let progress = self.progress.notified();
            if self.has_room() {
                return;
            }
            progress.await;
        }
    }

    fn has_room(&self) -> bool {
        let state = self.state();
        let crowded = self.held.load(Ordering::Relaxed) > READY_BYTES_IN_ALL;
        let bytes = if crowded { 1 } else { READY_BYTES };
        // Who has nothing waiting goes on in any case: nobody waits for another's client.
        state.slots.len() < OPEN_ANSWERS && state.bytes < bytes
    }

    /// Waits until the answer of that number is given.
    pub(crate) async fn answered(&self, number: u64) {
        loop {
            let progress = self.progress.notified();
            let open = {
                let state = self.state();
                let at = number.checked_sub(state.first).and_then(|at| usize::try_from(at).ok());
                at.and_then(|at| state.slots.get(at)).is_some_and(|slot| matches!(slot, Slot::Open))
            };
            if !open {
                return;
            }
            progress.await;
        }
    }

    /// Waits until no answer is open.
    pub(crate) async fn all_answered(&self) {
        loop {
            let progress = self.progress.notified();
            if self.state().unanswered == 0 {
                return;
            }
            progress.await;
        }
    }

    /// Returns when [`Self::poll_piece`] may have something new.
    pub(crate) async fn ready(&self) {
        self.ready.notified().await;
    }

    /// The next answer in order, if it is there.
    pub(crate) fn poll_piece(&self) -> Piece {
        let mut state = self.state();
        state.signalled = false;
        loop {
            match state.slots.front() {
                None => return Piece::Empty,
                Some(Slot::Open) => return Piece::Waiting,
                Some(_) => {}
            }
            let slot = state.slots.pop_front();
            state.first += 1;
            if let Some(Slot::Ready(answer)) = &slot {
                state.bytes = state.bytes.saturating_sub(answer.bytes.len());
            }
            self.progress.notify_one();
            match slot {
                Some(Slot::Ready(answer)) => return Piece::Answer(answer),
                Some(Slot::Close(reason)) => return Piece::Close(reason),
                Some(Slot::Silent | Slot::Open) | None => {}
            }
        }
    }

    /// The connection is gone; what is answered from now on is dropped.
    pub(crate) fn abandon(&self) {
        let slots = {
            let mut state = self.state();
            state.unanswered = 0;
            std::mem::take(&mut state.slots)
        };
        drop(slots);
    }

    fn put(&self, number: u64, slot: Slot) {
        let (dropped, wake);
        {
            let mut state = self.state();
            let at = number.checked_sub(state.first).and_then(|at| usize::try_from(at).ok());
            let place = at.and_then(|at| state.slots.get_mut(at));
            let Some(place) = place else {
                drop(state);
                drop(slot);
                return;
            };
            let bytes = if let Slot::Ready(answer) = &slot { answer.bytes.len() } else { 0 };
            dropped = std::mem::replace(place, slot);
            state.unanswered -= usize::from(matches!(dropped, Slot::Open));
            state.bytes += bytes;
            // Only the first in order can be sent; the others are found behind it.
            wake = at == Some(0) && !std::mem::replace(&mut state.signalled, true);
        }
        drop(dropped);
        if wake {
            self.ready.notify_one();
        }
        self.progress.notify_one();
    }
}

/// The right and the duty to answer one request; may be kept and used on any thread.
///
/// Dropped without an answer it closes the connection, since a client would wait for ever.
pub(crate) struct Reply {
    /// None once it was used.
    outbox: Option<Arc<Outbox>>,
    number: u64,
    api: ApiKey,
    version: i16,
    correlation_id: i32,
}

impl fmt::Debug for Reply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Reply")
            .field("api", &self.api)
            .field("version", &self.version)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Reply {
    /// The version in which the request came and the answer goes.
    pub(crate) fn version(&self) -> i16 {
        self.version
    }

    /// The place in the connection's order.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Answers.
    pub(crate) fn answer<'a, R: Response<'a>>(self, response: &R) {
        self.answer_with(response, Vec::new());
    }

    /// Answers with ranges of files where the response has detached records, in that order.
    pub(crate) fn answer_with<'a, R: Response<'a>>(self, response: &R, ranges: Vec<ReadRange>) {
        let mut writer = Writer::with_capacity(ANSWER_BYTES);
        let version = self.version;
        match encode_response(version, self.correlation_id, response, &mut writer) {
            Ok(()) => {
                let (bytes, cuts) = writer.into_parts();
                debug_assert_eq!(cuts.len(), ranges.len(), "a range for each cut");
                let places = cuts.into_iter().map(|cut| cut.at);
                let ranges = places.zip(ranges).collect();
                let held = self.outbox.as_ref().map(|outbox| outbox.held.clone());
                self.put(Slot::Ready(Answer::new(bytes, ranges, held.unwrap_or_default())));
            }
            Err(error) => {
                let api = self.api;
                tracing::error!(%api, version, %error, "an answer cannot be written");
                self.close(format!("the answer to {api} v{version} cannot be written: {error}"));
            }
        }
    }

    /// There is no answer to this request, and all is well: acks=0.
    pub(crate) fn none(self) {
        self.put(Slot::Silent);
    }

    /// Ends the connection in place of an answer, after the answers before it.
    pub(crate) fn close(self, reason: String) {
        self.put(Slot::Close(reason));
    }

    fn put(mut self, slot: Slot) {
        if let Some(outbox) = self.outbox.take() {
            outbox.put(self.number, slot);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(outbox) = self.outbox.take() {
            let reason = format!("the request {} v{} was dropped", self.api, self.version);
            outbox.put(self.number, Slot::Close(reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::HeartbeatResponse;

    use super::*;

    /// An answer of so many bytes, in the place of a request's.
    fn answer(outbox: &Arc<Outbox>, bytes: usize) {
        let mut reply = outbox.open(ApiKey::Metadata, 0, 1);
        reply.outbox.take();
        let answer = Answer::new(vec![0; bytes], Vec::new(), outbox.held.clone());
        outbox.put(reply.number, Slot::Ready(answer));
    }

    #[test]
    fn connection_takes_no_request_while_as_many_answers_or_bytes_wait_as_may() {
        let outbox = Arc::new(Outbox::new(HeldBytes::default()));
        answer(&outbox, READY_BYTES - 1);
        assert!(outbox.has_room());
        answer(&outbox, 1);
        assert!(!outbox.has_room());
        let taken = outbox.poll_piece();
        assert!(outbox.has_room());
        drop(taken);
        assert!(matches!(outbox.poll_piece(), Piece::Answer(_)));
        let replies: Vec<_> = (0..OPEN_ANSWERS)
            .map(|_| {
                assert!(outbox.has_room());
                outbox.open(ApiKey::Heartbeat, 0, 1)
            })
            .collect();
        assert!(!outbox.has_room());
        for reply in replies {
            reply.answer(&HeartbeatResponse::default());
        }
        assert!(!outbox.has_room(), "answered is not sent");
    }

    #[test]
    fn when_all_connections_together_hold_too_much_those_with_answers_waiting_stop() {
        let held = HeldBytes::default();
        let full = Arc::new(Outbox::new(held.clone()));
        answer(&full, READY_BYTES_IN_ALL + 1);
        let (some, none) =
            (Arc::new(Outbox::new(held.clone())), Arc::new(Outbox::new(held.clone())));
        answer(&some, 10);
        assert!(!some.has_room());
        assert!(none.has_room(), "nobody waits for another's client");
        full.abandon();
        assert!(some.has_room());
        some.abandon();
        assert_eq!(held.load(Ordering::Relaxed), 0);
    }
}
