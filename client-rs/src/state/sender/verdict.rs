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

/// What a batch comes to, as one word.
#[cfg(test)]
pub(crate) fn word(code: ErrorCode) -> &'static str {
    match of_code(code, Error::from_kafka(code, None)) {
        Verdict::Stored { .. } => "stored",
        Verdict::Retry(_) => "retry",
        Verdict::Reject(_) => "reject",
        Verdict::Split(_) => "split",
        Verdict::Sequence(_) => "sequence",
        Verdict::Fatal(_) => "fatal",
        Verdict::Lost { .. } => "lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes that Kafka's brokers answer a Produce with [ReplicaManager, KafkaApis].
    #[test]
    fn each_code_of_a_produce_answer_has_one_meaning() {
        for (code, meaning) in [
            (ErrorCode::OFFSET_OUT_OF_RANGE, "reject"),
            (ErrorCode::CORRUPT_MESSAGE, "retry"),
            (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "retry"),
            (ErrorCode::UNKNOWN_TOPIC_ID, "retry"),
            (ErrorCode::LEADER_NOT_AVAILABLE, "retry"),
            (ErrorCode::NOT_LEADER_OR_FOLLOWER, "lost"),
            (ErrorCode::REQUEST_TIMED_OUT, "lost"),
            (ErrorCode::NETWORK_EXCEPTION, "lost"),
            (ErrorCode::KAFKA_STORAGE_ERROR, "lost"),
            (ErrorCode::MESSAGE_TOO_LARGE, "split"),
            (ErrorCode::RECORD_LIST_TOO_LARGE, "split"),
            (ErrorCode::INVALID_TOPIC_EXCEPTION, "reject"),
            (ErrorCode::NOT_ENOUGH_REPLICAS, "retry"),
            (ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND, "lost"),
            (ErrorCode::INVALID_REQUIRED_ACKS, "reject"),
            (ErrorCode::TOPIC_AUTHORIZATION_FAILED, "reject"),
            (ErrorCode::CLUSTER_AUTHORIZATION_FAILED, "fatal"),
            (ErrorCode::INVALID_TIMESTAMP, "reject"),
            (ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT, "reject"),
            (ErrorCode::POLICY_VIOLATION, "reject"),
            (ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence"),
            (ErrorCode::DUPLICATE_SEQUENCE_NUMBER, "stored"),
            (ErrorCode::INVALID_PRODUCER_EPOCH, "sequence"),
            (ErrorCode::UNKNOWN_PRODUCER_ID, "sequence"),
            (ErrorCode::PRODUCER_FENCED, "fatal"),
            (ErrorCode::INVALID_RECORD, "reject"),
            (ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, "reject"),
            (ErrorCode::UNKNOWN_SERVER_ERROR, "reject"),
            (ErrorCode(9_999), "reject"),
        ] {
            assert_eq!(word(code), meaning, "{code}");
        }
    }
}
