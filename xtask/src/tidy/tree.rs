//! What each crate may have in its dependency tree, from `cargo tree`.

use crate::outcome::Done;
use crate::workspace::Workspace;

use super::Finding;

const RUNTIMES: &[&str] = &["tokio", "async-std", "smol", "mio", "async-trait", "futures-executor"];
const LANGUAGES: &[&str] = &["pyo3", "napi", "cbindgen"];
const OURS: &[&str] = &["ottla", "ottla-protocol", "ottla-storage", "ottla-broker"];

/// A crate and what must not be in its tree, tests apart.
const TREES: &[(&str, &str, &[&[&str]])] = &[
    (
        "ottla-protocol",
        "protocol",
        &[RUNTIMES, LANGUAGES, &["memmap2", "ottla", "ottla-storage", "ottla-broker"]],
    ),
    ("ottla-storage", "storage", &[RUNTIMES, LANGUAGES, &["ottla", "ottla-broker"]]),
    ("ottla-broker", "broker", &[LANGUAGES, &["ottla"]]),
    ("ottla", "client-rs", &[LANGUAGES, &["memmap2", "ottla-storage", "ottla-broker"]]),
    ("ottla-python", "bindings-python", &[&["napi", "cbindgen"]]),
    ("ottla-node", "bindings-node", &[&["pyo3", "cbindgen"]]),
    ("ottla-c", "bindings-c", &[&["pyo3", "napi"]]),
    ("ottla-testkit", "testkit", &[LANGUAGES]),
    // A broken definition must not lock out the generator that mends it.
    ("xtask", "xtask", &[OURS, RUNTIMES, LANGUAGES]),
];

pub(super) fn check(workspace: &Workspace) -> Done<Vec<Finding>> {
    let mut findings = Vec::new();
    for (package, folder, forbidden) in TREES {
        let edges = ["--package", package, "--edges", "normal,build", "--prefix", "none"];
        let lines = workspace.cargo("tree").args(edges).arg("--no-dedupe").quiet().check()?;
        for name in wrong(&lines, forbidden) {
            findings.push(Finding {
                path: format!("{folder}/Cargo.toml"),
                line: 1,
                what: format!("`{name}` must not be in the tree of `{package}`"),
                warning: false,
            });
        }
    }
    Ok(findings)
}

/// The forbidden names among the packages of a tree; its first line is the crate itself.
pub(super) fn wrong<'a>(lines: &'a [String], forbidden: &[&[&str]]) -> Vec<&'a str> {
    let names = lines.iter().skip(1).filter_map(|line| line.split(' ').next());
    let mut wrong: Vec<&str> =
        names.filter(|name| forbidden.iter().any(|list| list.contains(name))).collect();
    wrong.sort_unstable();
    wrong.dedup();
    wrong
}
