//! A batch's records, looked at one by one as they are decompressed, and written in another codec.

use bytes::BytesMut;
use ottla_protocol::ErrorCode;
use ottla_protocol::record::{
    Batch, BatchError, BatchSeal, BatchSpan, Codec, Compression, CompressionError, Compressor,
    HEADER_LEN, RecordOutline, RecordScan, ScanError, TimestampType, crc, seal,
    stamp_max_timestamp,
};

use super::{AppendRules, check_size, invalid, too_large};
use crate::error::Rejected;

/// The most that the records of a batch may come to where they are looked at. Kafka has no bound
/// but its time: a batch of 1 MiB can hold 32 GiB.
const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;

/// The most that is decompressed only to tell which record was refused.
const SEARCHED_BYTES_MAX: usize = 64 << 20;

/// Index of the first record that is later than `latest`; `None` where it is not found soon.
pub(super) fn first_beyond(batch: &Batch<'_>, latest: i64) -> Option<i32> {
    let scan = RecordScan::new(batch, SEARCHED_BYTES_MAX).ok()?;
    let index = scan.map_while(Result::ok).position(|record| record.timestamp > latest)?;
    i32::try_from(index).ok()
}

/// Checks every record. Gives the batch anew if its header tells a false largest timestamp, which
/// retention and lookups by time go by.
pub(super) fn look_at(
    batch: &Batch<'_>,
    rules: &AppendRules,
    now_ms: i64,
) -> Result<Option<BytesMut>, Rejected> {
    let mut scan = RecordScan::new(batch, DECOMPRESSED_BYTES_MAX).map_err(unreadable)?;
    let max_timestamp = Demands::new(rules, now_ms).check_all(&mut scan)?;
    if rules.timestamp_type == TimestampType::LogAppendTime
        || max_timestamp == batch.header.max_timestamp
    {
        return Ok(None);
    }
    let mut rewritten = BytesMut::from(batch.bytes);
    stamp_max_timestamp(&mut rewritten, max_timestamp).map_err(unreadable)?;
    Ok(Some(rewritten))
}

/// Checks every record, and gives the batch with its records in another codec.
pub(super) fn recompress(
    batch: &Batch<'_>,
    target: Codec,
    rules: &AppendRules,
    now_ms: i64,
) -> Result<BytesMut, Rejected> {
    // What passes this cannot be packed into a batch that may be stored.
    let limit = rules
        .max_message_bytes
        .saturating_mul(growth_most(target.compression()))
        .min(DECOMPRESSED_BYTES_MAX);
    let mut out = vec![0; HEADER_LEN];
    let copy = Compressor::new(target, None, &mut out).map_err(|fault| unreadable(fault.into()))?;
    let mut scan = RecordScan::copying(batch, limit, copy).map_err(unreadable)?;
    let max_timestamp =
        Demands { packed: true, ..Demands::new(rules, now_ms) }.check_all(&mut scan)?;
    if let Some(copy) = scan.into_copy() {
        copy.finish().map_err(|fault| unreadable(fault.into()))?;
    }
    check_size(out.len(), rules)?;
    close(batch, target.compression(), max_timestamp, &mut out).map_err(unreadable)?;
    Ok(BytesMut::from(&out[..]))
}

/// Most bytes that one byte of a codec's form can stand for, generously.
const fn growth_most(codec: Compression) -> usize {
    match codec {
        Compression::None => 1,
        Compression::Snappy => 22,
        Compression::Lz4 => 256,
        Compression::Gzip => 1_040,
        Compression::Zstd => 1 << 17,
    }
}

