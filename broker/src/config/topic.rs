//! A topic's options: the broker's defaults with the topic's own over them.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_protocol::record::{Codec, Compression, TimestampType};
use ottla_storage::{AppendRules, LogConfig, Retention};

use super::table::OptionKind::{self, Choice, Flag, List, Number, Ratio, Replicas};
use super::table::{COMPRESSION_TYPE, GZIP_LEVEL};
use super::{OptionError, Settings};

const INT: i64 = 2_147_483_647;
const LONG: i64 = i64::MAX;
const REMOTE_STORAGE: &str = "remote.storage.enable";

/// Kafka's topic options, what they take, and their default where no option of the broker gives one.
/// Sorted by name.
///
/// Those of compaction, of storage in tiers, of throttled replicas and of share groups, flush.messages
/// and flush.ms, are kept and shown, and have no effect yet.
#[rustfmt::skip]
pub(super) const TOPIC_OPTIONS: &[TopicRow] = &[
    topic("cleanup.policy", List(&["delete", "compact"]), "", &["log.cleanup.policy"], "What becomes of old records: delete by age and size, compact by key, or both."),
    topic("compression.gzip.level", GZIP_LEVEL, "", &["compression.gzip.level"], "Level of gzip where compression.type is gzip; -1 is zlib's own choice."),
    topic("compression.lz4.level", Number(1, 17), "", &["compression.lz4.level"], "Level of lz4 where compression.type is lz4."),
    topic("compression.type", COMPRESSION_TYPE, "", &["compression.type"], "Codec of stored batches: as the producer sent them, or this one."),
    topic("compression.zstd.level", Number(-131_072, 22), "", &["compression.zstd.level"], "Level of zstd where compression.type is zstd."),
    topic("delete.retention.ms", Number(0, LONG), "86400000", &["log.cleaner.delete.retention.ms"], "How long the mark of a deleted key outlives compaction."),
    topic("errors.deadletterqueue.group.enable", Flag, "false", &[], "Whether share groups may put here what they gave up."),
    topic("file.delete.delay.ms", Number(0, LONG), "", &["log.segment.delete.delay.ms"], "How long files of old segments stay after they are given up."),
    topic("flush.messages", Number(1, LONG), "9223372036854775807", &["log.flush.interval.messages"], "Records after which a log is flushed to disk."),
    topic("flush.ms", Number(0, LONG), "9223372036854775807", &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"], "Age at which a record is flushed to disk."),
    topic("follower.replication.throttled.replicas", Replicas, "", &[], "Replicas that follow at a limited rate: PARTITION:BROKER by commas, or * for all."),
    topic("index.interval.bytes", Number(0, INT), "", &["log.index.interval.bytes"], "Bytes of records between two entries of an index."),
    topic("leader.replication.throttled.replicas", Replicas, "", &[], "Replicas that are followed at a limited rate: PARTITION:BROKER by commas, or * for all."),
    topic("local.retention.bytes", Number(-2, LONG), "-2", &["log.local.retention.bytes"], "Bytes of a partition that stay here when there are tiers; -2: as retention.bytes."),
    topic("local.retention.ms", Number(-2, LONG), "-2", &["log.local.retention.ms"], "Age at which records go from here when there are tiers; -2: as retention.ms."),
    topic("max.compaction.lag.ms", Number(1, LONG), "9223372036854775807", &["log.cleaner.max.compaction.lag.ms"], "Longest time that a record stays as it is before it may be compacted away."),
    topic("max.decompressed.message.bytes", Number(1, 2_147_483_639), "", &["max.decompressed.message.bytes"], "Most bytes of a record, decompressed, where records are looked at."),
    topic("max.message.bytes", Number(0, INT), "", &["message.max.bytes"], "Largest record batch."),
    topic("message.timestamp.after.max.ms", Number(0, LONG), "", &["log.message.timestamp.after.max.ms"], "How far a record's time may lie ahead of the broker's."),
    topic("message.timestamp.before.max.ms", Number(0, LONG), "", &["log.message.timestamp.before.max.ms"], "How far a record's time may lie behind the broker's."),
    topic("message.timestamp.type", Choice(&["CreateTime", "LogAppendTime"]), "", &["log.message.timestamp.type"], "Whose time a record carries: its producer's, or that of the append."),
    topic("min.cleanable.dirty.ratio", Ratio, "0.5", &["log.cleaner.min.cleanable.ratio"], "Part of a log that is not compacted yet at which it is."),
    topic("min.compaction.lag.ms", Number(0, LONG), "0", &["log.cleaner.min.compaction.lag.ms"], "Shortest time that a record stays as it is before it may be compacted away."),
    topic("min.insync.replicas", Number(1, INT), "", &["min.insync.replicas"], "Replicas that must be in sync for a write with acks=all."),
    topic("preallocate", Flag, "false", &["log.preallocate"], "Whether the file of a segment is made as large as it may become."),
    topic("remote.copy.lag.bytes", Number(-1, LONG), "-1", &["log.remote.copy.lag.bytes"], "Bytes that a segment waits for before it is copied to another tier; -1: as local.retention.bytes."),
    topic("remote.copy.lag.ms", Number(-1, LONG), "0", &["log.remote.copy.lag.ms"], "Time that a segment waits for before it is copied to another tier; -1: as local.retention.ms."),
    topic("remote.log.copy.disable", Flag, "false", &[], "Whether nothing more is copied to another tier."),
    topic("remote.log.delete.on.disable", Flag, "false", &[], "Whether what is in another tier goes when remote.storage.enable is taken back."),
    topic(REMOTE_STORAGE, Flag, "false", &[], "Whether old segments go to another tier: there is none."),
    topic("retention.bytes", Number(i64::MIN, LONG), "", &["log.retention.bytes"], "Bytes of a partition that stay when older segments go; -1: no limit."),
    topic("retention.ms", Number(-1, LONG), "", &["log.retention.ms", "log.retention.minutes", "log.retention.hours"], "Age at which records go; -1: never."),
    topic("segment.bytes", Number(1_048_576, INT), "", &["log.segment.bytes"], "Size at which a segment is rolled."),
    topic("segment.index.bytes", Number(4, INT), "", &["log.index.size.max.bytes"], "Most bytes of an index; a segment is rolled before."),
    topic("segment.jitter.ms", Number(0, LONG), "", &["log.roll.jitter.ms", "log.roll.jitter.hours"], "Most that is taken off the age at which a segment is rolled."),
    topic("segment.ms", Number(1, LONG), "", &["log.roll.ms", "log.roll.hours"], "Age at which a segment is rolled."),
    topic("unclean.leader.election.enable", Flag, "false", &["unclean.leader.election.enable"], "Whether a replica that may lack records can become leader."),
];

/// One option of topics.
#[derive(Debug, Clone, Copy)]
pub(super) struct TopicRow {
    /// Kafka's name.
    pub(super) name: &'static str,
    /// What it takes.
    pub(super) kind: OptionKind,
    /// Its default where no option of the broker gives one; else empty.
    pub(super) default: &'static str,
    /// The options of the broker that give its default, the one that counts first. Kafka:
    /// `ServerTopicConfigSynonyms`.
    pub(super) broker: &'static [&'static str],
    /// What it does, in a line.
    pub(super) doc: &'static str,
}

