//! A producer that has nothing to do sleeps: no time that is over brings a turn.

use super::*;
use crate::state::accumulator::memory::Place;

/// Turns in which all time is spent until a record's fate is known.
fn turns_until_told(trial: &mut Trial, token: &Token) -> u32 {
    let mut turns = 0;
    while token.is_open() {
        turns += 1;
        assert!(turns < 1000, "it spins");
        trial.wait_for_deadline();
    }
    turns
}

#[test]
fn a_throttle_with_nothing_left_to_send_brings_no_turn() {
    let mut trial = Trial::ready("linger.ms=0", &[1]);
    let token = trial.send("a");
    let sent = trial.produced();
    let stored = |index| PartitionProduceResponse { index, ..PartitionProduceResponse::default() };
    trial.answer_with(&sent[0], stored, 1000);
    assert!(!token.is_open());
    assert_eq!(trial.next, Next::Wait);
    trial.wait(1000);
    assert_eq!(trial.next, Next::Wait);
    trial.send("b");
    assert_eq!(trial.produced().len(), 1, "the throttle's time is over");
}

#[test]
fn a_throttle_that_ends_while_its_broker_has_requests_enough_brings_no_turn() {
    let options = "linger.ms=0;enable.idempotence=false;max.in.flight.requests.per.connection=100";
    let mut trial = Trial::new(options);
    trial.send("first");
    trial.learn();
    let mut sent = trial.produced();
    while sent.len() < REQUESTS_MAX {
        trial.send("a");
        sent.extend(trial.produced());
    }
    let stored = |index| PartitionProduceResponse { index, ..PartitionProduceResponse::default() };
    trial.answer_with(&sent[0], stored, 1000);
    trial.send("b");
    trial.send("c");
    trial.wait(1000);
    trial.wait_for_deadline();
    let delivery_timeout = trial.sender.config.delivery_timeout;
    let Next::At(at) = trial.next else { panic!("batches are open") };
    assert!(at > trial.now + delivery_timeout / 2, "{:?}", at - trial.now);
}

#[test]
fn a_record_that_waited_for_a_broker_in_vain_leaves_nothing_to_wait_for() {
    let mut trial = Trial::new("max.block.ms=1000");
    let token = trial.send("a");
    trial.turn();
    for _ in 0..100 {
        if !token.is_open() {
            break;
        }
        if let Some(asked) = trial.requests.pop() {
            let error = Error::new(ErrorKind::Connect, "nobody is there");
            trial.reply(asked.token, Err(LinkFault { error, written: false }));
        } else {
            trial.wait_for_deadline();
        }
    }
    assert_eq!(token.error().kind(), ErrorKind::UnknownTopic);
    assert_eq!(trial.next, Next::Wait, "nobody wants the producer id now");
    trial.wait(60_000);
    assert_eq!((trial.next, trial.requests.len()), (Next::Wait, 0));
    trial.send("b");
    trial.turn();
    assert_eq!(trial.requests.len(), 1, "it is asked for again");
}

#[test]
fn behind_a_batch_whose_time_is_over_what_is_stored_already_brings_no_turn() {
    let mut trial = Trial::ready("linger.ms=0;delivery.timeout.ms=40000", &[1]);
    let first = trial.send("a");
    let mut sent = trial.produced();
    let second = trial.send("b");
    sent.extend(trial.produced());
    trial.store(&sent[1], 2);
    trial.wait(1000);
    let third = trial.send("c");
    assert!(trial.produced().len() <= 1);
    trial.wait(39_000);
    assert_eq!(first.error().kind(), ErrorKind::DeliveryTimeout);
    assert!(second.is_open(), "it is told in its turn");
    let Next::At(at) = trial.next else { panic!("the third one's time is not over") };
    assert_eq!(at - trial.now, Duration::from_secs(1));
    trial.wait_for_deadline();
    assert_eq!(third.error().kind(), ErrorKind::DeliveryTimeout);
    assert_eq!(trial.next, Next::Wait, "for the answer to the first");
}

#[test]
fn a_batch_that_waits_for_another_producer_id_brings_no_turn() {
    let mut trial = Trial::new("linger.ms=0");
    let token = trial.send("a");
    trial.learn();
    trial.name_producer_as(40, i16::MAX);
    let sent = trial.produced();
    trial.refuse(&sent[0], ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(trial.requests.len(), 1, "its epochs are used up, and another one is asked for");
    let over_at = trial.now + trial.sender.config.delivery_timeout;
    trial.wait(10_000);
    assert_eq!(trial.next, Next::At(over_at), "its own time, and no other");
    trial.name_producer_as(41, 0);
    let again = trial.produced();
    trial.store(&again[0], 7);
    assert_eq!(token.delivery().offset, 7);
}

#[test]
fn a_producer_that_cannot_have_an_id_asks_for_none_again() {
    let mut trial = Trial::new("");
    trial.send("a");
    trial.learn();
    let error_code = ErrorCode::CLUSTER_AUTHORIZATION_FAILED;
    let rest = InitProducerIdResponse::default();
    trial.answer_identity(&InitProducerIdResponse { error_code, ..rest });
    assert_eq!((trial.next, trial.requests.len()), (Next::Wait, 0));
}

#[test]
fn a_broker_that_answers_nothing_costs_a_few_turns_and_not_one_each_millisecond() {
    let mut trial = Trial::ready("linger.ms=0", &[1]);
    let token = trial.send("a");
    trial.produced();
    assert!(trial.sender.is_busy(), "what is begun now may wait for the answer a little");
    trial.wait_for_deadline();
    assert!(!trial.sender.is_busy(), "no answer came: what is begun wakes the machine");
    let turns = turns_until_told(&mut trial, &token);
    assert_eq!(turns, 1, "the end of the record's time");
    assert_eq!(token.error().kind(), ErrorKind::DeliveryTimeout);
}

#[test]
fn who_waits_for_room_brings_a_turn_when_the_wait_is_over() {
    let mut trial = Trial::new("");
    let memory = Arc::clone(&trial.face.memory);
    let _full = memory.try_chunk(memory.total()).expect("nothing is used");
    let over_at = trial.now + Duration::from_mins(1);
    let places = [Some(over_at), None].map(|by| memory.queue(16 * 1024, by));
    trial.turn();
    assert_eq!(trial.next, Next::At(over_at));
    trial.wait_for_deadline();
    assert_eq!(places.each_ref().map(Place::is_expired), [true, false]);
    assert_eq!(trial.next, Next::Wait, "for room");
}

#[test]
fn room_that_is_left_brings_a_turn_when_it_was_left_in_vain() {
    let mut trial = Trial::new("");
    let memory = Arc::clone(&trial.face.memory);
    let full = memory.try_chunk(memory.total()).expect("nothing is used");
    let [first, second] = [(); 2].map(|()| memory.queue(memory.total(), None));
    drop(full);
    let until = trial.now + Duration::from_millis(100);
    first.leave_room(until);
    trial.turn();
    assert_eq!(trial.next, Next::At(until));
    trial.wait_for_deadline();
    assert!(second.take_chunk().is_some(), "it is the next one's");
    assert_eq!(trial.next, Next::Wait);
}
