//! What is told of records that are not stored, and of when they are.

use super::*;

#[test]
fn a_topic_nobody_knows_fails_its_records_after_the_longest_block() {
    let mut trial = Trial::new("max.block.ms=1000");
    let token = trial.send("a");
    trial.turn();
    trial.wait(999);
    assert!(token.is_open());
    trial.wait(1);
    let error = token.error();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::UnknownTopic, Some(Outcome::NotSent)));
    assert_eq!(error.topic(), Some("t"));
}

#[test]
fn a_record_not_delivered_in_time_tells_why() {
    let mut trial = Trial::ready("", &[1]);
    let token = trial.send("a");
    for _ in 0..400 {
        for sent in trial.produced() {
            trial.lose(&sent, false);
        }
        trial.wait(500);
    }
    let error = token.error();
    assert_eq!(error.kind(), ErrorKind::DeliveryTimeout);
    assert_eq!(error.outcome(), Some(Outcome::NotSent));
    assert!(error.to_string().contains("gone"), "{error}");
    assert!(error.attempt().is_some_and(|attempt| attempt > 50), "{error}");
}

#[test]
fn without_acks_a_record_is_done_when_it_is_written_and_never_sent_twice() {
    let mut trial = Trial::new("acks=0");
    let first = trial.send("first");
    trial.learn();
    let sent = trial.produced();
    trial.reply(sent[0].token, Ok(answer(&InitProducerIdResponse::default(), 0)));
    assert_eq!(first.delivery().offset, -1);
    let token = trial.send("a");
    let sent = trial.produced();
    assert_eq!(sent[0].batches[0].1, -1, "no sequence");
    trial.lose(&sent[0], true);
    assert_eq!(token.error().outcome(), Some(Outcome::PossiblyPersisted));
    trial.learn();
    trial.wait(1000);
    assert!(trial.produced().is_empty());
}

#[test]
fn records_nobody_holds_a_token_of_are_reported_once() {
    let mut trial = Trial::ready("", &[1]);
    drop(trial.send("a"));
    drop(trial.send("b"));
    let sent = trial.produced();
    trial.refuse(&sent[0], ErrorCode::INVALID_TIMESTAMP);
    let unreported = trial.face.take_unreported(None);
    assert_eq!(unreported.count, 2);
    assert_eq!(unreported.first.map(|error| error.kind()), Some(ErrorKind::InvalidTimestamp));
    assert_eq!(trial.face.take_unreported(None).count, 0);
    let held = trial.send("c");
    let sent = trial.produced();
    trial.refuse(&sent[0], ErrorCode::INVALID_TIMESTAMP);
    assert_eq!(trial.face.take_unreported(None).count, 0, "its sender can see it");
    assert_eq!(held.error().kind(), ErrorKind::InvalidTimestamp);
}

#[test]
fn a_record_nobody_holds_that_is_late_on_its_way_is_reported_once() {
    let mut trial = Trial::ready("", &[1]);
    drop(trial.send("a"));
    let sent = trial.produced();
    trial.wait(120_000);
    let unreported = trial.face.take_unreported(None);
    let outcome = unreported.first.and_then(|error| error.outcome());
    assert_eq!((unreported.count, outcome), (1, Some(Outcome::PossiblyPersisted)));
    trial.lose(&sent[0], true);
    assert_eq!(trial.face.take_unreported(None).count, 0, "it was told");
}

#[test]
fn a_failed_machine_tells_all_who_wait() {
    let mut trial = Trial::ready("", &[1]);
    let token = trial.send("a");
    trial.produced();
    let open = trial.send("b");
    let signal = trial.flush();
    trial.sender.fail(&Error::new(ErrorKind::Internal, "x"));
    assert_eq!(token.error().kind(), ErrorKind::Internal);
    assert_eq!(open.error().kind(), ErrorKind::Internal);
    assert!(signal.is_set());
    assert_eq!(trial.face.refusal().kind(), ErrorKind::Internal);
}
