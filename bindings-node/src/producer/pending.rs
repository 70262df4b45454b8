//! Records whose outcome JavaScript waits for: by batch, told when their batch is.

use std::collections::HashMap;

use napi::bindgen_prelude::{Array, BigInt64Array, Env, Int32Array, Object};
use ottla::{Completed, Delivery, Error, Sent, Stamp};

use crate::boundary::Fault;
use crate::error;

/// Who waits for a record.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whose {
    /// A promise of its own: the next of its slot, in JavaScript's list too.
    One,
    /// A row of a report.
    Row { report: u32, row: u32 },
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    slots: Vec<Slot>,
    free: Vec<usize>,
    by_batch: HashMap<u64, usize>,
    reports: HashMap<u32, Report>,
    last_report: u32,
    /// Reports that are complete, and not told yet.
    complete: Vec<u32>,
}

/// The records of one batch.
#[derive(Debug, Default)]
struct Slot {
    open: Vec<Open>,
    /// Promises that were given a place here.
    promises: i32,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    stamp: Stamp,
    whose: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Promise(i32),
    Row { report: u32, row: u32 },
}

#[derive(Debug, Default)]
struct Report {
    left: u32,
    partitions: Vec<i32>,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    errors: Vec<(u32, Error)>,
}

/// What is told of records with promises: for each its slot, place and partition.
#[derive(Default)]
struct News {
    places: Vec<i32>,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    errors: Vec<(u32, Error)>,
    done: Vec<i32>,
}

const UNKNOWN: Landing = Landing { partition: -1, offset: -1, timestamp: -1 };

/// A delivery without its topic, which JavaScript keeps with the slot.
#[derive(Clone, Copy)]
struct Landing {
    partition: i32,
    offset: i64,
    timestamp: i64,
}

impl From<&Delivery> for Landing {
    fn from(at: &Delivery) -> Self {
        Self { partition: at.partition, offset: at.offset, timestamp: at.timestamp }
    }
}

impl Pending {
    /// Keeps a record; gives the number of its batch's slot.
    pub(super) fn keep(&mut self, sent: &Sent, whose: Whose) -> i32 {
        let number = match self.by_batch.get(&sent.batch_id()) {
            Some(&number) => number,
            None => self.open_slot(sent.batch_id()),
        };
        let Some(slot) = self.slots.get_mut(number) else { return -1 };
        let whose = match whose {
            Whose::One => {
                slot.promises += 1;
                Place::Promise(slot.promises - 1)
            }
            Whose::Row { report, row } => Place::Row { report, row },
        };
        slot.open.push(Open { stamp: sent.stamp(), whose });
        int(number)
    }

