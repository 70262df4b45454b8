//! What comes back: what each batch was answered, and who is told.

use std::time::Duration;

use ottla_protocol::messages::produce_response::ProduceResponse;

use super::batch::Batch;
use super::produce::{self, Part};
use super::queue::Ended;
use super::verdict::Verdict;
use super::{Open, Sender};
use crate::error::{ErrorKind, Outcome};
use crate::producer::stats::{add, number};
use crate::state::completion::Outcome as Ending;
use crate::state::machine::{Answer, Context, LinkFault, Reply};

impl Sender {
    pub(super) fn handle_produce(&mut self, open: Open, reply: Reply, cx: &mut Context<'_>) {
        if let Some(node) = self.nodes.get_mut(&open.node) {
            node.in_flight = node.in_flight.saturating_sub(1);
        }
        match reply {
            Ok(_) if self.config.acks.number() == 0 => {
                for part in &open.parts {
                    let done = Verdict::Stored { base_offset: -1, append_time: -1 };
                    self.judge(part, done, cx);
                }
            }
            Ok(answer) => self.handle_answer(&open, &answer, cx),
            Err(fault) => {
                cx.metadata.request_refresh(cx.now);
                self.handle_fault(&open, &fault, cx);
            }
        }
    }

    fn handle_answer(&mut self, open: &Open, answer: &Answer, cx: &mut Context<'_>) {
        let response = match answer.decode::<ProduceResponse<'_>>() {
            Ok(response) => response,
            Err(error) => {
                let fault = LinkFault { error, written: true };
                return self.handle_fault(open, &fault, cx);
            }
        };
        let throttle = u64::try_from(response.throttle_time_ms).unwrap_or(0);
        if let Some(node) = self.nodes.get_mut(&open.node).filter(|_| throttle > 0) {
            // KIP-219: the broker has answered, and takes nothing more for so long.
            node.muted_until = Some(cx.now + Duration::from_millis(throttle));
        }
        for broker in &response.node_endpoints {
            cx.metadata.learn_broker(broker.node_id, broker.host, broker.port);
        }
        let mut place = (0, 0);
        for part in &open.parts {
            let found = produce::find(&response, part, &mut place);
            let verdict = produce::verdict(part, found);
            let refresh = found.is_some_and(|found| found.error_code.refresh().is_some());
            self.judge(part, verdict, cx);
            let leader = found.map(|found| &found.current_leader).filter(|leader| {
                let (id, epoch) = (leader.leader_id, leader.leader_epoch);
                cx.metadata.learn_leader(&part.topic, part.partition, id, epoch)
            });
            if leader.is_some() {
                if let Some(partition) = self.partitions.get_mut(part.key) {
                    partition.queue.retry_at_once(cx.now);
                }
            } else if refresh {
                cx.metadata.request_refresh(cx.now);
            }
        }
    }

    fn handle_fault(&mut self, open: &Open, fault: &LinkFault, cx: &mut Context<'_>) {
        for part in &open.parts {
            let error = fault.error.clone().with_topic(&part.topic).with_partition(part.partition);
            let written = fault.written;
            let hopeless = error.kind() == ErrorKind::UnsupportedVersion
                // What was written without asking for an answer is not sent twice.
                || (self.config.acks.number() == 0 && written);
            let verdict = match hopeless {
                true if written => Verdict::Reject(error.with_outcome(Outcome::PossiblyPersisted)),
                true => Verdict::Reject(error),
                false => Verdict::Lost { error, written },
            };
            self.judge(part, verdict, cx);
        }
    }

    /// Applies what became of a batch's attempt.
    fn judge(&mut self, part: &Part, verdict: Verdict, cx: &mut Context<'_>) {
        let fatal = match &verdict {
            Verdict::Fatal(error) => Some(error.clone()),
            _ => None,
        };
        let (backoff, random) = (self.backoff, &mut *cx.random);
        let (face, outstanding) = (&self.face, &mut self.outstanding);
        let Some(partition) = self.partitions.get_mut(part.key) else { return };
        let mut parted = false;
        let split = |batch: &Batch| {
            let halves = batch.split(&face.memory, || face.new_id());
            if let Some((halves, _)) = &halves {
                outstanding.extend(halves.iter().map(Batch::id));
                parted = true;
            }
            halves
        };
        let pause = |failures| backoff.pause(failures, random);
        partition.queue.handle(part.batch, verdict, cx.now, pause, split);
        if parted {
            add(&self.face.counters.splits, 1);
            // Who waits for the whole waits for the halves.
            self.flushes.extend(self.face.peek_id());
        }
        self.finish(part.key);
        if let Some(error) = fatal {
            self.abort(&error, cx);
        }
    }

    /// Tells those who wait for batches that have ended.
    pub(super) fn finish(&mut self, key: usize) {
        let Some(partition) = self.partitions.get_mut(key) else { return };
        let ended = std::mem::take(&mut partition.queue.ended);
        if partition.is_idle() {
            self.active.remove(&key);
            partition.slot.tell_waiting(0);
        }
        for Ended { completion, holders, records, bytes, ending } in ended {
            self.outstanding.remove(&completion.id());
            let records = u64::try_from(records).unwrap_or(0);
            completion.weigh(&self.face.memory, bytes, records);
            let counters = &self.face.counters;
            match &ending {
                Ending::Stored { .. } => {
                    add(&counters.delivered, records);
                    add(&counters.delivered_bytes, number(bytes));
                }
                Ending::Failed(error) => {
                    tracing::warn!(%error, records, "records were not delivered");
                    counters.note_failed(records, bytes, error.outcome());
                    if completion.is_unobserved(holders) {
                        self.face.report(records, error);
                    }
                }
                Ending::Forwarded(_) => {}
            }
            self.face.wakes(completion.resolve(ending));
        }
    }
}
