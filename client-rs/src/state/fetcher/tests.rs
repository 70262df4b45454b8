//! Tests of the machine, in virtual time.

use std::collections::BTreeMap;

use ottla_protocol::record::{
    Attributes, BatchBuilder, BatchError, BatchSeal, ControlKind, ControlRecord, NO_HEADERS,
};

use super::*;
use crate::error::{Error, ErrorKind};
use crate::state::backoff::Backoff;
use crate::state::token::Tokens;

const MIB: usize = 1024 * 1024;

mod batches;
mod budget;
mod epochs;
mod news;
mod replicas;
mod sessions;
mod watch;

/// Who leads which partition of `t`, in which epoch, and the topic's id.
#[derive(Clone, PartialEq)]
struct Cluster(BTreeMap<i32, i32>, i32, Uuid);

impl Default for Cluster {
    fn default() -> Self {
        Self(BTreeMap::new(), 5, Uuid::ZERO)
    }
}

impl Leaders for Cluster {
    fn leader(&self, partition: &TopicPartition) -> Option<Leader> {
        let node = *self.0.get(&partition.partition)?;
        Some(Leader { node, epoch: self.1, topic_id: self.2 })
    }

    /// Those that lead something, and 2.
    fn has_broker(&self, node: i32) -> bool {
        node == 2 || self.0.values().any(|&leader| leader == node)
    }
}

struct Bench {
    fetcher: Fetcher,
    cluster: Cluster,
    /// As it was when the fetcher was last told of a change.
    told: Cluster,
    tokens: Tokens,
    now: Instant,
}

fn part(index: i32) -> TopicPartition {
    TopicPartition::new("t", index)
}

fn config() -> FetchConfig {
    FetchConfig {
        min_bytes: 1,
        max_bytes: 16 * MIB,
        partition_bytes: MIB,
        max_wait: Duration::from_millis(500),
        budget: 64 * MIB,
        check_crcs: true,
        read_committed: false,
        replica_age: Duration::from_mins(5),
    }
}

impl Bench {
    #[allow(clippy::disallowed_methods, reason = "an origin for virtual time")]
    fn new(config: FetchConfig) -> Self {
        let backoff = Backoff::new((Duration::from_millis(100), Duration::from_secs(1)));
        let fetcher = Fetcher::new(config, Pace::new(backoff, 1));
        let now = Instant::now();
        let (cluster, told) = (Cluster::default(), Cluster::default());
        Self { fetcher, cluster, told, tokens: Tokens::default(), now }
    }

    /// Partitions of broker 1, all at this offset, at positions of their own numbers.
    fn at(config: FetchConfig, partitions: std::ops::Range<i32>, offset: i64) -> Self {
        let mut bench = Self::new(config);
        for index in partitions {
            bench.cluster.0.insert(index, 1);
            bench.fetcher.assign(part(index), position(index), bench.now);
            bench.fetcher.place(&part(index), position(index), offset, -1);
        }
        bench
    }

    fn ask(&mut self) -> Option<(Token, FetchAsk)> {
        if self.told != self.cluster {
            self.told = self.cluster.clone();
            self.fetcher.handle_leaders(&self.cluster);
        }
        self.fetcher.poll_fetch(&self.cluster, &mut self.tokens, self.now)
    }

    fn answer(&mut self, token: Token, parts: Vec<FetchedPart>) {
        self.answer_in(0, token, parts);
    }

    /// An answer of a broker that keeps a session.
    fn answer_in(&mut self, session: i32, token: Token, parts: Vec<FetchedPart>) {
        let throttle = Duration::ZERO;
        let answer = FetchAnswer { error: ErrorCode::NONE, throttle, session, parts };
        self.fetcher.handle_fetch(token, Ok(answer), self.now);
    }

