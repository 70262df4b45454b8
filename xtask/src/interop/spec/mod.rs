//! `cargo xtask interop spec`: our definitions held against those that Apache Kafka publishes.
//!
//! Kafka's jars carry the definition of each message. For every version that we have, each field
//! is compared: its place, type, null, tag and default, and whether it may be left out where a
//! version has no room for it. Record schemas and APIs that one side alone has are told too.

mod shape;
#[cfg(test)]
mod tests;
mod theirs;

use std::collections::BTreeMap;
use std::path::Path;

use crate::codegen;
use crate::outcome::{Count, Done, Stop};
use crate::process::Run;
use crate::tools::{self, JDK};
use crate::workspace::{Workspace, files_ending};

use super::kafka::{self, Kafka};
use shape::Shape;
use theirs::{Definition, Group};

/// The jars that hold definitions, by the beginning of their names.
const JARS: &[&str] =
    &["kafka-clients", "kafka-metadata", "kafka-group-coordinator", "kafka-raft", "kafka-storage"];

/// Folders in the jars where definitions stand.
const FOLDERS: &[&str] = &["common/message", "common/metadata", "message"];

/// The headers, in our own form: `frame.rs` reads and writes them by hand.
const HEADERS: &str = "\
record RequestHeader 1-2  flexible 2+
  RequestApiKey      int16   0+
  RequestApiVersion  int16   0+
  CorrelationId      int32   0+
  ClientId           string  1+  nullable 1+

record ResponseHeader 0-1  flexible 1+
  CorrelationId  int32  0+
";

/// A header's field that has its old form also in flexible versions (KIP-482).
const OLD_FORM: (&str, &str) = ("RequestHeader", "ClientId");

/// Compares, prints what differs and a summary.
pub(super) fn against_kafka(workspace: &Workspace) -> Done<Count> {
    tools::need(&[&JDK])?;
    let lib = Kafka::fetch_jars(workspace)?;
    let scratch = workspace.scratch("definitions")?;
    let theirs = definitions(&lib, scratch.path())?;
    let spec = workspace.root.join("protocol/spec");
    let found = compare(&ours(&spec)?, &theirs, &codegen::apis(&spec).map_err(Stop::Failed)?);
    for difference in &found.differences {
        println!("FAILED  {difference}");
    }
    println!(
        "compared with Apache Kafka {}: {} APIs and {} schemas of records and headers, {} versions, \
         {} fields; {} differences",
        kafka::VERSION,
        found.apis,
        found.schemas,
        found.versions,
        found.fields,
        found.differences.len()
    );
    let failed = u64::try_from(found.differences.len()).unwrap_or(u64::MAX);
    Ok(Count { passed: found.versions, failed, skipped: 0 })
}

/// All of our definitions, and the headers.
fn ours(spec: &Path) -> Done<Vec<Shape>> {
    let mut messages = codegen::messages(spec).map_err(Stop::Failed)?;
    messages.extend(codegen::parsed("headers", HEADERS).map_err(Stop::Failed)?);
    let mut shapes: Vec<Shape> = messages.iter().map(Shape::of).collect();
    for shape in &mut shapes {
        for field in &mut shape.fields {
            if (&*shape.name, &*field.name) == OLD_FORM {
                field.old_form = true;
            }
        }
    }
    Ok(shapes)
}

/// All of Kafka's definitions.
fn definitions(lib: &Path, scratch: &Path) -> Done<Vec<Definition>> {
    let mut all = Vec::new();
    for jar in JARS {
        let name = format!("{jar}-{}.jar", kafka::VERSION);
        let folder = scratch.join(jar);
        crate::workspace::fresh_dir(&folder)?;
        let unpack = Run::new("jar").arg("--extract").arg("--file").arg(lib.join(&name));
        unpack.args(FOLDERS).dir(&folder).quiet().check()?;
        for inside in FOLDERS.iter().map(|inside| folder.join(inside)).filter(|dir| dir.is_dir()) {
            for file in files_ending(&inside, &[".json"])? {
                let text = crate::workspace::read(&file)?;
                let mut read = theirs::read(&text)
                    .map_err(|why| Stop::Failed(format!("{}: {why}", file.display())))?;
                if read.group == Group::Metadata && *jar != "kafka-metadata" {
                    // Tiered storage has a log of its own, with records of the same type.
                    read.group = Group::Other;
                }
                all.push(read);
            }
        }
    }
    theirs::without_unstable(&mut all);
    Ok(all)
}

