//! What goes out: which batches are due, and which broker gets them in one request.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;

use super::produce::{Part, ProduceBody};
use super::queue::Numbering;
use super::{Open, Sender};
use crate::producer::stats::add;
use crate::state::machine::{Context, Lane, Request, Target};

impl Sender {
    /// Sends what is due, broker by broker.
    pub(super) fn produce(&mut self, cx: &mut Context<'_>) {
        let mut members: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
        let mut leaderless = false;
        for &key in &self.active {
            let Some(partition) = self.partitions.get(key) else { continue };
            if let Some(leader) = partition.leader {
                members.entry(leader).or_default().push(key);
            } else {
                // It may not be asked about any more, if brokers were away for long.
                cx.metadata.want(&partition.topic, cx.now);
                leaderless = true;
            }
        }
        if leaderless {
            cx.metadata.request_refresh(cx.now);
        }
        for (id, keys) in members {
            while self.produce_to(id, &keys, cx) {}
        }
    }

    /// One request to one broker; whether there was something to send.
    fn produce_to(&mut self, id: i32, keys: &[usize], cx: &mut Context<'_>) -> bool {
        let node = self.nodes.entry(id).or_default();
        if !node.takes(cx.now) {
            return false;
        }
        let idle = node.in_flight == 0;
        let first = node.requests.checked_rem(keys.len()).unwrap_or(0);
        let (before, after) = keys.split_at(first);
        let mut parts: Vec<(Part, Vec<Bytes>)> = Vec::new();
        let (mut bytes, mut raw_bytes) = (0, 0);
        let (mut over_at, mut ended) = (None, false);
        for &key in after.iter().chain(before) {
            self.take_open(key, idle, cx);
            let numbering = self.identity.numbering();
            let Some(partition) = self.partitions.get_mut(key) else { continue };
            let Some(len) = partition.queue.next_len(cx.now, numbering) else { continue };
            if !parts.is_empty() && bytes + len > self.config.request_bytes_max {
                continue;
            }
            let again = partition.queue.retry_at(numbering).is_some();
            let Some(batch) = partition.queue.begin(numbering) else {
                // It cannot be sealed. Those behind it are looked at next.
                self.finish(key);
                ended = true;
                continue;
            };
            let over = batch.opened_at + self.config.delivery_timeout;
            over_at = Some(over_at.map_or(over, |first: Instant| first.min(over)));
            let (batch, pieces, raw_len) = (batch.id(), batch.pieces(), batch.raw_len());
            bytes += len;
            raw_bytes += raw_len;
            parts.push((partition.part(key, batch), pieces));
            add(&self.face.counters.retries, u64::from(again));
        }
        let Some(over_at) = over_at else { return ended };
        self.send(id, parts, (bytes, raw_bytes), over_at, cx);
        true
    }

    /// Takes back what waits for its turn to be written to a broker, once a batch's time is over in
    /// it: of such a batch nothing was sent. The others go out again.
    pub(super) fn withdraw_overdue(&mut self, cx: &mut Context<'_>) {
        let over = self.unbegun.iter().filter(|&(_, &over_at)| over_at <= cx.now);
        let nodes: BTreeSet<i32> =
            over.filter_map(|(token, _)| self.open.get(token)).map(|open| open.node).collect();
        if !nodes.is_empty() {
            self.withdraw(|node| nodes.contains(&node), cx);
        }
    }

    /// Takes back the requests to some brokers of which nothing is written.
    pub(super) fn withdraw(&mut self, of: impl Fn(i32) -> bool, cx: &mut Context<'_>) {
        // The youngest first, as the partitions' queues want it.
        let tokens: Vec<u64> = self.unbegun.keys().rev().copied().collect();
        for token in tokens {
            if !self.open.get(&token).is_some_and(|open| of(open.node)) {
                continue;
            }
            self.unbegun.remove(&token);
            let Some(open) = self.open.remove(&token) else { continue };
            if let Some(node) = self.nodes.get_mut(&open.node) {
                node.in_flight = node.in_flight.saturating_sub(1);
            }
            for part in &open.parts {
                if let Some(partition) = self.partitions.get_mut(part.key) {
                    partition.queue.withdraw(part.batch);
                }
            }
            cx.withdraw(token);
        }
    }

    /// Takes a partition's open batch, if it is due and could go out.
    fn take_open(&mut self, key: usize, idle: bool, cx: &mut Context<'_>) {
        let Some(partition) = self.partitions.get_mut(key) else { return };
        let Some(open) = partition.open else { return };
        let numbered = self.identity.numbering() != Numbering::Unknown;
        let due = idle
            || self.close_by.is_some()
            || self.flushes.covers(open.id)
            || self.face.memory.is_awaited()
            || open.opened_at + self.config.linger <= cx.now;
        if due && numbered && partition.queue.is_drained() && partition.queue.takes_new() {
            partition.slot.take_all(&mut self.taken);
            partition.open = None;
            self.take_over(key, cx);
        }
    }

    fn send(
        &mut self,
        node: i32,
        mut parts: Vec<(Part, Vec<Bytes>)>,
        bytes: (usize, usize),
        over_at: Instant,
        cx: &mut Context<'_>,
    ) {
        parts.sort_by(|(one, _), (two, _)| {
            (&one.topic, one.partition).cmp(&(&two.topic, two.partition))
        });
        let (parts, pieces): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let timeout = self.config.common.request_timeout;
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let body = ProduceBody::new(self.config.acks.number(), timeout_ms, &parts, pieces);
        let token = self.token();
        self.open.insert(token, Open { node, parts, bytes });
        self.unbegun.insert(token, over_at);
        if let Some(node) = self.nodes.get_mut(&node) {
            node.in_flight += 1;
            node.requests = node.requests.wrapping_add(1);
        }
        let lane = Lane::Produce;
        cx.send(Request { to: Target::Node(node), lane, token, timeout, body: Box::new(body) });
    }
}
