//! Options as the client uses them: typed, and checked against each other.

use std::time::Duration;

use ottla_protocol::record::{Codec, Compression};

use super::options::{Address, Options};
use super::table::OptionScope;
use crate::error::{Error, ErrorKind};
use crate::producer::partitioner::{KeyHash, Keyless, Rule, Rules, Sticking};

/// What every client needs to know.
#[derive(Debug, Clone)]
pub(crate) struct CommonConfig {
    /// `bootstrap.servers`.
    pub(crate) bootstrap: Vec<Address>,
    /// `client.id`.
    pub(crate) client_id: String,
    /// `request.timeout.ms`.
    pub(crate) request_timeout: Duration,
    /// `retry.backoff.ms` and `retry.backoff.max.ms`.
    pub(crate) retry_backoff: (Duration, Duration),
    /// `reconnect.backoff.ms` and `reconnect.backoff.max.ms`.
    pub(crate) reconnect_backoff: (Duration, Duration),
    /// `socket.connection.setup.timeout.ms` and `.max.ms`.
    pub(crate) connect_timeout: (Duration, Duration),
    /// `connections.max.idle.ms`.
    pub(crate) connections_max_idle: Duration,
    /// `metadata.max.age.ms`.
    pub(crate) metadata_max_age: Duration,
    /// `metadata.max.idle.ms`.
    pub(crate) metadata_max_idle: Duration,
    /// `metadata.cluster.check.enable`; false if `metadata.recovery.strategy` is none, as in Kafka: who
    /// leaves a broker needs somewhere to go.
    pub(crate) cluster_check: bool,
    /// `metadata.recovery.rebootstrap.trigger.ms`; `None` if `metadata.recovery.strategy` is none.
    pub(crate) rebootstrap_after: Option<Duration>,
    /// `bootstrap.resolve.timeout.ms`, if it sets an end.
    pub(crate) resolve_timeout: Option<Duration>,
    /// `send.buffer.bytes` and `receive.buffer.bytes`, where they are not left to the system.
    pub(crate) socket_bytes: (Option<u32>, Option<u32>),
    /// `allow.auto.create.topics`.
    pub(crate) allow_auto_create: bool,
    /// Whether it is to be known in which racks partitions stand: a group may share out by it.
    pub(crate) keeps_racks: bool,
    /// Most bytes that buffers for large answers may take, if some are kept for the next ones; with
    /// zero, none are.
    pub(crate) answer_bytes: usize,
}

impl CommonConfig {
    /// From the options; `auto_create` is the default of the client's kind.
    pub(crate) fn new(options: &Options, auto_create: bool) -> Result<Self, Error> {
        let recovers = options.text("metadata.recovery.strategy")? != "none";
        let resolve_timeout = options.duration("bootstrap.resolve.timeout.ms")?;
        let rebootstrap_after = options.duration("metadata.recovery.rebootstrap.trigger.ms")?;
        Ok(Self {
            bootstrap: options.bootstrap()?,
            client_id: options.text("client.id")?.to_owned(),
            request_timeout: options.duration("request.timeout.ms")?,
            retry_backoff: (
                options.duration("retry.backoff.ms")?,
                options.duration("retry.backoff.max.ms")?,
            ),
            reconnect_backoff: (
                options.duration("reconnect.backoff.ms")?,
                options.duration("reconnect.backoff.max.ms")?,
            ),
            connect_timeout: (
                options.duration("socket.connection.setup.timeout.ms")?,
                options.duration("socket.connection.setup.timeout.max.ms")?,
            ),
            connections_max_idle: options.duration("connections.max.idle.ms")?,
            metadata_max_age: options.duration("metadata.max.age.ms")?,
            metadata_max_idle: options.duration("metadata.max.idle.ms")?,
            cluster_check: recovers && options.bool("metadata.cluster.check.enable")?,
            rebootstrap_after: Some(rebootstrap_after).filter(|_| recovers),
            resolve_timeout: Some(resolve_timeout).filter(|timeout| !timeout.is_zero()),
            socket_bytes: (
                // -1 is no size.
                u32::try_from(options.number::<i32>("send.buffer.bytes")?).ok(),
                u32::try_from(options.number::<i32>("receive.buffer.bytes")?).ok(),
            ),
            allow_auto_create: options
                .bool_if_set("allow.auto.create.topics")
                .unwrap_or(auto_create),
            keeps_racks: false,
            answer_bytes: 0,
        })
    }
}

