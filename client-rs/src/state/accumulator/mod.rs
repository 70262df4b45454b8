//! The producer's shared face: any thread writes records into it, and the sending machine takes them.
//!
//! It appends and says *ready*; it decides nothing. Locks: one per partition, held while a record is
//! encoded; a leaf for the list of slots with news, taken under it; one for staged topics, under which
//! slots are locked when a topic becomes known.

mod ahead;
pub(crate) mod batch;
pub(crate) mod checksum;
mod intake;
pub(crate) mod memory;
pub(crate) mod slot;
pub(crate) mod staging;
pub(crate) mod topics;
mod unstage;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use ottla_protocol::record::{Compression, HEADER_LEN};

use self::batch::{Manners, Refusal, Room, record_len_max};
use self::checksum::CHECK_FROM;
use self::memory::{Chunk, Memory};
use self::slot::{News, Opening, Slot};
use self::staging::{Staged, Staging};
use self::topics::{Recent, TopicFace, Topics};
use super::completion::{Completion, Stamp};
use super::guard::lock;
use super::parker::{Signal, Sleeper};
use super::wake::Wake;
use crate::config::ProducerConfig;
use crate::error::{Error, ErrorKind, Outcome};
use crate::events::{Event, Feed};
use crate::producer::partitioner::Rules;
use crate::producer::stats::Counters;
use crate::record::{Record, check_topic};

#[cfg(test)]
mod tests;

/// Why a record was not taken.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// There is no room for a chunk of so many bytes now.
    Memory(usize),
    /// It will not be taken.
    Failed(Error),
}

/// The time of a call: milliseconds for the record, and where a deadline's start is read, if one is
/// needed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now_ms: i64,
    pub(crate) clock: fn() -> Instant,
}

/// What the machine was asked for.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    pub(crate) flushes: Vec<Arc<Signal>>,
    /// Close, at this time at the latest.
    pub(crate) close_by: Option<Instant>,
}

/// Records that failed and that nobody could ask about.
#[derive(Debug, Default)]
pub(crate) struct Unreported {
    pub(crate) count: u64,
    pub(crate) first: Option<Error>,
    /// Who wants to hear of the next one.
    pub(crate) sleepers: Vec<Sleeper>,
}

/// The shared face.
#[derive(Debug)]
pub(crate) struct Accumulator {
    batch_bytes: usize,
    check_from: usize,
    record_bytes_max: usize,
    rules: Rules,
    pub(crate) memory: Arc<Memory>,
    pub(crate) wake: Arc<Wake>,
    topics: ArcSwap<Topics>,
    recent: Recent,
    staging: Mutex<Staging>,
    staged_topics: AtomicUsize,
    ready: Mutex<Vec<Arc<Slot>>>,
    next_id: AtomicU64,
    refusing: AtomicBool,
    /// Why records are refused, once they are for good.
    end: OnceLock<Error>,
    commands: Mutex<Commands>,
    unreported: Mutex<Unreported>,
    pub(crate) counters: Counters,
    pub(crate) events: Arc<Feed>,
}

impl Accumulator {
    pub(crate) fn new(config: &ProducerConfig, wake: Arc<Wake>) -> Arc<Self> {
        Arc::new(Self {
            batch_bytes: config.batch_bytes,
            // Of a batch that is compressed other bytes are sent.
            check_from: match config.codec.compression() {
                Compression::None => CHECK_FROM,
                _ => usize::MAX,
            },
            record_bytes_max: config.request_bytes_max.min(config.memory_bytes),
            rules: config.rules.clone(),
            memory: Memory::new(config.memory_bytes),
            wake,
            topics: ArcSwap::default(),
            recent: Recent::default(),
            staging: Mutex::default(),
            staged_topics: AtomicUsize::new(0),
            ready: Mutex::default(),
            next_id: AtomicU64::new(1),
            refusing: AtomicBool::new(false),
            end: OnceLock::new(),
            commands: Mutex::default(),
            unreported: Mutex::default(),
            counters: Counters::default(),
            events: Arc::default(),
        })
    }

    /// Writes a record into its partition's open batch, or keeps it until its topic is known.
    ///
    /// `granted` is a chunk that the caller waited for after a refusal for want of memory. `keep`
    /// takes what the caller wants of the record's batch and of its stamp there.
    #[inline]
    pub(crate) fn append(
        &self,
        record: &Record<'_>,
        moment: Moment,
        granted: &mut Option<Chunk>,
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
    ) -> Result<(), AppendError> {
        if self.refusing.load(Ordering::Relaxed) {
            return Err(AppendError::Failed(self.refusal()));
        }
        if record.timestamp.is_some_and(i64::is_negative) {
            return Err(AppendError::Failed(before_the_epoch(record)));
        }
        self.check_size(record).map_err(AppendError::Failed)?;
        let mut room = self.room(granted, Manners::Queue);
        loop {
            let known = self.recent.with(&self.topics, record.topic, |topic| {
                self.append_known(topic, record, moment, &mut room, keep)
            });
            if let Some(result) = known {
                return result;
            }
            if let Some(result) = self.stage(record, moment, &mut room, keep) {
                return result;
            }
        }
    }

