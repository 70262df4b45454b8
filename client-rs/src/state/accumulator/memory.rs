//! The producer's one budget of bytes, and the chunks that it is spent on.

mod chunk;
mod line;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use ottla_protocol::left_out;

pub(crate) use self::chunk::{Charge, Chunk, Written};
pub(crate) use self::line::Place;
use self::line::{Left, Line};
use crate::state::sync::{AtomicUsize, Mutex, Ordering, fence, lock};

/// The smallest chunk.
pub(crate) const CHUNK_MIN: usize = 16 * 1024;
/// The largest chunk that is kept for its next use.
const CHUNK_MAX: usize = 1024 * 1024;
/// Sizes of kept chunks: powers of two from the smallest to the largest.
const CLASSES: usize = 7;

/// `buffer.memory`: what is charged, who waits for room, and chunks that wait for their next use.
///
/// It counts the capacity of chunks and not the bytes of records, so that the memory really taken
/// stays within it. Only what waits to be told ([`Memory::charge`]) may pass it. What is written
/// anew, when its topic becomes known, compressed or in halves, takes over what it was charged for
/// before; the form before is held uncharged for that moment.
pub(crate) struct Memory {
    total: usize,
    used: AtomicUsize,
    /// Those who wait, first come first served.
    line: Mutex<Line>,
    /// How many those are.
    waiters: AtomicUsize,
    /// Room that was waited for and that its waiter is about to ask for.
    left: Mutex<VecDeque<Left>>,
    /// Bytes of it; they are charged.
    left_bytes: AtomicUsize,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    free: [Vec<Vec<u8>>; CLASSES],
    bytes: usize,
}

impl Pool {
    /// Lets kept chunks go, the largest first, until so many bytes are left at most.
    fn trim(&mut self, most: usize) {
        for free in self.free.iter_mut().rev() {
            while self.bytes > most
                && let Some(data) = free.pop()
            {
                self.bytes -= data.capacity();
            }
        }
    }
}

/// The capacity of a chunk for so many bytes, in a budget without end.
fn chunk_for(bytes: usize) -> usize {
    if bytes > CHUNK_MAX { bytes } else { bytes.max(CHUNK_MIN).next_power_of_two() }
}

/// What room of so many bytes is charged once it is granted.
fn charge_of(granted: usize) -> usize {
    if left_out("granted_charged") { 0 } else { granted }
}

fn class_of(capacity: usize) -> Option<usize> {
    let known = capacity.is_power_of_two() && (CHUNK_MIN..=CHUNK_MAX).contains(&capacity);
    let class = capacity.trailing_zeros().checked_sub(CHUNK_MIN.trailing_zeros())?;
    usize::try_from(class).ok().filter(|_| known)
}

impl Memory {
    /// A budget of so many bytes.
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            used: AtomicUsize::new(0),
            line: Mutex::default(),
            waiters: AtomicUsize::new(0),
            left: Mutex::default(),
            left_bytes: AtomicUsize::new(0),
            pool: Mutex::default(),
        })
    }

    /// All that there is.
    pub(crate) const fn total(&self) -> usize {
        self.total
    }

    /// Bytes of chunks that are in use, or granted and not fetched yet.
    pub(crate) fn used(&self) -> usize {
        let left = self.left_bytes.load(Ordering::Relaxed);
        self.used.load(Ordering::Relaxed).saturating_sub(left)
    }

    /// The capacity of a chunk for so many bytes: no more than there is in all, if that is enough.
    pub(crate) fn chunk_for(&self, bytes: usize) -> usize {
        chunk_for(bytes).min(self.total.max(bytes))
    }

    fn try_charge(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.total);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fits).is_ok()
    }

    /// Gives bytes back, and with them room to those who wait.
    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
        // Either who comes into the line sees this room, or who gives it sees them there.
        fence(Ordering::SeqCst);
        self.grant();
    }

    /// A chunk of this capacity, if the budget has room.
    pub(crate) fn try_chunk(self: &Arc<Self>, capacity: usize) -> Option<Chunk> {
        self.try_charge(capacity).then(|| self.chunk(capacity, capacity))
    }

    /// A chunk that is charged nothing yet: it takes over what others were charged for, which are
    /// given up for it.
    pub(crate) fn uncharged(self: &Arc<Self>, data: Vec<u8>) -> Chunk {
        Chunk::new(data, 0, self)
    }

    /// Bytes that are counted though no chunk has them. They may pass the budget: what has ended
    /// cannot be refused, and keeps further records out until it is told.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge::new(bytes, self)
    }

    /// A buffer from the pool that is not charged: for [`Memory::uncharged`].
    pub(crate) fn buffer(&self, capacity: usize) -> Vec<u8> {
        let mut pool = lock(&self.pool);
        let free = class_of(capacity).and_then(|class| pool.free.get_mut(class));
        if let Some(data) = free.and_then(Vec::pop) {
            pool.bytes -= capacity;
            return data;
        }
        // What is kept is within the budget too.
        pool.trim(self.total.saturating_sub(self.used.load(Ordering::Relaxed)));
        drop(pool);
        Vec::with_capacity(capacity)
    }

    /// A chunk of this capacity that so much is charged for already.
    fn chunk(self: &Arc<Self>, capacity: usize, charged: usize) -> Chunk {
        let data = self.buffer(capacity);
        Chunk::new(data, charged, self)
    }

    fn give_back(&self, mut data: Vec<u8>, charged: usize) {
        if let Some(class) = class_of(data.capacity()) {
            data.clear();
            let mut pool = lock(&self.pool);
            let used = self.used.load(Ordering::Relaxed).saturating_sub(charged);
            if pool.bytes + data.capacity() + used <= self.total
                && let Some(free) = pool.free.get_mut(class)
            {
                let capacity = data.capacity();
                free.push(data);
                pool.bytes += capacity;
            }
        }
        self.release(charged);
    }

    /// Lets kept chunks go, and room that nobody will ask for any more.
    pub(crate) fn drain(&self) {
        *lock(&self.pool) = Pool::default();
        self.reclaim(|_| true);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("total", &self.total)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