/// What was compared, and how it differs.
#[derive(Debug, Default)]
struct Found {
    apis: u64,
    schemas: u64,
    versions: u64,
    fields: u64,
    differences: Vec<String>,
}

fn compare(ours: &[Shape], theirs: &[Definition], apis: &[codegen::ApiRow]) -> Found {
    let mut found = Found::default();
    for shape in ours {
        let Some(other) = theirs.iter().find(|other| other.shape.name == shape.name) else {
            found.differences.push(format!("{}: Kafka has no such definition", shape.name));
            continue;
        };
        match other.group {
            Group::Request => found.apis += 1,
            Group::Response => {}
            _ => found.schemas += 1,
        }
        compare_message(shape, &other.shape, &mut found);
    }
    for other in theirs {
        let name = &other.shape.name;
        let here = ours.iter().any(|shape| shape.name == *name);
        if !here && matches!(other.group, Group::Metadata | Group::Offsets) {
            found.differences.push(format!("{name}: we have no such definition"));
        }
        if other.group == Group::Request {
            found.differences.extend(compare_row(other, apis));
        }
    }
    found
}

fn compare_message(ours: &Shape, theirs: &Shape, found: &mut Found) {
    let name = &ours.name;
    if ours.head() != theirs.head() {
        let (ours, theirs) = (ours.head(), theirs.head());
        found.differences.push(format!("{name}: ours has {ours}, Kafka's {theirs}"));
    }
    // The same difference in several versions is told once.
    let mut differing: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for version in ours.versions.min..=ours.versions.max {
        let (mine, other) = (ours.facts(version), theirs.facts(version));
        found.versions += 1;
        found.fields += u64::try_from(mine.len()).unwrap_or_default();
        let mut rows = mine.iter().zip(&other);
        let first = rows.find(|(mine, other)| mine != other);
        let (mine, other) = match first {
            Some((mine, other)) => (mine.clone(), other.clone()),
            None if mine.len() == other.len() => continue,
            None => {
                let extra = |facts: &[String], length: usize| {
                    facts.get(length).cloned().unwrap_or_else(|| "nothing more".to_owned())
                };
                (extra(&mine, other.len()), extra(&other, mine.len()))
            }
        };
        differing.entry((mine, other)).or_default().push(version.to_string());
    }
    for ((mine, other), versions) in differing {
        let versions = versions.join(", ");
        found.differences.push(format!("{name} {versions}: ours `{mine}`, Kafka's `{other}`"));
    }
}

/// The line of `apis.tsv` against the definition of the request.
fn compare_row(theirs: &Definition, apis: &[codegen::ApiRow]) -> Option<String> {
    let Definition { shape, listeners, .. } = theirs;
    let name = shape.name.strip_suffix("Request")?;
    let row = apis.iter().find(|row| Some(row.key) == shape.key);
    let (Some(versions), Some(row)) = (shape.has_versions().then_some(shape.versions), row) else {
        // Kafka keeps the definitions of what it has removed, without versions.
        return (row.is_some() || shape.has_versions())
            .then(|| format!("apis.tsv: {name} is on one side alone"));
    };
    let ours = (&*row.name, row.min, row.max, row.first_flexible);
    let theirs = (name, versions.min, versions.max, shape.first_flexible);
    let on = |listener: &str| listeners.iter().any(|name| name == listener);
    let places = (row.on_brokers, row.on_controllers);
    (ours != theirs || places != (on("broker"), on("controller")))
        .then(|| format!("apis.tsv: {ours:?} {places:?}, Kafka's {theirs:?} on {listeners:?}"))
}
