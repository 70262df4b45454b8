//! What a leader demands of a producer's batch before it comes to the log.

mod records;

use bytes::BytesMut;
use ottla_protocol::ErrorCode;
use ottla_protocol::record::{
    Batch, BatchError, BatchHeader, Codec, Compression, TimestampType, batch::MAGIC,
};

use self::records::{first_beyond, look_at, recompress};
use crate::error::Rejected;

/// First version of Produce that may carry zstd (KIP-110).
const ZSTD_FROM_VERSION: i16 = 7;

/// A topic's demands on batches, under Kafka's names and with Kafka's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendRules {
    /// Most bytes of a batch. Default 1,048,588. Kafka: `max.message.bytes`.
    pub max_message_bytes: usize,
    /// Whose clock dates the records. Kafka: `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// How far in ms a record's time may lie behind; default without limit. Kafka:
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// How far in ms a record's time may lie ahead; default 1 h (KIP-1030). Kafka:
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// Whether every record must have a key, since the topic is compacted. Kafka:
    /// `cleanup.policy`.
    pub compacted: bool,
    /// Most bytes of a set. Default 1 GiB. Kafka: `segment.bytes`.
    pub segment_bytes: usize,
    /// Whether every record is looked at, as Kafka does. Default false: header and checksum do.
    pub strict: bool,
    /// Most bytes of a record once decompressed, where records are looked at. Default 2³¹ − 9.
    /// Kafka: `max.decompressed.message.bytes`.
    pub max_decompressed_bytes: usize,
    /// Codec in which batches are stored; `None` leaves them as they come. Kafka:
    /// `compression.type` and the levels of KIP-390.
    pub compression: Option<Codec>,
}

impl Default for AppendRules {
    fn default() -> Self {
        Self {
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compacted: false,
            segment_bytes: 1 << 30,
            strict: false,
            max_decompressed_bytes: 0x7fff_fff7,
            compression: None,
        }
    }
}

/// A set that may be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The header of its batch, as it is to be stored.
    pub header: BatchHeader,
    /// The batch in another form than it came, if it has to be: in the topic's codec, or with the
    /// largest timestamp that its records have.
    pub rewritten: Option<BytesMut>,
}

/// Judges the set that a producer sent for one partition.
///
/// Checks go in Kafka's order (LogValidator, UnifiedLog); the first that fails refuses the set.
/// Sequences are the log's own matter: [`crate::Log::append`].
///
/// Records are looked at in a stream, in 64 KiB beside the codec's window, and only where a rule
/// needs it: a compacted topic, a limit on old timestamps, another codec, or `strict`.
pub fn validate_set(
    bytes: &[u8],
    rules: &AppendRules,
    produce_version: i16,
    now_ms: i64,
) -> Result<Accepted, Rejected> {
    let batch = one_batch(bytes)?;
    let codec = check_codec(&batch.header, produce_version)?;
    check_size(bytes.len(), rules)?;
    if let Err(fault) = batch.verify_crc() {
        return Err(corrupt(&fault));
    }
    check_header(&batch.header)?;
    check_future(&batch, rules, now_ms)?;
    let past_limited = rules.timestamp_type == TimestampType::CreateTime
        && rules.timestamp_before_max_ms != i64::MAX;
    let rewritten = match rules.compression.filter(|target| target.compression() != codec) {
        Some(target) => Some(recompress(&batch, target, rules, now_ms)?),
        None if rules.compacted || past_limited || rules.strict => look_at(&batch, rules, now_ms)?,
        None => None,
    };
    let stored = rewritten.as_deref().unwrap_or(bytes);
    if stored.len() > rules.segment_bytes {
        let message = format!(
            "the set has {} bytes, more than segment.bytes of {}",
            stored.len(),
            rules.segment_bytes
        );
        return Err(Rejected::new(ErrorCode::RECORD_LIST_TOO_LARGE, message));
    }
    let header = match &rewritten {
        Some(bytes) => BatchHeader::parse(bytes).map_err(|fault| invalid(fault.to_string()))?,
        None => batch.header,
    };
    Ok(Accepted { header, rewritten })
}

fn check_size(len: usize, rules: &AppendRules) -> Result<(), Rejected> {
    if len <= rules.max_message_bytes {
        return Ok(());
    }
    Err(too_large(format!("the batch has {len} bytes"), rules))
}

