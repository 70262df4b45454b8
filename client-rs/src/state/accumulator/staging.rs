//! Records of topics that are not known yet, until their partitions can be chosen.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use ottla_protocol::{DecodeError, Reader, Writer};

use super::batch::{Room, record_len_max};
use super::memory::{CHUNK_MIN, Chunk};
use crate::record::{Header, Record};
use crate::state::completion::Completion;
use crate::state::hash::HashMap;

/// The staged records of one topic.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) completion: Arc<Completion>,
    pub(crate) chunks: VecDeque<StagedChunk>,
    count: u32,
    /// When the first one came: `max.block.ms` counts from here.
    pub(crate) opened_at: Instant,
}

/// Some of them.
#[derive(Debug)]
pub(crate) struct StagedChunk {
    pub(crate) chunk: Chunk,
    /// How many they are.
    pub(crate) records: usize,
    /// Bytes that they take in batches, at most. The chunk has room for that, so that what it is
    /// charged for is enough for them wherever they go; their form here never takes more.
    needed: usize,
}

impl StagedChunk {
    /// Bytes of its records.
    pub(crate) const fn len(&self) -> usize {
        self.chunk.data.len()
    }
}

/// The staged records of all topics.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    pub(crate) topics: HashMap<Arc<str>, Staged>,
    pub(crate) closed: bool,
}

impl Staged {
    pub(crate) fn new(completion: Arc<Completion>, opened_at: Instant) -> Self {
        Self { completion, chunks: VecDeque::new(), count: 0, opened_at }
    }

    /// Keeps a copy of a record, and gives its index; else the bytes that there is no room for.
    pub(crate) fn push(
        &mut self,
        record: &Record<'_>,
        timestamp: i64,
        room: &mut Room<'_>,
    ) -> Result<u32, usize> {
        let len = record_len_max(record).unwrap_or(usize::MAX);
        let fits = |last: &StagedChunk| last.chunk.data.capacity() - last.needed >= len;
        if !self.chunks.back().is_some_and(fits) {
            let all: usize = self.chunks.iter().map(|staged| staged.chunk.charged()).sum();
            let rest = room.batch_bytes.max(CHUNK_MIN);
            let chunk = room.chunk_of(len, all.min(rest))?;
            self.chunks.push_back(StagedChunk { chunk, records: 0, needed: 0 });
        }
        if let Some(StagedChunk { chunk, records, needed }) = self.chunks.back_mut() {
            *records += 1;
            *needed += len;
            let capacity = chunk.data.capacity();
            let mut writer = Writer::from_vec(std::mem::take(&mut chunk.data));
            write(record, timestamp, &mut writer);
            chunk.data = writer.into_bytes();
            debug_assert!(chunk.data.len() <= *needed, "no longer than in a batch");
            debug_assert_eq!(chunk.data.capacity(), capacity, "no growth");
        }
        let index = self.count;
        self.count += 1;
        Ok(index)
    }

    /// How many records there are.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }
}

/// A form of our own: the lengths are checked when the record comes in, so nothing is cut.
fn write(record: &Record<'_>, timestamp: i64, w: &mut Writer) {
    w.i32(record.partition.unwrap_or(-1));
    w.i64(timestamp);
    write_bytes(record.key, w);
    write_bytes(record.value, w);
    w.varint(i32::try_from(record.headers.len()).unwrap_or(i32::MAX));
    for header in record.headers {
        write_bytes(Some(header.key.as_bytes()), w);
        write_bytes(header.value, w);
    }
}

fn write_bytes(bytes: Option<&[u8]>, w: &mut Writer) {
    w.varint(bytes.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX)));
    w.raw(bytes.unwrap_or_default());
}

fn read_bytes<'a>(r: &mut Reader<'a>) -> Result<Option<&'a [u8]>, DecodeError> {
    let len = r.varint()?;
    usize::try_from(len).ok().map(|len| r.take(len)).transpose()
}

/// A staged record without its headers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StagedRecord<'a> {
    pub(crate) partition: Option<i32>,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
}

/// Why what was staged cannot be read back: a fault of this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreadable(pub(super) &'static str);

impl From<DecodeError> for Unreadable {
    fn from(_: DecodeError) -> Self {
        Self("its lengths do not fit its bytes")
    }
}

/// Reads a record back; its headers go to `headers`.
pub(crate) fn read<'a>(
    r: &mut Reader<'a>,
    headers: &mut Vec<Header<'a>>,
) -> Result<StagedRecord<'a>, Unreadable> {
    let partition = Some(r.i32()?).filter(|&partition| partition >= 0);
    let timestamp = r.i64()?;
    let key = read_bytes(r)?;
    let value = read_bytes(r)?;
    headers.clear();
    for _ in 0..r.varint()? {
        let key = read_bytes(r)?.ok_or(Unreadable("a header has no key"))?;
        let value = read_bytes(r)?;
        let key = std::str::from_utf8(key);
        let key = key.map_err(|_| Unreadable("the key of a header is no text"))?;
        headers.push(Header { key, value });
    }
    Ok(StagedRecord { partition, timestamp, key, value })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

    use super::*;
    use crate::state::accumulator::batch::Manners;
    use crate::state::accumulator::memory::Memory;

    #[test]
    fn staged_records_come_back_as_they_went_in() {
        let memory = Memory::new(1 << 20);
        let mut room = Room {
            memory: &memory,
            batch_bytes: 1000,
            check_from: usize::MAX,
            granted: &mut None,
            manners: Manners::Queue,
        };
        let mut staged = Staged::new(Completion::staged(1, &"t".into()), Instant::now());
        let headers = [Header::new("a", b""), Header { key: "a", value: None }];
        let large = vec![9; 20_000];
        let records = [
            Record::to("t"),
            Record::to("t").key(b"").value(b"v").partition(3),
            Record::to("t").key(b"k").headers(&headers),
            Record::to("t").value(&large),
        ];
        for (index, record) in (0..).zip(&records) {
            assert_eq!(staged.push(record, i64::from(index) - 1, &mut room).unwrap(), index);
        }
        assert_eq!(staged.chunks.len(), 2);
        let mut found = Vec::new();
        let mut seen_headers = Vec::new();
        for staged in &staged.chunks {
            let mut reader = Reader::new(&staged.chunk.data);
            while reader.remaining() > 0 {
                let mut headers = Vec::new();
                found.push(read(&mut reader, &mut headers).unwrap());
                seen_headers.push(headers);
            }
        }
        assert_eq!(found.len(), records.len());
        for ((record, found), headers) in records.iter().zip(found).zip(seen_headers) {
            let wanted = (record.partition, record.key, record.value);
            assert_eq!(wanted, (found.partition, found.key, found.value));
            assert_eq!(record.headers, headers);
        }
    }
}
