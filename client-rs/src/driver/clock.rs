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

/// A task's one timer, which is told the time at each poll.
///
/// One that is due sooner than asked stays as it is, and is set anew when it fires: to bring the
/// runtime's next timer forward costs a write to its own event descriptor, and one more round of the
/// poller, which would lie in the way of each lone record.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    /// When it fires; unset if it has.
    set: Option<Instant>,
}

impl Timer {
    /// Whether the time has come; else the task is polled again when it does, or before. `None`
    /// never comes.
    pub(crate) fn poll(&mut self, at: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = at else { return Poll::Pending };
        if self.set.is_none_or(|set| set > deadline) {
            self.set(deadline);
        }
        while let Some(sleep) = &mut self.sleep {
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // One that has fired is not polled again before it is set.
            let fired = self.set.take();
            if fired.is_none_or(|fired| fired >= deadline) {
                return Poll::Ready(());
            }
            self.set(deadline);
        }
        Poll::Pending
    }

    fn set(&mut self, deadline: Instant) {
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(deadline.into()),
            none => *none = Some(Box::pin(tokio::time::sleep_until(deadline.into()))),
        }
        self.set = Some(deadline);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Far less than the far times that are asked, far more than the near ones.
    const LIMIT: Duration = Duration::from_mins(1);

    /// How long a timer took that was asked for each of these times and then for the last until it
    /// fired, and how often its task was polled for that.
    fn fired_after(asked: &[Duration]) -> (Duration, u32) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let begin = now();
            let (mut timer, mut polls) = (Timer::default(), 0);
            let (last, before) = asked.split_last().unwrap();
            for &wait in before {
                poll_fn(|cx| Poll::Ready(timer.poll(Some(begin + wait), cx).is_ready())).await;
            }
            let fired = poll_fn(|cx| {
                polls += 1;
                timer.poll(Some(begin + *last), cx)
            });
            tokio::time::timeout(LIMIT, fired).await.expect("the timer fires");
            (begin.elapsed(), polls)
        })
    }

    #[test]
    fn a_timer_fires_when_it_was_asked_last_sooner_or_later_than_before() {
        let [near, nearer, far] = [20, 5, 3_600_000].map(Duration::from_millis);
        for asked in
            [&[near][..], &[nearer, near], &[near, nearer], &[far, near], &[nearer, far, near]]
        {
            let (took, _) = fired_after(asked);
            assert!(took >= *asked.last().unwrap(), "{asked:?}: after {took:?}");
        }
    }

    #[test]
    fn a_time_put_off_again_and_again_wakes_the_task_for_the_first_and_the_last() {
        let (_, polls) = fired_after(&[5, 6, 7, 8, 9, 50].map(Duration::from_millis));
        assert!(polls <= 3, "{polls} polls: before the first was due, then, and at the last");
    }
}
