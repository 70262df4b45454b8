//! Tokens of records that were sent, and ways to wait for what became of them.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use crate::driver::{self, clock};
use crate::error::{Error, ErrorKind};
use crate::record::Delivery;
use crate::state::completion::{Completion, Completions, Stamp, Who};
use crate::state::parker::{Parker, Sleeper};

/// A record that was sent. Dropped, nobody waits for it; it is delivered all the same.
///
/// As a future it gives what became of the record, under any executor.
#[derive(Clone)]
pub struct Sent {
    batch: Arc<Completion>,
    stamp: Stamp,
    /// The task that is told, if one is.
    task: Option<Waker>,
}

impl Sent {
    #[inline]
    pub(crate) const fn of(batch: Arc<Completion>, stamp: Stamp) -> Self {
        Self { batch, stamp, task: None }
    }

    /// The number of its batch in this producer.
    pub fn batch_id(&self) -> u64 {
        self.batch.id()
    }

    /// Its index in the batch, and its time: what the batch is asked by when it comes out of a queue.
    pub const fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// What became of it, if that is known.
    pub fn result(&self) -> Option<Result<Delivery, Error>> {
        self.batch.result(self.stamp)
    }

    /// Waits for what became of it. `Timeout` if that is not known in time; it stays on its way.
    pub fn wait(&self, timeout: Duration) -> Result<Delivery, Error> {
        let waited = wait_all(&[(&self.batch, self.stamp.index)], timeout);
        self.result().unwrap_or_else(|| Err(waited.err().unwrap_or_else(|| not_yet(timeout))))
    }

    /// Puts its batch into the queue when its end is known; at once, if that is now. In a child of
    /// the process that sent it, nobody is there to do so.
    pub fn notify(&self, queue: &Arc<Completions>) {
        notify(&self.batch, self.stamp.index, queue);
    }
}

impl Future for Sent {
    type Output = Result<Delivery, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        ready!(poll_record(&this.batch, this.stamp.index, &mut this.task, cx));
        let result = this.result().or_else(|| dead(&this.batch));
        result.map_or(Poll::Pending, Poll::Ready)
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sent")
            .field("batch_id", &self.batch_id())
            .field("stamp", &self.stamp)
            .field("result", &self.result())
            .finish_non_exhaustive()
    }
}

/// Records that were sent by one call.
///
/// As a future it gives what became of each, in order.
#[derive(Debug, Default)]
pub struct SentMany {
    records: Vec<Place>,
    times: Times,
    batches: Vec<Arc<Completion>>,
    refused: Vec<Error>,
    /// Records whose result is known to the future.
    settled: usize,
    task: Option<Waker>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    In { batch: u32, index: u32 },
    Refused(u32),
}

/// The times of a call's records: an entry where a time differs from that of the record before. As a
/// rule they are all the same.
#[derive(Debug, Default)]
struct Times(Vec<(usize, i64)>);

impl Times {
    /// Notes the time of the record at `row`, which is further on than all before.
    fn push(&mut self, row: usize, time: i64) {
        if self.0.last().is_none_or(|&(_, last)| last != time) {
            self.0.push((row, time));
        }
    }

    /// The time of a record that was noted.
    fn at(&self, row: usize) -> i64 {
        let after = self.0.partition_point(|&(first, _)| first <= row);
        after.checked_sub(1).and_then(|run| self.0.get(run)).map_or(-1, |&(_, time)| time)
    }
}

/// Batches looked through for the one that a record went to: the open ones of a few partitions.
const RECENT: usize = 64;

impl SentMany {
    pub(crate) fn with_capacity(records: usize) -> Self {
        Self { records: Vec::with_capacity(records), ..Self::default() }
    }

    pub(crate) fn push(&mut self, batch: &Arc<Completion>, stamp: Stamp) {
        let mut recent = self.batches.iter().enumerate().rev().take(RECENT);
        let known = recent.find(|(_, known)| Arc::ptr_eq(known, batch)).map(|(at, _)| at);
        let at = known.unwrap_or(self.batches.len());
        if known.is_none() {
            self.batches.push(Arc::clone(batch));
        }
        let batch = u32::try_from(at).unwrap_or(u32::MAX);
        self.times.push(self.records.len(), stamp.timestamp);
        self.records.push(Place::In { batch, index: stamp.index });
    }

    pub(crate) fn push_refused(&mut self, error: Error) {
        let at = u32::try_from(self.refused.len()).unwrap_or(u32::MAX);
        self.refused.push(error);
        self.records.push(Place::Refused(at));
    }

