//! Takes the Rust of README.md out of it, for `examples/readme/readme.rs` to hold.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

const README: &str = "../../README.md";
const BEGIN: &str = "```rust\n";
const END: &str = "```\n";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={README}");
    let text = fs::read_to_string(README)?;
    let mut program = String::from("{\n");
    for block in text.split(BEGIN).skip(1) {
        program += block.split(END).next().ok_or("a block without an end")?;
    }
    program += "}\n";
    fs::write(Path::new(&env::var("OUT_DIR")?).join("readme.rs"), program)?;
    Ok(())
}
