//! What a log knows of idempotent producers: their epoch and their last five batches.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use ottla_protocol::ErrorCode;
use ottla_protocol::record::{BatchHeader, crc};

use crate::checkpoint::replace;
use crate::error::{LogError, Rejected};
use crate::files::{Files, OpenMode};
use crate::folder::{SNAPSHOT, file_name};

/// Batches remembered of each producer: as many as one may have in flight.
const WINDOW: usize = 5;
/// Version, checksum and count in front of a snapshot's entries.
const SNAPSHOT_HEAD: usize = 10;
/// Bytes of a snapshot's entry.
const SNAPSHOT_ENTRY: usize = 46;
const SNAPSHOT_VERSION: i16 = 1;
/// A snapshot of more bytes is damage: it would hold over five million producers.
const SNAPSHOT_MAX: u64 = 256 << 20;

/// A stored batch of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stored {
    last_sequence: i32,
    /// Records less one.
    delta: i32,
    last_offset: i64,
    timestamp: i64,
}

impl Stored {
    /// Sequence of the first record; before 0 comes 2³¹−1.
    fn first_sequence(&self) -> i32 {
        let first = i64::from(self.last_sequence) - i64::from(self.delta);
        i32::try_from(first & i64::from(i32::MAX)).unwrap_or(0)
    }

    fn base_offset(&self) -> i64 {
        self.last_offset.saturating_sub(i64::from(self.delta))
    }
}

/// One producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Producer {
    epoch: i16,
    /// Oldest first; the first `count` are there.
    batches: [Stored; WINDOW],
    count: usize,
    last_timestamp: i64,
    coordinator_epoch: i32,
    /// First offset of the transaction that is open; −1 if none is.
    open_from: i64,
}

/// A batch that was stored before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Duplicate {
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) timestamp: i64,
}

impl Producer {
    const fn new(epoch: i16) -> Self {
        let none = Stored { last_sequence: -1, delta: 0, last_offset: -1, timestamp: -1 };
        Self {
            epoch,
            batches: [none; WINDOW],
            count: 0,
            last_timestamp: -1,
            coordinator_epoch: -1,
            open_from: -1,
        }
    }

    fn stored(&self) -> &[Stored] {
        self.batches.get(..self.count).unwrap_or_default()
    }

    fn last_sequence(&self) -> i32 {
        self.stored().last().map_or(-1, |batch| batch.last_sequence)
    }

    fn push(&mut self, batch: Stored) {
        if self.count == WINDOW {
            self.batches.rotate_left(1);
            self.count -= 1;
        }
        if let Some(slot) = self.batches.get_mut(self.count) {
            *slot = batch;
            self.count += 1;
        }
    }
}

/// What a log remembers of a producer (KIP-664).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Its id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// The last sequence number; −1 if none is known.
    pub last_sequence: i32,
    /// When it last wrote, ms since the epoch.
    pub last_timestamp: i64,
    /// The epoch of the coordinator that last ended a transaction of it; −1 if none did.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction; −1 if none is.
    pub open_from: i64,
}

/// The producers of one log.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    producers: HashMap<i64, Producer>,
}

/// What to put back if a batch is not stored after all.
pub(crate) type Undo = (i64, Option<Producer>);

