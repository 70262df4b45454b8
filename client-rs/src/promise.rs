//! A result that is still to come, for threads and tasks alike.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::driver::{self, clock};
use crate::error::{Error, ErrorKind};
use crate::state::guard::lock;
use crate::state::parker::{Parker, Sleeper};

/// Where a result is put once, and waited for.
#[derive(Debug)]
pub(crate) struct Promise<T>(Mutex<State<T>>);

#[derive(Debug)]
enum State<T> {
    Open(Vec<Sleeper>),
    Done(Result<T, Error>),
}

impl<T: Clone> Promise<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Open(Vec::new()))))
    }

    /// One with its result.
    pub(crate) fn resolved(result: Result<T, Error>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Done(result))))
    }

    /// Puts the result there, unless one is.
    pub(crate) fn resolve(&self, result: Result<T, Error>) {
        let mut state = lock(&self.0);
        if let State::Open(sleepers) = &mut *state {
            let sleepers = std::mem::take(sleepers);
            *state = State::Done(result);
            drop(state);
            sleepers.into_iter().for_each(Sleeper::wake);
        }
    }

    /// Whether the result is there.
    pub(crate) fn is_resolved(&self) -> bool {
        matches!(&*lock(&self.0), State::Done(_))
    }

    /// The result, or a place among those who are woken by it.
    fn get(&self, sleeper: &Sleeper) -> Option<Result<T, Error>> {
        match &mut *lock(&self.0) {
            State::Done(result) => Some(result.clone()),
            State::Open(sleepers) => {
                if !sleepers.iter().any(|known| known.is_same(sleeper)) {
                    sleepers.push(sleeper.clone());
                }
                None
            }
        }
    }

    /// Has somebody woken by the result who waits for something else as well.
    pub(super) fn wake_too(&self, sleeper: &Sleeper) {
        self.get(sleeper);
    }

    /// Waits for the result; `Timeout` names what it was waited for.
    pub(crate) fn wait(&self, timeout: Duration, what: &str) -> Result<T, Error> {
        let parker = Parker::current();
        let sleeper = Sleeper::Thread(Arc::clone(&parker));
        let deadline = clock::now().checked_add(timeout);
        loop {
            if let Some(result) = self.get(&sleeper) {
                return result;
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(clock::now()),
                None => timeout,
            };
            driver::check_may_wait()?;
            if left.is_zero() {
                let text = format!("{what} took longer than {} ms", timeout.as_millis());
                return Err(Error::new(ErrorKind::Timeout, text));
            }
            parker.park(left);
        }
    }
}

/// A future of a promise's result.
#[derive(Debug)]
pub(crate) struct Promised<T>(pub(super) Arc<Promise<T>>);

impl<T: Clone> Future for Promised<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.get(&Sleeper::Task(cx.waker().clone())).map_or(Poll::Pending, Poll::Ready)
    }
}
