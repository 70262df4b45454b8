//! A batch that is no longer written into: sealed when it is first sent, the same bytes ever after.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use ottla_protocol::record::{
    Attributes, BatchError, BatchHeader, BatchSeal, BatchSpan, Codec, Compression, HEADER_LEN,
    RecordIter, seal,
};

use crate::error::{Error, Outcome};
use crate::record::{Header, Record};
use crate::state::accumulator::batch::{Manners, OpenBatch, Refusal, Room};
use crate::state::accumulator::checksum::Checksum;
use crate::state::accumulator::memory::{Memory, Written};
use crate::state::completion::{Completion, Forward};

/// Who writes a batch, and the sequence of its first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    pub(crate) base: i32,
}

/// The sequence so many records later: 2^31 − 1 is followed by 0 [DefaultRecordBatch].
pub(crate) fn sequence_after(base: i32, records: i32) -> i32 {
    // Both are 0 or more, so their sum fits the unsigned form.
    let sum = base.cast_unsigned().wrapping_add(records.cast_unsigned());
    (sum & 0x7fff_ffff).cast_signed()
}

/// What a batch waits for.
#[derive(Debug)]
pub(crate) enum State {
    /// To be sent, or sent again.
    Waiting,
    /// Its answer, or the turn of its request to be written.
    Sent,
    /// Its answer too, but its delivery timeout has told its waiters already.
    Expired,
    /// That all before it end. Its own end is known.
    Stored { base_offset: i64, append_time: i64 },
    /// The same; it is not stored.
    Failed(Error),
    /// The same; its waiters were told before, and whether it is stored is not known.
    Forgotten,
}

/// A batch on its way.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) completion: Arc<Completion>,
    pub(crate) span: BatchSpan,
    pub(crate) opened_at: Instant,
    /// The records as they are sent.
    body: Vec<Bytes>,
    /// The memory that these are in.
    chunks: Vec<Written>,
    body_len: usize,
    checksum: Checksum,
    codec: Codec,
    /// Bytes of the records before compression.
    raw_len: usize,
    /// Header, if it is sealed.
    header: Bytes,
    pub(crate) sequence: Option<Sequence>,
    pub(crate) state: State,
    pub(crate) attempts: u32,
    /// Some attempt that was written ended without word of whether it is stored.
    pub(crate) ambiguous: bool,
    /// Whether a broker has refused it, and so had it: also if a later attempt never left.
    pub(crate) refused: bool,
    pub(crate) last_error: Option<Error>,
    /// Its records are being compressed elsewhere.
    pub(crate) packing: bool,
}