fn too_large(what: String, rules: &AppendRules) -> Rejected {
    let most = rules.max_message_bytes;
    let message = format!("{what}, more than max.message.bytes of {most}");
    Rejected::new(ErrorCode::MESSAGE_TOO_LARGE, message)
}

fn corrupt(fault: &BatchError) -> Rejected {
    Rejected::new(ErrorCode::CORRUPT_MESSAGE, fault.to_string())
}

fn invalid(message: impl Into<String>) -> Rejected {
    Rejected::new(ErrorCode::INVALID_RECORD, message)
}

/// The one batch that fills the bytes.
fn one_batch(bytes: &[u8]) -> Result<Batch<'_>, Rejected> {
    if bytes.is_empty() {
        return Err(invalid("a partition needs exactly one batch; there is none"));
    }
    let batch = match Batch::parse(bytes) {
        Ok(batch) => batch,
        // As Kafka: no format has such a version or length, so the bytes were harmed on their way,
        // and sending them again may help.
        Err(fault @ (BatchError::Magic { magic: ..0 | 3.. } | BatchError::Length { .. })) => {
            return Err(corrupt(&fault));
        }
        Err(BatchError::Magic { magic }) => {
            return Err(invalid(format!(
                "the batch has format version {magic}; this version of Produce carries {MAGIC} only"
            )));
        }
        Err(fault) => return Err(invalid(fault.to_string())),
    };
    if batch.bytes.len() != bytes.len() {
        let extra = bytes.len() - batch.bytes.len();
        return Err(invalid(format!(
            "a partition needs exactly one batch; {extra} bytes follow the first"
        )));
    }
    if batch.header.base_offset != 0 {
        return Err(invalid(format!(
            "a producer's batch begins at offset 0, not {}",
            batch.header.base_offset
        )));
    }
    Ok(batch)
}

fn check_codec(header: &BatchHeader, produce_version: i16) -> Result<Compression, Rejected> {
    let unsupported =
        |message: String| Rejected::new(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, message);
    match header.attributes.compression() {
        Ok(Compression::Zstd) if produce_version < ZSTD_FROM_VERSION => Err(unsupported(format!(
            "zstd comes with Produce version {ZSTD_FROM_VERSION}, not {produce_version}"
        ))),
        Ok(codec) => Ok(codec),
        Err(fault) => Err(unsupported(fault.to_string())),
    }
}

fn check_header(header: &BatchHeader) -> Result<(), Rejected> {
    if header.records_count <= 0 {
        return Err(invalid("the batch has no records"));
    }
    if i64::from(header.records_count) != i64::from(header.last_offset_delta) + 1 {
        return Err(invalid(format!(
            "the batch counts {} records, but its last offset delta is {}",
            header.records_count, header.last_offset_delta
        )));
    }
    if header.attributes.is_control() {
        return Err(invalid("control batches are written by brokers only"));
    }
    if header.has_producer() && header.base_sequence < 0 {
        return Err(invalid("a batch with a producer id needs a sequence"));
    }
    if header.attributes.has_unknown() || header.attributes.has_delete_horizon() {
        return Err(invalid(format!(
            "attributes {:#06x} have bits that a producer does not set",
            header.attributes.0
        )));
    }
    Ok(())
}

fn check_future(batch: &Batch<'_>, rules: &AppendRules, now_ms: i64) -> Result<(), Rejected> {
    let latest = now_ms.saturating_add(rules.timestamp_after_max_ms);
    let max_timestamp = batch.header.max_timestamp;
    if rules.timestamp_type == TimestampType::LogAppendTime || max_timestamp <= latest {
        return Ok(());
    }
    let message = format!(
        "timestamp {max_timestamp} lies more than message.timestamp.after.max.ms of {} ahead of \
         the broker's {now_ms}; timestamps are in milliseconds",
        rules.timestamp_after_max_ms
    );
    let refused = Rejected::new(ErrorCode::INVALID_TIMESTAMP, message);
    // Which record it is helps whoever sent it; a batch that cannot be read is refused without.
    Err(match first_beyond(batch, latest) {
        Some(index) => refused.at_record(index),
        None => refused,
    })
}

#[cfg(test)]
mod tests;
