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
    /// Those who wait, by their tickets: one place each, however often it looks.
    sleepers: Vec<(u64, Sleeper)>,
    /// Tickets given out.
    tickets: u64,
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
        wake(sleepers);
    }

    /// The client has ended: who waits is told so.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.over = true;
        let sleepers = std::mem::take(&mut state.sleepers);
        drop(state);
        wake(sleepers);
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

    /// The next event. If there is none, who has the ticket is woken when one comes, or the client
    /// ends; a ticket of 0 is none yet, and becomes one.
    pub(super) fn take(&self, waiter: Option<(&mut u64, Sleeper)>) -> Taken {
        let mut state = lock(&self.state);
        let waiting = state.waiting.pop_front();
        // What was lost last came behind all that was kept.
        let lost = if waiting.is_none() { std::mem::take(&mut state.lost) } else { 0 };
        let event = waiting.or((lost > 0).then_some(Event::EventsLost { count: lost }));
        let over = event.is_none() && state.over;
        if event.is_none()
            && !over
            && let Some((ticket, sleeper)) = waiter
        {
            if *ticket == 0 {
                state.tickets += 1;
                *ticket = state.tickets;
            }
            let new = (*ticket, sleeper);
            let known = state.sleepers.iter_mut().find(|(known, _)| known == ticket);
            let Some(known) = known else {
                state.sleepers.push(new);
                return Taken { event, over };
            };
            let old = std::mem::replace(known, new);
            drop(state);
            // Outside of the lock: a waker is the program's.
            drop(old);
        }
        Taken { event, over }
    }

    /// Who has this ticket waits no longer.
    pub(super) fn forget(&self, ticket: u64) {
        let mut state = lock(&self.state);
        let known = state.sleepers.iter().position(|(known, _)| *known == ticket);
        let gone = known.map(|at| state.sleepers.swap_remove(at));
        drop(state);
        drop(gone);
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.state).sleepers.len()
    }
}

fn wake(sleepers: Vec<(u64, Sleeper)>) {
    for (_, sleeper) in sleepers {
        sleeper.wake();
    }
}
