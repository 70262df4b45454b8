//! The broker's configuration: where it listens, where its data is, and Kafka's options.

pub(crate) mod describe;
mod kafka_names;
mod nearest;
mod properties;
mod table;
mod topic;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::server::inbound::Patience;
use crate::state::connections::ConnectionLimits;

pub use table::{OPTIONS, OptionError, OptionKind, OptionRow};
pub(crate) use topic::TopicConfig;

/// The address of [`BrokerConfig::new`]: a free port on the loopback interface.
const LISTEN: &str = "127.0.0.1:0";

/// How a broker is to be started.
///
/// Without a data folder it keeps everything in memory.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    listen: String,
    data: Option<PathBuf>,
    options: Options,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl BrokerConfig {
    /// In memory, on a free port of the loopback interface, with Kafka's defaults.
    pub fn new() -> Self {
        Self { listen: LISTEN.to_owned(), data: None, options: Options::default() }
    }

    /// Listens on `HOST:PORT`; port 0 takes a free one.
    #[must_use]
    pub fn listen(mut self, address: &str) -> Self {
        address.clone_into(&mut self.listen);
        self
    }

    /// Keeps the data in this folder, which is created if it is not there.
    #[must_use]
    pub fn data_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data = Some(folder.into());
        self
    }

    /// Keeps everything in memory: the default.
    #[must_use]
    pub fn memory(mut self) -> Self {
        self.data = None;
        self
    }

    /// Sets an option by Kafka's name.
    ///
    /// An error for a name that is not in [`OPTIONS`], which tells the nearest one, and for a value
    /// that the option does not take.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self, OptionError> {
        self.options.set(name, value)?;
        match name {
            "listeners" => address_of(value).clone_into(&mut self.listen),
            "log.dirs" => self.data = Some(PathBuf::from(value.trim())),
            _ => {}
        }
        Ok(self)
    }

    /// Sets the options of a file in Kafka's form, that of `java.util.Properties`.
    ///
    /// What is set later goes before it. An error that names every line which cannot be used.
    pub fn file(mut self, file: impl AsRef<Path>) -> Result<Self, OptionError> {
        let file = file.as_ref();
        let unusable = |reason| OptionError::File { file: file.to_owned(), reason };
        let bytes = read_bounded(file).map_err(|error| unusable(error.to_string()))?;
        let text = String::from_utf8(bytes);
        let text = text.map_err(|error| unusable(format!("it is not UTF-8: {error}")))?;
        let properties = properties::parse(&text).map_err(|error| unusable(error.to_string()))?;
        let mut wrong = Vec::new();
        for one in properties {
            match self.clone().set(&one.key, &one.value) {
                Ok(set) => self = set,
                Err(error) => wrong.push(format!("line {}: {error}", one.line)),
            }
        }
        if wrong.is_empty() { Ok(self) } else { Err(unusable(wrong.join("; "))) }
    }

    /// Whether nothing is kept.
    pub fn is_in_memory(&self) -> bool {
        self.data.is_none()
    }

    pub(crate) fn listen_address(&self) -> &str {
        &self.listen
    }

    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings::from_options(&self.options)
    }
}

/// The most bytes of a file of options.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