/// Writes the header of a recompressed batch: the producer's, but for codec, length and checksum,
/// and the largest timestamp that its records have.
fn close(
    batch: &Batch<'_>,
    codec: Compression,
    max_timestamp: i64,
    out: &mut [u8],
) -> Result<(), BatchError> {
    let old = &batch.header;
    let fields = BatchSeal {
        base_offset: old.base_offset,
        partition_leader_epoch: old.partition_leader_epoch,
        attributes: old.attributes.with_compression(codec),
        producer_id: old.producer_id,
        producer_epoch: old.producer_epoch,
        base_sequence: old.base_sequence,
    };
    let span = BatchSpan {
        base_timestamp: old.base_timestamp,
        max_timestamp,
        last_offset_delta: old.last_offset_delta,
        records_count: old.records_count,
    };
    let have = out.len();
    let Some((header, body)) = out.split_first_chunk_mut::<HEADER_LEN>() else {
        return Err(BatchError::Truncated { have, need: HEADER_LEN });
    };
    seal(header, &fields, &span, body.len(), crc::of(body))
}

fn unreadable(fault: BatchError) -> Rejected {
    invalid(fault.to_string())
}

/// What each record must keep to.
struct Demands<'a> {
    rules: &'a AppendRules,
    earliest: i64,
    latest: i64,
    /// Whether they are packed anew, into a batch that must not become too large.
    packed: bool,
}

impl<'a> Demands<'a> {
    fn new(rules: &'a AppendRules, now_ms: i64) -> Self {
        Self {
            rules,
            earliest: now_ms.saturating_sub(rules.timestamp_before_max_ms),
            latest: now_ms.saturating_add(rules.timestamp_after_max_ms),
            packed: false,
        }
    }

    /// Checks all records in order. Gives the largest timestamp.
    fn check_all(&self, scan: &mut RecordScan<'_, '_>) -> Result<i64, Rejected> {
        let mut max_timestamp = -1;
        let mut expected = 0_i64;
        while let Some(record) = scan.next() {
            let record = record.map_err(|fault| self.refused(fault))?;
            let index = i32::try_from(expected).unwrap_or(i32::MAX);
            self.check(&record, expected).map_err(|refused| refused.at_record(index))?;
            max_timestamp = max_timestamp.max(record.timestamp);
            expected += 1;
            if scan.copied_bytes() > self.rules.max_message_bytes {
                return Err(self.grown());
            }
        }
        Ok(max_timestamp)
    }

    fn refused(&self, fault: ScanError) -> Rejected {
        match fault {
            ScanError::Record(fault) => match i32::try_from(fault.index) {
                Ok(index) => invalid(fault.to_string()).at_record(index),
                Err(_) => invalid(fault.to_string()),
            },
            ScanError::Compression(CompressionError::TooLarge { .. }) if self.packed => {
                self.grown()
            }
            ScanError::Compression(fault) => unreadable(fault.into()),
        }
    }

    fn grown(&self) -> Rejected {
        too_large("the batch in the topic's own codec has too many bytes".to_owned(), self.rules)
    }

    fn check(&self, record: &RecordOutline, expected: i64) -> Result<(), Rejected> {
        let rules = self.rules;
        if record.len > rules.max_decompressed_bytes {
            return Err(invalid(format!(
                "the record has {} bytes, more than max.decompressed.message.bytes of {}",
                record.len, rules.max_decompressed_bytes
            )));
        }
        if record.offset != expected {
            return Err(invalid(format!("the record has offset delta {}", record.offset)));
        }
        if rules.compacted && record.key_len.is_none() {
            return Err(invalid("a compacted topic takes records with a key only"));
        }
        let in_time = record.timestamp >= self.earliest && record.timestamp <= self.latest;
        let dated = rules.timestamp_type == TimestampType::CreateTime && record.timestamp != -1;
        if dated && !in_time {
            let message = format!(
                "timestamp {} lies outside {} to {}, as message.timestamp.before.max.ms and \
                 message.timestamp.after.max.ms allow",
                record.timestamp, self.earliest, self.latest
            );
            return Err(Rejected::new(ErrorCode::INVALID_TIMESTAMP, message));
        }
        Ok(())
    }
}
