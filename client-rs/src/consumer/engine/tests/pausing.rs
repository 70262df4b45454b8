//! What is kept of a paused partition holds the memory that it counts, and no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use ottla_protocol::record::{BatchBuilder, BatchSeal, NO_HEADERS};

use super::finishing::committing;
use super::script::part;
use crate::consumer::face::{Face, Look, WholeBatch};
use crate::driver::clock;
use crate::state::fetcher::Fetched;

/// An answer's memory, which tells when nobody holds it any more.
struct Frame {
    bytes: Vec<u8>,
    gone: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::SeqCst);
    }
}

/// Three records of partition 0 out of an answer with so many bytes of others; whether that is gone.
pub(super) fn fetched(others: usize) -> (Fetched, Arc<AtomicBool>) {
    let mut builder = BatchBuilder::default();
    for value in ["0", "1", "2"] {
        builder.push(0, None, Some(value.as_bytes()), NO_HEADERS).unwrap();
    }
    let mut bytes = builder.finish(&BatchSeal::default()).unwrap().to_vec();
    let len = bytes.len();
    bytes.resize(len + others, 0);
    let gone = Arc::<AtomicBool>::default();
    let (pinned, known) = (bytes.len(), Arc::clone(&gone));
    let frame = Bytes::from_owner(Frame { bytes, gone: known });
    let fetched = Fetched {
        partition: part(0),
        position: 2,
        batches: vec![frame.slice(..len)],
        start: 0,
        next: 3,
        bytes: len,
        pinned,
        high_watermark: 3,
    };
    (fetched, gone)
}

#[test]
fn pausing_lets_go_of_answers_of_which_little_is_kept_whatever_came_first() {
    for paused_first in [false, true] {
        // Of the small answer the partition is more than half.
        for (others, lets_go) in [(1_000_000, true), (10, false)] {
            let face = Face::new(Arc::default(), 1_000_000);
            assert!(face.add(part(0), 1, 2));
            let (fetched, gone) = fetched(others);
            if paused_first {
                face.set_paused(&[part(0)], true).unwrap();
            }
            face.deliver(fetched);
            if !paused_first {
                assert!(!gone.load(Ordering::SeqCst), "what is about to be read is not copied");
                face.set_paused(&[part(0)], true).unwrap();
            }
            assert_eq!(gone.load(Ordering::SeqCst), lets_go, "{others} bytes of others");
            face.set_paused(&[part(0)], false).unwrap();
            let Ok(Look::Found(batch)) = face.look(&WholeBatch { records_max: 9 }, None) else {
                panic!("the records are there");
            };
            let values: Vec<_> = batch.records().map(|record| record.value.unwrap()).collect();
            assert_eq!(values, [b"0", b"1", b"2"]);
        }
    }
}

/// The next records that are ready, by their values.
fn take(face: &Face, records_max: usize) -> Option<Vec<Vec<u8>>> {
    match face.look(&WholeBatch { records_max }, None) {
        Ok(Look::Found(batch)) => {
            Some(batch.records().map(|record| record.value.unwrap().to_vec()).collect())
        }
        Ok(Look::Nothing) => None,
        _ => panic!("neither records nor none"),
    }
}

#[test]
fn records_begun_of_a_paused_partition_are_given_up_when_the_next_batch_needs_their_room() {
    // A quarter of it is for decoded records: three of them take more, or six do.
    for budget in [400, 800] {
        records_are_given_up(budget);
    }
}

fn records_are_given_up(budget: usize) {
    let face = Face::new(Arc::default(), budget);
    assert!(face.add(part(0), 1, 2) && face.add(part(1), 3, 4));
    let (first, _) = fetched(0);
    let (again, len) = (first.clone(), first.bytes);
    let second = Fetched { partition: part(1), position: 4, ..first.clone() };
    face.deliver(first);
    assert_eq!(take(&face, 1), Some(vec![b"0".to_vec()]));
    face.set_paused(&[part(0)], true).unwrap();
    face.deliver(second);
    assert!(!face.drain().crowded);
    assert_eq!(take(&face, 9), None, "room is made first");
    assert!(face.drain().crowded);
    assert_eq!(face.closed_begun(), [(part(0), 2)]);
    assert_eq!(face.shed(&part(1), 4), None, "it is not paused");
    assert_eq!(face.shed(&part(0), 2), Some((1, 0)), "behind the record that was given out");
    face.begin_next();
    assert_eq!(take(&face, 9).map(|values| values.len()), Some(3));
    assert_eq!(face.stats().buffered, 0, "all is given out");
    // What was given up comes again, and what was given out before does not.
    face.deliver(Fetched { start: 1, ..again });
    assert_eq!(face.shed(&part(0), 2), Some((1, len)), "fetched, and not begun");
    let (again, _) = fetched(0);
    face.deliver(Fetched { start: 1, ..again });
    face.set_paused(&[part(0)], false).unwrap();
    assert_eq!(take(&face, 9), Some(vec![b"1".to_vec(), b"2".to_vec()]));
}

