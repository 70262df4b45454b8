//! A turn costs as much as there are partitions with news; and what is noted of them is true.

use std::collections::{BTreeMap, BTreeSet};

use super::parts::Asked;
use super::*;
use crate::state::backoff::Random;

const ID: Uuid = Uuid([7; 16]);

/// All that a consumer asks its fetcher at a turn: the fetches that go out.
fn turn(bench: &mut Bench) -> Vec<(Token, FetchAsk)> {
    bench.fetcher.handle_timeout(&bench.cluster, bench.now);
    bench.fetcher.poll_checks(&bench.cluster, &mut bench.tokens, bench.now);
    bench.fetcher.poll_starts(&bench.cluster, &mut bench.tokens, bench.now);
    let asks = std::iter::from_fn(|| bench.ask()).collect();
    bench.fetcher.poll_timeout(bench.now);
    asks
}

#[test]
fn a_turn_looks_at_the_partitions_with_news_alone() {
    let config = FetchConfig { max_bytes: 64 * MIB, ..config() };
    let mut bench = Bench::at(config, 0..2000, 0);
    bench.cluster.2 = ID;
    let mut asks = turn(&mut bench);
    let (token, ask) = asks.pop().unwrap();
    assert_eq!((asks.len(), ask.parts.len()), (0, 2000));
    let at_end = |index| FetchedPart { high_watermark: 0, ..fetched(index, Bytes::new()) };
    bench.answer_in(77, token, (0..2000).map(at_end).collect());
    let (token, _) = turn(&mut bench).pop().unwrap();

    bench.fetcher.parts.looks.set(0);
    let one = FetchedPart { high_watermark: 3, ..fetched(1234, batch(0, 3)) };
    bench.answer_in(77, token, vec![one]);
    let data = bench.data().unwrap();
    let (token, ask) = turn(&mut bench).pop().expect("the next fetch goes out at once");
    bench.fetcher.consumed(&data.partition, data.position, data.bytes);
    assert!(turn(&mut bench).is_empty());
    let looks = bench.fetcher.parts.looks.replace(0);
    assert!(looks < 40, "one of 2,000 partitions has records: {looks} looks");
    assert_eq!((ask.parts.len(), ask.parts[0].offset), (1, 3));
    assert!(ask.max_bytes > 16 * MIB, "of all partitions together: {}", ask.max_bytes);

    bench.answer_in(77, token, Vec::new());
    let (_, ask) = turn(&mut bench).pop().expect("what stands is asked for again");
    assert_eq!((ask.parts.len(), ask.session.epoch), (0, 3));
    let looks = bench.fetcher.parts.looks.get();
    assert!(looks < 10, "no partition has news: {looks} looks");
}

#[test]
fn a_thousand_partitions_that_wait_for_a_leader_are_left_alone_meanwhile() {
    let mut bench = Bench::at(config(), 0..1000, 0);
    bench.cluster.0.retain(|&index, _| index == 0);
    turn(&mut bench);
    bench.events();
    bench.fetcher.parts.looks.set(0);
    assert!(turn(&mut bench).is_empty());
    assert!(bench.events().is_empty());
    assert_eq!(bench.fetcher.parts.looks.get(), 0);
}

#[test]
fn a_batch_that_waits_for_room_holds_up_nobody_once_its_broker_fails() {
    let config = FetchConfig { budget: 10_000, max_bytes: 10_000, ..config() };
    let mut bench = Bench::at(config, 0..3, 0);
    bench.cluster.0.insert(2, 9);
    let mut asks = turn(&mut bench);
    asks.sort_by_key(|(_, ask)| ask.broker);
    let [(first, _), (other, _)] = asks.try_into().unwrap();
    bench.answer(other, vec![fetched(2, Bytes::new())]);
    let large = sealed(0, 500, BatchSeal::default());
    assert!((6000..10_000).contains(&large.len()), "{}", large.len());
    bench.answer(first, vec![fetched(0, large.clone()), fetched(1, large)]);
    let given = bench.data().unwrap();
    assert_eq!((given.partition.partition, turn(&mut bench).len()), (0, 0), "1 waits, and all");
    bench.fetcher.consumed(&given.partition, given.position, given.bytes);
    let (token, ask) = turn(&mut bench).pop().unwrap();
    assert_eq!((ask.parts.len(), &ask.parts[0].partition), (1, &part(1)));
    let gone = Error::new(ErrorKind::Disconnected, "the connection was lost");
    bench.fetcher.handle_fetch(token, Err(gone), bench.now);
    let asked: Vec<i32> = turn(&mut bench).iter().map(|(_, ask)| ask.broker).collect();
    assert_eq!(asked, [9]);
}

