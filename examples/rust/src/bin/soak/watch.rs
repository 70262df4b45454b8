//! What is wrong, what each thread waits for, and how far the run is.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::now;

/// Texts that are kept of one check; the others are counted.
const KEPT: usize = 8;

/// How far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Under load.
    Load,
    /// Nothing more is sent, the broker is left alone; readers read to the end.
    Drain,
    /// Everybody leaves.
    End,
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Check {
    Records,
    Sends,
    Groups,
    Calls,
    Gauges,
    Broker,
    Topics,
    Left,
    ClientGrowth,
    BrokerGrowth,
}

impl Check {
    pub(crate) const ALL: [(Self, &'static str); 10] = [
        (Self::Records, "nothing acknowledged is missing, each record once and in order"),
        (Self::Sends, "every send was acknowledged within delivery.timeout.ms"),
        (Self::Groups, "every group reads on"),
        (Self::Calls, "every call ended in its time, and as it should"),
        (Self::Gauges, "buffers within buffer.memory and fetch.buffer.memory"),
        (Self::Broker, "the broker ends when told, and starts again"),
        (Self::Topics, "topics are created, read and deleted"),
        (Self::Left, "clients that ended left no connection and no thread"),
        (Self::ClientGrowth, "the clients' process does not grow"),
        (Self::BrokerGrowth, "the broker does not grow"),
    ];
}

/// A call that has not ended.
#[derive(Debug)]
struct Open {
    thread: String,
    what: &'static str,
    since: Instant,
    limit: Duration,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    open: BTreeMap<u64, Open>,
    calls: u64,
    faults: BTreeMap<Check, (u64, Vec<String>)>,
}

/// What all threads of a run tell each other.
#[derive(Debug)]
pub(crate) struct Watch {
    begin: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let state =
            State { phase: Phase::Load, open: BTreeMap::new(), calls: 0, faults: BTreeMap::new() };
        Self { begin: now(), state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Goes on to a phase; never back.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = state.phase.max(phase);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits so long, or until that phase has begun; whether it has not.
    pub(crate) fn rest(&self, span: Duration, until: Phase) -> bool {
        let waiting = |state: &mut State| state.phase < until;
        let waited = self.changed.wait_timeout_while(self.lock(), span, waiting);
        waited.unwrap_or_else(PoisonError::into_inner).0.phase < until
    }

    /// Notes what is wrong, and says so at once.
    pub(crate) fn fault(&self, check: Check, text: impl Into<String>) {
        let text = text.into();
        let mut state = self.lock();
        let (count, texts) = state.faults.entry(check).or_default();
        *count += 1;
        if texts.len() < KEPT {
            println!("{:>7} s  FAULT {check:?}: {text}", self.begin.elapsed().as_secs());
            texts.push(text);
        }
    }

    /// What was found wrong with a check.
    pub(crate) fn found(&self, check: Check) -> Option<String> {
        let state = self.lock();
        let (count, texts) = state.faults.get(&check)?;
        let more = count.saturating_sub(u64::try_from(texts.len()).unwrap_or(0));
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Some(texts.join("; ") + &more)
    }

    /// Makes a call that must end within its limit.
    pub(crate) fn call<T>(
        &self,
        what: &'static str,
        limit: Duration,
        body: impl FnOnce() -> T,
    ) -> T {
        let since = now();
        let thread = thread::current().name().unwrap_or("main").to_owned();
        let mut state = self.lock();
        state.calls += 1;
        let id = state.calls;
        state.open.insert(id, Open { thread, what, since, limit });
        drop(state);
        let result = body();
        let open = self.lock().open.remove(&id);
        let took = since.elapsed();
        if let Some(open) = open.filter(|_| took > limit) {
            let (thread, took) = (open.thread, took.as_secs_f64());
            self.fault(Check::Calls, format!("{thread}: {what} took {took:.1} s"));
        }
        result
    }

    /// Calls that are twice over their time and have not ended.
    pub(crate) fn hung(&self) -> Option<String> {
        let state = self.lock();
        let hung = state.open.values().filter(|open| open.since.elapsed() > open.limit * 2);
        let hung: Vec<String> = hung
            .map(|open| {
                let seconds = open.since.elapsed().as_secs();
                format!("{} hangs in {} since {seconds} s", open.thread, open.what)
            })
            .collect();
        (!hung.is_empty()).then(|| hung.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_does_not_end_is_told_with_its_thread_and_one_that_ended_is_not() {
        let watch = Watch::new();
        watch.call("nothing", Duration::from_hours(1), || assert_eq!(watch.hung(), None));
        let inside = watch.call("flush", Duration::ZERO, || {
            loop {
                if let Some(hung) = watch.hung() {
                    break hung;
                }
            }
        });
        assert!(inside.contains("hangs in flush"), "{inside}");
        assert_eq!(watch.hung(), None);
        assert!(watch.found(Check::Calls).unwrap().contains("flush took"));
    }

    #[test]
    fn faults_are_counted_and_the_first_are_kept() {
        let watch = Watch::new();
        assert_eq!(watch.found(Check::Groups), None);
        for number in 0..20 {
            watch.fault(Check::Groups, format!("fault {number}"));
        }
        let found = watch.found(Check::Groups).unwrap();
        assert!(found.starts_with("fault 0; fault 1;"), "{found}");
        assert!(found.ends_with("fault 7; and 12 more"), "{found}");
    }
}
