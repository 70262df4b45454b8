//! The one module that reads the time and sleeps.
#![allow(clippy::disallowed_methods, reason = "the one place where time enters the broker")]
#![allow(clippy::unused_self, reason = "callers hold a clock, so that another can take its place")]

#[cfg(feature = "sim")]
mod sim;

use std::future::Future;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[cfg(feature = "sim")]
pub use self::sim::{SimWorld, enter};

/// The source of time of one broker.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock;

/// A deadline passed before the awaited thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elapsed;

impl Clock {
    /// Monotonic time, for deadlines.
    pub(crate) fn now(self) -> Instant {
        #[cfg(feature = "sim")]
        if sim::is_on() {
            return sim::runtime_now();
        }
        Instant::now()
    }

    /// Milliseconds since the epoch, for records.
    pub(crate) fn now_ms(self) -> i64 {
        #[cfg(feature = "sim")]
        if let Some(simulated) = sim::wall_ms() {
            return simulated;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// Whether it is a simulator's.
    #[cfg(feature = "sim")]
    pub(crate) fn is_simulated(self) -> bool {
        sim::is_on()
    }

    /// Waits for `what`, at most until `deadline`.
    pub(crate) async fn until<F: Future>(
        self,
        deadline: Instant,
        what: F,
    ) -> Result<F::Output, Elapsed> {
        tokio::time::timeout_at(deadline.into(), what).await.map_err(|_elapsed| Elapsed)
    }

    /// Returns at `deadline`.
    pub(crate) async fn sleep_until(self, deadline: Instant) {
        tokio::time::sleep_until(deadline.into()).await;
    }
}

/// Fills bytes with chance, the system's.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    #[cfg(feature = "sim")]
    if sim::fill(bytes) {
        return Ok(());
    }
    getrandom::fill(bytes)
}
