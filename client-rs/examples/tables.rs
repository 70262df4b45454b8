//! Prints the tables of options and error kinds, one row a line, columns apart by tabs.
//!
//! `cargo xtask codegen` reads this and writes what every language's face is made of.
#![allow(clippy::print_stdout, reason = "printing is its purpose")]

use ottla::{ErrorKind, OPTIONS};

fn main() {
    for row in OPTIONS {
        let (min, max) = row
            .kind
            .range()
            .map_or_else(Default::default, |(min, max)| (min.to_string(), max.to_string()));
        let columns = [
            "option",
            row.kafka,
            row.short,
            row.scope.name(),
            row.kind.name(),
            &min,
            &max,
            &row.kind.choices().join(","),
            // An absent default and an empty one are not the same.
            if row.default.is_some() { "default" } else { "none" },
            row.default.unwrap_or_default(),
            row.doc,
        ];
        println!("{}", columns.join("\t"));
    }
    for kind in ErrorKind::ALL {
        let number = kind.number().to_string();
        let columns = ["error", &number, kind.name(), kind.class().name(), kind.doc().trim()];
        println!("{}", columns.join("\t"));
    }
}
