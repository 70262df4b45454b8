//! The producer's one budget of bytes, and the chunks that it is spent on.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::state::guard::lock;
use crate::state::parker::Sleeper;

/// The smallest chunk.
pub(crate) const CHUNK_MIN: usize = 16 * 1024;
/// The largest chunk that is kept for its next use.
const CHUNK_MAX: usize = 1024 * 1024;
/// Sizes of kept chunks: powers of two from the smallest to the largest.
const CLASSES: usize = 7;

/// `buffer.memory`: what is charged, who waits for room, and chunks that wait for their next use.
///
/// It counts the capacity of chunks and not the bytes of records, so that the memory really taken
/// stays within it.
pub(crate) struct Memory {
    total: usize,
    used: AtomicUsize,
    /// Those who wait, first come first served.
    waiting: Mutex<VecDeque<Arc<Waiter>>>,
    /// How many those are.
    waiters: AtomicUsize,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    free: [Vec<Vec<u8>>; CLASSES],
    bytes: usize,
}

/// The capacity of a chunk for so many bytes.
pub(crate) fn chunk_for(bytes: usize) -> usize {
    if bytes > CHUNK_MAX { bytes } else { bytes.max(CHUNK_MIN).next_power_of_two() }
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
            waiting: Mutex::default(),
            waiters: AtomicUsize::new(0),
            pool: Mutex::default(),
        })
    }

    /// All that there is.
    pub(crate) const fn total(&self) -> usize {
        self.total
    }

    /// Bytes charged now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether somebody waits for room.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }

    fn try_charge(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.total);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Gives bytes back, and with them room to those who wait.
    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.grant();
    }

    /// Gives room to those who wait, in order, as far as there is any.
    pub(crate) fn grant(&self) {
        if !self.is_awaited() {
            return;
        }
        let mut granted = Vec::new();
        {
            let mut waiting = lock(&self.waiting);
            while waiting.front().is_some_and(|first| self.try_charge(first.bytes)) {
                if let Some(first) = waiting.pop_front() {
                    self.waiters.fetch_sub(1, Ordering::Relaxed);
                    first.granted.store(true, Ordering::Release);
                    granted.push(first);
                }
            }
        }
        for waiter in granted {
            waiter.wake();
        }
    }

    /// Wakes all who wait, so that they see that the producer is closed.
    pub(crate) fn wake_all(&self) {
        let waiting: Vec<_> = lock(&self.waiting).iter().cloned().collect();
        for waiter in waiting {
            waiter.wake();
        }
    }

    /// A chunk of this capacity, if the budget has room.
    pub(crate) fn try_chunk(self: &Arc<Self>, capacity: usize) -> Option<Chunk> {
        self.try_charge(capacity).then(|| self.chunk(capacity))
    }

    /// A chunk that goes beyond the budget for a moment: other chunks are given up for it.
    pub(crate) fn force_chunk(self: &Arc<Self>, capacity: usize) -> Chunk {
        self.used.fetch_add(capacity, Ordering::Relaxed);
        self.chunk(capacity)
    }

    /// A chunk of bytes that were made elsewhere, charged as by [`Memory::force_chunk`].
    pub(crate) fn adopt(self: &Arc<Self>, data: Vec<u8>) -> Chunk {
        let charged = data.capacity();
        self.used.fetch_add(charged, Ordering::Relaxed);
        Chunk { data, charged, memory: Arc::clone(self) }
    }

    /// A buffer from the pool that is not charged: for [`Memory::adopt`].
    pub(crate) fn buffer(&self, capacity: usize) -> Vec<u8> {
        let pooled = class_of(capacity).and_then(|class| {
            let mut pool = lock(&self.pool);
            let data = pool.free.get_mut(class)?.pop()?;
            pool.bytes -= capacity;
            Some(data)
        });
        pooled.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    fn chunk(self: &Arc<Self>, charged: usize) -> Chunk {
        Chunk { data: self.buffer(charged), charged, memory: Arc::clone(self) }
    }

    fn give_back(&self, mut data: Vec<u8>, charged: usize) {
        if let Some(class) = class_of(data.capacity()) {
            data.clear();
            let mut pool = lock(&self.pool);
            if pool.bytes + data.capacity() <= self.total
                && let Some(free) = pool.free.get_mut(class)
            {
                let capacity = data.capacity();
                free.push(data);
                pool.bytes += capacity;
            }
        }
        self.release(charged);
    }

    /// Lets kept chunks go.
    pub(crate) fn drain(&self) {
        *lock(&self.pool) = Pool::default();
    }

    /// Takes those off the queue whose time is over.
    pub(crate) fn expire(&self, now: Instant) {
        if !self.is_awaited() {
            return;
        }
        let mut over = Vec::new();
        {
            let mut waiting = lock(&self.waiting);
            waiting.retain(|waiter| {
                let late = waiter.deadline.is_some_and(|deadline| deadline <= now);
                if late {
                    waiter.expired.store(true, Ordering::Release);
                    self.waiters.fetch_sub(1, Ordering::Relaxed);
                    over.push(Arc::clone(waiter));
                }
                !late
            });
        }
        for waiter in over {
            waiter.wake();
        }
        self.grant();
    }

    /// A place in the queue for room of so many bytes, until a time.
    pub(crate) fn queue(self: &Arc<Self>, bytes: usize, deadline: Option<Instant>) -> Place {
        let waiter = Arc::new(Waiter {
            bytes,
            deadline,
            expired: AtomicBool::new(false),
            granted: AtomicBool::new(false),
            sleeper: Mutex::default(),
        });
        lock(&self.waiting).push_back(Arc::clone(&waiter));
        self.waiters.fetch_add(1, Ordering::Relaxed);
        // Room may have come before the place was taken.
        self.grant();
        Place { waiter, memory: Arc::clone(self) }
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

/// Bytes of a batch. Dropped, it gives its memory back.
///
/// The checksum of a batch covers neither topic nor partition, so a chunk must outlive the last
/// write of it, or another batch's records go out as this one's (KAFKA-19012).
#[derive(Debug)]
pub(crate) struct Chunk {
    /// What it holds. Its capacity is the chunk's; it must not grow beyond.
    pub(crate) data: Vec<u8>,
    charged: usize,
    memory: Arc<Memory>,
}

impl Chunk {
    /// Bytes it has room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.data.capacity() - self.data.len()
    }

    /// Bytes charged for it.
    pub(crate) const fn charged(&self) -> usize {
        self.charged
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.memory.give_back(std::mem::take(&mut self.data), self.charged);
    }
}

#[derive(Debug)]
struct Waiter {
    bytes: usize,
    deadline: Option<Instant>,
    expired: AtomicBool,
    granted: AtomicBool,
    sleeper: Mutex<Option<Sleeper>>,
}

impl Waiter {
    fn wake(&self) {
        let sleeper = lock(&self.sleeper).take();
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }
}

/// A place in the queue for room. Dropped, it gives up the place, and the room if it was granted.
#[derive(Debug)]
pub(crate) struct Place {
    waiter: Arc<Waiter>,
    memory: Arc<Memory>,
}

impl Place {
    /// Whether the room is granted; else `sleeper` is woken when it is.
    pub(crate) fn poll(&self, sleeper: Sleeper) -> bool {
        *lock(&self.waiter.sleeper) = Some(sleeper);
        self.waiter.granted.load(Ordering::Acquire)
    }

    /// Whether its time is over.
    pub(crate) fn is_expired(&self) -> bool {
        self.waiter.expired.load(Ordering::Acquire)
    }

    /// The room as a chunk, if it is granted.
    pub(crate) fn into_chunk(self) -> Result<Chunk, Self> {
        if !self.waiter.granted.swap(false, Ordering::AcqRel) {
            return Err(self);
        }
        Ok(self.memory.chunk(self.waiter.bytes))
    }

    /// Leaves the room to whoever asks next: to the caller, if it asks at once. Those who wait are
    /// not looked at before the next [`Memory::grant`].
    pub(crate) fn leave_room(self) {
        if self.waiter.granted.swap(false, Ordering::AcqRel) {
            self.memory.used.fetch_sub(self.waiter.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = lock(&self.memory.waiting);
        let place = waiting.iter().position(|waiter| Arc::ptr_eq(waiter, &self.waiter));
        if let Some(at) = place {
            waiting.remove(at);
            self.memory.waiters.fetch_sub(1, Ordering::Relaxed);
        }
        drop(waiting);
        if self.waiter.granted.swap(false, Ordering::AcqRel) {
            self.memory.release(self.waiter.bytes);
        } else if place.is_some() {
            // A smaller wish behind this one may fit now.
            self.memory.grant();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::parker::Parker;

    fn sleeper() -> Sleeper {
        Sleeper::Thread(Parker::current())
    }

    #[test]
    fn chunks_are_charged_by_capacity_up_to_the_limit_and_used_again() {
        let memory = Memory::new(3 * CHUNK_MIN);
        let first = memory.try_chunk(CHUNK_MIN).unwrap();
        assert_eq!(first.data.capacity(), CHUNK_MIN);
        let _second = memory.try_chunk(2 * CHUNK_MIN).unwrap();
        assert_eq!(memory.used(), 3 * CHUNK_MIN);
        assert!(memory.try_chunk(CHUNK_MIN).is_none());
        let address = first.data.as_ptr();
        drop(first);
        assert_eq!(memory.try_chunk(CHUNK_MIN).unwrap().data.as_ptr(), address);
    }

    #[test]
    fn chunk_sizes_are_powers_of_two_up_to_a_mebibyte() {
        let sizes = [0, 1, CHUNK_MIN, CHUNK_MIN + 1, 1 << 20, (1 << 20) + 1].map(chunk_for);
        assert_eq!(sizes, [CHUNK_MIN, CHUNK_MIN, CHUNK_MIN, 2 * CHUNK_MIN, 1 << 20, (1 << 20) + 1]);
        assert_eq!((class_of(CHUNK_MIN), class_of(1 << 20)), (Some(0), Some(CLASSES - 1)));
        assert_eq!((class_of(CHUNK_MIN + 1), class_of(1 << 21)), (None, None));
    }

    #[test]
    fn room_goes_to_those_who_wait_in_their_order() {
        let memory = Memory::new(4 * CHUNK_MIN);
        let mut chunks: Vec<_> = (0..4).map(|_| memory.try_chunk(CHUNK_MIN).unwrap()).collect();
        let large = memory.queue(2 * CHUNK_MIN, None);
        let small = memory.queue(CHUNK_MIN, None);
        assert!(memory.is_awaited());
        chunks.pop();
        assert!(!large.poll(sleeper()));
        assert!(!small.poll(sleeper()), "a small wish does not overtake a large one");
        chunks.pop();
        assert!(large.poll(sleeper()));
        assert!(!small.poll(sleeper()));
        chunks.pop();
        assert!(small.poll(sleeper()));
        assert!(large.into_chunk().is_ok());
        assert!(!memory.is_awaited());
        drop(small);
        drop(chunks);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn who_gives_up_waiting_lets_the_next_one_in() {
        let memory = Memory::new(2 * CHUNK_MIN);
        let _chunk = memory.try_chunk(CHUNK_MIN).unwrap();
        let large = memory.queue(2 * CHUNK_MIN, None);
        let small = memory.queue(CHUNK_MIN, None);
        assert!(!small.poll(sleeper()));
        drop(large);
        assert!(small.poll(sleeper()));
    }
}
