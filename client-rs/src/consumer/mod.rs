//! Reading records: as a member of a group or by itself, record by record or in batches.

mod batch;
mod commit;
mod deserialize;
mod engine;
mod face;
mod futures;
mod health;
mod offsets;
mod rebalance;
mod stats;
mod subscription;
mod wire;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::config::{ConsumerConfig, Options};
use crate::driver::{self, ClientHandle, clock};
use crate::error::{Error, ErrorKind};
use crate::life::Life;
use crate::process::Process;
use crate::promise::{self, Promise};
use crate::record::TopicPartition;
use crate::state::parker::{Parker, Sleeper};
use crate::state::wake::Wake;

use engine::Engine;
use face::{Command, Face, Look, OneRecord, Want, WholeBatch};
use futures::{Closing, NextOf};

pub use batch::{Batch, ConsumerRecord, Piece};
pub use commit::{Commit, Committed, CommittedWithMetadata, OffsetAndMetadata};
pub use deserialize::Deserializer;
pub use offsets::{OffsetAndTimestamp, OffsetForTime};
pub use ottla_protocol::record::{Headers, RecordRow, RecordView};
pub use rebalance::RebalanceListener;
pub use stats::ConsumerStats;

/// How long a close in the background may take when the last handle was dropped.
const DROP_DEADLINE: Duration = Duration::from_secs(5);
/// What a call waits beyond its time for the reason why it was not enough.
const SLACK: Duration = Duration::from_millis(50);

/// Reads topics, sharing their partitions with the other members of its group, or the partitions
/// that it is told to: see [`Consumer::assign`].
///
/// A handle: clones are the same consumer. It may be used from any thread, but records are meant
/// to be asked for by one at a time: a call counts as finished what the call before it gave. In a
/// child of the process that made it calls fail with `Forked`, and those that cannot fail do nothing
/// and tell of nothing.
///
/// ```no_run
/// use std::time::Duration;
/// use ottla::{Commit, Consumer, Options};
///
/// let options = Options::new()
///     .set("bootstrap.servers", "localhost:9092")?
///     .set("group.id", "billing")?;
/// let consumer = Consumer::new(&options)?;
/// consumer.subscribe(&["orders"])?;
/// while let Some(record) = consumer.poll(Duration::from_secs(10))? {
///     println!("{} {:?}", record.offset(), record.value());
/// }
/// consumer.close(Duration::from_secs(5))?;
/// # Ok::<(), ottla::Error>(())
/// ```
#[derive(Clone)]
pub struct Consumer {
    own: Arc<Own>,
}

/// What the handles of one consumer share.
struct Own {
    config: ConsumerConfig,
    face: Arc<Face>,
    wake: Arc<Wake>,
    /// Resolved when the machine has ended.
    closed: Arc<Promise<()>>,
    life: Life,
    listener: Mutex<Option<Arc<dyn RebalanceListener>>>,
    /// The process it was made in: threads do not survive a fork.
    process: Process,
}

