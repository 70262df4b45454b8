//! A batch that is no longer written into: sealed when it is first sent, the same bytes ever after.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use ottla_protocol::record::{
    Attributes, BatchError, BatchHeader, BatchSeal, BatchSpan, Codec, Compression, HEADER_LEN,
    RecordIter, crc, seal,
};

use crate::error::{Error, Outcome};
use crate::record::{Header, Record};
use crate::state::accumulator::batch::{Manners, OpenBatch, Refusal, Room};
use crate::state::accumulator::memory::Memory;
use crate::state::completion::{Completion, Forward, Times};

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
    pub(crate) times: Times,
    pub(crate) opened_at: Instant,
    /// The records as they are sent.
    body: Vec<Bytes>,
    body_len: usize,
    body_crc: u32,
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
    pub(crate) last_error: Option<Error>,
    /// Its records are being compressed elsewhere.
    pub(crate) packing: bool,
}

impl Batch {
    /// Takes over what was written.
    pub(crate) fn new(open: OpenBatch) -> Self {
        let body_crc = crc::of_chain(open.slices());
        Self {
            completion: open.completion,
            span: open.span,
            times: open.times,
            opened_at: open.opened_at,
            body: open.chunks.into_iter().map(Bytes::from_owner).collect(),
            body_len: open.body_len,
            body_crc,
            codec: Codec::default(),
            raw_len: open.body_len,
            header: Bytes::new(),
            sequence: None,
            state: State::Waiting,
            attempts: 0,
            ambiguous: false,
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

    /// Replaces the records by their compressed form.
    pub(crate) fn pack(&mut self, packed: Vec<u8>, codec: Codec, memory: &Arc<Memory>) {
        self.body_len = packed.len();
        self.body_crc = crc::of(&packed);
        self.codec = codec;
        self.body = vec![Bytes::from_owner(memory.adopt(packed))];
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
        seal(&mut header, &fields, &self.span, self.body_len, self.body_crc)?;
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
    }

    /// What may have become of its records, if it ends without being stored.
    pub(crate) fn outcome(&self) -> Outcome {
        let refused = self.last_error.as_ref().is_some_and(|error| error.kafka_code().is_some());
        if self.ambiguous || matches!(self.state, State::Sent) {
            Outcome::PossiblyPersisted
        } else if self.attempts > 0 && refused {
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
                    OpenBatch::new(Arc::clone(&completion), record.timestamp, self.opened_at)
                });
                // The whole batch's memory is given back next.
                let mut room = Room {
                    memory,
                    batch_bytes: usize::MAX,
                    granted: &mut None,
                    manners: Manners::Force,
                };
                let index: Result<u32, Refusal> = open.append(&again, record.timestamp, &mut room);
                forward.push(&completion, index.ok()?);
            }
            self.half(open?, memory)
        };
        let left = half(first)?;
        let right = half(self.records() - first)?;
        let mut halves = [left, right];
        if let Some(sequence) = self.sequence {
            let [left, right] = &mut halves;
            left.seal(Some(sequence)).ok()?;
            let base = sequence_after(sequence.base, left.records());
            right.seal(Some(Sequence { base, ..sequence })).ok()?;
        }
        Some((halves, forward))
    }

    /// A half of this batch, compressed as this one is.
    fn half(&self, open: OpenBatch, memory: &Arc<Memory>) -> Option<Self> {
        let mut half = Self::new(open);
        if self.codec.compression() != Compression::None {
            let mut packed = memory.buffer(half.raw_len);
            self.codec.compress(half.body.iter().map(AsRef::as_ref), &mut packed).ok()?;
            half.pack(packed, self.codec, memory);
        }
        half.attempts = self.attempts;
        half.last_error.clone_from(&self.last_error);
        Some(half)
    }
}