fn read_bounded(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        let reason = format!("a file of options has at most {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// The address in `listeners`, without the listener's name.
fn address_of(listener: &str) -> &str {
    let listener = listener.trim();
    listener.split_once("://").map_or(listener, |(_, address)| address)
}

/// Options that are set, as text that was checked.
#[derive(Debug, Clone, Default)]
struct Options {
    values: BTreeMap<&'static str, String>,
}

impl Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let row = table::find(name)?;
        let value = value.trim();
        row.check(value)?;
        self.values.insert(row.name, value.to_owned());
        Ok(())
    }

    /// The value as set, or the default of the table.
    fn text(&self, name: &str) -> &str {
        let default = || OPTIONS.iter().find(|row| row.name == name).map(|row| row.default);
        let value = self.values.get(name).map(String::as_str).or_else(default);
        debug_assert!(value.is_some(), "no option {name} in the table");
        value.unwrap_or_default()
    }

    fn flag(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    fn optional_long(&self, name: &str) -> Option<i64> {
        // What is not a number is empty: all values were checked when they were set.
        self.text(name).parse().ok()
    }

    fn long(&self, name: &str) -> i64 {
        self.optional_long(name).unwrap_or_default()
    }

    fn int(&self, name: &str) -> i32 {
        i32::try_from(self.long(name)).unwrap_or(i32::MAX)
    }

    fn size(&self, name: &str) -> usize {
        usize::try_from(self.long(name)).unwrap_or(usize::MAX)
    }
}

/// The options of a running broker, as values.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// `node.id`.
    pub(crate) node_id: i32,
    /// `advertised.listeners`: host and port that all clients are told.
    pub(crate) advertised: Option<(String, i32)>,
    /// `auto.create.topics.enable`.
    pub(crate) auto_create_topics: bool,
    /// `delete.topic.enable`.
    pub(crate) delete_topics: bool,
    /// `num.partitions`.
    pub(crate) num_partitions: i32,
    /// `default.replication.factor`.
    pub(crate) default_replication_factor: i16,
    /// `io.threads`; 0 is one a core, at most 4.
    pub(crate) io_threads: usize,
    /// `fetch.max.bytes`.
    pub(crate) fetch_max_bytes: usize,
    /// `max.incremental.fetch.session.cache.slots`.
    pub(crate) fetch_session_slots: usize,
    /// `max.connections` and its kin.
    pub(crate) connection_limits: ConnectionLimits,
    /// `connections.max.idle.ms` and its kin.
    pub(crate) patience: Patience,
    /// `offsets.retention.check.interval.ms`.
    pub(crate) offsets_check: Duration,
    /// `socket.request.max.bytes`.
    pub(crate) request_max_bytes: usize,
    /// `queued.max.request.bytes`.
    pub(crate) requests_bytes: usize,
    /// `group.initial.rebalance.delay.ms`.
    pub(crate) group_initial_delay_ms: i32,
    /// `group.min.session.timeout.ms`.
    pub(crate) group_min_session_ms: i32,
    /// `group.max.session.timeout.ms`.
    pub(crate) group_max_session_ms: i32,
    /// `group.max.size`.
    pub(crate) group_max_size: usize,
    /// `group.max.bytes`.
    pub(crate) group_max_bytes: usize,
    /// `max.partitions`.
    pub(crate) max_partitions: usize,
    /// `offset.metadata.max.bytes`.
    pub(crate) offset_metadata_max_bytes: usize,
    /// `offsets.retention.ms`, or `offsets.retention.minutes` in milliseconds.
    pub(crate) offsets_retention_ms: i64,
    /// `offsets.topic.num.partitions`.
    pub(crate) offsets_partitions: i32,
    /// `offsets.topic.replication.factor`.
    pub(crate) offsets_replication_factor: i16,
    /// `offsets.topic.segment.bytes`.
    pub(crate) offsets_segment_bytes: i64,
    /// `metadata.log.segment.bytes`.
    pub(crate) metadata_segment_bytes: i64,
    /// `flush` is `group`: nothing is acknowledged before it is on the disk.
    pub(crate) flush_group: bool,
    /// `disk.reserve.bytes`.
    pub(crate) disk_reserve: i64,
    /// `log.retention.check.interval.ms`.
    pub(crate) retention_check: Duration,
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub(crate) checkpoint_interval: Duration,
    options: Options,
}

