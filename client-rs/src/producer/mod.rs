//! Producers: records in, deliveries out.

mod callbacks;
pub(crate) mod delivery;
mod lifecycle;
pub(crate) mod partitioner;
mod room;
pub(crate) mod stats;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

pub use self::callbacks::Callbacks;
pub use self::delivery::{Sent, SentMany};
pub use self::lifecycle::{Close, Failure, Flush};
use self::partitioner::{Own, Rule};
pub use self::partitioner::{Partitioner, Partitions};
pub use self::room::{Queued, Room};
pub use self::stats::ProducerStats;
use crate::config::{Options, ProducerConfig};
use crate::driver::{self, clock};
use crate::error::{Error, ErrorKind, Outcome};
use crate::events::Events;
use crate::health::Health;
use crate::life::Life;
use crate::process::Process;
use crate::record::Record;
use crate::state::accumulator::memory::{Chunk, Place};
use crate::state::accumulator::{Accumulator, AppendError, Moment};
use crate::state::completion::{Completion, Stamp};
use crate::state::parker::{Parker, Sleeper};
use crate::state::sender::Sender;
use crate::state::wake::Wake;

/// Sends records to topics.
///
/// A handle: clones are the same producer, and any thread may use them. Made by [`Producer::new`]
/// without touching the network; the first record connects. Dropped with records on their way, it
/// gives these up: call [`Producer::close`]. In a child of a fork it is dead: calls fail with
/// `Forked`.
#[derive(Clone)]
pub struct Producer {
    inner: Arc<Inner>,
}

struct Inner {
    config: ProducerConfig,
    face: Arc<Accumulator>,
    /// Bytes of records that wait for room outside of the buffer.
    outside: Arc<AtomicUsize>,
    life: Life,
    process: Process,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // Left as it is: its locks may be held for ever.
            std::mem::forget(Arc::clone(&self.face));
        } else if self.life.end().is_some() {
            self.face.refuse(None);
            self.face.command(|commands| commands.close_by = Some(clock::now()));
        } else {
            // There is no machine that would tell it.
            self.face.events.end();
        }
    }
}

impl Producer {
    /// A producer with these options. Nothing is connected or resolved.
    ///
    /// `InvalidOption` if an option is missing, or two contradict each other.
    pub fn new(options: &Options) -> Result<Self, Error> {
        Self::of(ProducerConfig::new(options)?)
    }

    /// The same, with a rule of the program's own for the partitions of records that name none.
    ///
    /// `InvalidOption` also if an option chooses a rule.
    pub fn with_partitioner(
        options: &Options,
        partitioner: impl Partitioner + 'static,
    ) -> Result<Self, Error> {
        for name in ["partitioner", "partitioner.keyless"] {
            if options.is_set(name) {
                let text = format!("`{name}` is set, and the program brings a partitioner");
                return Err(Error::new(ErrorKind::InvalidOption, text));
            }
        }
        let mut config = ProducerConfig::new(options)?;
        config.rules.rule = Rule::Own(Own(Arc::new(partitioner)));
        Self::of(config)
    }

    fn of(config: ProducerConfig) -> Result<Self, Error> {
        Process::watch()?;
        let face = Accumulator::new(&config, Arc::<Wake>::default());
        let (outside, process) = (Arc::default(), Process::current());
        let life = Life::new(process);
        Ok(Self { inner: Arc::new(Inner { config, face, outside, life, process }) })
    }

    /// Sends a record, and gives its token. It never waits for the network.
    ///
    /// If `buffer.memory` is used up it waits for room, in order with others, for up to
    /// `max.block.ms`; then `BufferFull`. Other errors: `RecordTooLarge`, `InvalidTopic`,
    /// `InvalidPartition`, `InvalidTimestamp`, `Closed`. After an error nothing was kept of the
    /// record.
    pub fn send(&self, record: &Record<'_>) -> Result<Sent, Error> {
        let now_ms = record.timestamp.map_or_else(clock::burst_ms, |_| -1);
        let (mut batch, mut stamp) = (None, Stamp::default());
        let keep = &mut |its: &Arc<Completion>, at| (batch, stamp) = (Some(Arc::clone(its)), at);
        self.send_by(record, now_ms, &mut None, keep)?;
        Ok(Sent::of(batch.ok_or_else(lost)?, stamp))
    }

