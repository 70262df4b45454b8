//! `cargo xtask test gallery`: builds with one rule left out each, which a test must notice.
//!
//! The rules stand behind `cfg(ottla_bug = "NAME")`, which no build sets but these.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use crate::outcome::{Count, Doing, Done};
use crate::results;
use crate::workspace::{Workspace, write};

/// Longest the tests of one build may take.
const LIMIT: Duration = Duration::from_mins(10);

/// A rule that is left out, and the tests of which one must fail then.
#[derive(Debug)]
struct Bug {
    name: &'static str,
    package: &'static str,
    tests: &'static [&'static str],
}

const BUGS: &[Bug] = &[
    Bug {
        name: "no_folder_sync",
        package: "ottla-storage",
        tests: &["--test", "crash_points", "--test", "power_cut"],
    },
    Bug { name: "no_crc_check", package: "ottla-storage", tests: &["--test", "crash_points"] },
    Bug {
        name: "no_index_rebuild",
        package: "ottla-storage",
        tests: &["--test", "crash_points", "--test", "restart"],
    },
];

/// Rules of bounds of the record decoder and the decompressors; the fuzz bodies notice each.
const RECORD_BOUNDS: &[&str] = &[
    "batch_count",
    "batch_length",
    "decompressed_limit",
    "field_length",
    "header_count",
    "last_offset",
    "record_filled",
    "record_length",
    "record_offset",
    "records_count",
    "snappy_block",
    "snappy_growth",
    "trailing_bytes",
    "varint_length",
    "zstd_window",
];

/// Rules of the wire's readers: lengths, counts, varints, tags, memory; fuzz bodies notice each.
const MESSAGE_BOUNDS: &[&str] = &[
    "array_count",
    "array_memory",
    "frame_size",
    "message_end",
    "negative_length",
    "read_length",
    "tag_filled",
    "tag_order",
    "tag_size",
    "varint_width",
];

const fn message_bound(name: &'static str) -> Bug {
    Bug { name, package: "ottla-protocol", tests: &["--lib", "message::tests::fuzz"] }
}

const fn record_bound(name: &'static str) -> Bug {
    Bug { name, package: "ottla-protocol", tests: &["--lib", "record::fuzz"] }
}

pub(crate) fn run(workspace: &Workspace) -> Done<Count> {
    let mut total = Count::default();
    let of_records = RECORD_BOUNDS.iter().copied().map(record_bound);
    let of_messages = MESSAGE_BOUNDS.iter().copied().map(message_bound);
    let bounds: Vec<Bug> = of_records.chain(of_messages).collect();
    for bug in BUGS.iter().chain(&bounds) {
        let noticed = noticed(workspace, bug)?;
        total += Count::check(&format!("a test fails with {}", bug.name), noticed);
    }
    Ok(total)
}

/// Builds with the rule left out and expects a test to fail: not the build, and not nothing.
fn noticed(workspace: &Workspace, bug: &Bug) -> Done<Result<(), String>> {
    // Cargo runs it for our own crates alone, and keeps what it makes apart by its path.
    let wrapper = workspace.cache("gallery")?.join(bug.name);
    let script = format!("#!/bin/sh\nexec \"$@\" --cfg 'ottla_bug=\"{}\"'\n", bug.name);
    write(&wrapper, script)?;
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755))
        .doing(format_args!("cannot make {} a program", wrapper.display()))?;
    let cargo = |last: &[&str]| {
        let test = workspace.cargo("test").args(["--package", bug.package, "--no-fail-fast"]);
        let test = test.args(bug.tests).args(last).env("RUSTC_WORKSPACE_WRAPPER", &wrapper);
        test.quiet().limit(LIMIT)
    };
    cargo(&["--no-run"]).check()?;
    let finished = cargo(&[]).finish()?;
    let count = results::cargo_test(&finished.lines);
    if finished.status.success() || count.failed == 0 {
        return Ok(Err(format!("nobody noticed: {count}")));
    }
    for line in finished.lines.iter().filter(|line| line.ends_with("... FAILED")) {
        println!("        {line}");
    }
    Ok(Ok(()))
}
