//! The word by which any thread wakes a client's machines, once for all that it has put there.

use std::task::Waker;

use super::sync::{AtomicU8, Mutex, Ordering, fence, lock};

/// The machines run, and look again before they sleep.
const BUSY: u8 = 0;
/// They sleep, and want to know of everything.
const PARKED: u8 = 1;
/// They sleep, and are woken soon in any case: what is only begun can wait.
const PARKED_BUSY: u8 = 2;
/// They have been told, and will look.
const SIGNALLED: u8 = 3;

/// Wakes a client's machines.
///
/// Whoever puts something there calls [`Wake::wake`] afterwards; only the first call after the
/// machines went to sleep costs more than an exchange of one word.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    word: AtomicU8,
    sleeper: Mutex<Option<Waker>>,
}

impl Wake {
    /// Makes the machines look at what there is.
    pub(crate) fn wake(&self) {
        let before = self.word.swap(SIGNALLED, Ordering::SeqCst);
        if before == PARKED || before == PARKED_BUSY {
            // Cloned out, so that no lock is held while the other runtime is entered.
            let sleeper = lock(&self.sleeper).clone();
            if let Some(sleeper) = sleeper {
                sleeper.wake();
            }
        }
    }

    /// The same, unless the machines wait for answers and look then.
    pub(crate) fn wake_if_idle(&self) {
        // Orders what was put there before the look at the word; `begin` does the reverse.
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::SeqCst) != PARKED_BUSY {
            self.wake();
        }
    }

    /// The machines run: what is put there from now on makes [`Wake::park`] refuse. Whether they were
    /// told of something.
    pub(crate) fn begin(&self) -> bool {
        let before = self.word.swap(BUSY, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        before == SIGNALLED
    }

    /// Goes to sleep, or refuses since something was put there after [`Wake::begin`].
    pub(crate) fn park(&self, waker: &Waker, busy: bool) -> bool {
        let mut sleeper = lock(&self.sleeper);
        if !sleeper.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *sleeper = Some(waker.clone());
        }
        drop(sleeper);
        let parked = if busy { PARKED_BUSY } else { PARKED };
        self.word.compare_exchange(BUSY, parked, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::task::{Wake as TaskWake, Waker};

    use super::*;
    use crate::state::parker::Parker;

    #[derive(Default)]
    struct Counted {
        wakes: AtomicU32,
        parker: Parker,
    }

    impl TaskWake for Counted {
        fn wake(self: Arc<Self>) {
            self.wakes.fetch_add(1, Ordering::SeqCst);
            self.parker.unpark();
        }
    }

    #[test]
    fn only_the_first_wake_after_parking_reaches_the_sleeper() {
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&counted));
        let wake = Wake::default();
        wake.begin();
        assert!(wake.park(&waker, false));
        wake.wake();
        wake.wake();
        wake.wake_if_idle();
        assert_eq!(counted.wakes.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_comes_while_busy_keeps_the_machines_from_sleeping() {
        let waker = Waker::from(Arc::new(Counted::default()));
        let wake = Wake::default();
        wake.begin();
        wake.wake_if_idle();
        assert!(!wake.park(&waker, true));
        wake.begin();
        assert!(wake.park(&waker, true));
    }

    #[test]
    fn a_begun_batch_does_not_wake_machines_that_wait_for_answers() {
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&counted));
        let wake = Wake::default();
        wake.begin();
        assert!(wake.park(&waker, true));
        wake.wake_if_idle();
        assert_eq!(counted.wakes.load(Ordering::SeqCst), 0);
        wake.wake();
        assert_eq!(counted.wakes.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn no_wake_is_lost_between_two_threads() {
        const ITEMS: u32 = 20_000;
        let counted = Arc::new(Counted::default());
        let wake = Arc::new(Wake::default());
        let put = Arc::new(AtomicU32::new(0));
        let (wake_in, put_in) = (Arc::clone(&wake), Arc::clone(&put));
        let pusher = std::thread::spawn(move || {
            for _ in 0..ITEMS {
                put_in.fetch_add(1, Ordering::Relaxed);
                wake_in.wake_if_idle();
            }
        });
        let waker = Waker::from(Arc::clone(&counted));
        let mut seen = 0;
        while seen < ITEMS {
            wake.begin();
            seen = put.load(Ordering::Relaxed);
            if seen < ITEMS && wake.park(&waker, false) {
                let woken = counted.parker.park(std::time::Duration::from_secs(30));
                assert!(woken, "slept through a wake at {seen}");
            }
        }
        pusher.join().unwrap();
    }
}