impl Consumer {
    /// A consumer of these options. Nothing is connected before it is needed.
    ///
    /// `InvalidOption` if an option is missing, or two contradict each other.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let mut config = ConsumerConfig::new(options)?;
        config.common.answer_bytes = face::fetched_share(config.memory_bytes);
        let wake = Arc::<Wake>::default();
        let new = if config.explicit { Face::explicit } else { Face::new };
        let face = Arc::new(new(Arc::clone(&wake), config.memory_bytes));
        Process::watch()?;
        let process = Process::current();
        let (closed, life) = (Promise::new(), Life::new(process));
        let listener = Mutex::new(None);
        Ok(Self { own: Arc::new(Own { config, face, wake, closed, life, listener, process }) })
    }

    /// How long a call may take that is given no time: `default.api.timeout.ms`.
    pub fn api_timeout(&self) -> Duration {
        self.own.config.api_timeout
    }

    /// The next record; nothing if the time is over before one comes, or after [`Self::wakeup`].
    ///
    /// What the call before gave counts as finished. An error tells of one partition or of the
    /// group, and unless its class is fatal the next call goes on.
    pub fn poll(&self, timeout: Duration) -> Result<Option<ConsumerRecord>, Error> {
        self.own.process.check()?;
        self.own.face.take(&OneRecord, timeout, |rebalance| self.tell(rebalance))
    }

    /// The next batch of one partition, of `max.poll.records` at most; else as [`Self::poll`].
    pub fn poll_batch(&self, timeout: Duration) -> Result<Option<Batch>, Error> {
        self.own.process.check()?;
        self.own.face.take(&self.whole(), timeout, |rebalance| self.tell(rebalance))
    }

    /// The next record, if one is ready; nothing at once if not. Else as [`Self::poll`].
    pub fn try_poll(&self) -> Result<Option<ConsumerRecord>, Error> {
        self.attempt(&OneRecord)
    }

    /// The next batch, if one is ready; nothing at once if not. Else as [`Self::poll_batch`].
    pub fn try_poll_batch(&self) -> Result<Option<Batch>, Error> {
        self.attempt(&self.whole())
    }

    /// The next record of the batch that is being given out; nothing if that is at its end.
    ///
    /// It never waits and never has to decode: for loops that let others run while that is done.
    pub fn poll_begun(&self) -> Result<Option<ConsumerRecord>, Error> {
        self.own.process.check()?;
        self.own.face.take_begun(&OneRecord)
    }

    /// The next record, for tasks; nothing only after [`Self::wakeup`].
    ///
    /// Dropping the future loses no record.
    pub fn next(
        &self,
    ) -> impl Future<Output = Result<Option<ConsumerRecord>, Error>> + Send + use<> {
        NextOf::new(Arc::clone(&self.own), OneRecord)
    }

    /// The next batch, for tasks; nothing only after [`Self::wakeup`].
    ///
    /// Dropping the future loses no record.
    pub fn next_batch(&self) -> impl Future<Output = Result<Option<Batch>, Error>> + Send + use<> {
        NextOf::new(Arc::clone(&self.own), self.whole())
    }

    /// The same, of so many records at most, and of `max.poll.records` at most.
    pub fn next_batch_of(
        &self,
        records_max: usize,
    ) -> impl Future<Output = Result<Option<Batch>, Error>> + Send + use<> {
        let records_max = self.own.config.poll_records.min(records_max).max(1);
        NextOf::new(Arc::clone(&self.own), WholeBatch { records_max })
    }

    fn whole(&self) -> WholeBatch {
        WholeBatch { records_max: self.own.config.poll_records }
    }

    fn attempt<W: Want>(&self, want: &W) -> Result<Option<W::Taken>, Error> {
        self.own.process.check()?;
        loop {
            match self.own.face.look(want, None)? {
                Look::Found(taken) => return Ok(Some(taken)),
                Look::Nothing | Look::Woken => return Ok(None),
                Look::Rebalance(rebalance) => self.tell(&rebalance),
            }
        }
    }

    /// For those who take a batch and hand its records on one by one: of the batch given last,
    /// `finished` records are finished, and `given` are in the program's hands. It counts as a
    /// poll. Else all of a batch counts as given, and as finished at the next poll.
    ///
    /// Whether they may go on: not if the partition was paused or moved, or if the group shares out
    /// its partitions anew. Then [`Self::give_back`] what is left.
    pub fn progress(&self, batch: &Batch, finished: usize, given: usize) -> bool {
        let (finished, given) = (batch.place_of(finished), batch.place_of(given));
        self.own.live().is_some_and(|face| face.progress(&batch.shared, finished, given))
    }

    /// Takes back the records of the batch given last but the first `given`. They are given again
    /// when their partition is, if that is still this consumer's and stands where it stood.
    pub fn give_back(&self, batch: &Batch, given: usize) {
        if let Some(face) = self.own.live() {
            face.give_back(&batch.shared, batch.place_of(given));
        }
    }

    /// Has `wake` called when records or an error come to be ready, and nothing was before.
    ///
    /// Called on a thread of the client's: it must be quick, and must not call the consumer. It is
    /// called again only after a poll has found nothing; so poll until then.
    pub fn on_ready(&self, wake: impl Fn() + Send + Sync + 'static) {
        if let Some(face) = self.own.live() {
            face.set_on_ready(Arc::new(wake));
        }
    }

    /// The offset of the next record to be given of a partition; `None` while it is not known, or
    /// the partition is not assigned.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.own.live()?.position(partition)
    }

    /// Goes on with a partition from this offset: it is that of the next record given.
    ///
    /// `NotAssigned` if it is not this consumer's; `InvalidArgument` for an offset below 0.
    pub fn seek(&self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
        if offset < 0 {
            let text = format!("no offset is {offset}: the first is 0");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        self.own.process.check()?;
        self.own.face.seek(partition, offset)
    }

    /// Gives no records of these partitions until [`Self::resume`]; what was fetched is kept.
    ///
    /// `NotAssigned` if one is not this consumer's.
    pub fn pause(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.own.process.check()?;
        self.own.face.set_paused(partitions, true)
    }

    /// Gives records of these partitions again.
    ///
    /// `NotAssigned` if one is not this consumer's.
    pub fn resume(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.own.process.check()?;
        self.own.face.set_paused(partitions, false)
    }

    /// Tells that the program lives while it works longer on what it was given than
    /// `max.poll.interval.ms`, which counts anew from here. Unlike a poll it finishes nothing.
    pub fn keep_alive(&self) {
        if let Some(face) = self.own.live() {
            face.keep_alive();
        }
    }

    /// Ends a call that waits for records in another thread; if none does, the next one.
    pub fn wakeup(&self) {
        if let Some(face) = self.own.live() {
            face.wakeup();
        }
    }

    /// Counts since the consumer was made.
    pub fn stats(&self) -> ConsumerStats {
        let Some(face) = self.own.live() else { return ConsumerStats::default() };
        let (pinned, throttled_ms) = (self.own.life.answer_bytes(), self.own.life.throttled_ms());
        ConsumerStats { pinned, throttled_ms, ..face.stats() }
    }

    /// Commits what is finished, leaves the group, and ends the consumer.
    ///
    /// It takes no longer than `timeout`, and says what could not be done by then. What the last
    /// poll gave is finished only if it was committed, or another poll came after it. A second
    /// call does nothing. Batches and records stay good. In a callback, which must not wait, it is
    /// refused: see [`Self::close_async`].
    pub fn close(&self, timeout: Duration) -> Result<(), Error> {
        self.own.process.check()?;
        driver::check_may_wait()?;
        if self.own.closed.is_resolved() {
            return Ok(());
        }
        let running = self.begin_close(timeout);
        let Some(handle) = running else { return Ok(()) };
        let (wait, deadline) = (self.own.face.wait_id(), clock::after(timeout));
        let parker = Parker::current();
        while !self.own.closed.is_resolved() {
            // What is being given up is told here, where nothing is polled any more.
            let sleeper = Sleeper::Thread(Arc::clone(&parker));
            self.own.closed.wake_too(&sleeper);
            if let Some(rebalance) = self.own.face.await_rebalance(wait, sleeper) {
                self.tell(&rebalance);
                continue;
            }
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() {
                break;
            }
            if !self.own.closed.is_resolved() {
                parker.park(left);
            }
        }
        self.own.face.forget_wait(wait);
        let result = self.own.closed.wait(SLACK, "closing the consumer");
        handle.wait_ended(SLACK);
        result
    }

    fn begin_close(&self, timeout: Duration) -> Option<&ClientHandle> {
        if self.own.face.is_telling_here() {
            // What is told just now would wait for its own end.
            self.own.face.stop_telling();
        }
        self.own.begin_close(timeout)
    }

    /// The same for tasks.
    pub fn close_async(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        if let Err(forked) = self.own.process.check() {
            return Closing { consumer: None, closed: Promise::resolved(Err(forked)) };
        }
        let resolved = self.own.closed.is_resolved();
        if resolved || self.begin_close(timeout).is_none() {
            return Closing { consumer: None, closed: Promise::resolved(Ok(())) };
        }
        let wait = self.own.face.wait_id();
        Closing { consumer: Some((self.clone(), wait)), closed: Arc::clone(&self.own.closed) }
    }

    fn command(&self, command: Command) -> Result<(), Error> {
        self.own.start()?;
        self.own.face.command(command)
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("group", &self.own.config.group)
            .field("assignment", &self.assignment())
            .finish_non_exhaustive()
    }
}

