//! The line of those who wait for room: first come, first served.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::{Chunk, Memory, charge_of};
use crate::process::Process;
use crate::state::parker::Sleeper;
use crate::state::sync::{AtomicBool, Mutex, Ordering, fence, lock};

/// Those who wait, by their tickets.
#[derive(Default)]
pub(super) struct Line {
    waiting: VecDeque<Arc<Waiter>>,
    /// Tickets given out.
    tickets: u64,
}

/// Room that is kept for who has waited for it.
pub(super) struct Left {
    bytes: usize,
    /// From then on it is for whoever waits.
    until: Instant,
}

impl Memory {
    /// Whether somebody waits for room.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
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

    /// Gives kept room that is over to those who wait.
    pub(super) fn reclaim(&self, mut over: impl FnMut(&Left) -> bool) {
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

/// One who waits.
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