impl Batch {
    /// Takes over what was written.
    pub(crate) fn new(open: OpenBatch) -> Self {
        let chunks: Vec<Written> = open.chunks.into_iter().map(Written::new).collect();
        Self {
            completion: open.completion,
            span: open.span,
            opened_at: open.opened_at,
            body: chunks.iter().cloned().map(Bytes::from_owner).collect(),
            chunks,
            body_len: open.body_len,
            checksum: open.checksum,
            codec: Codec::default(),
            raw_len: open.body_len,
            header: Bytes::new(),
            sequence: None,
            state: State::Waiting,
            attempts: 0,
            ambiguous: false,
            refused: false,
            last_error: None,
            packing: false,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.completion.id()
    }

    pub(crate) const fn records(&self) -> i32 {
        self.span.records_count
    }

    /// Bytes on the wire.
    pub(crate) const fn len(&self) -> usize {
        HEADER_LEN + self.body_len
    }

    /// Bytes of its records before compression.
    pub(crate) const fn raw_len(&self) -> usize {
        self.raw_len
    }

    /// The records as they stand, for compression elsewhere.
    pub(crate) fn body(&self) -> Vec<Bytes> {
        self.body.clone()
    }

    /// Bytes that its memory is charged for.
    pub(crate) fn charged(&self) -> usize {
        self.chunks.iter().map(Written::charged).sum()
    }

    /// Replaces the records by their compressed form, in the memory that they were charged for. One
    /// that would take more is of no use: then they stay as they are.
    pub(crate) fn pack(&mut self, mut packed: Vec<u8>, codec: Codec, memory: &Arc<Memory>) {
        let charged = self.charged();
        if packed.len() > charged {
            return;
        }
        packed.shrink_to(charged);
        // Enough to be written anew as it was, should it have to be parted.
        let mut left = packed.capacity().max(self.raw_len);
        self.body_len = packed.len();
        self.checksum = Checksum::default();
        self.codec = codec;
        let chunk = memory.uncharged(packed);
        for old in self.chunks.drain(..) {
            left -= old.hand_on(&chunk, left);
        }
        let chunk = Written::new(chunk);
        self.body = vec![Bytes::from_owner(chunk.clone())];
        self.chunks = vec![chunk];
    }

    /// Makes the header, for a batch with or without a sequence.
    pub(crate) fn seal(&mut self, sequence: Option<Sequence>) -> Result<(), BatchError> {
        let mut fields = BatchSeal {
            attributes: Attributes::default().with_compression(self.codec.compression()),
            ..BatchSeal::default()
        };
        if let Some(sequence) = sequence {
            fields.producer_id = sequence.producer_id;
            fields.producer_epoch = sequence.epoch;
            fields.base_sequence = sequence.base;
        }
        let mut header = [0; HEADER_LEN];
        let body_crc = self.checksum.cover(self.body.iter().map(AsRef::as_ref));
        seal(&mut header, &fields, &self.span, self.body_len, body_crc)?;
        self.header = Bytes::copy_from_slice(&header);
        self.sequence = sequence;
        Ok(())
    }

    /// As before it was first sealed.
    pub(crate) fn unseal(&mut self) {
        self.header = Bytes::new();
        self.sequence = None;
    }

    /// All of it, as a chain of slices.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        std::iter::once(&self.header).chain(&self.body).cloned().collect()
    }

    /// Lets the records go; what is still being written keeps them until it is.
    pub(crate) fn forget_records(&mut self) {
        self.body.clear();
        self.chunks.clear();
    }

    /// Why its last attempt failed.
    pub(crate) fn note_error(&mut self, error: &Error) {
        self.refused |= self.attempts > 0 && error.kafka_code().is_some();
        self.last_error = Some(error.clone());
    }

    /// What may have become of its records, if it ends without being stored.
    pub(crate) fn outcome(&self) -> Outcome {
        if self.ambiguous || matches!(self.state, State::Sent) {
            Outcome::PossiblyPersisted
        } else if self.refused {
            Outcome::Rejected
        } else {
            Outcome::NotSent
        }
    }

