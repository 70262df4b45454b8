//! Our client's own stories, told on Apache Kafka: those that need nothing of our broker's.

use crate::outcome::{Count, Done};
use crate::results;
use crate::workspace::{Workspace, files_ending, read};

use super::kafka::Kafka;

/// Which stories are told there, and why the others are not.
const LIST: &str = "interop/suite.tsv";
/// Tells a story which broker it is told on.
const BOOTSTRAP: &str = "OTTLA_TEST_BOOTSTRAP";

pub(super) fn on_kafka(workspace: &Workspace) -> Done<Count> {
    let told = listed(workspace)?;
    let classes = Kafka::fetch(workspace)?;
    let scratch = workspace.scratch("suite")?;
    let (kafka, took) = Kafka::start_timed(&classes, scratch.path())?;
    println!("Apache Kafka answers after {:.1} s", took.as_secs_f64());
    let run = workspace.cargo("test").args(["--package", "ottla", "--no-fail-fast"]);
    let run = told.iter().fold(run, |run, name| run.args(["--test", name]));
    let finished = run.env(BOOTSTRAP, kafka.address()).finish()?;
    kafka.stop()?;
    let count = results::cargo_test(&finished.lines);
    if !finished.status.success() && count.failed == 0 {
        return Err(finished.failure());
    }
    Ok(count)
}

/// The stories that are told; each file of the client's tests must be in the list.
fn listed(workspace: &Workspace) -> Done<Vec<String>> {
    let text = read(&workspace.root.join(LIST))?;
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<(&str, &str)> = rows.filter_map(|row| row.split_once('\t')).collect();
    for file in files_ending(&workspace.root.join("client-rs/tests"), &[".rs"])? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        if !rows.iter().any(|(known, _)| *known == name) {
            let text = format!("{LIST} does not say whether {name} is told on Apache Kafka");
            return Err(text.into());
        }
    }
    let told = rows.iter().filter(|(_, reason)| *reason == "told");
    Ok(told.map(|(name, _)| (*name).to_owned()).collect())
}
