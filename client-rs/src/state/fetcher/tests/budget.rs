//! The budget holds to the byte.

use super::*;

/// A broker that keeps to what it is asked for, but for the first batch, which always comes whole
/// (KIP-74); its partitions have batches of these sizes for ever.
fn serve(
    ask: &FetchAsk,
    full: &[FetchPart],
    sizes: &[usize],
    rounds: &mut usize,
) -> Vec<FetchedPart> {
    let mut left = ask.max_bytes;
    let mut answer = Vec::new();
    for asked in full {
        let index = asked.partition.partition;
        let mut records = Vec::new();
        let (mut offset, mut part_left) = (asked.offset, asked.max_bytes);
        loop {
            let size = sizes[*rounds % sizes.len()];
            let one = sized(offset, size);
            let first = answer.iter().all(|part: &FetchedPart| part.records.is_empty())
                && records.is_empty();
            if one.len() > left.min(part_left) && !first {
                break;
            }
            *rounds += 1;
            left = left.saturating_sub(one.len());
            part_left = part_left.saturating_sub(one.len());
            records.extend_from_slice(&one);
            offset += 1;
        }
        answer.push(fetched(index, records));
    }
    answer
}

/// A batch of one record, of about that many bytes.
fn sized(base_offset: i64, bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::default();
    let value = vec![b'x'; bytes];
    builder.push(1, None, Some(&value), NO_HEADERS).unwrap();
    builder.finish(&BatchSeal { base_offset, ..BatchSeal::default() }).unwrap()
}

/// kafka clients' old complaint (librdkafka#1914, #2076, #5140): memory over its limit.
#[test]
fn a_thousand_partitions_and_a_slow_reader_stay_within_the_budget_to_the_byte() {
    let budget = MIB;
    let config = FetchConfig { budget, max_bytes: MIB / 4, partition_bytes: MIB / 8, ..config() };
    let mut bench = Bench::at(config, 0..1000, 0);
    for index in 0..1000 {
        bench.cluster.0.insert(index, 1 + index % 3);
    }
    // From batches far below a partition's share to some of a third of the whole budget.
    let sizes = [300, 700, 2_000, 90, 40_000, 150, 350_000, 500];
    let mut rounds = 0;
    let mut waiting: VecDeque<(TopicPartition, u64, usize)> = VecDeque::new();
    let mut delivered: BTreeMap<i32, i64> = BTreeMap::new();
    let (mut bytes, mut most) = (0, 0);
    for turn in 0..800 {
        let mut open = Vec::new();
        while let Some((token, ask)) = bench.ask() {
            let held: usize = waiting.iter().map(|(.., bytes)| bytes).sum();
            assert_eq!(held, bench.fetcher.buffered);
            let promised = held + bench.fetcher.reserved;
            assert!(promised <= budget, "turn {turn}: {promised}");
            most = most.max(promised);
            open.push((token, ask));
        }
        for (token, ask) in open {
            let parts = ask.parts.clone();
            let answer = serve(&ask, &parts, &sizes, &mut rounds);
            bench.answer(token, answer);
            for event in bench.events() {
                let FetchEvent::Data(data) = event else { continue };
                let next = delivered.entry(data.partition.partition).or_insert(0);
                assert_eq!(data.start, *next, "no record is left out");
                *next = data.next;
                waiting.push_back((data.partition, data.position, data.bytes));
            }
            let held: usize = waiting.iter().map(|(.., bytes)| bytes).sum();
            assert!(held <= budget, "turn {turn}: {held}");
        }
        // A reader that takes a little at a time.
        for _ in 0..turn % 14 {
            if let Some((partition, position, taken)) = waiting.pop_front() {
                bench.fetcher.consumed(&partition, position, taken);
                bytes += taken;
            }
        }
        bench.now += Duration::from_millis(10);
    }
    assert!(most > budget / 2, "the budget is used: {most}");
    assert!(bytes > 5 * budget, "reading goes on: {bytes}");
    assert_eq!(delivered.len(), 1000, "no partition starves");
}

#[test]
fn a_batch_that_finds_no_room_waits_for_it_before_all_others() {
    let config = FetchConfig { budget: 10_000, max_bytes: 10_000, ..config() };
    let mut bench = Bench::at(config, 0..2, 0);
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, vec![fetched(0, sized(0, 6_000)), fetched(1, sized(0, 7_000))]);
    let first = bench.data().unwrap();
    assert_eq!(first.partition, part(0));
    let Place::At(offset) = bench.fetcher.parts.get(&part(1)).unwrap().place else {
        panic!("it has a place")
    };
    assert_eq!((offset, bench.fetcher.buffered), (0, first.bytes), "it found no room");
    assert!(bench.ask().is_none(), "not before there is");
    bench.fetcher.consumed(&part(0), first.position, first.bytes);
    let (token, ask) = bench.ask().unwrap();
    assert_eq!(ask.parts.len(), 1);
    assert_eq!((&ask.parts[0].partition, ask.parts[0].offset), (&part(1), 0));
    assert!(ask.max_bytes >= 7_000 && ask.parts[0].max_bytes >= 7_000);
    bench.answer(token, vec![fetched(1, sized(0, 7_000))]);
    assert_eq!(bench.data().unwrap().next, 1);
}

