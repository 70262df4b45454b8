//! The application's side of the face: taking records.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::shed::RoomFor;
use super::{Begin, Command, Current, Face, Handed, Inner, Item, Rebalance};
use crate::consumer::batch::{Batch, ConsumerRecord, Shared};
use crate::driver::{self, clock};
use crate::error::{Error, ErrorKind};
use crate::state::fetcher::Fetched;
use crate::state::parker::{Parker, Sleeper};

/// In which form records are taken.
pub(in crate::consumer) trait Want {
    type Taken;

    /// How many records to take of so many.
    fn count(&self, left: usize) -> usize;

    fn make(shared: Arc<Shared>, from: usize, to: usize) -> Self::Taken;
}

/// One record.
pub(in crate::consumer) struct OneRecord;

impl Want for OneRecord {
    type Taken = ConsumerRecord;

    fn count(&self, left: usize) -> usize {
        left.min(1)
    }

    fn make(shared: Arc<Shared>, from: usize, _: usize) -> ConsumerRecord {
        ConsumerRecord { shared, index: from }
    }
}

/// All records of a fetch, or at most so many.
pub(in crate::consumer) struct WholeBatch {
    pub(in crate::consumer) records_max: usize,
}

impl Want for WholeBatch {
    type Taken = Batch;

    fn count(&self, left: usize) -> usize {
        left.min(self.records_max)
    }

    fn make(shared: Arc<Shared>, from: usize, to: usize) -> Batch {
        Batch::new(shared, from, to)
    }
}

/// What a look at the ready records comes to.
enum Step {
    /// There is a current batch with something left.
    Current,
    /// These bytes must be made records first, outside the lock.
    Decode(Fetched, u64),
    /// The machine must make room first.
    Crowded,
    Nothing,
}

/// How a look ends.
pub(in crate::consumer) enum Look<T> {
    Found(T),
    /// Nothing is ready; whoever asked to be woken will be.
    Nothing,
    /// Another thread wants the call to return.
    Woken,
    /// To be told first, outside the lock; then look again.
    Rebalance(Rebalance),
}

impl Face {
    /// Takes what is ready, or leaves a sleeper to be woken, under the number of its wait.
    pub(in crate::consumer) fn look<W: Want>(
        &self,
        want: &W,
        mut sleeper: Option<(u64, Sleeper)>,
    ) -> Result<Look<W::Taken>, Error> {
        let mut inner = self.lock();
        if inner.begin_call() {
            self.wake.wake();
        }
        loop {
            // Of a close, whoever closes is told.
            let closed = inner.ended.as_ref().is_some_and(|end| end.kind() == ErrorKind::Closed);
            if !closed && let Some(rebalance) = inner.start_telling() {
                return Ok(Look::Rebalance(rebalance));
            }
            if let Some(error) = &inner.ended {
                return Err(error.clone());
            }
            if std::mem::take(&mut inner.woken) {
                return Ok(Look::Woken);
            }
            match inner.step()? {
                Step::Current => {
                    if let Some(taken) = inner.give(want) {
                        return Ok(Look::Found(taken));
                    }
                }
                Step::Decode(fetched, lease) => {
                    let bytes_max = inner.decode_limit();
                    drop(inner);
                    let decoded = Shared::decode(&fetched, lease, bytes_max);
                    inner = self.lock();
                    let bytes = decoded.as_ref().map_or(0, |(shared, _)| shared.memory_bytes());
                    if inner.is_at(&fetched, lease) {
                        match inner.room_for(bytes) {
                            RoomFor::Has => {}
                            RoomFor::OthersFirst => {
                                inner.put_back_fetched(fetched);
                                inner.bring_begun_forward();
                                continue;
                            }
                            RoomFor::Later => {
                                inner.put_back_fetched(fetched);
                                self.await_room(inner, sleeper);
                                return Ok(Look::Nothing);
                            }
                        }
                    }
                    let kept = decoded
                        .as_ref()
                        .map_or(0, |(_, rest)| rest.as_ref().map_or(0, |rest| rest.bytes));
                    if inner.needs_refill(&fetched, fetched.bytes.saturating_sub(kept)) {
                        self.wake.wake();
                    }
                    if let Err((error, seek)) = inner.install(&fetched, lease, decoded) {
                        inner.commands.push(seek);
                        drop(inner);
                        self.wake.wake();
                        return Err(error);
                    }
                }
                Step::Crowded => {
                    self.await_room(inner, sleeper);
                    return Ok(Look::Nothing);
                }
                Step::Nothing => {
                    inner.signalled = false;
                    inner.sleepers.extend(sleeper.take());
                    return Ok(Look::Nothing);
                }
            }
        }
    }

