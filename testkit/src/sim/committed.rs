//! What must hold of a group at the end of a run: the offsets that its coordinator has kept, and the
//! records that its members were given.

use std::collections::{BTreeMap, BTreeSet};

use ottla_broker::sim::SimRecord;
use ottla_protocol::messages::{OffsetCommitKey, OffsetCommitValue};
use ottla_protocol::{KeyedMessage, Message, Reader};

use super::groups::{Book, Group};
use super::plan::{FLEETING, topics};
use super::tap::{Place, place};
use super::world::{OFFSETS_PARTITIONS, World};

/// Holds the group's offsets and records against the logs.
pub(crate) fn check(world: &World, group: &Group) -> Result<(), String> {
    let commits = commits(world, &group.plan.name)?;
    let book = group.book.borrow();
    for (topic, partitions) in topics() {
        for partition in 0..partitions {
            let place = (topic, partition);
            let log = world.with_broker(|broker| broker.records(topic, partition))?;
            let name = format!("{topic}-{partition} of {}", group.plan.name);
            if topic == FLEETING.0 {
                check_fleeting(world, &book, place, &name)?;
            } else {
                check_delivered(world, &book, place, &log, &name);
            }
            let kept = commits.get(&place).map(Vec::as_slice).unwrap_or_default();
            check_commits(world, group, place, kept, log.len());
        }
    }
    Ok(())
}

/// All records were given to a member, as they stand in the log.
fn check_delivered(world: &World, book: &Book, place: Place, log: &[SimRecord], name: &str) {
    let delivered = book.delivered.get(&place);
    for record in log {
        let given = delivered.and_then(|values| values.get(&record.offset));
        if given.map(Vec::as_slice) != record.value.as_deref() {
            let what = if given.is_some() { "as another" } else { "never" };
            world.finding(format!("{name}: {} was delivered {what}", record.offset));
        }
    }
    if delivered.is_some_and(|values| values.len() > log.len()) {
        world.finding(format!("{name}: more was delivered than is stored"));
    }
}

/// Of a topic made anew all records of the last were given to a member, and none that never stood
/// where it was said to.
fn check_fleeting(world: &World, book: &Book, place: Place, name: &str) -> Result<(), String> {
    let logs = world.logs(place.0, place.1)?;
    for record in logs.last().into_iter().flatten() {
        if !book.is_given(place, record) {
            world.finding(format!("{name}: {} was never delivered", record.offset));
        }
    }
    let known: BTreeSet<(i64, &[u8])> = logs
        .iter()
        .flatten()
        .map(|record| (record.offset, record.value.as_deref().unwrap_or_default()))
        .collect();
    for (_, offset, value) in book.fleeting.iter().filter(|(given, ..)| *given == place) {
        if !known.contains(&(*offset, value.as_slice())) {
            world.finding(format!("{name}: {offset} was delivered, and stood nowhere"));
        }
    }
    Ok(())
}

/// Commits never go back unasked, those that were promised are there, and the last is the end.
fn check_commits(world: &World, group: &Group, place: Place, kept: &[i64], end: usize) {
    let book = group.book.borrow();
    let name = format!("{place:?} of {}", group.plan.name);
    let mut asked = book.gone_back.get(&place).cloned().unwrap_or_default();
    let late = |offset: &i64| book.late.get(&place).is_some_and(|late| late.contains(offset));
    let mut before = 0;
    for &offset in kept {
        // Whoever comes next begins at what a late request has left, and commits from there on.
        if offset < before && !late(&offset) {
            // One step back for each that was asked for.
            match asked.iter().position(|&to| to <= offset) {
                Some(at) => {
                    asked.remove(at);
                    world.sometimes("a commit goes back as asked");
                }
                None => world.finding(format!("{name}: committed is {offset} after {before}")),
            }
        }
        before = offset;
    }
    for &offset in book.promised.get(&place).into_iter().flatten() {
        if !kept.iter().any(|&kept| kept >= offset) {
            world.finding(format!("{name}: {offset} was to be committed, and is not"));
        }
    }
    if end > 0 && kept.last().copied() != i64::try_from(end).ok() {
        world.finding(format!("{name}: {:?} is committed in the end, of {end}", kept.last()));
    }
}

/// All commits of a group, in the order of the coordinator's log; those of a deleted topic are gone.
pub(crate) fn commits(world: &World, group: &str) -> Result<BTreeMap<Place, Vec<i64>>, String> {
    let mut commits = BTreeMap::<Place, Vec<i64>>::new();
    for partition in 0..OFFSETS_PARTITIONS {
        let topic = "__consumer_offsets";
        let records = world.with_broker(|broker| broker.records(topic, partition))?;
        for record in &records {
            let Some(key) = record.key.as_deref() else { continue };
            let mut key = Reader::new(key);
            if key.i16() != Ok(OffsetCommitKey::RECORD_KEY) {
                continue;
            }
            let fault = |error: ottla_protocol::DecodeError| format!("a commit: {error}");
            let key = OffsetCommitKey::decode(&mut key, 0).map_err(fault)?;
            let place = place(key.topic, key.partition).filter(|_| key.group == group);
            let Some(place) = place else { continue };
            let Some(value) = record.value.as_deref() else {
                commits.remove(&place);
                world.sometimes("what is committed goes with its topic");
                continue;
            };
            let mut value = Reader::new(value);
            let version = value.i16().map_err(fault)?;
            let value = OffsetCommitValue::decode(&mut value, version).map_err(fault)?;
            commits.entry(place).or_default().push(value.offset);
        }
    }
    Ok(commits)
}
