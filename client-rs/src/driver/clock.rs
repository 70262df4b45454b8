//! The clock: the one place that reads it, and sleeps.

#![allow(clippy::disallowed_methods, reason = "this is the module that may")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time, for deadlines.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since the epoch, for records.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
