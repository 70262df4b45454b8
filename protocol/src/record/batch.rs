//! The header of a record batch, whole batches in place, and the stamps a leader puts on them.

use super::compression::{Compression, CompressionError};
use super::crc;
use super::decoded::BatchRecords;
use super::error::BatchError;

/// Bytes before the records: everything up to and with the record count.
pub const HEADER_LEN: usize = 61;
/// Bytes before those that the length field counts.
pub const LENGTH_PREFIX: usize = 12;
/// Least value of the length field: a header without records.
const LENGTH_MIN: i32 = 49;
/// The batch format that is read and written.
pub const MAGIC: i8 = 2;
/// Fewest bytes of a record: seven fields of one byte each.
pub const MIN_RECORD_LEN: usize = 7;
/// First byte that the checksum covers.
pub(super) const CRC_FROM: usize = 21;

/// Which clock the timestamps of a batch come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimestampType {
    /// The producer's, per record.
    #[default]
    CreateTime,
    /// The leader's when it stored the batch: one for all records, in `max_timestamp`.
    LogAppendTime,
}

/// The attribute bits of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    const CODEC: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    const fn has(self, bit: i16) -> bool {
        self.0 & bit != 0
    }

    const fn with(self, bit: i16, on: bool) -> Self {
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }

    /// The codec of the body (bits 0 to 2); an error for the three numbers that have no codec.
    pub fn compression(self) -> Result<Compression, CompressionError> {
        let [_, low] = (self.0 & Self::CODEC).to_be_bytes();
        Compression::from_id(low)
    }

    /// Which clock the timestamps come from (bit 3).
    pub const fn timestamp_type(self) -> TimestampType {
        if self.has(Self::LOG_APPEND_TIME) {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// Whether the batch belongs to a transaction (bit 4).
    pub const fn is_transactional(self) -> bool {
        self.has(Self::TRANSACTIONAL)
    }

    /// Whether the batch holds control records, which no application sees (bit 5).
    pub const fn is_control(self) -> bool {
        self.has(Self::CONTROL)
    }

    /// Whether the base timestamp is the delete horizon of a compacted batch (bit 6).
    pub const fn has_delete_horizon(self) -> bool {
        self.has(Self::DELETE_HORIZON)
    }

    /// Whether bits are set that have no meaning yet (7 and up).
    pub const fn has_unknown(self) -> bool {
        self.0 & !0x7f != 0
    }

    /// These attributes with the codec.
    #[must_use]
    pub fn with_compression(self, codec: Compression) -> Self {
        Self((self.0 & !Self::CODEC) | i16::from(codec.id()))
    }

    /// These attributes with the timestamp type.
    #[must_use]
    pub const fn with_timestamp_type(self, kind: TimestampType) -> Self {
        self.with(Self::LOG_APPEND_TIME, matches!(kind, TimestampType::LogAppendTime))
    }

    /// These attributes with the transaction bit.
    #[must_use]
    pub const fn with_transactional(self, on: bool) -> Self {
        self.with(Self::TRANSACTIONAL, on)
    }

    /// These attributes with the control bit.
    #[must_use]
    pub const fn with_control(self, on: bool) -> Self {
        self.with(Self::CONTROL, on)
    }

    /// These attributes with the delete horizon bit.
    #[must_use]
    pub const fn with_delete_horizon(self, on: bool) -> Self {
        self.with(Self::DELETE_HORIZON, on)
    }
}

/// The 61 bytes in front of the records, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; a producer sends 0, the leader stamps it.
    pub base_offset: i64,
    /// Bytes after this field: the whole batch less 12.
    pub batch_length: i32,
    /// Epoch of the leader that stored the batch; −1 from a producer.
    pub partition_leader_epoch: i32,
    /// Format version, 2.
    pub magic: i8,
    /// CRC-32C of byte 21 to the end.
    pub crc: u32,
    /// Codec, timestamp type and the batch's kind.
    pub attributes: Attributes,
    /// Offset of the last record less the base offset; kept by compaction when that record goes.
    pub last_offset_delta: i32,
    /// What the records' timestamp deltas add to, in ms; or the delete horizon.
    pub base_timestamp: i64,
    /// Largest timestamp in the batch, in ms.
    pub max_timestamp: i64,
    /// Producer that wrote it; −1 for none.
    pub producer_id: i64,
    /// Epoch of that producer; −1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record; −1 for none.
    pub base_sequence: i32,
    /// Records in the batch.
    pub records_count: i32,
}

