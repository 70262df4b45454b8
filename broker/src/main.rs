//! The broker as one program.

fn main() {}
