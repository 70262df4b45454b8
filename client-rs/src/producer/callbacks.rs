//! Delivery callbacks: what became of each record, told on a thread of their own.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::Producer;
use crate::driver::{self, clock};
use crate::error::{Error, ErrorKind};
use crate::process::Process;
use crate::record::{Delivery, Record};
use crate::state::completion::{Completed, Completion, Completions, Stamp, Who};
use crate::state::guard::lock;
use crate::state::hash::HashMap;
use crate::state::parker::{Parker, Sleeper};

/// Batches that are taken from the queue at a time.
const BATCHES: usize = 64;
/// Longest sleep of the thread: nothing is due then, it only looks.
const SLEEP: Duration = Duration::from_hours(1);

/// Sends records and has a callback told of each, once, with what was given along.
///
/// Made by [`Producer::callbacks`]. A handle: clones are the same, and any thread may send. The
/// callback runs on a thread of its own, for the records of a partition in the order of their
/// offsets. What it has not been told of yet counts in `buffer.memory`, so that a slow callback slows
/// those who send. When the last handle is dropped the thread tells what is left, and ends.
pub struct Callbacks<T> {
    producer: Producer,
    shared: Arc<Shared<T>>,
    thread: ThreadId,
    handle: Arc<Handle>,
}

impl<T> Clone for Callbacks<T> {
    fn clone(&self) -> Self {
        Self {
            producer: self.producer.clone(),
            shared: Arc::clone(&self.shared),
            thread: self.thread,
            handle: Arc::clone(&self.handle),
        }
    }
}

/// What all clones have in common; the last one ends the thread.
struct Handle {
    dropped: Arc<AtomicBool>,
    parker: Arc<Parker>,
    process: Process,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // In a child of a fork there is no such thread, and its parker may be locked for ever.
            return;
        }
        self.dropped.store(true, Ordering::Release);
        self.parker.unpark();
    }
}

/// What the handles and the thread see.
struct Shared<T> {
    queue: Arc<Completions>,
    parker: Arc<Parker>,
    /// There is no handle left.
    dropped: Arc<AtomicBool>,
    noted: Mutex<Noted<T>>,
}

/// Records whose callbacks have not run.
struct Noted<T> {
    /// By the number of the batch they were written into: stamp there, and what was given along.
    batches: HashMap<u64, Vec<(Stamp, T)>>,
    /// How many they are, with those whose callback runs.
    records: usize,
    /// Who waits for them.
    sleepers: Vec<Sleeper>,
}

impl Producer {
    /// A way to send with something given along, which `callback` gets back once, with what became
    /// of the record. It starts a thread.
    ///
    /// The callback may send, by [`Callbacks::try_send`]: a call that waits for room would wait for
    /// the callback itself. If it panics, that is logged, and the next record is told of.
    pub fn callbacks<T: Send + 'static>(
        &self,
        callback: impl FnMut(T, Result<Delivery, Error>) + Send + 'static,
    ) -> Result<Callbacks<T>, Error> {
        self.inner.process.check()?;
        let parker = Arc::<Parker>::default();
        let woken = Arc::clone(&parker);
        let dropped = Arc::new(AtomicBool::new(false));
        let noted = Noted { batches: HashMap::default(), records: 0, sleepers: Vec::new() };
        let shared = Arc::new(Shared {
            queue: Completions::new(move || woken.unpark()),
            parker: Arc::clone(&parker),
            dropped: Arc::clone(&dropped),
            noted: Mutex::new(noted),
        });
        let own = Arc::clone(&shared);
        let builder = thread::Builder::new().name("ottla-callbacks".to_owned());
        let thread = builder.spawn(move || own.run(callback)).map_err(|source| {
            let text = "the callbacks' thread could not be started";
            Error::new(ErrorKind::Internal, text).with_source(source)
        })?;
        let handle = Arc::new(Handle { dropped, parker, process: Process::current() });
        Ok(Callbacks { producer: self.clone(), shared, thread: thread.thread().id(), handle })
    }
}

