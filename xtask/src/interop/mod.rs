//! `cargo xtask interop`: our halves against software that nobody here wrote.

mod batches;
mod clients;
mod codecs;
mod confluent;
mod diff;
mod groups;
mod kafka;
mod kcat;
mod log;
mod ours;
mod partitioners;
mod spec;
pub(crate) mod suite;
mod tools;
mod trimmed;
mod vectors;
mod wire;

pub(crate) use batches::renew as renew_batches;
pub(crate) use confluent::environment as confluent_environment;
pub(crate) use kafka::Kafka;
pub(crate) use ours::{OurBroker, Profile};
pub(crate) use partitioners::renew as renew_partitioners;
pub(crate) use vectors::renew as renew_vectors;
pub(crate) use wire::wait_until_it_answers;

use crate::outcome::{Count, Done, Report};
use crate::workspace::Workspace;

type Suite = fn(&Workspace) -> Done<Count>;

const SUITES: &[(&str, Suite)] = &[
    ("spec", spec::against_kafka),
    ("vectors", vectors::check),
    ("partitioners", partitioners::check),
    ("batches", batches::check),
    ("kcat", kcat::against_our_broker),
    ("confluent", confluent::against_our_broker),
    ("kafka", clients::against_kafka),
    ("groups", groups::on_either_broker),
    ("codecs", codecs::everywhere),
    ("log", log::both_ways),
    ("suite", suite::on_kafka),
    ("tools", tools::on_either_broker),
];

/// Holds the same conversations with our broker and with Apache Kafka.
pub(crate) fn diff(workspace: &Workspace, report: &mut Report, options: &[&str]) -> Done {
    let options = diff::Options::parse(options)?;
    report.tests("interop diff", || diff::run(workspace, &options));
    Ok(())
}

/// Runs one suite, or with `smoke` all of them.
pub(crate) fn run(workspace: &Workspace, report: &mut Report, wanted: &str) -> Done {
    let fits = |name: &str| wanted == "smoke" || wanted == name;
    if !SUITES.iter().any(|(name, _)| fits(name)) {
        let names: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
        return Err(format!("no suite {wanted}; there are: smoke, {}", names.join(", ")).into());
    }
    for (name, suite) in SUITES.iter().filter(|(name, _)| fits(name)) {
        report.tests(&format!("interop {name}"), || suite(workspace));
    }
    Ok(())
}
