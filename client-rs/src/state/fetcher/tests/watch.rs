//! Partitions that got stuck (sarama#2219, franz-go#516).

use super::*;

fn restarts(bench: &mut Bench) -> Vec<String> {
    bench.fetcher.handle_timeout(&bench.cluster, bench.now);
    let events = bench.events().into_iter().filter_map(|event| match event {
        FetchEvent::Restarted { reason, .. } => Some(reason),
        _ => None,
    });
    events.collect()
}

#[test]
fn a_partition_without_an_answer_for_half_a_minute_is_begun_anew_and_the_reason_told() {
    let mut bench = Bench::at(config(), 0..1, 4);
    let (lost, _) = bench.ask().unwrap();
    bench.now += Duration::from_secs(29);
    assert_eq!(restarts(&mut bench), Vec::<String>::new());
    bench.now = bench.fetcher.poll_timeout(bench.now).expect("it looks by itself");
    assert_eq!(restarts(&mut bench), ["broker 1 was asked for its records, and has not answered"]);
    let (token, ask) = bench.ask().expect("beside the one that is lost");
    assert_eq!((ask.lane, ask.parts[0].offset), (FetchLane::Spare, 4));
    bench.answer(token, vec![fetched(0, batch(4, 1))]);
    assert_eq!(bench.data().unwrap().next, 5);
    bench.answer(lost, vec![fetched(0, batch(4, 1))]);
    assert!(bench.data().is_none(), "its answer counts no more");
}

#[test]
fn the_reason_names_a_missing_leader_and_an_error_that_came_again_and_again() {
    let mut bench = Bench::at(config(), 0..1, 4);
    bench.cluster.0.clear();
    for _ in 0..40 {
        assert!(bench.ask().is_none());
        bench.now += Duration::from_secs(1);
    }
    assert_eq!(restarts(&mut bench), ["the cluster names no leader for it"]);
    bench.cluster.0.insert(0, 1);
    bench.fetcher.seek_start(&part(0), 777, Start::Earliest);
    for _ in 0..40 {
        let ask = bench.fetcher.poll_starts(&bench.cluster, &mut bench.tokens, bench.now);
        if let Some((token, _)) = ask {
            let gone = Error::new(ErrorKind::Disconnected, "the connection was lost");
            bench.fetcher.handle_starts(token, Err(gone), bench.now);
        }
        bench.now += Duration::from_secs(1);
    }
    assert_eq!(restarts(&mut bench), ["broker 1 could not be asked where to begin"]);
    let (token, _) = loop {
        match bench.fetcher.poll_starts(&bench.cluster, &mut bench.tokens, bench.now) {
            Some(asked) => break asked,
            None => bench.now = bench.fetcher.poll_timeout(bench.now).unwrap(),
        }
    };
    let parts = vec![start_at(0, 3, ErrorCode::NONE)];
    bench.fetcher.handle_starts(token, Ok(StartAnswer { parts }), bench.now);
    for _ in 0..40 {
        if let Some((token, _)) = bench.ask() {
            bench.answer(token, vec![failed(0, ErrorCode::KAFKA_STORAGE_ERROR)]);
        }
        bench.now += Duration::from_secs(1);
    }
    let told = restarts(&mut bench);
    let reason = "broker 1 was asked for its records, and last answered KAFKA_STORAGE_ERROR";
    assert!(told.len() == 1 && told[0].starts_with(reason), "{told:?}");
}

#[test]
fn who_needs_nothing_is_not_stuck() {
    for case in ["paused", "read up to the end", "full", "not placed"] {
        let config = FetchConfig { budget: 2_000, max_bytes: 2_000, ..config() };
        let mut bench = Bench::at(config, 0..1, 0);
        let (token, _) = bench.ask().unwrap();
        match case {
            "paused" => {
                bench.fetcher.set_paused(&part(0), true);
                bench.answer(token, vec![fetched(0, batch(0, 1))]);
            }
            "full" => bench.answer(token, vec![fetched(0, batch(0, 150))]),
            "read up to the end" => {
                let end = FetchedPart { high_watermark: 1, ..fetched(0, batch(0, 1)) };
                bench.answer(token, vec![end]);
            }
            _ => bench.fetcher.unplace(&part(0), 777),
        }
        bench.events();
        for _ in 0..10 {
            bench.now += Duration::from_secs(31);
            assert_eq!(restarts(&mut bench), Vec::<String>::new(), "{case}");
        }
    }
}