    fn open_slot(&mut self, batch: u64) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        if let Some(slot) = self.slots.get_mut(number) {
            slot.promises = 0;
        }
        self.by_batch.insert(batch, number);
        number
    }

    /// Begins a report on so many records.
    pub(super) fn open_report(&mut self, rows: u32) -> u32 {
        self.last_report = self.last_report.wrapping_add(1);
        let len = usize::try_from(rows).unwrap_or(0);
        let report = Report {
            left: rows,
            partitions: vec![-1; len],
            offsets: vec![-1; len],
            timestamps: vec![-1; len],
            errors: Vec::new(),
        };
        self.reports.insert(self.last_report, report);
        self.last_report
    }

    /// A row of a report is told of elsewhere.
    pub(super) fn skip(&mut self, report: u32) {
        self.count_row(report);
    }

    /// Nobody waits for a report any more.
    pub(super) fn drop_report(&mut self, report: u32) {
        self.reports.remove(&report);
    }

    /// A record of a report was not taken.
    pub(super) fn refuse(&mut self, report: u32, row: u32, error: Error) {
        self.settle_row(report, row, Err(error));
    }

    fn settle_row(&mut self, number: u32, row: u32, result: Result<Delivery, Error>) {
        let Some(report) = self.reports.get_mut(&number) else { return };
        match result {
            Ok(at) => report.place(row, &at),
            Err(error) => report.errors.push((row, error)),
        }
        self.count_row(number);
    }

    fn count_row(&mut self, number: u32) {
        let Some(report) = self.reports.get_mut(&number) else { return };
        report.left = report.left.saturating_sub(1);
        if report.left == 0 {
            self.complete.push(number);
        }
    }

    /// Settles what these batches tell of, and adds it to the news.
    pub(super) fn settle(
        &mut self,
        env: &Env,
        completed: &[Completed],
        news: &mut Object<'_>,
    ) -> Result<(), Fault> {
        let mut told = News::default();
        for batch in completed {
            // A batch whose records parted comes more than once, also when all are told.
            if let Some(&number) = self.by_batch.get(&batch.batch_id()) {
                self.settle_batch(number, batch, &mut told);
            }
        }
        if !told.done.is_empty() || !told.places.is_empty() {
            told.add_to(env, news)?;
        }
        if !self.complete.is_empty() {
            let mut reports = env.create_array(0)?;
            for number in std::mem::take(&mut self.complete) {
                if let Some(report) = self.reports.remove(&number) {
                    reports.insert(report.into_object(env, number)?)?;
                }
            }
            news.set("reports", reports)?;
        }
        Ok(())
    }

    fn settle_batch(&mut self, number: usize, batch: &Completed, told: &mut News) {
        let Some(slot) = self.slots.get_mut(number) else { return };
        let mut open = std::mem::take(&mut slot.open);
        open.retain(|record| {
            let Some(result) = batch.result(record.stamp) else { return true };
            match record.whose {
                Place::Promise(place) => told.push([int(number), place], result),
                Place::Row { report, row } => self.settle_row(report, row, result),
            }
            false
        });
        if open.is_empty() {
            self.by_batch.remove(&batch.batch_id());
            self.free.push(number);
            told.done.push(int(number));
        }
        // Its memory is used again by the slot's next batch.
        if let Some(slot) = self.slots.get_mut(number) {
            slot.open = open;
        }
    }
}

impl News {
    fn push(&mut self, [slot, place]: [i32; 2], result: Result<Delivery, Error>) {
        let at = match result {
            Ok(at) => Landing::from(&at),
            Err(error) => {
                self.errors.push((u32::try_from(self.offsets.len()).unwrap_or(u32::MAX), error));
                UNKNOWN
            }
        };
        self.places.extend([slot, place, at.partition]);
        self.offsets.push(at.offset);
        self.timestamps.push(at.timestamp);
    }

    fn add_to(self, env: &Env, news: &mut Object<'_>) -> Result<(), Fault> {
        news.set("places", Int32Array::new(self.places))?;
        news.set("offsets", BigInt64Array::new(self.offsets))?;
        news.set("timestamps", BigInt64Array::new(self.timestamps))?;
        news.set("done", Int32Array::new(self.done))?;
        if !self.errors.is_empty() {
            news.set("errors", errors(env, &self.errors)?)?;
        }
        Ok(())
    }
}

impl Report {
    fn place(&mut self, row: u32, at: &Delivery) {
        let Ok(row) = usize::try_from(row) else { return };
        if let Some(partition) = self.partitions.get_mut(row) {
            *partition = at.partition;
        }
        if let Some(offset) = self.offsets.get_mut(row) {
            *offset = at.offset;
        }
        if let Some(timestamp) = self.timestamps.get_mut(row) {
            *timestamp = at.timestamp;
        }
    }

    fn into_object(self, env: &Env, number: u32) -> Result<Object<'_>, Fault> {
        let mut object = Object::new(env)?;
        object.set("number", number)?;
        object.set("partitions", Int32Array::new(self.partitions))?;
        object.set("offsets", BigInt64Array::new(self.offsets))?;
        object.set("timestamps", BigInt64Array::new(self.timestamps))?;
        object.set("errors", errors(env, &self.errors)?)?;
        Ok(object)
    }
}

/// Errors with whose they are, in turn.
fn errors<'env>(env: &'env Env, errors: &[(u32, Error)]) -> Result<Array<'env>, Fault> {
    let mut array = env.create_array(0)?;
    for (whose, error) in errors {
        array.insert(*whose)?;
        array.insert(error::facts(env, error)?)?;
    }
    Ok(array)
}

/// Slots are far fewer than this: each is a batch under way.
fn int(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
