//! What each language's face is generated from: the client's tables of options and error kinds.
//!
//! The tables are read by running a program of the client, so this command depends on no part of
//! the product and the definitions of the wire format can always be mended first.

#![allow(clippy::format_push_string, reason = "short texts, built once in a while")]

mod c;
mod docs;
mod node;
mod python;

use std::fs;

use crate::outcome::{Doing, Done, Stop};
use crate::workspace::{Workspace, write};

/// One option of the client.
#[derive(Debug)]
struct Opt {
    kafka: String,
    short: String,
    scope: String,
    kind: String,
    range: Option<(String, String)>,
    choices: Vec<String>,
    default: Option<String>,
    doc: String,
}

/// One kind of error.
#[derive(Debug)]
struct Kind {
    number: u16,
    name: String,
    class: String,
    doc: String,
}

/// One option of the broker.
#[derive(Debug)]
struct BrokerOpt {
    name: String,
    values: String,
    default: String,
    doc: String,
}

/// All tables.
#[derive(Debug, Default)]
struct Tables {
    options: Vec<Opt>,
    kinds: Vec<Kind>,
    broker: Vec<BrokerOpt>,
}

type Render = fn(&Tables) -> String;

/// Each generated file and what makes its text.
const FILES: &[(&str, Render)] = &[
    ("docs/options.md", docs::options),
    ("docs/errors.md", docs::errors),
    ("docs/broker-options.md", docs::broker_options),
    ("bindings-c/src/error_code.rs", c::error_code),
    ("bindings-python/python/ottla/_errors.py", python::errors),
    ("bindings-python/python/ottla/_options.py", python::options),
    ("bindings-node/lib/options.d.ts", node::options),
    ("bindings-node/lib/errors.d.ts", node::errors),
];

/// Files that a program prints whole: the path, its package, its name.
const PRINTED: &[(&str, &str, &str)] = &[("bindings-c/include/ottla.h", "ottla-c", "header")];

/// Writes the files, or with `check` fails if one differs from what stands there.
pub(crate) fn run(workspace: &Workspace, check: bool) -> Done {
    let tables = fetch(workspace)?;
    let mut differ = Vec::new();
    for (path, render) in FILES {
        settle(workspace, path, &render(&tables), check, &mut differ)?;
    }
    for (path, package, example) in PRINTED {
        let text = print(workspace, package, example)?.join("\n") + "\n";
        settle(workspace, path, &text, check, &mut differ)?;
    }
    if differ.is_empty() {
        return Ok(());
    }
    Err(format!("not as generated: {}; run cargo xtask codegen", differ.join(", ")).into())
}

/// Writes one file if it is not as it should be, or with `check` only notes that.
fn settle(ws: &Workspace, path: &str, text: &str, check: bool, differ: &mut Vec<String>) -> Done {
    let full = ws.root.join(path);
    if fs::read_to_string(&full).is_ok_and(|present| present == text) {
        return Ok(());
    }
    if check {
        differ.push(path.to_owned());
        return Ok(());
    }
    let folder = full.parent().unwrap_or(&ws.root);
    fs::create_dir_all(folder).doing(format_args!("cannot make {}", folder.display()))?;
    write(&full, text)?;
    println!("wrote {path}");
    Ok(())
}

/// What an example of ours prints on its standard output.
fn print(workspace: &Workspace, package: &str, example: &str) -> Done<Vec<String>> {
    let print = ["--quiet", "--package", package, "--example", example];
    workspace.cargo("run").args(print).silent().check()
}

fn fetch(workspace: &Workspace) -> Done<Tables> {
    let mut lines = Vec::new();
    for (package, program) in [("ottla", "tables"), ("ottla-broker", "options")] {
        lines.extend(print(workspace, package, program)?);
    }
    parse(&lines)
}

fn parse(lines: &[String]) -> Done<Tables> {
    let mut tables = Tables::default();
    for line in lines {
        let columns: Vec<&str> = line.split('\t').collect();
        match columns.as_slice() {
            ["option", kafka, short, scope, kind, min, max, choices, given, default, doc] => {
                let range = (!min.is_empty()).then(|| ((*min).to_owned(), (*max).to_owned()));
                let choices = choices.split(',').filter(|word| !word.is_empty());
                tables.options.push(Opt {
                    kafka: (*kafka).to_owned(),
                    short: (*short).to_owned(),
                    scope: (*scope).to_owned(),
                    kind: (*kind).to_owned(),
                    range,
                    choices: choices.map(str::to_owned).collect(),
                    default: (*given == "default").then(|| (*default).to_owned()),
                    doc: (*doc).to_owned(),
                });
            }
            ["error", number, name, class, doc] => tables.kinds.push(Kind {
                number: number.parse().map_err(|_| format!("not a number: {line}"))?,
                name: (*name).to_owned(),
                class: (*class).to_owned(),
                doc: (*doc).to_owned(),
            }),
            ["broker", name, values, default, doc] => tables.broker.push(BrokerOpt {
                name: (*name).to_owned(),
                values: (*values).to_owned(),
                default: (*default).to_owned(),
                doc: (*doc).to_owned(),
            }),
            // Compiler notes come on the same stream; a row cut short must not pass for one.
            ["option" | "error" | "broker", ..] => {
                return Err(Stop::Failed(format!("cut short: {line}")));
            }
            _ => {}
        }
    }
    if tables.options.is_empty() || tables.kinds.is_empty() || tables.broker.is_empty() {
        return Err("client or broker printed no table".into());
    }
    Ok(tables)
}

