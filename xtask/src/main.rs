//! Developer commands: `cargo xtask <command>`.
#![allow(clippy::print_stdout, reason = "a command's output is its purpose")]
#![allow(clippy::disallowed_methods, reason = "it times what it runs; nothing here is simulated")]

mod bench;
mod check;
mod ci;
mod codegen;
mod demo;
mod dist;
mod gallery;
mod interop;
mod outcome;
mod parts;
mod process;
mod quickstart;
mod results;
mod soak;
mod tables;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;
use std::time::Duration;

use outcome::{Done, Report, Stop};
use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  check                 format, lints, tidy, docs, generated files
  tidy                  the tree's own rules: imports, sizes, names
  test [PART]           all tests, or those of one part: rust, loom, sim, python, node,
                        c, quickstart, demo, soak, gallery (builds with a rule left out
                        each, which a test must notice)
  codegen [--check]     writes the generated files; --check only compares
  dist python|node|c    what a user installs, under target/dist
  interop smoke         all that is held against others' software; or a part of it:
                        kcat and confluent on our broker, kafka (our client on it),
                        groups, codecs and tools on either broker, log (each other's
                        folders), suite (our client's tests on Kafka), and those below
  interop spec          our definitions of messages against those in Kafka's jars
  interop vectors [--check]
                        samples of all messages by Kafka's own classes, written to
                        conformance/vectors; --check only compares
  interop partitioners [--check]
                        where Kafka's own client, librdkafka and Sarama put keys,
                        written to conformance/partitioners; --check only compares
  interop batches [--check]
                        batches in each form in which others pack them, put together
                        by hand and written to conformance/batches
  interop diff [--only NAME] [--against HOST:PORT]
                        the conversations of conformance/conversations with our
                        broker and with Apache Kafka, answers compared field by field
  demo [--keep DIR] [--tamper drop|dup|swap]
                        a year of flights through the embedded broker, in all
                        four languages, and what must hold at the end
  bench NAME            figures beside Apache Kafka's: start (time to the first answer),
                        idle (memory), first-group-record, broker (CPU a record); and
                        log (the ways to write and to send its bytes)
  bench produce|consume|latency [--quick] [--one-by-one] [--json FILE] [FILTER ...]
                        our client beside librdkafka, franz-go and Kafka's own, on
                        Apache Kafka and on our broker; without a filter all rows, which
                        takes hours (one by one: each value beside 100 B, 12 partitions,
                        no codec, acks=all): server=kafka,ottla client=ours,…
                        bytes=100,1024 partitions=1,12 codec=none,lz4 acks=1,all
                        spread=turn,own runs=N seconds=N warm=N fill=N
  sim [--seeds N] [--seed N] [--verbose]
                        client and broker in simulated storms; a seed is a run
  soak [MINUTES] [rate=20000] [seed=N] [every=60] [tamper=WAY]
                        clients of all kinds for an hour, or so many minutes, at so many
                        records a second, on a broker that about once in so many seconds is
                        killed, ended or held; nothing may be lost, hang or grow. Tampered
                        with (drop, dup, swap, connections, memory, hang) it must fail
  ci                    all of it, with one total at the end";

/// Longest the simulator may take, for many seeds.
const SIM_LIMIT: Duration = Duration::from_hours(12);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(code) => code,
        Err(stop) => {
            say(&stop.to_string());
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Done<ExitCode> {
    // Of any command, so that none is begun with it, or builds something first.
    if words.iter().any(|word| matches!(*word, "--help" | "-h")) {
        println!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let workspace = Workspace::find()?;
    let mut report = Report::new();
    match words {
        ["codegen", options @ ..] => {
            codegen::run(options).map_err(Stop::Failed)?;
            tables::run(&workspace, options.contains(&"--check"))?;
            return Ok(ExitCode::SUCCESS);
        }
        ["dist", language] => return dist(&workspace, language),
        ["demo", options @ ..] => return demo::run(&workspace, options),
        ["soak", words @ ..] => return soak::run(&workspace, words),
        ["sim", options @ ..] => return sim(&workspace, options),
        ["bench", name, words @ ..] => {
            return bench::run(&workspace, name, words).map(|()| ExitCode::SUCCESS);
        }
        ["tidy"] => return tidy::run(&workspace).map(|()| ExitCode::SUCCESS),
        ["ci"] => return ci::run(&workspace),
        ["check"] => check::run(&workspace, &mut report),
        ["test"] => parts::run(&workspace, &mut report, None)?,
        ["test", part] => parts::run(&workspace, &mut report, Some(part))?,
        ["interop", "vectors"] => {
            report.tests("interop vectors", || interop::renew_vectors(&workspace));
        }
        ["interop", "vectors", "--check"] => {
            interop::run(&workspace, &mut report, "vectors")?;
        }
        ["interop", "partitioners"] => {
            report.tests("interop partitioners", || interop::renew_partitioners(&workspace));
        }
        ["interop", "partitioners", "--check"] => {
            interop::run(&workspace, &mut report, "partitioners")?;
        }
        ["interop", "batches"] => {
            report.tests("interop batches", || interop::renew_batches(&workspace));
        }
        ["interop", "batches", "--check"] => {
            interop::run(&workspace, &mut report, "batches")?;
        }
        ["interop", "diff", options @ ..] => interop::diff(&workspace, &mut report, options)?,
        ["interop", name] => interop::run(&workspace, &mut report, name)?,
        _ => return Err(USAGE.into()),
    }
    Ok(report.finish())
}

fn sim(workspace: &Workspace, options: &[&str]) -> Done<ExitCode> {
    let run = workspace.cargo("run").args(["--quiet", "--profile", "sim"]);
    let run = run.args(["--package", "ottla-testkit", "--"]);
    let finished = run.args(options).limit(SIM_LIMIT).finish()?;
    Ok(if finished.status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn dist(workspace: &Workspace, language: &str) -> Done<ExitCode> {
    let built = match language {
        "python" => dist::python::run(workspace)?,
        "node" => dist::node::run(workspace)?,
        "c" => dist::c::run(workspace)?,
        _ => return Err(format!("no such language: {language}; python, node or c").into()),
    };
    println!("{}", built.display());
    Ok(ExitCode::SUCCESS)
}

/// Prints a line for the developer at the terminal.
#[allow(clippy::print_stderr, reason = "why a command did not run, apart from its output")]
fn say(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_ask_for_help_begins_nothing() {
        for words in [&["--help"][..], &["-h"], &["no-such-command", "--help"], &["dist", "-h"]] {
            assert_eq!(run(words).expect("help"), ExitCode::SUCCESS, "{words:?}");
        }
        run(&["no-such-command"]).expect_err("there is none");
    }
}
