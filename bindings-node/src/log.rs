//! Log lines of the core and the embedded broker, handed on to Node: silent until it asks.
//!
//! Threads of ours only put lines into a queue; `lib/log.js` takes them on its own thread.

use std::sync::{Arc, Mutex, PoisonError};

use napi::bindgen_prelude::{Array, Env};
use napi_derive::napi;
use ottla::log::{self, Level};

use crate::boundary::guard;
use crate::signal::{Callback, Signal};

/// The bell of the environment that takes the lines.
static BELL: Mutex<Option<Arc<Signal>>> = Mutex::new(None);

/// Has lines up to this level (1 is errors, 5 is everything) taken by the environment that asks;
/// the last one to ask gets them all.
#[napi]
pub(crate) fn start_log(env: &Env, level: u8, on_signal: Callback) -> napi::Result<()> {
    guard(env, || {
        let bell = Signal::new(on_signal);
        let before = {
            let mut known = BELL.lock().unwrap_or_else(PoisonError::into_inner);
            known.replace(Arc::clone(&bell))
        };
        // Outside of the lock: letting go of a bell takes a lock of Node's.
        drop(before);
        log::collect(Level::of(level), move || bell.raise())?;
        Ok(())
    })
}

/// The lines since the last call: level, who says it, and text, in turn.
#[napi]
pub(crate) fn take_log(env: &Env) -> napi::Result<Array<'_>> {
    guard(env, || {
        let bell = BELL.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(bell) = bell {
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
