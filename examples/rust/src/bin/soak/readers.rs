//! Those who read: the checker, all partitions from their beginning, and members of groups.

use std::time::Duration;

use ottla::{Batch, Commit, Consumer, Error, ErrorClass, ErrorKind, Options, TopicPartition};

use crate::ledger::word;
use crate::settings::{Chance, Tamper};
use crate::watch::{Check, Phase};
use crate::{Outcome, Run, now};

/// What a poll waits.
const POLL: Duration = Duration::from_millis(500);
/// What it may take beyond that, on a busy machine.
const SLACK: Duration = Duration::from_secs(15);
const CLOSE: Duration = Duration::from_secs(10);
const COMMIT: Duration = Duration::from_secs(30);
/// The record by which the run is tampered with.
const TAMPERED: u64 = 1_000;

/// Options of all who read here.
pub(crate) fn options(address: &str) -> Result<Options, Error> {
    Options::new()
        .set("bootstrap.servers", address)?
        .set("request.timeout.ms", "10000")?
        .set("auto.offset.reset", "earliest")?
        .set("fetch.buffer.memory", "8388608")
}

/// Reads every record, and holds it against the books.
pub(crate) fn check(run: &Run) -> Outcome {
    let consumer = Consumer::new(&options(&run.address)?.set("enable.auto.commit", "false")?)?;
    let _listed = run.gauges.consumer(&consumer);
    let lanes = run.ledger.lanes();
    let places: Vec<TopicPartition> = lanes.iter().map(|lane| lane.place.clone()).collect();
    consumer.assign(&places)?;
    let mut held = None;
    while run.watch.phase() < Phase::End {
        let Some(batch) = poll(run, &consumer) else { continue };
        let Some(lane) = run.ledger.find(batch.topic_partition()) else { continue };
        for record in batch.records() {
            look(run, lane, record.value.unwrap_or_default(), &mut held);
        }
    }
    close(run, &consumer);
    Ok(())
}

/// Holds one record against the books, unless the run is tampered with.
fn look(run: &Run, lane: usize, value: &[u8], held: &mut Option<Vec<u8>>) {
    let read = |value: &[u8]| {
        if let Err(wrong) = run.ledger.read(lane, value) {
            run.watch.fault(Check::Records, wrong);
        }
    };
    let chosen = lane == 0 && word(value, 0) == Some(TAMPERED);
    match run.settings.tamper {
        Some(Tamper::Drop) if chosen => {}
        Some(Tamper::Swap) if chosen => *held = Some(value.to_vec()),
        tamper => {
            read(value);
            if tamper == Some(Tamper::Dup) && chosen {
                read(value);
            }
            if lane == 0
                && let Some(late) = held.take()
            {
                read(&late);
            }
        }
    }
}

/// The next batch. What may pass is told by an error, and does.
fn poll(run: &Run, consumer: &Consumer) -> Option<Batch> {
    match run.watch.call("poll", POLL + SLACK, || consumer.poll_batch(POLL)) {
        Ok(batch) => batch,
        Err(error) if passes(&error) => None,
        Err(error) => {
            run.watch.fault(Check::Calls, format!("poll: {error:?}"));
            // A client that is at its end would else be asked without end.
            run.watch.rest(POLL, Phase::End);
            None
        }
    }
}

/// Whether an error is one that a broker's absence, or a group that shares out, may bring.
fn passes(error: &Error) -> bool {
    let shared_out = [ErrorKind::RebalanceInProgress, ErrorKind::CommitFenced];
    error.class() == ErrorClass::Retriable || shared_out.contains(&error.kind())
}

fn close(run: &Run, consumer: &Consumer) {
    let closed = run.watch.call("closing a consumer", CLOSE + SLACK, || consumer.close(CLOSE));
    if let Err(error) = closed
        && !passes(&error)
    {
        run.watch.fault(Check::Calls, format!("closing a consumer: {error:?}"));
    }
}

/// How a member of a group behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habit {
    pub(crate) group: &'static str,
    pub(crate) strategy: &'static str,
    pub(crate) topics: &'static [&'static str],
    /// Its `group.instance.id`; empty for none.
    pub(crate) instance: &'static str,
    pub(crate) commits: Commits,
    /// Works for a while on each batch.
    pub(crate) slow: bool,
    /// Pauses partitions, and resumes them.
    pub(crate) pauses: bool,
}

/// How a member commits: what it has worked on by itself, all of it once a second, or each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commits {
    Itself,
    AtOnce,
    Soon,
}

