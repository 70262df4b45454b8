//! The broker's options: one table with Kafka's names, types and defaults.

use std::path::PathBuf;

use super::kafka_names::NOT_HERE;
use super::nearest::nearest;

/// One option of the broker.
#[derive(Debug, Clone, Copy)]
pub struct OptionRow {
    /// Kafka's name, or ours in Kafka's manner.
    pub name: &'static str,
    /// What values it takes.
    pub kind: OptionKind,
    /// Its default, as text; empty for none.
    pub default: &'static str,
    /// What it does, in a line.
    pub doc: &'static str,
}

/// What values an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// `true` or `false`.
    Flag,
    /// A whole number from the first to the second, both included.
    Number(i64, i64),
    /// A whole number in that range, or nothing.
    OptionalNumber(i64, i64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Some of these words, with commas between them.
    List(&'static [&'static str]),
    /// A number from 0 to 1.
    Ratio,
    /// `*`, or PARTITION:BROKER with commas between them.
    Replicas,
    /// `[NAME://]HOST:PORT`, or nothing.
    Address,
    /// `[NAME://][HOST]:PORT`, or nothing.
    Listener,
    /// The path of one folder, or nothing.
    Folder,
}

/// Why an option cannot be set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// There is no such option.
    Unknown {
        /// What was asked for.
        name: String,
        /// What was probably meant.
        nearest: Option<&'static str>,
    },
    /// It is an option of Apache Kafka which this broker does not have.
    NotHere {
        /// What was asked for.
        name: String,
    },
    /// A file of options cannot be used.
    File {
        /// The file.
        file: PathBuf,
        /// Why, line by line.
        reason: String,
    },
    /// The value is none that the option takes.
    Value {
        /// The option.
        name: &'static str,
        /// The value given.
        value: String,
        /// What it takes.
        expected: String,
    },
}

impl std::fmt::Display for OptionError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown { name, nearest: Some(nearest) } => {
                write!(out, "unknown option {name:?}; did you mean {nearest:?}?")
            }
            Self::Unknown { name, nearest: None } => write!(out, "unknown option {name:?}"),
            Self::NotHere { name } => {
                write!(out, "{name:?} is an option of Apache Kafka that this broker does not have")
            }
            Self::File { file, reason } => write!(out, "{}: {reason}", file.display()),
            Self::Value { name, value, expected } => {
                write!(out, "option {name:?} cannot be {value:?}: it takes {expected}")
            }
        }
    }
}

impl std::error::Error for OptionError {}

