//! The application's side of the face: taking records, and asking for things.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Command, Current, Face, Handed, Hook, Inner, Item, Marks, Rebalance, decoded_share};
use crate::consumer::batch::{Batch, ConsumerRecord, Shared};
use crate::consumer::commit::OffsetAndMetadata;
use crate::driver::{self, clock};
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::commits::Mark;
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
                Step::Nothing => {
                    inner.signalled = false;
                    inner.sleepers.extend(sleeper.take());
                    return Ok(Look::Nothing);
                }
            }
        }
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
        let deadline = clock::now().checked_add(timeout);
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
            let left = deadline
                .map_or(timeout, |deadline| deadline.saturating_duration_since(clock::now()));
            if left.is_zero() {
                self.forget_wait(wait);
                return self.lock().obstacle.clone().map_or(Ok(None), Err);
            }
            parker.park(left);
            self.forget_wait(wait);
        }
    }

    /// Hands a wish to the machine.
    pub(in crate::consumer) fn command(&self, command: Command) -> Result<(), Error> {
        let mut inner = self.lock();
        if let Some(error) = inner.refusal() {
            return Err(error.clone());
        }
        inner.commands.push(command);
        drop(inner);
        self.wake.wake();
        Ok(())
    }

    /// Has the machine end, also when every other wish is refused.
    pub(in crate::consumer) fn command_close(&self, deadline: Instant) {
        self.lock().commands.push(Command::Close { deadline });
        self.wake.wake();
    }

    /// Moves a partition; what is ready of it counts no more, from this call on.
    pub(in crate::consumer) fn seek(
        &self,
        partition: &TopicPartition,
        offset: i64,
    ) -> Result<(), Error> {
        let mut inner = self.lock();
        if let Some(error) = inner.refusal() {
            return Err(error.clone());
        }
        if !inner.parts.contains_key(partition) {
            return Err(not_assigned(partition));
        }
        inner.drop_ready(partition);
        let position = inner.id();
        let Some(part) = inner.parts.get_mut(partition) else { return Ok(()) };
        part.position = position;
        part.next = Some(offset);
        let lease = part.lease;
        let mark = Mark {
            lease,
            jump: position,
            offset,
            leader_epoch: -1,
            by_hand: false,
            metadata: None,
        };
        inner.finished.insert(partition.clone(), mark);
        let partition = partition.clone();
        inner.commands.push(Command::Seek { partition, position, offset });
        drop(inner);
        self.wake.wake();
        Ok(())
    }

    /// Gives out no more of some partitions, or again. What was fetched of them is kept.
    pub(in crate::consumer) fn set_paused(
        &self,
        partitions: &[TopicPartition],
        paused: bool,
    ) -> Result<(), Error> {
        let mut inner = self.lock();
        if let Some(error) = inner.refusal() {
            return Err(error.clone());
        }
        if let Some(other) = partitions.iter().find(|other| !inner.parts.contains_key(other)) {
            return Err(not_assigned(other));
        }
        for partition in partitions {
            if paused {
                inner.put_back_current(|other| other == partition);
            }
            if let Some(part) = inner.parts.get_mut(partition) {
                part.paused = paused;
            }
            inner.list(partition);
            let partition = partition.clone();
            inner.commands.push(Command::SetPaused { partition, paused });
        }
        Self::announce(inner);
        self.wake.wake();
        Ok(())
    }

    /// Whether a partition is still held by the lease that a batch came under.
    pub(in crate::consumer) fn is_leased(&self, partition: &TopicPartition, lease: u64) -> bool {
        self.lock().parts.get(partition).is_some_and(|part| part.lease == lease)
    }

    /// Marks of offsets that the application names itself, or the first that is not its own.
    pub(in crate::consumer) fn marks_by_hand<'a>(
        &self,
        offsets: impl IntoIterator<Item = (&'a TopicPartition, OffsetAndMetadata)>,
    ) -> Result<Marks, TopicPartition> {
        let inner = self.lock();
        let mark = |(partition, named): (&TopicPartition, OffsetAndMetadata)| {
            let part = inner.parts.get(partition).ok_or_else(|| partition.clone())?;
            let metadata = (!named.metadata.is_empty()).then(|| Arc::from(named.metadata));
            let mark = Mark {
                lease: part.lease,
                jump: part.position,
                offset: named.offset,
                leader_epoch: named.leader_epoch.unwrap_or(-1),
                by_hand: true,
                metadata,
            };
            Ok((partition.clone(), mark))
        };
        offsets.into_iter().map(mark).collect()
    }

    /// Counts what was given out as finished, and tells where that stands.
    pub(in crate::consumer) fn finish(&self) -> Marks {
        self.lock().finish();
        self.finished()
    }

    /// The application lives, though it does not ask for records.
    pub(in crate::consumer) fn keep_alive(&self) {
        let mut inner = self.lock();
        inner.signs = inner.signs.wrapping_add(1);
    }

    /// Ends a call that waits, or the next one.
    pub(in crate::consumer) fn wakeup(&self) {
        let mut inner = self.lock();
        inner.woken = true;
        Self::announce(inner);
    }

    /// Calls the hook when something comes to be ready; at once, if something is.
    pub(in crate::consumer) fn set_on_ready(&self, hook: Hook) {
        let mut inner = self.lock();
        inner.on_ready = Some(hook);
        inner.signalled = false;
        Self::announce(inner);
    }

    /// Why no call can be served any more, if so.
    pub(in crate::consumer) fn ended(&self) -> Option<Error> {
        self.lock().refusal().cloned()
    }
}

