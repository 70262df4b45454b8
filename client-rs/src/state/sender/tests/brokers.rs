//! Brokers that lead no more, throttle, lag behind, or refuse.

use super::*;

#[test]
fn a_moved_leader_is_looked_for_and_gets_the_batches_in_order() {
    let mut trial = Trial::ready("linger.ms=0", &[1]);
    trial.send("a");
    let first = trial.produced();
    trial.send("b");
    let second = trial.produced();
    trial.refuse(&first[0], ErrorCode::NOT_LEADER_OR_FOLLOWER);
    trial.refuse(&second[0], ErrorCode::NOT_LEADER_OR_FOLLOWER);
    trial.leaders = vec![2];
    trial.epoch = 1;
    trial.learn();
    trial.wait(200);
    let again = trial.produced();
    assert_eq!((again[0].node, &again[0].batches), (2, &vec![(0, 1, vec!["a".to_owned()])]));
    trial.store(&again[0], 1);
    let again = trial.produced();
    assert_eq!((again[0].node, &again[0].batches), (2, &vec![(0, 2, vec!["b".to_owned()])]));
}

#[test]
fn a_leader_named_by_the_error_is_used_at_once() {
    let mut trial = Trial::ready("", &[1]);
    trial.send("a");
    let sent = trial.produced();
    trial.answer_all(&sent[0], |index| PartitionProduceResponse {
        index,
        error_code: ErrorCode::NOT_LEADER_OR_FOLLOWER,
        current_leader: LeaderIdAndEpoch { leader_id: 2, leader_epoch: 1 },
        ..PartitionProduceResponse::default()
    });
    let again = trial.produced();
    assert_eq!((again.len(), again[0].node), (1, 2));
}

#[test]
fn a_throttled_broker_is_left_alone_for_as_long_as_it_says() {
    let mut trial = Trial::ready("", &[1]);
    trial.send("a");
    let sent = trial.produced();
    let stored = |index| PartitionProduceResponse { index, ..PartitionProduceResponse::default() };
    trial.answer_with(&sent[0], stored, 1000);
    trial.send("b");
    assert!(trial.produced().is_empty());
    let over = trial.now + Duration::from_secs(1);
    assert!(matches!(trial.next, Next::At(at) if at == over), "nothing to do before");
    trial.wait(999);
    assert!(trial.produced().is_empty());
    trial.wait(1);
    assert_eq!(trial.produced().len(), 1);
}

#[test]
fn a_partition_that_a_lagging_broker_leaves_out_keeps_its_batches_and_sequences() {
    let mut trial = Trial::ready("", &[1, 1]);
    trial.send_to(1, "a");
    let sent = trial.produced();
    trial.store(&sent[0], 0);
    for leaders in [vec![1], vec![1, 1]] {
        trial.leaders = leaders;
        trial.epoch += 1;
        trial.metadata.request_refresh(trial.now);
        trial.wait(1000);
        trial.learn();
    }
    trial.send_to(1, "b");
    let sent = trial.produced();
    assert_eq!(sent[0].batches, [(1, 1, vec!["b".to_owned()])]);
}

#[test]
fn a_fenced_producer_refuses_all_further_records() {
    let mut trial = Trial::ready("", &[1]);
    let token = trial.send("a");
    let sent = trial.produced();
    trial.refuse(&sent[0], ErrorCode::PRODUCER_FENCED);
    assert_eq!(token.error().kind(), ErrorKind::ProducerFenced);
    assert_eq!(trial.face.refusal().kind(), ErrorKind::ProducerFenced);
}

#[test]
fn a_topic_that_is_no_longer_asked_about_is_while_its_records_wait() {
    let options = "metadata.max.idle.ms=5000;delivery.timeout.ms=60000;linger.ms=0";
    let mut trial = Trial::ready(options, &[1]);
    let token = trial.send("a");
    let sent = trial.produced();
    // Nobody could be asked meanwhile.
    trial.wait(6000);
    trial.lose(&sent[0], false);
    trial.learn();
    trial.learn();
    trial.wait(200);
    let again = trial.produced();
    assert_eq!(again.len(), 1, "its leader is known again");
    trial.store(&again[0], 1);
    assert_eq!(token.delivery().offset, 1);
}

#[test]
fn a_producer_id_that_is_none_is_asked_for_again() {
    let mut trial = Trial::new("");
    let token = trial.send("a");
    trial.learn();
    for (producer_id, epoch) in [(-1, 0), (40, -1)] {
        trial.name_producer_as(producer_id, epoch);
        assert!(trial.produced().is_empty(), "nothing goes out under it");
        trial.wait(1200);
    }
    trial.name_producer();
    let sent = trial.produced();
    trial.store(&sent[0], 0);
    assert_eq!(token.delivery().offset, 0);
}

#[test]
fn a_producer_without_the_right_to_an_id_is_told_what_to_do() {
    let mut trial = Trial::new("");
    let token = trial.send("a");
    trial.learn();
    let error_code = ErrorCode::CLUSTER_AUTHORIZATION_FAILED;
    let rest = InitProducerIdResponse::default();
    trial.answer_identity(&InitProducerIdResponse { error_code, ..rest });
    let error = token.error();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Authorization, Some(Outcome::NotSent)));
    assert!(error.hint().is_some_and(|hint| hint.contains("IdempotentWrite")), "{error}");
}

#[test]
fn records_of_a_topic_that_was_taken_away_tell_why_they_waited() {
    let options = "metadata.max.age.ms=1000;delivery.timeout.ms=40000;linger.ms=0";
    let mut trial = Trial::ready(options, &[1]);
    trial.refusal = ErrorCode::TOPIC_AUTHORIZATION_FAILED;
    trial.learn();
    let token = trial.send("a");
    assert!(trial.produced().is_empty(), "nobody leads it");
    trial.wait(40_000);
    let error = token.error();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::DeliveryTimeout, Some(Outcome::NotSent))
    );
    assert!(error.to_string().contains("TOPIC_AUTHORIZATION_FAILED"), "{error}");
}
