//! Logs that were cut short under a new leader (KIP-320).

use super::*;

fn read_under(epoch: i32) -> Bench {
    let mut bench = Bench::at(config(), 0..1, 0);
    bench.cluster.1 = epoch;
    let (token, _) = bench.ask().unwrap();
    let seal = BatchSeal { partition_leader_epoch: epoch, ..BatchSeal::default() };
    bench.answer(token, vec![fetched(0, sealed(0, 10, seal))]);
    assert_eq!(bench.data().unwrap().next, 10);
    bench
}

/// The leader is another broker, in the next epoch.
fn moved(bench: &mut Bench) {
    bench.cluster.0.insert(0, 3);
    bench.cluster.1 += 1;
    bench.fetcher.handle_leaders(&bench.cluster);
}

fn check(bench: &mut Bench) -> Option<(Token, EpochAsk)> {
    bench.fetcher.poll_checks(&bench.cluster, &mut bench.tokens, bench.now)
}

fn found(bench: &mut Bench, token: Token, error: ErrorCode, epoch: i32, end: i64) {
    let parts = vec![EpochFound { partition: part(0), error, epoch, end }];
    bench.fetcher.handle_checks(token, Ok(EpochAnswer { parts }), bench.now);
}

#[test]
fn a_new_leader_is_asked_for_the_end_of_the_epoch_before_anything_is_fetched() {
    let mut bench = read_under(5);
    let (held, _) = bench.ask().unwrap();
    moved(&mut bench);
    assert!(bench.ask().is_none());
    let (token, ask) = check(&mut bench).unwrap();
    assert_eq!((ask.broker, ask.parts[0].1.epoch, ask.parts[0].2), (3, 6, 5));
    assert!(check(&mut bench).is_none());
    bench.answer(held, vec![fetched(0, batch(10, 5))]);
    assert!(bench.data().is_none(), "the old leader's word of before");
    found(&mut bench, token, ErrorCode::NONE, 5, 10);
    assert!(bench.events().is_empty());
    let (_, ask) = bench.ask().unwrap();
    assert_eq!((ask.broker, ask.parts[0].offset, ask.parts[0].leader.epoch), (3, 10, 6));
    assert!(check(&mut bench).is_none(), "once an epoch");
}

#[test]
fn a_log_that_ends_before_what_was_read_is_told_and_not_read_on() {
    let mut bench = read_under(5);
    moved(&mut bench);
    let (token, _) = check(&mut bench).unwrap();
    found(&mut bench, token, ErrorCode::NONE, 4, 7);
    let events = bench.events();
    assert!(
        matches!(events[..], [FetchEvent::Diverged { position: 100, offset: 10, end: 7, .. }]),
        "{events:?}"
    );
    bench.now += Duration::from_secs(10);
    assert!(bench.ask().is_none());
    bench.fetcher.seek(&part(0), 777, 7);
    assert_eq!(bench.ask().unwrap().1.parts[0].offset, 7);
}

#[test]
fn an_end_that_the_leader_does_not_know_is_no_loss() {
    for (epoch, end) in [(-1, -1), (5, -1), (-1, 3)] {
        let mut bench = read_under(5);
        moved(&mut bench);
        let (token, _) = check(&mut bench).unwrap();
        found(&mut bench, token, ErrorCode::NONE, epoch, end);
        assert!(bench.events().is_empty());
        assert_eq!(bench.ask().unwrap().1.parts[0].offset, 10);
    }
}

