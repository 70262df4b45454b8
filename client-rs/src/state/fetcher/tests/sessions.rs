//! Fetch sessions (KIP-227) and topic ids (KIP-516).

use super::*;

fn named(ask: &FetchAsk) -> Vec<(i32, i64)> {
    let mut named: Vec<_> =
        ask.parts.iter().map(|part| (part.partition.partition, part.offset)).collect();
    named.sort_unstable();
    named
}

fn forgotten(ask: &FetchAsk) -> Vec<i32> {
    ask.session.forgotten.iter().map(|(partition, _)| partition.partition).collect()
}

fn with_ids(partitions: std::ops::Range<i32>) -> Bench {
    let mut bench = Bench::at(config(), partitions, 0);
    bench.cluster.2 = Uuid([7; 16]);
    bench
}

#[test]
fn after_the_first_fetch_only_changes_are_told() {
    let mut bench = with_ids(0..3);
    let (token, ask) = bench.ask().unwrap();
    assert_eq!((ask.session.id, ask.session.epoch), (0, 0), "asks for a session");
    assert_eq!(named(&ask), [(0, 0), (1, 0), (2, 0)]);
    bench.answer_in(77, token, (0..3).map(|index| fetched(index, Bytes::new())).collect());
    let (token, ask) = bench.ask().unwrap();
    assert_eq!((ask.session.id, ask.session.epoch), (77, 1));
    assert_eq!((named(&ask), forgotten(&ask)), (vec![], vec![]), "nothing has changed");
    // What a session's answer does not mention has no news.
    bench.answer_in(77, token, vec![fetched(1, batch(0, 4))]);
    assert_eq!(bench.data().unwrap().next, 4);
    let (token, ask) = bench.ask().unwrap();
    assert_eq!((ask.session.epoch, named(&ask)), (2, vec![(1, 4)]));
    bench.answer_in(77, token, Vec::new());
    let (_, ask) = bench.ask().unwrap();
    assert_eq!((ask.session.epoch, named(&ask)), (3, vec![]));
}

#[test]
fn partitions_that_are_not_wanted_are_forgotten_and_told_again_later() {
    let mut bench = with_ids(0..3);
    let (token, _) = bench.ask().unwrap();
    bench.answer_in(77, token, (0..3).map(|index| fetched(index, Bytes::new())).collect());
    bench.fetcher.set_paused(&part(1), true);
    bench.fetcher.remove(&part(2));
    let (token, ask) = bench.ask().unwrap();
    assert_eq!((named(&ask), forgotten(&ask)), (vec![], vec![1, 2]));
    assert!(ask.session.forgotten.iter().all(|(_, id)| *id == Uuid([7; 16])));
    bench.answer_in(77, token, Vec::new());
    bench.fetcher.set_paused(&part(1), false);
    let (_, ask) = bench.ask().unwrap();
    assert_eq!((named(&ask), forgotten(&ask)), (vec![(1, 0)], vec![]));
}

#[test]
fn after_each_error_of_a_session_all_is_told_again_at_once() {
    for (code, id) in [
        (ErrorCode::FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode::INVALID_FETCH_SESSION_EPOCH, 77),
        (ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR, 77),
    ] {
        let mut bench = with_ids(0..2);
        let (token, _) = bench.ask().unwrap();
        bench.answer_in(77, token, (0..2).map(|index| fetched(index, Bytes::new())).collect());
        let (token, _) = bench.ask().unwrap();
        bench.refuse(token, code);
        let (token, ask) = bench.ask().expect("no pause");
        assert_eq!((ask.session.id, ask.session.epoch), (id, 0), "{code}");
        assert_eq!(named(&ask), [(0, 0), (1, 0)], "{code}");
        bench.refuse(token, code);
        assert!(bench.ask().is_none(), "{code}: said in full and refused again is a fault");
        bench.now += Duration::from_secs(2);
        assert_eq!(bench.ask().unwrap().1.session.epoch, 0, "{code}");
    }
}

#[test]
fn a_broken_connection_ends_the_session() {
    let mut bench = with_ids(0..2);
    let (token, _) = bench.ask().unwrap();
    bench.answer_in(77, token, (0..2).map(|index| fetched(index, Bytes::new())).collect());
    let (token, _) = bench.ask().unwrap();
    let gone = Error::new(ErrorKind::Disconnected, "the connection was lost");
    bench.fetcher.handle_fetch(token, Err(gone), bench.now);
    bench.now += Duration::from_secs(2);
    let (_, ask) = bench.ask().unwrap();
    assert_eq!((ask.session.id, ask.session.epoch), (77, 0), "the old one may still be kept");
    assert_eq!(named(&ask).len(), 2);
}

