//! A topic's options: the broker's defaults with the topic's own over them.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_protocol::record::{Codec, Compression, TimestampType};
use ottla_storage::{AppendRules, LogConfig, Retention};

use super::table::OptionKind::{self, Choice, Flag, List, Number};
use super::table::{COMPRESSION_TYPE, GZIP_LEVEL};
use super::{BrokerConfig, OptionError, Settings};

const INT: i64 = 2_147_483_647;
const LONG: i64 = i64::MAX;

/// Kafka's topic options that may be set here, what they take, and their default where no option of
/// the broker gives one. Sorted by name.
///
/// Those of compaction, and flush.messages and flush.ms, are kept and shown, and have no effect yet.
#[rustfmt::skip]
const TOPIC_OPTIONS: &[(&str, OptionKind, &str)] = &[
    ("cleanup.policy", List(&["delete", "compact"]), ""),
    ("compression.gzip.level", GZIP_LEVEL, ""),
    ("compression.lz4.level", Number(1, 17), ""),
    ("compression.type", COMPRESSION_TYPE, ""),
    ("compression.zstd.level", Number(-131_072, 22), ""),
    ("delete.retention.ms", Number(0, LONG), "86400000"),
    ("file.delete.delay.ms", Number(0, LONG), ""),
    ("flush.messages", Number(1, LONG), "9223372036854775807"),
    ("flush.ms", Number(0, LONG), "9223372036854775807"),
    ("index.interval.bytes", Number(0, INT), ""),
    ("max.compaction.lag.ms", Number(1, LONG), "9223372036854775807"),
    ("max.decompressed.message.bytes", Number(1, 2_147_483_639), ""),
    ("max.message.bytes", Number(0, INT), ""),
    ("message.timestamp.after.max.ms", Number(0, LONG), ""),
    ("message.timestamp.before.max.ms", Number(0, LONG), ""),
    ("message.timestamp.type", Choice(&["CreateTime", "LogAppendTime"]), ""),
    ("min.compaction.lag.ms", Number(0, LONG), "0"),
    ("min.insync.replicas", Number(1, INT), ""),
    ("preallocate", Flag, "false"),
    ("retention.bytes", Number(-1, LONG), ""),
    ("retention.ms", Number(-1, LONG), ""),
    ("segment.bytes", Number(1_048_576, INT), ""),
    ("segment.index.bytes", Number(4, INT), ""),
    ("segment.jitter.ms", Number(0, LONG), ""),
    ("segment.ms", Number(1, LONG), ""),
    ("unclean.leader.election.enable", Flag, "false"),
];

/// A topic's options, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicConfig {
    /// What a produced batch must keep to.
    pub(crate) rules: AppendRules,
    /// How its logs are kept.
    pub(crate) log: LogConfig,
    /// `min.insync.replicas`.
    pub(crate) min_insync_replicas: usize,
    /// `retention.ms` and `retention.bytes`, if `cleanup.policy` has `delete`.
    pub(crate) retention: Option<Retention>,
    /// `file.delete.delay.ms`.
    pub(crate) file_delete_delay: Duration,
}

/// An option as a topic has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EffectiveOption {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its value.
    pub(crate) value: String,
    /// Where the value comes from, in Kafka's numbers: see `ConfigSource`.
    pub(crate) source: i8,
}

/// The topic's own.
const SOURCE_TOPIC: i8 = 1;
/// An option that this broker was started with.
const SOURCE_BROKER: i8 = 4;
/// Kafka's default.
const SOURCE_DEFAULT: i8 = 5;

impl TopicConfig {
    /// The broker's options alone.
    pub(crate) fn broker_default(settings: &Settings) -> Self {
        Self::from_values(settings, &defaults(settings))
    }

    /// All options of a topic, by name, as they are with its own; those must have been checked.
    pub(crate) fn effective<'a>(
        settings: &Settings,
        own: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Vec<EffectiveOption> {
        let unset = defaults(&BrokerConfig::new().settings());
        let own: BTreeMap<_, _> = own.into_iter().collect();
        let options = defaults(settings).into_iter().map(|(name, value)| match own.get(name) {
            Some(own) => {
                EffectiveOption { name, value: own.trim().to_owned(), source: SOURCE_TOPIC }
            }
            None if unset.get(name) == Some(&value) => {
                EffectiveOption { name, value, source: SOURCE_DEFAULT }
            }
            None => EffectiveOption { name, value, source: SOURCE_BROKER },
        });
        options.collect()
    }

    /// Resolves a topic's own options over the broker's defaults.
    ///
    /// An error for a name or a value that is none.
    pub(crate) fn resolve<'a>(
        settings: &Settings,
        own: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, OptionError> {
        let mut values = defaults(settings);
        for (name, value) in own {
            let (name, value) = check(name, value)?;
            values.insert(name, value.to_owned());
        }
        Ok(Self::from_values(settings, &values))
    }

