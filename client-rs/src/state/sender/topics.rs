//! Topics of the sending machine: when they become known, and who leads their partitions.

use std::sync::Arc;
use std::time::Instant;

use ottla_protocol::{ErrorCode, Uuid, left_out};

use super::Sender;
use super::produce::Part;
use super::queue::Queue;
use crate::error::{Error, ErrorKind, Outcome};
use crate::events::Event;
use crate::producer::partitioner::Cursor;
use crate::state::accumulator::slot::{OpenInfo, Slot};
use crate::state::accumulator::topics::TopicFace;
use crate::state::cluster::{Cluster, Topic};
use crate::state::machine::Context;
use crate::state::metadata;

/// A partition as the sending machine has it.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) topic: Arc<str>,
    pub(crate) topic_id: Uuid,
    pub(crate) number: i32,
    pub(crate) leader: Option<i32>,
    pub(crate) slot: Arc<Slot>,
    pub(crate) queue: Queue,
    /// The batch that senders write into, as it was seen last.
    pub(crate) open: Option<OpenInfo>,
}

impl Partition {
    pub(crate) fn part(&self, key: usize, batch: u64) -> Part {
        let (topic, topic_id) = (Arc::clone(&self.topic), self.topic_id);
        Part { topic, topic_id, partition: self.number, batch, key }
    }

    /// Whether there is nothing to do for it.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_none() && self.queue.is_empty()
    }
}

/// A topic whose partitions are known.
#[derive(Debug)]
pub(crate) struct KnownTopic {
    id: Uuid,
    face: Arc<TopicFace>,
    /// Of all partitions there ever were.
    slots: Vec<Arc<Slot>>,
}

impl KnownTopic {
    /// Whether this is what senders are shown of it.
    fn shows(&self, topic: &Topic) -> bool {
        let leaders = topic.partitions.iter().map(|partition| partition.leader);
        self.id == topic.id && self.face.leaders.iter().copied().eq(leaders)
    }
}

impl Sender {
    /// Takes over what metadata tells, and asks about topics that records wait for.
    pub(super) fn learn(&mut self, cx: &mut Context<'_>) {
        let staged = self.face.staged();
        for (topic, ..) in &staged {
            cx.metadata.want(topic, cx.now);
        }
        let cluster = Arc::clone(cx.metadata.cluster());
        let fresh = self.cluster_version.replace(cluster.version) != Some(cluster.version);
        if let Some(id) = cluster.id.as_deref().filter(|_| fresh) {
            self.see_cluster(id);
        }
        // Shown together: to show one costs as much as there are topics.
        let mut shown = Vec::new();
        if fresh {
            let known: Vec<Arc<str>> = self.topics.keys().cloned().collect();
            let known = known.iter().filter_map(|name| cluster.topic(name));
            shown.extend(known.filter_map(|topic| self.learn_topic(topic, cx)));
        }
        let (mut unstaged, mut awaited) = (false, false);
        for (topic, opened_at, id) in staged {
            match cluster.topics.get(&topic) {
                Some(known) if known.error.is_none() => {
                    shown.extend(self.learn_topic(known, cx));
                    unstaged = true;
                    awaited |= self.flushes.covers(id);
                }
                Some(known) if !metadata::passes(known.error) => {
                    let error = Error::from_kafka(known.error, None).with_topic(&topic);
                    self.face.fail_staged(&topic, &error);
                    cx.metadata.unpin(&topic);
                }
                found => self.expire_staged(&topic, opened_at, found.map(|topic| topic.error), cx),
            }
        }
        if !shown.is_empty() {
            self.face.publish(shown);
        }
        if fresh || unstaged {
            self.learn_leaders(&cluster);
        }
        if awaited {
            // What was staged goes on in batches of higher numbers.
            self.flushes.extend(self.face.peek_id());
        }
        if unstaged {
            self.collect(cx);
        }
    }

