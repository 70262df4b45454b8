//! Appending: as the leader, who gives batches their place, and as a follower, who keeps it.

use std::io::IoSlice;

use bytes::{Bytes, BytesMut};
use ottla_protocol::ErrorCode;
use ottla_protocol::record::{
    BatchError, BatchHeader, TimestampType, batches, stamp, stamp_append_time,
};

use super::Log;
use crate::error::{LogError, Rejected};
use crate::producers::Undo;
use crate::segment::RollRules;

/// Who wants a batch appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A producer, over the network.
    Client,
    /// A coordinator of this broker, into its own topic.
    Coordinator,
    /// The metadata quorum, into its log.
    Raft,
}

/// A batch to append: one whole batch, judged by [`crate::validate_set`] if it is a client's.
#[derive(Debug)]
pub struct Incoming {
    /// All its bytes; offset and epoch are stamped in place.
    pub bytes: BytesMut,
    /// Its header, parsed.
    pub header: BatchHeader,
    /// Who wants it appended.
    pub origin: Origin,
}

impl Incoming {
    /// Takes one whole batch that a part of this broker made; an error if it is none.
    pub fn parse(bytes: BytesMut, origin: Origin) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(&bytes)?;
        Ok(Self { bytes, header, origin })
    }
}

/// Where a batch stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: i64,
    /// Offset of its last record.
    pub last_offset: i64,
    /// The time the log gave it; −1 where records keep their producer's time.
    pub timestamp: i64,
    /// Whether it stood there before and was sent again.
    pub duplicate: bool,
}

/// What a follower appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaAppended {
    /// Batches appended; 0 leaves the log as it was.
    pub batches: usize,
    /// The new log end.
    pub log_end: i64,
}

/// Batches that are placed but not written.
#[derive(Debug)]
struct Stage<B> {
    batches: Vec<Staged<B>>,
    bytes: u64,
    next_offset: i64,
    undo: Vec<Undo>,
    now_ms: i64,
}

#[derive(Debug)]
struct Staged<B> {
    bytes: B,
    header: BatchHeader,
}

impl<B> Stage<B> {
    fn new(next_offset: i64, capacity: usize, now_ms: i64) -> Self {
        let batches = Vec::with_capacity(capacity);
        Self { batches, bytes: 0, next_offset, undo: Vec::new(), now_ms }
    }
}

