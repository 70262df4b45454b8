//! A batch that records are written into.

use std::sync::Arc;
use std::time::Instant;

use ottla_protocol::record::{BatchError, BatchSpan, HEADER_LEN, NewRecord};

use super::checksum::Checksum;
use super::memory::{CHUNK_MIN, Chunk, Memory};
use crate::record::{Header, Record};
use crate::state::completion::Completion;

/// Records of one partition, encoded, with their batch's header still to be made.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(crate) completion: Arc<Completion>,
    pub(crate) span: BatchSpan,
    pub(crate) chunks: Vec<Chunk>,
    /// Bytes of all records.
    pub(crate) body_len: usize,
    pub(crate) checksum: Checksum,
    /// When its first record came: what its delivery timeout counts from.
    pub(crate) opened_at: Instant,
}

/// Why a record did not get in.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The batch is full.
    Full,
    /// There is no room for a chunk of so many bytes.
    Memory(usize),
    /// The record is longer than the format can say.
    Length,
    /// The producer takes no more.
    Closed,
}

/// What a batch may hold, and where it finds room.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    pub(crate) memory: &'a Arc<Memory>,
    /// `batch.size`.
    pub(crate) batch_bytes: usize,
    /// Records of so many bytes are checked as they are written.
    pub(crate) check_from: usize,
    /// A chunk that the caller waited for. It stays with the caller until it is taken: to hand it on
    /// costs every record the moving of one that as a rule is not there.
    pub(crate) granted: &'a mut Option<Chunk>,
    /// How it stands to others who want memory.
    pub(crate) manners: Manners,
}

/// How a record stands to others that want memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manners {
    /// It stands behind those who wait.
    Queue,
    /// It takes what was granted, and nothing else.
    Granted,
}

impl Room<'_> {
    /// A chunk for `least` bytes, of `wanted` if there is so much; else what there is no room for.
    pub(crate) fn chunk_of(&mut self, least: usize, wanted: usize) -> Result<Chunk, usize> {
        if let Some(granted) = self.granted.take_if(|chunk| chunk.data.capacity() >= least) {
            return Ok(granted);
        }
        let least = self.memory.chunk_for(least);
        if self.manners == Manners::Granted || self.memory.is_awaited() {
            return Err(least);
        }
        let wanted = self.memory.chunk_for(wanted).max(least);
        let found = self
            .memory
            .try_chunk(wanted)
            .or_else(|| (wanted > least).then(|| self.memory.try_chunk(least)).flatten());
        found.ok_or(least)
    }
}

impl OpenBatch {
    /// An empty batch whose first record will be of `timestamp`.
    pub(crate) fn new(completion: Arc<Completion>, timestamp: i64, opened_at: Instant) -> Self {
        Self {
            completion,
            span: BatchSpan::new(timestamp),
            chunks: Vec::with_capacity(5),
            body_len: 0,
            checksum: Checksum::default(),
            opened_at,
        }
    }

    /// Writes a record, and gives its index.
    #[inline]
    pub(crate) fn append(
        &mut self,
        record: &Record<'_>,
        timestamp: i64,
        room: &mut Room<'_>,
    ) -> Result<u32, Refusal> {
        let headers = record.headers.iter().map(pair);
        let offset_delta = self.span.next_delta();
        let measured = NewRecord {
            offset_delta,
            timestamp_delta: self.span.timestamp_delta(timestamp),
            key: record.key,
            value: record.value,
            headers,
        }
        .measure()
        .map_err(|_| Refusal::Length)?;
        let len = measured.len();
        if offset_delta > 0 && HEADER_LEN + self.body_len + len > room.batch_bytes {
            return Err(Refusal::Full);
        }
        let fits = self.chunks.last().is_some_and(|last| last.room() >= len);
        if !fits {
            // As much again as there is: few chunks for a full batch, little waste for a small one.
            let rest = room.batch_bytes.saturating_sub(self.body_len).max(CHUNK_MIN);
            let wanted = self.body_len.min(rest);
            let chunk = room.chunk_of(len, wanted).map_err(Refusal::Memory)?;
            self.chunks.push(chunk);
        }
        let Some(chunk) = self.chunks.last_mut() else { return Err(Refusal::Full) };
        self.body_len += measured.encode(&mut chunk.data);
        super::ahead::prefetch(&chunk.data, chunk.room());
        if len >= room.check_from {
            self.checksum.cover(self.chunks.iter().map(AsRef::as_ref));
        }
        self.span.add(timestamp);
        Ok(u32::try_from(offset_delta).unwrap_or(0))
    }
}

