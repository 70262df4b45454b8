//! The producer's one budget of bytes, and the chunks that it is spent on.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use ottla_protocol::left_out;

use crate::process::Process;
use crate::state::parker::Sleeper;
use crate::state::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, fence, lock};

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

/// Those who wait, by their tickets.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Arc<Waiter>>,
    /// Tickets given out.
    tickets: u64,
}

struct Left {
    bytes: usize,
    /// From then on it is for whoever waits.
    until: Instant,
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

    /// Whether somebody waits for room.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
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

    /// Gives room to those who wait, as far as there is any: the oldest first, and nobody before it,
    /// so that a large wish among small ones is not starved [BufferPool].
    pub(crate) fn grant(&self) {
        if !self.is_awaited() {
            return;
        }
        let mut granted = Vec::new();
        {
            let waiting = &mut lock(&self.line).waiting;
            let free = |first: &Arc<Waiter>| self.try_charge(charge_of(first.bytes));
            while waiting.front().is_some_and(free) {
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
        let waiting: Vec<_> = lock(&self.line).waiting.iter().cloned().collect();
        for waiter in waiting {
            waiter.wake();
        }
    }

    /// A chunk of this capacity, if the budget has room.
    pub(crate) fn try_chunk(self: &Arc<Self>, capacity: usize) -> Option<Chunk> {
        self.try_charge(capacity).then(|| self.chunk(capacity, capacity))
    }

    /// A chunk that is charged nothing yet: it takes over what others were charged for, which are
    /// given up for it.
    pub(crate) fn uncharged(self: &Arc<Self>, data: Vec<u8>) -> Chunk {
        Chunk { data, charged: AtomicUsize::new(0), memory: Arc::clone(self) }
    }

    /// Bytes that are counted though no chunk has them. They may pass the budget: what has ended
    /// cannot be refused, and keeps further records out until it is told.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { bytes, memory: Arc::clone(self), process: Process::current() }
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
        Chunk { data, charged: AtomicUsize::new(charged), memory: Arc::clone(self) }
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

    /// Room that a waiter has left for its next try, as a chunk.
    pub(crate) fn take_left(self: &Arc<Self>) -> Option<Chunk> {
        if self.left_bytes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut left = lock(&self.left);
        let bytes = left.pop_front()?.bytes;
        self.left_bytes.fetch_sub(bytes, Ordering::Relaxed);
        drop(left);
        Some(self.chunk(bytes, charge_of(bytes)))
    }

    fn reclaim(&self, mut over: impl FnMut(&Left) -> bool) {
        let mut bytes = 0;
        let mut left = lock(&self.left);
        left.retain(|left| {
            let over = over(left);
            bytes += if over { left.bytes } else { 0 };
            !over
        });
        self.left_bytes.fetch_sub(bytes, Ordering::Relaxed);
        drop(left);
        self.release(charge_of(bytes));
    }

    /// Takes those off the queue whose time is over, and gives them room that was left in vain; when
    /// the next time of either is over.
    pub(crate) fn expire(&self, now: Instant) -> Option<Instant> {
        if !self.is_awaited() {
            return None;
        }
        let (mut over, mut next) = (Vec::new(), None);
        {
            let mut line = lock(&self.line);
            line.waiting.retain(|waiter| {
                let late = waiter.deadline.is_some_and(|deadline| deadline <= now);
                if late {
                    waiter.expired.store(true, Ordering::Release);
                    self.waiters.fetch_sub(1, Ordering::Relaxed);
                    over.push(Arc::clone(waiter));
                } else {
                    next = next.into_iter().chain(waiter.deadline).min();
                }
                !late
            });
        }
        for waiter in over {
            waiter.wake();
        }
        self.reclaim(|left| {
            let over = left.until <= now;
            if !over {
                next = next.into_iter().chain([left.until]).min();
            }
            over
        });
        next
    }

    /// A place in the queue for room of so many bytes, until a time.
    pub(crate) fn queue(self: &Arc<Self>, bytes: usize, deadline: Option<Instant>) -> Place {
        self.enter(None, bytes, deadline)
    }

    /// A place behind all of lower tickets; with a ticket of its own, behind all.
    fn enter(
        self: &Arc<Self>,
        ticket: Option<u64>,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Place {
        let mut line = lock(&self.line);
        let ticket = ticket.unwrap_or(line.tickets);
        line.tickets = line.tickets.max(ticket + 1);
        let waiter = Arc::new(Waiter {
            ticket,
            bytes,
            deadline,
            expired: AtomicBool::new(false),
            granted: AtomicBool::new(false),
            sleeper: Mutex::default(),
        });
        let at = line.waiting.partition_point(|before| before.ticket < ticket);
        line.waiting.insert(at, Arc::clone(&waiter));
        self.waiters.fetch_add(1, Ordering::Relaxed);
        drop(line);
        // Room may have come before the place was taken; `release` does the reverse.
        fence(Ordering::SeqCst);
        self.grant();
        Place { waiter, memory: Arc::clone(self), process: Process::current() }
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
    charged: AtomicUsize,
    memory: Arc<Memory>,
}

impl Chunk {
    /// Bytes it has room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.data.capacity() - self.data.len()
    }

    /// Bytes charged for it.
    pub(crate) fn charged(&self) -> usize {
        self.charged.load(Ordering::Relaxed)
    }

    /// Takes over what another chunk is charged for, up to so many bytes; how many that are. The
    /// other one is to be given up.
    pub(crate) fn take_charge(&self, from: &Self, most: usize) -> usize {
        let bytes = from.charged().min(most);
        from.charged.fetch_sub(bytes, Ordering::Relaxed);
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// A new chunk for so many bytes, charged for as a part of this one, which is to be given up.
    pub(crate) fn part(&self, bytes: usize) -> Self {
        let part = self.memory.uncharged(self.memory.buffer(bytes));
        let taken = part.take_charge(self, part.data.capacity());
        debug_assert_eq!(taken, part.data.capacity(), "the parts are not more than the whole");
        part
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    bytes: usize,
    memory: Arc<Memory>,
    process: Process,
}

impl Drop for Charge {
    fn drop(&mut self) {
        // In a child of a fork nobody waits for room, and a lock may be held for ever.
        if self.process.is_current() {
            self.memory.release(self.bytes);
        }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.memory.give_back(std::mem::take(&mut self.data), self.charged());
    }
}

/// A chunk that is written into no more, shared with those who send it.
#[derive(Debug, Clone)]
pub(crate) struct Written(Arc<Chunk>);

impl Written {
    pub(crate) fn new(chunk: Chunk) -> Self {
        Self(Arc::new(chunk))
    }

    /// Bytes charged for it.
    pub(crate) fn charged(&self) -> usize {
        self.0.charged()
    }

    /// What a chunk that takes this one's place is charged for: so many bytes of its charge, at most.
    pub(crate) fn hand_on(&self, to: &Chunk, most: usize) -> usize {
        to.take_charge(&self.0, most)
    }
}

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        &self.0.data
    }
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
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
    process: Process,
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
    pub(crate) fn take_chunk(&self) -> Option<Chunk> {
        let granted = self.waiter.granted.swap(false, Ordering::AcqRel);
        let bytes = self.waiter.bytes;
        granted.then(|| self.memory.chunk(bytes, charge_of(bytes)))
    }

    /// The same place in the line for more bytes, when those granted were not enough.
    pub(crate) fn again(self, bytes: usize) -> Self {
        self.memory.enter(Some(self.waiter.ticket), bytes, self.waiter.deadline)
    }

    /// Leaves the room for the next [`Memory::take_left`], and from `until` on to whoever waits.
    pub(crate) fn leave_room(self, until: Instant) {
        if self.waiter.granted.swap(false, Ordering::AcqRel) {
            let bytes = self.waiter.bytes;
            let mut left = lock(&self.memory.left);
            left.push_back(Left { bytes, until });
            self.memory.left_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // In a child of a fork nobody waits, and the line may be locked for ever.
            return;
        }
        let mut line = lock(&self.memory.line);
        let place = line.waiting.iter().position(|waiter| Arc::ptr_eq(waiter, &self.waiter));
        if let Some(at) = place {
            line.waiting.remove(at);
            self.memory.waiters.fetch_sub(1, Ordering::SeqCst);
        }
        drop(line);
        if self.waiter.granted.swap(false, Ordering::AcqRel) {
            self.memory.release(charge_of(self.waiter.bytes));
        } else if place.is_some() {
            // A smaller wish behind this one may fit now.
            self.memory.grant();
        }
    }
}

#[cfg(test)]
mod tests;