/// Two partitions with three records each; of the first one is given out, then it is paused.
fn one_begun_and_paused(budget: usize) -> Face {
    let face = Face::new(Arc::default(), budget);
    assert!(face.add(part(0), 1, 2) && face.add(part(1), 3, 4));
    let (first, _) = fetched(0);
    let second = Fetched { partition: part(1), position: 4, ..first.clone() };
    face.deliver(first);
    assert_eq!(take(&face, 1), Some(vec![b"0".to_vec()]));
    face.set_paused(&[part(0)], true).unwrap();
    face.deliver(second);
    face
}

#[test]
fn records_that_wait_for_their_turn_come_before_a_batch_that_has_no_room_beside_them() {
    // As above: it is seen before the batch is decoded, or after.
    for budget in [400, 800] {
        let face = one_begun_and_paused(budget);
        face.set_paused(&[part(0)], false).unwrap();
        assert_eq!(take(&face, 9), Some(vec![b"1".to_vec(), b"2".to_vec()]));
        assert!(!face.drain().crowded, "nothing has to be given up");
        assert_eq!(take(&face, 9).map(|values| values.len()), Some(3));
    }
}

#[test]
fn what_was_taken_and_the_machine_has_not_heard_of_is_given_up_with_the_rest() {
    let face = Face::new(Arc::default(), 1_000_000);
    assert!(face.add(part(0), 1, 2));
    let (first, _) = fetched(0);
    let len = first.bytes;
    let second = Fetched { start: 3, next: 6, ..first.clone() };
    face.deliver(first);
    face.deliver(second);
    assert_eq!(take(&face, 1), Some(vec![b"0".to_vec()]));
    face.set_paused(&[part(0)], true).unwrap();
    // One is decoded, and the machine still counts it.
    assert_eq!(face.shed(&part(0), 2), Some((1, 2 * len)));
    assert_eq!(face.drain().consumed, []);
}

/// Room that cannot be made keeps nobody waiting.
#[test]
fn a_batch_is_begun_without_room_when_nothing_could_be_given_up() {
    let face = one_begun_and_paused(400);
    assert_eq!(take(&face, 9), None);
    face.begin_next();
    assert_eq!(take(&face, 9).map(|values| values.len()), Some(3));
}

#[test]
fn a_batch_that_was_begun_lets_go_of_its_answer_too_and_goes_on_where_it_was() {
    for (others, lets_go) in [(1_000_000, true), (10, false)] {
        let face = Face::new(Arc::default(), 1_000_000);
        assert!(face.add(part(0), 1, 2));
        let (fetched, gone) = fetched(others);
        face.deliver(fetched);
        let two = WholeBatch { records_max: 2 };
        let Ok(Look::Found(first)) = face.look(&two, None) else { panic!("there are records") };
        // Of two that were given one comes back, as from a program that was given one by one.
        let shared = Arc::clone(&first.shared);
        drop(first);
        face.set_paused(&[part(0)], true).unwrap();
        face.give_back(&shared, 1);
        drop(shared);
        assert_eq!(gone.load(Ordering::SeqCst), lets_go, "{others} bytes of others");
        assert!(matches!(face.look(&two, None), Ok(Look::Nothing)));
        assert!(face.commit_finished(clock::now(), None).unwrap());
        let marks = committing(&face);
        assert_eq!(marks.len(), 1);
        assert_eq!(marks.first().map(|(_, mark)| mark.offset), Some(1));
        face.set_paused(&[part(0)], false).unwrap();
        let Ok(Look::Found(rest)) = face.look(&two, None) else { panic!("the rest is there") };
        let values: Vec<_> = rest.records().map(|record| record.value.unwrap()).collect();
        assert_eq!(values, [b"1", b"2"]);
        assert!(matches!(face.look(&two, None), Ok(Look::Nothing)), "none of them twice");
    }
}
