//! Those who write: by token, by callback, without either, and records of the largest size.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla::{Delivery, Error, ErrorKind, Options, Producer, Record, Sent};

use crate::ledger::{LARGEST, TOPICS};
use crate::settings::Chance;
use crate::watch::{Check, Phase};
use crate::{Outcome, Run, now};

/// `delivery.timeout.ms`: longer than the broker is ever away.
const DELIVERY: Duration = Duration::from_mins(2);
/// How much longer a delivery may take to be told of.
const SLACK: Duration = Duration::from_secs(5);
/// `max.block.ms`.
const BLOCK: Duration = Duration::from_mins(1);
const CLOSE: Duration = Duration::from_secs(30);
/// How often a writer wakes up to send what is due.
const TICK: Duration = Duration::from_millis(50);
/// Records of one writer whose tokens are kept.
const WINDOW: usize = 2_000;
/// Time between two records of the largest size.
const LARGE_EVERY: Duration = Duration::from_secs(3);

/// Of 100 records, how many the writer of a topic sends.
const SHARES: [(&str, u64); 3] = [("awaited", 20), ("called", 40), ("pushed", 40)];

/// A writer of one topic: its lanes in turn, at its share of the rate.
#[derive(Debug)]
struct Writer<'a> {
    run: &'a Run,
    topic: &'static str,
    lanes: Vec<usize>,
    chance: Chance,
    value: Vec<u8>,
    turn: usize,
}

impl<'a> Writer<'a> {
    fn new(run: &'a Run, topic: &'static str, number: u64) -> Self {
        let lanes = run.ledger.of_topic(topic);
        let chance = run.settings.chance(number);
        Self { run, topic, lanes, chance, value: Vec::new(), turn: 0 }
    }

    fn producer(&self) -> Result<Producer, Error> {
        let codec = TOPICS.iter().find(|(topic, ..)| *topic == self.topic).map_or("none", |t| t.2);
        Producer::new(&options(&self.run.address)?.set("compression.type", codec)?)
    }

    /// How long this producer lives.
    fn life(&mut self) -> Instant {
        now() + self.chance.span(20_000, 120_000)
    }

    fn goes_on(&self, until: Instant) -> bool {
        now() < until && self.run.watch.phase() == Phase::Load
    }

    /// Sends the next record; its lane and number, if it was taken.
    fn send<T>(
        &mut self,
        bytes: usize,
        send: impl FnOnce(&Record<'_>, (usize, u64)) -> Result<T, Error>,
    ) -> Option<(usize, u64, T)> {
        let lane = *self.lanes.get(self.turn % self.lanes.len().max(1))?;
        self.turn = self.turn.wrapping_add(1);
        let number = self.run.ledger.next(lane, bytes, &mut self.value);
        let place = &self.run.ledger.lanes().get(lane)?.place;
        let key = number.to_be_bytes();
        let record = Record::to(self.topic).partition(place.partition).key(&key).value(&self.value);
        let watch = &self.run.watch;
        let sent = watch.call("send", BLOCK + SLACK, || send(&record, (lane, number)));
        match sent {
            Ok(kept) => {
                self.run.ledger.sent(lane, number);
                Some((lane, number, kept))
            }
            Err(error) => {
                watch.fault(Check::Sends, format!("{place}: record {number}: {error}"));
                None
            }
        }
    }

    /// Bytes of the next value: mostly few, sometimes some thousands.
    fn bytes(&mut self) -> usize {
        let bytes = match self.chance.below(100) {
            0 => 1_000 + self.chance.below(7_000),
            1..20 => 120 + self.chance.below(280),
            _ => 40 + self.chance.below(80),
        };
        usize::try_from(bytes).unwrap_or(0)
    }

    fn pace(&self) -> Pace {
        let share = SHARES.iter().find(|(topic, _)| *topic == self.topic).map_or(0, |s| s.1);
        Pace { rate: u64::from(self.run.settings.rate) * share / 100, last: now(), rest: 0 }
    }

    fn close(&self, producer: &Producer) {
        let watch = &self.run.watch;
        let flushed = watch.call("flush", DELIVERY + SLACK, || producer.flush(DELIVERY));
        let closed = watch.call("closing a producer", CLOSE + SLACK, || producer.close(CLOSE));
        if let Err(error) = flushed.and(closed) {
            watch.fault(Check::Sends, format!("{}: at a close: {error:?}", self.topic));
        }
    }
}

/// How many records are due.
#[derive(Debug)]
struct Pace {
    /// Records a second.
    rate: u64,
    last: Instant,
    /// What is due of the next record, in millionths.
    rest: u64,
}

impl Pace {
    /// Records due since the last question; of a second at the most, also after a long wait.
    fn due(&mut self) -> u64 {
        let since = self.last.elapsed();
        self.last += since;
        let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX).min(1_000_000);
        self.rest += self.rate * micros;
        let due = self.rest / 1_000_000;
        self.rest %= 1_000_000;
        due
    }
}

/// Options of all who write here: small buffers, so that an outage fills them.
pub(crate) fn options(address: &str) -> Result<Options, Error> {
    Options::new()
        .set("bootstrap.servers", address)?
        .set("request.timeout.ms", "10000")?
        .set("delivery.timeout.ms", &DELIVERY.as_millis().to_string())?
        .set("max.block.ms", &BLOCK.as_millis().to_string())?
        .set("buffer.memory", "4194304")?
        .set("linger.ms", "20")
}