#[test]
fn faults_of_the_question_never_move_the_position() {
    let lost = || Error::new(ErrorKind::Disconnected, "the connection was lost");
    let dns = || Error::new(ErrorKind::Dns, "no such host");
    for (fault, refresh) in [
        (Err(lost()), true),
        (Err(dns()), true),
        (Ok(ErrorCode::FENCED_LEADER_EPOCH), true),
        (Ok(ErrorCode::NOT_LEADER_OR_FOLLOWER), true),
        (Ok(ErrorCode::UNKNOWN_LEADER_EPOCH), false),
        (Ok(ErrorCode::OFFSET_OUT_OF_RANGE), true),
    ] {
        let mut bench = read_under(5);
        moved(&mut bench);
        let mut tries = 0;
        for _ in 0..5 {
            let (token, _) = check(&mut bench).unwrap();
            tries += 1;
            match &fault {
                Ok(code) => found(&mut bench, token, *code, -1, -1),
                Err(error) => bench.fetcher.handle_checks(token, Err(error.clone()), bench.now),
            }
            let events = bench.events();
            let refreshed = matches!(events[..], [FetchEvent::Refresh]);
            assert_eq!((refreshed, events.len()), (refresh, usize::from(refresh)), "{fault:?}");
            assert!(check(&mut bench).is_none(), "{fault:?}: not in a loop");
            assert!(bench.ask().is_none(), "{fault:?}: nothing unchecked is fetched");
            bench.now = bench.fetcher.poll_timeout(bench.now).unwrap();
        }
        assert_eq!(tries, 5);
        let (token, _) = check(&mut bench).unwrap();
        found(&mut bench, token, ErrorCode::NONE, 5, 10);
        assert_eq!(bench.ask().unwrap().1.parts[0].offset, 10, "{fault:?}");
    }
}

#[test]
fn a_broker_that_cannot_tell_is_taken_at_its_word() {
    let mut bench = read_under(5);
    moved(&mut bench);
    let (token, _) = check(&mut bench).unwrap();
    let old = Error::new(ErrorKind::UnsupportedVersion, "it has 0 to 2");
    bench.fetcher.handle_checks(token, Err(old), bench.now);
    assert!(bench.events().is_empty());
    assert_eq!(bench.ask().unwrap().1.parts[0].offset, 10);
}

#[test]
fn a_committed_offset_of_an_older_epoch_is_checked_before_its_first_fetch() {
    let mut bench = Bench::new(config());
    bench.cluster.0.insert(0, 1);
    bench.fetcher.assign(part(0), 100, bench.now);
    bench.fetcher.place(&part(0), 100, 30, 3);
    assert!(bench.ask().is_none());
    let (token, ask) = check(&mut bench).unwrap();
    assert_eq!(ask.parts[0].2, 3);
    found(&mut bench, token, ErrorCode::NONE, 3, 30);
    assert_eq!(bench.ask().unwrap().1.parts[0].offset, 30);
}

#[test]
fn a_check_asked_before_a_seek_or_a_newer_leader_counts_no_more() {
    for case in ["sought", "a newer leader"] {
        let mut bench = read_under(5);
        moved(&mut bench);
        let (token, _) = check(&mut bench).unwrap();
        if case == "sought" {
            bench.fetcher.seek(&part(0), 777, 3);
            found(&mut bench, token, ErrorCode::NONE, 4, 1);
            assert!(bench.events().is_empty());
            assert_eq!(bench.ask().unwrap().1.parts[0].offset, 3);
            continue;
        }
        // The answer of the one before says nothing of the newer one's log.
        moved(&mut bench);
        found(&mut bench, token, ErrorCode::NONE, 5, 10);
        assert!(bench.ask().is_none());
        let (token, ask) = check(&mut bench).unwrap();
        assert_eq!((ask.parts[0].1.epoch, ask.parts[0].2), (7, 5));
        found(&mut bench, token, ErrorCode::NONE, 5, 10);
        assert_eq!(bench.ask().unwrap().1.parts[0].offset, 10);
    }
}

#[test]
fn a_position_without_an_epoch_is_not_checked_but_answers_of_before_are_dropped() {
    let mut bench = Bench::at(config(), 0..1, 10);
    let (held, _) = bench.ask().unwrap();
    moved(&mut bench);
    assert!(check(&mut bench).is_none(), "nothing was read, so nothing can be lost");
    bench.answer(held, vec![fetched(0, batch(10, 5))]);
    assert!(bench.data().is_none());
    let (_, ask) = bench.ask().unwrap();
    assert_eq!((ask.broker, ask.parts[0].offset), (3, 10));
}
