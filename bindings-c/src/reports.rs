//! Delivery reports: queued a batch at a time by the core, run on the thread that polls.
#![allow(unsafe_code, reason = "calls back into C")]

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla::{Completed, Completions, Delivery, Error, ErrorKind, Sent, Stamp};

use crate::error::{c_text, ottla_error_t};
use crate::record::ottla_result_t;
use crate::role::Role;
use crate::signal::{Deadline, EventFd};

/// Told what became of records: results of one batch, in the order of their offsets where those are
/// of one partition. results, the errors and the topics in them are borrowed until it returns. user
/// is what ottla_producer_on_delivery was given.
///
/// It may call any function, also ottla_producer_close and ottla_producer_free. It must return, and
/// let no exception out.
pub type ottla_on_delivery_t = Option<
    unsafe extern "C" fn(results: *const ottla_result_t, results_len: usize, user: *mut c_void),
>;

/// A pointer of C's that is carried about and given back, and never followed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opaque(pub(crate) *mut c_void);

// SAFETY: nothing here follows it.
unsafe impl Send for Opaque {}

/// A record that was refused at once, and whose report waits for the poll.
#[derive(Debug)]
struct Refused {
    topic: CString,
    opaque: Opaque,
    error: Error,
}

/// Reports of refused records that wait for the poll; with so many no more records are taken in bulk.
const REFUSED_MAX: usize = 10_000;

#[derive(Debug)]
struct Waiting {
    /// Batches that have ended; those in it count in `buffer.memory` until they are told.
    queue: Arc<Completions>,
    /// Somebody is to be told.
    wanted: bool,
    /// Of each batch of the core: stamp and opaque of its records that are to be reported.
    batches: HashMap<u64, Vec<(Stamp, Opaque)>>,
    refused: Vec<Refused>,
}

/// The reports of one producer.
#[derive(Debug)]
pub(crate) struct Reports {
    callback: Mutex<Option<(ottla_on_delivery_t, Opaque)>>,
    wanted: AtomicBool,
    ready: Arc<EventFd>,
    waiting: Mutex<Waiting>,
    /// A thread runs them: a role that is tried for, never waited for.
    running: AtomicBool,
    closed: AtomicBool,
}

fn queue_of(ready: &Arc<EventFd>) -> Arc<Completions> {
    let raised = Arc::clone(ready);
    Completions::new(move || raised.raise())
}

