//! The table of options, from which every language's names, types and texts are generated.

/// Who an option is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionScope {
    /// Every client.
    Common,
    /// Producers.
    Producer,
    /// Consumers.
    Consumer,
    /// Admin clients.
    Admin,
}

impl OptionScope {
    /// The scope as one lower-case word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Common => "common",
            Self::Producer => "producer",
            Self::Consumer => "consumer",
            Self::Admin => "admin",
        }
    }
}

/// What values an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionType {
    /// Any text.
    Text,
    /// Texts separated by commas.
    List,
    /// `true` or `false`.
    Bool,
    /// A whole number within a range, both ends included.
    Int {
        /// Least value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// A number of bytes within a range, both ends included.
    Bytes {
        /// Least value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// A time in milliseconds within a range, both ends included.
    Millis {
        /// Least value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `earliest`, `latest`, `none`, or `by_duration:` and an ISO 8601 duration (KIP-1106).
    Reset,
}

impl OptionType {
    /// The type as one lower-case word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::List => "list",
            Self::Bool => "bool",
            Self::Int { .. } => "int",
            Self::Bytes { .. } => "bytes",
            Self::Millis { .. } => "millis",
            Self::Choice(_) => "choice",
            Self::Reset => "reset",
        }
    }

    /// Least and largest value of a number.
    pub const fn range(self) -> Option<(i64, i64)> {
        match self {
            Self::Int { min, max } | Self::Bytes { min, max } | Self::Millis { min, max } => {
                Some((min, max))
            }
            _ => None,
        }
    }

    /// The words to choose from.
    pub const fn choices(self) -> &'static [&'static str] {
        match self {
            Self::Choice(words) => words,
            _ => &[],
        }
    }
}

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionRow {
    /// Kafka's dotted name, or a dotted name of ours where Kafka has no such option.
    pub kafka: &'static str,
    /// Our short name, in snake case.
    pub short: &'static str,
    /// Who it is for.
    pub scope: OptionScope,
    /// What values it takes.
    pub kind: OptionType,
    /// The value if none is set; `None` if it is then absent.
    pub default: Option<&'static str>,
    /// What it does, in one or two sentences.
    pub doc: &'static str,
}

use OptionScope::{Admin, Common, Consumer, Producer};
use OptionType::{Bool, Bytes, Choice, Int, List, Millis, Reset, Text};

const INT_MAX: i64 = 2_147_483_647;
/// Longest time that can be asked for: about 24 days, so that no sum of times can wrap.
const MILLIS_MAX: i64 = 2_147_483_647;
const BYTES_MAX: i64 = 2_147_483_647;
/// Largest budget of memory that can be asked for: 1 TiB.
const MEMORY_MAX: i64 = 1 << 40;

const fn row(
    scope: OptionScope,
    kafka: &'static str,
    short: &'static str,
    kind: OptionType,
    default: Option<&'static str>,
    doc: &'static str,
) -> OptionRow {
    OptionRow { kafka, short, scope, kind, default, doc }
}

const fn millis(min: i64) -> OptionType {
    Millis { min, max: MILLIS_MAX }
}

