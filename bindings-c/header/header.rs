//! Prints `ottla.h`, made from the functions, structs and doc comments of this library.
//!
//! `cargo xtask codegen` runs it and writes the file.
#![allow(clippy::print_stdout, reason = "the header is its output")]

use std::error::Error;
use std::path::Path;

use cbindgen::{Builder, Config};

/// In the order in which a reader of the header wants them. Not the crate's root, by which each of
/// them would be read a second time.
const FILES: &[&str] = &[
    "version",
    "error_code",
    "error",
    "record",
    "sent",
    "reports",
    "producer",
    "batch",
    "consumer",
    "offsets",
    "committed",
    "broker",
    "log",
];

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_file(here.join("header/cbindgen.toml"))?;
    let mut builder = Builder::new().with_config(config);
    for file in FILES {
        builder = builder.with_src(here.join("src").join(format!("{file}.rs")));
    }
    let mut header = Vec::new();
    builder.generate()?.write(&mut header);
    print!("{}", String::from_utf8(header)?);
    Ok(())
}
