//! Each record of a batch has a time of its own, and is told that one, wherever it went meanwhile.

use super::*;

/// Rising, staying, and falling.
const TIMES: [i64; 8] = [5, 6, 9, 9, 9, 4, 0, 6];

fn send_all(trial: &Trial) -> [Token; 8] {
    TIMES.map(|time| {
        let record = Record::to("t").partition(0).value("v").timestamp(time);
        append_record(&trial.face, trial.now, &record)
    })
}

/// Sends the records in one batch, of a topic that is known or not known yet.
fn sent_in_one(known: bool) -> (Trial, [Token; 8], Sent) {
    let mut trial = if known { Trial::ready("", &[1]) } else { Trial::new("") };
    let tokens = send_all(&trial);
    if !known {
        trial.learn();
        trial.name_producer();
    }
    let mut sent = trial.produced();
    let only = sent.pop().expect("they are sent");
    assert!(sent.is_empty() && only.batches.len() == 1 && only.batches[0].2.len() == TIMES.len());
    (trial, tokens, only)
}

#[test]
fn each_record_is_told_its_own_time() {
    for known in [true, false] {
        let (mut trial, tokens, sent) = sent_in_one(known);
        trial.store(&sent, 3);
        for ((offset, token), time) in (3..).zip(tokens).zip(TIMES) {
            let delivery = token.delivery();
            assert_eq!((delivery.offset, delivery.timestamp), (offset, time), "known: {known}");
        }
    }
}

#[test]
fn each_record_is_told_its_own_time_after_its_batch_was_parted() {
    for known in [true, false] {
        let (mut trial, tokens, whole) = sent_in_one(known);
        trial.refuse(&whole, ErrorCode::MESSAGE_TOO_LARGE);
        let mut offset = 3;
        while tokens.iter().any(Token::is_open) {
            let out = trial.produced();
            assert!(!out.is_empty(), "the parts are sent");
            for sent in out {
                let records = sent.batches[0].2.len();
                if records > 2 {
                    trial.refuse(&sent, ErrorCode::MESSAGE_TOO_LARGE);
                } else {
                    trial.store(&sent, offset);
                    offset += i64::try_from(records).unwrap();
                }
            }
        }
        for ((offset, token), time) in (3..).zip(tokens).zip(TIMES) {
            let delivery = token.delivery();
            assert_eq!((delivery.offset, delivery.timestamp), (offset, time), "known: {known}");
        }
    }
}

#[test]
fn a_topic_whose_records_get_the_brokers_time_has_each_told_that() {
    for known in [true, false] {
        let (mut trial, tokens, sent) = sent_in_one(known);
        trial.answer_all(&sent, |index| PartitionProduceResponse {
            index,
            base_offset: 3,
            log_append_time_ms: 7_000,
            ..PartitionProduceResponse::default()
        });
        for token in tokens {
            assert_eq!(token.delivery().timestamp, 7_000, "known: {known}");
        }
    }
}
