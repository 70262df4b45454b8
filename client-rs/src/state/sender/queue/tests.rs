//! Order, sequences and ends of one partition's batches.

#![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_protocol::record::{Batch as Wire, BatchHeader};

use super::*;
use crate::record::Record;
use crate::state::accumulator::batch::{Manners, OpenBatch, Room};
use crate::state::accumulator::memory::Memory;
use crate::state::sender::verdict;

const BY: Numbering = Numbering::By { producer_id: 7, epoch: 0 };
const PAUSE: Duration = Duration::from_millis(100);

struct Trial {
    queue: Queue,
    memory: Arc<Memory>,
    now: Instant,
    next_id: u64,
    numbering: Numbering,
}

/// A batch as it went out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Out {
    id: u64,
    epoch: i16,
    sequence: i32,
    bytes: Vec<u8>,
}

impl Trial {
    /// With a log that knows the producer.
    fn new() -> Self {
        let mut trial = Self::afresh();
        trial.queue.known = true;
        trial
    }

    fn afresh() -> Self {
        let limits =
            Limits { in_flight_max: 5, retries: 1000, delivery_timeout: Duration::from_mins(2) };
        Self {
            queue: Queue::new(limits),
            memory: Memory::new(1 << 30),
            now: Instant::now(),
            next_id: 1,
            numbering: BY,
        }
    }

    /// Takes a batch of so many records.
    fn take(&mut self, records: usize) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let completion = Completion::new(id, &"t".into(), 0);
        let mut open = OpenBatch::new(completion, 1000, self.now);
        let mut room = Room {
            memory: &self.memory,
            batch_bytes: usize::MAX,
            check_from: usize::MAX,
            granted: &mut None,
            manners: Manners::Queue,
        };
        for number in 0..records {
            let value = format!("{id}/{number}");
            open.append(&Record::to("t").value(&value), 1000, &mut room).unwrap();
        }
        self.queue.push(Batch::new(open));
        id
    }

    /// What goes out now.
    fn send(&mut self) -> Vec<Out> {
        let mut out = Vec::new();
        assert!(self.queue.settle(self.numbering));
        while self.queue.next_len(self.now, self.numbering).is_some() {
            let batch = self.queue.begin(self.numbering).expect("there is one");
            let bytes = batch.pieces().concat();
            let header = BatchHeader::parse(&bytes).unwrap();
            Wire::parse(&bytes).unwrap().verify_crc().unwrap();
            out.push(Out {
                id: batch.id(),
                epoch: header.producer_epoch,
                sequence: header.base_sequence,
                bytes,
            });
        }
        out
    }

    fn sent_ids(&mut self) -> Vec<u64> {
        self.send().iter().map(|out| out.id).collect()
    }

    fn answer(&mut self, id: u64, verdict: Verdict) {
        let (memory, next_id) = (&self.memory, &mut self.next_id);
        let split = |batch: &Batch| {
            batch.split(memory, || {
                *next_id += 1;
                *next_id - 1
            })
        };
        self.queue.handle(id, verdict, self.now, |_| PAUSE, split);
    }

    fn code(&mut self, id: u64, code: ErrorCode) {
        self.answer(id, verdict::of_code(code, Error::from_kafka(code, None)));
    }

    fn stored(&mut self, id: u64) {
        self.answer(id, Verdict::Stored { base_offset: 100, append_time: -1 });
    }

    fn lost(&mut self, id: u64) {
        let error = Error::new(ErrorKind::Disconnected, "lost");
        self.answer(id, Verdict::Lost { error, written: true });
    }

    fn wait(&mut self, wait: Duration) {
        self.now += wait;
    }

    fn expire(&mut self) {
        let late = |_: &Batch| Error::new(ErrorKind::DeliveryTimeout, "late");
        self.queue.expire(self.now, late);
    }

    /// What ended since the last call: the batch, and what may have become of it if it failed.
    fn ended(&mut self) -> Vec<(u64, Option<Outcome>)> {
        let ended = std::mem::take(&mut self.queue.ended);
        ended
            .into_iter()
            .map(|ended| {
                let outcome = match &ended.ending {
                    Ending::Failed(error) => error.outcome(),
                    Ending::Stored { .. } | Ending::Forwarded(_) => None,
                };
                let id = ended.completion.id();
                ended.completion.resolve(ended.ending);
                (id, outcome)
            })
            .collect()
    }
}

