//! Ottla for C: what `include/ottla.h` declares.
//!
//! A function is three moves: check and borrow what C gives, call the core, wrap what comes out. The
//! doc comment of a function is that of the header, where it says what C must hold to; that is also
//! what each function's safety rests on.
#![allow(non_camel_case_types, reason = "these are the names in C")]
#![allow(clippy::missing_safety_doc, reason = "the doc comments are the header's, for C")]

pub mod batch;
mod boundary;
pub mod broker;
pub mod committed;
mod config;
pub mod consumer;
pub mod error;
pub mod error_code;
mod handle;
pub mod log;
pub mod offsets;
pub mod producer;
pub mod record;
pub mod reports;
mod role;
pub mod sent;
mod signal;
pub mod version;