    const fn room<'a>(&'a self, granted: &'a mut Option<Chunk>, manners: Manners) -> Room<'a> {
        Room {
            memory: &self.memory,
            batch_bytes: self.batch_bytes,
            check_from: self.check_from,
            granted,
            manners,
        }
    }

    #[inline]
    fn append_known(
        &self,
        topic: &TopicFace,
        record: &Record<'_>,
        moment: Moment,
        room: &mut Room<'_>,
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
    ) -> Result<(), AppendError> {
        let timestamp = record.timestamp.unwrap_or(moment.now_ms);
        self.append_timed(topic, (record, timestamp), room, &moment.clock, keep)
    }

    #[inline]
    fn append_timed(
        &self,
        topic: &TopicFace,
        record: (&Record<'_>, i64),
        room: &mut Room<'_>,
        clock: &dyn Fn() -> Instant,
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
    ) -> Result<(), AppendError> {
        if self.rules.may_stick() {
            return self.append_sticky(topic, record, room, clock, keep);
        }
        let slot = topic.slot_for(record.0, &self.rules);
        let slot = slot.map_err(|number| AppendError::Failed(no_partition(topic, number)))?;
        let result = self.append_slot(slot, record, room, (clock, true), keep);
        result.map_err(|refusal| self.append_error(slot, &refusal))
    }

    /// The same where records may stick to a partition: a full batch sends the next one elsewhere.
    fn append_sticky(
        &self,
        topic: &TopicFace,
        record: (&Record<'_>, i64),
        room: &mut Room<'_>,
        clock: &dyn Fn() -> Instant,
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
    ) -> Result<(), AppendError> {
        let sticks = self.rules.sticks(record.0);
        loop {
            let slot = topic.slot_for(record.0, &self.rules);
            let slot = slot.map_err(|number| AppendError::Failed(no_partition(topic, number)))?;
            match self.append_slot(slot, record, room, (clock, !sticks), keep) {
                Ok(()) if sticks => topic.cursor.note_put(rough_len(record.0)),
                Ok(()) => {}
                // There is no open batch left to be full.
                Err(Refusal::Full) if sticks => {
                    topic.cursor.note_put(self.rules.sticking.bytes_max);
                    continue;
                }
                Err(refusal) => return Err(self.append_error(slot, &refusal)),
            }
            return Ok(());
        }
    }

    #[inline]
    fn append_slot(
        &self,
        slot: &Arc<Slot>,
        record: (&Record<'_>, i64),
        room: &mut Room<'_>,
        (now, stay): (&dyn Fn() -> Instant, bool),
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
    ) -> Result<(), Refusal> {
        let list = &|| lock(&self.ready).push(Arc::clone(slot));
        let opening = Opening { next_id: &|| self.take_id(), now, list, stay };
        let mut news = News::None;
        let result = slot.append(record, room, &opening, keep, &mut news);
        match news {
            News::None => {}
            News::Begun => self.wake.wake_if_idle(),
            News::Full => self.wake.wake(),
        }
        result
    }

    #[cold]
    fn append_error(&self, slot: &Slot, refusal: &Refusal) -> AppendError {
        match *refusal {
            Refusal::Memory(bytes) => AppendError::Memory(bytes),
            Refusal::Closed | Refusal::Full => AppendError::Failed(self.refusal()),
            Refusal::Length => AppendError::Failed(too_long(&slot.topic)),
        }
    }

    fn take_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// `max.request.size`, and what fits the budget at all.
    #[inline]
    fn check_size(&self, record: &Record<'_>) -> Result<(), Error> {
        let rough = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        // Lengths, deltas and the batch's header come to less than 128 bytes.
        if record.headers.is_empty() && rough + 128 <= self.record_bytes_max {
            return Ok(());
        }
        let length =
            record_len_max(record).map_or(usize::MAX, |len| len.saturating_add(HEADER_LEN));
        if length <= self.record_bytes_max {
            return Ok(());
        }
        let text = format!(
            "the record takes {length} bytes, and `max.request.size` or `buffer.memory` is {}",
            self.record_bytes_max
        );
        Err(Error::new(ErrorKind::RecordTooLarge, text)
            .with_topic(&record.topic.into())
            .with_outcome(Outcome::NotSent))
    }

    /// Keeps a record until its topic is known; `None` if it has become so meanwhile.
    #[cold]
    fn stage(
        &self,
        record: &Record<'_>,
        moment: Moment,
        room: &mut Room<'_>,
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
    ) -> Option<Result<(), AppendError>> {
        if let Err(error) = check_topic(record.topic).and_then(|()| check_partition(record)) {
            return Some(Err(AppendError::Failed(error.with_outcome(Outcome::NotSent))));
        }
        let mut staging = lock(&self.staging);
        if self.topics.load().contains_key(record.topic) {
            return None;
        }
        if staging.closed {
            return Some(Err(AppendError::Failed(self.refusal())));
        }
        let timestamp = record.timestamp.unwrap_or(moment.now_ms);
        if let Some(staged) = staging.topics.get_mut(record.topic) {
            let pushed = staged.push(record, timestamp, room);
            let kept = pushed.map(|index| keep(&staged.completion, Stamp { index, timestamp }));
            return Some(kept.map_err(AppendError::Memory));
        }
        let topic: Arc<str> = record.topic.into();
        let completion = Completion::staged(self.take_id(), &topic);
        let mut staged = Staged::new(completion, (moment.clock)());
        match staged.push(record, timestamp, room) {
            Ok(index) => {
                // Before the machine can end it, as for any further record.
                keep(&staged.completion, Stamp { index, timestamp });
                staging.topics.insert(topic, staged);
                self.staged_topics.store(staging.topics.len(), Ordering::Relaxed);
                drop(staging);
                self.wake.wake();
                Some(Ok(()))
            }
            Err(bytes) => Some(Err(AppendError::Memory(bytes))),
        }
    }

    /// Why records are refused.
    pub(crate) fn refusal(&self) -> Error {
        self.end.get().cloned().unwrap_or_else(Error::closed).with_outcome(Outcome::NotSent)
    }

    /// Whether records are refused.
    pub(crate) fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Relaxed)
    }

    /// Why the machine does nothing any more, once it does not.
    pub(crate) fn end(&self) -> Option<&Error> {
        self.end.get()
    }

    /// Takes no more records: the producer is closing, or is lost for the reason given.
    pub(crate) fn refuse(&self, reason: Option<&Error>) {
        if let Some(reason) = reason {
            // The first reason stands.
            self.end.get_or_init(|| reason.clone());
        }
        self.refusing.store(true, Ordering::Relaxed);
        self.memory.wake_all();
    }

    /// Asks the machine for something.
    pub(crate) fn command(&self, command: impl FnOnce(&mut Commands)) {
        command(&mut lock(&self.commands));
        self.wake.wake();
    }

    /// What the machine was asked for since the last call.
    pub(crate) fn take_commands(&self) -> Commands {
        let mut commands = lock(&self.commands);
        Commands { flushes: std::mem::take(&mut commands.flushes), close_by: commands.close_by }
    }

    /// Notes records that failed with nobody there to hear it.
    pub(crate) fn report(&self, count: u64, error: &Error) {
        self.events.tell(|| Event::DeliveryFailed { error: error.clone(), records: count });
        let mut unreported = lock(&self.unreported);
        unreported.count += count;
        unreported.first.get_or_insert_with(|| error.clone());
        let sleepers = std::mem::take(&mut unreported.sleepers);
        drop(unreported);
        sleepers.into_iter().for_each(Sleeper::wake);
    }

    /// Those records, once. If there are none, the sleeper is woken when there are.
    pub(crate) fn take_unreported(&self, sleeper: Option<Sleeper>) -> Unreported {
        let mut unreported = lock(&self.unreported);
        let known = |new: &Sleeper| unreported.sleepers.iter().any(|known| known.is_same(new));
        let new = sleeper.filter(|new| unreported.first.is_none() && !known(new));
        unreported.sleepers.extend(new);
        let Unreported { count, first, .. } = &mut *unreported;
        Unreported { count: std::mem::take(count), first: first.take(), sleepers: Vec::new() }
    }
}

/// As Kafka's own client has it [ProducerRecord].
#[cold]
fn before_the_epoch(record: &Record<'_>) -> Error {
    let text = "a record's time is in milliseconds since the epoch, and none before it";
    Error::new(ErrorKind::InvalidTimestamp, text)
        .with_topic(&record.topic.into())
        .with_outcome(Outcome::NotSent)
}

fn too_long(topic: &Arc<str>) -> Error {
    Error::new(ErrorKind::RecordTooLarge, "the record is too large for the format")
        .with_topic(topic)
        .with_outcome(Outcome::NotSent)
}

/// What is no partition of any topic.
fn check_partition(record: &Record<'_>) -> Result<(), Error> {
    match record.partition {
        Some(partition) if partition < 0 => {
            let text = "partitions are numbered from 0";
            Err(Error::new(ErrorKind::InvalidPartition, text)
                .with_topic(&record.topic.into())
                .with_partition(partition))
        }
        _ => Ok(()),
    }
}

/// Bytes of a record, about.
fn rough_len(record: &Record<'_>) -> usize {
    let len = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers = record.headers.iter().map(|header| header.key.len() + len(header.value));
    // Lengths, deltas and attributes take 7 at least.
    7 + len(record.key) + len(record.value) + headers.sum::<usize>()
}

fn no_partition(topic: &TopicFace, partition: i32) -> Error {
    let text = format!("the topic has partitions 0 to {}", topic.slots.len().saturating_sub(1));
    Error::new(ErrorKind::InvalidPartition, text)
        .with_topic(&topic.name)
        .with_partition(partition)
        .with_outcome(Outcome::NotSent)
}
