//! One partition as senders see it: the batch they write into, and those that became full.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::batch::{OpenBatch, Refusal, Room};
use crate::record::Record;
use crate::state::completion::{Completion, Stamp};
use crate::state::guard::lock;

/// The batches of one partition that the sending machine has not taken yet.
///
/// Slots lie two cache lines apart, since processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot {
    inner: Mutex<Inner>,
    /// What the machine knows the partition by.
    pub(crate) key: usize,
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// Batches in it, open and full.
    held: AtomicUsize,
    /// Batches that the machine has taken from it and not sent yet, as it was told last.
    waiting: AtomicUsize,
    /// The partition's broker takes nothing.
    away: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    open: Option<OpenBatch>,
    full: VecDeque<OpenBatch>,
    /// The machine knows that there is an open batch.
    listed: bool,
    closed: bool,
}

/// What a slot needs beside the record.
pub(crate) struct Opening<'a> {
    /// Numbers the batch that may have to be opened.
    pub(crate) next_id: &'a dyn Fn() -> u64,
    /// When that is.
    pub(crate) now: &'a dyn Fn() -> Instant,
    /// Puts the slot among those with news. Called under the slot's lock: whoever writes into a
    /// batch finds that the machine will look there, however slow the thread is that began it.
    pub(crate) list: &'a dyn Fn(),
    /// Whether a full batch is followed by another one here. If not, the record is refused as
    /// [`Refusal::Full`], and finds no open batch the next time.
    pub(crate) stay: bool,
}

/// What the machine must be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    None,
    /// A batch was begun that the machine does not know of.
    Begun,
    /// A batch became full.
    Full,
}

/// What the machine sees of the open batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenInfo {
    pub(crate) id: u64,
    pub(crate) opened_at: Instant,
}

impl Slot {
    pub(crate) fn new(key: usize, topic: &Arc<str>, partition: i32) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::default(),
            key,
            topic: Arc::clone(topic),
            partition,
            held: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            away: AtomicBool::new(false),
        })
    }

    /// Batches that wait to be sent.
    pub(crate) fn queued(&self) -> usize {
        let held = self.held.load(Ordering::Relaxed);
        held.saturating_add(self.waiting.load(Ordering::Relaxed))
    }

    /// Notes how many batches wait with the machine.
    pub(crate) fn tell_waiting(&self, batches: usize) {
        self.waiting.store(batches, Ordering::Relaxed);
    }

    /// Whether the partition's broker takes nothing.
    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// Notes whether the partition's broker takes nothing.
    pub(crate) fn tell_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// Bytes of the records in the open batch; 0 without one.
    pub(crate) fn open_len(&self) -> usize {
        lock(&self.inner).open.as_ref().map_or(0, |open| open.body_len)
    }

    /// Whether there is a batch that records are written into.
    pub(crate) fn has_open(&self) -> bool {
        lock(&self.inner).open.is_some()
    }

    /// Writes a record into the open batch, or a new one if that is full; `keep` takes its place.
    ///
    /// `news` says what the machine must be told of, also after a refusal. With news it is listed.
    #[inline]
    pub(crate) fn append(
        &self,
        (record, timestamp): (&Record<'_>, i64),
        room: &mut Room<'_>,
        opening: &Opening<'_>,
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
        news: &mut News,
    ) -> Result<(), Refusal> {
        let inner = &mut *lock(&self.inner);
        if inner.closed {
            return Err(Refusal::Closed);
        }
        if let Some(open) = &mut inner.open {
            match open.append(record, timestamp, room) {
                Ok(index) => {
                    keep(&open.completion, Stamp { index, timestamp });
                    return Ok(());
                }
                Err(Refusal::Full) => {
                    inner.full.extend(inner.open.take());
                    *news = News::Full;
                    (opening.list)();
                    if !opening.stay {
                        inner.listed = false;
                        return Err(Refusal::Full);
                    }
                }
                Err(refusal) => return Err(refusal),
            }
        }
        let completion = Completion::new((opening.next_id)(), &self.topic, self.partition);
        let mut open = OpenBatch::new(completion, timestamp, (opening.now)());
        // A batch that takes no first record is not full: the record is at fault, or the memory.
        let index = open.append(record, timestamp, room)?;
        keep(&open.completion, Stamp { index, timestamp });
        inner.open = Some(open);
        self.held.fetch_add(1, Ordering::Relaxed);
        if !inner.listed && *news == News::None {
            *news = News::Begun;
            (opening.list)();
        }
        inner.listed = true;
        Ok(())
    }

    /// Takes the full batches, and says what is open.
    pub(crate) fn take_full(&self, into: &mut VecDeque<OpenBatch>) -> Option<OpenInfo> {
        let inner = &mut *lock(&self.inner);
        into.append(&mut inner.full);
        self.held.store(usize::from(inner.open.is_some()), Ordering::Relaxed);
        let info = inner
            .open
            .as_ref()
            .map(|open| OpenInfo { id: open.completion.id(), opened_at: open.opened_at });
        inner.listed = info.is_some();
        info
    }

    /// Takes the full batches and the open one; the next record begins a new one.
    pub(crate) fn take_all(&self, into: &mut VecDeque<OpenBatch>) {
        let inner = &mut *lock(&self.inner);
        into.append(&mut inner.full);
        into.extend(inner.open.take());
        self.held.store(0, Ordering::Relaxed);
        inner.listed = false;
    }

    /// Takes no more records.
    pub(crate) fn close(&self) {
        lock(&self.inner).closed = true;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

    use std::cell::Cell;

    use super::*;
    use crate::state::accumulator::batch::Manners;
    use crate::state::accumulator::memory::Memory;

    /// Else a thread that writes into a batch which another one has begun, and flushes, may be told
    /// that all is delivered: the machine knows nothing of the batch while the other one sleeps.
    #[test]
    fn a_batch_is_listed_before_others_can_write_into_it() {
        let memory = Memory::new(1 << 20);
        let mut room = Room {
            memory: &memory,
            batch_bytes: 200,
            check_from: usize::MAX,
            granted: &mut None,
            manners: Manners::Queue,
        };
        let slot = Slot::new(0, &"t".into(), 0);
        let listed = Cell::new(0);
        let list = || {
            listed.set(listed.get() + 1);
            assert!(slot.inner.try_lock().is_err(), "others can write");
        };
        let opening = Opening { next_id: &|| 1, now: &Instant::now, list: &list, stay: true };
        let value = [7; 100];
        for (records, lists) in [(1, 1), (2, 2)] {
            let record = (&Record::to("t").value(&value), 5);
            let news = &mut News::None;
            slot.append(record, &mut room, &opening, &mut |_, _| {}, news).unwrap();
            assert_eq!(listed.get(), lists, "begun, and full: {records}");
        }
    }
}
