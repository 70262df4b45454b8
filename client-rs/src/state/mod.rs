//! The client's decisions: machines that are given answers and the time, and asked what to do.
//!
//! Nothing here opens a socket, reads a clock or starts a thread.

pub(crate) mod accumulator;
pub(crate) mod admin;
pub(crate) mod assignor;
pub(crate) mod backoff;
pub(crate) mod cluster;
#[cfg(test)]
mod codes;
pub(crate) mod commits;
pub(crate) mod completion;
pub(crate) mod coordinator;
pub(crate) mod fetcher;
pub(crate) mod guard;
pub(crate) mod hash;
pub(crate) mod lookups;
pub(crate) mod machine;
pub(crate) mod membership;
pub(crate) mod metadata;
pub(crate) mod offsets;
#[cfg(all(test, ottla_loom))]
mod orders;
pub(crate) mod pace;
pub(crate) mod parker;
pub(crate) mod sender;
pub(crate) mod sync;
pub(crate) mod token;
pub(crate) mod unfinished;
pub(crate) mod wake;