    /// Parts it in two halves, and says where each record went.
    ///
    /// `None` if it holds a single record, or its own bytes cannot be read again.
    pub(crate) fn split(
        &self,
        memory: &Arc<Memory>,
        mut next_id: impl FnMut() -> u64,
    ) -> Option<([Self; 2], Forward)> {
        if self.records() < 2 {
            return None;
        }
        let mut plain = Vec::with_capacity(self.body_len);
        self.body.iter().for_each(|slice| plain.extend_from_slice(slice));
        if self.codec.compression() != Compression::None {
            plain = self.codec.compression().decompress(&plain, self.raw_len).ok()?;
        }
        let header = BatchHeader::parse(&self.header).ok()?;
        let mut records = RecordIter::new(&header, &plain);
        let first = self.records() / 2;
        let mut forward = Forward::default();
        let mut half = |count: i32| {
            // What the whole is charged for is handed on to the halves.
            let granted = &mut Some(memory.uncharged(Vec::with_capacity(self.raw_len)));
            let completion =
                Completion::new(next_id(), self.completion.topic(), self.completion.partition());
            let mut open = None;
            for _ in 0..count {
                let record = records.next()?.ok()?;
                let headers: Option<Vec<Header<'_>>> = record
                    .headers
                    .iter()
                    .map(|(key, value)| Some(Header { key: std::str::from_utf8(key).ok()?, value }))
                    .collect();
                let again = Record {
                    topic: self.completion.topic(),
                    partition: None,
                    key: record.key,
                    value: record.value,
                    headers: &headers?,
                    timestamp: Some(record.timestamp),
                };
                let open = open.get_or_insert_with(|| {
                    // Times count from where they did, so that none grows longer.
                    let (completion, base) = (Arc::clone(&completion), self.span.base_timestamp);
                    let mut open = OpenBatch::new(completion, base, self.opened_at);
                    open.span.max_timestamp = record.timestamp;
                    open
                });
                let manners = Manners::Granted;
                let mut room = Room {
                    memory,
                    batch_bytes: usize::MAX,
                    check_from: usize::MAX,
                    granted,
                    manners,
                };
                let index: Result<u32, Refusal> = open.append(&again, record.timestamp, &mut room);
                forward.push(&completion, index.ok()?);
            }
            open
        };
        let left = half(first)?;
        let right = half(self.records() - first)?;
        let spare = self.charged().checked_sub(left.body_len + right.body_len)?;
        let share = left.body_len + spare / 2;
        let left = self.half(left, share, memory)?;
        let right = self.half(right, usize::MAX, memory)?;
        let mut halves = [left, right];
        // They go out again as they are: nothing seals them later.
        let [left, right] = &mut halves;
        let behind = |first: Sequence| {
            let base = sequence_after(first.base, left.records());
            Sequence { base, ..first }
        };
        right.seal(self.sequence.map(behind)).ok()?;
        left.seal(self.sequence).ok()?;
        Some((halves, forward))
    }

    /// A half of this batch, compressed as this one is, that gets so much at most of its charge.
    fn half(&self, mut open: OpenBatch, mut share: usize, memory: &Arc<Memory>) -> Option<Self> {
        let chunk = open.chunks.first_mut()?;
        chunk.data.shrink_to_fit();
        for whole in &self.chunks {
            share -= whole.hand_on(chunk, share);
        }
        let mut half = Self::new(open);
        debug_assert!(half.raw_len <= half.charged(), "it is shorter than the whole was");
        if self.codec.compression() != Compression::None {
            let mut packed = memory.buffer(half.raw_len);
            self.codec.compress(half.body.iter().map(AsRef::as_ref), &mut packed).ok()?;
            half.pack(packed, self.codec, memory);
        }
        half.attempts = self.attempts;
        half.refused = self.refused;
        half.last_error.clone_from(&self.last_error);
        Some(half)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests start their virtual time somewhere")]

    use super::*;
    use crate::state::accumulator::checksum::CHECK_FROM;
    use crate::state::accumulator::memory::CHUNK_MIN;

    /// A batch of these records, in a budget of two chunks.
    fn batch(records: &[(&[u8], i64)]) -> (Batch, Arc<Memory>) {
        let memory = Memory::new(2 * CHUNK_MIN);
        let completion = Completion::new(1, &"t".into(), 0);
        let first = records.first().map_or(0, |&(_, timestamp)| timestamp);
        let mut open = OpenBatch::new(completion, first, Instant::now());
        let (granted, manners) = (&mut None, Manners::Queue);
        let mut room = Room {
            memory: &memory,
            batch_bytes: usize::MAX,
            check_from: CHECK_FROM,
            granted,
            manners,
        };
        for (value, timestamp) in records {
            open.append(&Record::to("t").value(value), *timestamp, &mut room).unwrap();
        }
        (Batch::new(open), memory)
    }

    /// Bytes that no codec makes shorter.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        (0..len).map(|_| next()).collect()
    }