    /// Leaves a sleeper to be woken when the machine has made room.
    fn await_room(&self, mut inner: MutexGuard<'_, Inner>, sleeper: Option<(u64, Sleeper)>) {
        inner.signalled = false;
        inner.sleepers.extend(sleeper);
        drop(inner);
        self.wake.wake();
    }

    /// Takes of the current batch, if there is one.
    pub(in crate::consumer) fn take_begun<W: Want>(
        &self,
        want: &W,
    ) -> Result<Option<W::Taken>, Error> {
        let mut inner = self.lock();
        if let Some(error) = &inner.ended {
            return Err(error.clone());
        }
        if inner.current.is_none() || inner.woken || inner.rebalances.is_ready() {
            return Ok(None);
        }
        if inner.begin_call() {
            self.wake.wake();
        }
        Ok(inner.give(want))
    }

    /// A number for somebody who waits.
    pub(in crate::consumer) fn wait_id(&self) -> u64 {
        let mut inner = self.lock();
        inner.waits += 1;
        inner.waits
    }

    /// Whoever waited under this number does no longer.
    pub(in crate::consumer) fn forget_wait(&self, wait: u64) {
        self.lock().sleepers.retain(|(other, _)| *other != wait);
    }

    /// Takes what is ready, waiting for it if need be, and tells of partitions meanwhile. Nothing
    /// when the time is over.
    pub(in crate::consumer) fn take<W: Want>(
        &self,
        want: &W,
        timeout: Duration,
        tell: impl Fn(&Rebalance),
    ) -> Result<Option<W::Taken>, Error> {
        match self.look(want, None)? {
            Look::Found(taken) => return Ok(Some(taken)),
            Look::Woken => return Ok(None),
            Look::Nothing => {}
            Look::Rebalance(rebalance) => tell(&rebalance),
        }
        driver::check_may_wait()?;
        let deadline = clock::after(timeout);
        let parker = Parker::current();
        let wait = self.wait_id();
        loop {
            let sleeper = Sleeper::Thread(Arc::clone(&parker));
            match self.look(want, Some((wait, sleeper)))? {
                Look::Found(taken) => return Ok(Some(taken)),
                Look::Woken => return Ok(None),
                Look::Nothing => {}
                Look::Rebalance(rebalance) => {
                    tell(&rebalance);
                    continue;
                }
            }
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() {
                self.forget_wait(wait);
                return self.lock().obstacle.clone().map_or(Ok(None), Err);
            }
            parker.park(left);
            self.forget_wait(wait);
        }
    }
}

impl Inner {
    /// A call begins: what was given before counts as finished. Whether the machine must know.
    fn begin_call(&mut self) -> bool {
        self.finish();
        self.polls = self.polls.wrapping_add(1);
        std::mem::take(&mut self.attentive)
    }

    pub(super) const fn finish(&mut self) {
        if let Some(handed) = &mut self.handed {
            handed.finished = handed.given;
        }
    }

    fn step(&mut self) -> Result<Step, Error> {
        if self.current.is_some() {
            return Ok(Step::Current);
        }
        if let Some(error) = self.faults.pop_front() {
            return Err(error);
        }
        while let Some(partition) = self.ready.pop_front() {
            let Some(part) = self.parts.get_mut(&partition) else { continue };
            part.listed = false;
            if !part.is_open() {
                continue;
            }
            if let Some(begun) = part.begun.pop_front() {
                self.current = Some(begun);
                self.list(&partition);
                return Ok(Step::Current);
            }
            let is_data = matches!(part.items.front(), Some(Item::Data(_)));
            // Not while records that are not given out have all the room.
            match if is_data { self.room_for(1) } else { RoomFor::Has } {
                RoomFor::Has => {}
                RoomFor::OthersFirst => {
                    self.list_first(&partition);
                    self.bring_begun_forward();
                    continue;
                }
                RoomFor::Later => {
                    self.list_first(&partition);
                    return Ok(Step::Crowded);
                }
            }
            let Some(part) = self.parts.get_mut(&partition) else { continue };
            match part.items.pop_front() {
                Some(Item::Data(fetched)) => {
                    part.decoding = true;
                    return Ok(Step::Decode(fetched, part.lease));
                }
                Some(Item::Fault(error)) => {
                    self.list(&partition);
                    return Err(error);
                }
                Some(Item::Place { position, offset }) => {
                    self.begin_at(&partition, position, offset);
                    self.list(&partition);
                }
                None => {}
            }
        }
        Ok(Step::Nothing)
    }

