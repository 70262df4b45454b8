//! Options: one table of names, types, defaults and texts, and the values a program has set.

mod absent;
mod admin;
mod consumer;
mod duration;
mod options;
mod resolved;
mod table;
#[cfg(test)]
mod tests;

pub use options::Options;
pub use table::{OPTIONS, OptionRow, OptionScope, OptionType};

pub(crate) use admin::AdminConfig;
pub(crate) use consumer::{ConsumerConfig, Reset};
pub(crate) use options::Address;
pub(crate) use resolved::{CommonConfig, ProducerConfig};
