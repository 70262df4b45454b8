//! What the programs said: what was sent, what was read, by whom.

use std::collections::BTreeMap;

use crate::Failure;
use crate::flights::Flights;
use crate::program::Verb;

/// A record as a member read it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// The number of the flight's line in the file.
    pub(crate) line: usize,
    /// Where the record lies.
    pub(crate) partition: u32,
    /// Where in the partition.
    pub(crate) offset: u64,
}

/// What one program has done so far.
#[derive(Debug)]
pub(crate) struct Account {
    /// Its language, as an index.
    pub(crate) language: usize,
    /// What it does.
    pub(crate) verb: Verb,
    /// Its process id.
    pub(crate) pid: u32,
    /// Records sent or read.
    pub(crate) records: usize,
    /// Bytes of their keys and values.
    pub(crate) bytes: u64,
    /// Time from the first record to the last, in milliseconds; known at the end.
    pub(crate) millis: u64,
    /// Partitions it owns.
    pub(crate) assigned: usize,
    /// What it read, in the order of its reading.
    pub(crate) readings: Vec<Reading>,
    /// Records of each aircraft as it counted them.
    pub(crate) counts: BTreeMap<String, usize>,
    /// Records that are not what the file has, in words.
    pub(crate) wrong: Vec<String>,
    /// Whether it has said its last line.
    pub(crate) finished: bool,
}

impl Account {
    /// A program that has done nothing yet.
    pub(crate) fn new(language: usize, verb: Verb, pid: u32) -> Self {
        Self {
            language,
            verb,
            pid,
            records: 0,
            bytes: 0,
            millis: 0,
            assigned: 0,
            readings: Vec::new(),
            counts: BTreeMap::new(),
            wrong: Vec::new(),
            finished: false,
        }
    }

    /// Takes in one line of its output.
    pub(crate) fn handle_line(&mut self, line: &str, flights: &Flights) -> Result<(), Failure> {
        let fields: Vec<&str> = line.split('\t').collect();
        match (self.verb, fields.as_slice()) {
            (Verb::Produce, ["sent", records, bytes]) => {
                (self.records, self.bytes) = (records.parse()?, bytes.parse()?);
            }
            (Verb::Produce, ["done", records, bytes, millis]) => {
                self.finish(records, bytes, millis)?;
            }
            (Verb::Consume, ["left", records, bytes, millis]) => {
                let seen = self.records;
                self.finish(records, bytes, millis)?;
                if self.records != seen {
                    let claim = format!("read {} records and showed {seen}", self.records);
                    self.wrong.push(format!("process {} says that it {claim}", self.pid));
                }
            }
            (Verb::Consume, ["assigned", partitions]) => self.assigned = partitions.parse()?,
            (Verb::Consume, ["count", key, records]) => {
                self.counts.insert((*key).to_owned(), records.parse()?);
            }
            (Verb::Consume, ["record", partition, offset, line, key, value]) => {
                let line = line.parse()?;
                let reading =
                    Reading { line, partition: partition.parse()?, offset: offset.parse()? };
                self.take(reading, key, value, flights);
            }
            _ => return Err(format!("process {} said: {line}", self.pid).into()),
        }
        Ok(())
    }

    fn finish(&mut self, records: &str, bytes: &str, millis: &str) -> Result<(), Failure> {
        (self.records, self.bytes) = (records.parse()?, bytes.parse()?);
        self.millis = millis.parse()?;
        self.finished = true;
        Ok(())
    }

    fn take(&mut self, reading: Reading, key: &str, value: &str, flights: &Flights) {
        self.records += 1;
        let lengths = u64::try_from(key.len() + value.len());
        self.bytes += lengths.unwrap_or_default();
        let same = flights.all.get(reading.line).is_some_and(|flight| {
            flight.line == value && flight.aircraft.as_deref().unwrap_or_default() == key
        });
        if !same {
            self.wrong.push(format!("{reading:?} has key {key:?} and value {value:?}"));
        }
        self.readings.push(reading);
    }
}

/// Flights not read yet when the change of member began and when it was done.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Change {
    /// When the member was asked to leave.
    pub(crate) left: Option<usize>,
    /// When its successor had joined.
    pub(crate) joined: Option<usize>,
}

/// All that was said, at the end.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The programs in the order of their starts.
    pub(crate) accounts: Vec<Account>,
    /// The change of member.
    pub(crate) change: Change,
    /// Time from the first flight sent to the last read, in milliseconds.
    pub(crate) millis: u64,
    /// Why the stream was given up, if it was.
    pub(crate) stalled: Option<String>,
}

impl Outcome {
    /// The programs with a verb.
    pub(crate) fn with(&self, verb: Verb) -> impl Iterator<Item = &Account> {
        self.accounts.iter().filter(move |account| account.verb == verb)
    }

    /// Records sent or read by all.
    pub(crate) fn records(&self, verb: Verb) -> usize {
        self.with(verb).map(|account| account.records).sum()
    }
}
