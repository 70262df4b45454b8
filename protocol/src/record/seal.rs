//! Closing a batch: its header from what the records came to, and its checksum.

use super::batch::{
    Attributes, BatchHeader, CRC_FROM, HEADER_LEN, LENGTH_PREFIX, MAGIC, rewrite_header,
};
use super::crc;
use super::error::BatchError;

/// What a batch's header says beside its records: where it goes and who wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSeal {
    /// Offset of the first record; 0 from a producer.
    pub base_offset: i64,
    /// Epoch of the partition's leader; −1 from a producer.
    pub partition_leader_epoch: i32,
    /// Codec of the body and kind of the batch.
    pub attributes: Attributes,
    /// Producer that writes it; −1 for none.
    pub producer_id: i64,
    /// Epoch of that producer; −1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record; −1 for none.
    pub base_sequence: i32,
}

impl Default for BatchSeal {
    /// A batch of no idempotent producer, on its way to the leader.
    fn default() -> Self {
        Self {
            base_offset: 0,
            partition_leader_epoch: -1,
            attributes: Attributes::default(),
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
        }
    }
}

/// What the records of an open batch come to so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSpan {
    /// What timestamp deltas count from: the first record's time.
    pub base_timestamp: i64,
    /// Largest timestamp so far.
    pub max_timestamp: i64,
    /// Offset delta of the last record; −1 before the first.
    pub last_offset_delta: i32,
    /// Records so far.
    pub records_count: i32,
}

impl BatchSpan {
    /// The span of a batch whose first record will be of `base_timestamp`.
    pub const fn new(base_timestamp: i64) -> Self {
        Self {
            base_timestamp,
            max_timestamp: base_timestamp,
            last_offset_delta: -1,
            records_count: 0,
        }
    }

    /// Offset delta of the next record.
    pub const fn next_delta(&self) -> i32 {
        self.last_offset_delta.saturating_add(1)
    }

    /// What a record of this time stores.
    pub const fn timestamp_delta(&self, timestamp: i64) -> i64 {
        timestamp.wrapping_sub(self.base_timestamp)
    }

    /// Notes one more record at the next offset.
    #[inline]
    pub fn add(&mut self, timestamp: i64) {
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.last_offset_delta += 1;
        self.records_count += 1;
    }
}

/// Writes the header of a batch whose body is `body_len` bytes of checksum `body_crc`.
///
/// The body is as it will be sent: compressed, if `seal.attributes` says so. `Length` if it is
/// longer than the format can say.
pub fn seal(
    header: &mut [u8; HEADER_LEN],
    seal: &BatchSeal,
    span: &BatchSpan,
    body_len: usize,
    body_crc: u32,
) -> Result<(), BatchError> {
    let length = body_len.saturating_add(HEADER_LEN - LENGTH_PREFIX);
    let Ok(batch_length) = i32::try_from(length) else {
        return Err(BatchError::Length { length: i64::try_from(length).unwrap_or(i64::MAX) });
    };
    let fields = BatchHeader {
        base_offset: seal.base_offset,
        batch_length,
        partition_leader_epoch: seal.partition_leader_epoch,
        magic: MAGIC,
        crc: 0,
        attributes: seal.attributes,
        last_offset_delta: span.last_offset_delta.max(0),
        base_timestamp: span.base_timestamp,
        max_timestamp: span.max_timestamp,
        producer_id: seal.producer_id,
        producer_epoch: seal.producer_epoch,
        base_sequence: seal.base_sequence,
        records_count: span.records_count,
    };
    fields.write(header);
    let crc = crc::combine(crc::of(&header[CRC_FROM..]), body_crc, body_len);
    header[17..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    Ok(())
}

/// Gives a sealed batch another producer id, epoch and sequence, without a look at its records.
///
/// `header` is the batch's first 61 bytes or more. Kafka: an epoch bump of KIP-360.
pub fn reseal(
    header: &mut [u8],
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
) -> Result<(), BatchError> {
    rewrite_header(header, |header| {
        header.producer_id = producer_id;
        header.producer_epoch = producer_epoch;
        header.base_sequence = base_sequence;
    })
}
