//! What can be set about a log, under Kafka's names and with Kafka's defaults.

use ottla_protocol::record::TimestampType;

/// Settings of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Bytes after which a new segment begins. Default 1 GiB. Kafka: `segment.bytes`.
    pub segment_bytes: u64,
    /// Age in ms after which a new segment begins. Default 7 days. Kafka: `segment.ms`.
    pub segment_ms: i64,
    /// Most that is taken off `segment_ms`, differently for each segment, so that not all logs roll
    /// at once. Default 0. Kafka: `segment.jitter.ms`.
    pub segment_jitter_ms: i64,
    /// Bytes of the log between two index entries. Default 4096. Kafka: `index.interval.bytes`.
    pub index_interval_bytes: u64,
    /// Bytes of an index at which a new segment begins. Default 10 MiB. Kafka:
    /// `segment.index.bytes`.
    pub segment_index_bytes: u64,
    /// Idle time in ms after which a producer is forgotten. Default 24 h. Kafka:
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i64,
    /// Whose clock dates the records. Default the producer's. Kafka: `message.timestamp.type`.
    pub timestamp_type: TimestampType,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            index_interval_bytes: 4096,
            segment_index_bytes: 10 << 20,
            producer_id_expiration_ms: 24 * 3_600_000,
            timestamp_type: TimestampType::CreateTime,
        }
    }
}