impl BatchHeader {
    /// The header at the front of `bytes`, each field within what the format allows.
    ///
    /// The records need not be there. `Truncated` when the header is cut.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        // Older formats put their version at the same byte, and may be shorter than this header.
        if let Some(&magic) = bytes.get(16)
            && magic.cast_signed() != MAGIC
        {
            return Err(BatchError::Magic { magic: magic.cast_signed() });
        }
        if let Some(length) = bytes.get(8..12).and_then(|field| field.first_chunk()) {
            let length = i32::from_be_bytes(*length);
            if length < LENGTH_MIN && !crate::left_out("batch_length") {
                return Err(BatchError::Length { length: i64::from(length) });
            }
        }
        let Some(raw) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(BatchError::Truncated { have: bytes.len(), need: HEADER_LEN });
        };
        Self::read(raw).checked()
    }

    fn read(raw: &[u8; HEADER_LEN]) -> Self {
        fn field<const AT: usize, const N: usize>(raw: &[u8; HEADER_LEN]) -> [u8; N] {
            let mut bytes = [0; N];
            bytes.copy_from_slice(&raw[AT..AT + N]);
            bytes
        }
        Self {
            base_offset: i64::from_be_bytes(field::<0, 8>(raw)),
            batch_length: i32::from_be_bytes(field::<8, 4>(raw)),
            partition_leader_epoch: i32::from_be_bytes(field::<12, 4>(raw)),
            magic: i8::from_be_bytes(field::<16, 1>(raw)),
            crc: u32::from_be_bytes(field::<17, 4>(raw)),
            attributes: Attributes(i16::from_be_bytes(field::<21, 2>(raw))),
            last_offset_delta: i32::from_be_bytes(field::<23, 4>(raw)),
            base_timestamp: i64::from_be_bytes(field::<27, 8>(raw)),
            max_timestamp: i64::from_be_bytes(field::<35, 8>(raw)),
            producer_id: i64::from_be_bytes(field::<43, 8>(raw)),
            producer_epoch: i16::from_be_bytes(field::<51, 2>(raw)),
            base_sequence: i32::from_be_bytes(field::<53, 4>(raw)),
            records_count: i32::from_be_bytes(field::<57, 4>(raw)),
        }
    }

    fn checked(self) -> Result<Self, BatchError> {
        let end = self
            .base_offset
            .checked_add(i64::from(self.last_offset_delta))
            .and_then(|last| last.checked_add(1));
        let outside = self.last_offset_delta < 0 || end.is_none();
        if outside && !crate::left_out("last_offset") {
            return Err(BatchError::LastOffsetDelta { delta: self.last_offset_delta });
        }
        let plain = self.attributes.0 & Attributes::CODEC == 0;
        let fits = usize::try_from(self.records_count)
            .is_ok_and(|count| !plain || count <= self.body_len() / MIN_RECORD_LEN);
        if !fits && !crate::left_out("records_count") {
            return Err(BatchError::RecordsCount { count: self.records_count });
        }
        Ok(self)
    }

    /// Writes all fields as they are, checksum and length with them.
    pub fn write(&self, out: &mut [u8; HEADER_LEN]) {
        out[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        out[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        out[12..16].copy_from_slice(&self.partition_leader_epoch.to_be_bytes());
        out[16..17].copy_from_slice(&self.magic.to_be_bytes());
        out[17..21].copy_from_slice(&self.crc.to_be_bytes());
        out[21..23].copy_from_slice(&self.attributes.0.to_be_bytes());
        out[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        out[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        out[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        out[57..61].copy_from_slice(&self.records_count.to_be_bytes());
    }

    /// Bytes of the whole batch.
    pub fn size(&self) -> usize {
        usize::try_from(self.batch_length).unwrap_or(0) + LENGTH_PREFIX
    }

    /// Bytes of the records, compressed if they are.
    pub fn body_len(&self) -> usize {
        self.size().saturating_sub(HEADER_LEN)
    }

    /// Offset of the last record that the batch had when it was written.
    pub const fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(widen(self.last_offset_delta))
    }

    /// Offset at which the next batch begins, also for a batch that compaction emptied.
    pub const fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// Sequence of the last record; after 2³¹−1 comes 0. −1 where there is no sequence.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        let sum = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        i32::try_from(sum & i64::from(i32::MAX)).unwrap_or(0)
    }

    /// Whether an idempotent producer wrote the batch.
    pub const fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }
}

#[expect(clippy::as_conversions, reason = "widening, and From is not const")]
const fn widen(value: i32) -> i64 {
    value as i64
}

/// One whole batch in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Its header, parsed.
    pub header: BatchHeader,
    /// All its bytes, header included, and none that follow.
    pub bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The first batch of `bytes`; more may follow. `Truncated` when it is cut.
    ///
    /// Neither the checksum nor the records are looked at.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(bytes)?;
        let need = header.size();
        match bytes.get(..need) {
            Some(bytes) => Ok(Self { header, bytes }),
            None => Err(BatchError::Truncated { have: bytes.len(), need }),
        }
    }

    /// Whether the bytes are exactly one batch: its length field fills them.
    pub fn is_whole(bytes: &'a [u8]) -> bool {
        Self::parse(bytes).is_ok_and(|batch| batch.bytes.len() == bytes.len())
    }

    /// The records' bytes, compressed if they are.
    pub fn body(&self) -> &'a [u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }

    /// As [`Batch::body`], but nothing where the batch counts no records: compaction leaves such
    /// batches, and Kafka looks at nothing behind their header.
    pub(super) fn records_bytes(&self) -> &'a [u8] {
        if self.header.records_count == 0 { &[] } else { self.body() }
    }

    /// Reads the whole batch and compares its checksum.
    pub fn verify_crc(&self) -> Result<(), BatchError> {
        let computed = crc::of(self.bytes.get(CRC_FROM..).unwrap_or_default());
        let stored = self.header.crc;
        if stored == computed { Ok(()) } else { Err(BatchError::Crc { stored, computed }) }
    }

    /// The records, decompressed to at most `limit` bytes; borrowed where they are not compressed.
    pub fn records(&self, limit: usize) -> Result<BatchRecords<'a>, BatchError> {
        BatchRecords::new(self, limit)
    }
}