impl Own {
    /// The face, but in a child of the process that made it, where its lock may be held for ever.
    fn live(&self) -> Option<&Face> {
        self.process.is_current().then_some(&self.face)
    }

    /// What only a consumer with a group can do is refused to one without.
    fn check_group(&self, does: &str) -> Result<(), Error> {
        if self.config.group.is_some() {
            return Ok(());
        }
        let text = format!("`group.id` is not set, and a consumer needs it to {does}");
        Err(Error::new(ErrorKind::InvalidGroup, text))
    }

    /// Brings the machine to the I/O thread, the first time.
    fn start(&self) -> Result<(), Error> {
        self.process.check()?;
        if let Some(error) = self.face.ended() {
            return Err(error);
        }
        self.life.begin(|| {
            let (config, face) = (self.config.clone(), Arc::clone(&self.face));
            let (closed, wake) = (Arc::clone(&self.closed), Arc::clone(&self.wake));
            driver::start(&self.config.common, wake, &self.face.events, move |random| {
                Engine::new(config, face, closed, random, clock::now())
            })
        })
    }

    /// Refuses all calls from now on and has the machine end; its handle, if there is a machine.
    fn begin_close(&self, timeout: Duration) -> Option<&ClientHandle> {
        self.face.close();
        let client = self.life.end();
        if client.is_some() {
            self.face.command_close(clock::after(timeout));
        } else {
            self.closed.resolve(Ok(()));
            self.face.events.end();
        }
        client
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // Left as it is: its locks may be held for ever.
            std::mem::forget(Arc::clone(&self.face));
        } else if !self.closed.is_resolved() {
            // Nobody is left to be told.
            self.face.stop_telling();
            self.begin_close(DROP_DEADLINE);
        }
    }
}
