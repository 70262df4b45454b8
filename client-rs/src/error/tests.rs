//! What errors say of themselves.

use std::collections::BTreeSet;
use std::io;

use super::*;

#[test]
fn numbers_and_names_of_kinds_are_each_used_once() {
    let numbers: BTreeSet<u16> = ErrorKind::ALL.iter().map(|kind| kind.number()).collect();
    assert_eq!(numbers.len(), ErrorKind::ALL.len());
    for &kind in ErrorKind::ALL {
        assert_eq!(ErrorKind::from_number(kind.number()), Some(kind));
        assert_eq!(ErrorKind::from_name(kind.name()), Some(kind));
        assert!(kind.doc().trim().ends_with('.'), "{kind:?}");
    }
}

#[test]
fn an_error_tells_where_why_and_what_to_do() {
    let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
    let cause = Error::new(ErrorKind::Connect, "cannot connect").with_source(refused);
    let error = Error::new(ErrorKind::DeliveryTimeout, "the record was not delivered in time")
        .with_topic(&"orders".into())
        .with_partition(3)
        .with_api(ApiKey::Produce)
        .with_attempt(2, Duration::from_millis(130))
        .with_source(cause)
        .with_outcome(Outcome::NotSent)
        .with_hint("is the broker running?");
    assert_eq!(
        error.to_string(),
        "the record was not delivered in time [topic orders-3, Produce, attempt 2 after 0.130 s]: \
         cannot connect: connection refused; not sent (is the broker running?)"
    );
    assert!(error.retriable());
    assert!(!error.maybe_stored());
    assert_eq!(
        error.source().and_then(StdError::source).map(ToString::to_string).as_deref(),
        Some("connection refused")
    );
}

#[test]
fn codes_of_a_broker_become_kinds() {
    let error = Error::from_kafka(ErrorCode::MESSAGE_TOO_LARGE, Some("2,000 bytes at most"));
    assert_eq!(error.kind(), ErrorKind::RecordTooLarge);
    assert_eq!(error.kafka_code(), Some(10));
    assert!(error.to_string().contains("2,000 bytes at most"));
    assert_eq!(ErrorKind::from_kafka(ErrorCode(12_345)), ErrorKind::Other);
}

/// All of Kafka's codes but 0, which is no error.
fn codes() -> impl Iterator<Item = ErrorCode> {
    let known = (-1..=1000).map(ErrorCode).filter(|code| code.name() != "UNKNOWN_ERROR_CODE");
    known.filter(|code| code.is_error())
}

#[test]
fn every_code_that_kafka_retries_is_retriable_and_few_others_are() {
    // Kafka's own clients give up at these, though they may pass: a broker that stumbled, one that
    // is away, and a lost count of records, which a new epoch mends (KIP-360).
    let ours = [
        ErrorCode::UNKNOWN_SERVER_ERROR,
        ErrorCode::BROKER_NOT_AVAILABLE,
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode::UNKNOWN_PRODUCER_ID,
    ];
    assert!(codes().count() > 130);
    for code in codes() {
        let retriable = ErrorKind::from_kafka(code).class() == ErrorClass::Retriable;
        assert_eq!(retriable, code.is_retriable() || ours.contains(&code), "{code}");
    }
}

#[test]
fn a_code_without_a_kind_belongs_to_what_this_client_does_not_speak() {
    let unspoken = [
        "DUPLICATE_SEQUENCE_NUMBER", // A success, to a producer.
        "MEMBER_ID_REQUIRED",        // A step of joining.
        "INVALID_TXN_STATE",
        "INVALID_PRODUCER_ID_MAPPING",
        "TRANSACTION_COORDINATOR_FENCED",
        "TRANSACTION_ABORTABLE",
        "OPERATION_NOT_ATTEMPTED",
        "OFFSET_MOVED_TO_TIERED_STORAGE",
        "REBOOTSTRAP_REQUIRED",
        "GROUP_DELETION_FAILED",
    ];
    let unspoken_families = [
        "DELEGATION_TOKEN",
        "PRINCIPAL",
        "CREDENTIAL",
        "VOTER",
        "SNAPSHOT",
        "FEATURE",
        "UPDATE",
        "BROKER",
        "CLUSTER_ID",
        "REPLICA",
        "LEADER_ELECTED",
        "ENDPOINT",
        "CONTROLLER",
        "SUBSCRIPTION",
        "TELEMETRY",
        "REGISTRATION",
        "RECORD_STATE",
        "STATE_EPOCH",
        "STREAMS",
        "POSITION",
    ];
    for code in codes().filter(|code| ErrorKind::from_kafka(*code) == ErrorKind::Other) {
        let name = code.name();
        let family = unspoken_families.iter().any(|family| name.contains(family));
        assert!(family || unspoken.contains(&name), "{code} has no kind");
    }
}

#[test]
fn classes_say_what_a_caller_can_do() {
    for (code, class) in [
        (ErrorCode::TOPIC_ALREADY_EXISTS, ErrorClass::Usage),
        (ErrorCode::INVALID_CONFIG, ErrorClass::Usage),
        (ErrorCode::NON_EMPTY_GROUP, ErrorClass::Usage),
        (ErrorCode::GROUP_ID_NOT_FOUND, ErrorClass::Usage),
        (ErrorCode::NOT_CONTROLLER, ErrorClass::Retriable),
        (ErrorCode::ILLEGAL_GENERATION, ErrorClass::Abortable),
        (ErrorCode::FENCED_INSTANCE_ID, ErrorClass::Fatal),
        (ErrorCode::TOPIC_AUTHORIZATION_FAILED, ErrorClass::Fatal),
    ] {
        assert_eq!(ErrorKind::from_kafka(code).class(), class, "{code}");
    }
    let admin = ErrorKind::from_kafka_for_admin(ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(admin, ErrorKind::InUse);
}

#[test]
fn changing_a_clone_leaves_the_original_alone() {
    let error = Error::closed();
    let changed = error.clone().with_hint("make a new one");
    assert_eq!(error.hint(), None);
    assert_eq!(changed.hint(), Some("make a new one"));
}

#[test]
fn a_panic_is_told_with_what_it_says() {
    let told: [(Box<dyn Any + Send>, &str); 3] = [
        (Box::new("literal"), "literal"),
        (Box::new("made".to_owned()), "made"),
        (Box::new(5), "nothing more"),
    ];
    for (payload, told) in told {
        let error = Error::from_panic(&*payload);
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.message().ends_with(told), "{error}");
    }
}

#[test]
fn an_error_of_several_partitions_names_them_all_and_the_first_by_itself() {
    let parts = [TopicPartition::new("a", 3), TopicPartition::new("b", 0)];
    let error = Error::new(ErrorKind::CommitFenced, "not committed").with_partitions(&parts);
    assert_eq!((error.topic(), error.partition()), (Some("a"), Some(3)));
    assert_eq!(error.partitions(), parts);
    let one = Error::new(ErrorKind::NoOffset, "none").with_topic(&Arc::from("a")).with_partition(3);
    assert_eq!(one.partitions(), parts[..1]);
    let none = Error::new(ErrorKind::Timeout, "late").with_topic(&Arc::from("a"));
    assert_eq!(none.partitions(), []);
    assert_eq!(none.with_partitions(&[]).topic(), Some("a"));
}