/// The batches of a set one after the other, up to its end or to a tail that is cut.
///
/// After an error nothing follows: where the next batch begins is not known.
pub fn batches(bytes: &[u8]) -> impl Iterator<Item = Result<Batch<'_>, BatchError>> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || match Batch::parse(rest?) {
        Ok(batch) => {
            rest = rest.and_then(|rest| rest.get(batch.bytes.len()..));
            Some(Ok(batch))
        }
        Err(fault) => {
            rest = None;
            // A fetch ends where its byte limit does, inside a batch (KIP-74).
            if matches!(fault, BatchError::Truncated { .. }) { None } else { Some(Err(fault)) }
        }
    })
}

/// Gives a batch its place in the log: base offset and leader epoch, neither under the checksum.
///
/// `Truncated` if `batch` is shorter than these fields; nothing else is checked.
pub fn stamp(batch: &mut [u8], base_offset: i64, leader_epoch: i32) -> Result<(), BatchError> {
    let have = batch.len();
    let Some(front) = batch.first_chunk_mut::<16>() else {
        return Err(BatchError::Truncated { have, need: HEADER_LEN });
    };
    front[0..8].copy_from_slice(&base_offset.to_be_bytes());
    front[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
    Ok(())
}

/// Dates a batch by the leader's clock: timestamp type LogAppendTime and `now_ms` as its maximum.
///
/// The checksum follows without a look at the records, so one that was wrong stays wrong.
pub fn stamp_append_time(batch: &mut [u8], now_ms: i64) -> Result<(), BatchError> {
    rewrite_header(batch, |header| {
        header.attributes = header.attributes.with_timestamp_type(TimestampType::LogAppendTime);
        header.max_timestamp = now_ms;
    })
}

/// Corrects the largest timestamp that a batch's header tells, and the checksum with it.
pub fn stamp_max_timestamp(batch: &mut [u8], max_timestamp: i64) -> Result<(), BatchError> {
    rewrite_header(batch, |header| header.max_timestamp = max_timestamp)
}

/// Changes fields under the checksum, and the checksum with them.
///
/// `batch` may be the header alone: its length field tells how many records bytes there are.
pub(super) fn rewrite_header(
    batch: &mut [u8],
    change: impl FnOnce(&mut BatchHeader),
) -> Result<(), BatchError> {
    let mut header = BatchHeader::parse(batch)?;
    let have = batch.len();
    let Some(front) = batch.first_chunk_mut::<HEADER_LEN>() else {
        return Err(BatchError::Truncated { have, need: HEADER_LEN });
    };
    let before = crc::of(&front[CRC_FROM..]);
    change(&mut header);
    header.write(front);
    let after = crc::of(&front[CRC_FROM..]);
    header.crc = crc::replace_head(header.crc, before, after, header.body_len());
    header.write(front);
    Ok(())
}
