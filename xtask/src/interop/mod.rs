//! `cargo xtask interop`: our halves against software that nobody here wrote.

mod clients;
mod confluent;
mod kafka;
mod kcat;
mod ours;
mod wire;

pub(crate) use kafka::Kafka;
pub(crate) use ours::{OurBroker, Profile};
pub(crate) use wire::wait_until_it_answers;

use crate::outcome::{Done, Report};
use crate::workspace::Workspace;

/// Runs one of the interop suites.
pub(crate) fn run(workspace: &Workspace, report: &mut Report, name: &str) -> Done {
    if name != "smoke" {
        return Err(format!("no interop suite called {name}; there is: smoke").into());
    }
    report.tests("interop: kcat", || kcat::against_our_broker(workspace));
    report.tests("interop: confluent-kafka", || confluent::against_our_broker(workspace));
    report.tests("interop: Apache Kafka", || clients::against_kafka(workspace));
    Ok(())
}
