//! What a leader demands of a producer's batch before it comes to the log.

use ottla_protocol::ErrorCode;
use ottla_protocol::record::{
    Batch, BatchError, BatchHeader, Compression, HEADER_LEN, RecordView, TimestampType,
    batch::LENGTH_PREFIX, batch::MAGIC,
};

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
    /// Most bytes of a batch's records once decompressed, where they are looked at. Default
    /// 2³¹ − 9. Kafka: `max.decompressed.message.bytes`.
    pub max_decompressed_bytes: usize,
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
        }
    }
}

/// Judges the set that a producer sent for one partition, and gives its batch's header.
///
/// Checks go in Kafka's order (LogValidator, UnifiedLog); the first that fails refuses the set.
/// Sequences are the log's own matter: [`crate::Log::append`].
pub fn validate_set(
    bytes: &[u8],
    rules: &AppendRules,
    produce_version: i16,
    now_ms: i64,
) -> Result<BatchHeader, Rejected> {
    let batch = one_batch(bytes)?;
    let header = batch.header;
    check_codec(&header, produce_version)?;
    if bytes.len() > rules.max_message_bytes {
        let message = format!(
            "the batch has {} bytes, more than max.message.bytes of {}",
            bytes.len(),
            rules.max_message_bytes
        );
        return Err(Rejected::new(ErrorCode::MESSAGE_TOO_LARGE, message));
    }
    if let Err(fault) = batch.verify_crc() {
        return Err(Rejected::new(ErrorCode::CORRUPT_MESSAGE, fault.to_string()));
    }
    check_header(&header)?;
    check_future(&batch, rules, now_ms)?;
    let past_limited = rules.timestamp_type == TimestampType::CreateTime
        && rules.timestamp_before_max_ms != i64::MAX;
    if rules.compacted || past_limited || rules.strict {
        check_records(&batch, rules, now_ms)?;
    }
    if bytes.len() > rules.segment_bytes {
        let message = format!(
            "the set has {} bytes, more than segment.bytes of {}",
            bytes.len(),
            rules.segment_bytes
        );
        return Err(Rejected::new(ErrorCode::RECORD_LIST_TOO_LARGE, message));
    }
    Ok(header)
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

fn check_codec(header: &BatchHeader, produce_version: i16) -> Result<(), Rejected> {
    let unsupported =
        |message: String| Rejected::new(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, message);
    match header.attributes.compression() {
        Ok(Compression::Zstd) if produce_version < ZSTD_FROM_VERSION => Err(unsupported(format!(
            "zstd comes with Produce version {ZSTD_FROM_VERSION}, not {produce_version}"
        ))),
        Ok(_) => Ok(()),
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
    debug_assert!(header.size() >= HEADER_LEN && HEADER_LEN > LENGTH_PREFIX);
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
    let index = find_record(batch, rules, |record| record.timestamp > latest);
    Err(match index {
        Some(index) => refused.at_record(index),
        None => refused,
    })
}

fn find_record(
    batch: &Batch<'_>,
    rules: &AppendRules,
    wanted: impl Fn(&RecordView<'_>) -> bool,
) -> Option<i32> {
    let records = batch.records(rules.max_decompressed_bytes).ok()?;
    let index = records.iter().map_while(Result::ok).position(|record| wanted(&record))?;
    i32::try_from(index).ok()
}

/// Looks at every record.
fn check_records(batch: &Batch<'_>, rules: &AppendRules, now_ms: i64) -> Result<(), Rejected> {
    let records =
        batch.records(rules.max_decompressed_bytes).map_err(|fault| invalid(fault.to_string()))?;
    let earliest = now_ms.saturating_sub(rules.timestamp_before_max_ms);
    let dated = rules.timestamp_type == TimestampType::CreateTime;
    let latest = now_ms.saturating_add(rules.timestamp_after_max_ms);
    for (expected, record) in (0_i64..).zip(records.iter()) {
        let record = record.map_err(|fault| {
            let refused = invalid(fault.to_string());
            i32::try_from(fault.index)
                .map_or_else(|_| refused.clone(), |index| refused.clone().at_record(index))
        })?;
        let index = i32::try_from(expected).unwrap_or(i32::MAX);
        let refuse = |code, message: String| Err(Rejected::new(code, message).at_record(index));
        if record.offset != expected {
            let message = format!("the record has offset delta {}", record.offset);
            return refuse(ErrorCode::INVALID_RECORD, message);
        }
        if rules.compacted && record.key.is_none() {
            let message = "a compacted topic takes records with a key only".to_owned();
            return refuse(ErrorCode::INVALID_RECORD, message);
        }
        let in_time = record.timestamp >= earliest && record.timestamp <= latest;
        if dated && record.timestamp != -1 && !in_time {
            let message = format!(
                "timestamp {} lies outside {earliest} to {latest}, as \
                 message.timestamp.before.max.ms and message.timestamp.after.max.ms allow",
                record.timestamp
            );
            return refuse(ErrorCode::INVALID_TIMESTAMP, message);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
