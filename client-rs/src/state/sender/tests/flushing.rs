//! Flushes, and the end.

use super::*;

#[test]
fn a_flush_sends_at_once_and_waits_for_all_records_before_it() {
    let mut trial = Trial::ready("linger.ms=10000", &[1, 2]);
    trial.send_to(0, "a");
    let mut sent = trial.produced();
    trial.send_to(0, "b");
    trial.send_to(1, "c");
    sent.extend(trial.produced());
    assert_eq!(sent.len(), 2, "the busy broker's second batch lingers");
    let signal = trial.flush();
    sent.extend(trial.produced());
    assert_eq!(sent.len(), 3);
    let after = trial.send_to(0, "after");
    for sent in &sent {
        assert!(!signal.is_set());
        trial.store(sent, 5);
    }
    assert!(signal.is_set());
    assert!(after.is_open(), "what came after it is not waited for");
}

#[test]
fn a_flush_asked_for_during_a_turn_does_not_miss_the_record_sent_before_it() {
    let mut trial = Trial::ready("linger.ms=10000", &[1]);
    let (face, now) = (Arc::clone(&trial.face), trial.now);
    let (mut token, mut signal) = (None, None);
    trial.call(|sender, cx| {
        sender.take_in(cx, || {
            token = Some(append(&face, now, 0, "a"));
            signal = Some(flush(&face));
        });
        sender.finish_flushes();
    });
    let (token, signal) = (token.unwrap(), signal.unwrap());
    assert!(!signal.is_set());
    let sent = trial.produced();
    assert!(!signal.is_set());
    trial.store(&sent[0], 1);
    assert!(signal.is_set() && !token.is_open());
}

#[test]
fn a_flush_waits_for_records_of_a_topic_not_known_yet() {
    let mut trial = Trial::new("");
    let token = trial.send("a");
    let signal = trial.flush();
    trial.learn();
    trial.name_producer();
    let sent = trial.produced();
    assert!(!signal.is_set());
    trial.store(&sent[0], 0);
    assert!(signal.is_set() && !token.is_open());
}

#[test]
fn a_flush_waits_for_the_halves_of_a_batch_that_is_too_large() {
    let mut trial = Trial::ready("", &[1]);
    let tokens = [trial.send("a"), trial.send("b")];
    let signal = trial.flush();
    let sent = trial.produced();
    trial.refuse(&sent[0], ErrorCode::MESSAGE_TOO_LARGE);
    for (token, offset) in tokens.iter().zip(1..) {
        assert!(token.is_open() && !signal.is_set());
        let half = trial.produced();
        trial.store(&half[0], offset);
        assert_eq!(token.delivery().offset, offset);
    }
    assert!(signal.is_set());
}

#[test]
fn closing_delivers_what_it_can_and_ends() {
    let mut trial = Trial::ready("linger.ms=10000", &[1]);
    trial.send("a");
    let first = trial.produced();
    let token = trial.send("b");
    trial.close_within(5_000);
    let second = trial.produced();
    assert_eq!(second.len(), 1, "closing does not linger");
    trial.store(&first[0], 1);
    trial.store(&second[0], 2);
    assert_eq!(token.delivery().offset, 2);
    assert_eq!(trial.next, Next::Ended);
    assert_eq!(trial.face.memory.used(), 0);
}

#[test]
fn closing_past_its_deadline_says_of_each_record_what_may_have_become_of_it() {
    let mut trial = Trial::ready("linger.ms=0", &[1, -1]);
    let written = trial.send_to(0, "a");
    let sent = trial.produced();
    let queued = trial.send_to(0, "b");
    let unwritten = trial.queued();
    assert_eq!(unwritten.len(), 1, "its request waits for its turn");
    let waiting = trial.send_to(1, "c");
    trial.close_within(100);
    trial.turn();
    assert!(written.is_open() && queued.is_open() && waiting.is_open());
    trial.wait(100);
    assert_eq!(trial.next, Next::Ended);
    assert_eq!(trial.withdrawn, [unwritten[0].token]);
    let outcomes = [written, queued, waiting].map(|token| token.error().outcome().unwrap());
    assert_eq!(outcomes, [Outcome::PossiblyPersisted, Outcome::NotSent, Outcome::NotSent]);
    trial.store(&sent[0], 1);
    assert_eq!(trial.next, Next::Ended, "a late answer changes nothing");
}
