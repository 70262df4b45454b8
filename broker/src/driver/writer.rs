//! The writer of one log directory: one thread, and the list of partitions that have work for it.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use crate::driver::clock::Clock;
use crate::driver::partition::Partition;

/// Stack of every thread of ours.
pub(crate) const STACK_BYTES: usize = 512 * 1024;

/// The partitions with work, in the order in which they got it. Each is on it at most once.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    partitions: Mutex<VecDeque<Arc<Partition>>>,
    thread: OnceLock<Thread>,
    ended: AtomicBool,
}

impl ReadyList {
    /// Adds a partition and wakes the writer if the list was empty.
    pub(crate) fn push(&self, partition: Arc<Partition>) {
        let was_empty = {
            let mut list = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
            let was_empty = list.is_empty();
            list.push_back(partition);
            was_empty
        };
        if was_empty {
            self.wake();
        }
    }

    fn take(&self) -> VecDeque<Arc<Partition>> {
        let mut list = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *list)
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// One pass over all that is ready; true if there was anything.
    fn turn(&self, clock: Clock) -> bool {
        let ready = self.take();
        let worked = !ready.is_empty();
        for partition in ready {
            let turn = catch_unwind(AssertUnwindSafe(|| partition.turn(clock.now_ms())));
            match turn {
                // At the end of the list, so that a busy partition starves no other.
                Ok(true) => self.push(partition),
                Ok(false) => {}
                Err(_panic) => partition.fail("the writer panicked in this partition".into()),
            }
        }
        worked
    }
}

/// The running writer.
#[derive(Debug)]
pub(crate) struct Writer {
    list: Arc<ReadyList>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Starts the thread that serves the list.
    pub(crate) fn start(list: Arc<ReadyList>, clock: Clock) -> io::Result<Self> {
        let served = list.clone();
        let thread = thread::Builder::new()
            .name("ottla-log-0".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                loop {
                    // Read before the look at the list: what was pushed before the end is served.
                    let ended = served.ended.load(Ordering::Acquire);
                    if served.turn(clock) {
                        continue;
                    }
                    if ended {
                        return;
                    }
                    thread::park();
                }
            })?;
        // Set before anything can be pushed, since the broker has no other threads yet.
        let _first = list.thread.set(thread.thread().clone()).is_ok();
        Ok(Self { list, thread })
    }

    /// Serves what is on the list, then ends the thread.
    pub(crate) fn finish(self) {
        self.list.ended.store(true, Ordering::Release);
        self.list.wake();
        if self.thread.join().is_err() {
            tracing::error!("the log writer ended by a panic");
        }
    }
}