    /// An answer of nothing but an error.
    fn refuse(&mut self, token: Token, error: ErrorCode) {
        let answer = FetchAnswer { error, throttle: Duration::ZERO, session: 0, parts: Vec::new() };
        self.fetcher.handle_fetch(token, Ok(answer), self.now);
    }

    fn events(&mut self) -> Vec<FetchEvent> {
        std::iter::from_fn(|| self.fetcher.poll_event()).collect()
    }

    fn data(&mut self) -> Option<Fetched> {
        self.events().into_iter().find_map(|event| match event {
            FetchEvent::Data(fetched) => Some(fetched),
            _ => None,
        })
    }
}

fn position(index: i32) -> u64 {
    u64::try_from(index).unwrap() + 100
}

fn fetched(index: i32, records: impl Into<Bytes>) -> FetchedPart {
    FetchedPart {
        partition: part(index),
        error: ErrorCode::NONE,
        high_watermark: 1000,
        replica: None,
        aborted: Vec::new(),
        records: records.into(),
        pinned: 0,
    }
}

fn start_at(index: i32, offset: i64, error: ErrorCode) -> StartFound {
    StartFound { partition: part(index), error, offset, timestamp: -1, epoch: -1 }
}

fn failed(index: i32, error: ErrorCode) -> FetchedPart {
    FetchedPart { error, ..fetched(index, Bytes::new()) }
}

fn batch(base_offset: i64, count: i32) -> Bytes {
    sealed(base_offset, count, BatchSeal::default())
}

fn sealed(base_offset: i64, count: i32, seal: BatchSeal) -> Bytes {
    let mut builder = BatchBuilder::default();
    for _ in 0..count {
        builder.push(1, None, Some(b"value"), NO_HEADERS).unwrap();
    }
    builder.finish(&BatchSeal { base_offset, ..seal }).unwrap()
}

fn joined(batches: &[Bytes]) -> Bytes {
    Bytes::from(batches.concat())
}

#[test]
fn one_fetch_a_broker_takes_all_its_partitions() {
    let mut bench = Bench::at(config(), 0..3, 7);
    bench.cluster.0.insert(2, 9);
    let (_, first) = bench.ask().unwrap();
    let (_, second) = bench.ask().unwrap();
    assert!(bench.ask().is_none());
    let mut asked = [first, second];
    asked.sort_by_key(|ask| ask.broker);
    let parts = |ask: &FetchAsk| -> Vec<i32> {
        let mut parts: Vec<_> = ask.parts.iter().map(|part| part.partition.partition).collect();
        parts.sort_unstable();
        parts
    };
    assert_eq!((asked[0].broker, parts(&asked[0])), (1, vec![0, 1]));
    assert_eq!((asked[1].broker, parts(&asked[1])), (9, vec![2]));
    assert_eq!((asked[0].min_bytes, asked[0].max_wait), (1, Duration::from_millis(500)));
    assert_eq!((asked[0].parts[0].offset, asked[0].parts[0].max_bytes), (7, MIB));
    assert_eq!(asked[0].lane, FetchLane::Main);
}

#[test]
fn an_answer_is_delivered_and_the_next_fetch_goes_out_at_once() {
    let mut bench = Bench::at(config(), 0..1, 0);
    let (token, _) = bench.ask().unwrap();
    let bytes = joined(&[batch(0, 3), batch(3, 2)]);
    bench.answer(token, vec![fetched(0, bytes.clone())]);
    let got = bench.data().unwrap();
    assert_eq!((got.position, got.start, got.next), (100, 0, 5));
    assert_eq!((got.batches.len(), got.bytes, got.high_watermark), (2, bytes.len(), 1000));
    let (_, ask) = bench.ask().unwrap();
    assert_eq!(ask.parts[0].offset, 5);
}

