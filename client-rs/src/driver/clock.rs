//! The clock: the one place that reads it, and sleeps.

#![allow(clippy::disallowed_methods, reason = "this is the module that may")]

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// The time, for deadlines.
#[inline]
pub(crate) fn now() -> Instant {
    #[cfg(feature = "sim")]
    if super::sim::is_on() {
        return runtime_now();
    }
    Instant::now()
}

/// Longest wait that is told apart from one for ever: about 30 years.
const FAR: Duration = Duration::from_hours(30 * 365 * 24);

/// When so much time will be over; of a wait that a program names, which may be any.
pub(crate) fn after(wait: Duration) -> Instant {
    now() + wait.min(FAR)
}

/// The time of the runtime that this thread is in, which a simulator moves.
#[cfg(feature = "sim")]
pub(crate) fn runtime_now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Milliseconds since the epoch, for records.
#[inline]
pub(crate) fn now_ms() -> i64 {
    #[cfg(feature = "sim")]
    if let Some(simulated) = super::sim::wall_ms() {
        return simulated;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    seconds.saturating_mul(1000).saturating_add(i64::from(since.subsec_millis()))
}

thread_local! {
    /// The system's tick, and the time read at its first record.
    static TICK: Cell<(i64, i64, i64)> = const { Cell::new((0, 0, 0)) };
}

/// The same for a record among many: those of one tick of the system, 1 to 10 ms, share the time of
/// the first one that the thread sent in it.
///
/// Reading the clock to the millisecond takes longer than encoding a record: the processor finishes
/// all that it has begun before. The tick is a word in memory.
#[inline]
pub(crate) fn burst_ms() -> i64 {
    #[cfg(feature = "sim")]
    if let Some(simulated) = super::sim::wall_ms() {
        return simulated;
    }
    let tick = clock_gettime(ClockId::RealtimeCoarse);
    let fresh = TICK.try_with(|known| {
        let (seconds, nanoseconds, millis) = known.get();
        if (seconds, nanoseconds) == (tick.tv_sec, tick.tv_nsec) {
            return millis;
        }
        let millis = now_ms();
        known.set((tick.tv_sec, tick.tv_nsec, millis));
        millis
    });
    fresh.unwrap_or_else(|_| now_ms())
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