/// Whose word a producer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acks {
    /// Nobody's: done when written.
    None,
    /// The leader's.
    Leader,
    /// That of all in-sync replicas.
    All,
}

impl Acks {
    /// As it stands in a Produce request.
    pub(crate) const fn number(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// What a producer needs to know.
#[derive(Debug, Clone)]
pub(crate) struct ProducerConfig {
    /// What it shares with other clients.
    pub(crate) common: CommonConfig,
    /// `acks`.
    pub(crate) acks: Acks,
    /// `enable.idempotence`.
    pub(crate) idempotent: bool,
    /// `linger.ms`.
    pub(crate) linger: Duration,
    /// `batch.size`.
    pub(crate) batch_bytes: usize,
    /// `buffer.memory`.
    pub(crate) memory_bytes: usize,
    /// `max.block.ms`.
    pub(crate) max_block: Duration,
    /// `delivery.timeout.ms`.
    pub(crate) delivery_timeout: Duration,
    /// `max.request.size`.
    pub(crate) request_bytes_max: usize,
    /// `max.in.flight.requests.per.connection`: batches of one partition.
    pub(crate) in_flight_max: usize,
    /// `retries`.
    pub(crate) retries: u32,
    /// `compression.type` and the level of that codec.
    pub(crate) codec: Codec,
    /// `partitioner` and what belongs to it.
    pub(crate) rules: Rules,
    /// `partitioner.availability.timeout.ms`; zero is off.
    pub(crate) availability_timeout: Duration,
    /// `client.rack`, if `partitioner.rack.aware` and it is set.
    pub(crate) rack: Option<String>,
}

/// Batches of a producer that a broker remembers for each partition.
const BATCHES_REMEMBERED: usize = 5;

impl ProducerConfig {
    /// From the options.
    ///
    /// Options of other kinds of clients are passed over with a log line, since programs share one
    /// set between their clients.
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        note_foreign(options, OptionScope::Producer);
        let acks = match options.text("acks")? {
            "0" => Acks::None,
            "1" => Acks::Leader,
            _ => Acks::All,
        };
        let config = Self {
            common: CommonConfig::new(options, true)?,
            acks,
            idempotent: idempotence(options, acks)?,
            linger: options.duration("linger.ms")?,
            batch_bytes: options.number("batch.size")?,
            memory_bytes: options.number("buffer.memory")?,
            max_block: options.duration("max.block.ms")?,
            delivery_timeout: delivery_timeout(options)?,
            request_bytes_max: options.number("max.request.size")?,
            in_flight_max: options.number("max.in.flight.requests.per.connection")?,
            retries: options.number("retries")?,
            codec: codec(options)?,
            rules: rules(options)?,
            availability_timeout: availability_timeout(options)?,
            rack: Some(options.text("client.rack")?.to_owned())
                .filter(|rack| !rack.is_empty())
                .filter(|_| options.bool("partitioner.rack.aware").is_ok_and(|aware| aware)),
        };
        if config.idempotent && config.in_flight_max > BATCHES_REMEMBERED {
            return Err(contradiction(format!(
                "`max.in.flight.requests.per.connection` is {}, but with `enable.idempotence` at \
                 most {BATCHES_REMEMBERED}",
                config.in_flight_max
            )));
        }
        if config.idempotent && config.retries == 0 {
            return Err(contradiction("`enable.idempotence` needs `retries` above 0"));
        }
        Ok(config)
    }

    /// How long a record waits for its topic to be known: its delivery timeout counts from `send`.
    pub(crate) fn topic_timeout(&self) -> Duration {
        self.max_block.min(self.delivery_timeout)
    }
}

/// Logs the options set that are for another kind of client.
pub(crate) fn note_foreign(options: &Options, own: OptionScope) {
    let ours = [OptionScope::Common, own];
    for row in options.rows().filter(|row| !ours.contains(&row.scope)) {
        tracing::warn!(
            option = row.kafka,
            scope = row.scope.name(),
            "option is not for this client"
        );
    }
}

fn contradiction(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOption, text)
}

