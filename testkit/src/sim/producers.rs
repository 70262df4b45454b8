//! Producers of a run, and what became of each record that they sent.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use ottla::{Error, ErrorKind, Options, Outcome, Producer, Record, Sent};
use tokio::time::Instant;

use super::clock;
use super::plan::{ProducerPlan, topics};
use super::world::{ADDRESS, World};

/// After the world has healed, a record is stored within this.
const PROGRESS: Duration = Duration::from_secs(30);
/// Each producer sends so many at least.
const RECORDS_LEAST: u64 = 300;
/// A close takes no longer than it may, and this.
const GRACE: Duration = Duration::from_secs(2);

/// A record that was taken.
pub(crate) struct Entry {
    pub(crate) producer: usize,
    /// Its place in what the producer sent.
    pub(crate) number: u64,
    pub(crate) topic: &'static str,
    pub(crate) partition: i32,
    pub(crate) value: Vec<u8>,
    pub(crate) sent: Sent,
}

/// Everything that was sent, in the order of each producer.
pub(crate) type History = Rc<RefCell<Vec<Entry>>>;

/// The life of a producer: sends while it is stormy, then must get through.
pub(crate) async fn live(
    world: Rc<World>,
    index: usize,
    plan: ProducerPlan,
    history: History,
) -> Result<(), String> {
    let options = format!("bootstrap.servers={ADDRESS};{}", plan.options);
    let options = Options::parse(&options).map_err(|error| format!("{options}: {error}"))?;
    let producer = Producer::new(&options).map_err(|error| error.to_string())?;
    let mut life = Life { world, index, plan, producer, history, next: 0, ended: 0 };
    while !life.world.is_healed() {
        life.burst().await;
        let pause = life.world.dice.borrow_mut().millis(0, life.plan.pause_ms);
        clock::until((clock::now() + pause).min(life.world.heals_at())).await;
        life.check_memory();
        life.check_ends();
        if life.world.happens(20) {
            life.world.sometimes("a flush in the storm");
            let longest = life.world.dice.borrow_mut().millis(1, 5000);
            // Whether it is through in time is chance; what failed is known by the tokens.
            let flushed = clock::within(longest, life.producer.flush_async()).await;
            drop(flushed);
        }
    }
    life.prove().await;
    Ok(())
}

struct Life {
    world: Rc<World>,
    index: usize,
    plan: ProducerPlan,
    producer: Producer,
    history: History,
    next: u64,
    /// So many of the history have ended, from its beginning on.
    ended: usize,
}

impl Life {
    /// Sends some records; whether the producer takes any, now or later.
    async fn burst(&mut self) -> bool {
        let count = self.world.dice.borrow_mut().between(1, self.plan.burst);
        for _ in 0..count {
            let (topic, partition) = {
                let mut dice = self.world.dice.borrow_mut();
                let all: Vec<(&str, i32)> = topics().collect();
                let (topic, count) = dice.pick(&all);
                (topic, i32::try_from(dice.number() % 64).unwrap_or(0) % count)
            };
            if let Err(why) = self.send(topic, partition).await {
                return why == ErrorKind::BufferFull;
            }
        }
        true
    }

