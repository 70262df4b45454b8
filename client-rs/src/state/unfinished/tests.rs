//! What is finished in any order, held against a set of offsets.

use std::collections::BTreeSet;

use super::*;
use crate::state::backoff::Random;

/// A reader at offset 10 that was given ten records of epoch 3.
fn ten() -> Unfinished {
    let mut work = Unfinished::new(1, 10);
    work.give(10..20, (2, 3));
    work
}

fn at(work: &Unfinished) -> (i64, i32, i64) {
    let Standing { offset, leader_epoch, beyond } = work.standing();
    (offset, leader_epoch, beyond)
}

/// Who reads on from there by what was committed.
fn restored(work: &Unfinished) -> Unfinished {
    let Standing { offset, leader_epoch, .. } = work.standing();
    let text = work.text();
    let read = text.and_then(|text| Unfinished::from_text(7, (offset, leader_epoch), &text));
    read.unwrap_or_else(|| Unfinished::new(7, offset))
}

#[test]
fn the_lowest_unfinished_offset_counts_and_what_is_finished_behind_it_stands_beside() {
    let mut work = ten();
    assert_eq!((at(&work), work.text()), ((10, 2, 0), None));
    assert!(work.finish(12..15, 3));
    assert!(!work.finish(12..15, 3), "once is enough");
    assert!(work.finish(16..17, 3));
    assert_eq!(at(&work), (10, 2, 4));
    assert_eq!(work.text().as_deref(), Some("ottla-finished-1:3:2+3,1+1"));
    assert!(work.finish(10..11, 3));
    assert_eq!(at(&work), (11, 3, 4));
    assert_eq!(work.text().as_deref(), Some("ottla-finished-1:3:1+3,1+1"));
    assert!(work.finish(11..12, 3));
    assert_eq!((at(&work), work.text().as_deref()), ((15, 3, 1), Some("ottla-finished-1:3:1+1")));
    assert!(work.finish(10..20, 3));
    assert_eq!((at(&work), work.text()), ((20, 3, 0), None));
}

#[test]
fn where_nothing_stands_in_the_log_nothing_is_waited_for() {
    let mut work = Unfinished::new(1, 10);
    work.give(10..13, (-1, 3));
    // A whole batch was compacted away, and then came only control batches.
    work.give(20..22, (-1, 3));
    work.pass(30, -1);
    work.finish(10..13, 3);
    assert_eq!((at(&work), work.text().as_deref()), ((20, 3, 8), Some("ottla-finished-1:3:2+8")));
    work.finish(20..22, 3);
    assert_eq!((at(&work), work.text()), ((30, 3, 0), None));
}

#[test]
fn records_that_are_given_back_and_given_again_are_unfinished_once() {
    let mut work = ten();
    work.finish(10..12, 3);
    work.give(12..20, (3, 3));
    assert_eq!(at(&work), (12, 3, 0));
    work.give(12..25, (3, 3));
    work.finish(20..25, 3);
    assert_eq!(at(&work), (12, 3, 5));
}

#[test]
fn who_reads_on_passes_over_what_was_finished_and_keeps_that_until_it_is_there() {
    let mut work = ten();
    work.finish(12..15, 3);
    work.finish(16..17, 3);
    let mut next = restored(&work);
    assert_eq!((at(&next), next.text()), (at(&work), work.text()));
    assert_eq!((next.finished_until(10, 3), next.open_until(10)), (None, 12));
    next.give(10..12, (2, 3));
    assert_eq!(next.finished_until(12, 3), Some(15));
    next.give(15..16, (3, 3));
    assert_eq!((at(&next), next.text()), (at(&work), work.text()));
    next.finish(10..12, 4);
    assert_eq!((at(&next), next.text().as_deref()), ((15, 3, 1), Some("ottla-finished-1:4:1+1")));
}

#[test]
fn what_stands_in_the_place_of_a_finished_record_under_a_newer_leader_is_given_out() {
    let mut work = ten();
    work.finish(12..15, 3);
    let mut next = restored(&work);
    assert_eq!(next.finished_until(12, 4), None);
    assert_eq!((at(&next), next.text()), ((10, 2, 0), None), "nor does the rest count");
}

