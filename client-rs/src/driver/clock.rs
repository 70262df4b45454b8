//! The clock: the one place that reads it, and sleeps.

#![allow(clippy::disallowed_methods, reason = "this is the module that may")]

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time, for deadlines.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since the epoch, for records.
#[inline]
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    seconds.saturating_mul(1000).saturating_add(i64::from(since.subsec_millis()))
}

/// Sleeps until a time.
pub(crate) async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(at.into()).await;
}

/// A task's one timer, set anew at each poll.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    at: Option<Instant>,
}

impl Timer {
    /// Whether the time has come; else the task is polled again when it does. `None` never comes.
    pub(crate) fn poll(&mut self, at: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = at else { return Poll::Pending };
        match &mut self.sleep {
            Some(sleep) if self.at != at => sleep.as_mut().reset(deadline.into()),
            Some(_) => {}
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(deadline.into()))),
        }
        self.at = at;
        let fired = match &mut self.sleep {
            Some(sleep) => sleep.as_mut().poll(cx),
            None => Poll::Pending,
        };
        if fired.is_ready() {
            // A timer that has fired is not polled again before it is reset.
            self.at = None;
        }
        fired
    }
}