    /// Adds a record that was not sent, for this reason.
    pub fn refuse(&mut self, error: Error) {
        self.push_refused(error);
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn place(&self, index: usize) -> Option<Result<(&Arc<Completion>, u32), Error>> {
        match *self.records.get(index)? {
            Place::In { batch, index } => {
                let batch = self.batches.get(usize::try_from(batch).ok()?)?;
                Some(Ok((batch, index)))
            }
            Place::Refused(at) => Some(Err(self.refused.get(usize::try_from(at).ok()?)?.clone())),
        }
    }

    /// The stamp of the record of a row, which has this index in its batch.
    fn stamp(&self, row: usize, index: u32) -> Stamp {
        Stamp { index, timestamp: self.times.at(row) }
    }

    /// The token of the record at `index`, or why it was not taken; `None` past the last.
    pub fn sent(&self, index: usize) -> Option<Result<Sent, Error>> {
        let place = self.place(index)?;
        Some(place.map(|(batch, at)| Sent::of(Arc::clone(batch), self.stamp(index, at))))
    }

    /// What became of the record at `index`; `None` if that is not known, or past the last.
    pub fn result(&self, index: usize) -> Option<Result<Delivery, Error>> {
        match self.place(index)? {
            Ok((batch, at)) => batch.result(self.stamp(index, at)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Waits for what became of each record. Those not known in time get `Timeout`, and stay on
    /// their way.
    pub fn wait(&self, timeout: Duration) -> Vec<Result<Delivery, Error>> {
        let places: Vec<_> = (0..self.len()).filter_map(|index| self.place(index)?.ok()).collect();
        let unknown = wait_all(&places, timeout).err().unwrap_or_else(|| not_yet(timeout));
        let each = |index| self.result(index).unwrap_or_else(|| Err(unknown.clone()));
        (0..self.len()).map(each).collect()
    }

    /// Puts each batch with a record of these into the queue when its end is known.
    pub fn notify(&self, queue: &Arc<Completions>) {
        for place in &self.records {
            if let Place::In { batch, index } = *place
                && let Some(batch) = usize::try_from(batch).ok().and_then(|at| self.batches.get(at))
            {
                notify(batch, index, queue);
            }
        }
    }
}

impl Future for SentMany {
    type Output = Vec<Result<Delivery, Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        while this.settled < this.records.len() {
            let mut task = this.task.take();
            let state = match this.place(this.settled) {
                Some(Ok((batch, index))) => poll_record(batch, index, &mut task, cx),
                Some(Err(_)) | None => Poll::Ready(()),
            };
            this.task = task;
            ready!(state);
            this.task = None;
            this.settled += 1;
        }
        let results = (0..this.len())
            .filter_map(|index| this.result(index).or_else(|| dead(this.place(index)?.ok()?.0)));
        Poll::Ready(results.collect())
    }
}

/// Instead of a result that will not come here: the process is not the one that sent the record.
fn dead(batch: &Completion) -> Option<Result<Delivery, Error>> {
    batch.process().check().err().map(Err)
}

fn not_yet(timeout: Duration) -> Error {
    let text = format!("the record was not delivered within {} ms", timeout.as_millis());
    Error::new(ErrorKind::Timeout, text).with_hint("it stays on its way")
}

/// Ready when a record's result is known, or never will be here; else the task is told when it is.
fn poll_record(
    batch: &Completion,
    index: u32,
    task: &mut Option<Waker>,
    cx: &Context<'_>,
) -> Poll<()> {
    if batch.is_known(index) || !batch.process().is_current() {
        return Poll::Ready(());
    }
    // One registration is enough while the task stays the same.
    if !task.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
        let who = Who::Sleeper(Sleeper::Task(cx.waker().clone()));
        *task = Some(cx.waker().clone());
        if !batch.register(index, who) {
            return Poll::Ready(());
        }
    }
    Poll::Pending
}

/// Waits for all records' results, as far as they come in time; an error if it must not wait.
fn wait_all(records: &[(&Arc<Completion>, u32)], timeout: Duration) -> Result<(), Error> {
    let mut deadline = None;
    let parker = Parker::current();
    for (batch, index) in records {
        while !batch.is_known(*index) {
            batch.process().check()?;
            driver::check_may_wait()?;
            let who = Who::Sleeper(Sleeper::Thread(Arc::clone(&parker)));
            if !batch.register(*index, who) {
                continue;
            }
            let now = clock::now();
            let deadline = *deadline.get_or_insert_with(|| clock::after(timeout));
            if deadline <= now {
                return Ok(());
            }
            parker.park(deadline - now);
        }
    }
    Ok(())
}

fn notify(batch: &Arc<Completion>, index: u32, queue: &Arc<Completions>) {
    if !batch.process().is_current() {
        return;
    }
    let who = Who::Queue(Arc::clone(queue), Arc::clone(batch));
    if !batch.register(index, who) {
        queue.push(Arc::clone(batch), batch.share(index));
    }
}
