//! Waiting in tests: up to a limit that nothing here comes near, and never for a fixed time.

#![allow(dead_code, reason = "each story takes what it needs")]
#![allow(clippy::disallowed_methods, reason = "tests wait in real time, up to a limit")]

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Far longer than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);

/// Between two looks: those who are waited for need the processor more.
const BREATH: Duration = Duration::from_micros(100);

/// What a story comes to, which must not hang; and how long it took.
pub(crate) fn timed<T: Send + 'static>(
    story: impl FnOnce() -> T + Send + 'static,
) -> (T, Duration) {
    let began = Instant::now();
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        let result = story();
        // Whoever waited has given up if nobody takes it.
        tell.send(result).ok();
    });
    match told.recv_timeout(LIMIT) {
        Ok(result) => (result, began.elapsed()),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(()) => unreachable!("it said nothing"),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}

/// What a story comes to, which must not hang.
pub(crate) fn within_limit<T: Send + 'static>(story: impl FnOnce() -> T + Send + 'static) -> T {
    timed(story).0
}

/// What a story comes to whose own times are so many times as long as it would like: of the first
/// that is right, or else of the last, for its teller to complain of. A machine may be slow, and
/// then a time that is over says nothing.
pub(crate) fn given_time<T>(right: impl Fn(&T) -> bool, mut story: impl FnMut(u32) -> T) -> T {
    for times in [1, 4, 16] {
        let found = story(times);
        if right(&found) {
            return found;
        }
    }
    story(64)
}

/// Waits until something holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        thread::park_timeout(BREATH);
    }
}

/// Wakes a thread, and counts how often it was asked to.
pub(crate) struct Wakes {
    count: AtomicU64,
    thread: Thread,
}

impl Wakes {
    pub(crate) fn of_this_thread() -> Arc<Self> {
        Arc::new(Self { count: AtomicU64::new(0), thread: thread::current() })
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Runs a future on this thread; what it comes to, and how often it was woken until then.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> (T, u64) {
    let (result, wakes) = block_on_counted(future);
    (result, wakes.count())
}

/// The same, with the wakes themselves: a last one may come when the future has seen already what
/// it is about.
pub(crate) fn block_on_counted<T>(future: impl Future<Output = T>) -> (T, Arc<Wakes>) {
    let wakes = Wakes::of_this_thread();
    let waker = Waker::from(Arc::clone(&wakes));
    let mut future = pin!(future);
    let deadline = Instant::now() + LIMIT;
    let mut seen = 0;
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (result, wakes);
        }
        // A park may end by itself: only a wake is a reason to poll.
        while wakes.count() == seen {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nobody wakes the future");
            thread::park_timeout(left);
        }
        seen = wakes.count();
    }
}