fn pair<'a>(header: &Header<'a>) -> (&'a [u8], Option<&'a [u8]>) {
    (header.key.as_bytes(), header.value)
}

/// Bytes a record takes at most, wherever it stands in a batch.
pub(crate) fn record_len_max(record: &Record<'_>) -> Result<usize, BatchError> {
    let measured = NewRecord {
        offset_delta: i32::MAX,
        timestamp_delta: i64::MIN,
        key: record.key,
        value: record.value,
        headers: record.headers.iter().map(pair),
    };
    measured.measure().map(|measured| measured.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

    use super::*;

    #[test]
    fn a_batch_is_full_at_its_size_and_takes_one_larger_record_alone() {
        let memory = Memory::new(1 << 20);
        let mut room = Room {
            memory: &memory,
            batch_bytes: 203,
            check_from: 500,
            granted: &mut None,
            manners: Manners::Queue,
        };
        let open = || OpenBatch::new(Completion::new(1, &"t".into(), 0), 5, Instant::now());
        let mut batch = open();
        let value = [7; 60];
        let record = Record::to("t").value(&value);
        assert_eq!(batch.append(&record, 5, &mut room).unwrap(), 0);
        assert_eq!(batch.append(&record, 4, &mut room).unwrap(), 1);
        assert_eq!(batch.body_len, 136);
        // With its header the batch has 197 bytes, and the smallest record takes 7.
        assert!(matches!(batch.append(&Record::to("t"), 5, &mut room), Err(Refusal::Full)));
        room.batch_bytes = 204;
        assert_eq!(batch.append(&Record::to("t"), 5, &mut room).unwrap(), 2);
        let mut large = open();
        let value = [7; 500];
        assert_eq!(large.append(&Record::to("t").value(&value), 5, &mut room).unwrap(), 0);
        assert!(matches!(large.append(&Record::to("t"), 5, &mut room), Err(Refusal::Full)));
    }

    #[test]
    fn a_full_batch_takes_few_chunks_and_no_more_than_its_size() {
        let memory = Memory::new(1 << 20);
        let batch_bytes = 256 * 1024;
        let mut room = Room {
            memory: &memory,
            batch_bytes,
            check_from: 500,
            granted: &mut None,
            manners: Manners::Queue,
        };
        let mut batch = OpenBatch::new(Completion::new(1, &"t".into(), 0), 5, Instant::now());
        let value = [7; 1000];
        let record = Record::to("t").value(&value);
        while batch.append(&record, 5, &mut room).is_ok() {}
        assert!(batch.body_len > 250 * 1024, "{}", batch.body_len);
        assert!(batch.chunks.len() <= 6, "{}", batch.chunks.len());
        assert!(memory.used() <= 272 * 1024, "{}", memory.used());
    }

    #[test]
    fn without_room_for_a_large_chunk_a_small_one_will_do() {
        let memory = Memory::new(3 * CHUNK_MIN);
        let mut room = Room {
            memory: &memory,
            batch_bytes: 1 << 20,
            check_from: usize::MAX,
            granted: &mut None,
            manners: Manners::Queue,
        };
        let mut batch = OpenBatch::new(Completion::new(1, &"t".into(), 0), 5, Instant::now());
        let value = [7; 10_000];
        let record = Record::to("t").value(&value);
        for _ in 0..3 {
            batch.append(&record, 5, &mut room).unwrap();
        }
        let refused = batch.append(&record, 5, &mut room);
        assert!(matches!(refused, Err(Refusal::Memory(CHUNK_MIN))), "{refused:?}");
        assert_eq!(batch.span.records_count, 3, "a refused record leaves no trace");
    }
}