impl Inner {
    /// A call begins: what was given before counts as finished. Whether the machine must know.
    fn begin_call(&mut self) -> bool {
        self.finish();
        self.polls = self.polls.wrapping_add(1);
        std::mem::take(&mut self.attentive)
    }

    const fn finish(&mut self) {
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
            match part.items.pop_front() {
                Some(Item::Data(fetched)) => {
                    part.decoding = true;
                    return Ok(Step::Decode(fetched, part.lease));
                }
                Some(Item::Fault(error)) => {
                    self.list(&partition);
                    return Err(error);
                }
                None => {}
            }
        }
        Ok(Step::Nothing)
    }

    /// How much more may be decoded ahead.
    fn decode_limit(&self) -> usize {
        let most = decoded_share(self.budget) / 2;
        most.saturating_sub(self.decoded.load(Ordering::Relaxed))
    }

    /// Takes decoded bytes off the books of what was fetched; whether the machine should fetch more now.
    fn needs_refill(&mut self, fetched: &Fetched, bytes: usize) -> bool {
        let half = self.budget / 2;
        let (before, refill_below) = (self.buffered, self.refill_below);
        self.consumed.push((fetched.partition.clone(), fetched.position, bytes));
        let Some(part) = self.part(&fetched.partition, fetched.position) else { return false };
        let part_before = part.buffered;
        part.buffered = part_before.saturating_sub(bytes);
        let part_after = part.buffered;
        self.buffered = before.saturating_sub(bytes);
        let crosses = |before: usize, after: usize, line: usize| before >= line && after < line;
        crosses(part_before, part_after, refill_below) || crosses(before, self.buffered, half)
    }

    /// Makes decoded records the current batch, if they still count.
    fn install(
        &mut self,
        fetched: &Fetched,
        lease: u64,
        decoded: Result<(Shared, Option<Fetched>), Error>,
    ) -> Result<(), (Error, Command)> {
        let partition = &fetched.partition;
        let id = self.id();
        let books = Arc::clone(&self.decoded);
        let Some(part) = self.parts.get_mut(partition).filter(|part| part.lease == lease) else {
            // Revoked meanwhile.
            return Ok(());
        };
        part.decoding = false;
        if part.position != fetched.position {
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
                Arc::new(shared)
            }
            Err(error) => {
                // Stands where it is until the application seeks: it is fetched and told again.
                let offset = part.next.unwrap_or(fetched.start);
                self.drop_ready(partition);
                if let Some(part) = self.parts.get_mut(partition) {
                    part.position = id;
                }
                let partition = partition.clone();
                return Err((error, Command::Seek { partition, position: id, offset }));
            }
        };
        if shared.len() == 0 {
            // All of it was compacted away or is not for showing; reading stands behind it.
            part.next = Some(shared.offset_at(0));
            self.note_finished();
            self.finished.insert(partition.clone(), shared.mark(0));
            self.list(partition);
            return Ok(());
        }
        let current = Current::new(shared, 0, &books);
        if part.paused || part.held || part.untold || self.current.is_some() {
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
        let from = current.at;
        let to = from + want.count(current.shared.len() - from);
        current.at = to;
        let shared = Arc::clone(&current.shared);
        self.stats.records += u64::try_from(to - from).unwrap_or(0);
        if to == shared.len() {
            self.current = None;
            if let Some(part) = self.part(&shared.partition, shared.position) {
                part.next = Some(shared.offset_at(to));
            }
        }
        match &mut self.handed {
            Some(handed) if Arc::ptr_eq(&handed.shared, &shared) => {
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

/// The error of a call about a partition that is not this consumer's.
fn not_assigned(partition: &TopicPartition) -> Error {
    let text = format!("{partition} is not assigned to this consumer");
    Error::new(ErrorKind::NotAssigned, text)
        .with_topic(&partition.topic)
        .with_partition(partition.partition)
}
