//! The machines: every decision of the broker, without sockets, files or a clock.

pub(crate) mod configs;
pub(crate) mod connections;
pub(crate) mod fetch_sessions;
pub(crate) mod group;
pub(crate) mod group_records;
pub(crate) mod groups;
pub(crate) mod hash;
pub(crate) mod leader;
pub(crate) mod metadata;
pub(crate) mod metadata_records;
pub(crate) mod offsets;
pub(crate) mod topics;
pub(crate) mod waiting;
