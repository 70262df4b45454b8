//! A consumer's options, typed and checked against each other.

use std::sync::Arc;
use std::time::Duration;

use super::duration::iso8601_millis;
use super::options::Options;
use super::resolved::{CommonConfig, note_foreign};
use super::table::OptionScope;
use crate::error::{Error, ErrorKind};
use crate::state::assignor::Strategy;
use crate::state::metadata::NameWatch;

/// Where to begin without a committed offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    /// Behind the last record.
    Latest,
    /// At the first record.
    Earliest,
    /// So many milliseconds before now (KIP-1106).
    Before(i64),
    /// Nowhere: the application must say.
    None,
}

/// What a consumer needs to know.
#[derive(Debug, Clone)]
pub(crate) struct ConsumerConfig {
    /// What every client needs to know.
    pub(crate) common: CommonConfig,
    /// `group.id`; an empty one is none.
    pub(crate) group: Option<Arc<str>>,
    /// `group.instance.id`.
    pub(crate) instance_id: Option<Arc<str>>,
    /// `auto.offset.reset`.
    pub(crate) reset: Reset,
    /// `enable.auto.commit`.
    pub(crate) auto_commit: bool,
    /// `acknowledgement.mode`: whether the program says of each record when it is finished.
    pub(crate) explicit: bool,
    /// `auto.commit.interval.ms`.
    pub(crate) auto_commit_interval: Duration,
    /// `partition.assignment.strategy`, the preferred first.
    pub(crate) strategies: Vec<Strategy>,
    /// `session.timeout.ms`.
    pub(crate) session_timeout: Duration,
    /// `heartbeat.interval.ms`.
    pub(crate) heartbeat_interval: Duration,
    /// `max.poll.interval.ms`.
    pub(crate) poll_interval: Duration,
    /// `max.poll.records`.
    pub(crate) poll_records: usize,
    /// `fetch.min.bytes`.
    pub(crate) fetch_bytes_min: i32,
    /// `fetch.max.bytes`.
    pub(crate) fetch_bytes_max: usize,
    /// `max.partition.fetch.bytes`.
    pub(crate) partition_bytes_max: usize,
    /// `fetch.max.wait.ms`.
    pub(crate) fetch_wait_max: Duration,
    /// `fetch.buffer.memory`.
    pub(crate) memory_bytes: usize,
    /// `isolation.level`.
    pub(crate) read_committed: bool,
    /// Which names a pattern is held against: `exclude.internal.topics`.
    pub(crate) patterns_see: NameWatch,
    /// `check.crcs`.
    pub(crate) check_crcs: bool,
    /// `client.rack`; empty if not set.
    pub(crate) rack: Arc<str>,
    /// `default.api.timeout.ms`.
    pub(crate) api_timeout: Duration,
}

impl ConsumerConfig {
    /// Whether a group that this client leads is to follow racks that change: it stands in one, and
    /// may be asked to share out by them.
    pub(crate) fn minds_racks(&self) -> bool {
        let by_racks = |strategy: &Strategy| *strategy != Strategy::RoundRobin;
        !self.rack.is_empty() && self.strategies.iter().any(by_racks)
    }

    /// From the options; those of other kinds of clients are passed over with a log line.
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        note_foreign(options, OptionScope::Consumer);
        let group = text_if_any(options, "group.id");
        let keeps_racks = group.is_some();
        let config = Self {
            common: CommonConfig { keeps_racks, ..CommonConfig::new(options, false)? },
            group,
            instance_id: text_if_any(options, "group.instance.id"),
            reset: reset(options.text("auto.offset.reset")?)?,
            auto_commit: options.bool("enable.auto.commit")?,
            explicit: options.text("acknowledgement.mode")? == "explicit",
            auto_commit_interval: options.duration("auto.commit.interval.ms")?,
            strategies: strategies(options.text("partition.assignment.strategy")?)?,
            session_timeout: options.duration("session.timeout.ms")?,
            heartbeat_interval: options.duration("heartbeat.interval.ms")?,
            poll_interval: options.duration("max.poll.interval.ms")?,
            poll_records: options.number_if_set("max.poll.records")?.unwrap_or(usize::MAX),
            fetch_bytes_min: options.number("fetch.min.bytes")?,
            fetch_bytes_max: options.number("fetch.max.bytes")?,
            partition_bytes_max: options.number("max.partition.fetch.bytes")?,
            fetch_wait_max: options.duration("fetch.max.wait.ms")?,
            memory_bytes: options.number("fetch.buffer.memory")?,
            read_committed: read_committed(options)?,
            patterns_see: if options.bool("exclude.internal.topics")? {
                NameWatch::Ordinary
            } else {
                NameWatch::All
            },
            check_crcs: options.bool("check.crcs")?,
            rack: Arc::from(options.text("client.rack")?),
            api_timeout: options.duration("default.api.timeout.ms")?,
        };
        if config.heartbeat_interval >= config.session_timeout {
            let text = format!(
                "`heartbeat.interval.ms` is {}, but must be below `session.timeout.ms`, {}",
                config.heartbeat_interval.as_millis(),
                config.session_timeout.as_millis()
            );
            return Err(Error::new(ErrorKind::InvalidOption, text));
        }
        Ok(config)
    }
}

/// Whether only committed records are asked for, which is refused: a reader must be able to trust
/// it, and it is not proven yet.
fn read_committed(options: &Options) -> Result<bool, Error> {
    if options.text("isolation.level")? != "read_committed" {
        return Ok(false);
    }
    let text = "`isolation.level` cannot be read_committed yet: transactions are not supported";
    Err(Error::new(ErrorKind::InvalidOption, text)
        .with_hint("read_uncommitted reads all records, those of aborted transactions too"))
}

/// The strategies that a text names, each once.
fn strategies(text: &str) -> Result<Vec<Strategy>, Error> {
    let invalid = |text| Error::new(ErrorKind::InvalidOption, text);
    let mut strategies = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let Some(strategy) = Strategy::from_name(name) else {
            let known = Strategy::ALL.map(Strategy::name).join(", ");
            let text =
                format!("`partition.assignment.strategy` takes some of {known}, not `{name}`");
            return Err(invalid(text));
        };
        if strategies.contains(&strategy) {
            return Err(invalid(format!("`partition.assignment.strategy` has `{name}` twice")));
        }
        strategies.push(strategy);
    }
    if strategies.is_empty() {
        return Err(invalid("`partition.assignment.strategy` names none".to_owned()));
    }
    Ok(strategies)
}

fn text_if_any(options: &Options, name: &str) -> Option<Arc<str>> {
    options.get(name).filter(|text| !text.is_empty()).map(Arc::from)
}

fn reset(text: &str) -> Result<Reset, Error> {
    let before = |rest| iso8601_millis(rest).map(Reset::Before);
    let found = match text {
        "earliest" => Some(Reset::Earliest),
        "latest" => Some(Reset::Latest),
        "none" => Some(Reset::None),
        other => other.strip_prefix("by_duration:").and_then(before),
    };
    found.ok_or_else(|| {
        let text = format!("`auto.offset.reset` does not take `{text}`");
        Error::new(ErrorKind::InvalidOption, text)
    })
}
