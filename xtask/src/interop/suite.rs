//! Our client's own stories, told on Apache Kafka: those that need nothing of our broker's.

use std::ffi::OsString;

use crate::outcome::{Count, Done};
use crate::results;
use crate::workspace::{Workspace, files_ending, fresh_dir, read};

use super::kafka::Kafka;

/// Which stories are told there, and why the others are not.
pub(crate) const LIST: &str = "interop/suite.tsv";
/// What the list says of a file whose stories are told.
const TOLD: &str = "told";
/// Tells a story which broker it is told on.
const BOOTSTRAP: &str = "OTTLA_TEST_BOOTSTRAP";
/// Tells a story how to start a broker that it may hold and kill: address and command, one word a
/// line.
const SERVER: &str = "OTTLA_TEST_SERVER";
/// Options of the broker that some stories need.
const OPTIONS: [&str; 1] = ["group.min.session.timeout.ms=100"];
/// The same of one that is killed: it must take itself for dead soon, or it waits for that when it
/// comes back; and a story reads all of the committed offsets.
const OPTIONS_OF_SERVER: [&str; 4] = [
    OPTIONS[0],
    "offsets.topic.num.partitions=1",
    "broker.session.timeout.ms=1000",
    "broker.heartbeat.interval.ms=100",
];

pub(super) fn on_kafka(workspace: &Workspace) -> Done<Count> {
    let list = listed(workspace)?;
    let classes = Kafka::fetch(workspace)?;
    let scratch = workspace.scratch("suite")?;
    let (shared, own) = (scratch.path().join("shared"), scratch.path().join("own"));
    fresh_dir(&shared)?;
    fresh_dir(&own)?;
    let mut server = OsString::from(Kafka::format(&classes, &own)?.to_string());
    Kafka::configure(&own, &OPTIONS_OF_SERVER)?;
    for word in Kafka::command(&classes, &own) {
        server.push("\n");
        server.push(word);
    }
    let (kafka, took) = Kafka::start_with(&classes, &shared, &OPTIONS)?;
    println!("Apache Kafka answers after {:.1} s", took.as_secs_f64());
    let run = workspace.cargo("test").args(["--package", "ottla", "--no-fail-fast"]);
    let run = list.files.iter().fold(run, |run, name| run.args(["--test", name]));
    let run = run.args(["--", "--exact"]);
    let run = list.left_out.iter().fold(run, |run, name| run.args(["--skip", name]));
    let finished = run.env(BOOTSTRAP, kafka.address()).env(SERVER, server).finish()?;
    kafka.stop()?;
    results::settle(&finished, results::cargo_test)
}

/// What is told.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct List {
    files: Vec<String>,
    /// Tests of these files that are not told.
    left_out: Vec<String>,
}

fn listed(workspace: &Workspace) -> Done<List> {
    let mut sources = Vec::new();
    for file in files_ending(&workspace.root.join("client-rs/tests"), &[".rs"])? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        sources.push((name, read(&file)?));
    }
    parse(&read(&workspace.root.join(LIST))?, &sources)
        .map_err(|fault| format!("{LIST}: {fault}").into())
}

/// Reads the list beside all files of tests, by name and text: each file is told or has a reason,
/// and no row is about what is not there.
pub(crate) fn parse(text: &str, sources: &[(String, String)]) -> Result<List, String> {
    let mut list = List::default();
    let mut files = Vec::new();
    for row in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, reason) = row.split_once('\t').unwrap_or((row, ""));
        if reason.trim().is_empty() {
            return Err(format!("`{name}` has no reason"));
        }
        let Some((file, test)) = name.split_once("::") else {
            if !sources.iter().any(|(source, _)| source == name) {
                return Err(format!("there is no file {name}"));
            }
            files.push(name);
            if reason == TOLD {
                list.files.push(name.to_owned());
            }
            continue;
        };
        if !list.files.iter().any(|told| told == file) {
            return Err(format!("{name} is left out, and {file} is not told before it"));
        }
        // Cargo leaves a test out by its name alone, in whichever file.
        let found = sources.iter().filter(|(_, text)| text.contains(&format!("fn {test}()")));
        let found: Vec<&str> = found.map(|(source, _)| source.as_str()).collect();
        if found != [file] {
            return Err(format!("{name}: the files with that test are {found:?}"));
        }
        list.left_out.push(test.to_owned());
    }
    match sources.iter().find(|(name, _)| !files.contains(&name.as_str())) {
        Some((name, _)) => Err(format!("{name} is neither told nor has a reason")),
        None => Ok(list),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<List, String> {
        let source = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        parse(text, &[source("a", "fn one() {}\nfn two() {}"), source("b", "fn three() {}")])
    }

    #[test]
    fn a_file_is_told_but_for_the_tests_that_are_left_out() {
        let list = parsed("# why\na\ttold\na::two\tstops the broker\nb\tno broker").unwrap();
        assert_eq!(list, List { files: vec!["a".to_owned()], left_out: vec!["two".to_owned()] });
    }

    #[test]
    fn a_file_without_a_row_and_a_row_without_a_file_a_test_or_a_reason_are_refused() {
        for (text, fault) in [
            ("a\ttold", "b is neither told"),
            ("a\ttold\nb\ttold\nc\ttold", "there is no file c"),
            ("a\ttold\na::three\tslow\nb\ttold", "the files with that test are [\"b\"]"),
            ("a\ttold\na::four\tslow\nb\ttold", "the files with that test are []"),
            ("a\tslow\na::one\tslow\nb\ttold", "a is not told"),
            ("a\ttold\nb\t", "`b` has no reason"),
            ("a\ttold\nb", "`b` has no reason"),
        ] {
            let refused = parsed(text).unwrap_err();
            assert!(refused.contains(fault), "{refused}");
        }
    }
}