impl Log {
    /// Appends batches as the leader of `leader_epoch`, all that pass with one write.
    ///
    /// Gives an outcome for each: where it stands, or why it was refused. A batch that an
    /// idempotent producer sent before is answered with its old place. An error concerns the whole
    /// call; batches of it may be stored even so.
    pub fn append(
        &mut self,
        incoming: Vec<Incoming>,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Vec<Result<Appended, Rejected>>, LogError> {
        self.writable()?;
        let before = self.log_end;
        let outcomes = self.append_all(incoming, leader_epoch, now_ms);
        if self.log_end != before {
            self.publish();
        }
        outcomes
    }

    fn append_all(
        &mut self,
        incoming: Vec<Incoming>,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Vec<Result<Appended, Rejected>>, LogError> {
        let mut outcomes = Vec::with_capacity(incoming.len());
        let mut stage = Stage::new(self.log_end, incoming.len(), now_ms);
        for batch in incoming {
            let admitted = match self.admit(&batch) {
                Ok(None) => self.place(batch, stage.next_offset, leader_epoch, now_ms),
                Ok(Some(duplicate)) => {
                    outcomes.push(Ok(duplicate));
                    continue;
                }
                Err(rejected) => Err(rejected),
            };
            match admitted {
                Ok((staged, appended)) => {
                    self.stage(&mut stage, staged)?;
                    outcomes.push(Ok(appended));
                }
                Err(rejected) => outcomes.push(Err(rejected)),
            }
        }
        self.write_out(&mut stage)?;
        Ok(outcomes)
    }

    /// Whether a batch may be appended; its old place if it was.
    fn admit(&self, batch: &Incoming) -> Result<Option<Appended>, Rejected> {
        let header = &batch.header;
        if batch.bytes.len() != header.size() {
            let message = "the batch's length field does not fill its bytes";
            return Err(Rejected::new(ErrorCode::INVALID_RECORD, message));
        }
        if batch.origin != Origin::Client {
            return Ok(None);
        }
        if header.attributes.is_control() {
            let message = "control batches are written by brokers only";
            return Err(Rejected::new(ErrorCode::INVALID_RECORD, message));
        }
        if header.attributes.is_transactional() {
            let message = "this broker does not take part in transactions yet; \
                send without transactional.id";
            return Err(Rejected::new(ErrorCode::INVALID_TXN_STATE, message));
        }
        if !header.has_producer() {
            return Ok(None);
        }
        let append_time = self.config.timestamp_type == TimestampType::LogAppendTime;
        Ok(self.producers.check(header)?.map(|old| Appended {
            base_offset: old.base_offset,
            last_offset: old.last_offset,
            timestamp: if append_time { old.timestamp } else { -1 },
            duplicate: true,
        }))
    }

    /// Stamps a batch with its place, and with the time if the log dates its records.
    fn place(
        &self,
        mut batch: Incoming,
        base_offset: i64,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<(Staged<BytesMut>, Appended), Rejected> {
        let broken =
            |fault: BatchError| Rejected::new(ErrorCode::CORRUPT_MESSAGE, fault.to_string());
        let mut header = batch.header;
        let mut timestamp = -1;
        if self.config.timestamp_type == TimestampType::LogAppendTime
            && !header.attributes.is_control()
        {
            stamp_append_time(&mut batch.bytes, now_ms).map_err(broken)?;
            header = BatchHeader::parse(&batch.bytes).map_err(broken)?;
            timestamp = now_ms;
        }
        stamp(&mut batch.bytes, base_offset, leader_epoch).map_err(broken)?;
        header.base_offset = base_offset;
        header.partition_leader_epoch = leader_epoch;
        if header.next_offset() == i64::MAX {
            let message = "the partition has no more offsets";
            return Err(Rejected::new(ErrorCode::INVALID_RECORD, message));
        }
        let appended = Appended {
            base_offset,
            last_offset: header.last_offset(),
            timestamp,
            duplicate: false,
        };
        Ok((Staged { bytes: batch.bytes, header }, appended))
    }

    /// Appends batches as a follower: unchanged, at the offsets that their leader gave them.
    ///
    /// `bytes` is a fetched set; a cut batch at its end is left out. All batches are checked before
    /// the first is stored. What follows a batch whose epoch is above `leader_epoch` is left out
    /// with it: the leader that the fetch was sent to cannot have written it (KAFKA-18723).
    pub fn append_unchanged(
        &mut self,
        bytes: &Bytes,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Result<ReplicaAppended, Rejected>, LogError> {
        self.writable()?;
        let checked = match self.check_replicated(bytes, leader_epoch) {
            Ok(checked) => checked,
            Err(rejected) => return Ok(Err(rejected)),
        };
        let count = checked.len();
        let before = self.log_end;
        let mut stage = Stage::new(self.log_end, count, now_ms);
        let mut written = Ok(());
        for staged in checked {
            written = self.stage(&mut stage, staged);
            if written.is_err() {
                break;
            }
        }
        let written = written.and_then(|()| self.write_out(&mut stage));
        if self.log_end != before {
            self.publish();
        }
        written.map(|()| Ok(ReplicaAppended { batches: count, log_end: self.log_end }))
    }

    fn check_replicated(
        &self,
        bytes: &Bytes,
        leader_epoch: i32,
    ) -> Result<Vec<Staged<Bytes>>, Rejected> {
        let corrupt = |message: String| Rejected::new(ErrorCode::CORRUPT_MESSAGE, message);
        let mut checked = Vec::new();
        let mut expected = self.log_end;
        for batch in batches(bytes) {
            let batch = batch.map_err(|fault| corrupt(fault.to_string()))?;
            batch.verify_crc().map_err(|fault| corrupt(fault.to_string()))?;
            let header = batch.header;
            if header.partition_leader_epoch > leader_epoch {
                break;
            }
            if header.base_offset < expected {
                let message = format!(
                    "the batch at offset {} comes where {expected} is next",
                    header.base_offset
                );
                return Err(Rejected::new(ErrorCode::OFFSET_OUT_OF_RANGE, message));
            }
            expected = header.next_offset();
            checked.push(Staged { bytes: bytes.slice_ref(batch.bytes), header });
        }
        Ok(checked)
    }

    /// Takes a placed batch into the next write; rolls first if it belongs into a new segment.
    fn stage<B: AsRef<[u8]>>(
        &mut self,
        stage: &mut Stage<B>,
        staged: Staged<B>,
    ) -> Result<(), LogError> {
        if self.rolls_before(stage, &staged.header) {
            // What waits is written first, and then the question is put again to what is there.
            self.write_out(stage)?;
            if self.rolls_before(stage, &staged.header) {
                self.roll(staged.header.base_offset, stage.now_ms)?;
            }
        }
        stage.undo.extend(self.producers.note(&staged.header, stage.now_ms));
        stage.bytes += u64::try_from(staged.bytes.as_ref().len()).unwrap_or(u64::MAX);
        stage.next_offset = staged.header.next_offset();
        stage.batches.push(staged);
        Ok(())
    }

    fn rolls_before<B>(&self, stage: &Stage<B>, header: &BatchHeader) -> bool {
        let first = stage.batches.first();
        let rules = RollRules {
            config: &self.config,
            staged_bytes: stage.bytes,
            staged_batches: stage.batches.len(),
            staged_first_timestamp: first.map(|staged| staged.header.max_timestamp),
            now_ms: stage.now_ms,
        };
        self.active.should_roll(header, &rules)
    }

    /// Writes what is staged at the end of the active segment, all or nothing.
    fn write_out<B: AsRef<[u8]>>(&mut self, stage: &mut Stage<B>) -> Result<(), LogError> {
        if stage.batches.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.try_write(&stage.batches) {
            self.producers.undo(&mut stage.undo);
            stage.batches.clear();
            return Err(error);
        }
        for staged in &stage.batches {
            self.active.note(&staged.header);
        }
        self.active.write_behind(self.files.as_ref());
        self.log_end = stage.next_offset;
        self.changed = true;
        stage.batches.clear();
        stage.undo.clear();
        stage.bytes = 0;
        Ok(())
    }

    fn try_write<B: AsRef<[u8]>>(&mut self, batches: &[Staged<B>]) -> Result<(), LogError> {
        let mut new_epoch = false;
        for Staged { header, .. } in batches {
            new_epoch |= self.epochs.assign(header.partition_leader_epoch, header.base_offset);
        }
        if new_epoch && let Err(error) = self.epochs.write(self.files.as_ref()) {
            self.epochs.truncate_end(self.log_end);
            return Err(self.judge(error));
        }
        let slices: Vec<_> =
            batches.iter().map(|staged| IoSlice::new(staged.bytes.as_ref())).collect();
        let segment = self.active.shared();
        let Err(error) = segment.file.write_at(&slices, self.active.size()) else {
            return Ok(());
        };
        let error = LogError::io(&segment.path, "cannot append", error).at(self.log_end);
        // Half a write must not stay behind the last good batch.
        let cut = segment.file.set_len(self.active.size());
        self.epochs.truncate_end(self.log_end);
        match cut {
            Ok(()) => Err(self.judge(error)),
            Err(_) => Err(self.fail(error)),
        }
    }

    /// A full disk, or no descriptor left, leaves the log usable; after any other error it is not known what was stored.
    pub(super) fn judge(&mut self, error: LogError) -> LogError {
        if error.is_passing() { error } else { self.fail(error) }
    }
}