#[test]
fn a_text_that_is_anothers_or_cannot_be_is_none() {
    let read = |text: &str| Unfinished::from_text(1, (10, 0), text);
    assert!(read("ottla-finished-1:3:2+3").is_some());
    let long = format!("ottla-finished-1:3:2+{}", i64::MAX);
    let none = ["", "order 7", "ottla-finished-2:3:2+3", "ottla-finished-1:3:", &long];
    for text in none.into_iter().chain(["ottla-finished-1:3", "ottla-finished-1:x:2+3"]) {
        assert_eq!(read(text), None, "{text}");
    }
    for text in ["ottla-finished-1:3:2+-3", "ottla-finished-1:3:-2+3", "ottla-finished-1:3:2+3,"] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn a_text_holds_what_brokers_take_and_the_first_stretches_if_there_are_more() {
    let mut work = Unfinished::new(1, 1_000_000);
    work.give(1_000_000..1_010_000, (-1, 3));
    for offset in (1_000_000..1_010_000).step_by(2) {
        assert_eq!(work.is_scattered(), offset >= 1_001_022, "{offset}");
        work.finish(offset + 1..offset + 2, 3);
    }
    let text = work.text().expect("every second one is finished");
    assert!((4_090..=4_096).contains(&text.len()), "{}", text.len());
    let mut next = restored(&work);
    assert_eq!(next.standing().beyond, 1_019);
    assert_eq!(next.finished_until(1_000_001, 3), Some(1_000_002));
}

#[test]
fn what_a_log_lost_is_in_nobodys_hands_and_what_stands_there_now_counts_by_itself() {
    let mut work = ten();
    work.finish(11..12, 3);
    work.finish(16..18, 3);
    assert!(!work.cut(2, 20), "nothing was given out behind it");
    assert!(work.cut(2, 14));
    assert_eq!((at(&work), work.text().as_deref()), ((10, 2, 1), Some("ottla-finished-1:3:1+1")));
    work.give(14..18, (3, 4));
    assert!(!work.finish(15..16.min(work.reach(1)), 3), "it was read before");
    assert!(work.finish(15..16.min(work.reach(2)), 4));
    assert_eq!(at(&work), (10, 2, 2));
    assert!(work.cut(5, 16) && work.cut(7, 12), "again, and then further back");
    assert_eq!(
        [0, 1, 4, 6, 7].map(|position| work.reach(position)),
        [i64::MIN, 12, 12, 12, i64::MAX]
    );
    work.finish(10..12, 3);
    assert_eq!((at(&work), work.text()), ((12, -1, 0), None));
    work.give(12..20, (4, 5));
    assert!(work.cut(9, 18));
    assert_eq!([6, 8, 9].map(|position| work.reach(position)), [12, 18, i64::MAX]);
}

#[test]
fn offsets_that_do_not_ascend_are_in_nobodys_hands() {
    let mut work = ten();
    #[allow(clippy::reversed_empty_ranges, reason = "a log should not have them, and may")]
    let back = 25..23;
    work.give(back.clone(), (3, 3));
    assert!(!work.finish(back, 3));
    assert!(!work.finish(12..12, 3));
    assert_eq!((at(&work), work.text()), ((10, 2, 0), None));
}

/// Offsets, each with the next one's: some are not in the log.
fn log(random: &mut Random) -> Vec<(i64, i64)> {
    let mut offsets = vec![100];
    for _ in 0..200 {
        let step = if random.below(5) == 0 { 1 + random.below(4) } else { 1 };
        offsets.push(offsets.last().unwrap() + i64::try_from(step).unwrap());
    }
    offsets.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

#[test]
fn in_whatever_order_work_is_finished_each_record_is_done_once_over_many_readers() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let log = log(&mut random);
        let mut finished = BTreeSet::new();
        let mut work = Unfinished::new(1, 100);
        let (mut at, mut hand, mut before) = (0, Vec::new(), work.standing());
        while finished.len() < log.len() {
            match random.below(20) {
                // The reader is gone, and another goes on from its commit.
                0 => {
                    work = restored(&work);
                    hand.clear();
                    at = log
                        .iter()
                        .position(|&(offset, _)| offset >= work.standing().offset)
                        .unwrap();
                }
                1..=9 if at < log.len() => {
                    let (offset, next) = log[at];
                    at += 1;
                    if let Some(until) = work.finished_until(offset, 0) {
                        assert!(finished.contains(&offset), "seed {seed}: {offset} left out");
                        assert!(until >= next);
                    } else {
                        assert!(!finished.contains(&offset), "seed {seed}: {offset} twice");
                        work.give(offset..next, (0, 0));
                        hand.push((offset, next));
                    }
                }
                _ if !hand.is_empty() => {
                    let pick = random.below(hand.len());
                    let (offset, next) = hand.swap_remove(pick);
                    assert!(work.finish(offset..next, 0));
                    finished.insert(offset);
                }
                _ => {}
            }
            let standing = work.standing();
            let lowest = log.iter().find(|(offset, _)| !finished.contains(offset));
            assert!(lowest.is_none_or(|&(offset, _)| standing.offset <= offset), "seed {seed}");
            let both = |standing: Standing| (standing.offset, standing.beyond);
            assert!(both(standing) >= both(before), "seed {seed}: it goes back");
            before = standing;
        }
    }
}
