//! What the producer was asked for: to flush, and to close.

use std::sync::Arc;
use std::time::Instant;

use super::Sender;
use crate::error::{Error, ErrorKind};
use crate::state::machine::Context;
use crate::state::parker::Signal;

/// Calls that wait for all batches begun before them.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    /// Each waits for the batches of lower numbers.
    open: Vec<(Arc<Signal>, u64)>,
}

impl Flushes {
    /// Whether somebody waits for the batch of this number.
    pub(crate) fn covers(&self, id: u64) -> bool {
        self.open.iter().any(|&(_, mark)| id < mark)
    }

    fn take(&mut self) -> Vec<Arc<Signal>> {
        std::mem::take(&mut self.open).into_iter().map(|(signal, _)| signal).collect()
    }

    /// Batches that somebody waits for go on under numbers below this one.
    pub(crate) fn extend(&mut self, mark: u64) {
        for (_, own) in &mut self.open {
            *own = mark.max(*own);
        }
    }
}

impl Sender {
    /// Looks at what the producer was asked for.
    pub(super) fn take_commands(&mut self, cx: &Context<'_>) {
        let commands = self.face.take_commands();
        let mark = self.face.peek_id();
        self.flushes.open.extend(commands.flushes.into_iter().map(|signal| (signal, mark)));
        let sooner = |by: &Instant| self.close_by.is_none_or(|known| *by < known);
        if let Some(by) = commands.close_by.filter(sooner) {
            tracing::debug!(wait = ?by.saturating_duration_since(cx.now), "closing");
            self.close_by = Some(by);
        }
    }

    /// Tells the flushes that have nothing left to wait for.
    pub(super) fn finish_flushes(&mut self) {
        if self.flushes.open.is_empty() {
            return;
        }
        let staged = self.face.staged().into_iter().map(|(_, _, id)| id);
        let open = self.active.iter().filter_map(|&key| self.partitions.get(key)?.open);
        let first = staged.chain(open.map(|open| open.id)).chain(self.outstanding.first().copied());
        let first = first.min().unwrap_or(u64::MAX);
        self.flushes.open.retain(|(signal, mark)| {
            let waits = first < *mark;
            if !waits {
                signal.set();
            }
            waits
        });
    }

    /// Asks for a producer id, if one is needed and none is known.
    pub(super) fn ask_identity(&mut self, cx: &mut Context<'_>) {
        let token = self.tokens + 1;
        if let Some(request) = self.identity.poll_request(token, cx.now) {
            self.tokens = token;
            cx.send(request);
        }
    }

    /// One step of closing; whether it is done.
    pub(super) fn close(&mut self, cx: &mut Context<'_>) -> bool {
        let over = self.close_by.is_some_and(|by| by <= cx.now);
        if over {
            let text = "the producer was closed before the record was delivered";
            self.abort(&Error::new(ErrorKind::Closed, text), cx);
            self.end();
            return true;
        }
        if !self.is_drained() {
            return false;
        }
        // Whoever was about to write a record is in by now, or is refused.
        self.face.close_staging();
        self.partitions.iter().for_each(|partition| partition.slot.close());
        self.collect(cx);
        if !self.is_drained() {
            return false;
        }
        self.end();
        true
    }

    fn is_drained(&self) -> bool {
        self.outstanding.is_empty() && self.active.is_empty() && self.face.staged().is_empty()
    }

    /// Ends all records with an error, those not written as not sent, and refuses further ones.
    pub(super) fn abort(&mut self, error: &Error, cx: &mut Context<'_>) {
        self.withdraw(|_| true, cx);
        self.end_all(error);
    }

    /// The same, where nothing can be taken back any more.
    pub(super) fn end_all(&mut self, error: &Error) {
        self.face.refuse(Some(error));
        self.face.close_staging();
        for (topic, ..) in self.face.staged() {
            self.face.fail_staged(&topic, error);
        }
        for key in 0..self.partitions.len() {
            let Some(partition) = self.partitions.get_mut(key) else { continue };
            partition.slot.close();
            partition.slot.take_all(&mut self.taken);
            partition.open = None;
            let number = partition.number;
            for open in self.taken.drain(..) {
                partition.queue.push(super::Batch::new(open));
            }
            partition.queue.fail_all(|batch| {
                let own = error.clone().with_topic(batch.completion.topic()).with_partition(number);
                match &batch.last_error {
                    Some(last) => own.with_source(last.clone()),
                    None => own,
                }
            });
            self.finish(key);
        }
        // Answers that still come find nothing that they are about.
        self.nodes.values_mut().for_each(|node| node.in_flight = 0);
        self.open.clear();
        self.unbegun.clear();
        self.jobs.clear();
        for signal in self.face.take_commands().flushes.into_iter().chain(self.flushes.take()) {
            signal.cut();
        }
    }

    /// The machine has nothing more to do.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.face.refuse(Some(&Error::closed()));
        self.face.memory.drain();
        // Whoever asks from now on sees that it is the end.
        let late = self.face.take_commands().flushes;
        late.into_iter().chain(self.flushes.take()).for_each(|signal| signal.set());
    }
}
