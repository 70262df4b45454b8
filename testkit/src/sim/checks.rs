//! What must hold of a producer's records at the end of a run, whatever happened.

use std::collections::BTreeMap;

use ottla::{ErrorKind, Outcome};
use ottla_broker::sim::SimRecord;

use super::plan::topics;
use super::producers::Entry;
use super::world::World;

/// Which of the logs that had a partition's name, and the offset in it.
type At = (usize, i64);

/// Where a value stands.
type Places<'a> = BTreeMap<&'a [u8], Vec<At>>;

/// Holds the logs against what was sent.
pub(crate) fn check(world: &World, history: &[Entry]) -> Result<(), String> {
    for (topic, partitions) in topics() {
        for partition in 0..partitions {
            let logs = world.logs(topic, partition)?;
            let here: Vec<&Entry> = history
                .iter()
                .filter(|entry| (entry.topic, entry.partition) == (topic, partition))
                .collect();
            Partition { world, name: format!("{topic}-{partition}"), logs: &logs, here }.check();
        }
    }
    Ok(())
}

struct Partition<'a> {
    world: &'a World,
    name: String,
    /// One after the other: what a deleted topic had, and then another of its name.
    logs: &'a [Vec<SimRecord>],
    here: Vec<&'a Entry>,
}

impl Partition<'_> {
    fn check(&self) {
        let mut places = Places::new();
        for (number, log) in self.logs.iter().enumerate() {
            for (index, record) in log.iter().enumerate() {
                if i64::try_from(index) != Ok(record.offset) {
                    self.finding(format!("offset {} stands at place {index}", record.offset));
                }
                let value = record.value.as_deref().unwrap_or_default();
                places.entry(value).or_default().push((number, record.offset));
            }
        }
        for entry in &self.here {
            let found = places.remove(entry.value.as_slice()).unwrap_or_default();
            self.check_fate(entry, &found);
        }
        for (value, found) in places {
            self.finding(format!("{} at {found:?} was never sent", shown(value)));
        }
        for producer in 0..self.world.plan.producers.len() {
            self.check_order(producer);
            self.check_given_up(producer);
        }
    }

    /// What a send was told is true.
    fn check_fate(&self, entry: &Entry, found: &[At]) {
        let plan = self.world.plan.producers.get(entry.producer);
        let (Some(plan), value) = (plan, shown(&entry.value)) else { return };
        match entry.sent.result() {
            None => self.finding(format!("nobody is told what became of {value}")),
            Some(Ok(delivery)) => {
                self.world.sometimes("a record is stored");
                if found.iter().any(|(log, _)| log + 1 < self.logs.len()) {
                    self.world.sometimes("a record is stored, and its topic is deleted");
                }
                if plan.acks == 0 {
                    self.world.sometimes("a record is sent without acks");
                } else if found.is_empty() {
                    self.finding(format!("{value} was acknowledged and is gone"));
                } else if delivery.offset != -1
                    && !found.iter().any(|(_, offset)| *offset == delivery.offset)
                {
                    // It would be −1 of a duplicate of which the broker has forgotten where it is.
                    let told = delivery.offset;
                    self.finding(format!("{value} stands at {found:?}, told was {told}"));
                }
            }
            Some(Err(error)) => match error.outcome() {
                Some(Outcome::PossiblyPersisted) if found.is_empty() => {
                    self.world.sometimes("a record is lost, and may be");
                }
                Some(Outcome::PossiblyPersisted) => {
                    self.world.sometimes("a record is stored, and may be");
                }
                Some(outcome) => {
                    self.world.sometimes("a record is not stored");
                    if !found.is_empty() {
                        self.finding(format!(
                            "{value} stands at {found:?}, told was {}: {error}",
                            outcome.name()
                        ));
                    }
                }
                None => self.finding(format!("{value} failed with no outcome: {error}")),
            },
        }
        if plan.idempotent && found.len() > 1 {
            self.finding(format!("{value} of an idempotent producer stands at {found:?}"));
        } else if found.len() > 1 {
            self.world.sometimes("a record stands twice, without idempotence");
        }
    }

    /// Records stand in the order in which they were sent.
    fn check_order(&self, producer: usize) {
        let Some(plan) = self.world.plan.producers.get(producer) else { return };
        let careful = plan.in_flight == 1 && plan.acks != 0;
        if !plan.idempotent && !careful {
            return;
        }
        let mut first: BTreeMap<&[u8], At> = BTreeMap::new();
        for (number, log) in self.logs.iter().enumerate() {
            for record in log {
                let value = record.value.as_deref().unwrap_or_default();
                first.entry(value).or_insert((number, record.offset));
            }
        }
        let own = self.here.iter().filter(|entry| entry.producer == producer);
        let mut before: Option<(At, u64)> = None;
        for entry in own {
            let Some(&at) = first.get(entry.value.as_slice()) else { continue };
            // Without idempotence one that failed may come late.
            if !plan.idempotent && !matches!(entry.sent.result(), Some(Ok(_))) {
                continue;
            }
            if let Some((last, number)) = before
                && at < last
            {
                let (value, id) = (shown(&entry.value), self.producer_at(at));
                self.finding(format!(
                    "{value} at {at:?} {id:?} stands before number {number} at {last:?} {:?}",
                    self.producer_at(last)
                ));
            }
            before = Some((at, entry.number));
        }
    }

    /// A broker that keeps what it has keeps count too, so that a record is given up for a lost
    /// count only when one before it has failed, or the log is another one.
    fn check_given_up(&self, producer: usize) {
        if self.logs.len() > 1 {
            return;
        }
        let own = self.here.iter().filter(|entry| entry.producer == producer);
        for entry in own {
            match entry.sent.result() {
                Some(Err(error)) if error.kind() == ErrorKind::OutOfOrderSequence => {
                    let value = shown(&entry.value);
                    return self.finding(format!(
                        "{value} is given up, and none before it failed: {error}"
                    ));
                }
                Some(Err(_)) => {
                    self.world.sometimes("a record fails");
                    return;
                }
                _ => {}
            }
        }
    }

    fn producer_at(&self, (log, offset): At) -> Option<(i64, i16)> {
        self.logs
            .get(log)?
            .iter()
            .find(|record| record.offset == offset)
            .map(|record| record.producer)
    }

    fn finding(&self, what: String) {
        self.world.finding(format!("{}: {what}", self.name));
    }
}

/// A value without what fills it.
fn shown(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end_matches('.').to_owned()
}
