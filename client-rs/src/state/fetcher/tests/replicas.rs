//! Reading from the nearest replica (KIP-392).

use super::*;

fn nearer(index: i32, node: i32) -> FetchedPart {
    FetchedPart { replica: Some(node), ..fetched(index, Bytes::new()) }
}

/// One partition at offset 40, whose leader 1 has named replica 2.
fn following() -> Bench {
    let mut bench = Bench::at(config(), 0..1, 40);
    let (token, ask) = bench.ask().unwrap();
    assert_eq!(ask.broker, 1);
    bench.answer(token, vec![nearer(0, 2)]);
    bench.events();
    bench
}

fn asked(bench: &mut Bench) -> (Token, i32, i64) {
    let (token, ask) = bench.ask().unwrap();
    (token, ask.broker, ask.parts[0].offset)
}

#[test]
fn the_replica_that_the_leader_names_is_read_from_at_once() {
    let mut bench = following();
    let (token, broker, offset) = asked(&mut bench);
    assert_eq!((broker, offset), (2, 40));
    bench.answer(token, vec![fetched(0, batch(40, 2))]);
    assert_eq!(bench.data().unwrap().next, 42);
    assert_eq!(asked(&mut bench).1, 2);
}

/// edenhill/librdkafka#2830: the position was reset on a follower's word.
#[test]
fn an_offset_that_the_follower_has_not_is_asked_of_the_leader() {
    let mut bench = following();
    let (token, ..) = asked(&mut bench);
    bench.answer(token, vec![failed(0, ErrorCode::OFFSET_OUT_OF_RANGE)]);
    assert!(bench.events().is_empty(), "only the leader's word counts");
    let (token, broker, offset) = asked(&mut bench);
    assert_eq!((broker, offset), (1, 40));
    // It names the same follower again, which still lags: that does not become a loop.
    bench.answer(token, vec![nearer(0, 2)]);
    assert!(bench.ask().is_none());
    bench.now += Duration::from_secs(2);
    let (token, broker, _) = asked(&mut bench);
    assert_eq!(broker, 2);
    bench.answer(token, vec![failed(0, ErrorCode::OFFSET_OUT_OF_RANGE)]);
    let (token, broker, _) = asked(&mut bench);
    assert_eq!(broker, 1);
    bench.answer(token, vec![failed(0, ErrorCode::OFFSET_OUT_OF_RANGE)]);
    let events = bench.events();
    assert!(
        matches!(events[..], [FetchEvent::OutOfRange { offset: 40, .. }]),
        "the leader says so: {events:?}"
    );
}

#[test]
fn a_follower_that_is_gone_or_has_lost_its_replica_gives_way_to_the_leader() {
    for case in ["lost", "unreachable", "not a replica"] {
        let mut bench = following();
        let (token, ..) = asked(&mut bench);
        match case {
            "lost" => {
                let gone = Error::new(ErrorKind::Disconnected, "the connection was lost");
                bench.fetcher.handle_fetch(token, Err(gone), bench.now);
            }
            "unreachable" => bench.refuse(token, ErrorCode::UNKNOWN_SERVER_ERROR),
            _ => bench.answer(token, vec![failed(0, ErrorCode::NOT_LEADER_OR_FOLLOWER)]),
        }
        bench.now += Duration::from_millis(150);
        let (_, broker, offset) = asked(&mut bench);
        assert_eq!((broker, offset), (1, 40), "{case}");
    }
}

#[test]
fn a_follower_that_the_cluster_no_longer_has_is_not_asked() {
    let mut bench = Bench::at(config(), 0..1, 40);
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, vec![nearer(0, 9)]);
    let (_, broker, offset) = asked(&mut bench);
    assert_eq!((broker, offset), (1, 40));
}

#[test]
fn the_choice_is_made_anew_once_it_is_as_old_as_metadata_may_be() {
    let mut bench = following();
    let (token, broker, _) = asked(&mut bench);
    assert_eq!(broker, 2);
    bench.now += Duration::from_secs(299);
    bench.answer(token, vec![fetched(0, batch(40, 2))]);
    let (token, broker, _) = asked(&mut bench);
    assert_eq!(broker, 2);
    bench.now += Duration::from_secs(1);
    bench.answer(token, vec![fetched(0, batch(42, 2))]);
    assert_eq!(asked(&mut bench).1, 1, "the leader may know a nearer one by now");
}

#[test]
fn nothing_is_kept_of_a_broker_that_the_cluster_has_no_more_once_it_has_answered() {
    let mut bench = Bench::at(config(), 0..2, 7);
    let known = |bench: &Bench| bench.fetcher.lanes.keys().copied().collect::<Vec<_>>();
    let (mut token, mut ask) = bench.ask().unwrap();
    for leader in 10..1_010 {
        bench.cluster.0.values_mut().for_each(|node| *node = leader);
        let next = bench.ask();
        assert!(known(&bench).contains(&ask.broker), "its answer is awaited");
        bench.answer(token, vec![fetched(0, Bytes::new()), fetched(1, Bytes::new())]);
        (token, ask) = next.or_else(|| bench.ask()).unwrap();
        let cluster = bench.cluster.clone();
        bench.fetcher.sort_news(&cluster, bench.now);
        assert_eq!((ask.broker, known(&bench)), (leader, vec![leader]));
    }
}
