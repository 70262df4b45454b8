//! The admin client on the I/O thread: takes calls from its face, and ends with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use super::AdminStats;
use crate::config::AdminConfig;
use crate::error::{Error, ErrorKind};
use crate::promise::Promise;
use crate::state::admin::{Calls, Work};
use crate::state::backoff::{Backoff, Random};
use crate::state::guard::lock;
use crate::state::machine::{Context, Machine, Next, Reply};
use crate::state::pace::Pace;

/// What other threads see of an admin client.
#[derive(Debug, Default)]
pub(super) struct Face {
    inbox: Mutex<Inbox>,
    /// Calls that are open.
    open: AtomicUsize,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Inbox {
    calls: Vec<(Box<dyn Work>, Instant)>,
    close_by: Option<Instant>,
    /// Why no call is taken any more.
    over: Option<Error>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    requests: AtomicU64,
    retries: AtomicU64,
}

impl Face {
    /// Puts a call where the machine finds it.
    pub(super) fn push(
        &self,
        work: Box<dyn Work>,
        deadline: Instant,
        calls_max: usize,
    ) -> Result<(), Error> {
        let mut inbox = self.lock();
        if let Some(error) = &inbox.over {
            return Err(error.clone());
        }
        if inbox.close_by.is_some() {
            return Err(Error::closed());
        }
        if self.open.load(Ordering::Acquire) + inbox.calls.len() >= calls_max {
            let text = format!("{calls_max} calls of this admin client are open already");
            return Err(Error::new(ErrorKind::BufferFull, text)
                .with_hint("wait for some of them, or raise `admin.calls.max`"));
        }
        inbox.calls.push((work, deadline));
        Ok(())
    }

    /// Takes no call from now on; those that are open end by this time.
    pub(super) fn close(&self, by: Instant) {
        let mut inbox = self.lock();
        inbox.close_by = Some(inbox.close_by.map_or(by, |known| known.min(by)));
    }

    pub(super) fn stats(&self, throttled_ms: u64) -> AdminStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        AdminStats {
            calls: read(&self.counts.calls),
            calls_open: self.open.load(Ordering::Relaxed),
            requests: read(&self.counts.requests),
            retries: read(&self.counts.retries),
            throttled_ms,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }
}

/// The machine behind an admin client.
pub(super) struct Engine {
    face: Arc<Face>,
    calls: Calls,
    closed: Arc<Promise<()>>,
}

impl Engine {
    pub(super) fn new(
        config: &AdminConfig,
        face: Arc<Face>,
        closed: Arc<Promise<()>>,
        random: &mut Random,
    ) -> Self {
        let pace = Pace::new(Backoff::new(config.common.retry_backoff), random.number());
        Self { face, calls: Calls::new(pace, config.common.request_timeout), closed }
    }

    /// Begins what other threads put there; by when all must have ended, if it is being closed.
    fn take(&mut self, now: Instant) -> Option<Instant> {
        let mut inbox = self.face.lock();
        let taken = std::mem::take(&mut inbox.calls);
        self.face.open.fetch_add(taken.len(), Ordering::AcqRel);
        let close_by = inbox.close_by;
        drop(inbox);
        for (work, deadline) in taken {
            self.calls.push(work, deadline, now);
        }
        close_by
    }

    fn publish(&self) {
        let (counts, told) = (self.calls.counts(), &self.face.counts);
        told.calls.store(counts.calls, Ordering::Relaxed);
        told.requests.store(counts.requests, Ordering::Relaxed);
        told.retries.store(counts.retries, Ordering::Relaxed);
        self.face.open.store(self.calls.open(), Ordering::Release);
    }
}

impl Machine for Engine {
    fn turn(&mut self, cx: &mut Context<'_>) -> Next {
        let close_by = self.take(cx.now);
        if close_by.is_some_and(|by| by <= cx.now) {
            self.calls.fail(&Error::closed());
        }
        let next = self.calls.turn(cx);
        self.publish();
        self.calls.finish();
        match close_by {
            Some(_) if self.calls.open() == 0 => {
                self.closed.resolve(Ok(()));
                Next::Ended
            }
            by => next.into_iter().chain(by).min().map_or(Next::Wait, Next::At),
        }
    }

    fn handle_begun(&mut self, token: u64) {
        self.calls.handle_begun(token);
    }

    fn handle_response(&mut self, token: u64, reply: Reply, cx: &mut Context<'_>) {
        self.calls.handle_response(token, reply, cx);
    }

    fn fail(&mut self, error: &Error) {
        let mut inbox = self.face.lock();
        inbox.over = Some(error.clone());
        let taken = std::mem::take(&mut inbox.calls);
        drop(inbox);
        for (work, _) in taken {
            work.finish(Some(error.clone()));
        }
        self.calls.fail(error);
        self.publish();
        self.calls.finish();
        self.closed.resolve(Err(error.clone()));
    }
}
