//! `cargo xtask test gallery`: one rule left out at a time, which a test must notice.
//!
//! The rules ask `ottla_protocol::left_out("NAME")`, which is false in every build but this one's:
//! with `cfg(ottla_gallery)` it is true for the rule that `OTTLA_LEFT_OUT` names.

use std::path::Path;
use std::time::Duration;

use crate::outcome::{Count, Done};
use crate::process::Run;
use crate::results;
use crate::workspace::Workspace;

/// Longest the tests may take with one rule left out.
const LIMIT: Duration = Duration::from_mins(10);

/// Seeds of the simulator by which a rule left out must be noticed.
const SEEDS: &str = "300";

/// Rules of one package, and the tests that must notice when one of them is left out.
#[derive(Debug)]
struct Room {
    package: &'static str,
    tests: &'static [&'static str],
    rules: &'static [&'static str],
}

const ROOMS: &[Room] = &[
    Room {
        package: "ottla-storage",
        tests: &["--test", "crash_points", "--test", "power_cut", "--test", "restart"],
        rules: &["no_folder_sync", "no_crc_check", "no_index_rebuild"],
    },
    // The bounds of the record decoder and of the decompressors.
    Room {
        package: "ottla-protocol",
        tests: &["--lib", "record::fuzz"],
        rules: &[
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
        ],
    },
    // The bounds of frames, of messages and of their fields.
    Room {
        package: "ottla-protocol",
        tests: &["--lib", "message::tests::fuzz"],
        rules: &[
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
        ],
    },
    // By what a static member that comes back sees that its share is one of before.
    Room {
        package: "ottla",
        tests: &["--lib", "state::membership"],
        rules: &["basis_counts", "basis_topics", "basis_unsettled"],
    },
    // What stands beside a commit for who works on many records at a time.
    Room {
        package: "ottla",
        tests: &["--lib", "acknowledging"],
        rules: &["finished_epoch", "lowest_unfinished"],
    },
    // What a client must do about batches and answers whose time or place is over, about its memory
    // and its listener; and who of two static members of one name goes on, and is told so.
    Room {
        package: "ottla-testkit",
        tests: &["--profile", "sim", "--test", "seeds"],
        rules: &[
            "absent_topic",
            "assignment_token",
            "decoded_share",
            "expired_bumps",
            "expired_waits",
            "fenced_ends",
            "fenced_instance",
            "fetched_share",
            "first_alone",
            "going_awaited",
            "going_revoked",
            "going_told",
            "gone_lost",
            "granted_charged",
            "head_ends",
            "large_alone",
            "late_offset_fetch",
            "new_ones_wait",
            "new_topic_id",
            "newer_takes_over",
            "parked_fenced",
            "retry_alone",
            "sequence_off_head",
            "told_in_turn",
            "unsure_is_lost",
        ],
    },
];

pub(crate) fn run(workspace: &Workspace) -> Done<Count> {
    let compiler = workspace.compiler("ottla_gallery")?;
    let mut total = Count::default();
    for room in ROOMS {
        tests(workspace, &compiler, room).check()?;
        for rule in room.rules {
            let noticed = noticed(tests(workspace, &compiler, room), rule)?;
            total += Count::check(&format!("a test fails without {rule}"), noticed);
        }
    }
    Ok(total)
}

/// The tests of a room in the build that can leave rules out; all of them hold so far.
fn tests(workspace: &Workspace, compiler: &Path, room: &Room) -> Run {
    let test = workspace.cargo("test").args(["--package", room.package]).args(room.tests);
    let test = test.env("OTTLA_SIM_SEEDS", SEEDS);
    test.env("RUSTC_WORKSPACE_WRAPPER", compiler).quiet().limit(LIMIT)
}

/// Leaves the rule out and expects a test to fail: that alone, the build stands.
fn noticed(tests: Run, rule: &str) -> Done<Result<(), String>> {
    let finished = tests.env("OTTLA_LEFT_OUT", rule).finish()?;
    let count = results::cargo_test(&finished.lines);
    if finished.status.success() || count.failed == 0 {
        return Ok(Err(format!("nobody noticed: {count}")));
    }
    for line in finished.lines.iter().filter(|line| line.ends_with("... FAILED")) {
        println!("        {line}");
    }
    Ok(Ok(()))
}
