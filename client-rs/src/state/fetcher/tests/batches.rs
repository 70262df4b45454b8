//! What is shown of the batches that an answer brings.

use super::*;

#[test]
fn a_compacted_tail_is_passed_by_the_batch_that_had_it() {
    let mut bench = Bench::at(config(), 0..1, 15);
    let (token, ask) = bench.ask().unwrap();
    assert_eq!(ask.parts[0].offset, 15);
    let mut compacted = BatchBuilder::default();
    compacted.push(1, None, Some(b"10"), NO_HEADERS).unwrap();
    compacted.skip(1);
    compacted.push(1, None, Some(b"12"), NO_HEADERS).unwrap();
    compacted.skip(7);
    let first = compacted.finish(&BatchSeal { base_offset: 10, ..BatchSeal::default() }).unwrap();
    bench.answer(token, vec![fetched(0, first)]);
    let got = bench.data().unwrap();
    assert_eq!((got.start, got.next), (15, 20));
    let (token, ask) = bench.ask().unwrap();
    assert_eq!(ask.parts[0].offset, 20, "behind the batch, not behind its last record");
    bench.answer(token, vec![fetched(0, batch(20, 1))]);
    assert_eq!(bench.data().unwrap().next, 21);
}

#[test]
fn a_cut_tail_is_dropped_and_asked_for_again() {
    let mut bench = Bench::at(config(), 0..1, 0);
    let (token, _) = bench.ask().unwrap();
    let (first, second) = (batch(0, 3), batch(3, 3));
    let cut = joined(&[first.clone(), second.slice(..second.len() - 1)]);
    bench.answer(token, vec![fetched(0, cut)]);
    let got = bench.data().unwrap();
    assert_eq!((got.batches, got.next), (vec![first], 3));
    assert_eq!(bench.ask().unwrap().1.parts[0].offset, 3);
}

#[test]
fn control_batches_are_never_shown_but_passed() {
    let mut bench = Bench::at(config(), 0..1, 0);
    let (token, _) = bench.ask().unwrap();
    let control = BatchSeal {
        attributes: Attributes::default().with_control(true).with_transactional(true),
        ..BatchSeal::default()
    };
    let bytes = joined(&[batch(0, 2), sealed(2, 1, control)]);
    bench.answer(token, vec![fetched(0, bytes)]);
    let got = bench.data().unwrap();
    assert_eq!((got.batches, got.next), (vec![batch(0, 2)], 3));
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, vec![fetched(0, sealed(3, 1, control))]);
    let got = bench.data().expect("the position moves on though nothing is shown");
    assert_eq!((got.batches.len(), got.next), (0, 4));
}

/// A record of a producer's transaction.
fn of(producer_id: i64, offset: i64) -> Bytes {
    let attributes = Attributes::default().with_transactional(true);
    sealed(offset, 1, BatchSeal { producer_id, attributes, ..BatchSeal::default() })
}

/// The end of a producer's transaction.
fn marker(producer_id: i64, base_offset: i64, kind: ControlKind) -> Bytes {
    let attributes = Attributes::default().with_transactional(true).with_control(true);
    let mut builder = BatchBuilder::default();
    let key = ControlRecord::of(kind).key();
    builder.push(1, Some(&key), Some(&[0; 6]), NO_HEADERS).unwrap();
    let seal = BatchSeal { base_offset, producer_id, attributes, ..BatchSeal::default() };
    builder.finish(&seal).unwrap()
}

/// The offsets that are shown of an answer, and where reading goes on.
fn shown(read_committed: bool, bytes: &Bytes, aborted: &[(i64, i64)]) -> (Vec<i64>, i64) {
    let mut bench = Bench::at(FetchConfig { read_committed, ..config() }, 0..1, 0);
    let (token, ask) = bench.ask().unwrap();
    assert_eq!(ask.read_committed, read_committed);
    let aborted = aborted.to_vec();
    bench.answer(token, vec![FetchedPart { aborted, ..fetched(0, bytes.clone()) }]);
    let got = bench.data().unwrap();
    let offset = |bytes: &Bytes| i64::from_be_bytes(bytes[..8].try_into().unwrap());
    (got.batches.iter().map(offset).collect(), got.next)
}

#[test]
fn aborted_transactions_are_left_out_under_read_committed() {
    let bytes = joined(&[
        of(1, 0),
        of(2, 1),
        marker(1, 2, ControlKind::Abort),
        marker(2, 3, ControlKind::Commit),
        of(1, 4),
        marker(1, 5, ControlKind::Commit),
        batch(6, 1),
    ]);
    assert_eq!(shown(true, &bytes, &[(1, 0)]), (vec![1, 4, 6], 7));
    assert_eq!(shown(false, &bytes, &[(1, 0)]), (vec![0, 1, 4, 6], 7));
}

/// An end without records is in no list of aborted transactions, and must not use up the place of
/// one that is.
#[test]
fn an_aborted_transaction_without_records_hides_nothing_and_shows_nothing() {
    let bytes = joined(&[
        marker(1, 0, ControlKind::Abort),
        of(1, 1),
        marker(1, 2, ControlKind::Commit),
        marker(1, 3, ControlKind::Abort),
        of(1, 4),
        marker(1, 5, ControlKind::Abort),
        batch(6, 1),
    ]);
    assert_eq!(shown(true, &bytes, &[(1, 4)]), (vec![1, 6], 7));
}

#[test]
fn a_damaged_batch_is_told_with_its_offset_behind_the_good_ones() {
    let mut bench = Bench::at(config(), 0..1, 0);
    let (token, _) = bench.ask().unwrap();
    let mut bytes = joined(&[batch(0, 2), batch(2, 2)]).to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    bench.answer(token, vec![fetched(0, bytes)]);
    let events = bench.events();
    let [FetchEvent::Data(data), FetchEvent::Fault { position, fault, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((data.next, *position), (2, 100));
    let FetchFault::Corrupt { offset, cause: BatchError::Crc { .. } } = fault else {
        panic!("{fault:?}")
    };
    assert_eq!(*offset, 2);
    assert!(bench.ask().is_none(), "not in a loop");
    bench.now += Duration::from_millis(150);
    assert_eq!(bench.ask().unwrap().1.parts[0].offset, 2, "it may have been the way, not the log");
}

#[test]
fn checksums_are_left_alone_if_that_is_wished() {
    let mut bench = Bench::at(FetchConfig { check_crcs: false, ..config() }, 0..1, 0);
    let (token, _) = bench.ask().unwrap();
    let mut bytes = batch(0, 2).to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    bench.answer(token, vec![fetched(0, bytes)]);
    assert_eq!(bench.data().unwrap().next, 2);
}

#[test]
fn garbage_is_a_fault_and_no_panic() {
    for bytes in [vec![0; 11], vec![0xff; 61], vec![0; 200], batch(0, 2).slice(..40).to_vec()] {
        let mut bench = Bench::at(config(), 0..1, 0);
        let (token, _) = bench.ask().unwrap();
        bench.answer(token, vec![fetched(0, bytes)]);
        let events = bench.events();
        assert!(
            matches!(
                events[..],
                [FetchEvent::Fault { fault: FetchFault::Corrupt { offset: 0, .. }, .. }]
            ),
            "{events:?}"
        );
    }
}
