//! Producers.

pub(crate) mod partitioner;
