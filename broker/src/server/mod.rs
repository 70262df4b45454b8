//! Sockets: accepting, reading frames, and sending answers in order.

pub(crate) mod budget;
pub(crate) mod buffers;
pub(crate) mod connection;
pub(crate) mod dispatch;
pub(crate) mod hangup;
pub(crate) mod inbound;
pub(crate) mod listener;
pub(crate) mod outbound;
pub(crate) mod outbox;
