//! How a blocking call sleeps: one parker a thread, woken by the thread that has its result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::guard::lock;

/// Where one thread sleeps.
///
/// Not `std::thread::park`, whose one token a program may use between its own threads.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

thread_local! {
    static PARKER: Arc<Parker> = Arc::default();
}

impl Parker {
    /// That of the calling thread.
    pub(crate) fn current() -> Arc<Self> {
        // A thread about to end has no parker of its own any more, and gets one for this call.
        PARKER.try_with(Arc::clone).unwrap_or_default()
    }

    /// Sleeps until woken or until the time is over; whether it was woken.
    ///
    /// A wake from before counts, also one that was meant for an earlier sleep: look again after it.
    pub(crate) fn park(&self, timeout: Duration) -> bool {
        let woken = lock(&self.woken);
        let (mut woken, _) = self
            .changed
            .wait_timeout_while(woken, timeout, |woken| !*woken)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *woken, false)
    }

    /// Ends the thread's sleep, or its next one.
    pub(crate) fn unpark(&self) {
        *lock(&self.woken) = true;
        self.changed.notify_one();
    }
}

/// Somebody who waits: a task or a thread.
#[derive(Debug, Clone)]
pub(crate) enum Sleeper {
    /// A task.
    Task(Waker),
    /// A thread.
    Thread(Arc<Parker>),
}

impl Sleeper {
    /// Wakes it.
    pub(crate) fn wake(self) {
        match self {
            Self::Task(waker) => waker.wake(),
            Self::Thread(parker) => parker.unpark(),
        }
    }

    /// Whether waking `other` wakes this one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Task(one), Self::Task(two)) => one.will_wake(two),
            (Self::Thread(one), Self::Thread(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

/// Something that happens once, and those who wait for it.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    set: AtomicBool,
    cut: AtomicBool,
    sleepers: Mutex<Vec<Sleeper>>,
}

impl Signal {
    /// Whether it has happened.
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Whether it never will.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// It never will: wakes all who wait.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        self.set();
    }

    /// It has happened: wakes all who wait.
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::Release);
        let sleepers = std::mem::take(&mut *lock(&self.sleepers));
        sleepers.into_iter().for_each(Sleeper::wake);
    }

    /// Whether it has happened; else wakes the sleeper when it does.
    pub(crate) fn watch(&self, sleeper: Sleeper) -> bool {
        let mut sleepers = lock(&self.sleepers);
        if self.is_set() {
            return true;
        }
        if !sleepers.iter().any(|known| known.is_same(&sleeper)) {
            sleepers.push(sleeper);
        }
        false
    }
}
