//! The options of a running broker, as values.

use std::time::Duration;

use super::options::Options;
use crate::server::inbound::Patience;
use crate::state::connections::ConnectionLimits;

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
    /// `max.groups`.
    pub(crate) max_groups: usize,
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
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub(crate) high_watermark_interval: Duration,
    options: Options,
}

impl Settings {
    pub(super) fn from_options(options: &Options) -> Self {
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
            max_groups: options.size("max.groups"),
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
            high_watermark_interval: millis("replica.high.watermark.checkpoint.interval.ms"),
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
        self.options.get(name)
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
pub(super) fn advertised(text: &str) -> Option<(String, i32)> {
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
    use crate::BrokerConfig;

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