#[test]
fn a_batch_larger_than_the_whole_budget_comes_alone() {
    let config = FetchConfig { budget: 5_000, max_bytes: 5_000, ..config() };
    let mut bench = Bench::at(config, 0..2, 0);
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, vec![fetched(0, sized(0, 500)), fetched(1, sized(0, 20_000))]);
    let small = bench.data().unwrap();
    assert_eq!(small.partition, part(0));
    assert!(bench.ask().is_none());
    bench.fetcher.consumed(&part(0), small.position, small.bytes);
    let (token, ask) = bench.ask().unwrap();
    assert_eq!((ask.parts.len(), &ask.parts[0].partition), (1, &part(1)));
    bench.answer(token, vec![fetched(1, sized(0, 20_000))]);
    let large = bench.data().expect("else it would never be read");
    assert!(bench.ask().is_none(), "and nothing beside it");
    bench.fetcher.consumed(&part(1), large.position, large.bytes);
    assert_eq!(bench.ask().unwrap().1.parts.len(), 2);
}

#[test]
fn room_that_paused_partitions_hold_is_not_waited_for() {
    let config = FetchConfig { budget: 10_000, max_bytes: 10_000, ..config() };
    let mut bench = Bench::at(config, 0..2, 0);
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, vec![fetched(0, sized(0, 6_000)), fetched(1, sized(0, 7_000))]);
    bench.events();
    assert!(bench.ask().is_none());
    assert_eq!(
        bench.fetcher.crowder(&bench.cluster, bench.now),
        None,
        "the application will take it"
    );
    bench.fetcher.set_paused(&part(0), true);
    assert!(bench.ask().is_none());
    let crowder = bench.fetcher.crowder(&bench.cluster, bench.now);
    assert_eq!(crowder, Some((part(0), position(0))), "it might be paused for ever");
    let held = bench.fetcher.buffered;
    bench.fetcher.rewind(&part(0), position(0), (0, held));
    assert_eq!(bench.fetcher.crowder(&bench.cluster, bench.now), None);
    let (token, ask) = bench.ask().unwrap();
    assert_eq!(ask.parts[0].partition, part(1));
    bench.answer(token, vec![fetched(1, sized(0, 7_000))]);
    let data = bench.data().unwrap();
    assert!(data.next == 1 && bench.fetcher.buffered <= 10_000);
    bench.fetcher.consumed(&part(1), data.position, data.bytes);
    bench.fetcher.set_paused(&part(0), false);
    let (_, ask) = bench.ask().unwrap();
    let again = ask.parts.iter().find(|asked| asked.partition == part(0)).unwrap();
    assert_eq!(again.offset, 0, "what was given up is read again");
}

/// Also of one who is not starved, but finds too little room for a question.
#[test]
fn paused_partitions_that_hold_most_of_the_budget_give_it_up_for_the_others() {
    let config = FetchConfig { budget: 10_000, max_bytes: 10_000, ..config() };
    let mut bench = Bench::at(config, 0..2, 0);
    let (token, _) = bench.ask().unwrap();
    bench.answer(token, vec![fetched(0, sized(0, 9_000))]);
    bench.events();
    bench.fetcher.set_paused(&part(0), true);
    bench.now += Duration::from_secs(1);
    assert!(bench.ask().is_none());
    let held = bench.fetcher.buffered;
    let crowder =
        bench.fetcher.crowder(&bench.cluster, bench.now).expect("else partition 1 is never read");
    bench.fetcher.rewind(&crowder.0, crowder.1, (0, held));
    assert_eq!(bench.ask().unwrap().1.parts[0].partition, part(1));
}

#[test]
fn an_answer_that_is_more_than_was_asked_for_is_taken_up_to_the_budget() {
    let config = FetchConfig { budget: 5_000, max_bytes: 5_000, ..config() };
    let mut bench = Bench::at(config, 0..1, 0);
    let (token, _) = bench.ask().unwrap();
    let larger: Vec<u8> = (0..3).flat_map(|at| sized(at, 20_000)).collect();
    bench.answer(token, vec![fetched(0, larger)]);
    let first = bench.data().expect("the first batch, however large");
    assert_eq!(first.next, 1, "and none behind it");
    bench.fetcher.consumed(&part(0), first.position, first.bytes);
    let (token, _) = bench.ask().unwrap();
    let small: Vec<u8> = (1..9).flat_map(|at| sized(at, 1_000)).collect();
    bench.answer(token, vec![fetched(0, small)]);
    let some = bench.data().unwrap();
    assert!(some.bytes <= 5_000 && some.next == 5, "{} bytes to {}", some.bytes, some.next);
}

#[test]
fn a_held_fetch_leaves_room_for_what_another_partition_is_known_to_have() {
    let config = FetchConfig { budget: 4000, ..config() };
    let mut bench = Bench::at(config, 0..4, 0);
    let mut next = 0;
    for bytes in [1900, 600] {
        let (token, _) = bench.ask().unwrap();
        let rest = (1..4).map(|index| fetched(index, Bytes::new()));
        let parts = [fetched(0, sized(next, bytes))].into_iter().chain(rest);
        bench.answer(token, parts.collect());
        next += 1;
        if bytes == 1900 {
            let given = bench.data().unwrap().bytes;
            bench.fetcher.consumed(&part(0), position(0), given);
        }
    }
    let given = bench.data().unwrap().bytes;
    let (_, held) = bench.ask().unwrap();
    assert_eq!((held.lane, held.parts.len()), (FetchLane::Main, 3), "all but the one that waits");
    bench.fetcher.consumed(&part(0), position(0), given);
    let (_, more) = bench.ask().expect("the rest of it");
    assert_eq!((more.lane, more.parts[0].offset), (FetchLane::Spare, next));
}
