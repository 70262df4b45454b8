//! Positions that do not hold: a log cut short, a topic made anew, offsets out of range.

use std::sync::Arc;

use super::group::start;
use super::{Engine, faults};
use crate::consumer::face::Renewed;
use crate::events::Event;
use crate::record::TopicPartition;
use crate::state::fetcher::{FetchEvent, Start};
use crate::state::machine::Context;
use crate::state::offsets::OffsetsEvent;

impl Engine {
    pub(super) fn handle_fetcher(&mut self, event: FetchEvent, cx: &mut Context<'_>) {
        match event {
            FetchEvent::Data(fetched) => self.face.deliver(fetched),
            FetchEvent::Fault { partition, position, fault } => {
                let error = faults::fetch(&partition, fault);
                self.face.fault(&partition, position, error);
            }
            FetchEvent::OutOfRange { partition, position, offset } => {
                self.reset_out_of_range(&partition, position, offset, cx.now_ms);
            }
            FetchEvent::Started { partition, position, offset } => {
                self.face.begin_afresh(&partition, position, offset);
            }
            FetchEvent::End { partition, position, high_watermark } => {
                self.face.set_end(&partition, position, high_watermark);
            }
            FetchEvent::Diverged { partition, position, offset, end } => {
                self.handle_diverged(&partition, position, offset, end);
            }
            FetchEvent::Recreated { partition, position } => {
                self.handle_recreated(&partition, position, cx.now_ms);
            }
            FetchEvent::Restarted { partition, reason } => {
                let (stuck, why) = (&partition, &reason);
                self.face.events.tell(|| Event::PartitionStuck {
                    partition: stuck.clone(),
                    reason: why.clone(),
                });
                tracing::warn!(%partition, reason, "nothing fetched for long: fetching anew");
                self.face.count(|stats| stats.restarts += 1);
            }
            FetchEvent::Dropped { records } => {
                self.face.count(|stats| stats.dropped_records += records);
            }
            FetchEvent::Refresh => cx.metadata.request_refresh(cx.now),
        }
    }

    pub(super) fn handle_offsets(&mut self, event: OffsetsEvent, cx: &mut Context<'_>) {
        match event {
            OffsetsEvent::Done(id, result) => {
                if let Some(promise) = self.offsets_found.remove(&id) {
                    promise.resolve(result);
                }
            }
            OffsetsEvent::Refresh => cx.metadata.request_refresh(cx.now),
        }
    }

    /// Has partitions that give nothing out give up the room that others need: for what these fetch,
    /// and, if `crowded`, for the records of their next batch.
    pub(super) fn make_room(&mut self, crowded: bool, cx: &Context<'_>) {
        let cluster = Arc::clone(cx.metadata.cluster());
        while let Some((partition, position)) = self.fetcher.crowder(&*cluster, cx.now) {
            if !self.shed(&partition, position) {
                break;
            }
        }
        if crowded {
            for (partition, position) in self.face.closed_begun() {
                self.shed(&partition, position);
            }
            self.face.begin_next();
        }
    }

    /// Gives up what was fetched of a partition that gives nothing out; whether that could be.
    fn shed(&mut self, partition: &TopicPartition, position: u64) -> bool {
        let Some((offset, bytes)) = self.face.shed(partition, position) else { return false };
        tracing::debug!(%partition, offset, bytes, "given up for others, to be fetched again");
        self.fetcher.rewind(partition, position, (offset, bytes));
        bytes > 0
    }

    /// KIP-320: the new leader's log ends where it should have what was fetched.
    fn handle_diverged(
        &mut self,
        partition: &TopicPartition,
        position: u64,
        offset: i64,
        end: i64,
    ) {
        // What is ready may not be in the log any more, so it is fetched again.
        let Some((next, given)) = self.face.cut(partition, position) else { return };
        self.face.count(|stats| stats.truncations += 1);
        let cut = partition;
        self.face.events.tell(|| Event::Truncated { partition: cut.clone(), offset, end });
        tracing::warn!(%partition, offset, end, "the log was cut short under a new leader");
        let given = given.unwrap_or(offset);
        if given <= end {
            self.face.begin(partition, next, given);
            return self.fetcher.seek(partition, next, given);
        }
        self.face.count(|stats| stats.resets += 1);
        if start(self.config.reset, 0).is_some() {
            self.face.begin_afresh(partition, next, end);
            self.fetcher.seek(partition, next, end);
        } else {
            self.fetcher.unplace(partition, next);
            self.face.fault(partition, next, faults::data_lost(partition, end, given));
        }
    }

    /// The topic's name stands for another one now, whose offsets have nothing to do with the old.
    fn handle_recreated(&mut self, partition: &TopicPartition, position: u64, now_ms: i64) {
        let Some(renewed) = self.face.renew(partition, position) else { return };
        let Renewed { lease, position: next, given } = renewed;
        // What was read of the old topic is not to be committed for the new one.
        self.commits.handle_lost(partition);
        self.commits.handle_leased(partition, lease);
        self.face.count(|stats| {
            stats.resets += 1;
            stats.recreations += 1;
        });
        let topic = &partition.topic;
        self.face.events.tell(|| Event::TopicRecreated { topic: Arc::clone(topic) });
        let start = match start(self.config.reset, now_ms) {
            // None of the new topic's records was ever skipped.
            Some(Start::Latest) => Start::Earliest,
            Some(start) => start,
            None => {
                self.fetcher.unplace(partition, next);
                let error = faults::recreated(partition, given);
                return self.face.fault(partition, next, error);
            }
        };
        tracing::warn!(%partition, ?start, "the topic was deleted and created anew: starting anew");
        self.fetcher.seek_start(partition, next, start);
    }
}