/// How partitions are chosen.
fn rules(options: &Options) -> Result<Rules, Error> {
    let word = options.text("partitioner")?;
    let rule = match word {
        "round_robin" => Rule::Keyless(Keyless::RoundRobin),
        "random" => Rule::Keyless(Keyless::Random),
        "sticky" => Rule::Keyless(Keyless::Sticky),
        "crc32" | "consistent_random" => Rule::Hash(KeyHash::Crc32),
        "fnv1a" | "fnv1a_random" => Rule::Hash(KeyHash::Fnv1a),
        _ => Rule::Hash(KeyHash::Murmur2),
    };
    // librdkafka's names say both: the hash, and that records without a key go anywhere.
    let anywhere = word.ends_with("_random") && !options.is_set("partitioner.keyless");
    let keyless = match options.text("partitioner.keyless")? {
        _ if anywhere => Keyless::Random,
        "random" => Keyless::Random,
        "sticky" => Keyless::Sticky,
        _ => Keyless::RoundRobin,
    };
    let rule = match rule {
        Rule::Hash(_) if options.bool("partitioner.ignore.keys")? => Rule::Keyless(keyless),
        rule => rule,
    };
    let adaptive = options.bool("partitioner.adaptive.partitioning.enable")?;
    let sticking = Sticking::new(options.number("batch.size")?, adaptive);
    Ok(Rules { rule, keyless, sticking })
}

/// KIP-794: it counts only where queues are looked at.
fn availability_timeout(options: &Options) -> Result<Duration, Error> {
    let timeout = options.duration("partitioner.availability.timeout.ms")?;
    let adaptive = options.bool("partitioner.adaptive.partitioning.enable")?;
    Ok(if adaptive { timeout } else { Duration::ZERO })
}

/// The codec of the batches, at its own level. Kafka: KIP-390.
fn codec(options: &Options) -> Result<Codec, Error> {
    // All levels are checked, also that of a codec that is not used.
    let level = |compression, name| {
        let level = options.number(name)?;
        let codec = Codec::with_level(compression, level);
        codec.map_err(|fault| contradiction(format!("`{name}`: {fault}")))
    };
    let gzip = level(Compression::Gzip, "compression.gzip.level")?;
    let lz4 = level(Compression::Lz4, "compression.lz4.level")?;
    let zstd = level(Compression::Zstd, "compression.zstd.level")?;
    Ok(match options.text("compression.type")? {
        "gzip" => gzip,
        "snappy" => Codec::new(Compression::Snappy),
        "lz4" => lz4,
        "zstd" => zstd,
        _ => Codec::new(Compression::None),
    })
}

/// On, unless it was switched off or `acks` alone asks for less.
fn idempotence(options: &Options, acks: Acks) -> Result<bool, Error> {
    match options.bool_if_set("enable.idempotence") {
        Some(true) if acks != Acks::All => {
            Err(contradiction("`enable.idempotence` needs `acks` to be all"))
        }
        Some(wanted) => Ok(wanted),
        None if acks == Acks::All => Ok(true),
        None => {
            tracing::warn!("acks is not all, so idempotence is off: a retry may duplicate records");
            Ok(false)
        }
    }
}

/// KIP-91: a batch gets at least one full attempt. A default that is too short is lengthened.
fn delivery_timeout(options: &Options) -> Result<Duration, Error> {
    let timeout = options.duration("delivery.timeout.ms")?;
    let least = options.duration("linger.ms")? + options.duration("request.timeout.ms")?;
    if timeout >= least {
        return Ok(timeout);
    }
    if options.is_set("delivery.timeout.ms") {
        return Err(contradiction(format!(
            "`delivery.timeout.ms` is {}, but `linger.ms` + `request.timeout.ms` are {}",
            timeout.as_millis(),
            least.as_millis()
        )));
    }
    Ok(least)
}
