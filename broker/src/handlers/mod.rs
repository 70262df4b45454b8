//! One file an API: from a decoded request to an answer, or to a place where it waits for one.

pub(crate) mod api_versions;
pub(crate) mod fetch;
pub(crate) mod list_offsets;
pub(crate) mod metadata;
pub(crate) mod produce;
