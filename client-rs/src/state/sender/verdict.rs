//! What a broker's word about a batch means for it.

use ottla_protocol::{ErrorCode, left_out};

use crate::error::Error;

/// What becomes of a batch after an attempt.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is stored.
    Stored { base_offset: i64, append_time: i64 },
    /// It is not stored, and may be another time.
    Retry(Error),
    /// It will not be stored.
    Reject(Error),
    /// It is too large as it is.
    Split(Error),
    /// The broker lost count of this producer's records.
    Sequence(Error),
    /// This producer may not write any more.
    Fatal(Error),
    /// There is no answer, or one that does not tell whether it is stored.
    Lost { error: Error, written: bool },
}

/// The meaning of an error code in a Produce answer.
pub(crate) fn of_code(code: ErrorCode, error: Error) -> Verdict {
    match code {
        // It was stored by an earlier attempt, so long ago that its offset is forgotten.
        ErrorCode::DUPLICATE_SEQUENCE_NUMBER => {
            Verdict::Stored { base_offset: -1, append_time: -1 }
        }
        ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE => Verdict::Split(error),
        // KIP-360: a producer without transactions goes on under its next epoch.
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
        | ErrorCode::UNKNOWN_PRODUCER_ID
        | ErrorCode::INVALID_PRODUCER_EPOCH => Verdict::Sequence(error),
        ErrorCode::PRODUCER_FENCED | ErrorCode::CLUSTER_AUTHORIZATION_FAILED => {
            Verdict::Fatal(error)
        }
        // The leader had appended it, or may have [DelayedProduce, ReplicaManager]: it may be
        // stored, and its sequence is no other batch's.
        ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        | ErrorCode::REQUEST_TIMED_OUT
        | ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::KAFKA_STORAGE_ERROR
        | ErrorCode::NETWORK_EXCEPTION
            if !left_out("unsure_is_lost") =>
        {
            Verdict::Lost { error, written: true }
        }
        code if code.is_retriable() => Verdict::Retry(error),
        _ => Verdict::Reject(error),
    }
}