impl Producers {
    /// All of them, by their ids.
    pub(crate) fn active(&self) -> Vec<ActiveProducer> {
        let all = self.producers.iter().map(|(id, producer)| ActiveProducer {
            id: *id,
            epoch: producer.epoch,
            last_sequence: producer.last_sequence(),
            last_timestamp: producer.last_timestamp,
            coordinator_epoch: producer.coordinator_epoch,
            open_from: producer.open_from,
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|producer| producer.id);
        all
    }

    /// Whether a client's batch may be appended: `None` to append it, or where it was stored before
    /// (Kafka's ProducerStateEntry and ProducerAppendInfo).
    pub(crate) fn check(&self, header: &BatchHeader) -> Result<Option<Duplicate>, Rejected> {
        // Unknown, or forgotten with its records: any first sequence is taken.
        let Some(known) = self.producers.get(&header.producer_id) else { return Ok(None) };
        let (epoch, first) = (header.producer_epoch, header.base_sequence);
        if epoch < known.epoch {
            let message = format!(
                "producer {} has epoch {}; the batch is of epoch {epoch}",
                header.producer_id, known.epoch
            );
            return Err(Rejected::new(ErrorCode::INVALID_PRODUCER_EPOCH, message));
        }
        if known.open_from >= 0 && !header.attributes.is_transactional() {
            let message =
                format!("producer {} has a transaction open in this partition", header.producer_id);
            return Err(Rejected::new(ErrorCode::INVALID_TXN_STATE, message));
        }
        if epoch > known.epoch {
            if first == 0 {
                return Ok(None);
            }
            let message = format!(
                "producer {} begins epoch {epoch} with sequence {first}, not with 0",
                header.producer_id
            );
            return Err(Rejected::new(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, message));
        }
        let same = |batch: &&Stored| {
            batch.first_sequence() == first && batch.last_sequence == header.last_sequence()
        };
        if let Some(batch) = known.stored().iter().rev().find(same) {
            return Ok(Some(Duplicate {
                base_offset: batch.base_offset(),
                last_offset: batch.last_offset,
                timestamp: batch.timestamp,
            }));
        }
        let next = known.last_sequence().checked_add(1).unwrap_or(0);
        if first == next {
            return Ok(None);
        }
        let message = format!(
            "producer {} sent sequence {first} where {next} comes next",
            header.producer_id
        );
        Err(Rejected::new(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, message))
    }

    /// Notes a batch of the log; gives what [`Self::undo`] takes.
    ///
    /// A transaction's marker closes it; the coordinator epoch inside the marker is not looked at.
    pub(crate) fn note(&mut self, header: &BatchHeader, now_ms: i64) -> Option<Undo> {
        if !header.has_producer() {
            return None;
        }
        let before = self.producers.get(&header.producer_id).copied();
        let mut producer = before
            .filter(|known| known.epoch >= header.producer_epoch)
            .unwrap_or_else(|| Producer::new(header.producer_epoch));
        producer.coordinator_epoch = before.map_or(-1, |known| known.coordinator_epoch);
        producer.last_timestamp = now_ms;
        if header.attributes.is_control() {
            producer.open_from = -1;
        } else {
            if header.attributes.is_transactional() && producer.open_from < 0 {
                producer.open_from = header.base_offset;
            }
            producer.push(Stored {
                last_sequence: header.last_sequence(),
                delta: header.last_offset_delta,
                last_offset: header.last_offset(),
                timestamp: now_ms,
            });
        }
        self.producers.insert(header.producer_id, producer);
        Some((header.producer_id, before))
    }

    /// Takes back what [`Self::note`] did, newest first.
    pub(crate) fn undo(&mut self, notes: &mut Vec<Undo>) {
        while let Some((id, before)) = notes.pop() {
            match before {
                Some(producer) => self.producers.insert(id, producer),
                None => self.producers.remove(&id),
            };
        }
    }

    /// Forgets producers that were idle too long and have no transaction open.
    pub(crate) fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        self.producers.retain(|_, producer| {
            let idle = now_ms.saturating_sub(producer.last_timestamp);
            producer.open_from >= 0 || idle < expiration_ms
        });
    }

