//! What owns files, threads and the clock, and decides nothing.

pub(crate) mod aside;
pub(crate) mod clock;
pub(crate) mod collect;
pub(crate) mod controller;
pub(crate) mod coordinator;
pub(crate) mod first;
pub(crate) mod folder;
pub(crate) mod metadata_snapshot;
pub(crate) mod own_batch;
pub(crate) mod partition;
pub(crate) mod quorum;
pub(crate) mod replay;
pub(crate) mod signals;
pub(crate) mod upkeep;
pub(crate) mod writer;
