//! An admin client's options, typed.

use std::time::Duration;

use super::options::Options;
use super::resolved::{CommonConfig, note_foreign};
use super::table::OptionScope;
use crate::error::Error;

/// What an admin client needs to know.
#[derive(Debug, Clone)]
pub(crate) struct AdminConfig {
    /// What every client needs to know.
    pub(crate) common: CommonConfig,
    /// `default.api.timeout.ms`.
    pub(crate) api_timeout: Duration,
    /// `admin.calls.max`.
    pub(crate) calls_max: usize,
}

impl AdminConfig {
    /// From the options; those of other kinds of clients are passed over with a log line.
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        note_foreign(options, OptionScope::Admin);
        Ok(Self {
            common: CommonConfig::new(options, false)?,
            api_timeout: options.duration("default.api.timeout.ms")?,
            calls_max: options.number("admin.calls.max")?,
        })
    }
}
