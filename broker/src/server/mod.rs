//! Sockets: accepting, reading frames, and sending answers in order.

pub(crate) mod budget;
pub(crate) mod buffers;
pub(crate) mod connection;
pub(crate) mod counts;
pub(crate) mod dispatch;
pub(crate) mod first_bytes;
pub(crate) mod hangup;
pub(crate) mod inbound;
pub(crate) mod listener;
pub(crate) mod outbound;
pub(crate) mod outbox;
pub(crate) mod page_cache;
pub(crate) mod sending;