    fn from_values(settings: &Settings, values: &BTreeMap<&str, String>) -> Self {
        let text = |name| values.get(name).map(String::as_str).unwrap_or_default();
        // All values were checked when they were set.
        let long = |name| text(name).parse::<i64>().unwrap_or_default();
        let size = |name| usize::try_from(long(name)).unwrap_or(usize::MAX);
        let bytes = |name| u64::try_from(long(name)).unwrap_or(u64::MAX);
        let timestamp_type = match text("message.timestamp.type") {
            "LogAppendTime" => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        };
        let policy = |name| text("cleanup.policy").split(',').any(|policy| policy.trim() == name);
        let compacted = policy("compact");
        let retention = Retention {
            ms: Some(long("retention.ms")).filter(|ms| *ms >= 0),
            bytes: u64::try_from(long("retention.bytes")).ok(),
        };
        Self {
            rules: AppendRules {
                max_message_bytes: size("max.message.bytes"),
                timestamp_type,
                timestamp_before_max_ms: long("message.timestamp.before.max.ms"),
                timestamp_after_max_ms: long("message.timestamp.after.max.ms"),
                compacted,
                segment_bytes: size("segment.bytes"),
                strict: settings.validates_strictly(),
                max_decompressed_bytes: size("max.decompressed.message.bytes"),
                compression: stored_codec(values),
            },
            log: LogConfig {
                segment_bytes: bytes("segment.bytes"),
                segment_ms: long("segment.ms"),
                segment_jitter_ms: long("segment.jitter.ms"),
                index_interval_bytes: bytes("index.interval.bytes"),
                segment_index_bytes: bytes("segment.index.bytes"),
                producer_id_expiration_ms: settings.producer_id_expiration_ms(),
                timestamp_type,
            },
            min_insync_replicas: size("min.insync.replicas"),
            retention: policy("delete").then_some(retention),
            file_delete_delay: Duration::from_millis(bytes("file.delete.delay.ms")),
        }
    }
}

/// The codec that batches are stored in; `None` leaves them as the producer sent them.
fn stored_codec(values: &BTreeMap<&str, String>) -> Option<Codec> {
    let text = |name| values.get(name).map(String::as_str).unwrap_or_default();
    let (compression, level) = match text("compression.type") {
        "uncompressed" => (Compression::None, ""),
        "gzip" => (Compression::Gzip, "compression.gzip.level"),
        "snappy" => (Compression::Snappy, ""),
        "lz4" => (Compression::Lz4, "compression.lz4.level"),
        "zstd" => (Compression::Zstd, "compression.zstd.level"),
        _ => return None,
    };
    let leveled =
        text(level).parse().ok().and_then(|level| Codec::with_level(compression, level).ok());
    Some(leveled.unwrap_or_else(|| Codec::new(compression)))
}

/// What every option is for a topic that sets none itself.
fn defaults(settings: &Settings) -> BTreeMap<&'static str, String> {
    let rows = TOPIC_OPTIONS.iter().map(|(name, kind, default)| {
        debug_assert!(kind.takes(default) || default.is_empty(), "{name}");
        (*name, settings.topic_default(name).unwrap_or_else(|| (*default).to_owned()))
    });
    rows.collect()
}

/// The option's own name and the trimmed value, if both are what they should be.
fn check<'a>(name: &str, value: &'a str) -> Result<(&'static str, &'a str), OptionError> {
    let Some((name, kind, _)) = TOPIC_OPTIONS.iter().find(|(known, ..)| *known == name) else {
        let nearest = super::nearest::nearest(name, TOPIC_OPTIONS.iter().map(|(known, ..)| *known));
        return Err(OptionError::Unknown { name: name.to_owned(), nearest });
    };
    let value = value.trim();
    if kind.takes(value) {
        return Ok((name, value));
    }
    Err(OptionError::Value { name, value: value.to_owned(), expected: kind.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BrokerConfig;

    #[test]
    fn own_options_go_over_the_brokers_and_those_over_kafkas() {
        let config = BrokerConfig::new().set("message.max.bytes", "5000").expect("an option");
        let settings = config.settings();
        let config = TopicConfig::resolve(&settings, []).expect("defaults");
        assert_eq!(config.rules.max_message_bytes, 5000);
        assert_eq!(config.log.segment_bytes, 1 << 30);
        assert!(!config.rules.compacted);
        let own = [("max.message.bytes", "7000"), ("cleanup.policy", "compact,delete")];
        let config = TopicConfig::resolve(&settings, own).expect("options");
        assert_eq!(config.rules.max_message_bytes, 7000);
        assert!(config.rules.compacted);
    }

    #[test]
    fn the_stored_codec_and_its_level_are_the_topics_over_the_brokers() {
        let stored = |broker: &[(&str, &str)], own: &[(&str, &str)]| {
            let config = broker
                .iter()
                .try_fold(BrokerConfig::new(), |config, (name, value)| config.set(name, value));
            let settings = config.expect("options").settings();
            let own = own.iter().copied();
            TopicConfig::resolve(&settings, own).expect("options").rules.compression
        };
        assert_eq!(stored(&[], &[]), None);
        assert_eq!(
            stored(&[], &[("compression.type", "uncompressed")]),
            Some(Codec::new(Compression::None))
        );
        let zstd = [("compression.type", "zstd"), ("compression.zstd.level", "-7")];
        let leveled = Codec::with_level(Compression::Zstd, -7).ok();
        assert_eq!(stored(&[], &zstd), leveled);
        assert_eq!(stored(&zstd, &[]), leveled);
        assert_eq!(stored(&zstd, &[("compression.type", "producer")]), None);
        assert_eq!(
            stored(&zstd, &[("compression.type", "gzip")]),
            Some(Codec::new(Compression::Gzip))
        );
        let settings = BrokerConfig::new().settings();
        for (name, value) in [
            ("compression.type", "none"),
            ("compression.gzip.level", "0"),
            ("compression.lz4.level", "18"),
            ("compression.zstd.level", "23"),
        ] {
            assert!(TopicConfig::resolve(&settings, [(name, value)]).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn unknown_topic_option_names_the_nearest() {
        let settings = BrokerConfig::new().settings();
        let error = TopicConfig::resolve(&settings, [("segments.bytes", "1")]).expect_err("none");
        assert!(error.to_string().contains("segment.bytes"), "{error}");
        let error = TopicConfig::resolve(&settings, [("segment.bytes", "1")]).expect_err("small");
        assert!(matches!(error, OptionError::Value { name: "segment.bytes", .. }), "{error}");
    }
}
