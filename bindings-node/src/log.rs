//! Log lines of the core and the embedded broker, handed on to Node: silent until it asks.
//!
//! Threads of ours only put lines into a queue; `lib/log.js` takes them on its own thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use napi::bindgen_prelude::{Array, Env};
use napi_derive::napi;
use ottla::log::{self, Level};

use crate::boundary::guard;
use crate::signal::{Callback, Signal};

/// The bells of the environments that asked for the lines, in turn: the last takes them.
static BELLS: Mutex<Vec<Arc<Signal>>> = Mutex::new(Vec::new());

fn bells() -> MutexGuard<'static, Vec<Arc<Signal>>> {
    BELLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who takes the lines now. Rung and let go of outside of the lock: both take one of Node's.
fn taker() -> Option<Arc<Signal>> {
    bells().last().cloned()
}

fn ring() {
    if let Some(bell) = taker() {
        bell.raise();
    }
}

/// An environment ends: whoever asked before it has the lines again.
fn leave(bell: &Arc<Signal>) {
    let left = {
        let mut bells = bells();
        let at = bells.iter().position(|known| Arc::ptr_eq(known, bell));
        at.map(|at| bells.remove(at))
    };
    drop(left);
    // It may have been rung for lines that it has not taken.
    ring();
}

/// Has lines up to this level (1 is errors, 5 is everything) taken by the environment that asks;
/// the last one to ask gets them all, until it ends.
#[napi]
pub(crate) fn start_log(env: &Env, level: u8, on_signal: Callback) -> napi::Result<()> {
    guard(env, || {
        let bell = Signal::new(on_signal);
        env.add_env_cleanup_hook(Arc::clone(&bell), |bell| leave(&bell))?;
        bells().push(bell);
        log::collect(Level::of(level), ring)?;
        Ok(())
    })
}

/// The lines since the last call: level, who says it, and text, in turn.
#[napi]
pub(crate) fn take_log(env: &Env) -> napi::Result<Array<'_>> {
    guard(env, || {
        // Of all: who was rung may not be the one that takes them any more, and is rung anew later.
        for bell in bells().iter() {
            bell.lower();
        }
        let mut told = env.create_array(0)?;
        for line in log::take() {
            told.insert(line.level.name())?;
            told.insert(line.target)?;
            told.insert(line.message)?;
        }
        Ok(told)
    })
}