const INT: i64 = 2_147_483_647;
const LONG: i64 = i64::MAX;
const POLICIES: &[&str] = &["delete", "compact"];
pub(super) const COMPRESSION_TYPE: OptionKind =
    Choice(&["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]);
pub(super) const GZIP_LEVEL: OptionKind =
    Choice(&["-1", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
const TIMESTAMP_TYPES: &[&str] = &["CreateTime", "LogAppendTime"];

const fn row(
    name: &'static str,
    kind: OptionKind,
    default: &'static str,
    doc: &'static str,
) -> OptionRow {
    OptionRow { name, kind, default, doc }
}

use OptionKind::{
    Address, Choice, Flag, Folder, List, Listener, Number, OptionalNumber, Ratio, Replicas,
};

/// All options, sorted by name.
#[rustfmt::skip]
pub static OPTIONS: &[OptionRow] = &[
    row("advertised.listeners", Address, "", "Address that clients are told; unset: the one each came by."),
    row("auto.create.topics.enable", Flag, "true", "Whether a producer's first word of a topic creates it."),
    row("compression.gzip.level", GZIP_LEVEL, "-1", "Level of gzip where compression.type is gzip; -1 is zlib's own choice."),
    row("compression.lz4.level", Number(1, 17), "9", "Level of lz4 where compression.type is lz4. The default is the fast one; each other takes more time and less room."),
    row("compression.type", COMPRESSION_TYPE, "producer", "Codec of stored batches: as the producer sent them, or this one. A batch that comes in another is compressed anew."),
    row("compression.zstd.level", Number(-131_072, 22), "3", "Level of zstd where compression.type is zstd."),
    row("connections.first.request.max.ms", Number(1, INT), "10000", "How long a new connection may send nothing. Not in Kafka."),
    row("connections.max.idle.ms", Number(1, LONG), "600000", "How long a connection may send nothing while no answer is open."),
    row("default.replication.factor", Number(1, 32_767), "1", "Copies of a partition of a topic that asks for none."),
    row("delete.topic.enable", Flag, "true", "Whether topics can be deleted."),
    row("disk.reserve.bytes", Number(-1, LONG), "0", "Bytes of the disk that records do not get; -1: the smaller of 5 % and 1 GiB, which is the program's default. Not in Kafka."),
    row("fetch.max.bytes", Number(1024, INT), "57671680", "Most bytes of records in one answer to a fetch."),
    row("flush", Choice(&["none", "group"]), "none", "Where a record is when it is acknowledged: none, in the page cache; group, on the disk. Not in Kafka."),
    row("group.initial.rebalance.delay.ms", Number(0, INT), "0", "Wait for more members before an empty group's first rebalance. Kafka: 3000."),
    row("group.max.bytes", Number(1024, INT), "16777216", "Most bytes that the members of a group may bring along or be assigned. Not in Kafka."),
    row("group.max.session.timeout.ms", Number(1, INT), "1800000", "Longest session timeout that a member may ask for."),
    row("group.max.size", Number(1, INT), "10000", "Most members of a group. Kafka: no limit."),
    row("group.min.session.timeout.ms", Number(1, INT), "6000", "Shortest session timeout that a member may ask for."),
    row("io.threads", Number(0, 1024), "0", "Threads that serve connections; 0: one a core, at most 4. Not in Kafka."),
    row("listeners", Listener, "", "Address to listen on; there is one listener. `--listen` goes before it."),
    row("log.cleanup.policy", List(POLICIES), "delete", "Default of cleanup.policy of topics."),
    row("log.dirs", Folder, "", "Folder that keeps the data; there is one. `--data` and `--memory` go before it."),
    row("log.flush.offset.checkpoint.interval.ms", Number(1, INT), "60000", "How often it is noted up to where logs are synced, which a start after a crash need not check."),
    row("log.index.interval.bytes", Number(0, INT), "4096", "Bytes of records between two entries of an index."),
    row("log.index.size.max.bytes", Number(4, INT), "10485760", "Most bytes of an index; a segment is rolled before."),
    row("log.message.timestamp.after.max.ms", Number(0, LONG), "3600000", "How far a record's time may lie ahead of the broker's."),
    row("log.message.timestamp.before.max.ms", Number(0, LONG), "9223372036854775807", "How far a record's time may lie behind the broker's."),
    row("log.message.timestamp.type", Choice(TIMESTAMP_TYPES), "CreateTime", "Whose time a record carries."),
    row("log.retention.bytes", Number(-1, LONG), "-1", "Bytes of a partition that stay when older segments go; -1: no limit."),
    row("log.retention.check.interval.ms", Number(1, LONG), "300000", "How often old segments are looked for."),
    row("log.retention.hours", Number(-1, INT), "168", "Age at which records go, unless log.retention.minutes or .ms is set; -1: never."),
    row("log.retention.minutes", OptionalNumber(-1, INT), "", "Age at which records go, unless log.retention.ms is set; -1: never."),
    row("log.retention.ms", OptionalNumber(-1, LONG), "", "Age at which records go; -1: never."),
    row("log.roll.hours", Number(1, INT), "168", "Age at which a segment is rolled, unless log.roll.ms is set."),
    row("log.roll.jitter.hours", Number(0, INT), "0", "Most that is taken off that age, unless log.roll.jitter.ms is set."),
    row("log.roll.jitter.ms", OptionalNumber(0, LONG), "", "Most that is taken off the age at which a segment is rolled."),
    row("log.roll.ms", OptionalNumber(1, LONG), "", "Age at which a segment is rolled."),
    row("log.segment.bytes", Number(1_048_576, INT), "1073741824", "Size at which a segment is rolled."),
    row("log.segment.delete.delay.ms", Number(0, LONG), "60000", "How long files of old segments stay after they are given up."),
    row("max.connection.creation.rate.per.ip", Number(1, INT), "200", "Most new connections of one address in a second; no limit on loopback. Not in Kafka."),
    row("max.connections", OptionalNumber(1, INT), "", "Most connections; unset: as many as there are descriptors, less 1000 for files. Kafka: no limit."),
    row("max.connections.per.ip", Number(1, INT), "1000", "Most connections of one address. Kafka: no limit."),
    row("max.decompressed.message.bytes", Number(1, 2_147_483_639), "2147483639", "Most bytes of a record, decompressed, where records are looked at."),
    row("max.groups", Number(1, INT), "100000", "Most groups, those included that are committed offsets alone; who begins one more gets POLICY_VIOLATION. Not in Kafka."),
    row("max.incremental.fetch.session.cache.slots", Number(0, INT), "1000", "Most fetch sessions that are kept; who gets none names all it wants in each fetch."),
    row("max.partitions", Number(1, INT), "20000", "Most partitions of all topics together. Not in Kafka."),
    row("message.max.bytes", Number(0, INT), "1048588", "Largest record batch."),
    row("metadata.log.segment.bytes", Number(8_388_608, INT), "1073741824", "Size at which a segment of the metadata log is rolled."),
    row("min.insync.replicas", Number(1, INT), "1", "Replicas that must be in sync for a write with acks=all."),
    row("node.id", Number(0, INT), "1", "This broker's id."),
    row("num.partitions", Number(1, 10_000), "1", "Partitions of a topic that asks for no number."),
    row("offset.metadata.max.bytes", Number(0, INT), "4096", "Longest text that a client may commit with an offset."),
    row("offsets.retention.check.interval.ms", Number(1, LONG), "600000", "How often old offsets and groups are looked for."),
    row("offsets.retention.minutes", Number(1, INT), "10080", "How long offsets outlive their group's last member."),
    row("offsets.retention.ms", OptionalNumber(1, LONG), "", "As offsets.retention.minutes, and goes before it. Not in Kafka."),
    row("offsets.topic.num.partitions", Number(1, 10_000), "50", "Partitions of the offsets topic, once it is created."),
    row("offsets.topic.replication.factor", Number(1, 32_767), "3", "Copies of the offsets topic; never more than there are brokers."),
    row("offsets.topic.segment.bytes", Number(1, INT), "104857600", "Size at which a segment of the offsets topic is rolled."),
    row("producer.id.expiration.ms", Number(1, INT), "86400000", "How long an idle producer's last batches are known."),
    row("queued.max.request.bytes", Number(1_048_576, LONG), "67108864", "Bytes of requests in memory before no more are read. Kafka: no limit."),
    row("record.validation", Choice(&["fast", "strict"]), "fast", "Whether each record of a batch is looked at before it is stored, as Kafka does (strict), or only where a rule needs it: a compacted topic, a limit on old timestamps, another codec (fast): bytes that cannot be decompressed are then stored. Not in Kafka."),
    row("replica.high.watermark.checkpoint.interval.ms", Number(1, LONG), "5000", "How often it is noted up to where records are committed, for a broker that takes the folder over."),
    row("socket.request.max.bytes", Number(1, 104_857_600), "104857600", "Largest request."),
    row("socket.request.max.ms", Number(1, INT), "30000", "How long a request may take from its first byte to its last. Not in Kafka."),
];

/// The row of an option.
pub(super) fn find(name: &str) -> Result<&'static OptionRow, OptionError> {
    if let Some(row) = OPTIONS.iter().find(|row| row.name == name) {
        return Ok(row);
    }
    if NOT_HERE.split_ascii_whitespace().any(|other| other == name) {
        return Err(OptionError::NotHere { name: name.to_owned() });
    }
    let nearest = nearest(name, OPTIONS.iter().map(|row| row.name));
    Err(OptionError::Unknown { name: name.to_owned(), nearest })
}

impl OptionRow {
    /// A value of this option, in the one form that it has here.
    pub(super) fn read(&self, value: &str) -> Result<String, OptionError> {
        self.kind.read(value).ok_or_else(|| {
            let expected = self.kind.to_string();
            OptionError::Value { name: self.name, value: value.trim().to_owned(), expected }
        })
    }
}

impl OptionKind {
    /// A value in the one form that options of this kind have here, that in which Kafka shows it;
    /// none if it is no such value. Kafka: `ConfigDef.parseType` and `convertToString`.
    pub(super) fn read(self, value: &str) -> Option<String> {
        let value = value.trim();
        let as_it_is = |good: bool| good.then(|| value.to_owned());
        match self {
            Flag => {
                let words = ["true", "false"].into_iter();
                words.filter(|word| word.eq_ignore_ascii_case(value)).map(str::to_owned).next()
            }
            // Of lists as well: no cleanup.policy at all keeps everything.
            OptionalNumber(..) | Address | Listener | Folder | List(_) | Replicas
                if value.is_empty() =>
            {
                Some(String::new())
            }
            Number(least, most) | OptionalNumber(least, most) => {
                let number = value.parse::<i64>().ok();
                number.filter(|number| (least..=most).contains(number)).map(|n| n.to_string())
            }
            Ratio => {
                let number = value.parse::<f64>().ok();
                number.filter(|number| (0.0..=1.0).contains(number)).map(shown)
            }
            Choice(words) => as_it_is(words.contains(&value)),
            List(words) => list(value, |all| all.iter().all(|one| words.contains(one))),
            Replicas => list(value, |all| *all == ["*"] || all.iter().all(|one| is_replica(one))),
            Address => as_it_is(super::settings::advertised(value).is_some()),
            Listener => {
                let port = super::address_of(value).rsplit_once(':').map(|(_, port)| port);
                let good = port.is_some_and(|port| port.parse::<u16>().is_ok());
                as_it_is(good && !value.contains(','))
            }
            Folder => as_it_is(!value.contains(',')),
        }
    }
}

impl std::fmt::Display for OptionKind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Flag => out.write_str("true or false"),
            Number(least, most) => write!(out, "a whole number from {least} to {most}"),
            OptionalNumber(least, most) => {
                write!(out, "a whole number from {least} to {most}, or nothing")
            }
            Choice(words) => write!(out, "{}", words.join(" or ")),
            List(words) => write!(out, "a list out of {}", words.join(", ")),
            Ratio => out.write_str("a number from 0 to 1"),
            Replicas => out.write_str("*, or a list of PARTITION:BROKER"),
            Address => out.write_str("HOST:PORT, or PLAINTEXT://HOST:PORT"),
            Listener => out.write_str("one address: HOST:PORT, or PLAINTEXT://HOST:PORT"),
            Folder => out.write_str("the path of one folder"),
        }
    }
}