const fn topic(
    name: &'static str,
    kind: OptionKind,
    default: &'static str,
    broker: &'static [&'static str],
    doc: &'static str,
) -> TopicRow {
    TopicRow { name, kind, default, broker, doc }
}

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

impl TopicConfig {
    /// The broker's options alone.
    pub(crate) fn broker_default(settings: &Settings) -> Self {
        Self::from_values(settings, &defaults(settings))
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
            let (name, value) = read(name, value)?;
            values.insert(name, value);
        }
        check_together(&values)?;
        Ok(Self::from_values(settings, &values))
    }

    fn from_values(settings: &Settings, values: &BTreeMap<&str, String>) -> Self {
        let text = |name| values.get(name).map(String::as_str).unwrap_or_default();
        // Each is an option of the table, and was checked when it was set. Were one not, a test's
        // build would say so: 0 is no harmless value of a retention.
        let long = |name| {
            let number = text(name).parse::<i64>();
            debug_assert!(number.is_ok(), "{name} is no number: {:?}", text(name));
            number.unwrap_or_default()
        };
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
    let rows = TOPIC_OPTIONS.iter().map(|row| {
        debug_assert!(
            row.default.is_empty() || row.kind.read(row.default).is_some(),
            "{}",
            row.name
        );
        (row.name, row.default_in(settings))
    });
    rows.collect()
}

/// The option's own name and its value in one form, if both are what they should be.
fn read(name: &str, value: &str) -> Result<(&'static str, String), OptionError> {
    let Some(row) = TOPIC_OPTIONS.iter().find(|row| row.name == name) else {
        let nearest = super::nearest::nearest(name, TOPIC_OPTIONS.iter().map(|row| row.name));
        return Err(OptionError::Unknown { name: name.to_owned(), nearest });
    };
    row.kind.read(value).map(|value| (row.name, value)).ok_or_else(|| {
        let expected = row.kind.to_string();
        OptionError::Value { name: row.name, value: value.trim().to_owned(), expected }
    })
}

/// What options say of each other. Kafka: `LogConfig.validateValues` and
/// `validateTopicLogConfigValues`, for a broker without storage in tiers.
fn check_together(values: &BTreeMap<&'static str, String>) -> Result<(), OptionError> {
    let text = |name| values.get(name).map(String::as_str).unwrap_or_default();
    let refuse = |name: &'static str, expected| {
        Err(OptionError::Value { name, value: text(name).to_owned(), expected })
    };
    if text(REMOTE_STORAGE) == "true" {
        return refuse(REMOTE_STORAGE, "false: there is no remote storage here".to_owned());
    }
    let (least, most) = ("min.compaction.lag.ms", text("max.compaction.lag.ms"));
    if text(least).parse::<i64>().ok() > most.parse().ok() {
        return refuse(least, format!("at most max.compaction.lag.ms, which is {most}"));
    }
    Ok(())
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