    /// Takes decoded bytes off the books of what was fetched; whether the machine should fetch more now.
    fn needs_refill(&mut self, fetched: &Fetched, bytes: usize) -> bool {
        let half = self.budget / 2;
        let (before, refill_below) = (self.buffered, self.refill_below);
        let Some(part) = self.part(&fetched.partition, fetched.position) else { return false };
        let (position, part_before) = (part.position, part.buffered);
        part.buffered = part_before.saturating_sub(bytes);
        let part_after = part.buffered;
        self.buffered = before.saturating_sub(bytes);
        self.consumed.push((fetched.partition.clone(), position, bytes));
        let crosses = |before: usize, after: usize, line: usize| before >= line && after < line;
        // Others hold more than half: if they are paused, theirs is the room to be had.
        let emptied = part_before > 0 && part_after == 0 && self.buffered >= half;
        emptied
            || crosses(part_before, part_after, refill_below)
            || crosses(before, self.buffered, half)
    }

    /// Makes decoded records the current batch, if they still count.
    fn install(
        &mut self,
        fetched: &Fetched,
        lease: u64,
        decoded: Result<(Shared, Option<Fetched>), Error>,
    ) -> Result<(), (Error, Command)> {
        let partition = &fetched.partition;
        self.begin = Begin::No;
        let id = self.id();
        let books = Arc::clone(&self.decoded);
        let Some(part) = self.parts.get_mut(partition).filter(|part| part.lease == lease) else {
            // Revoked meanwhile.
            return Ok(());
        };
        part.decoding = false;
        if !part.is_at(fetched.position) {
            // Sought meanwhile.
            self.list(partition);
            return Ok(());
        }
        let shared = match decoded {
            Ok((shared, rest)) => {
                // Before what was fetched after it.
                if let Some(rest) = rest {
                    part.items.push_front(Item::Data(rest));
                }
                Arc::new(shared.numbered(id))
            }
            Err(error) => {
                // Stands where it is until the application seeks: it is fetched and told again.
                let offset = part.next.unwrap_or(fetched.start);
                self.drop_ready(std::slice::from_ref(partition));
                if let Some(part) = self.parts.get_mut(partition) {
                    part.move_to(id);
                }
                let partition = partition.clone();
                return Err((error, Command::Seek { partition, position: id, offset }));
            }
        };
        if shared.len() == 0 {
            // All of it was compacted away or is not for showing; reading stands behind it.
            part.next = Some(shared.offset_at(0));
            self.pass_over(&shared);
            self.list(partition);
            return Ok(());
        }
        let mut current = Current::new(shared, 0, &books);
        if part.rests() {
            current.let_go();
        }
        if part.rests() || part.held || part.untold || self.current.is_some() {
            part.begun.push_back(current);
        } else {
            self.current = Some(current);
        }
        self.list(partition);
        Ok(())
    }

    /// Gives records of the current batch out.
    fn give<W: Want>(&mut self, want: &W) -> Option<W::Taken> {
        let current = self.current.as_mut()?;
        let shared = Arc::clone(&current.shared);
        let at = current.at;
        let left = self.finished.unfinished_of(&shared, at);
        let (from, to) = (left.start, left.start + want.count(left.len()));
        current.at = to;
        self.stats.records += u64::try_from(to - from).unwrap_or(0);
        if to == shared.len() {
            self.current = None;
            if let Some(part) = self.part(&shared.partition, shared.position) {
                part.next = Some(shared.offset_at(to));
            }
        }
        self.note_given(&shared, at, from..to);
        if left.is_empty() {
            // Who read it before has finished all that is left of it.
            return None;
        }
        match &mut self.handed {
            Some(handed) if handed.shared.is_same(&shared) => {
                // Paused meanwhile, it may have been copied out of its answer.
                handed.shared = Arc::clone(&shared);
                handed.finished = from;
                handed.given = to;
            }
            _ => {
                self.note_finished();
                let shared = Arc::clone(&shared);
                self.handed = Some(Handed { shared, finished: from, given: to });
            }
        }
        Some(W::make(shared, from, to))
    }
}