impl<T: Send + 'static> Callbacks<T> {
    /// Sends a record as [`Producer::send`] does. After an error the callback is not called for it.
    pub fn send(&self, record: &Record<'_>, opaque: T) -> Result<(), Error> {
        let now_ms = record.timestamp.map_or_else(clock::burst_ms, |_| -1);
        let mut opaque = Some(opaque);
        let keep = &mut |batch: &Arc<Completion>, stamp| self.note(batch, stamp, opaque.take());
        self.producer.send_by(record, now_ms, &mut None, keep)
    }

    /// Sends a record as [`Producer::try_send`] does. After an error the callback is not called for
    /// it.
    pub fn try_send(&self, record: &Record<'_>, opaque: T) -> Result<(), Error> {
        let mut opaque = Some(opaque);
        let keep = &mut |batch: &Arc<Completion>, stamp| self.note(batch, stamp, opaque.take());
        self.producer.try_send_by(record, keep)
    }

    /// Waits until the callback has returned for all records sent before. It does not send them:
    /// see [`Producer::flush`].
    ///
    /// `Timeout` if it has not in time; `InvalidState` in the callback itself.
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        self.producer.inner.process.check()?;
        driver::check_may_wait()?;
        if thread::current().id() == self.thread {
            let text = "a callback cannot wait for its own end";
            return Err(Error::new(ErrorKind::InvalidState, text));
        }
        let (by, parker) = (clock::after(timeout), Parker::current());
        while !self.shared.is_through(Some(&parker)) {
            let now = clock::now();
            if by <= now {
                let text =
                    format!("callbacks were still to be run after {} ms", timeout.as_millis());
                return Err(Error::new(ErrorKind::Timeout, text));
            }
            parker.park(by - now);
        }
        Ok(())
    }

    /// The producer that it sends by.
    pub const fn producer(&self) -> &Producer {
        &self.producer
    }

    /// Notes a record while nobody else can write behind it, so that its batch's records are noted
    /// in their order, and all before the batch can end.
    fn note(&self, batch: &Arc<Completion>, stamp: Stamp, opaque: Option<T>) {
        let Some(opaque) = opaque else { return };
        let mut noted = lock(&self.shared.noted);
        noted.batches.entry(batch.id()).or_default().push((stamp, opaque));
        noted.records += 1;
        drop(noted);
        let who = Who::Queue(Arc::clone(&self.shared.queue), Arc::clone(batch));
        let open = batch.register(stamp.index, who);
        debug_assert!(open, "a batch that is written into has not ended");
    }
}

impl<T> Shared<T> {
    /// Runs callbacks until there is nobody left who could send, and all is told.
    fn run(&self, mut callback: impl FnMut(T, Result<Delivery, Error>)) {
        loop {
            let ended = self.queue.drain(BATCHES);
            if !ended.is_empty() {
                // One by one, so that each batch gives its room back when it is told.
                for batch in ended {
                    self.tell(&batch, &mut callback);
                }
            } else if self.dropped.load(Ordering::Acquire) && self.is_through(None) {
                return;
            } else {
                self.parker.park(SLEEP);
            }
        }
    }

    /// Runs the callbacks of a batch, which counts as memory in use until they are through.
    fn tell(&self, batch: &Completed, callback: &mut impl FnMut(T, Result<Delivery, Error>)) {
        let Some(mut records) = lock(&self.noted).batches.remove(&batch.batch_id()) else { return };
        let mut told = 0;
        batch.take_results(&mut records, |opaque, result| {
            told += 1;
            if catch_unwind(AssertUnwindSafe(|| callback(opaque, result))).is_err() {
                tracing::error!("a delivery callback panicked");
            }
        });
        let mut noted = lock(&self.noted);
        if !records.is_empty() {
            // They have parted from their batch, which comes once more for them.
            noted.batches.insert(batch.batch_id(), records);
        }
        noted.records -= told;
        let none = noted.records == 0;
        let sleepers = if none { std::mem::take(&mut noted.sleepers) } else { Vec::new() };
        drop(noted);
        sleepers.into_iter().for_each(Sleeper::wake);
    }

    /// Whether all is told; if not, the sleeper is woken when it is.
    fn is_through(&self, sleeper: Option<&Arc<Parker>>) -> bool {
        let mut noted = lock(&self.noted);
        if noted.records == 0 {
            return true;
        }
        let new = sleeper.map(|parker| Sleeper::Thread(Arc::clone(parker)));
        let new = new.filter(|new| !noted.sleepers.iter().any(|known| known.is_same(new)));
        noted.sleepers.extend(new);
        false
    }
}

impl<T> fmt::Debug for Callbacks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks")
            .field("producer", &self.producer)
            .field("untold", &lock(&self.shared.noted).records)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_is_dropped_in_a_child_of_a_fork_ends_no_thread() {
        for (process, ends) in [(Process::another(), false), (Process::current(), true)] {
            let (dropped, parker) = (Arc::<AtomicBool>::default(), Arc::<Parker>::default());
            let woken = Arc::clone(&parker);
            drop(Handle { dropped: Arc::clone(&dropped), parker, process });
            assert_eq!(dropped.load(Ordering::Acquire), ends);
            assert_eq!(woken.park(Duration::ZERO), ends);
        }
    }
}