/// All options, those of every client first.
#[rustfmt::skip]
pub static OPTIONS: &[OptionRow] = &[
    row(Common, "bootstrap.servers", "bootstrap_servers", List, None,
        "Brokers to ask first, as host:port separated by commas. The others are learnt from them."),
    row(Common, "client.id", "client_id", Text, Some("ottla"),
        "Name that this client gives itself in the brokers' logs, metrics and quotas."),
    row(Common, "request.timeout.ms", "request_timeout", millis(1), Some("30000"),
        "Longest wait for the answer to one request; then its connection is closed and the request may be tried again."),
    row(Common, "retry.backoff.ms", "retry_backoff", millis(0), Some("100"),
        "First pause before a failed request is tried again; it doubles with each failure."),
    row(Common, "retry.backoff.max.ms", "retry_backoff_max", millis(0), Some("1000"),
        "Longest pause before a failed request is tried again."),
    row(Common, "reconnect.backoff.ms", "reconnect_backoff", millis(0), Some("50"),
        "First pause before a broker that could not be reached is tried again; it doubles with each failure."),
    row(Common, "reconnect.backoff.max.ms", "reconnect_backoff_max", millis(0), Some("1000"),
        "Longest pause before a broker that could not be reached is tried again."),
    row(Common, "socket.connection.setup.timeout.ms", "connect_timeout", millis(1), Some("10000"),
        "Longest wait for a connection to open; it doubles with each failure."),
    row(Common, "socket.connection.setup.timeout.max.ms", "connect_timeout_max", millis(1), Some("30000"),
        "Longest wait for a connection to open after several failures."),
    row(Common, "connections.max.idle.ms", "connections_max_idle", millis(1), Some("180000"),
        "A connection not used for so long is closed. Below the about 4 minutes after which cloud load balancers drop one."),
    row(Common, "metadata.max.age.ms", "metadata_max_age", millis(0), Some("300000"),
        "What is known of the cluster is asked for anew after so long."),
    row(Common, "metadata.max.idle.ms", "metadata_max_idle", millis(5000), Some("300000"),
        "A topic not used for so long is no longer asked about."),
    row(Common, "metadata.cluster.check.enable", "metadata_cluster_check", Bool, Some("true"),
        "Whether a broker that is not the one meant, or of another cluster, is left, and the cluster looked for anew at bootstrap.servers (KIP-1242). Without effect if metadata.recovery.strategy is none."),
    row(Common, "metadata.recovery.strategy", "metadata_recovery", Choice(&["rebootstrap", "none"]), Some("rebootstrap"),
        "What is done when no known broker can be reached: ask those of bootstrap.servers again (KIP-899), or only those that are known."),
    row(Common, "metadata.recovery.rebootstrap.trigger.ms", "metadata_recovery_trigger", millis(0), Some("300000"),
        "Where brokers take connections and nothing is learnt of the cluster for so long, those of bootstrap.servers are asked again (KIP-1102)."),
    row(Common, "client.dns.lookup", "client_dns_lookup", Choice(&["use_all_dns_ips"]), Some("use_all_dns_ips"),
        "A name is looked up at each connect, and its addresses are tried one after the other (KIP-602). There is no other way."),
    row(Common, "bootstrap.resolve.timeout.ms", "bootstrap_resolve_timeout", millis(0), Some("0"),
        "A client that cannot look up any name in bootstrap.servers for so long is at its end: its calls fail with InvalidOption (KIP-909). 0 sets no end: names are looked up again at each attempt to connect. Kafka's own client looks them up as it is made, and is not made if that fails."),
    row(Common, "client.rack", "client_rack", Text, Some(""),
        "Where this client stands. Consumers read from a near replica (KIP-392) and tell their group, which shares out by it unless that is by roundrobin (KIP-881); producers may prefer near leaders (partitioner.rack.aware)."),
    row(Common, "send.buffer.bytes", "send_buffer", Int { min: -1, max: INT_MAX }, Some("-1"),
        "Size of a socket's buffer for sending; -1 is what the system chooses, and changes as it sees fit. Kafka's default is 131072."),
    row(Common, "receive.buffer.bytes", "receive_buffer", Int { min: -1, max: INT_MAX }, Some("-1"),
        "Size of a socket's buffer for receiving; -1 is what the system chooses, and changes as it sees fit. Kafka's default is 65536, and 32768 for producers."),
    row(Common, "allow.auto.create.topics", "allow_auto_create_topics", Bool, None,
        "Whether asking about an unknown topic may create it, if the broker allows that too. True for producers, false for consumers and admin clients."),
    row(Common, "default.api.timeout.ms", "api_timeout", millis(1), Some("60000"),
        "Longest time of a call that was given no timeout of its own, its retries included. Producers go by max.block.ms and delivery.timeout.ms."),
    row(Producer, "acks", "acks", Choice(&["all", "-1", "0", "1"]), Some("all"),
        "Who must have a record before it counts as delivered: all in-sync replicas, the leader alone (1), or nobody (0)."),
    row(Producer, "enable.idempotence", "idempotence", Bool, None,
        "Whether retries can neither duplicate nor reorder records. True unless acks is set to 0 or 1."),
    row(Producer, "linger.ms", "linger", millis(0), Some("5"),
        "Longest time a record waits for company. An idle connection sends at once, a full batch never waits."),
    row(Producer, "batch.size", "batch_size", Bytes { min: 0, max: BYTES_MAX }, Some("262144"),
        "Largest batch before compression; a record larger than that travels alone. Kafka's default is 16384."),
    row(Producer, "buffer.memory", "buffer_memory", Bytes { min: 32_768, max: MEMORY_MAX }, Some("67108864"),
        "Memory for records not yet delivered, chunks of 16 KiB and more. It is a limit to the byte: when it is used up, send waits for up to max.block.ms. Only deliveries that are still to be told may pass it, which count too."),
    row(Producer, "max.block.ms", "max_block", millis(0), Some("60000"),
        "Longest wait of a send for memory, and of its record for the topic to be known."),
    row(Producer, "delivery.timeout.ms", "delivery_timeout", millis(0), Some("120000"),
        "A record without an answer after so long, counted from send, fails. At least linger.ms + request.timeout.ms, and by default never less than these."),
    row(Producer, "max.request.size", "max_request_size", Bytes { min: 1, max: BYTES_MAX }, Some("1048576"),
        "Largest request; send refuses a record that alone is larger."),
    row(Producer, "max.in.flight.requests.per.connection", "max_in_flight", Int { min: 1, max: 1000 }, Some("5"),
        "Batches of one partition on their way at a time; at most 5 with idempotence, since brokers remember 5. Without idempotence and above 1, a batch that is tried again may land behind later ones."),
    row(Producer, "retries", "retries", Int { min: 0, max: INT_MAX }, Some("2147483647"),
        "How often a batch is tried again before its delivery timeout; at least once with idempotence."),
    row(Producer, "compression.type", "compression", Choice(&["none", "gzip", "snappy", "lz4", "zstd"]), Some("none"),
        "Codec of the batches. Snappy is written in the framing of its Java library, as Kafka's own producer does."),
    row(Producer, "compression.gzip.level", "compression_gzip_level", Int { min: -1, max: 9 }, Some("-1"),
        "Level of gzip, 1 to 9; -1 is zlib's own choice."),
    row(Producer, "compression.lz4.level", "compression_lz4_level", Int { min: 1, max: 17 }, Some("9"),
        "Level of lz4. The default is the fast one; each other takes more time and less room, the more the higher, up to 12."),
    row(Producer, "compression.zstd.level", "compression_zstd_level", Int { min: -131_072, max: 22 }, Some("3"),
        "Level of zstd; above 19 its readers need tens of MiB each."),
    row(Producer, "partitioner", "partitioner", Choice(&["default", "key_hash", "crc32", "fnv1a", "round_robin", "random", "sticky", "murmur2_random", "consistent_random", "fnv1a_random"]), Some("default"),
        "Who chooses a record's partition if it names none. By the key: default and key_hash as Kafka's own client, crc32 as librdkafka's default, fnv1a as Sarama's. Whatever the key: round_robin, random, sticky. librdkafka's names murmur2_random, consistent_random and fnv1a_random are key_hash, crc32 and fnv1a with partitioner.keyless at random."),
    row(Producer, "partitioner.keyless", "partitioner_keyless", Choice(&["round_robin", "sticky", "random"]), Some("round_robin"),
        "Who chooses for a record without a key where keys are hashed: each partition in its turn, one until a batch for it is full (KIP-794, the way of Kafka's own client), or any. An empty key is a key, but not for crc32."),
    row(Producer, "partitioner.ignore.keys", "partitioner_ignore_keys", Bool, Some("false"),
        "Whether partitioner.keyless chooses for records with a key too (KIP-794). Without effect for a rule of the program's own."),
    row(Producer, "partitioner.adaptive.partitioning.enable", "partitioner_adaptive", Bool, Some("true"),
        "Whether sticky goes more often to partitions for which fewer batches wait."),
    row(Producer, "partitioner.availability.timeout.ms", "partitioner_availability_timeout", millis(0), Some("0"),
        "Sticky leaves out the partitions of a broker that has taken no waiting batch for so long; 0 leaves out none. Without effect if partitioner.adaptive.partitioning.enable is false."),
    row(Producer, "partitioner.rack.aware", "partitioner_rack_aware", Bool, Some("false"),
        "Whether records without a key go to partitions whose leader stands in client.rack, as long as there are any (KIP-1123)."),
    row(Consumer, "group.id", "group", Text, None,
        "Name of the group whose members share the partitions between them."),
    row(Consumer, "group.protocol", "group_protocol", Choice(&["classic"]), Some("classic"),
        "How members and coordinator share out partitions. The new protocol (consumer, KIP-848) is not there yet."),
    row(Consumer, "group.instance.id", "group_instance_id", Text, None,
        "Fixed name of this member, which keeps its partitions over a restart (KIP-345)."),
    row(Consumer, "auto.offset.reset", "start", Reset, Some("latest"),
        "Where to begin without a committed offset, or with one that is gone: latest, earliest, none (an error), or by_duration:PT1H, so long before now."),
    row(Consumer, "enable.auto.commit", "auto_commit", Bool, Some("true"),
        "Whether the offsets of finished records are committed by the client. What one poll gave counts as finished at the next."),
    row(Consumer, "acknowledgement.mode", "acknowledgement", Choice(&["implicit", "explicit"]), Some("implicit"),
        "How records are finished: by the next poll (implicit), or each by the program, by acknowledge, in any order (explicit), for who works on many at a time. Then the offset of the first unfinished record is committed, and what is finished behind it in the metadata beside it, 4,096 bytes at most: a consumer in explicit mode that reads on from there leaves it out. Kafka has it for share groups (KIP-932: share.acknowledgement.mode)."),
    row(Consumer, "auto.commit.interval.ms", "auto_commit_interval", millis(0), Some("5000"),
        "How often finished records are committed."),
    row(Consumer, "partition.assignment.strategy", "assignment", List, Some("cooperative-sticky"),
        "How a group shares the partitions between its members: cooperative-sticky, sticky, roundrobin, range, or some of them, the preferred first. A group needs one that all its members name. With cooperative-sticky alone members go on reading while they rebalance (KIP-429). Kafka's default is range,cooperative-sticky."),
    row(Consumer, "session.timeout.ms", "session_timeout", millis(1), Some("45000"),
        "A member silent for so long is taken for dead."),
    row(Consumer, "heartbeat.interval.ms", "heartbeat_interval", millis(1), Some("3000"),
        "How often a member tells that it lives; below session.timeout.ms."),
    row(Consumer, "max.poll.interval.ms", "max_poll_interval", millis(1), Some("300000"),
        "A member whose program does not poll for so long leaves its group, and joins again at the next poll."),
    row(Consumer, "max.poll.records", "max_poll_records", Int { min: 1, max: INT_MAX }, None,
        "Most records of one batch that a poll gives; without it, as many as were fetched."),
    row(Consumer, "fetch.min.bytes", "fetch_min_bytes", Bytes { min: 0, max: BYTES_MAX }, Some("1"),
        "A broker waits until it has so many bytes, or fetch.max.wait.ms is over."),
    row(Consumer, "fetch.max.bytes", "fetch_max_bytes", Bytes { min: 0, max: BYTES_MAX }, Some("16777216"),
        "Most bytes of one fetch; a first batch may be larger."),
    row(Consumer, "max.partition.fetch.bytes", "fetch_partition_bytes", Bytes { min: 0, max: BYTES_MAX }, Some("1048576"),
        "Most bytes of one partition in a fetch; a first batch may be larger."),
    row(Consumer, "fetch.max.wait.ms", "fetch_max_wait", millis(0), Some("500"),
        "Longest wait of a broker for fetch.min.bytes."),
    row(Consumer, "fetch.buffer.memory", "fetch_buffer_memory", Bytes { min: 1, max: MEMORY_MAX }, Some("67108864"),
        "Memory for records fetched ahead of the program, over all partitions: a limit to the byte. A quarter, 64 MiB at most, is for decompressed records with their places, 40 bytes each; the rest for what is fetched, reserved before a broker is asked. A batch that alone is larger than its part is read all the same, with nothing beside it there. Memory of large answers that waits for the next ones, 32 MiB at most over all connections, is kept as far as it fits in too. What is kept of paused partitions is given up, and fetched again, when others need the room."),
    row(Consumer, "isolation.level", "isolation", Choice(&["read_uncommitted", "read_committed"]), Some("read_uncommitted"),
        "Whether records of open and aborted transactions are read. read_committed is refused until transactions are supported."),
    row(Consumer, "exclude.internal.topics", "exclude_internal_topics", Bool, Some("true"),
        "Whether a pattern matches none of the topics that are Kafka's own, such as __consumer_offsets. By name they can be subscribed to in any case."),
    row(Consumer, "check.crcs", "check_crcs", Bool, Some("true"),
        "Whether the checksum of each fetched batch is verified."),
    row(Admin, "admin.calls.max", "admin_calls_max", Int { min: 1, max: 1_000_000 }, Some("1000"),
        "Calls of an admin client that are open at a time; one more is refused with BufferFull."),
];
