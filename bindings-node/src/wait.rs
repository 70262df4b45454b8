//! Calls of the core that take time: futures, polled on the JavaScript thread when they may go on.
//!
//! A waker notes which future it belongs to and rings the client's bell; the next drain polls those,
//! and tells JavaScript which promises to settle. No thread waits for any of them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use napi::bindgen_prelude::{Array, BigInt64Array, Env, Int32Array, Object};
use ottla::Error;

use crate::boundary::Fault;
use crate::error;
use crate::signal::Signal;

/// What a call gives when it ends well.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Nothing but that it did.
    Done,
    /// Offsets, in the order that was asked; −1 for none.
    Offsets(Vec<i64>),
    /// The same with texts beside them, and leader epochs (−1 for none).
    Metadata { offsets: Vec<i64>, beside: Vec<(String, i32)> },
    /// The same with times and leader epochs.
    Times { offsets: Vec<i64>, timestamps: Vec<i64>, epochs: Vec<i32> },
    /// The slot that a record's outcome will come with.
    Slot(i32),
}

type Call = Pin<Box<dyn Future<Output = Result<Answer, Error>>>>;

/// Numbers of the calls that may go on.
#[derive(Debug)]
struct Ready {
    numbers: Mutex<Vec<u32>>,
    signal: Arc<Signal>,
}

impl Ready {
    fn push(&self, number: u32) {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.numbers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Ticket {
    number: u32,
    ready: Arc<Ready>,
}

impl Wake for Ticket {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.push(self.number);
        self.ready.signal.raise();
    }
}

/// The calls of one client that have not ended. Of its JavaScript thread alone.
pub(crate) struct Waits {
    ready: Arc<Ready>,
    open: RefCell<HashMap<u32, (Call, Waker)>>,
    last: Cell<u32>,
}

impl Waits {
    pub(crate) fn new(signal: Arc<Signal>) -> Self {
        let ready = Arc::new(Ready { numbers: Mutex::default(), signal });
        Self { ready, open: RefCell::default(), last: Cell::new(0) }
    }

    /// Has a call made from the next drain on; gives its number.
    pub(crate) fn start(&self, call: impl Future<Output = Result<Answer, Error>> + 'static) -> u32 {
        let number = self.last.get().wrapping_add(1);
        self.last.set(number);
        let ticket = Arc::new(Ticket { number, ready: Arc::clone(&self.ready) });
        self.open.borrow_mut().insert(number, (Box::pin(call), Waker::from(ticket)));
        self.ready.push(number);
        number
    }

    /// Drops a call that nobody waits for any more; what it began may go on.
    pub(crate) fn forget(&self, number: u32) {
        // Dropped after the borrow: a call's own end may ring the bell.
        let _dropped = self.open.borrow_mut().remove(&number);
    }

    /// Takes the calls on that may go on, and tells which have ended and how.
    pub(crate) fn drain<'env>(&self, env: &'env Env) -> Result<Option<Array<'env>>, Fault> {
        let mut ended = Vec::new();
        for number in self.ready.take() {
            // Taken out while it runs, so that nothing is borrowed meanwhile.
            let Some((mut call, waker)) = self.open.borrow_mut().remove(&number) else { continue };
            match call.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(outcome) => ended.push((number, outcome)),
                Poll::Pending => {
                    self.open.borrow_mut().insert(number, (call, waker));
                }
            }
        }
        if ended.is_empty() {
            return Ok(None);
        }
        let mut told = env.create_array(0)?;
        for (number, outcome) in ended {
            told.insert(tell(env, number, outcome)?)?;
        }
        Ok(Some(told))
    }
}

fn tell(env: &Env, number: u32, outcome: Result<Answer, Error>) -> Result<Object<'_>, Fault> {
    let mut row = Object::new(env)?;
    row.set("number", number)?;
    match outcome {
        Ok(Answer::Done) => {}
        Ok(Answer::Offsets(offsets)) => row.set("offsets", BigInt64Array::new(offsets))?,
        Ok(Answer::Metadata { offsets, beside }) => {
            row.set("offsets", BigInt64Array::new(offsets))?;
            row.set("beside", beside)?;
        }
        Ok(Answer::Times { offsets, timestamps, epochs }) => {
            row.set("offsets", BigInt64Array::new(offsets))?;
            row.set("timestamps", BigInt64Array::new(timestamps))?;
            row.set("epochs", Int32Array::new(epochs))?;
        }
        Ok(Answer::Slot(slot)) => row.set("slot", slot)?,
        Err(error) => row.set("error", error::facts(env, &error)?)?,
    }
    Ok(row)
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waits").field("open", &self.open.borrow().len()).finish_non_exhaustive()
    }
}
