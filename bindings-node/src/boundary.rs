//! What every call from JavaScript passes: no panic gets out, and errors go out with their facts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use napi::bindgen_prelude::Env;
use ottla::Error;

use crate::error;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The core says so.
    Client(Error),
    /// Node-API says so.
    Engine(napi::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<napi::Error> for Fault {
    fn from(error: napi::Error) -> Self {
        Self::Engine(error)
    }
}

/// Runs the body of a method. What fails is thrown as an object of facts, of which `lib/error.js`
/// makes the error that users see; a panic becomes an error of kind `Internal`.
pub(crate) fn guard<T>(env: &Env, body: impl FnOnce() -> Result<T, Fault>) -> napi::Result<T> {
    // What a panic leaves behind is the core's, which treats it as failed.
    let outcome = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|payload| Err(Fault::Client(Error::from_panic(&*payload))));
    outcome.map_err(|fault| match fault {
        Fault::Client(error) => error::thrown(env, &error),
        Fault::Engine(error) => error,
    })
}

/// A time in milliseconds, as JavaScript gives it. No number and what is too large are no limit.
pub(crate) fn millis(time: f64) -> Duration {
    Duration::try_from_secs_f64(time / 1000.0).unwrap_or(Duration::MAX)
}

/// The same the other way.
pub(crate) fn as_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