/// Keeps the token of each record, and asks all of them.
pub(crate) fn awaited(run: &Run) -> Outcome {
    let mut writer = Writer::new(run, "awaited", 1);
    while run.watch.phase() == Phase::Load {
        let producer = writer.producer()?;
        let _listed = run.gauges.producer(&producer);
        let mut open = VecDeque::new();
        let (until, mut pace) = (writer.life(), writer.pace());
        while writer.goes_on(until) {
            for _ in 0..pace.due() {
                let bytes = writer.bytes();
                open.extend(writer.send(bytes, |record, _| producer.send(record)));
                while open.len() > WINDOW {
                    settle(run, &mut open);
                }
            }
            while open.front().is_some_and(|(.., sent): &(_, _, Sent)| sent.result().is_some()) {
                settle(run, &mut open);
            }
            run.watch.rest(TICK, Phase::Drain);
        }
        while !open.is_empty() {
            settle(run, &mut open);
        }
        writer.close(&producer);
    }
    Ok(())
}

/// Waits for the oldest record, and notes what became of it.
fn settle(run: &Run, open: &mut VecDeque<(usize, u64, Sent)>) {
    let Some((lane, number, sent)) = open.pop_front() else { return };
    let wait = || sent.wait(DELIVERY + SLACK);
    let result = sent
        .result()
        .unwrap_or_else(|| run.watch.call("waiting for a delivery", DELIVERY + SLACK * 2, wait));
    note(run, lane, number, result);
}

fn note(run: &Run, lane: usize, number: u64, result: Result<Delivery, Error>) {
    match result {
        Ok(_) => run.ledger.acked(lane, number),
        Err(error) => {
            let place = run.ledger.lanes().get(lane).map(|lane| lane.place.to_string());
            let place = place.unwrap_or_default();
            run.watch.fault(Check::Sends, format!("{place}: record {number}: {error:?}"));
        }
    }
}

/// Has a callback told of each record.
pub(crate) fn called(run: &Arc<Run>) -> Outcome {
    let mut writer = Writer::new(run, "called", 2);
    while run.watch.phase() == Phase::Load {
        let producer = writer.producer()?;
        let told = Arc::clone(run);
        let callbacks =
            producer.callbacks(move |(lane, number), result| note(&told, lane, number, result))?;
        let _listed = run.gauges.called(&producer);
        let (until, mut pace) = (writer.life(), writer.pace());
        while writer.goes_on(until) {
            for _ in 0..pace.due() {
                let bytes = writer.bytes();
                writer.send(bytes, |record, id| callbacks.send(record, id));
            }
            run.watch.rest(TICK, Phase::Drain);
        }
        writer.close(&producer);
        let told = run.watch.call("waiting for callbacks", SLACK * 2, || callbacks.wait(SLACK));
        if let Err(error) = told {
            run.watch.fault(Check::Calls, format!("callbacks: {error:?}"));
        }
    }
    Ok(())
}

/// Asks about no record; a flush a second tells that all before it have arrived.
pub(crate) fn pushed(run: &Run) -> Outcome {
    let mut writer = Writer::new(run, "pushed", 3);
    while run.watch.phase() == Phase::Load {
        let producer = writer.producer()?;
        let _listed = run.gauges.producer(&producer);
        let (until, mut pace) = (writer.life(), writer.pace());
        let (mut last, mut flushed) = (vec![0; run.ledger.lanes().len()], now());
        while writer.goes_on(until) {
            for _ in 0..pace.due() {
                let bytes = writer.bytes();
                let sent = writer.send(bytes, |record, _| producer.push(record));
                note_last(&mut last, sent);
            }
            if flushed.elapsed() > Duration::from_secs(1) {
                flush(run, &producer, &last);
                flushed = now();
            }
            run.watch.rest(TICK, Phase::Drain);
        }
        flush(run, &producer, &last);
        writer.close(&producer);
    }
    Ok(())
}

fn note_last(last: &mut [u64], sent: Option<(usize, u64, ())>) {
    if let Some((lane, number, ())) = sent
        && let Some(last) = last.get_mut(lane)
    {
        *last = number;
    }
}

fn flush(run: &Run, producer: &Producer, last: &[u64]) {
    match run.watch.call("flush", DELIVERY + SLACK, || producer.flush(DELIVERY)) {
        Ok(()) => last.iter().enumerate().for_each(|(lane, &last)| run.ledger.acked(lane, last)),
        Err(error) => run.watch.fault(Check::Sends, format!("pushed: {error:?}")),
    }
}

/// Sends records as large as they may be, and waits for each.
pub(crate) fn large(run: &Run) -> Outcome {
    let mut writer = Writer::new(run, "large", 4);
    while run.watch.phase() == Phase::Load {
        let producer = writer.producer()?;
        let _listed = run.gauges.producer(&producer);
        let until = writer.life();
        while writer.goes_on(until) {
            let less = usize::try_from(writer.chance.below(300_000)).unwrap_or(0);
            let mut open = VecDeque::new();
            open.extend(writer.send(LARGEST - less, |record, _| producer.send(record)));
            settle(run, &mut open);
            run.watch.rest(LARGE_EVERY, Phase::Drain);
        }
        refused(run, &producer);
        writer.close(&producer);
    }
    Ok(())
}

/// A record beyond the limit is refused at once.
fn refused(run: &Run, producer: &Producer) {
    let value = vec![0_u8; LARGEST + 1_024];
    let result = producer.send(&Record::to("large").partition(0).value(&value));
    if !matches!(&result, Err(error) if error.kind() == ErrorKind::RecordTooLarge) {
        run.watch.fault(Check::Sends, format!("a record beyond max.request.size: {result:?}"));
    }
}