impl Settings {
    fn from_options(options: &Options) -> Self {
        let millis = |name| Duration::from_millis(options.long(name).unsigned_abs());
        let short = |name| i16::try_from(options.long(name)).unwrap_or(i16::MAX);
        Self {
            node_id: options.int("node.id"),
            advertised: advertised(options.text("advertised.listeners")),
            auto_create_topics: options.flag("auto.create.topics.enable"),
            delete_topics: options.flag("delete.topic.enable"),
            num_partitions: options.int("num.partitions"),
            default_replication_factor: short("default.replication.factor"),
            io_threads: options.size("io.threads"),
            fetch_max_bytes: options.size("fetch.max.bytes"),
            fetch_session_slots: options.size("max.incremental.fetch.session.cache.slots"),
            connection_limits: ConnectionLimits {
                in_all: max_connections(options.optional_long("max.connections")),
                of_address: options.size("max.connections.per.ip"),
                of_address_a_second: options.size("max.connection.creation.rate.per.ip"),
            },
            patience: Patience {
                first: millis("connections.first.request.max.ms"),
                idle: millis("connections.max.idle.ms"),
                request: millis("socket.request.max.ms"),
            },
            offsets_check: millis("offsets.retention.check.interval.ms"),
            request_max_bytes: options.size("socket.request.max.bytes"),
            requests_bytes: options.size("queued.max.request.bytes"),
            group_initial_delay_ms: options.int("group.initial.rebalance.delay.ms"),
            group_min_session_ms: options.int("group.min.session.timeout.ms"),
            group_max_session_ms: options.int("group.max.session.timeout.ms"),
            group_max_size: options.size("group.max.size"),
            group_max_bytes: options.size("group.max.bytes"),
            max_partitions: options.size("max.partitions"),
            offset_metadata_max_bytes: options.size("offset.metadata.max.bytes"),
            offsets_retention_ms: options
                .optional_long("offsets.retention.ms")
                .unwrap_or_else(|| options.long("offsets.retention.minutes") * 60_000),
            offsets_partitions: options.int("offsets.topic.num.partitions"),
            offsets_replication_factor: short("offsets.topic.replication.factor"),
            offsets_segment_bytes: options.long("offsets.topic.segment.bytes"),
            metadata_segment_bytes: options.long("metadata.log.segment.bytes"),
            flush_group: options.text("flush") == "group",
            disk_reserve: options.long("disk.reserve.bytes"),
            retention_check: millis("log.retention.check.interval.ms"),
            checkpoint_interval: millis("log.flush.offset.checkpoint.interval.ms"),
            options: options.clone(),
        }
    }

