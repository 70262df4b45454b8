//! Requests of which nothing was written when their time was over.

use super::*;

/// Options by which a record's time is over a second after it was sent.
const TIGHT: &str = "linger.ms=0;delivery.timeout.ms=1000;request.timeout.ms=1000";

#[test]
fn a_batch_that_was_never_written_is_taken_back_when_its_time_is_over() {
    let mut trial = Trial::ready(TIGHT, &[1]);
    let token = trial.send("a");
    let unwritten = trial.queued();
    assert_eq!(unwritten[0].batches, [(0, 1, vec!["a".to_owned()])]);
    trial.wait(999);
    assert!(token.is_open() && trial.withdrawn.is_empty());
    trial.wait(1);
    let error = token.error();
    let told = (error.kind(), error.outcome(), error.attempt());
    assert_eq!(told, (ErrorKind::DeliveryTimeout, Some(Outcome::NotSent), Some(0)));
    assert_eq!(trial.withdrawn, [unwritten[0].token]);
    trial.send("b");
    let sent = trial.produced();
    assert_eq!(sent[0].batches, [(0, 1, vec!["b".to_owned()])], "there is no gap");
}

#[test]
fn a_batch_that_is_being_written_may_be_stored_when_its_time_is_over() {
    let mut trial = Trial::ready(TIGHT, &[1]);
    let token = trial.send("a");
    trial.produced();
    trial.wait(1000);
    assert_eq!(token.error().outcome(), Some(Outcome::PossiblyPersisted));
    assert!(trial.withdrawn.is_empty());
}

#[test]
fn what_was_taken_back_with_an_overdue_batch_goes_out_again_in_order() {
    let mut trial = Trial::ready(TIGHT, &[1, 1]);
    let busy = trial.send_to(0, "busy");
    let sent = trial.produced();
    let stored = |index| PartitionProduceResponse { index, ..PartitionProduceResponse::default() };
    trial.answer_with(&sent[0], stored, 200);
    assert!(!busy.is_open());
    let overdue = trial.send_to(0, "a");
    trial.wait(100);
    let beside = trial.send_to(1, "b");
    trial.wait(100);
    assert_eq!(trial.queued()[0].batches.len(), 2, "one request for both");
    let behind = trial.send_to(0, "c");
    assert_eq!(trial.queued()[0].batches, [(0, 3, vec!["c".to_owned()])]);
    trial.wait(800);
    assert_eq!(overdue.error().outcome(), Some(Outcome::NotSent));
    assert_eq!(trial.withdrawn.len(), 2);
    let sent = trial.produced();
    let batches: Vec<_> = sent.iter().flat_map(|sent| sent.batches.clone()).collect();
    assert_eq!(batches, [(0, 2, vec!["c".to_owned()]), (1, 0, vec!["b".to_owned()])]);
    for sent in &sent {
        trial.store(sent, 7);
    }
    assert_eq!((beside.delivery().offset, behind.delivery().offset), (7, 7));
}

#[test]
fn a_batch_sent_before_is_as_unsure_as_then_when_its_next_attempt_is_taken_back() {
    for (written, outcome) in [(true, Outcome::PossiblyPersisted), (false, Outcome::NotSent)] {
        let mut trial = Trial::ready(TIGHT, &[1]);
        let token = trial.send("a");
        let sent = trial.produced();
        trial.lose(&sent[0], written);
        trial.wait(500);
        assert_eq!(trial.queued().len(), 1);
        trial.wait(500);
        assert_eq!(token.error().outcome(), Some(outcome));
    }
}
