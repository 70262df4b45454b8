//! The writer of one log directory: one thread, and the list of partitions that have work for it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use crate::driver::clock::Clock;
use crate::driver::partition::Partition;

/// Stack of every thread of ours.
pub(crate) const STACK_BYTES: usize = 512 * 1024;

/// What the writer does once, before it serves what is pushed later.
type Settle = Box<dyn FnOnce() + Send>;

/// The partitions with work, in the order in which they got it. Each is on it at most once.
#[derive(Default)]
pub(crate) struct ReadyList {
    partitions: Mutex<VecDeque<Arc<Partition>>>,
    settle: Mutex<Option<Settle>>,
    settled: AtomicBool,
    thread: OnceLock<Thread>,
    ended: AtomicBool,
    /// For a simulator, which has no thread to wake.
    #[cfg(feature = "sim")]
    pub(crate) woken: tokio::sync::Notify,
}

impl fmt::Debug for ReadyList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReadyList").finish_non_exhaustive()
    }
}

impl ReadyList {
    /// Ends the start: `settle` makes durable what it wrote, on the writer's thread and before
    /// anything that is pushed from now on.
    pub(crate) fn settle(&self, settle: impl FnOnce() + Send + 'static) {
        let settle: Settle = Box::new(settle);
        *self.settle.lock().unwrap_or_else(PoisonError::into_inner) = Some(settle);
        self.wake();
    }

    /// Whether what the start wrote is durable, or the folder failed over it.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

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
        #[cfg(feature = "sim")]
        self.woken.notify_one();
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// One pass over all that is ready; true if there was anything.
    pub(crate) fn turn(&self, clock: Clock) -> bool {
        let ready = self.take();
        // Looked for after the list was taken: whatever is on it and came later waits for it.
        let settle = self.settle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let worked = !ready.is_empty() || settle.is_some();
        if let Some(settle) = settle {
            settle();
            self.settled.store(true, Ordering::Release);
        }
        let mut unsynced = Vec::new();
        for partition in ready {
            let turn = catch_unwind(AssertUnwindSafe(|| partition.turn(clock.now_ms())));
            let again = match turn {
                Ok(turn) => {
                    unsynced.extend(turn.unsynced.map(|unsynced| (partition.clone(), unsynced)));
                    turn.again
                }
                Err(_panic) => partition.handle_panic(),
            };
            if again {
                // At the end of the list, so that a busy partition starves no other.
                self.push(partition);
            }
        }
        // One sync for all that a partition was sent while the last ones ran.
        for (partition, unsynced) in unsynced {
            let synced = catch_unwind(AssertUnwindSafe(|| partition.sync(unsynced)));
            if synced.is_err() {
                partition.fail("the writer panicked over a sync in this partition".into());
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