    fn expire_staged(
        &self,
        topic: &Arc<str>,
        opened_at: Instant,
        code: Option<ErrorCode>,
        cx: &mut Context<'_>,
    ) {
        let timeout = self.config.topic_timeout();
        if opened_at + timeout > cx.now {
            return;
        }
        let text = format!("nothing known of it within {} ms", timeout.as_millis());
        let error = match (code, cx.metadata.last_error()) {
            (_, Some(source)) => {
                Error::new(ErrorKind::DeliveryTimeout, text).with_source(source.clone())
            }
            (Some(code), None) => {
                Error::new(ErrorKind::UnknownTopic, text).with_source(Error::from_kafka(code, None))
            }
            (None, None) => Error::new(ErrorKind::UnknownTopic, text),
        };
        self.face.fail_staged(topic, &error.with_topic(topic).with_outcome(Outcome::NotSent));
        cx.metadata.unpin(topic);
    }

    /// Takes over the partitions of a topic, and gives what senders are to be shown of it, if that
    /// is new.
    fn learn_topic(&mut self, topic: &Arc<Topic>, cx: &mut Context<'_>) -> Option<Arc<TopicFace>> {
        let known = self.topics.get(&topic.name);
        if known.is_some_and(|known| known.shows(topic)) {
            return None;
        }
        let mut slots = known.map_or_else(Vec::new, |known| known.slots.clone());
        let anew = known.is_some_and(|known| {
            !known.id.is_zero() && !topic.id.is_zero() && known.id != topic.id
        });
        if anew {
            let topic = &topic.name;
            tracing::warn!(%topic, "the topic was deleted and created anew");
            self.face.events.tell(|| Event::TopicRecreated { topic: Arc::clone(topic) });
        }
        for slot in &slots {
            if let Some(partition) = self.partitions.get_mut(slot.key) {
                partition.topic_id = topic.id;
                if anew && !left_out("new_topic_id") {
                    partition.queue.handle_new_log();
                }
            }
        }
        // Partitions are not taken away but by a topic of the same name made anew. A broker that
        // lags may name fewer for a while: those left out keep their batches and sequences.
        for number in slots.len()..topic.partitions.len() {
            let (key, number) = (self.partitions.len(), i32::try_from(number).unwrap_or(i32::MAX));
            let slot = Slot::new(key, &topic.name, number);
            slots.push(Arc::clone(&slot));
            self.partitions.push(Partition {
                topic: Arc::clone(&topic.name),
                topic_id: topic.id,
                number,
                leader: None,
                slot,
                queue: Queue::new(Self::limits(&self.config)),
                open: None,
            });
        }
        let shown: Vec<Arc<Slot>> = slots.iter().take(topic.partitions.len()).cloned().collect();
        let leaders: Vec<Option<i32>> = topic.partitions.iter().map(|at| at.leader).collect();
        let cursor = known.map_or_else(
            || Arc::new(Cursor::new(cx.random.number())),
            |known| Arc::clone(&known.face.cursor),
        );
        let name = Arc::clone(&topic.name);
        let racks = &cx.metadata.cluster().racks;
        let is_near = |leader: i32| {
            let rack = self.config.rack.as_ref();
            rack.is_none_or(|rack| racks.get(&leader) == Some(rack))
        };
        let face = TopicFace::new(&name, shown, leaders, cursor, is_near);
        self.topics.insert(name, KnownTopic { id: topic.id, face: Arc::clone(&face), slots });
        Some(face)
    }

    /// In another cluster than before its producer id may be somebody else's.
    fn see_cluster(&mut self, id: &str) {
        if self.cluster_id.as_deref() == Some(id) {
            return;
        }
        if self.cluster_id.replace(id.to_owned()).is_some() {
            self.identity.forget();
            for partition in &mut self.partitions {
                partition.queue.handle_new_log();
            }
        }
    }

    fn learn_leaders(&mut self, cluster: &Cluster) {
        self.leaders_changed = true;
        for partition in &mut self.partitions {
            let found = cluster.partition(&partition.topic, partition.number);
            partition.leader = found.and_then(|found| found.leader);
            if found.is_none() && left_out("absent_topic") {
                partition.queue.handle_new_log();
            }
            if let Some(leader) = partition.leader {
                self.nodes.entry(leader).or_default();
            }
        }
        let partitions = &self.partitions;
        self.nodes.retain(|&id, node| {
            node.in_flight > 0 || partitions.iter().any(|at| at.leader == Some(id))
        });
    }
}
