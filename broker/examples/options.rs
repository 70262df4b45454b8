//! Prints the table of the broker's options, one row a line, columns apart by tabs.
//!
//! `cargo xtask codegen` reads this and writes `docs/broker-options.md`.
#![allow(clippy::print_stdout, reason = "printing is its purpose")]

use ottla_broker::{OPTIONS, OptionKind};

fn main() {
    for row in OPTIONS {
        println!("broker\t{}\t{}\t{}\t{}", row.name, values(row.kind), row.default, row.doc);
    }
}

fn values(kind: OptionKind) -> String {
    match kind {
        OptionKind::Flag => "`true`, `false`".to_owned(),
        OptionKind::Number(min, max) | OptionKind::OptionalNumber(min, max) => {
            format!("{min} … {max}")
        }
        OptionKind::Choice(words) => format!("`{}`", words.join("`, `")),
        OptionKind::List(words) => format!("some of `{}`, by commas", words.join("`, `")),
        OptionKind::Ratio => "0 … 1".to_owned(),
        OptionKind::Replicas => "`*`, or `PARTITION:BROKER` by commas".to_owned(),
        OptionKind::Folder => "path".to_owned(),
        OptionKind::Address | OptionKind::Listener => "`HOST:PORT`".to_owned(),
    }
}