    /// The snapshot's bytes in Kafka's format (ProducerSnapshot, version 1).
    fn snapshot(&self) -> Vec<u8> {
        let mut bytes = vec![0; SNAPSHOT_HEAD];
        let mut ids: Vec<_> = self.producers.iter().collect();
        ids.sort_unstable_by_key(|&(&id, _)| id);
        for (id, producer) in ids {
            let last = producer.stored().last();
            bytes.extend_from_slice(&id.to_be_bytes());
            bytes.extend_from_slice(&producer.epoch.to_be_bytes());
            bytes.extend_from_slice(&producer.last_sequence().to_be_bytes());
            bytes.extend_from_slice(&last.map_or(-1, |last| last.last_offset).to_be_bytes());
            bytes.extend_from_slice(&last.map_or(0, |last| last.delta).to_be_bytes());
            bytes.extend_from_slice(&producer.last_timestamp.to_be_bytes());
            bytes.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
            bytes.extend_from_slice(&producer.open_from.to_be_bytes());
        }
        let count = i32::try_from(self.producers.len()).unwrap_or(i32::MAX);
        bytes[0..2].copy_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
        bytes[6..10].copy_from_slice(&count.to_be_bytes());
        let crc = crc::of(&bytes[6..]);
        bytes[2..6].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut fields = Fields(bytes);
        let cut = "the snapshot is cut";
        if fields.take().map(i16::from_be_bytes).ok_or(cut)? != SNAPSHOT_VERSION {
            return Err("the snapshot is not of version 1");
        }
        let stored = fields.take().map(u32::from_be_bytes).ok_or(cut)?;
        if stored != crc::of(fields.0) {
            return Err("the snapshot's checksum is wrong");
        }
        let count = fields.take().map(i32::from_be_bytes).ok_or(cut)?;
        if usize::try_from(count).ok().and_then(|count| count.checked_mul(SNAPSHOT_ENTRY))
            != Some(fields.0.len())
        {
            return Err("the snapshot has not as many entries as it says");
        }
        let mut producers = HashMap::new();
        while !fields.0.is_empty() {
            let (id, producer) = fields.entry().ok_or(cut)?;
            producers.insert(id, producer);
        }
        Ok(Self { producers })
    }

    /// Writes the snapshot of all that lies below `offset`.
    pub(crate) fn write_snapshot(
        &self,
        files: &dyn Files,
        dir: &Path,
        offset: i64,
    ) -> Result<(), LogError> {
        replace(files, &dir.join(file_name(offset, SNAPSHOT)), &self.snapshot())
    }

    /// Reads the snapshot of `offset`; `None` if there is none, `Malformed` if it is broken.
    pub(crate) fn read_snapshot(
        files: &dyn Files,
        dir: &Path,
        offset: i64,
    ) -> Result<Option<Self>, LogError> {
        let path = dir.join(file_name(offset, SNAPSHOT));
        match read_bounded(files, &path) {
            Ok(None) => Err(LogError::malformed(&path, "the snapshot is far too large")),
            Ok(Some(bytes)) => match Self::parse(&bytes) {
                Ok(producers) => Ok(Some(producers)),
                Err(what) => Err(LogError::malformed(&path, what)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LogError::io(&path, "cannot read", error)),
        }
    }
}

/// The bytes of a snapshot; `None` if it is larger than one can be.
fn read_bounded(files: &dyn Files, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = files.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > SNAPSHOT_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Big-endian fields in a row.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn entry(&mut self) -> Option<(i64, Producer)> {
        let id = i64::from_be_bytes(self.take()?);
        let mut producer = Producer::new(i16::from_be_bytes(self.take()?));
        let last_sequence = i32::from_be_bytes(self.take()?);
        let last_offset = i64::from_be_bytes(self.take()?);
        let delta = i32::from_be_bytes(self.take()?);
        let timestamp = i64::from_be_bytes(self.take()?);
        producer.coordinator_epoch = i32::from_be_bytes(self.take()?);
        producer.open_from = i64::from_be_bytes(self.take()?);
        producer.last_timestamp = timestamp;
        // A producer of which only a marker is left has no batch.
        if last_offset >= 0 && last_sequence >= 0 && delta >= 0 {
            producer.push(Stored { last_sequence, delta, last_offset, timestamp });
        }
        Some((id, producer))
    }
}

#[cfg(test)]
mod tests;
