//! The end of a consumer: what is said before it, and who is told.

use std::time::{Duration, Instant};

use super::Engine;
use crate::consumer::face::Command;
use crate::error::{Error, ErrorKind};
use crate::state::machine::Context;
use crate::state::membership::Which;

/// Longest that a close waits for brokers that are told that fetch sessions end: they end by
/// themselves too, only later.
const SESSIONS_GRACE: Duration = Duration::from_millis(100);

/// A close under way.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) deadline: Instant,
    /// What could not be done.
    pub(super) fault: Option<Error>,
    /// Brokers that were told that their fetch sessions end, and have not answered.
    pub(super) sessions: usize,
    /// How long their answers are waited for.
    sessions_until: Instant,
}

impl Closing {
    /// When it is to be looked at again.
    pub(super) const fn times(&self) -> [Option<Instant>; 2] {
        [Some(self.deadline), if self.sessions > 0 { Some(self.sessions_until) } else { None }]
    }
}

impl Engine {
    pub(super) fn begin_close(&mut self, deadline: Instant, cx: &mut Context<'_>) {
        if let Some(closing) = &mut self.closing {
            closing.deadline = closing.deadline.min(deadline);
            return;
        }
        let (sessions, now) = (self.end_sessions(cx), cx.now);
        let sessions_until = now + SESSIONS_GRACE;
        self.closing = Some(Closing { deadline, fault: None, sessions, sessions_until });
        if self.config.auto_commit && self.has_group() && self.is_choosing() {
            self.commits.push(self.face.uncommitted(&Which::All));
        }
        self.membership.subscribe(Vec::new(), now);
    }

    /// Ends the close when all is said or the time is over. Whether the machine has ended.
    pub(super) fn advance_close(&mut self, now: Instant) -> bool {
        let Some(closing) = &mut self.closing else { return false };
        // Who is no member commits until the end.
        let open = self.membership.has_left() && !self.commits.is_idle();
        let done = self.membership.is_out() && !open;
        let told = closing.sessions == 0 || closing.sessions_until <= now;
        if !(done && told) && closing.deadline > now {
            return false;
        }
        let result = match closing.fault.take() {
            Some(fault) => Err(fault),
            None if done => Ok(()),
            // Whom no answer has named by now has no place that it knows of, and none to give up.
            None if self.membership.is_nameless() && self.commits.is_idle() => Ok(()),
            None => Err(unfinished(self.coordinator.cause(), !self.commits.is_idle())),
        };
        let closed = Error::closed();
        self.face.end(closed.clone());
        self.end_promises(&closed);
        self.closed.resolve(result);
        true
    }

    /// Everyone who waits is told that it is over.
    pub(super) fn end_promises(&mut self, error: &Error) {
        for command in self.face.drain().commands {
            match command {
                Command::Commit { promise: Some(promise), .. } => {
                    promise.resolve(Err(error.clone()));
                }
                Command::Lookup { promise, .. } => promise.resolve(Err(error.clone())),
                Command::Offsets { promise, .. } => promise.resolve(Err(error.clone())),
                _ => {}
            }
        }
        for (_, promise) in self.promises.drain() {
            promise.resolve(Err(error.clone()));
        }
        for (_, promise) in self.found.drain() {
            promise.resolve(Err(error.clone()));
        }
        for (_, promise) in self.offsets_found.drain() {
            promise.resolve(Err(error.clone()));
        }
    }
}

fn unfinished(cause: Option<&Error>, uncommitted: bool) -> Error {
    let text = if uncommitted {
        "the consumer was closed before its last offsets were committed"
    } else {
        "the consumer was closed before it could leave its group"
    };
    let error = Error::new(ErrorKind::Timeout, text);
    match cause {
        Some(cause) => error.with_source(cause.clone()),
        None => error,
    }
}