/// A list whose parts are good, without the blanks between them.
fn list(value: &str, is_good: impl FnOnce(&[&str]) -> bool) -> Option<String> {
    let parts: Vec<_> = value.split(',').map(str::trim).collect();
    is_good(&parts).then(|| parts.join(","))
}

/// PARTITION:BROKER, or nothing. Kafka: `ThrottledReplicaListValidator`.
fn is_replica(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let pair = text.split_once(':');
    text.is_empty() || pair.is_some_and(|(one, other)| is_number(one) && is_number(other))
}

/// A ratio as Java writes it: with a decimal point, and small ones in powers of ten.
fn shown(ratio: f64) -> String {
    if ratio == 0.0 || ratio >= 1e-3 {
        return format!("{ratio:?}");
    }
    let text = format!("{ratio:E}");
    if text.contains('.') { text } else { text.replacen('E', ".0E", 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_form_that_of_kafka() {
        for (kind, given, read) in [
            (Flag, " TRUE ", Some("true")),
            (Flag, "yes", None),
            (Number(0, 10), "+07", Some("7")),
            (Number(0, 10), "11", None),
            (Ratio, ".50", Some("0.5")),
            (Ratio, "1", Some("1.0")),
            (Ratio, "-0.0", Some("-0.0")),
            (Ratio, "1e-4", Some("1.0E-4")),
            (Ratio, "0.00025", Some("2.5E-4")),
            (Ratio, "0.001", Some("0.001")),
            (Ratio, "1.01", None),
            (Ratio, "NaN", None),
            (Ratio, "", None),
            (List(&["a", "b"]), "b , a", Some("b,a")),
            (List(&["a", "b"]), "", Some("")),
            (List(&["a", "b"]), "a,,b", None),
            (Replicas, "0:1,  12:3", Some("0:1,12:3")),
            (Replicas, "*", Some("*")),
            (Replicas, "0:1,*", None),
            (Replicas, "0-1", None),
            (Replicas, ":1", None),
            (Replicas, "", Some("")),
        ] {
            assert_eq!(kind.read(given).as_deref(), read, "{given:?}");
        }
    }
}
