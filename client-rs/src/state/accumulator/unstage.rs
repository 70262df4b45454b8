//! How staged records get into their partitions' batches, once their topic is known.
//!
//! They take no more memory there than they took before, whatever else is in use: chunk by chunk, the
//! batches get chunks for just these records, which take over what the staged chunk was charged for.
//! Nothing has to come free first, so records never hold the room that they wait for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use ottla_protocol::Reader;
use ottla_protocol::record::HEADER_LEN;

use super::batch::{Manners, Refusal, record_len_max};
use super::memory::Chunk;
use super::slot::Slot;
use super::staging::{self, Staged, StagedChunk, StagedRecord, Unreadable};
use super::topics::TopicFace;
use super::{Accumulator, AppendError, no_partition, rough_len};
use crate::error::{Error, ErrorKind, Outcome};
use crate::producer::partitioner::{Rules, Sticking};
use crate::record::{Header, Record};
use crate::state::completion::{Completion, Forward, Outcome as Ending, Stamp};

/// Where a record went: its batch, and its index there.
type Token = (Arc<Completion>, u32);

/// A staged record whose partition is chosen.
struct Chosen<'a> {
    slot: &'a Arc<Slot>,
    /// Where the record begins in its chunk.
    at: usize,
    /// Which of the chunk's records it is.
    index: usize,
    /// Bytes that it takes in a batch, at most.
    len_max: usize,
}

/// What holds for all staged records of a topic.
struct Move<'a> {
    topic: &'a TopicFace,
    rules: Rules,
    opened_at: Instant,
    /// Somebody can ask what becomes of them.
    observed: bool,
}

impl Accumulator {
    /// Moves staged records to the partitions of their topic, which nobody else writes into yet.
    pub(super) fn unstage(&self, topic: &TopicFace, staged: Staged) {
        let Staged { completion, mut chunks, opened_at, .. } = staged;
        // Chosen before the first is moved, there is no open batch to be full: they stick to a
        // partition for as much as one takes.
        let most = self.batch_bytes.saturating_sub(HEADER_LEN);
        let sticking =
            Sticking { bytes_min: most, bytes_max: most, adaptive: self.rules.sticking.adaptive };
        let rules = Rules { sticking, ..self.rules.clone() };
        let to = Move { topic, rules, opened_at, observed: !completion.is_unobserved(1) };
        let mut forward = Forward::default();
        while let Some(staged) = chunks.pop_front() {
            for (target, index) in self.move_chunk(&to, &staged) {
                forward.push(&target, index);
            }
        }
        self.wakes(completion.resolve(Ending::Forwarded(forward)));
    }

    /// Moves the records of a chunk, which is then given up; where each went.
    fn move_chunk(&self, to: &Move<'_>, staged: &StagedChunk) -> Vec<Token> {
        let StagedChunk { chunk, records, .. } = staged;
        let (mut chosen, mut tokens) = self.choose_slots(to, &chunk.data, *records);
        // Those of a partition keep their order.
        chosen.sort_by_key(|record| record.slot.partition);
        let mut rest = chosen.as_slice();
        while let Some((first, later)) = rest.split_first() {
            let token = self.move_record(to, rest, first, chunk);
            if let Some(place) = tokens.get_mut(first.index) {
                *place = Some(token);
            }
            rest = later;
        }
        debug_assert!(tokens.iter().all(Option::is_some), "each record has gone somewhere");
        tokens.into_iter().flatten().collect()
    }