/// What a broker keeps of a session, and the fetches that it has not answered.
#[derive(Default)]
struct Broker {
    id: i32,
    kept: BTreeMap<TopicPartition, i64>,
    main: Option<(Token, FetchAsk)>,
    spare: Option<(Token, FetchAsk)>,
}

impl Broker {
    fn take(&mut self, token: Token, ask: FetchAsk) {
        if ask.lane == FetchLane::Spare {
            assert!(self.spare.replace((token, ask)).is_none());
            return;
        }
        if ask.session.epoch == 0 {
            self.kept.clear();
            assert!(ask.session.forgotten.is_empty());
        }
        for part in &ask.parts {
            self.kept.insert(part.partition.clone(), part.offset);
        }
        for (partition, _) in &ask.session.forgotten {
            assert!(self.kept.remove(partition).is_some(), "{partition} was never told");
        }
        assert!(self.main.replace((token, ask)).is_none());
    }

    fn answer(&mut self, random: &mut Random, spare: bool) -> Option<(Token, Option<FetchAnswer>)> {
        let (token, ask) = if spare { self.spare.take()? } else { self.main.take()? };
        if random.below(12) == 0 {
            return Some((token, None));
        }
        let named = ask.parts.iter().map(|part| (part.partition.clone(), part.offset)).collect();
        let all: BTreeMap<_, _> = if spare { named } else { self.kept.clone() };
        let full = ask.session.epoch <= 0;
        if full && !spare {
            self.id = i32::try_from(random.below(3) * 7).unwrap();
        }
        let mut parts = Vec::new();
        for (partition, offset) in all {
            let records = match random.below(if full { 4 } else { 8 }) {
                0 => batch(offset, 3),
                1 => batch(offset, 60),
                2 | 3 => Bytes::new(),
                _ => continue,
            };
            let error = match random.below(30) {
                0 => ErrorCode::NOT_LEADER_OR_FOLLOWER,
                1 => ErrorCode::OFFSET_OUT_OF_RANGE,
                _ => ErrorCode::NONE,
            };
            let replica = (random.below(40) == 0).then_some(2);
            let records = if error.is_error() { Bytes::new() } else { records };
            let high_watermark = offset + i64::try_from(random.below(100)).unwrap();
            let index = partition.partition;
            parts.push(FetchedPart { error, high_watermark, replica, ..fetched(index, records) });
        }
        let (error, throttle) = (ErrorCode::NONE, Duration::ZERO);
        let session = if spare { 0 } else { self.id };
        Some((token, Some(FetchAnswer { error, throttle, session, parts })))
    }
}

/// Whether all that is noted of partitions is as if all were looked at.
fn check(bench: &Bench, brokers: &BTreeMap<i32, Broker>) {
    let fetcher = &bench.fetcher;
    let all: Vec<_> = fetcher.parts.iter().collect();
    let count = |is: &dyn Fn(&Part) -> bool| all.iter().filter(|(_, part)| is(part)).count();
    assert_eq!(fetcher.desk.holding, count(&|part| !part.paused && part.buffered > 0));
    let more = |part: &Part| part.urgent && part.asked.is_none() && !part.paused;
    assert_eq!(fetcher.desk.more, count(&more));
    let seeking = |part: &Part| matches!(part.place, Place::Seeking { asked: None, .. });
    let seeking = count(&|part| seeking(part) && part.retry_at.is_none());
    assert_eq!(fetcher.desk.seeking.len(), seeking);
    assert_eq!(fetcher.buffered, all.iter().map(|(_, part)| part.buffered).sum::<usize>());
    for (&node, lanes) in &fetcher.lanes {
        assert_eq!(lanes.standing, count(&|part| part.asked == Some(Asked::Main(node))));
        let ready: BTreeSet<_> = lanes.ready.union(&lanes.urgent).cloned().collect();
        assert_eq!(ready.len(), lanes.ready.len() + lanes.urgent.len());
        assert_eq!(ready.len(), count(&|part| part.filed.ready_at == Some(node)));
        let Some(broker) = brokers.get(&node) else { continue };
        for (partition, &offset) in &broker.kept {
            let part = fetcher.parts.get(partition);
            let stands = part.is_some_and(|part| part.asked == Some(Asked::Main(node)));
            assert!(
                stands || lanes.review.contains(partition),
                "{partition} is fetched for nobody"
            );
            if let Some(part) = part.filter(|_| stands) {
                assert!(matches!(part.place, Place::At(at) if at == offset), "{part:?}");
            }
        }
        let stand = all.iter().filter(|(_, part)| part.asked == Some(Asked::Main(node)));
        for (partition, _) in stand {
            assert!(broker.kept.contains_key(partition), "{partition} is not fetched");
        }
    }
    let stuck = all
        .iter()
        .filter(|(_, part)| part.asked.is_none() && part.wanted(fetcher.refill_below()).is_some());
    for (partition, part) in stuck {
        let Some(lanes) = part.filed.ready_at.and_then(|node| fetcher.lanes.get(&node)) else {
            panic!("{partition} is wanted, and nobody knows: {part:?}");
        };
        let waits = lanes.main.is_some() && (!part.urgent || lanes.spare.is_some());
        let mute = lanes.retry_at.is_some_and(|at| at > bench.now);
        let full = fetcher.starved.is_some() || fetcher.free() < fetcher.terms.1;
        let full = full || fetcher.free() < fetcher.config.budget / 2;
        assert!(waits || mute || full, "{partition} could be asked for: {part:?} {lanes:?}");
    }
}

