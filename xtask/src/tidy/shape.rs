//! Rules for a file's shape: its first line, size and name, attributes with reasons, `unsafe`.

use super::Finding;
use super::source::Source;
use super::text::has_word;

/// A hand-written file longer than this is worth a look.
const LONG: usize = 500;
/// A hand-written file longer than this fails.
const TOO_LONG: usize = 800;
/// Inline tests longer than this belong in a `tests.rs` beside the file.
const LONG_TESTS: usize = 150;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "core", "helper", "helpers", "misc"];
const CODE: &[&str] = &[".rs", ".py", ".pyi", ".js", ".mjs", ".cjs", ".ts", ".c", ".h"];

/// Where `unsafe` may stand, each for one reason.
const UNSAFE: &[(&str, &str)] = &[
    ("bindings-c/src/", "pointers that come over the C border"),
    ("storage/src/files/mapped.rs", "maps sealed index files"),
    ("storage/examples/log_ways.rs", "a benchmark's write through a map"),
    ("bindings-node/src/record.rs", "a batch's bytes as a Buffer, not copied"),
    ("broker/src/driver/signals.rs", "the signal mask of a thread"),
    ("client-rs/src/driver/signals.rs", "the signal mask of a thread"),
    ("client-rs/src/process.rs", "a fork handler"),
    ("client-rs/src/state/accumulator/ahead.rs", "a hint to the processor"),
    ("client-rs/tests/fork.rs", "forks, in tests"),
    ("protocol/src/message/tests/allocator.rs", "a global allocator that counts, in tests"),
    ("client-rs/tests/allocations.rs", "a global allocator that counts"),
];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    if CODE.iter().any(|end| source.path.ends_with(end)) {
        findings.extend(size(source));
        findings.extend(name(source));
    }
    if source.is_rust() {
        if !source.text.starts_with("//! ") {
            let what = "the first line must be `//!` and say what is here";
            findings.push(Finding::new(source, 1, what));
        }
        findings.extend(reasons(source));
        findings.extend(unsafe_code(source));
    }
    findings
}

fn size(source: &Source) -> Option<Finding> {
    if source.is_generated() || source.is_test() {
        return None;
    }
    let lines = source.text.lines().count();
    let tests = source.inline_tests().map_or(0, |start| lines - start);
    if lines > LONG {
        let what = format!("{lines} lines; split it by sub-idea (at most {TOO_LONG})");
        let finding = Finding::new(source, lines, what);
        return Some(Finding { warning: lines <= TOO_LONG, ..finding });
    }
    (tests > LONG_TESTS).then(|| {
        let what = format!("{tests} lines of tests; move them to a tests.rs beside it");
        Finding { warning: true, ..Finding::new(source, lines - tests, what) }
    })
}

fn name(source: &Source) -> Option<Finding> {
    let stems = source.path.split('/').map(|part| part.split('.').next().unwrap_or_default());
    let empty = stems.into_iter().find(|stem| EMPTY_NAMES.contains(stem))?;
    Some(Finding::new(source, 1, format!("a module called `{empty}` says nothing")))
}

/// `#[allow]` and `#[expect]` carry a reason.
fn reasons(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for opening in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
        for (at, _) in source.code.match_indices(opening) {
            let attribute = &source.code[at..];
            let end = attribute.find(")]").unwrap_or(attribute.len());
            if !has_word(&attribute[..end], "reason") && !source.is_generated() {
                let line = 1 + source.code[..at].matches('\n').count();
                let what = format!("`{}…` without a reason", opening.trim_end_matches('('));
                findings.push(Finding::new(source, line, what));
            }
        }
    }
    findings
}

fn unsafe_code(source: &Source) -> Option<Finding> {
    if UNSAFE.iter().any(|(prefix, _)| source.path.starts_with(prefix)) {
        return None;
    }
    let first = source.code.lines().position(|line| has_word(line, "unsafe"));
    first.map(|at| Finding::new(source, at + 1, "`unsafe` outside the listed files"))
}
