//! The error codes of the protocol.

use std::fmt;

mod table;

/// An error code as it stands in answers; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ErrorCode(pub i16);

/// What a client must ask for anew before it tries again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// The metadata of the topic or cluster.
    Metadata,
    /// Which broker is the coordinator.
    Coordinator,
}

impl ErrorCode {
    /// Whether this is no error.
    pub const fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }

    /// Whether this is an error.
    pub const fn is_error(self) -> bool {
        !self.is_none()
    }

    /// Kafka's name of the code; `UNKNOWN_ERROR_CODE` if it has none.
    pub const fn name(self) -> &'static str {
        match self.known_name() {
            Some(name) => name,
            None => "UNKNOWN_ERROR_CODE",
        }
    }

    /// The code as a result, to be used with `?`.
    pub const fn into_result(self) -> Result<(), Self> {
        if self.is_none() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ErrorCode {}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> Self {
        Self(code)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_tell_whether_to_retry_and_what_to_refresh() {
        assert!(ErrorCode::NOT_LEADER_OR_FOLLOWER.is_retriable());
        assert_eq!(ErrorCode::NOT_LEADER_OR_FOLLOWER.refresh(), Some(Refresh::Metadata));
        assert_eq!(ErrorCode::NOT_COORDINATOR.refresh(), Some(Refresh::Coordinator));
        assert!(ErrorCode::REQUEST_TIMED_OUT.is_retriable());
        assert_eq!(ErrorCode::REQUEST_TIMED_OUT.refresh(), None);
        assert!(!ErrorCode::MESSAGE_TOO_LARGE.is_retriable());
        assert!(!ErrorCode(-2).is_retriable());
    }

    #[test]
    fn codes_print_name_and_number() {
        assert_eq!(ErrorCode(3).to_string(), "UNKNOWN_TOPIC_OR_PARTITION (3)");
        assert_eq!(ErrorCode(-1).to_string(), "UNKNOWN_SERVER_ERROR (-1)");
        assert_eq!(ErrorCode(9999).to_string(), "UNKNOWN_ERROR_CODE (9999)");
        assert_eq!(ErrorCode::NONE.into_result(), Ok(()));
        assert_eq!(ErrorCode(3).into_result(), Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    }
}
