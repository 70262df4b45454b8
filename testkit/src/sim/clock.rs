//! The simulated time: that of the paused runtime, which jumps to whatever is due next.
#![allow(clippy::disallowed_methods, reason = "this is the module that may")]

use std::time::Duration;

use tokio::time::Instant;

/// The time.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits so long.
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits until then.
pub(crate) async fn until(at: Instant) {
    tokio::time::sleep_until(at).await;
}

/// A future's result, if it comes in time.
pub(crate) async fn within<F: Future>(time: Duration, what: F) -> Option<F::Output> {
    tokio::time::timeout(time, what).await.ok()
}