    fn pack(batch: &mut Batch, memory: &Arc<Memory>) {
        let codec = Codec::new(Compression::Lz4);
        let mut packed = Vec::new();
        codec.compress(batch.body().iter().map(AsRef::as_ref), &mut packed).unwrap();
        batch.pack(packed, codec, memory);
    }

    fn values(batch: &Batch) -> Vec<(Vec<u8>, i64)> {
        let bytes = batch.pieces().concat();
        ottla_protocol::record::Batch::parse(&bytes).unwrap().verify_crc().unwrap();
        let header = BatchHeader::parse(&batch.header).unwrap();
        let body = batch.body.concat();
        let plain = batch.codec.compression().decompress(&body, batch.raw_len).unwrap();
        let records = RecordIter::new(&header, &plain).map(Result::unwrap);
        records.map(|record| (record.value.unwrap().to_vec(), record.timestamp)).collect()
    }

    #[test]
    fn small_and_large_records_in_any_order_have_one_checksum() {
        let noise = noise(3000);
        let lens = [100, 600, 3, 3000, CHECK_FROM, 2000, 100, 1];
        for first in 0..lens.len() {
            let sent = lens.iter().cycle().skip(first).take(4 * lens.len());
            let sent: Vec<(&[u8], i64)> = sent.map(|&len| (&noise[..len], 1)).collect();
            let (mut batch, _memory) = batch(&sent);
            assert!(batch.chunks.len() > 1, "records lie in more than one chunk");
            for sequence in [None, Some(Sequence { producer_id: 7, epoch: 1, base: 3 })] {
                batch.seal(sequence).unwrap();
                assert_eq!(values(&batch).len(), sent.len(), "sealed anew it is the same");
            }
        }
    }

    #[test]
    fn compressed_records_take_over_what_they_were_charged_for_and_give_the_rest_back() {
        let value = vec![7; 10_000];
        let (mut batch, memory) = batch(&[(&value, 1), (&value, 1)]);
        assert_eq!(memory.used(), 2 * CHUNK_MIN);
        pack(&mut batch, &memory);
        assert_eq!(batch.codec.compression(), Compression::Lz4);
        assert!((20_000..21_000).contains(&memory.used()), "{}", memory.used());
        drop(batch);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn records_that_compression_makes_larger_than_their_memory_stay_as_they_are() {
        let value = noise(CHUNK_MIN - 15);
        let (mut batch, memory) = batch(&[(&value, 1)]);
        assert!(batch.len() > CHUNK_MIN, "the chunk is full");
        pack(&mut batch, &memory);
        assert_eq!((batch.codec.compression(), memory.used()), (Compression::None, CHUNK_MIN));
        batch.seal(None).unwrap();
        assert_eq!(values(&batch), [(value, 1)]);
    }

    /// However often they are parted, and however far apart their times are.
    #[test]
    fn halves_take_over_what_the_whole_was_charged_for() {
        let noise = noise(3000);
        for packed in [false, true] {
            let sent: Vec<(&[u8], i64)> =
                (0..10).map(|n| (&noise[n * 9..], [5, i64::MAX, i64::MIN][n % 3])).collect();
            let (mut whole, memory) = batch(&sent);
            if packed {
                pack(&mut whole, &memory);
            }
            whole.seal(None).unwrap();
            let before = memory.used();
            let (mut parts, mut found) = (vec![whole], Vec::new());
            while let Some(part) = parts.pop() {
                if let Some((halves, _)) = part.split(&memory, || 1) {
                    parts.extend(halves.into_iter().rev());
                } else {
                    let max = part.span.max_timestamp;
                    found.extend(values(&part));
                    assert_eq!(found.last().map(|&(_, timestamp)| timestamp), Some(max));
                }
                assert!(memory.used() <= before, "{} after {before}", memory.used());
            }
            let sent: Vec<_> = sent.iter().map(|&(value, at)| (value.to_vec(), at)).collect();
            assert_eq!(found, sent);
            assert_eq!(memory.used(), 0);
        }
    }
}
