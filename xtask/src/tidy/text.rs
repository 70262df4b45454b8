//! Rules for every text file: no stray marks, no path of one person's machine.

use super::Finding;
use super::source::Source;

/// Words that leave work behind.
const MARKS: &[&str] = &["TODO", "FIXME", "XXX", "HACK", "unimplemented!("];
/// Beginnings of paths that exist on one machine alone.
const MACHINE_PATHS: &[&str] =
    &["/work/", "/root/", "/home/", "/Users/", "/tmp/plan", "/tmp/target"];
/// Files that name these on purpose, or that nobody here wrote.
const APART: &[&str] = &["xtask/src/tidy/", "Cargo.lock", "LICENSE"];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let file = source.path.rsplit('/').next().unwrap_or_default();
    if APART.iter().any(|apart| source.path.starts_with(apart)) || file == "package-lock.json" {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        if let Some(mark) = MARKS.iter().find(|mark| has_word(line, mark)) {
            findings.push(Finding::new(source, at + 1, format!("a stray {mark}")));
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| begins_a_path(line, path)) {
            findings.push(Finding::new(source, at + 1, format!("a path of one machine: {path}…")));
        }
    }
    findings
}

/// True if this beginning stands in `line` as the beginning of a path, not within one.
fn begins_a_path(line: &str, beginning: &str) -> bool {
    let within = |letter: char| letter.is_alphanumeric() || "._-/}".contains(letter);
    line.match_indices(beginning).any(|(at, _)| !line[..at].ends_with(within))
}

/// True if `word` stands in `line` with no letter, digit or underscore against it.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(part_of_name);
        let after = line[at + word.len()..].chars().next().is_some_and(part_of_name);
        !before && (!after || !word.ends_with(part_of_name))
    })
}
