//! The machines: every decision of the broker, without sockets, files or a clock.

pub(crate) mod leader;
pub(crate) mod waiting;