impl Reports {
    pub(crate) fn new() -> Result<Self, Error> {
        let ready = EventFd::new()?;
        let waiting = Waiting {
            queue: queue_of(&ready),
            wanted: false,
            batches: HashMap::new(),
            refused: Vec::new(),
        };
        Ok(Self {
            callback: Mutex::default(),
            wanted: AtomicBool::new(false),
            ready,
            waiting: Mutex::new(waiting),
            running: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn callback(&self) -> MutexGuard<'_, Option<(ottla_on_delivery_t, Opaque)>> {
        self.callback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, callback: ottla_on_delivery_t, user: *mut c_void) {
        let wanted = callback.is_some();
        *self.callback() = wanted.then_some((callback, Opaque(user)));
        self.wanted.store(wanted, Ordering::Release);
        let mut waiting = self.waiting();
        waiting.wanted = wanted;
        if wanted {
            return;
        }
        let before = mem::replace(&mut waiting.queue, queue_of(&self.ready));
        waiting.batches.clear();
        waiting.refused.clear();
        drop(waiting);
        // Also what is still on its way has nobody to be told to, and must not be counted for ever.
        before.close();
    }

    /// Whether records that are sent now are to be reported.
    pub(crate) fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Has a record reported when its result is known.
    pub(crate) fn watch(&self, sent: &Sent, opaque: *mut c_void) {
        // Noted before the queue hears of it, lest its batch is drained between.
        let noted = (sent.stamp(), Opaque(opaque));
        let queue = {
            let mut waiting = self.waiting();
            if !waiting.wanted {
                return;
            }
            waiting.batches.entry(sent.batch_id()).or_default().push(noted);
            Arc::clone(&waiting.queue)
        };
        sent.notify(&queue);
    }

    /// An error if too many refused records wait to be told of.
    pub(crate) fn check_refused(&self) -> Result<(), Error> {
        if self.waiting().refused.len() < REFUSED_MAX {
            return Ok(());
        }
        let text = format!("{REFUSED_MAX} refused records wait to be told of");
        let hint = "call ottla_producer_poll, which tells of them";
        Err(Error::new(ErrorKind::InvalidState, text).with_hint(hint))
    }

    /// Has a record reported that was refused at once.
    pub(crate) fn refuse(&self, topic: &str, opaque: *mut c_void, error: Error) {
        let refused = Refused { topic: c_text(topic), opaque: Opaque(opaque), error };
        self.waiting().refused.push(refused);
        self.ready.raise();
    }

    /// The producer is closed: nothing comes any more but what is queued.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ready.raise();
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.ready.number()
    }

    /// Runs what is queued on this thread, waiting for it if need be; how many records that were.
    pub(crate) fn run(&self, timeout: Duration) -> usize {
        let Some(_role) = Role::take(&self.running) else { return 0 };
        let deadline = Deadline::after(timeout);
        loop {
            let closed = self.closed.load(Ordering::Acquire);
            // Cleared before the look: what comes after it makes it readable again.
            self.ready.clear();
            let told = self.run_queued();
            let left = deadline.left();
            if told > 0 || closed || left.is_zero() {
                return told;
            }
            self.ready.wait(left);
        }
    }

    fn run_queued(&self) -> usize {
        let refused = mem::take(&mut self.waiting().refused);
        let mut told = refused.len();
        for Refused { topic, opaque, error } in refused {
            self.call(&topic, vec![(opaque, Err(error))]);
        }
        // No more than waits now, so that a fast sender cannot keep the caller here.
        let queue = Arc::clone(&self.waiting().queue);
        for batch in queue.drain(usize::MAX) {
            let results = self.results_of(&batch);
            if !results.is_empty() {
                told += results.len();
                self.call(&c_text(batch.topic()), results);
            }
        }
        told
    }

    /// Takes the records of a batch whose results are known.
    fn results_of(&self, batch: &Completed) -> Vec<(Opaque, Result<Delivery, Error>)> {
        let Some(mut noted) = self.waiting().batches.remove(&batch.batch_id()) else {
            return Vec::new();
        };
        // Threads that send into one batch note their records as they come to it.
        noted.sort_by_key(|(stamp, _)| stamp.index);
        let mut results = Vec::with_capacity(noted.len());
        batch.take_results(&mut noted, |opaque, result| results.push((opaque, result)));
        if !noted.is_empty() {
            // Records that have parted from their batch: it comes once more for them.
            self.waiting().batches.entry(batch.batch_id()).or_default().extend(noted);
        }
        results
    }

    /// Calls back with results of one topic. No lock is held: the callback may call anything.
    fn call(&self, topic: &CString, results: Vec<(Opaque, Result<Delivery, Error>)>) {
        let Some((Some(callback), Opaque(user))) = *self.callback() else { return };
        let topic: *const c_char = topic.as_ptr();
        let results: Vec<(Opaque, Result<Delivery, ottla_error_t>)> = results
            .into_iter()
            .map(|(opaque, result)| (opaque, result.map_err(ottla_error_t::from)))
            .collect();
        let rows: Vec<ottla_result_t> = results
            .iter()
            .map(|(opaque, result)| ottla_result_t::new(topic, opaque.0, result))
            .collect();
        let first = if rows.is_empty() { ptr::null() } else { rows.as_ptr() };
        // SAFETY: C gave the function for this, and all it is given lives until it returns.
        unsafe { callback(first, rows.len(), user) };
    }
}