    /// Sends a record as [`Producer::send`] does, and gives no token: for who asks about none.
    ///
    /// Order, retries and idempotence hold all the same, and a failure comes out of the next
    /// [`Producer::flush`] or [`Producer::close`].
    pub fn push(&self, record: &Record<'_>) -> Result<(), Error> {
        let now_ms = record.timestamp.map_or_else(clock::burst_ms, |_| -1);
        self.send_by(record, now_ms, &mut None, &mut |_, _| {})
    }

    /// Sends a record if there is room for it now; `BufferFull` if not, or if others wait for room
    /// that came before.
    pub fn try_send(&self, record: &Record<'_>) -> Result<Sent, Error> {
        let (mut batch, mut stamp) = (None, Stamp::default());
        let keep = &mut |its: &Arc<Completion>, at| (batch, stamp) = (Some(Arc::clone(its)), at);
        self.try_send_by(record, keep)?;
        Ok(Sent::of(batch.ok_or_else(lost)?, stamp))
    }

    /// Sends records in order, and tells of each what became of it: one that is refused does not
    /// keep the others back. Waits for room as [`Producer::send`] does, for `max.block.ms` in all.
    pub fn send_many(&self, records: &[Record<'_>]) -> SentMany {
        let mut sent = SentMany::with_capacity(records.len());
        let mut deadline = None;
        let now_ms = clock::now_ms();
        for record in records {
            let keep = &mut |batch: &Arc<Completion>, stamp| sent.push(batch, stamp);
            if let Err(error) = self.send_by(record, now_ms, &mut deadline, keep) {
                sent.push_refused(error);
            }
        }
        sent
    }

    /// Sends records in order for as long as there is room, and adds them to `sent`, also those that
    /// are refused; how many that were. For faces that wait for [`Producer::room`] by themselves.
    pub fn try_send_many(&self, records: &[Record<'_>], sent: &mut SentMany) -> usize {
        let now_ms = clock::now_ms();
        for (taken, record) in records.iter().enumerate() {
            let keep = &mut |batch: &Arc<Completion>, stamp| sent.push(batch, stamp);
            match self.append(record, now_ms, &mut self.room_left(), keep) {
                Ok(()) => {}
                Err(AppendError::Failed(error)) => sent.push_refused(error),
                Err(AppendError::Memory(_)) => return taken,
            }
        }
        records.len()
    }

    /// Waits for room for a record of so many bytes, in order with others who wait, for up to
    /// `max.block.ms`. Then it is kept for the next [`Producer::try_send`], for a tenth of a second.
    pub fn room(&self, bytes: usize) -> Room {
        let inner = &self.inner;
        let vitals = inner.life.vitals();
        Room::new((Arc::clone(&inner.face), inner.process), bytes, inner.config.max_block)
            .of_client(vitals)
    }

    /// Counts a record that a face is going to keep until there is room for it, as long as what is
    /// given lives.
    ///
    /// What is kept so takes as many bytes as `buffer.memory`, or 16 MiB if that is more; a record
    /// counts with its bytes and 1 KiB. `BufferFull` if it does not fit in; `RecordTooLarge` if it
    /// can never have room.
    pub fn queue(&self, record: &Record<'_>) -> Result<Queued, Error> {
        Queued::new(&self.inner.outside, record.size(), self.inner.config.memory_bytes)
    }

    /// How the producer fares: its connections, its last error, its buffer.
    ///
    /// Before the first record nothing is told of connections; in a child of the process that made it
    /// nothing at all.
    pub fn health(&self) -> Health {
        if !self.inner.process.is_current() {
            return Health::default();
        }
        let bytes = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Health {
            buffer_used: bytes(self.inner.face.memory.used()),
            buffer_max: bytes(self.inner.config.memory_bytes),
            ..self.inner.life.health()
        }
    }

    /// What it has done since it was made, in numbers.
    pub fn stats(&self) -> ProducerStats {
        let throttled_ms = self.inner.life.throttled_ms();
        self.inner.face.counters.read(&self.inner.face.memory, throttled_ms)
    }

    /// What befalls the producer, from now on.
    ///
    /// In a child of the process that made it there is nothing to tell.
    pub fn events(&self) -> Events {
        Events::of(&self.inner.face.events, self.inner.process)
    }

    /// The chunk that a wait in [`Producer::room`] was granted, if its sender has not taken it yet.
    #[inline]
    fn room_left(&self) -> Option<Chunk> {
        let inner = &*self.inner;
        if inner.process.is_current() { inner.face.memory.take_left() } else { None }
    }

    #[inline]
    fn append(
        &self,
        record: &Record<'_>,
        now_ms: i64,
        granted: &mut Option<Chunk>,
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
    ) -> Result<(), AppendError> {
        if !self.inner.process.is_current() {
            return Err(AppendError::Failed(self.forked()));
        }
        if self.inner.life.client().is_none() {
            self.start().map_err(AppendError::Failed)?;
        }
        let moment = Moment { now_ms, clock: clock::now };
        self.inner.face.append(record, moment, granted, keep)
    }

    /// Sends a record if there is room for it now.
    fn try_send_by(
        &self,
        record: &Record<'_>,
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
    ) -> Result<(), Error> {
        let now_ms = record.timestamp.map_or_else(clock::burst_ms, |_| -1);
        self.append(record, now_ms, &mut self.room_left(), keep).map_err(|error| match error {
            AppendError::Memory(_) => {
                room::full(&self.inner.face.memory, "there is no room for the record now")
            }
            AppendError::Failed(error) => error,
        })
    }

    /// Sends a record, waiting for room until `deadline`, which the first wait sets.
    #[inline]
    fn send_by(
        &self,
        record: &Record<'_>,
        now_ms: i64,
        deadline: &mut Option<Instant>,
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
    ) -> Result<(), Error> {
        match self.append(record, now_ms, &mut None, keep) {
            Ok(()) => Ok(()),
            Err(AppendError::Failed(error)) => Err(error),
            Err(AppendError::Memory(bytes)) => self.send_late(record, bytes, deadline, keep),
        }
    }

    #[cold]
    fn send_late(
        &self,
        record: &Record<'_>,
        bytes: usize,
        deadline: &mut Option<Instant>,
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
    ) -> Result<(), Error> {
        driver::check_may_wait().map_err(|error| error.with_outcome(Outcome::NotSent))?;
        let began = clock::now();
        let by = *deadline.get_or_insert_with(|| began + self.inner.config.max_block);
        let result = self.send_in_turn(record, bytes, by, keep);
        self.inner.face.counters.note_wait(clock::now().saturating_duration_since(began));
        result
    }

    /// Sends a record once those who waited before it have had their room.
    fn send_in_turn(
        &self,
        record: &Record<'_>,
        bytes: usize,
        by: Instant,
        keep: &mut impl FnMut(&Arc<Completion>, Stamp),
    ) -> Result<(), Error> {
        let mut place = self.inner.face.memory.queue(bytes, None);
        loop {
            let mut chunk = Some(self.wait_for_room(&place, by)?);
            // It is sent now, and not when it began to wait.
            match self.append(record, clock::now_ms(), &mut chunk, keep) {
                Ok(()) => return Ok(()),
                Err(AppendError::Failed(error)) => return Err(error),
                // Its topic has become known meanwhile, or the record needs more than was thought.
                Err(AppendError::Memory(more)) => place = place.again(more),
            }
        }
    }

    fn wait_for_room(&self, place: &Place, by: Instant) -> Result<Chunk, Error> {
        let face = &self.inner.face;
        // What is written already must go out for room to come.
        face.wake.wake();
        let parker = Parker::current();
        loop {
            place.poll(Sleeper::Thread(Arc::clone(&parker)));
            if let Some(chunk) = place.take_chunk() {
                return Ok(chunk);
            }
            if face.is_refusing() {
                return Err(face.refusal());
            }
            let now = clock::now();
            if by <= now {
                return Err(room::late(&face.memory, self.inner.life.vitals().as_deref()));
            }
            parker.park(by - now);
        }
    }

    /// Why a record is not taken in a child of the process that made the producer.
    #[cold]
    fn forked(&self) -> Error {
        let error = self.inner.process.check().err();
        error.unwrap_or_else(Error::closed).with_outcome(Outcome::NotSent)
    }

    #[cold]
    fn start(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        let begun = inner.life.begin(|| {
            let (config, face) = (inner.config.clone(), Arc::clone(&inner.face));
            let (wake, events) = (Arc::clone(&inner.face.wake), &inner.face.events);
            driver::start(&inner.config.common, wake, events, |_| Sender::new(config, face))
        });
        begun.map_err(|error| error.with_outcome(Outcome::NotSent))
    }
}

/// A record that was taken has a place.
#[cold]
fn lost() -> Error {
    Error::new(ErrorKind::Internal, "the record was taken and has no place")
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("bootstrap", &self.inner.config.common.bootstrap)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