#[test]
fn sequences_wrap_to_zero_after_the_largest() {
    let mut trial = Trial::new();
    trial.queue.own = Some(Sequence { producer_id: 7, epoch: 0, base: 2_147_483_645 });
    for _ in 0..4 {
        trial.take(1);
    }
    let bases: Vec<i32> = trial.send().iter().map(|out| out.sequence).collect();
    assert_eq!(bases, [2_147_483_645, 2_147_483_646, 2_147_483_647, 0]);

    let mut trial = Trial::new();
    trial.queue.own = Some(Sequence { producer_id: 7, epoch: 0, base: 2_147_483_646 });
    trial.take(5);
    trial.take(1);
    let bases: Vec<i32> = trial.send().iter().map(|out| out.sequence).collect();
    assert_eq!(bases, [2_147_483_646, 3]);
}

#[test]
fn five_batches_are_on_their_way_at_most() {
    let mut trial = Trial::new();
    let ids: Vec<u64> = (0..7).map(|_| trial.take(2)).collect();
    assert_eq!(trial.sent_ids(), ids[..5]);
    trial.stored(ids[1]);
    assert_eq!(trial.ended(), [], "only the first of them ends");
    assert_eq!(trial.sent_ids(), [0; 0]);
    trial.stored(ids[0]);
    assert_eq!(trial.ended(), [(ids[0], None), (ids[1], None)]);
    assert_eq!(trial.sent_ids(), ids[5..]);
}

#[test]
fn failed_batches_go_out_again_one_by_one_in_order_and_unchanged() {
    let mut trial = Trial::new();
    let ids: Vec<u64> = (0..3).map(|_| trial.take(2)).collect();
    let first = trial.send();
    for id in ids.clone() {
        trial.lost(id);
    }
    let later = trial.take(1);
    assert_eq!(trial.send(), [], "not before the pause is over");
    trial.wait(PAUSE);
    for (index, &id) in ids.iter().enumerate() {
        assert_eq!(trial.send(), first[index..=index], "the head alone, byte for byte");
        trial.stored(id);
    }
    assert_eq!(trial.sent_ids(), [later]);
    assert_eq!(trial.ended(), ids.iter().map(|&id| (id, None)).collect::<Vec<_>>());
}

#[test]
fn a_failed_batch_waits_until_all_others_are_answered() {
    let mut trial = Trial::new();
    let ids: Vec<u64> = (0..3).map(|_| trial.take(1)).collect();
    trial.send();
    trial.code(ids[0], ErrorCode::NOT_LEADER_OR_FOLLOWER);
    trial.wait(PAUSE);
    assert_eq!(trial.send(), []);
    trial.code(ids[1], ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    trial.code(ids[2], ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    let again = trial.send();
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].id, again[0].epoch, again[0].sequence), (ids[0], 0, 0), "no new epoch");
}