    /// Chooses the partitions of a chunk's records; of those that get none, what they got instead.
    fn choose_slots<'a>(
        &self,
        to: &Move<'a>,
        data: &[u8],
        records: usize,
    ) -> (Vec<Chosen<'a>>, Vec<Option<Token>>) {
        let (mut chosen, mut tokens) = (Vec::new(), Vec::new());
        let mut headers = Vec::new();
        let mut reader = Reader::new(data);
        for _ in 0..records {
            let at = reader.position();
            let staged = match staging::read(&mut reader, &mut headers) {
                Ok(staged) => staged,
                Err(cause) => {
                    // Where those behind it begin is not known: they are lost with it.
                    let rest = records - tokens.len();
                    let lost = || Some(self.lose_unreadable(to, cause));
                    tokens.extend(std::iter::repeat_with(lost).take(rest));
                    break;
                }
            };
            let record = record_of(to.topic, staged, &headers);
            match choose_slot(to, &record) {
                Ok(slot) => {
                    let len_max = record_len_max(&record).unwrap_or(usize::MAX);
                    chosen.push(Chosen { slot, at, index: tokens.len(), len_max });
                    tokens.push(None);
                }
                Err(error) => tokens.push(Some(self.lose(to, &record, error))),
            }
        }
        (chosen, tokens)
    }

    /// Writes a record into its partition's batch, the first of the `rest` of its chunk.
    fn move_record(
        &self,
        to: &Move<'_>,
        rest: &[Chosen<'_>],
        first: &Chosen<'_>,
        chunk: &Chunk,
    ) -> Token {
        let mut headers = Vec::new();
        let data = chunk.data.get(first.at..).ok_or(Unreadable("there is nothing where it began"));
        let read = data.and_then(|data| staging::read(&mut Reader::new(data), &mut headers));
        let staged = match read {
            Ok(staged) => staged,
            Err(cause) => return self.lose_unreadable(to, cause),
        };
        let record = record_of(to.topic, staged, &headers);
        let mut token = None;
        let mut append = |granted: &mut Option<Chunk>| {
            let keep = &mut |batch: &Arc<Completion>, at: Stamp| {
                token = Some((Arc::clone(batch), at.index));
            };
            let mut room = self.room(granted, Manners::Granted);
            let timed = (&record, staged.timestamp);
            self.append_slot(first.slot, timed, &mut room, (&|| to.opened_at, true), keep)
        };
        let mut result = append(&mut None);
        if let Err(Refusal::Memory(_)) = result {
            result = append(&mut Some(chunk.part(self.run_len(rest))));
        }
        token.unwrap_or_else(|| {
            let error = match result.map_err(|refusal| self.append_error(first.slot, &refusal)) {
                Err(AppendError::Failed(error)) => error,
                Err(AppendError::Memory(_)) | Ok(()) => self.refusal(),
            };
            self.lose(to, &record, error)
        })
    }

    /// Bytes of the first record and of those behind it that are sure to go into the same batch.
    fn run_len(&self, rest: &[Chosen<'_>]) -> usize {
        let Some((first, later)) = rest.split_first() else { return 0 };
        let most = self.batch_bytes.saturating_sub(HEADER_LEN + first.slot.open_len());
        let mut len = first.len_max;
        for record in later {
            if !Arc::ptr_eq(record.slot, first.slot) || len + record.len_max > most {
                break;
            }
            len += record.len_max;
        }
        len
    }

    /// Gives a record up that cannot be read back.
    fn lose_unreadable(&self, to: &Move<'_>, Unreadable(cause): Unreadable) -> Token {
        let text = format!("a record that waited for its topic cannot be read back: {cause}");
        let error = Error::new(ErrorKind::Internal, text).with_topic(&to.topic.name);
        let record = Record::to(&to.topic.name);
        self.lose(to, &record, error.with_outcome(Outcome::NotSent))
    }

    /// Gives a record up.
    fn lose(&self, to: &Move<'_>, record: &Record<'_>, error: Error) -> Token {
        let bytes = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        self.counters.note_failed(1, bytes, error.outcome());
        if !to.observed {
            self.report(1, &error);
        }
        let partition = record.partition.unwrap_or(-1);
        let lost = Completion::new(self.take_id(), &to.topic.name, partition);
        lost.resolve(Ending::Failed(error));
        (lost, 0)
    }
}

fn choose_slot<'a>(to: &Move<'a>, record: &Record<'_>) -> Result<&'a Arc<Slot>, Error> {
    let topic = to.topic;
    let sticks = to.rules.sticks(record);
    if sticks && topic.cursor.put() + rough_len(record) > to.rules.sticking.bytes_max {
        // Its batch would be full: as for any other record, that sends it elsewhere.
        topic.cursor.note_put(to.rules.sticking.bytes_max);
    }
    // A partitioner of the program's own runs here on the client's thread, which must go on.
    let choosing = AssertUnwindSafe(|| topic.slot_for(record, &to.rules));
    let slot = catch_unwind(choosing).map_err(|_| {
        let text = "the program's partitioner panicked";
        let error = Error::new(ErrorKind::InvalidPartition, text).with_topic(&topic.name);
        error.with_outcome(Outcome::NotSent)
    })?;
    if sticks {
        topic.cursor.note_put(rough_len(record));
    }
    slot.map_err(|number| no_partition(topic, number))
}

fn record_of<'a>(
    topic: &'a TopicFace,
    staged: StagedRecord<'a>,
    headers: &'a [Header<'a>],
) -> Record<'a> {
    let StagedRecord { partition, timestamp, key, value } = staged;
    let timestamp = Some(timestamp);
    Record { topic: &topic.name, partition, key, value, headers, timestamp }
}
