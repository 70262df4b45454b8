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

#[test]
fn changing_a_clone_leaves_the_original_alone() {
    let error = Error::closed();
    let changed = error.clone().with_hint("make a new one");
    assert_eq!(error.hint(), None);
    assert_eq!(changed.hint(), Some("make a new one"));
}