const COOPERATIVE: Habit = Habit {
    group: "cooperative",
    strategy: "cooperative-sticky",
    topics: &["awaited", "called", "pushed"],
    instance: "",
    commits: Commits::Itself,
    slow: false,
    pauses: false,
};
const EAGER: Habit = Habit {
    group: "eager",
    strategy: "range",
    topics: &["called", "large"],
    commits: Commits::AtOnce,
    ..COOPERATIVE
};
const SLOW: Habit = Habit {
    group: "slow",
    strategy: "roundrobin",
    topics: &["awaited", "large"],
    commits: Commits::Soon,
    slow: true,
    pauses: true,
    ..COOPERATIVE
};

/// All members.
pub(crate) const MEMBERS: [Habit; 8] = [
    COOPERATIVE,
    COOPERATIVE,
    Habit { pauses: true, ..COOPERATIVE },
    EAGER,
    EAGER,
    Habit { instance: "static", ..EAGER },
    SLOW,
    Habit { instance: "slow-static", ..SLOW },
];

/// A place in a group: members come and go, one after the other.
pub(crate) fn member(run: &Run, habit: Habit, number: u64) -> Outcome {
    let mut chance = run.settings.chance(100 + number);
    while run.watch.phase() < Phase::End {
        live(run, habit, &mut chance)?;
        run.watch.rest(chance.span(0, 4_000), Phase::End);
    }
    Ok(())
}

/// One member's life, which ends by a close, or badly.
fn live(run: &Run, habit: Habit, chance: &mut Chance) -> Outcome {
    let mut options = options(&run.address)?
        .set("group.id", habit.group)?
        .set("partition.assignment.strategy", habit.strategy)?
        .set("session.timeout.ms", "8000")?
        .set("heartbeat.interval.ms", "1000")?
        .set("auto.commit.interval.ms", "1000")?
        .set("max.poll.records", if habit.slow { "500" } else { "5000" })?;
    if habit.commits != Commits::Itself {
        options = options.set("enable.auto.commit", "false")?;
    }
    if !habit.instance.is_empty() {
        options = options.set("group.instance.id", habit.instance)?;
    }
    let consumer = Consumer::new(&options)?;
    let _listed = run.gauges.consumer(&consumer);
    consumer.subscribe(habit.topics)?;
    let until = now() + chance.span(15_000, 90_000);
    let (mut committed, mut paused, mut turned) = (now(), Vec::new(), now());
    while now() < until && run.watch.phase() < Phase::End {
        if let Some(batch) = poll(run, &consumer) {
            in_order(run, &batch);
            if habit.slow {
                run.watch.rest(Duration::from_millis(chance.below(40)), Phase::End);
            }
            if habit.commits == Commits::Soon {
                note_commit(run, consumer.commit_soon(Commit::Batch(&batch)));
            }
        }
        if habit.commits == Commits::AtOnce && committed.elapsed() > Duration::from_secs(1) {
            let all = || consumer.commit(Commit::Finished, COMMIT);
            note_commit(run, run.watch.call("commit", COMMIT + SLACK, all));
            committed = now();
        }
        if habit.pauses && turned.elapsed() > Duration::from_secs(5) {
            turn(run, &consumer, &mut paused, chance);
            turned = now();
        }
    }
    if chance.percent(60) {
        close(run, &consumer);
    }
    Ok(())
}

/// Pauses what is this member's, or resumes it.
fn turn(run: &Run, consumer: &Consumer, paused: &mut Vec<TopicPartition>, chance: &mut Chance) {
    if paused.is_empty() {
        *paused = consumer.assignment();
        paused.retain(|_| chance.percent(50));
        // One that went to another member meanwhile is refused, and the others with it.
        if consumer.pause(paused).is_err() {
            paused.clear();
        }
        return;
    }
    for place in paused.drain(..) {
        let resumed = consumer.resume(std::slice::from_ref(&place));
        if let Err(error) = resumed.as_ref().map_err(Error::kind)
            && error != ErrorKind::NotAssigned
        {
            run.watch.fault(Check::Calls, format!("resuming {place}: {resumed:?}"));
        }
    }
}

/// The records of a batch are one behind the other.
fn in_order(run: &Run, batch: &Batch) {
    let mut last = 0;
    for record in batch.records() {
        let number = record.value.and_then(|value| word(value, 0)).unwrap_or(0);
        if number <= last {
            let place = batch.topic_partition();
            let text = format!("{place}: a member of a group read {number} behind {last}");
            run.watch.fault(Check::Records, text);
        }
        last = number;
    }
}

fn note_commit(run: &Run, done: Result<(), Error>) {
    if let Err(error) = done
        && !passes(&error)
    {
        run.watch.fault(Check::Calls, format!("commit: {error:?}"));
    }
}
