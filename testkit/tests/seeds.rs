//! Seeds of the simulator: nothing is broken, and one seed is one run.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ottla_testkit::sim;

/// As many as a landing has time for, on two cores with optimised code.
const SEEDS: u64 = 1000;
/// Fewer than so many need not see everything.
const SET_LEAST: u64 = 1000;
/// What must happen in a run that is repeated, beside what happens in each.
const REPEATED: &[&str] = &[
    "a commit keeps what is finished behind it",
    "a listener is told that partitions come",
    "a listener is told that partitions go",
    "a listener is told that partitions are lost",
    "a static member comes back to its share",
    "a static member comes back, and nobody notices",
    "a static member is fenced",
];
/// So many that fail are enough to know.
const FAILED_MAX: usize = 3;

/// `OTTLA_SIM_SEEDS`, if that is set.
fn seeds() -> u64 {
    std::env::var("OTTLA_SIM_SEEDS").map_or(SEEDS, |text| text.parse().expect("a number"))
}

#[test]
fn no_seed_breaks_a_promise_and_together_they_see_everything() {
    sim::count_panics();
    let mut counts = BTreeMap::new();
    let (mut done, mut failed) = (0, Vec::new());
    sim::run_many(0..seeds(), |outcome| {
        done += 1;
        for (what, count) in outcome.counts {
            *counts.entry(what).or_default() += count;
        }
        if outcome.findings.is_empty() {
            return ControlFlow::Continue(());
        }
        println!("seed {}: again by `cargo xtask sim --seed {0}`", outcome.seed);
        outcome.findings.iter().take(5).for_each(|finding| println!("    {finding}"));
        failed.push(outcome.seed);
        if failed.len() < FAILED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .unwrap();
    println!("{done} seeds, {} failed", failed.len());
    assert!(failed.is_empty(), "seeds {failed:?} of {done} failed");
    assert_eq!(sim::unlisted(&counts), Vec::<String>::new(), "seen, and not in the list");
    if seeds() >= SET_LEAST {
        assert_eq!(sim::unseen(&counts), Vec::<String>::new(), "never seen");
    }
}

#[test]
fn one_seed_twice_is_one_run() {
    let mut counts = BTreeMap::new();
    for seed in [1, 7, 12, 30, 324] {
        let first = sim::run(seed, false).unwrap();
        let second = sim::run(seed, false).unwrap();
        assert_eq!((first.hash, first.events), (second.hash, second.events), "seed {seed}");
        counts.extend(first.counts);
    }
    for what in REPEATED {
        assert!(counts.contains_key(*what), "{what}: in none of these seeds, choose others");
    }
}
