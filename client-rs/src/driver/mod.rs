//! What moves the machines' bytes: the I/O thread, its clients, their connections, and the clock.
//!
//! A client is a [`Machine`](crate::state::machine::Machine) on the I/O thread and a face that other
//! threads hold. The face puts what it wants where the machine looks, and calls `wake`; the machine
//! looks in its `turn`. [`start`] brings a machine there, [`ClientHandle`] tells when it has ended.

mod broker;
mod buffers;
mod client;
pub(crate) mod clock;
mod hint;
mod io_thread;
mod long;
mod signals;
#[cfg(feature = "sim")]
pub(crate) mod sim;
#[cfg(test)]
mod tests;
mod transport;
mod wire;

pub(crate) use io_thread::{ClientHandle, check_may_wait, start};

/// How this client names itself to brokers (KIP-511).
pub(crate) const SOFTWARE_NAME: &str = "ottla";
/// Which version of it it is.
pub(crate) const SOFTWARE_VERSION: &str = env!("CARGO_PKG_VERSION");
