//! How the core's threads tell a JavaScript thread that something waits for it there.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use napi::bindgen_prelude::Env;
use napi::threadsafe_function::{
    ThreadsafeFunction, ThreadsafeFunctionCallMode, UnknownReturnValue,
};
use napi::{Result, Status};

/// JavaScript's side of it: called without arguments, never more than one call under way, and weak,
/// so that it keeps no process alive.
pub(crate) type Callback = ThreadsafeFunction<(), UnknownReturnValue, (), Status, false, true, 1>;

/// One client's bell in one environment. Ringing it again before it was heard costs one exchange.
pub(crate) struct Signal {
    callback: Mutex<Callback>,
    raised: AtomicBool,
}

impl Signal {
    /// A bell that calls this.
    pub(crate) fn new(callback: Callback) -> Arc<Self> {
        Arc::new(Self { callback: Mutex::new(callback), raised: AtomicBool::new(false) })
    }

    fn callback(&self) -> MutexGuard<'_, Callback> {
        self.callback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the callback called soon, on its own thread. From any thread.
    pub(crate) fn raise(&self) {
        if !self.raised.swap(true, Ordering::SeqCst) {
            // A full queue means that a call is on its way; a closing one, that its environment
            // ends and nobody is left to be told.
            let _on_its_way: Status =
                self.callback().call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    /// Everything that waits is about to be looked at: what comes from now on rings anew.
    pub(crate) fn lower(&self) {
        self.raised.store(false, Ordering::SeqCst);
    }

    /// Keeps the environment's loop alive, or no longer. On the environment's own thread.
    #[allow(
        deprecated,
        reason = "clones of the function count handles; whether it keeps the loop alive is another \
                  matter, and only these two calls say so"
    )]
    pub(crate) fn hold(&self, env: &Env, hold: Hold) -> Result<()> {
        let mut callback = self.callback();
        match hold {
            Hold::Alive => callback.refer(env),
            Hold::Loose => callback.unref(env),
        }
    }
}

/// Whether a client keeps its process alive.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hold {
    /// Something is pending.
    Alive,
    /// Nothing is.
    Loose,
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").field("raised", &self.raised).finish_non_exhaustive()
    }
}
