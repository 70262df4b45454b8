//! A crate needs a source; what it is for stands in its Cargo.toml.