#[test]
fn whatever_happens_each_broker_is_asked_for_what_is_wanted_of_it() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let config = FetchConfig { budget: 40_000, partition_bytes: 4_000, ..config() };
        let mut bench = Bench::at(config, 0..12, 0);
        bench.cluster.2 = ID;
        let mut brokers: BTreeMap<i32, Broker> = BTreeMap::new();
        let mut held: Vec<Fetched> = Vec::new();
        let mut ids = 1000;
        for _ in 0..300 {
            let index = i32::try_from(random.below(12)).unwrap();
            let at = i64::try_from(random.below(50)).unwrap();
            ids += 1;
            match random.below(14) {
                0 => bench.fetcher.seek(&part(index), ids, at),
                1 => bench.fetcher.seek_start(&part(index), ids, Start::Earliest),
                2 => bench.fetcher.set_paused(&part(index), true),
                3 | 4 => bench.fetcher.set_paused(&part(index), false),
                5 => bench.fetcher.remove(&part(index)),
                6 | 7 => {
                    if bench.fetcher.parts.get(&part(index)).is_none() {
                        bench.fetcher.assign(part(index), ids, bench.now);
                        bench.fetcher.place(&part(index), ids, at, -1);
                    }
                }
                8 => {
                    let node = 1 + i32::try_from(random.below(3)).unwrap();
                    bench.cluster.0.insert(index, node);
                    bench.cluster.1 += i32::try_from(random.below(2)).unwrap();
                }
                9 => bench.now += Duration::from_millis(50 << random.below(10)),
                10 => {
                    if !held.is_empty() {
                        let data = held.swap_remove(random.below(held.len()));
                        bench.fetcher.consumed(&data.partition, data.position, data.bytes);
                    }
                }
                choice => {
                    let nodes = brokers.len().max(1);
                    let broker = brokers.values_mut().nth(random.below(nodes));
                    let answer = broker.and_then(|it| it.answer(&mut random, choice == 11));
                    if let Some((token, answer)) = answer {
                        let gone = || Error::new(ErrorKind::Disconnected, "lost");
                        let answer = answer.ok_or_else(gone);
                        bench.fetcher.handle_fetch(token, answer, bench.now);
                    }
                }
            }
            for (token, ask) in turn_of(&mut bench) {
                brokers.entry(ask.broker).or_default().take(token, ask);
            }
            for event in bench.events() {
                match event {
                    FetchEvent::Data(data) => held.push(data),
                    FetchEvent::OutOfRange { partition, .. } => {
                        ids += 1;
                        bench.fetcher.seek(&partition, ids, 0);
                    }
                    _ => {}
                }
            }
            for (token, ask) in turn_of(&mut bench) {
                brokers.entry(ask.broker).or_default().take(token, ask);
            }
            check(&bench, &brokers);
        }
    }
}

/// A turn whose questions after starts and epochs are answered at once.
fn turn_of(bench: &mut Bench) -> Vec<(Token, FetchAsk)> {
    bench.fetcher.handle_timeout(&bench.cluster, bench.now);
    let now = bench.now;
    let mut asks = Vec::new();
    loop {
        asks.extend(std::iter::from_fn(|| bench.ask()));
        let check = bench.fetcher.poll_checks(&bench.cluster, &mut bench.tokens, now);
        let start = bench.fetcher.poll_starts(&bench.cluster, &mut bench.tokens, now);
        if check.is_none() && start.is_none() {
            return asks;
        }
        if let Some((token, ask)) = check {
            let found = ask.parts.into_iter().map(|(partition, ..)| EpochFound {
                partition,
                error: ErrorCode::NONE,
                epoch: -1,
                end: -1,
            });
            let answer = EpochAnswer { parts: found.collect() };
            bench.fetcher.handle_checks(token, Ok(answer), now);
        }
        if let Some((token, ask)) = start {
            let found = ask.parts.into_iter();
            let found = found.map(|(at, ..)| start_at(at.partition, 0, ErrorCode::NONE));
            let answer = StartAnswer { parts: found.collect() };
            bench.fetcher.handle_starts(token, Ok(answer), now);
        }
    }
}
