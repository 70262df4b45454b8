//! What a consumer counts, held against what it was made to do.

use std::time::Duration;

use super::script::{Script, part};
use crate::consumer::stats::ConsumerStats;

/// A member that has read 10 of 30 records, batches of 10.
fn reading() -> Script {
    let mut script = Script::new(&[]);
    for _ in 0..3 {
        script.append(0, 10);
    }
    script.subscribe();
    assert_eq!(script.offsets(1000), (0..10).collect::<Vec<_>>());
    script
}

fn stats(script: &Script) -> ConsumerStats {
    script.face.stats()
}

#[test]
fn what_is_read_and_how_far_is_counted() {
    let mut script = reading();
    let stand = stats(&script);
    assert_eq!((stand.records, stand.lag, stand.lag_unknown), (10, 20, 0));
    assert_eq!((stand.joins, stand.rebalances, stand.starts), (1, 1, 1));
    assert_eq!(stand.buffered_max, 64 * 1024 * 1024);
    while !script.offsets(1000).is_empty() {}
    script.release_held();
    let stand = stats(&script);
    assert_eq!((stand.records, stand.lag, stand.buffered), (30, 0, 0));
    let stored: usize = script.logs[&0].iter().map(|(.., bytes)| bytes.len()).sum();
    assert_eq!(stand.bytes, u64::try_from(stored).unwrap());
    // One for each batch, and the one that was held.
    assert_eq!((stand.fetches, stand.empty_fetches), (4, 1));
    assert_eq!((stand.heartbeats, stand.commits, stand.dropped_records), (0, 0, 0));
    script.pass(Duration::from_secs(9));
    let stand = stats(&script);
    assert_eq!((stand.heartbeats, stand.commits, stand.commits_failed), (3, 1, 0));
}

#[test]
fn a_commit_that_is_refused_and_records_of_a_lost_partition_are_counted() {
    let mut script = reading();
    let batch = script.take(4).unwrap();
    script.forgotten = true;
    script.commit(&batch);
    let stand = stats(&script);
    assert_eq!((stand.commits, stand.commits_failed), (0, 1));
    // The group knows the member no more, so what it read ahead is another's.
    script.pass(Duration::from_secs(4));
    assert_eq!(stats(&script).dropped_records, 16);
    assert_eq!(stats(&script).joins, 2);
}

#[test]
fn records_that_come_for_a_place_left_meanwhile_are_counted_as_dropped() {
    let mut script = Script::reading(&[]);
    // The broker holds a fetch at 0 while the application goes elsewhere.
    script.append(0, 10);
    script.face.seek(&part(0), 7).unwrap();
    script.run();
    script.release_held();
    script.run();
    assert_eq!(stats(&script).dropped_records, 10, "of the fetch that was held");
    assert_eq!(script.offsets(1000), [7, 8, 9]);
    script.append(0, 10);
    script.release_held();
    script.run();
    // What is ready is left behind too: of a batch that is being given out, the rest.
    assert_eq!(script.offsets(4), (10..14).collect::<Vec<_>>());
    script.face.seek(&part(0), 0).unwrap();
    assert_eq!(stats(&script).dropped_records, 16);
}

#[test]
fn a_partition_has_a_lag_once_an_answer_has_told_its_end() {
    let mut script = Script::new(&[]);
    assert_eq!(stats(&script), ConsumerStats { buffered_max: 64 << 20, ..Default::default() });
    script.subscribe();
    assert_eq!((stats(&script).lag, stats(&script).lag_unknown), (0, 1), "its fetch is held");
    script.append(0, 10);
    script.release_held();
    script.run();
    assert_eq!((stats(&script).lag, stats(&script).lag_unknown), (10, 0));
}

#[test]
fn heartbeats_and_commits_go_on_while_a_broker_wants_no_fetches() {
    let mut script = Script::new(&[]);
    for _ in 0..2 {
        script.append(0, 10);
    }
    script.throttle = Duration::from_mins(2);
    script.subscribe();
    assert_eq!(script.offsets(1000), (0..10).collect::<Vec<_>>());
    assert_eq!(script.offsets(1000), Vec::<i64>::new());
    script.seen.clear();
    script.pass(Duration::from_secs(90));
    assert_eq!(script.seen, ["commit 0:10"], "two sessions' time without a fetch");
    let stand = stats(&script);
    assert_eq!((stand.heartbeats, stand.joins), (30, 1));
    assert_eq!(script.face.partitions(), [part(0)]);
    script.throttle = Duration::ZERO;
    script.pass(Duration::from_secs(31));
    assert_eq!(script.offsets(1000), (10..20).collect::<Vec<_>>());
}
