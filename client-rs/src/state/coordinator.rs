//! Where the group's coordinator is.

use std::time::Instant;

use ottla_protocol::ErrorCode;

use super::pace::{Pace, soonest};
use super::token::{Token, Tokens};
use crate::error::Error;

/// What a broker says when it is asked for the coordinator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoordinatorAnswer {
    pub(crate) error: ErrorCode,
    pub(crate) node: i32,
}

/// What came of an answer.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    /// The coordinator is known from now on, or the question is asked again later.
    Going,
    /// Asking again is of no use before something is changed by a person.
    Refused(ErrorCode),
}

/// Whether asking again may help, after this code.
pub(crate) const fn passes(code: ErrorCode) -> bool {
    code.is_retriable()
}

#[derive(Debug)]
enum State {
    Unknown { retry_at: Instant },
    Asking { token: Token },
    Known { node: i32 },
}

/// Finds the coordinator, forgets it when it is gone, and finds it again.
#[derive(Debug)]
pub(crate) struct Coordinator {
    pace: Pace,
    state: State,
    attempt: u32,
    cause: Option<Error>,
}

impl Coordinator {
    /// Knows nothing yet and may ask at once.
    pub(crate) const fn new(pace: Pace, now: Instant) -> Self {
        Self { pace, state: State::Unknown { retry_at: now }, attempt: 0, cause: None }
    }

    /// The coordinator, if it is known.
    pub(crate) const fn node(&self) -> Option<i32> {
        match self.state {
            State::Known { node } => Some(node),
            _ => None,
        }
    }

    /// Why the last question failed, if it did.
    pub(crate) const fn cause(&self) -> Option<&Error> {
        self.cause.as_ref()
    }

    /// A question to any broker, if one is due.
    pub(crate) fn poll_request(&mut self, tokens: &mut Tokens, now: Instant) -> Option<Token> {
        match self.state {
            State::Unknown { retry_at } if retry_at <= now => {
                let token = tokens.next();
                self.state = State::Asking { token };
                Some(token)
            }
            _ => None,
        }
    }

    /// When [`Self::poll_request`] is worth a call again.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        match self.state {
            State::Unknown { retry_at } => soonest(now, [Some(retry_at)]),
            _ => None,
        }
    }

    /// Takes the answer to the question with `token`.
    pub(crate) fn handle_answer(
        &mut self,
        token: Token,
        answer: Result<CoordinatorAnswer, Error>,
        now: Instant,
    ) -> Found {
        match self.state {
            State::Asking { token: asked } if asked == token => {}
            // A stale answer: the question was given up.
            _ => return Found::Going,
        }
        match answer {
            Ok(CoordinatorAnswer { error: ErrorCode::NONE, node }) => {
                // The waits start over only once it has answered as coordinator: see handle_alive.
                self.state = State::Known { node };
                self.cause = None;
                Found::Going
            }
            Ok(CoordinatorAnswer { error, .. }) => {
                self.cause = Some(Error::from_kafka(error, None));
                self.again(now);
                if passes(error) { Found::Going } else { Found::Refused(error) }
            }
            Err(cause) => {
                self.cause = Some(cause);
                self.again(now);
                Found::Going
            }
        }
    }

    /// The coordinator did not answer, or said that it is none.
    pub(crate) fn handle_lost(&mut self, now: Instant) {
        if matches!(self.state, State::Known { .. }) {
            // The first question goes out at once: most often the group has moved already.
            self.state = State::Unknown { retry_at: now };
            if self.attempt > 0 {
                self.again(now);
            } else {
                self.attempt = 1;
            }
        }
    }

    /// The coordinator answered as one: the next loss starts with short waits again.
    pub(crate) const fn handle_alive(&mut self) {
        self.attempt = 0;
    }

    fn again(&mut self, now: Instant) {
        let retry_at = now + self.pace.delay(self.attempt);
        self.attempt = self.attempt.saturating_add(1);
        self.state = State::Unknown { retry_at };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::state::backoff::Backoff;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an origin for virtual time")]
    fn a_coordinator_that_is_found_and_lost_again_and_again_is_not_asked_for_in_a_loop() {
        let backoff = Backoff::new((Duration::from_millis(100), Duration::from_secs(1)));
        let (mut now, mut tokens) = (Instant::now(), Tokens::default());
        let mut coordinator = Coordinator::new(Pace::new(backoff, 1), now);
        let find = |coordinator: &mut Coordinator, tokens: &mut Tokens, now| {
            let token = coordinator.poll_request(tokens, now).expect("a question is due");
            let answer = CoordinatorAnswer { error: ErrorCode::NONE, node: 3 };
            coordinator.handle_answer(token, Ok(answer), now);
            assert_eq!(coordinator.node(), Some(3));
        };
        find(&mut coordinator, &mut tokens, now);
        coordinator.handle_lost(now);
        find(&mut coordinator, &mut tokens, now);
        for pause in [150, 300, 600] {
            coordinator.handle_lost(now);
            assert_eq!(coordinator.poll_request(&mut tokens, now), None, "{pause}");
            assert!(coordinator.poll_timeout(now).is_some());
            now += Duration::from_millis(2 * pause);
            find(&mut coordinator, &mut tokens, now);
        }
        // Once it has answered as one, the next loss is looked into at once.
        coordinator.handle_alive();
        coordinator.handle_lost(now);
        find(&mut coordinator, &mut tokens, now);
    }
}
