//! The application's side of the face, but for records: what it asks for and asks about.

use std::sync::Arc;
use std::time::Instant;

use super::{Command, Face, Hook, Marks};
use crate::consumer::commit::OffsetAndMetadata;
use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::commits::Mark;

impl Face {
    /// Hands a wish to the machine.
    pub(in crate::consumer) fn command(&self, command: Command) -> Result<(), Error> {
        let mut inner = self.lock();
        if let Some(error) = inner.refusal() {
            return Err(error.clone());
        }
        inner.ask(command);
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
        inner.drop_ready(std::slice::from_ref(partition));
        let position = inner.id();
        let Some(part) = inner.parts.get_mut(partition) else { return Ok(()) };
        part.move_to(position);
        let mark = part.begin_at(position, offset);
        inner.begin_work(partition, mark);
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
            if let Some(part) = inner.parts.get_mut(partition) {
                part.paused = paused;
            }
            inner.rest(partition);
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
                beyond: 0,
            };
            Ok((partition.clone(), mark))
        };
        offsets.into_iter().map(mark).collect()
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

/// The error of a call about a partition that is not this consumer's.
fn not_assigned(partition: &TopicPartition) -> Error {
    let text = format!("{partition} is not assigned to this consumer");
    Error::new(ErrorKind::NotAssigned, text)
        .with_topic(&partition.topic)
        .with_partition(partition.partition)
}
