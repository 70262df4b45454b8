//! Which answer belongs to which question on one connection.

use std::collections::VecDeque;
use std::fmt;

use crate::api::ApiKey;

/// A question whose answer is awaited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight<T> {
    /// What the answer must repeat.
    pub correlation_id: i32,
    /// The API asked.
    pub key: ApiKey,
    /// The version asked in, which the answer has too.
    pub version: i16,
    /// What the asker knows the question by.
    pub token: T,
}

/// Why a question cannot be asked or an answer not be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
    /// As many questions are in flight as may be.
    Full {
        /// That many.
        limit: usize,
    },
    /// An answer came and no question was open.
    Unexpected {
        /// The id it carried.
        got: i32,
    },
    /// An answer came that is not that of the oldest open question. Answers leave a broker in
    /// the order of the questions, so one of the two sides has lost count.
    OutOfOrder {
        /// The id of the oldest open question.
        expected: i32,
        /// The id it carried.
        got: i32,
    },
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { limit } => write!(f, "{limit} requests are in flight already"),
            Self::Unexpected { got } => {
                write!(f, "an answer with correlation id {got} came, and none was awaited")
            }
            Self::OutOfOrder { expected, got } => {
                write!(f, "an answer with correlation id {got} came in the place of {expected}")
            }
        }
    }
}

impl std::error::Error for SessionError {}

/// The open questions of one connection, oldest first.
#[derive(Debug, Clone)]
pub struct Session<T> {
    next: i32,
    limit: usize,
    in_flight: VecDeque<InFlight<T>>,
}

impl<T> Session<T> {
    /// A session in which at most `limit` questions are open at a time.
    pub const fn new(limit: usize) -> Self {
        Self { next: 0, limit, in_flight: VecDeque::new() }
    }

    /// How many questions are open.
    pub fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether no question is open.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether as many questions are open as may be.
    pub fn is_full(&self) -> bool {
        self.in_flight.len() >= self.limit
    }

    /// The oldest open question.
    pub fn oldest(&self) -> Option<&InFlight<T>> {
        self.in_flight.front()
    }

    /// The open questions, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &InFlight<T>> {
        self.in_flight.iter()
    }

    /// Opens a question and gives the id to send it under; the token is lost if it is refused.
    pub fn begin(&mut self, key: ApiKey, version: i16, token: T) -> Result<i32, SessionError> {
        if self.is_full() {
            return Err(SessionError::Full { limit: self.limit });
        }
        let correlation_id = self.begin_unanswered();
        self.in_flight.push_back(InFlight { correlation_id, key, version, token });
        Ok(correlation_id)
    }

    /// An id for a question that gets no answer: a Produce with `acks=0`.
    pub const fn begin_unanswered(&mut self) -> i32 {
        let correlation_id = self.next;
        self.next = if correlation_id == i32::MAX { 0 } else { correlation_id + 1 };
        correlation_id
    }

    /// Takes back the youngest question, whose bytes could not be made.
    pub fn cancel_youngest(&mut self) -> Option<InFlight<T>> {
        self.in_flight.pop_back()
    }

    /// Closes the question that an answer with `correlation_id` belongs to, and gives it.
    ///
    /// After an error nothing on the connection can be trusted: close it.
    pub fn handle_response(&mut self, correlation_id: i32) -> Result<InFlight<T>, SessionError> {
        match self.in_flight.front() {
            None => Err(SessionError::Unexpected { got: correlation_id }),
            Some(oldest) if oldest.correlation_id != correlation_id => {
                let expected = oldest.correlation_id;
                Err(SessionError::OutOfOrder { expected, got: correlation_id })
            }
            Some(_) => {
                self.in_flight.pop_front().ok_or(SessionError::Unexpected { got: correlation_id })
            }
        }
    }

    /// Closes all questions and gives them, oldest first: the connection is lost.
    pub fn handle_closed(&mut self) -> impl Iterator<Item = InFlight<T>> + use<T> {
        std::mem::take(&mut self.in_flight).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_find_their_questions_in_order() {
        let mut session = Session::new(5);
        assert_eq!(session.begin(ApiKey::Metadata, 9, 'a'), Ok(0));
        assert_eq!(session.begin_unanswered(), 1);
        assert_eq!(session.begin(ApiKey::Fetch, 12, 'b'), Ok(2));
        let first = session.handle_response(0).unwrap();
        assert_eq!((first.key, first.version, first.token), (ApiKey::Metadata, 9, 'a'));
        assert_eq!(session.handle_response(2).unwrap().token, 'b');
        assert!(session.is_empty());
    }

    #[test]
    fn an_answer_nobody_asked_for_is_an_error() {
        let mut session = Session::<char>::new(5);
        assert_eq!(session.handle_response(7), Err(SessionError::Unexpected { got: 7 }));
        session.begin(ApiKey::Metadata, 9, 'a').unwrap();
        session.begin(ApiKey::Metadata, 9, 'b').unwrap();
        assert_eq!(
            session.handle_response(1),
            Err(SessionError::OutOfOrder { expected: 0, got: 1 })
        );
        assert_eq!(session.len(), 2);
        session.handle_response(0).unwrap();
        assert!(session.handle_response(0).is_err());
    }

    #[test]
    fn no_more_questions_than_the_limit_are_open() {
        let mut session = Session::new(2);
        session.begin(ApiKey::Metadata, 9, 'a').unwrap();
        session.begin(ApiKey::Metadata, 9, 'b').unwrap();
        assert_eq!(session.begin(ApiKey::Metadata, 9, 'c'), Err(SessionError::Full { limit: 2 }));
        session.handle_response(0).unwrap();
        // A refused question uses up no id.
        assert_eq!(session.begin(ApiKey::Metadata, 9, 'c'), Ok(2));
    }

    #[test]
    fn ids_stay_at_or_above_0() {
        let mut session = Session::<()>::new(1);
        session.next = i32::MAX;
        assert_eq!(session.begin_unanswered(), i32::MAX);
        assert_eq!(session.begin_unanswered(), 0);
    }

    #[test]
    fn a_lost_connection_gives_back_all_open_questions() {
        let mut session = Session::new(5);
        session.begin(ApiKey::Metadata, 9, 'a').unwrap();
        session.begin(ApiKey::Fetch, 12, 'b').unwrap();
        let tokens: Vec<_> = session.handle_closed().map(|question| question.token).collect();
        assert_eq!(tokens, ['a', 'b']);
        assert!(session.is_empty());
    }
}
