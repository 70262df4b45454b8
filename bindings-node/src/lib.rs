//! Ottla for Node: the native half of the package `ottla`.
//!
//! It borrows what JavaScript gives, calls the core, and hands results over in arrays, a batch at a
//! time. Classes, promises and iterators that users see are in `lib/*.js`.
#![cfg_attr(
    test,
    allow(
        dead_code,
        unused,
        reason = "napi exports nothing under test; JavaScript tests all of it"
    )
)]
#![allow(unreachable_pub, reason = "napi exports public methods alone")]
#![allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "what a method gives back lives as long as the environment that was lent to it"
)]

mod boundary;
mod broker;
mod config;
mod consumer;
mod error;
mod log;
mod producer;
mod record;
mod signal;
mod wait;