    /// These with others over them, which were checked; what this broker does not have is left out.
    pub(crate) fn with<'a>(&self, set: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut options = self.options.clone();
        for (name, value) in set {
            if let Err(error) = options.set(name, value) {
                tracing::warn!(%error, "an option that was set while a broker ran has no effect");
            }
        }
        Self::from_options(&options)
    }

    /// An option's value as this broker was started with, if it was set.
    pub(crate) fn set_at_start(&self, name: &str) -> Option<&str> {
        self.options.values.get(name).map(String::as_str)
    }

    /// The broker's default of a topic option, as text.
    ///
    /// Kafka: the `log.*` options and their kin, e.g. `log.segment.bytes` for `segment.bytes`.
    pub(crate) fn topic_default(&self, name: &str) -> Option<String> {
        let options = &self.options;
        let hours = |name: &str| options.long(name).saturating_mul(3_600_000);
        Some(match name {
            "cleanup.policy" => options.text("log.cleanup.policy").to_owned(),
            "compression.type"
            | "compression.gzip.level"
            | "compression.lz4.level"
            | "compression.zstd.level"
            | "max.decompressed.message.bytes" => options.text(name).to_owned(),
            "index.interval.bytes" => options.text("log.index.interval.bytes").to_owned(),
            "max.message.bytes" => options.text("message.max.bytes").to_owned(),
            "message.timestamp.type" => options.text("log.message.timestamp.type").to_owned(),
            "message.timestamp.after.max.ms" => {
                options.text("log.message.timestamp.after.max.ms").to_owned()
            }
            "message.timestamp.before.max.ms" => {
                options.text("log.message.timestamp.before.max.ms").to_owned()
            }
            "min.insync.replicas" => options.text("min.insync.replicas").to_owned(),
            "file.delete.delay.ms" => options.text("log.segment.delete.delay.ms").to_owned(),
            "retention.bytes" => options.text("log.retention.bytes").to_owned(),
            "retention.ms" => self.retention_ms().to_string(),
            "segment.bytes" => options.text("log.segment.bytes").to_owned(),
            "segment.index.bytes" => options.text("log.index.size.max.bytes").to_owned(),
            "segment.ms" => {
                let ms = options.optional_long("log.roll.ms");
                ms.unwrap_or_else(|| hours("log.roll.hours")).to_string()
            }
            "segment.jitter.ms" => {
                let ms = options.optional_long("log.roll.jitter.ms");
                ms.unwrap_or_else(|| hours("log.roll.jitter.hours")).to_string()
            }
            _ => return None,
        })
    }

    /// `log.retention.ms` or, where it is not set, the same in minutes or hours; -1: no limit.
    fn retention_ms(&self) -> i64 {
        let options = &self.options;
        let in_ms = |value: i64, unit: i64| if value < 0 { -1 } else { value.saturating_mul(unit) };
        let minutes = || options.optional_long("log.retention.minutes").map(|n| in_ms(n, 60_000));
        let ms = options.optional_long("log.retention.ms").or_else(minutes);
        ms.unwrap_or_else(|| in_ms(options.long("log.retention.hours"), 3_600_000))
    }

    /// `record.validation`.
    pub(crate) fn validates_strictly(&self) -> bool {
        self.options.text("record.validation") == "strict"
    }

    /// `producer.id.expiration.ms`.
    pub(crate) fn producer_id_expiration_ms(&self) -> i64 {
        self.options.long("producer.id.expiration.ms")
    }
}

/// `max.connections`, or as many as there are descriptors beside those that files may need.
fn max_connections(set: Option<i64>) -> usize {
    const FOR_FILES: u64 = 1000;
    if let Some(set) = set {
        return usize::try_from(set).unwrap_or(usize::MAX);
    }
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let descriptors = descriptors.unwrap_or(u64::MAX);
    let left = descriptors.saturating_sub(FOR_FILES).max(descriptors / 2);
    usize::try_from(left).unwrap_or(usize::MAX)
}