/// tulios/kafkajs#1072: a position counted from the records that are left asks for the same
/// batch for ever.
#[test]
fn what_was_asked_for_another_position_is_dropped() {
    for case in ["revoked", "assigned anew", "sought"] {
        let mut bench = Bench::at(config(), 0..1, 0);
        let (token, _) = bench.ask().unwrap();
        match case {
            "revoked" => bench.fetcher.remove(&part(0)),
            "assigned anew" => {
                bench.fetcher.remove(&part(0));
                bench.fetcher.assign(part(0), 777, bench.now);
                bench.fetcher.place(&part(0), 777, 50, -1);
            }
            _ => bench.fetcher.seek(&part(0), 777, 50),
        }
        bench.answer(token, vec![fetched(0, batch(0, 3))]);
        assert!(bench.data().is_none(), "{case}");
        let next = bench.ask().map(|(_, ask)| ask.parts[0].offset);
        assert_eq!(next, (case != "revoked").then_some(50), "{case}");
    }
}

#[test]
fn a_place_found_for_an_older_position_is_dropped() {
    let mut bench = Bench::at(config(), 0..1, 0);
    bench.fetcher.seek(&part(0), 777, 50);
    bench.fetcher.place(&part(0), 100, 3, -1);
    bench.fetcher.place_start(&part(0), 777, Start::Earliest);
    assert_eq!(bench.ask().unwrap().1.parts[0].offset, 50);
}

#[test]
fn records_that_are_there_do_not_wait_for_a_fetch_the_broker_holds() {
    let mut bench = Bench::at(config(), 0..2, 9);
    let (held, _) = bench.ask().unwrap();
    bench.fetcher.seek(&part(0), 777, 0);
    let (token, ask) = bench.ask().expect("by another connection");
    assert_eq!((ask.lane, ask.max_wait), (FetchLane::Spare, Duration::ZERO));
    assert_eq!(ask.parts.len(), 1);
    bench.answer(token, vec![fetched(0, batch(0, 1))]);
    assert_eq!(bench.data().unwrap().next, 1);
    let (token, ask) = bench.ask().expect("there may be more");
    assert_eq!((ask.lane, ask.parts[0].offset), (FetchLane::Spare, 1));
    bench.answer(token, vec![fetched(0, Bytes::new())]);
    assert!(bench.ask().is_none(), "read up to the end: no busy loop beside the held fetch");
    bench.answer(held, vec![fetched(0, batch(9, 1)), fetched(1, Bytes::new())]);
    assert!(bench.data().is_none(), "asked before the seek");
    let (_, ask) = bench.ask().unwrap();
    assert_eq!((ask.lane, ask.parts.len()), (FetchLane::Main, 2));
}

#[test]
fn a_partition_is_asked_for_again_below_half_its_share() {
    let config = FetchConfig { budget: 4000, partition_bytes: 10_000, ..config() };
    let mut bench = Bench::at(config, 0..2, 0);
    assert_eq!(bench.fetcher.refill_below(), 1000);
    let (token, ask) = bench.ask().unwrap();
    assert_eq!(ask.max_bytes, 2000, "reserved before asking");
    assert!(ask.parts.iter().all(|part| part.max_bytes == 1000));
    let full = joined(&[0, 20, 40, 60, 80].map(|offset| batch(offset, 20)));
    assert!(full.len() > 1000);
    bench.answer(token, vec![fetched(0, full.clone()), fetched(1, Bytes::new())]);
    bench.events();
    let (token, ask) = bench.ask().unwrap();
    assert_eq!(ask.parts.len(), 1, "the full one is left out");
    assert_eq!(ask.parts[0].partition, part(1));
    bench.fetcher.consumed(&part(0), 999, full.len());
    bench.answer(token, vec![fetched(1, Bytes::new())]);
    assert_eq!(bench.ask().unwrap().1.parts.len(), 1, "that was said of another position");
    bench.fetcher.consumed(&part(0), position(0), full.len());
    let (_, ask) = bench.ask().expect("beside the fetch that is held");
    assert_eq!((ask.lane, &ask.parts[0].partition), (FetchLane::Spare, &part(0)));
}