#[test]
fn a_broker_without_room_for_a_session_is_told_all_each_time() {
    let mut bench = with_ids(0..2);
    for _ in 0..3 {
        let (token, ask) = bench.ask().unwrap();
        assert_eq!((ask.session.id, ask.session.epoch, named(&ask).len()), (0, 0, 2));
        bench.answer_in(0, token, (0..2).map(|index| fetched(index, Bytes::new())).collect());
    }
    // It makes room, and later takes it back.
    let (token, _) = bench.ask().unwrap();
    bench.answer_in(5, token, (0..2).map(|index| fetched(index, Bytes::new())).collect());
    let (token, ask) = bench.ask().unwrap();
    assert_eq!((ask.session.id, ask.session.epoch), (5, 1));
    bench.answer_in(0, token, Vec::new());
    assert_eq!(bench.ask().unwrap().1.session.epoch, 0);
}

#[test]
fn the_spare_lane_leaves_the_session_alone() {
    let mut bench = with_ids(0..2);
    let (token, _) = bench.ask().unwrap();
    bench.answer_in(77, token, (0..2).map(|index| fetched(index, Bytes::new())).collect());
    let (held, _) = bench.ask().unwrap();
    bench.fetcher.seek(&part(0), 777, 50);
    let (token, ask) = bench.ask().unwrap();
    assert_eq!((ask.lane, ask.session.id, ask.session.epoch), (FetchLane::Spare, 0, -1));
    bench.answer_in(0, token, vec![fetched(0, batch(50, 1))]);
    bench.answer_in(77, held, Vec::new());
    let (_, ask) = bench.ask().unwrap();
    assert_eq!((ask.session.id, ask.session.epoch), (77, 2));
    assert_eq!(named(&ask), [(0, 51)]);
}

#[test]
fn a_partition_missing_from_a_full_answer_is_asked_for_again_after_a_pause() {
    let mut bench = with_ids(0..2);
    let (token, _) = bench.ask().unwrap();
    bench.answer_in(0, token, vec![fetched(0, Bytes::new())]);
    let (_, ask) = bench.ask().unwrap();
    assert_eq!(named(&ask), [(0, 0)], "not in a loop");
    bench.now += Duration::from_millis(150);
    assert_eq!(named(&bench.ask().unwrap().1), [(1, 0)]);
}

#[test]
fn a_session_by_names_gives_way_when_the_ids_come_to_be_known() {
    let mut bench = Bench::at(config(), 0..2, 0);
    let (token, ask) = bench.ask().unwrap();
    assert!(!ask.session.by_id);
    assert!(ask.session.topics.by_name("t").is_some());
    bench.answer_in(77, token, (0..2).map(|index| fetched(index, Bytes::new())).collect());
    bench.cluster.2 = Uuid([7; 16]);
    let (_, ask) = bench.ask().unwrap();
    assert!(ask.session.by_id);
    assert_eq!((ask.session.id, ask.session.epoch, named(&ask).len()), (77, 0, 2));
    assert_eq!(ask.session.topics.by_id(Uuid([7; 16])).map(|name| &**name), Some("t"));
}

#[test]
fn a_topic_created_anew_under_its_name_is_noticed() {
    let mut bench = with_ids(0..2);
    let (token, _) = bench.ask().unwrap();
    bench.answer_in(77, token, vec![fetched(0, batch(0, 3)), fetched(1, Bytes::new())]);
    bench.events();
    let (held, _) = bench.ask().unwrap();
    bench.fetcher.handle_leaders(&bench.cluster);
    assert!(bench.events().is_empty(), "the same topic");
    bench.cluster.2 = Uuid([8; 16]);
    bench.fetcher.handle_leaders(&bench.cluster);
    let events = bench.events();
    assert!(matches!(
        events[..],
        [FetchEvent::Recreated { position: 100, .. }, FetchEvent::Recreated { position: 101, .. }]
    ));
    bench.answer_in(77, held, vec![fetched(0, batch(3, 3))]);
    assert!(bench.data().is_none(), "of the old topic");
    assert!(bench.ask().is_none(), "until its owner says where it begins");
    bench.fetcher.seek(&part(0), 777, 0);
    let (_, ask) = bench.ask().unwrap();
    assert_eq!((named(&ask), ask.session.epoch), (vec![(0, 0)], 2));
    assert_eq!(ask.session.forgotten, [(part(0), Uuid([7; 16])), (part(1), Uuid([7; 16]))]);
}
