//! Where a client's events wait to be taken, if anybody wants them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{EVENTS_MAX, Event};
use crate::state::guard::lock;
use crate::state::parker::Sleeper;

/// The events of one client.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// Somebody wants them.
    open: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Handles that may ask.
    readers: usize,
    waiting: VecDeque<Event>,
    lost: u64,
    sleepers: Vec<Sleeper>,
    /// The client has ended: nothing more comes.
    over: bool,
}

/// What a look brought.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) event: Option<Event>,
    /// There is none, and none will come.
    pub(super) over: bool,
}

impl Feed {
    /// Keeps an event, if anybody wants it; made only then.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if !self.open.load(Ordering::Relaxed) {
            return;
        }
        let event = event();
        let mut state = lock(&self.state);
        if state.readers == 0 {
            return;
        }
        if state.waiting.len() + usize::from(state.lost > 0) >= EVENTS_MAX {
            state.lost += 1;
            return;
        }
        if state.lost > 0 {
            let count = std::mem::take(&mut state.lost);
            state.waiting.push_back(Event::EventsLost { count });
        }
        state.waiting.push_back(event);
        let sleepers = std::mem::take(&mut state.sleepers);
        drop(state);
        sleepers.into_iter().for_each(Sleeper::wake);
    }

    /// The client has ended: who waits is told so.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.over = true;
        let sleepers = std::mem::take(&mut state.sleepers);
        drop(state);
        sleepers.into_iter().for_each(Sleeper::wake);
    }

    /// One more wants events.
    pub(super) fn open(&self) {
        lock(&self.state).readers += 1;
        self.open.store(true, Ordering::Relaxed);
    }

    /// One fewer does; the last takes what waits along.
    pub(super) fn shut(&self) {
        let mut state = lock(&self.state);
        state.readers = state.readers.saturating_sub(1);
        if state.readers == 0 {
            self.open.store(false, Ordering::Relaxed);
            let left = std::mem::take(&mut state.waiting);
            (state.lost, state.sleepers) = (0, Vec::new());
            drop(state);
            // Outside of the lock: errors may hold much.
            drop(left);
        }
    }

    /// The next event; if there is none, the sleeper is woken when one comes, or the client ends.
    pub(super) fn take(&self, sleeper: Option<Sleeper>) -> Taken {
        let mut state = lock(&self.state);
        let waiting = state.waiting.pop_front();
        // What was lost last came behind all that was kept.
        let lost = if waiting.is_none() { std::mem::take(&mut state.lost) } else { 0 };
        let event = waiting.or((lost > 0).then_some(Event::EventsLost { count: lost }));
        let over = event.is_none() && state.over;
        if event.is_none()
            && !over
            && let Some(sleeper) = sleeper
            && !state.sleepers.iter().any(|known| known.is_same(&sleeper))
        {
            state.sleepers.push(sleeper);
        }
        Taken { event, over }
    }
}
