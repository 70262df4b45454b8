//! Flushing and closing a producer.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Producer;
use crate::driver::{self, clock};
use crate::error::{Error, ErrorKind};
use crate::process::Process;
use crate::state::accumulator::Accumulator;
use crate::state::parker::{Parker, Signal, Sleeper};

/// How long after its deadline a close waits for the machine's last turn.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// How much longer than a record's delivery may take a close takes that is given no time.
const CLOSE_MARGIN: Duration = Duration::from_secs(1);

impl Producer {
    /// How long a close may take that is given no time: `delivery.timeout.ms` and a second. By then
    /// each record is delivered, or has failed for a reason of its own.
    pub fn close_timeout(&self) -> Duration {
        self.inner.config.delivery_timeout.saturating_add(CLOSE_MARGIN)
    }

    /// Sends all records at once, and waits until each is delivered or has failed.
    ///
    /// The error of the first record that failed since the last flush and that nobody holds a token
    /// of; `Timeout` if some are still on their way.
    pub fn flush(&self, timeout: Duration) -> Result<(), Error> {
        self.inner.process.check()?;
        driver::check_may_wait()?;
        let flush = self.flush_async();
        let parker = Parker::current();
        let deadline = clock::after(timeout);
        while !flush.watch(Sleeper::Thread(Arc::clone(&parker))) {
            let now = clock::now();
            if deadline <= now {
                let text =
                    format!("not all records were delivered within {} ms", timeout.as_millis());
                return Err(
                    Error::new(ErrorKind::Timeout, text).with_hint("they stay on their way")
                );
            }
            parker.park(deadline - now);
        }
        flush.result()
    }

    /// The same as a future, which waits as long as it takes.
    pub fn flush_async(&self) -> Flush {
        let signal = Arc::<Signal>::default();
        let process = self.inner.process;
        if !process.is_current() {
            // Its first poll says so.
        } else if self.inner.life.client().is_some() && self.inner.face.end().is_none() {
            let asked = Arc::clone(&signal);
            self.inner.face.command(move |commands| commands.flushes.push(asked));
        } else {
            signal.set();
        }
        Flush { face: Arc::clone(&self.inner.face), signal, process }
    }

    /// Refuses further records, delivers those it has, and ends; what is not delivered in time ends
    /// as not sent or possibly stored.
    ///
    /// The error of the first record that failed and that nobody holds a token of. A second call
    /// gives `Ok` when the first is through. `Timeout` if the client's own thread is kept busy by the
    /// program, and the producer has not ended a second after its time. In a callback, which must not
    /// wait, it is refused: see [`Producer::close_async`].
    pub fn close(&self, timeout: Duration) -> Result<(), Error> {
        self.inner.process.check()?;
        driver::check_may_wait()?;
        self.begin_close(timeout);
        let client = self.inner.life.client();
        if client.is_some_and(|client| !client.wait_ended(timeout.saturating_add(CLOSE_GRACE))) {
            let text = format!("the producer did not end within {} ms", timeout.as_millis());
            return Err(Error::new(ErrorKind::Timeout, text).with_hint(
                "a partitioner or a callback of the program's keeps the client's own thread",
            ));
        }
        unreported(&self.inner.face, None)
    }

    /// The same as a future.
    pub fn close_async(&self, timeout: Duration) -> Close {
        if self.inner.process.is_current() {
            self.begin_close(timeout);
        }
        Close { producer: self.clone() }
    }

    /// The next failure of records that nobody holds a token of, as flush and close tell it too:
    /// each is told once.
    pub fn failure(&self) -> Failure {
        Failure { face: Arc::clone(&self.inner.face), process: self.inner.process }
    }

    fn begin_close(&self, timeout: Duration) {
        let client = self.inner.life.end();
        self.inner.face.refuse(None);
        if client.is_some() {
            let by = clock::after(timeout);
            self.inner.face.command(|commands| {
                commands.close_by = Some(commands.close_by.map_or(by, |known| known.min(by)));
            });
        } else {
            self.inner.face.events.end();
        }
    }
}

/// The records that failed with nobody there to hear it, as one error.
fn unreported(face: &Accumulator, sleeper: Option<Sleeper>) -> Result<(), Error> {
    let unreported = face.take_unreported(sleeper);
    let Some(first) = unreported.first else { return Ok(()) };
    let text = match unreported.count {
        1 => "a record was not delivered".to_owned(),
        count => format!("{count} records were not delivered, the first for this reason"),
    };
    let error = Error::new(first.kind(), text);
    let error = match first.outcome() {
        Some(outcome) => error.with_outcome(outcome),
        None => error,
    };
    Err(error.with_source(first))
}

/// A future that is ready when all records sent before are delivered or have failed.
pub struct Flush {
    face: Arc<Accumulator>,
    signal: Arc<Signal>,
    process: Process,
}

impl Flush {
    fn watch(&self, sleeper: Sleeper) -> bool {
        self.signal.watch(sleeper) || self.face.end().is_some()
    }
}

impl Flush {
    fn result(&self) -> Result<(), Error> {
        if self.signal.is_cut() {
            return Err(self.face.refusal());
        }
        unreported(&self.face, None)
    }
}

impl Future for Flush {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.process.check()?;
        if self.watch(Sleeper::Task(cx.waker().clone())) {
            Poll::Ready(self.result())
        } else {
            Poll::Pending
        }
    }
}

impl fmt::Debug for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flush").field("done", &self.signal.is_set()).finish_non_exhaustive()
    }
}

/// A future that is ready when the producer is closed.
#[derive(Debug)]
pub struct Close {
    producer: Producer,
}

impl Future for Close {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = &self.producer.inner;
        inner.process.check()?;
        let ended =
            inner.life.client().map_or(Poll::Ready(()), |client| client.poll_ended(cx.waker()));
        ended.map(|()| unreported(&inner.face, None))
    }
}

/// A future that is ready when records have failed and nobody could ask about them.
pub struct Failure {
    face: Arc<Accumulator>,
    process: Process,
}

impl Future for Failure {
    type Output = Error;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let sleeper = Sleeper::Task(cx.waker().clone());
        let told = self.process.check().and_then(|()| unreported(&self.face, Some(sleeper)));
        told.map_or_else(Poll::Ready, |()| Poll::Pending)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").finish_non_exhaustive()
    }
}