#[test]
fn no_partition_can_take_the_budget_from_the_others() {
    let config = FetchConfig { budget: 10_000, partition_bytes: 5000, ..config() };
    let mut bench = Bench::at(config, 0..5, 0);
    let mut held = 0;
    for round in 0..50 {
        // Partition 4 is drained, the others are never.
        while let Some((token, ask)) = bench.ask() {
            assert!(held + ask.max_bytes <= 10_000, "round {round}: {held} + {}", ask.max_bytes);
            let parts = ask.parts.iter().map(|asked| {
                let one = batch(asked.offset, 60);
                assert!(one.len() <= asked.max_bytes);
                fetched(asked.partition.partition, one)
            });
            let parts = parts.collect();
            bench.answer(token, parts);
            for event in bench.events() {
                let FetchEvent::Data(data) = event else { panic!("{event:?}") };
                if data.partition == part(4) {
                    bench.fetcher.consumed(&part(4), position(4), data.bytes);
                } else {
                    held += data.bytes;
                }
            }
            if ask.parts.iter().all(|asked| asked.partition == part(4)) {
                break;
            }
        }
    }
    let Place::At(offset) = bench.fetcher.parts.get(&part(4)).unwrap().place else {
        panic!("it has a place")
    };
    assert!(offset >= 60 * 40, "it was fetched all along: {offset}");
}

#[test]
fn no_broker_waits_for_more_than_it_is_asked_for() {
    let small = FetchConfig { min_bytes: 5000, partition_bytes: 1000, ..config() };
    let (_, ask) = Bench::at(small, 0..1, 0).ask().unwrap();
    assert_eq!((ask.min_bytes, ask.max_bytes), (1000, 1000));
    let narrow = FetchConfig { min_bytes: 5000, max_bytes: 2000, ..config() };
    let (_, ask) = Bench::at(narrow, 0..4, 0).ask().unwrap();
    assert_eq!((ask.min_bytes, ask.max_bytes), (2000, 2000));
}

#[test]
fn what_is_known_to_be_there_does_not_wait_behind_a_held_fetch() {
    let mut bench = Bench::at(config(), 0..2, 0);
    let (first, _) = bench.ask().unwrap();
    // Read up to their ends.
    bench.answer(first, vec![fetched(0, Bytes::new()), fetched(1, Bytes::new())]);
    bench.fetcher.set_paused(&part(0), true);
    let (_, held) = bench.ask().unwrap();
    assert_eq!(held.parts.len(), 1);
    bench.fetcher.set_paused(&part(0), false);
    let (spare, _) = bench.ask().expect("resumed");
    // 2 of 1000 records.
    bench.answer(spare, vec![fetched(0, batch(0, 2))]);
    let (_, more) = bench.ask().expect("the rest of it");
    assert_eq!((more.lane, more.parts[0].offset), (FetchLane::Spare, 2));
}

#[test]
fn paused_partitions_are_not_fetched_and_go_on_where_they_were() {
    let mut bench = Bench::at(config(), 0..2, 0);
    bench.fetcher.set_paused(&part(0), true);
    let (token, ask) = bench.ask().unwrap();
    assert_eq!(ask.parts.len(), 1);
    assert!(bench.ask().is_none());
    bench.fetcher.set_paused(&part(0), false);
    let (_, spare) = bench.ask().expect("resumed beside the held fetch");
    assert_eq!((spare.lane, spare.parts[0].offset), (FetchLane::Spare, 0));
    bench.fetcher.set_paused(&part(1), true);
    bench.answer(token, vec![fetched(1, batch(0, 2))]);
    assert_eq!(bench.data().unwrap().next, 2, "what was asked before the pause is kept");
}