impl Opt {
    /// Kafka's name with underscores, as a keyword argument can be written.
    fn kafka_snake(&self) -> String {
        self.kafka.replace('.', "_")
    }

    /// Every name it has in snake case: ours first, Kafka's if it is another.
    fn snake_names(&self) -> Vec<String> {
        let mut names = vec![self.short.clone(), self.kafka_snake()];
        names.dedup();
        names
    }

    /// Unit, default and range in words.
    fn terms(&self) -> String {
        let unit = match self.kind.as_str() {
            "millis" => " ms",
            "bytes" => " bytes",
            _ => "",
        };
        let default = match self.default.as_deref() {
            None => "Not set by default".to_owned(),
            Some("") => "Default: empty".to_owned(),
            Some(default) => format!("Default {default}{unit}"),
        };
        match &self.range {
            None => format!("{default}."),
            Some((min, max)) => format!("{default}; from {min} to {max}."),
        }
    }
}

/// `auto_commit` or `auto.commit` as `autoCommit`.
fn camel(name: &str) -> String {
    let mut out = String::new();
    for part in name.split(['_', '.']) {
        let mut letters = part.chars();
        match letters.next() {
            Some(first) if !out.is_empty() => out.extend(first.to_uppercase()),
            Some(first) => out.push(first),
            None => {}
        }
        out.push_str(letters.as_str());
    }
    out
}

/// `InvalidOption` as `INVALID_OPTION`.
fn upper(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_uppercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<String> {
        [
            "option\tgroup.id\tgroup\tconsumer\ttext\t\t\t\tnone\t\tThe group's name.",
            "option\tlinger.ms\tlinger\tproducer\tmillis\t0\t2147483647\t\tdefault\t5\tWaits.",
            "option\tacks\tacks\tproducer\tchoice\t\t\tall,1,0\tdefault\tall\tWho has it.",
            "error\t1\tInvalidOption\tUsage\tNo such option.",
            "error\t30\tConnect\tRetriable\tNo connection.",
            "broker\tnum.partitions\t1 … 9\t1\tPartitions of a new topic.",
        ]
        .map(str::to_owned)
        .into()
    }

    #[test]
    fn both_tables_are_read_and_a_row_cut_short_is_refused() {
        let tables = parse(&rows()).unwrap();
        assert_eq!(tables.options.len(), 3);
        assert_eq!(tables.options[1].terms(), "Default 5 ms; from 0 to 2147483647.");
        assert_eq!(tables.options[0].terms(), "Not set by default.");
        assert_eq!(tables.kinds[1].number, 30);
        assert!(parse(&rows()[..3]).is_err());
        assert!(parse(&["option\tx".to_owned()]).is_err());
    }

    #[test]
    fn names_take_each_language_s_form() {
        assert_eq!(camel("auto_commit_interval"), "autoCommitInterval");
        assert_eq!(camel("max.block.ms"), "maxBlockMs");
        assert_eq!(upper("RecordTooLarge"), "RECORD_TOO_LARGE");
        let tables = parse(&rows()).unwrap();
        assert_eq!(tables.options[0].snake_names(), ["group", "group_id"]);
        assert_eq!(tables.options[2].snake_names(), ["acks"]);
    }

    #[test]
    fn every_file_names_every_row_that_belongs_in_it() {
        let tables = parse(&rows()).unwrap();
        for (path, render) in FILES {
            let text = render(&tables);
            assert!(text.contains("generated by cargo xtask codegen"), "{path}");
            let names: &[&str] = match () {
                () if path.contains("error_code") => &["INVALID_OPTION = 1", "CONNECT = 30"],
                () if path.contains("error") => &["InvalidOption", "Connect"],
                () if path.contains("broker") => &["num.partitions"],
                () if path.contains("node") => &["groupId?", "linger?", "acks?"],
                () => &["group", "linger", "acks"],
            };
            for name in names {
                assert!(text.contains(name), "{path} lacks {name}");
            }
        }
    }
}
