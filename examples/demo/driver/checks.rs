//! What must hold at the end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::deal::LANGUAGES;
use crate::flights::Flights;
use crate::ledger::{Change, Outcome, Reading};
use crate::program::Verb;

/// How many of the busiest aircraft are compared.
const BUSIEST: usize = 10;

/// A check and what it found: nothing, or what is wrong.
pub(crate) type Check = (&'static str, Result<String, String>);

/// All checks, in the order in which they are shown.
pub(crate) fn all(outcome: &Outcome, flights: &Flights) -> Vec<Check> {
    vec![
        ("every record exactly once", once(outcome, flights)),
        ("each aircraft in order", in_order(outcome, flights)),
        ("ten busiest aircraft", busiest(outcome, flights)),
        ("every language read a tenth", shared(outcome, flights)),
        ("a member changed under load", changed(outcome, flights)),
    ]
}

/// Shows the checks; true if all hold.
pub(crate) fn print(checks: &[Check]) -> bool {
    for (name, found) in checks {
        match found {
            Ok(what) => println!("ok     {name}: {what}"),
            Err(why) => println!("FAILED {name}: {why}"),
        }
    }
    checks.iter().all(|(_, found)| found.is_ok())
}

fn readings(outcome: &Outcome) -> impl Iterator<Item = &Reading> {
    outcome.with(Verb::Consume).flat_map(|account| &account.readings)
}

fn once(outcome: &Outcome, flights: &Flights) -> Result<String, String> {
    let mut times = vec![0_u32; flights.all.len()];
    for reading in readings(outcome) {
        if let Some(times) = times.get_mut(reading.line) {
            *times += 1;
        }
    }
    if let Some(why) = &outcome.stalled {
        return Err(why.clone());
    }
    if let Some(wrong) = outcome.accounts.iter().flat_map(|account| &account.wrong).next() {
        return Err(wrong.clone());
    }
    let lost = times.iter().filter(|&&times| times == 0).count();
    let doubled = times.iter().filter(|&&times| times > 1).count();
    if lost + doubled > 0 {
        let first = times.iter().position(|&times| times != 1).unwrap_or_default();
        return Err(format!("{lost} lost, {doubled} read twice; the first is line {first}"));
    }
    Ok(format!("{} records", times.len()))
}

fn in_order(outcome: &Outcome, flights: &Flights) -> Result<String, String> {
    // As each member read them: what it was given of a partition rises.
    for account in outcome.with(Verb::Consume) {
        let mut last = HashMap::new();
        for reading in &account.readings {
            if let Some(before) = last.insert(reading.partition, reading.offset)
                && before >= reading.offset
            {
                let place = format!("partition {} offset {}", reading.partition, reading.offset);
                return Err(format!("process {} read {place} after {before}", account.pid));
            }
        }
    }
    // As they lie in the log.
    let mut log: Vec<&Reading> = readings(outcome).collect();
    log.sort_by_key(|reading| (reading.partition, reading.offset));
    let mut last: HashMap<&str, &Reading> = HashMap::new();
    for reading in log {
        let flight = flights.all.get(reading.line);
        let Some(aircraft) = flight.and_then(|flight| flight.aircraft.as_deref()) else {
            continue;
        };
        let Some(before) = last.insert(aircraft, reading) else { continue };
        if before.partition != reading.partition {
            let (one, other) = (before.partition, reading.partition);
            return Err(format!("{aircraft} is in partitions {one} and {other}"));
        }
        if before.line > reading.line {
            let (line, next) = (before.line, reading.line);
            return Err(format!("{aircraft}: line {line} lies before line {next}"));
        }
    }
    Ok(format!("{} aircraft", last.len()))
}

fn busiest(outcome: &Outcome, flights: &Flights) -> Result<String, String> {
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for (aircraft, count) in outcome.with(Verb::Consume).flat_map(|account| &account.counts) {
        *counted.entry(aircraft).or_default() += count;
    }
    let (counted, expected) = (top(counted), top(flights.by_aircraft()));
    let differs = |(ours, theirs): (&(&str, usize), &(&str, usize))| {
        (ours != theirs).then(|| {
            format!("counted {} {}, the file has {} {}", ours.0, ours.1, theirs.0, theirs.1)
        })
    };
    if let Some(why) = counted.iter().zip(&expected).find_map(differs) {
        return Err(why);
    }
    if counted.len() != expected.len() {
        return Err(format!("{} aircraft counted, not {}", counted.len(), expected.len()));
    }
    let shown: Vec<String> =
        counted.iter().map(|(aircraft, count)| format!("{aircraft} {count}")).collect();
    Ok(shown.join(", "))
}

fn top(counts: BTreeMap<&str, usize>) -> Vec<(&str, usize)> {
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|&(aircraft, count)| (Reverse(count), aircraft));
    counts.truncate(BUSIEST);
    counts
}

fn shared(outcome: &Outcome, flights: &Flights) -> Result<String, String> {
    let mut read = [0; LANGUAGES.len()];
    for account in outcome.with(Verb::Consume) {
        read[account.language] += account.records;
    }
    let shown: Vec<String> =
        LANGUAGES.iter().zip(read).map(|(name, read)| format!("{name} {read}")).collect();
    let shown = shown.join(", ");
    let least = read.into_iter().min().unwrap_or_default();
    if least * 10 < flights.all.len() { Err(shown) } else { Ok(shown) }
}

fn changed(outcome: &Outcome, flights: &Flights) -> Result<String, String> {
    let Change { left: Some(left), joined: Some(joined) } = outcome.change else {
        return Err("no member left and came back".to_owned());
    };
    let hundredths = |unread: usize| unread * 100 / flights.all.len().max(1);
    let (left, joined) = (hundredths(left), hundredths(joined));
    let shown = format!("left with {left} % unread, its successor joined with {joined} %");
    let within = |unread: usize| (25..=75).contains(&unread);
    if within(left) && within(joined) { Ok(shown) } else { Err(shown) }
}