    /// Sends a record, waiting for room if need be; why it was not taken.
    async fn send(&mut self, topic: &'static str, partition: i32) -> Result<(), ErrorKind> {
        let filler = self.world.dice.borrow_mut().between(0, self.plan.value_bytes);
        let mut value = format!("{}:{}:", self.index, self.next).into_bytes();
        value.resize(value.len() + usize::try_from(filler).unwrap_or(0), b'.');
        loop {
            let record = Record::to(topic).partition(partition).value(&value);
            match self.producer.try_send(&record) {
                Ok(sent) => {
                    let (producer, number) = (self.index, self.next);
                    self.next += 1;
                    let entry = Entry { producer, number, topic, partition, value, sent };
                    self.history.borrow_mut().push(entry);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::BufferFull => {
                    self.world.sometimes("a send waits for room");
                    if let Err(error) = self.producer.room(value.len()).await {
                        return self.refused(&error);
                    }
                }
                Err(error) => return self.refused(&error),
            }
        }
    }

    fn refused(&self, error: &Error) -> Result<(), ErrorKind> {
        if error.kind() == ErrorKind::BufferFull {
            self.world.sometimes("there is no room in time");
        } else {
            self.world.finding(format!("producer {} takes no record: {error}", self.index));
        }
        Err(error.kind())
    }

    fn check_memory(&self) {
        let used = self.producer.stats().memory_used;
        if used > self.plan.buffer {
            self.world.finding(format!(
                "producer {} holds {used} of {} bytes",
                self.index, self.plan.buffer
            ));
        }
        // Compressed ones take less.
        let open = self.open_bytes();
        if open > self.plan.buffer && !self.plan.compresses {
            self.world.finding(format!(
                "producer {} has {open} bytes of records that have not ended, and holds {used} of {}",
                self.index, self.plan.buffer
            ));
        }
    }

    /// Bytes of its records that have not ended.
    fn open_bytes(&self) -> u64 {
        let history = self.history.borrow();
        let own = history.iter().skip(self.ended).filter(|entry| entry.producer == self.index);
        let open = own.filter(|entry| entry.sent.result().is_none());
        open.map(|entry| u64::try_from(entry.value.len()).unwrap_or(0)).sum()
    }

    /// A record is told to be stored when all before it in its partition have ended.
    fn check_ends(&mut self) {
        let history = self.history.borrow();
        let ended = history.iter().skip(self.ended);
        self.ended += ended.take_while(|entry| entry.sent.result().is_some()).count();
        let mut open = BTreeSet::new();
        for entry in history.iter().skip(self.ended) {
            let place = (entry.topic, entry.partition);
            match entry.sent.result() {
                _ if entry.producer != self.index => {}
                None => {
                    open.insert(place);
                }
                Some(Ok(_)) if open.contains(&place) => {
                    let what = format!("{place:?}: {}:{} is", entry.producer, entry.number);
                    return self.world.finding(format!("{what} stored before one sent before it"));
                }
                Some(_) => {}
            }
        }
    }

    /// The world has healed: all that was sent ends in time, what is sent now is stored, and the
    /// producer ends.
    async fn prove(&mut self) {
        let healed = clock::now();
        while self.next < RECORDS_LEAST && self.burst().await {}
        for (topic, partitions) in topics() {
            for partition in 0..partitions {
                self.get_through(topic, partition, healed + PROGRESS).await;
            }
        }
        let flushed = clock::within(self.plan.delivery + GRACE, self.producer.flush_async()).await;
        if flushed.is_none() {
            self.world.finding(format!("producer {}: a flush does not end", self.index));
        }
        let time = Duration::from_secs(5);
        let closed = clock::within(time + GRACE, self.producer.close_async(time)).await;
        if closed.is_none() {
            self.world.finding(format!("producer {}: a close does not end", self.index));
        }
        let used = self.producer.stats().memory_used;
        if used > 0 {
            self.world.finding(format!("producer {} holds {used} bytes at its end", self.index));
        }
    }

    /// A record that is sent now is stored by then. One that came into an old batch may share its
    /// end, and one behind bytes that the storm has slowed down may be given up since it may be stored:
    /// then another is sent. And the buffer may be full of old ones for a while.
    async fn get_through(&mut self, topic: &'static str, partition: i32, by: Instant) {
        let what = loop {
            match self.send(topic, partition).await {
                Ok(()) => {}
                Err(ErrorKind::BufferFull) if clock::now() < by => continue,
                Err(why) => break format!("it is not taken: {why:?}"),
            }
            let sent = self.history.borrow().last().map(|entry| entry.sent.clone());
            let Some(sent) = sent else { return };
            let time = by.saturating_duration_since(clock::now());
            match clock::within(time, sent).await {
                Some(Ok(_)) => return,
                Some(Err(error)) if is_left_over(&error) && clock::now() < by => {}
                Some(Err(error)) => break error.to_string(),
                None => break "nothing is known of it".to_owned(),
            }
        };
        self.world.finding(format!(
            "producer {}: {} s after the world healed a record is not stored: {what}",
            self.index,
            PROGRESS.as_secs()
        ));
    }
}

/// Whether a record's end may come of what was before the world healed.
fn is_left_over(error: &Error) -> bool {
    let may_be_stored = error.outcome() == Some(Outcome::PossiblyPersisted);
    may_be_stored || error.kind() == ErrorKind::DeliveryTimeout
}
