//! `cargo xtask interop vectors`: samples of every message, written by Apache Kafka's own classes.
//!
//! The program in `interop/vectors` writes them; tests of the protocol crate read the committed
//! ones. Here they are written anew, or compared with what that program writes today.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::codegen::{self, Kind, Message};
use crate::outcome::{Count, Done, Stop};
use crate::process::Run;
use crate::tools::{self, JDK};
use crate::workspace::{Workspace, copy, entries, files_ending, fresh_dir, read, write};

use super::kafka::{self, Kafka};

/// Where the vectors stand, from the workspace's root.
const COMMITTED: &str = "conformance/vectors";

/// Among them, what Kafka keeps in files beside its logs.
const FILES: &str = "files.txt";
/// Among them, groups that its assignors share out.
const GROUPS: &str = "assignors.txt";

/// Writes the committed vectors anew.
pub(crate) fn renew(workspace: &Workspace) -> Done<Count> {
    let scratch = workspace.scratch("vectors")?;
    let written = written_by_kafka(workspace, scratch.path())?;
    let committed = workspace.root.join(COMMITTED);
    fresh_dir(&committed)?;
    for file in entries(&written)? {
        let name = file.file_name().unwrap_or_default();
        copy(&file, &committed.join(name))?;
    }
    summary(&written)
}

/// Fails unless the committed vectors are what Kafka's classes write.
pub(super) fn check(workspace: &Workspace) -> Done<Count> {
    let scratch = workspace.scratch("vectors")?;
    let written = written_by_kafka(workspace, scratch.path())?;
    let total = summary(&written)?;
    let differing = differing(&workspace.root.join(COMMITTED), &written)?;
    for name in &differing {
        println!("FAILED  {COMMITTED}/{name} is not what Apache Kafka's classes write");
    }
    let failed = u64::try_from(differing.len()).unwrap_or(u64::MAX);
    Ok(Count { failed, ..total })
}

/// Names of the files that are not the same in both folders.
fn differing(committed: &Path, written: &Path) -> Done<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for folder in [committed, written] {
        if folder.is_dir() {
            for file in entries(folder)? {
                names.extend(file.file_name().map(|name| name.to_string_lossy().into_owned()));
            }
        }
    }
    let mut differing = BTreeSet::new();
    for name in names {
        let (one, other) = (committed.join(&name), written.join(&name));
        if !(one.is_file() && other.is_file() && read(&one)? == read(&other)?) {
            differing.insert(name);
        }
    }
    Ok(differing)
}

/// Compiles and runs the Java program; gives the folder it wrote to.
fn written_by_kafka(workspace: &Workspace, scratch: &Path) -> Done<std::path::PathBuf> {
    tools::need(&[&JDK])?;
    let jars = Kafka::fetch_jars(workspace)?.join("*");
    let (classes, into) = (scratch.join("classes"), scratch.join("vectors"));
    fresh_dir(&classes)?;
    fresh_dir(&into)?;
    let sources = files_ending(&workspace.root.join("interop/vectors"), &[".java"])?;
    let compile = Run::new("javac").args(["-encoding", "UTF-8", "-d"]).arg(&classes);
    compile.arg("-cp").arg(&jars).args(sources).quiet().check()?;
    let wanted = scratch.join("wanted.tsv");
    let spec = workspace.root.join("protocol/spec");
    write(&wanted, lines(&codegen::messages(&spec).map_err(Stop::Failed)?))?;
    let mut path = classes.into_os_string();
    path.push(":");
    path.push(&jars);
    let run = Run::new("java").arg("-cp").arg(path).args(["Vectors", kafka::VERSION]);
    run.arg(&wanted).arg(&into).quiet().check()?;
    Ok(into)
}

/// What the program is to write; its form is told in `Vectors.java`.
fn lines(messages: &[Message]) -> String {
    let mut text = String::new();
    for Message { file, kind, name, versions, .. } in messages {
        let file = file.strip_suffix(".msg").unwrap_or(file);
        let (kind, key) = match kind {
            Kind::Request(api) => ("request", api.key),
            Kind::Response(api) => ("response", api.key),
            Kind::Record { .. } => ("record", -1),
        };
        let (min, max) = (versions.min, versions.max);
        let _infallible = writeln!(text, "{file}\t{name}\t{kind}\t{key}\t{min}\t{max}");
    }
    text
}

/// Counts and tells what the files hold; a count of one for each vector.
fn summary(folder: &Path) -> Done<Count> {
    let (mut apis, mut schemas) = (BTreeSet::new(), BTreeSet::new());
    let (mut versions, mut vectors) = (BTreeSet::new(), 0_u64);
    let (mut files, mut groups) = (0_u64, 0_u64);
    for file in entries(folder)? {
        let lines = |text: &str| text.lines().map(|line| u64::from(!line.starts_with('#'))).sum();
        if file.ends_with(FILES) {
            files = lines(&read(&file)?);
            continue;
        }
        if file.ends_with(GROUPS) {
            groups = lines(&read(&file)?);
            continue;
        }
        for line in read(&file)?.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ').map(str::to_owned);
            let (name, version) = (words.next(), words.next());
            let name = name.unwrap_or_default();
            if let Some(api) = name.strip_suffix("Request") {
                apis.insert(api.to_owned());
            } else if !name.ends_with("Response") {
                schemas.insert(name.clone());
            }
            versions.insert((name, version));
            vectors += 1;
        }
    }
    println!(
        "{} APIs and {} schemas of records, {} versions, {vectors} vectors; {files} files; {groups} groups",
        apis.len(),
        schemas.len(),
        versions.len()
    );
    Ok(Count { passed: vectors + files + groups, ..Count::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_a_missing_and_a_stale_file_are_told() {
        let workspace = Workspace::find().unwrap();
        let scratch = workspace.scratch("vectors-test").unwrap();
        let (one, other) = (scratch.path().join("one"), scratch.path().join("other"));
        for folder in [&one, &other] {
            fresh_dir(folder).unwrap();
            write(&folder.join("same.txt"), "A 0 set 00\n").unwrap();
            write(&folder.join("changed.txt"), "B 0 set 00\n").unwrap();
        }
        assert_eq!(differing(&one, &other).unwrap(), BTreeSet::new());
        write(&one.join("changed.txt"), "B 0 set 01\n").unwrap();
        write(&one.join("stale.txt"), "").unwrap();
        write(&other.join("missing.txt"), "").unwrap();
        let told: Vec<String> = differing(&one, &other).unwrap().into_iter().collect();
        assert_eq!(told, ["changed.txt", "missing.txt", "stale.txt"]);
    }

    #[test]
    fn each_message_is_asked_for_with_its_versions() {
        let text = "api 1 Fetch\nrequest 4-6  flexible 6+\n  A  int8  0+\n\n\
            response 4-6  flexible 6+\n  B  int8  0+\n";
        let mut messages = codegen::parsed("fetch.msg", text).unwrap();
        messages.extend(codegen::parsed("a_record.msg", "record A 0  flexible none\n").unwrap());
        assert_eq!(
            lines(&messages),
            "fetch\tFetchRequest\trequest\t1\t4\t6\nfetch\tFetchResponse\tresponse\t1\t4\t6\n\
             a_record\tA\trecord\t-1\t0\t0\n"
        );
    }
}
