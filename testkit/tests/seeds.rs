//! Seeds of the simulator: nothing is broken, and one seed is one run.

use std::collections::BTreeMap;

use ottla_testkit::sim;

/// As many as a debug build runs within a minute.
const SEEDS: u64 = 50;

#[test]
fn no_seed_breaks_a_promise_and_together_they_see_everything() {
    sim::count_panics();
    let mut counts = BTreeMap::new();
    for seed in 0..SEEDS {
        let outcome = sim::run(seed, false).unwrap();
        let findings = outcome.findings;
        assert!(findings.is_empty(), "again by `cargo xtask sim --seed {seed}`: {findings:#?}");
        for (what, count) in outcome.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    assert_eq!(sim::unseen(&counts), Vec::<&str>::new());
}

#[test]
fn one_seed_twice_is_one_run() {
    for seed in [1, 7, 12] {
        let first = sim::run(seed, false).unwrap();
        let second = sim::run(seed, false).unwrap();
        assert_eq!((first.hash, first.events), (second.hash, second.events), "seed {seed}");
    }
}