#[test]
fn each_fetch_error_is_answered_by_its_row_of_the_table() {
    for (code, refresh, told) in [
        (ErrorCode::NOT_LEADER_OR_FOLLOWER, true, false),
        (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, true, false),
        (ErrorCode::UNKNOWN_TOPIC_ID, true, false),
        (ErrorCode::INCONSISTENT_TOPIC_ID, true, false),
        (ErrorCode::REPLICA_NOT_AVAILABLE, true, false),
        (ErrorCode::KAFKA_STORAGE_ERROR, true, false),
        (ErrorCode::FENCED_LEADER_EPOCH, true, false),
        (ErrorCode::OFFSET_NOT_AVAILABLE, true, false),
        (ErrorCode::UNKNOWN_LEADER_EPOCH, false, false),
        (ErrorCode::UNKNOWN_SERVER_ERROR, false, false),
        (ErrorCode::TOPIC_AUTHORIZATION_FAILED, false, true),
        (ErrorCode::CORRUPT_MESSAGE, false, true),
        (ErrorCode::INVALID_FETCH_SIZE, false, true),
    ] {
        let mut bench = Bench::at(config(), 0..1, 4);
        let (token, _) = bench.ask().unwrap();
        bench.answer(token, vec![failed(0, code)]);
        let events = bench.events();
        let refreshed = events.iter().any(|event| matches!(event, FetchEvent::Refresh));
        let faults = events.iter().any(|event| matches!(event, FetchEvent::Fault { .. }));
        assert_eq!((refreshed, faults), (refresh, told), "{code}");
        assert!(bench.ask().is_none(), "{code}: not in a loop");
        assert!(bench.fetcher.poll_timeout(bench.now).is_some());
        bench.now += Duration::from_millis(150);
        assert_eq!(bench.ask().unwrap().1.parts[0].offset, 4, "{code}: the position stays");
    }
}

#[test]
fn an_offset_out_of_range_waits_for_a_new_place() {
    let mut bench = Bench::at(config(), 0..1, 4);
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, vec![failed(0, ErrorCode::OFFSET_OUT_OF_RANGE)]);
    let events = bench.events();
    assert!(matches!(events[..], [FetchEvent::OutOfRange { position: 100, offset: 4, .. }]));
    bench.now += Duration::from_secs(10);
    assert!(bench.ask().is_none());
    bench.fetcher.seek_start(&part(0), 777, Start::Earliest);
    let (cluster, now) = (&bench.cluster, bench.now);
    let (token, ask) = bench.fetcher.poll_starts(cluster, &mut bench.tokens, now).unwrap();
    assert_eq!((ask.broker, ask.parts[0].2.timestamp()), (1, -2));
    let parts = vec![start_at(0, 30, ErrorCode::NONE)];
    bench.fetcher.handle_starts(token, Ok(StartAnswer { parts }), now);
    let events = bench.events();
    assert!(matches!(events[..], [FetchEvent::Started { position: 777, offset: 30, .. }]));
    assert_eq!(bench.ask().unwrap().1.parts[0].offset, 30);
}

#[test]
fn starts_are_asked_of_each_leader_and_again_after_a_fault() {
    let mut bench = Bench::new(config());
    for (index, node) in [(0, 1), (1, 2)] {
        bench.cluster.0.insert(index, node);
        bench.fetcher.assign(part(index), position(index), bench.now);
        bench.fetcher.place_start(&part(index), position(index), Start::Time(77));
    }
    let starts =
        |bench: &mut Bench| bench.fetcher.poll_starts(&bench.cluster, &mut bench.tokens, bench.now);
    let (first, ask) = starts(&mut bench).unwrap();
    let (second, _) = starts(&mut bench).unwrap();
    assert!(starts(&mut bench).is_none());
    assert_eq!((ask.broker, ask.parts[0].2), (1, Start::Time(77)));
    let gone = Error::new(ErrorKind::Disconnected, "the connection was lost");
    bench.fetcher.handle_starts(first, Err(gone), bench.now);
    let parts = vec![start_at(1, -1, ErrorCode::NONE)];
    bench.fetcher.handle_starts(second, Ok(StartAnswer { parts }), bench.now);
    let (_, ask) = starts(&mut bench).expect("nothing is that young: its end instead");
    assert_eq!((ask.broker, ask.parts[0].2), (2, Start::Latest));
    assert!(starts(&mut bench).is_none());
    bench.now += Duration::from_millis(150);
    let (token, ask) = starts(&mut bench).unwrap();
    assert_eq!(ask.broker, 1);
    let parts = vec![start_at(0, -1, ErrorCode::TOPIC_AUTHORIZATION_FAILED)];
    bench.events();
    bench.fetcher.handle_starts(token, Ok(StartAnswer { parts }), bench.now);
    assert!(matches!(bench.events()[..], [FetchEvent::Fault { fault: FetchFault::Code(_), .. }]));
}

