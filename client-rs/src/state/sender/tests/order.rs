//! The order of a partition's log: what retries do to it, and epochs that are used up.

use super::*;

/// What a leader stores, which refuses the first batch that it sees once. Batches reach it as they
/// were sent; without sequences it takes all that comes.
fn log_of(options: &str) -> Vec<String> {
    let mut trial = Trial::new(&format!("linger.ms=0;batch.size=0;{options}"));
    for value in ["a", "b", "c"] {
        trial.send(value);
    }
    trial.learn();
    if trial.sender.config.idempotent {
        trial.name_producer();
    }
    let (mut log, mut next, mut refused) = (Vec::new(), 0, false);
    while log.len() < 3 {
        // All that are on their way come before any is answered.
        for sent in trial.produced() {
            let (_, sequence, values) = &sent.batches[0];
            if !std::mem::replace(&mut refused, true) {
                trial.refuse(&sent, ErrorCode::NOT_ENOUGH_REPLICAS);
            } else if *sequence >= 0 && *sequence != next {
                trial.refuse(&sent, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
            } else {
                next += 1;
                let offset = i64::try_from(log.len()).unwrap();
                log.extend(values.iter().cloned());
                trial.store(&sent, offset);
            }
        }
        trial.wait(2_000);
    }
    log
}

#[test]
fn a_retry_reorders_only_without_idempotence_and_with_several_batches_on_their_way() {
    assert_eq!(log_of("enable.idempotence=false"), ["b", "c", "a"], "as the option's text says");
    let one = "max.in.flight.requests.per.connection=1";
    assert_eq!(log_of(&format!("enable.idempotence=false;{one}")), ["a", "b", "c"]);
    assert_eq!(log_of(""), ["a", "b", "c"]);
    assert_eq!(log_of("max.in.flight.requests.per.connection=2"), ["a", "b", "c"]);
}

/// The producer id and epoch of the batch in a request.
fn names(trial: &mut Trial) -> (Sent, i64, i16) {
    trial.turn();
    let request = trial.requests.remove(0);
    let sent = sent(&request);
    let header = request.body.detached(0).concat();
    let header = Wire::parse(&header).unwrap().header;
    trial.begin(&sent);
    (sent, header.producer_id, header.producer_epoch)
}

#[test]
fn a_lost_count_in_one_partition_leaves_the_epoch_of_another_as_it_is() {
    let mut trial = Trial::ready("", &[1, 1]);
    trial.send_to(0, "a");
    let (sent, _, epoch) = names(&mut trial);
    assert_eq!((sent.batches[0].1, epoch), (1, 0));
    trial.refuse(&sent, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    trial.wait(200);
    let (again, id, epoch) = names(&mut trial);
    assert_eq!((again.batches[0].1, id, epoch), (0, 40, 1));
    trial.store(&again, 1);
    for sequence in 0..2 {
        trial.send_to(1, "b");
        let (sent, id, epoch) = names(&mut trial);
        assert_eq!((sent.batches[0].1, id, epoch), (sequence, 40, 0));
        trial.store(&sent, 0);
    }
    trial.send_to(0, "c");
    let (sent, _, epoch) = names(&mut trial);
    assert_eq!((sent.batches[0].1, epoch), (1, 1));
}

#[test]
fn a_producer_whose_last_epoch_is_used_up_asks_for_another_id() {
    let mut trial = Trial::new("");
    let token = trial.send("a");
    trial.learn();
    trial.name_producer_as(40, i16::MAX);
    let (sent, id, epoch) = names(&mut trial);
    assert_eq!((id, epoch), (40, 32_767));
    trial.refuse(&sent, ErrorCode::UNKNOWN_PRODUCER_ID);
    trial.wait(200);
    trial.name_producer_as(41, 0);
    let (again, id, epoch) = names(&mut trial);
    assert_eq!((again.batches[0].1, id, epoch), (0, 41, 0));
    trial.store(&again, 7);
    assert_eq!(token.delivery().offset, 7);
}

/// KAFKA-19012: a checksum covers neither topic nor partition, so bytes that were used again too
/// early would be another partition's valid batch.
#[test]
fn bytes_that_are_being_written_are_not_used_again_before_that_has_ended() {
    let mut trial = Trial::ready("", &[1, 1]);
    let token = trial.send_to(0, "first");
    trial.turn();
    let request = trial.requests.remove(0);
    let begun = sent(&request);
    trial.begin(&begun);
    let used = trial.face.memory.used();
    trial.wait(120_000);
    assert_eq!(token.error().kind(), ErrorKind::DeliveryTimeout, "nobody waits for it any more");
    assert_eq!(trial.face.memory.used(), used, "and its bytes are still being written");
    for _ in 0..100 {
        trial.send_to(1, "other");
    }
    assert_eq!(sent(&request).batches, begun.batches);
    let before = trial.face.memory.used();
    drop(request);
    assert!(trial.face.memory.used() < before, "then they can be used again");
}