#[test]
fn a_lost_count_at_the_head_starts_the_next_epoch_at_zero() {
    for code in [ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode::UNKNOWN_PRODUCER_ID] {
        let mut trial = Trial::new();
        let done = trial.take(3);
        trial.send();
        trial.stored(done);
        let ids = [trial.take(2), trial.take(2)];
        assert_eq!(trial.send()[0].sequence, 3);
        trial.code(ids[0], code);
        assert_eq!(trial.send(), [], "what is on its way is answered first");
        trial.code(ids[1], ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        trial.wait(PAUSE);
        let again = trial.send();
        assert_eq!((again[0].id, again[0].epoch, again[0].sequence), (ids[0], 1, 0));
        trial.stored(ids[0]);
        let again = trial.send();
        assert_eq!((again[0].id, again[0].epoch, again[0].sequence), (ids[1], 1, 2));
    }
}

#[test]
fn a_batch_that_may_be_stored_is_not_sent_under_a_new_epoch() {
    let mut trial = Trial::new();
    let ids = [trial.take(1), trial.take(1)];
    trial.send();
    trial.lost(ids[0]);
    trial.code(ids[1], ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    trial.wait(PAUSE);
    assert_eq!(trial.sent_ids(), [ids[0]]);
    trial.code(ids[0], ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    trial.wait(PAUSE);
    let again = trial.send();
    assert_eq!(trial.ended(), [(ids[0], Some(Outcome::PossiblyPersisted))]);
    assert_eq!((again[0].id, again[0].epoch, again[0].sequence), (ids[1], 1, 0));
}

#[test]
fn a_refused_batch_leaves_no_gap_in_the_sequences() {
    let mut trial = Trial::new();
    let ids = [trial.take(1), trial.take(2), trial.take(3)];
    trial.send();
    trial.stored(ids[0]);
    trial.code(ids[1], ErrorCode::INVALID_TIMESTAMP);
    trial.code(ids[2], ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(trial.ended(), [(ids[0], None), (ids[1], Some(Outcome::Rejected))]);
    let again = trial.send();
    assert_eq!((again[0].id, again[0].epoch, again[0].sequence), (ids[2], 0, 1));
    trial.stored(ids[2]);
    trial.take(1);
    assert_eq!(trial.send()[0].sequence, 4);
}

#[test]
fn a_gap_behind_a_batch_that_waits_does_not_renumber_that() {
    let mut trial = Trial::new();
    let ids = [trial.take(1), trial.take(2), trial.take(3)];
    trial.send();
    trial.code(ids[0], ErrorCode::NOT_ENOUGH_REPLICAS);
    trial.code(ids[1], ErrorCode::INVALID_TIMESTAMP);
    trial.code(ids[2], ErrorCode::NOT_ENOUGH_REPLICAS);
    trial.wait(PAUSE);
    let again = trial.send();
    assert_eq!((again[0].id, again[0].sequence), (ids[0], 0));
    trial.stored(ids[0]);
    let again = trial.send();
    assert_eq!((again[0].id, again[0].epoch, again[0].sequence), (ids[2], 0, 1));
}

#[test]
fn a_batch_stored_before_counts_as_stored_without_an_offset() {
    let mut trial = Trial::new();
    let id = trial.take(2);
    trial.send();
    trial.code(id, ErrorCode::DUPLICATE_SEQUENCE_NUMBER);
    let ended = std::mem::take(&mut trial.queue.ended);
    assert!(matches!(ended[0].ending, Ending::Stored { base_offset: -1, .. }));
}

#[test]
fn a_batch_too_large_is_parted_within_its_sequences_down_to_one_record() {
    let mut trial = Trial::new();
    let whole = trial.take(4);
    let next = trial.take(1);
    trial.send();
    trial.code(whole, ErrorCode::MESSAGE_TOO_LARGE);
    trial.code(next, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    let mut stored = Vec::new();
    let mut values = Vec::new();
    let mut attempts = 0;
    loop {
        let out = trial.send();
        let Some(only) = out.first() else { break };
        assert_eq!(out.len(), 1, "one by one");
        attempts += 1;
        assert!(attempts < 20, "parting ends");
        let wire = Bytes::from(only.bytes.clone());
        let batch = Wire::parse(&wire).unwrap();
        if batch.header.records_count > 1 {
            trial.code(only.id, ErrorCode::MESSAGE_TOO_LARGE);
            continue;
        }
        stored.push((only.epoch, only.sequence));
        let records = batch.records(1 << 20).unwrap();
        values.extend(records.iter().map(|record| record.unwrap().value.unwrap().to_vec()));
        trial.stored(only.id);
    }
    assert_eq!(stored, [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)]);
    let values: Vec<String> =
        values.into_iter().map(|value| String::from_utf8(value).unwrap()).collect();
    assert_eq!(values, ["1/0", "1/1", "1/2", "1/3", "2/0"]);
}

/// Its records may be in the log under the sequences that the halves would have.
#[test]
fn a_batch_too_large_that_may_be_stored_is_not_parted() {
    let mut trial = Trial::new();
    let whole = trial.take(4);
    trial.send();
    trial.lost(whole);
    trial.wait(PAUSE);
    assert_eq!(trial.sent_ids(), [whole]);
    trial.code(whole, ErrorCode::MESSAGE_TOO_LARGE);
    assert_eq!(trial.ended(), [(whole, Some(Outcome::PossiblyPersisted))]);
    trial.wait(PAUSE);
    assert!(trial.send().is_empty());
}

#[test]
fn one_record_too_large_is_refused_and_those_behind_it_go_on() {
    let mut trial = Trial::new();
    let (large, next) = (trial.take(1), trial.take(1));
    trial.send();
    trial.code(large, ErrorCode::MESSAGE_TOO_LARGE);
    trial.code(next, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(trial.ended(), [(large, Some(Outcome::Rejected))]);
    let again = trial.send();
    assert_eq!((again[0].id, again[0].sequence), (next, 0));
}

#[test]
fn a_batch_never_sent_in_time_ends_as_not_sent() {
    let mut trial = Trial::new();
    trial.numbering = Numbering::Unknown;
    let id = trial.take(1);
    assert_eq!(trial.send(), []);
    trial.wait(Duration::from_millis(119_999));
    trial.expire();
    assert_eq!(trial.ended(), []);
    trial.wait(Duration::from_millis(1));
    trial.expire();
    assert_eq!(trial.ended(), [(id, Some(Outcome::NotSent))]);
}

#[test]
fn nothing_follows_a_batch_that_expired_on_its_way_until_it_is_answered() {
    let mut trial = Trial::new();
    let late = trial.take(2);
    trial.send();
    trial.wait(Duration::from_mins(2));
    let next = trial.take(1);
    trial.expire();
    assert_eq!(trial.ended(), [(late, Some(Outcome::PossiblyPersisted))]);
    assert_eq!(trial.send(), []);
    trial.lost(late);
    let out = trial.send();
    assert_eq!((out[0].id, out[0].epoch, out[0].sequence), (next, 1, 0), "a new epoch");
    assert_eq!(trial.ended(), []);
}

#[test]
fn an_expired_batch_that_was_stored_after_all_needs_no_new_epoch() {
    let mut trial = Trial::new();
    let late = trial.take(2);
    trial.send();
    trial.wait(Duration::from_mins(2));
    let next = trial.take(1);
    trial.expire();
    trial.ended();
    trial.stored(late);
    let out = trial.send();
    assert_eq!((out[0].id, out[0].epoch, out[0].sequence), (next, 0, 2));
}

#[test]
fn an_expired_batch_before_one_that_was_stored_needs_no_new_epoch() {
    let mut trial = Trial::new();
    let late = trial.take(2);
    trial.send();
    trial.wait(Duration::from_mins(1));
    let second = trial.take(1);
    trial.send();
    trial.wait(Duration::from_mins(1));
    trial.expire();
    assert_eq!(trial.ended(), [(late, Some(Outcome::PossiblyPersisted))]);
    trial.lost(late);
    trial.stored(second);
    assert_eq!(trial.ended(), [(second, None)]);
    trial.take(1);
    let out = trial.send();
    assert_eq!((out[0].epoch, out[0].sequence), (0, 3));
}

#[test]
fn at_the_end_what_is_stored_counts_as_that_and_what_was_told_is_not_told_again() {
    let mut trial = Trial::new();
    let end = |_: &Batch| Error::new(ErrorKind::Closed, "the end");
    let ids = [trial.take(1), trial.take(1)];
    trial.send();
    trial.stored(ids[1]);
    trial.queue.fail_all(end);
    assert_eq!(trial.ended(), [(ids[0], Some(Outcome::PossiblyPersisted)), (ids[1], None)]);
    let late = trial.take(1);
    trial.send();
    trial.wait(Duration::from_mins(2));
    trial.expire();
    assert_eq!(trial.ended(), [(late, Some(Outcome::PossiblyPersisted))]);
    trial.queue.fail_all(end);
    assert_eq!(trial.ended(), []);
}

#[test]
fn the_last_epoch_is_followed_by_a_new_producer_id() {
    let mut trial = Trial::new();
    trial.numbering = Numbering::By { producer_id: 7, epoch: i16::MAX };
    let id = trial.take(1);
    trial.send();
    trial.code(id, ErrorCode::UNKNOWN_PRODUCER_ID);
    trial.wait(PAUSE);
    assert!(!trial.queue.settle(trial.numbering), "a new id is needed");
    assert_eq!(trial.queue.next_len(trial.now, trial.numbering), None);
    trial.numbering = Numbering::By { producer_id: 8, epoch: 0 };
    let out = trial.send();
    assert_eq!((out[0].id, out[0].epoch, out[0].sequence), (id, 0, 0));
    assert_eq!(BatchHeader::parse(&out[0].bytes).unwrap().producer_id, 8);
}

#[test]
fn without_idempotence_a_lost_count_is_an_error_and_sequences_are_none() {
    let mut trial = Trial::new();
    trial.numbering = Numbering::Off;
    let id = trial.take(1);
    assert_eq!(trial.send()[0].sequence, -1);
    trial.code(id, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(trial.ended(), [(id, Some(Outcome::Rejected))]);
}

#[test]
fn without_idempotence_a_batch_too_large_goes_on_in_halves_too() {
    let mut trial = Trial::new();
    trial.numbering = Numbering::Off;
    let whole = trial.take(2);
    trial.send();
    trial.code(whole, ErrorCode::MESSAGE_TOO_LARGE);
    for value in ["1/0", "1/1"] {
        let out = trial.send();
        assert_eq!((out.len(), out[0].sequence), (1, -1));
        let wire = Bytes::from(out[0].bytes.clone());
        let records = Wire::parse(&wire).unwrap().records(1 << 20).unwrap();
        let values: Vec<_> = records.iter().map(|record| record.unwrap().value.unwrap()).collect();
        assert_eq!(values, [value.as_bytes()]);
        trial.stored(out[0].id);
    }
    assert!(trial.queue.is_empty());
}

#[test]
fn retries_end_where_the_option_says() {
    let mut trial = Trial::new();
    trial.queue.limits.retries = 2;
    let id = trial.take(1);
    for _ in 0..3 {
        assert_eq!(trial.sent_ids(), [id]);
        trial.code(id, ErrorCode::NOT_ENOUGH_REPLICAS);
        trial.wait(PAUSE);
    }
    assert_eq!(trial.ended(), [(id, Some(Outcome::Rejected))]);
}

/// Whatever came of its attempts after that, it did leave the client.
#[test]
fn what_a_broker_has_refused_is_rejected_also_when_later_attempts_never_left() {
    for code in [ErrorCode::NOT_ENOUGH_REPLICAS, ErrorCode::MESSAGE_TOO_LARGE] {
        let mut trial = Trial::new();
        let whole = trial.take(2);
        trial.send();
        trial.code(whole, code);
        trial.wait(PAUSE);
        for id in trial.sent_ids() {
            let error = Error::new(ErrorKind::Connect, "nobody listens");
            trial.answer(id, Verdict::Lost { error, written: false });
        }
        trial.wait(Duration::from_mins(3));
        trial.expire();
        let failed: Vec<_> = trial.ended().into_iter().filter_map(|(_, outcome)| outcome).collect();
        assert!(!failed.is_empty());
        assert!(failed.iter().all(|outcome| *outcome == Outcome::Rejected), "{code:?} {failed:?}");
    }
}

#[test]
fn a_batch_that_the_leader_may_have_is_possibly_stored_and_its_number_no_other_ones() {
    for code in [
        ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode::REQUEST_TIMED_OUT,
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::KAFKA_STORAGE_ERROR,
        ErrorCode::NETWORK_EXCEPTION,
    ] {
        let mut trial = Trial::new();
        let kept = trial.take(2);
        trial.send();
        trial.code(kept, code);
        // What is refused before anything is appended takes nothing back of that.
        trial.wait(PAUSE);
        trial.send();
        trial.code(kept, ErrorCode::NOT_ENOUGH_REPLICAS);
        trial.wait(Duration::from_mins(2));
        trial.expire();
        assert_eq!(trial.ended(), [(kept, Some(Outcome::PossiblyPersisted))], "{code}");
        trial.take(1);
        let next = trial.send();
        assert_eq!((next[0].epoch, next[0].sequence), (1, 0), "{code}");
    }
}

#[test]
fn a_log_that_knows_nothing_of_a_producer_gets_one_batch_at_a_time() {
    let mut trial = Trial::afresh();
    let ids: Vec<u64> = (0..3).map(|_| trial.take(1)).collect();
    assert_eq!(trial.sent_ids(), [ids[0]]);
    // Had the second been on its way, the log would have taken it for the first.
    trial.code(ids[0], ErrorCode::NOT_ENOUGH_REPLICAS);
    assert_eq!(trial.sent_ids(), [0_u64; 0]);
    trial.wait(PAUSE);
    assert_eq!(trial.sent_ids(), [ids[0]]);
    trial.stored(ids[0]);
    assert_eq!(trial.sent_ids(), ids[1..]);
    trial.stored(ids[1]);
    trial.stored(ids[2]);
    // A topic made anew is another log.
    trial.queue.handle_new_log();
    let ids: Vec<u64> = (0..2).map(|_| trial.take(1)).collect();
    let sent = trial.send();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].id, sent[0].epoch, sent[0].sequence), (ids[0], 1, 0));
    trial.stored(ids[0]);
    assert_eq!(trial.sent_ids(), [ids[1]]);
}

/// Its answer was on its way when the topic was made anew.
#[test]
fn a_batch_that_the_old_log_stored_tells_nothing_of_the_new_one() {
    let mut trial = Trial::new();
    let id = trial.take(1);
    trial.send();
    trial.queue.handle_new_log();
    trial.stored(id);
    let ids = [trial.take(1), trial.take(1)];
    assert_eq!(trial.sent_ids(), [ids[0]]);
    trial.stored(ids[0]);
    assert_eq!(trial.sent_ids(), [ids[1]]);
}