#[test]
fn a_broker_out_of_reach_is_left_alone_for_growing_pauses() {
    let mut bench = Bench::at(config(), 0..1, 4);
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let (token, _) = bench.ask().unwrap();
        let gone = Error::new(ErrorKind::Disconnected, "the connection was lost");
        bench.fetcher.handle_fetch(token, Err(gone), bench.now);
        assert!(matches!(bench.events()[..], [FetchEvent::Refresh]));
        assert!(bench.ask().is_none());
        let until = bench.fetcher.poll_timeout(bench.now).unwrap();
        pauses.push(until - bench.now);
        bench.now = until;
    }
    assert!(pauses[4] > pauses[0] * 4, "{pauses:?}");
    bench.cluster.0.insert(0, 2);
    let (_, ask) = bench.ask().unwrap();
    assert_eq!((ask.broker, ask.parts[0].offset), (2, 4), "its leader is another now");
}

#[test]
fn a_partition_without_a_leader_asks_for_metadata_with_pauses() {
    let mut bench = Bench::at(config(), 0..1, 4);
    bench.cluster.0.clear();
    assert!(bench.ask().is_none());
    assert!(matches!(bench.events()[..], [FetchEvent::Refresh]));
    assert!(bench.ask().is_none());
    assert!(bench.events().is_empty());
    bench.cluster.0.insert(0, 3);
    bench.now = bench.fetcher.poll_timeout(bench.now).unwrap();
    assert_eq!(bench.ask().unwrap().1.broker, 3);
}

/// SOHU-Co/kafka-node#1419: a client that does not wait burns its processor and the broker's.
#[test]
fn a_broker_that_throttles_is_left_alone_for_so_long() {
    let mut bench = Bench::at(config(), 0..2, 0);
    let (token, _) = bench.ask().unwrap();
    let throttle = Duration::from_secs(1);
    let parts = vec![fetched(0, batch(0, 3)), fetched(1, Bytes::new())];
    let answer = FetchAnswer { error: ErrorCode::NONE, throttle, session: 0, parts };
    bench.fetcher.handle_fetch(token, Ok(answer), bench.now);
    assert_eq!(bench.data().unwrap().next, 3, "what came with it is delivered");
    bench.fetcher.seek(&part(1), 777, 5);
    assert!(bench.ask().is_none());
    assert_eq!(bench.fetcher.poll_timeout(bench.now), Some(bench.now + throttle));
    bench.now += throttle;
    assert_eq!(bench.ask().unwrap().1.parts.len(), 2);
}

#[test]
fn partitions_take_turns_at_the_front() {
    let mut bench = Bench::at(config(), 0..3, 0);
    let mut firsts = Vec::new();
    for _ in 0..3 {
        let (token, ask) = bench.ask().unwrap();
        firsts.push(ask.parts[0].partition.partition);
        bench.answer(token, (0..3).map(|index| fetched(index, Bytes::new())).collect());
    }
    firsts.sort_unstable();
    assert_eq!(firsts, [0, 1, 2]);
}
