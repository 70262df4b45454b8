//! A broker that speaks the Apache Kafka protocol.
//!
//! [`Broker::start`] runs one in the caller's process; the program `ottla-broker` is a thin shell
//! around it. Clients of any language talk to it over its port, as they do to Apache Kafka.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use ottla_broker::{Broker, BrokerConfig};
//!
//! let broker = Broker::start(BrokerConfig::new().set("num.partitions", "3")?)?;
//! println!("bootstrap.servers={}", broker.bootstrap());
//! broker.create_topic("orders", 3)?;
//! broker.stop(Broker::STOP_DEADLINE)?;
//! # Ok(()) }
//! ```

mod broker;
mod config;
mod driver;
mod handlers;
mod node;
mod server;
mod state;

/// For our own simulator alone.
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim {
    pub use crate::broker::sim::{SimBroker, SimDisk, SimLink, SimRecord, SimRemains};
    pub use crate::driver::clock::{SimWorld, enter};
}

pub use broker::{Broker, BrokerError};
pub use config::{BrokerConfig, OPTIONS, OptionError, OptionKind, OptionRow};
#[doc(hidden)]
pub use driver::signals::StopSignals;
pub use server::counts::ReadStats;