/// Host and port of `advertised.listeners`: the first, since there is one listener.
fn advertised(text: &str) -> Option<(String, i32)> {
    let first = text.split(',').next().unwrap_or_default().trim();
    let address = first.split_once("://").map_or(first, |(_, address)| address);
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
    (!host.is_empty()).then(|| (host.to_owned(), i32::from(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_takes_its_own_defaults() {
        assert!(OPTIONS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for row in OPTIONS {
            assert_eq!(row.check(row.default), Ok(()), "{}", row.name);
        }
    }

    #[test]
    fn unknown_option_names_the_nearest() {
        let error = BrokerConfig::new().set("num.partition", "3").expect_err("no such option");
        assert_eq!(
            error.to_string(),
            "unknown option \"num.partition\"; did you mean \"num.partitions\"?"
        );
    }

    #[test]
    fn option_that_only_kafka_has_is_told_apart_from_a_slip() {
        let error = BrokerConfig::new().set("log.cleaner.threads", "1").expect_err("not here");
        assert!(matches!(error, OptionError::NotHere { .. }), "{error}");
    }

    #[test]
    fn value_out_of_range_or_of_another_type_is_refused() {
        for (name, value) in [
            ("num.partitions", "0"),
            ("num.partitions", "many"),
            ("auto.create.topics.enable", "yes"),
            ("log.message.timestamp.type", "now"),
            ("log.segment.bytes", "1048575"),
            ("advertised.listeners", "nowhere"),
            ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
            ("log.dirs", "/a,/b"),
            ("log.cleanup.policy", "delete,burn"),
        ] {
            let error = BrokerConfig::new().set(name, value).expect_err(name);
            assert!(matches!(error, OptionError::Value { .. }), "{error}");
        }
        assert!(BrokerConfig::new().set("log.segment.bytes", "1048576").is_ok());
    }

    #[test]
    fn a_file_sets_options_and_what_is_set_later_goes_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.properties");
        let text = "# ours\nnum.partitions = 3\nlisteners=PLAINTEXT://127.0.0.1:0\n\
                    message.max.bytes=\\\n  5000\nlog.dirs: /nowhere\n";
        fs::write(&file, text).unwrap();
        let config = BrokerConfig::new().file(&file).unwrap();
        assert_eq!(config.listen_address(), "127.0.0.1:0");
        assert_eq!(config.data(), Some(Path::new("/nowhere")));
        let settings = config.settings();
        assert_eq!(settings.num_partitions, 3);
        assert_eq!(settings.topic_default("max.message.bytes").as_deref(), Some("5000"));
        let config = config.set("num.partitions", "4").unwrap();
        assert_eq!(config.settings().num_partitions, 4);
    }

    #[test]
    fn every_line_of_a_file_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.properties");
        fs::write(&file, "num.partition=3\nnode.id=2\n\nsasl.jaas.config=x\nnode.id=two\n")
            .unwrap();
        let told = BrokerConfig::new().file(&file).expect_err("three wrong lines").to_string();
        assert!(told.contains("server.properties"), "{told}");
        assert!(told.contains("line 1: unknown option \"num.partition\"; did you mean"), "{told}");
        assert!(
            told.contains("line 4: \"sasl.jaas.config\" is an option of Apache Kafka"),
            "{told}"
        );
        assert!(told.contains("line 5: option \"node.id\" cannot be \"two\""), "{told}");
        for bytes in [&b"a=\\u12"[..], b"num.partitions=\xff", &vec![b'#'; 1024 * 1024 + 1]] {
            fs::write(&file, bytes).unwrap();
            let error = BrokerConfig::new().file(&file).expect_err("no such file");
            assert!(matches!(error, OptionError::File { .. }), "{error}");
        }
        assert!(BrokerConfig::new().file(dir.path().join("none")).is_err());
    }

    #[test]
    fn advertised_address_is_read_with_and_without_a_listener_name() {
        let expected = Some(("kafka.example".to_owned(), 9094));
        assert_eq!(advertised("PLAINTEXT://kafka.example:9094"), expected);
        assert_eq!(advertised("kafka.example:9094"), expected);
        assert_eq!(advertised("A://[::1]:1,B://x:2"), Some(("::1".to_owned(), 1)));
        assert_eq!(advertised(""), None);
    }

    #[test]
    fn broker_options_are_the_defaults_of_topics() {
        let config = BrokerConfig::new().set("log.roll.hours", "2").expect("an option");
        let settings = config.settings();
        assert_eq!(settings.topic_default("segment.ms").as_deref(), Some("7200000"));
        let retention = |names: &[(&str, &str)]| {
            let config = names.iter().fold(BrokerConfig::new(), |config, (name, value)| {
                config.set(name, value).expect("an option")
            });
            config.settings().topic_default("retention.ms")
        };
        assert_eq!(retention(&[]).as_deref(), Some("604800000"));
        assert_eq!(retention(&[("log.retention.hours", "-1")]).as_deref(), Some("-1"));
        let minutes = [("log.retention.hours", "1"), ("log.retention.minutes", "2")];
        assert_eq!(retention(&minutes).as_deref(), Some("120000"));
        let ms = [("log.retention.minutes", "2"), ("log.retention.ms", "7")];
        assert_eq!(retention(&ms).as_deref(), Some("7"));
        let config = config.set("log.roll.ms", "5").expect("an option");
        assert_eq!(config.settings().topic_default("segment.ms").as_deref(), Some("5"));
    }
}
