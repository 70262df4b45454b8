//! What a broker remembers of a consumer's fetches, so that only changes are told (KIP-227).

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::{ErrorCode, Uuid};

use super::{FetchPart, Leader};
use crate::record::TopicPartition;
use crate::state::hash::HashMap;

/// Asks for a new session; an old one with the request's id ends.
const NEW: i32 = 0;
/// Asks for no session.
const NONE: i32 = -1;

/// The topics of a fetch by name and id: an answer names one or the other.
#[derive(Debug, Default)]
pub(crate) struct FetchTopics {
    names: HashMap<Arc<str>, Uuid>,
    ids: HashMap<Uuid, Arc<str>>,
}

impl FetchTopics {
    fn of<'a>(topics: impl Iterator<Item = (&'a Arc<str>, Uuid)>) -> Arc<Self> {
        let mut all = Self::default();
        for (name, id) in topics {
            if all.names.get(name) != Some(&id) {
                all.names.insert(Arc::clone(name), id);
                all.ids.insert(id, Arc::clone(name));
            }
        }
        Arc::new(all)
    }

    /// The topic of a name.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<str>> {
        self.names.get_key_value(name).map(|(name, _)| name)
    }

    fn has(&self, name: &str, id: Uuid) -> bool {
        self.names.get(name) == Some(&id)
    }

    /// The topic of an id.
    pub(crate) fn by_id(&self, id: Uuid) -> Option<&Arc<str>> {
        self.ids.get(&id)
    }
}

/// What a request says of its session.
#[derive(Debug, Clone)]
pub(crate) struct SessionAsk {
    /// 0 if there is none yet.
    pub(crate) id: i32,
    /// 0 asks for a new session, −1 for none.
    pub(crate) epoch: i32,
    /// Partitions that are not to be answered any more, with their topics' ids.
    pub(crate) forgotten: Vec<(TopicPartition, Uuid)>,
    /// All topics that an answer may name.
    pub(crate) topics: Arc<FetchTopics>,
    /// Whether the ids of all topics are known (KIP-516): a session is told by them or by names.
    pub(crate) by_id: bool,
}

impl SessionAsk {
    /// A request for these partitions and no session.
    pub(super) fn none(parts: &[FetchPart]) -> Self {
        let topics = FetchTopics::of(parts.iter().map(topic_of));
        Self { id: 0, epoch: NONE, forgotten: Vec::new(), topics, by_id: all_ids_known(parts) }
    }

    /// Whether the answer has all partitions, not only those with news.
    pub(super) const fn is_full(epoch: i32) -> bool {
        epoch <= NEW
    }
}

/// Puts the partition behind the one that was first the last time to the front of all these, which
/// are sorted.
pub(super) fn take_turns(parts: &mut [FetchPart], first: &mut Option<TopicPartition>) {
    let before = first.take();
    let done = |part: &FetchPart| before.as_ref().is_some_and(|before| part.partition <= *before);
    let front = parts.partition_point(done);
    if front < parts.len() {
        parts.rotate_left(front);
    }
    *first = parts.first().map(|part| part.partition.clone());
}

fn topic_of(part: &FetchPart) -> (&Arc<str>, Uuid) {
    (&part.partition.topic, part.leader.topic_id)
}

fn all_ids_known(parts: &[FetchPart]) -> bool {
    parts.iter().all(|part| !part.leader.topic_id.is_zero())
}

/// What was told last of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    leader: Leader,
    offset: i64,
    max_bytes: usize,
}

/// One broker's session.
#[derive(Debug, Default)]
pub(super) struct Session {
    id: i32,
    /// Of the next request.
    epoch: i32,
    by_id: bool,
    told: BTreeMap<TopicPartition, Told>,
    /// Of those told, how many are of topics without an id.
    nameless: usize,
    topics: Arc<FetchTopics>,
    /// The first partition of the last request that named all: the next begins behind it.
    first: Option<TopicPartition>,
}

impl Session {
    /// What to say so that the broker also answers for these partitions, and no more for those that
    /// are gone; of the partitions those are given back that must be named.
    pub(super) fn ask(
        &mut self,
        parts: Vec<FetchPart>,
        gone: Vec<TopicPartition>,
    ) -> (SessionAsk, Vec<FetchPart>) {
        let mut forgotten = Vec::new();
        for partition in gone {
            if let Some(told) = self.told.remove(&partition) {
                self.nameless -= usize::from(told.leader.topic_id.is_zero());
                forgotten.push((partition, told.leader.topic_id));
            }
        }
        let mut changed = Vec::with_capacity(parts.len());
        for part in parts {
            let id = part.leader.topic_id;
            let told = Told { leader: part.leader, offset: part.offset, max_bytes: part.max_bytes };
            let known = self.told.insert(part.partition.clone(), told);
            self.nameless += usize::from(id.is_zero());
            if let Some(known) = known {
                self.nameless -= usize::from(known.leader.topic_id.is_zero());
                if known == told {
                    continue;
                }
                if known.leader.topic_id != id {
                    forgotten.push((part.partition.clone(), known.leader.topic_id));
                }
            }
            changed.push(part);
        }
        let by_id = self.nameless == 0;
        if by_id != self.by_id {
            self.restart();
        }
        self.by_id = by_id;
        if self.epoch == NEW {
            forgotten.clear();
            changed = self.all();
        }
        if !changed.iter().map(topic_of).all(|(name, id)| self.topics.has(name, id)) {
            let known = self.told.iter();
            let topics = known.map(|(partition, told)| (&partition.topic, told.leader.topic_id));
            self.topics = FetchTopics::of(topics);
        }
        forgotten.sort_unstable();
        let (id, epoch, topics) = (self.id, self.epoch, Arc::clone(&self.topics));
        (SessionAsk { id, epoch, forgotten, topics, by_id }, changed)
    }

    /// All partitions, each time with another of them in front.
    fn all(&mut self) -> Vec<FetchPart> {
        let all = self.told.iter().map(|(partition, told)| FetchPart {
            partition: partition.clone(),
            leader: told.leader,
            offset: told.offset,
            max_bytes: told.max_bytes,
        });
        let mut all: Vec<FetchPart> = all.collect();
        take_turns(&mut all, &mut self.first);
        all
    }

    /// The partitions that the broker was told to answer for.
    pub(super) fn partitions(&self) -> Vec<TopicPartition> {
        self.told.keys().cloned().collect()
    }

    /// From which offset on the broker was told to answer for a partition.
    pub(super) fn offset_of(&self, partition: &TopicPartition) -> Option<i64> {
        self.told.get(partition).map(|told| told.offset)
    }

    /// Whether this is what the broker was told last of a partition.
    pub(super) fn has_told(
        &self,
        partition: &TopicPartition,
        leader: Leader,
        offset: i64,
        max_bytes: usize,
    ) -> bool {
        self.told.get(partition) == Some(&Told { leader, offset, max_bytes })
    }

    /// The request with that epoch was answered under this session.
    pub(super) fn handle_answer(&mut self, asked_epoch: i32, session: i32) {
        if asked_epoch != self.epoch {
            // Begun anew meanwhile.
            return;
        }
        if session <= 0 {
            // The broker keeps none, or no longer.
            (self.id, self.epoch) = (0, NEW);
        } else if asked_epoch == NEW {
            (self.id, self.epoch) = (session, NEW + 1);
        } else if session == self.id {
            self.epoch = self.epoch.checked_add(1).unwrap_or(NEW + 1);
        } else {
            // An answer to another question.
            self.restart();
        }
    }

    /// The request failed; whether it did so because of the session.
    pub(super) fn handle_failure(&mut self, code: ErrorCode) -> bool {
        self.restart();
        if code == ErrorCode::FETCH_SESSION_ID_NOT_FOUND {
            self.id = 0;
        }
        matches!(
            code,
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND
                | ErrorCode::INVALID_FETCH_SESSION_EPOCH
                | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
        )
    }

    /// What to say so that the broker forgets the session, if it keeps one.
    pub(super) fn end(&mut self) -> Option<SessionAsk> {
        let id = std::mem::take(&mut self.id);
        self.restart();
        (id != 0).then(|| SessionAsk { id, by_id: true, ..SessionAsk::none(&[]) })
    }

    /// Says all again by the next request, and ends what the broker may still keep.
    pub(super) const fn restart(&mut self) {
        self.epoch = NEW;
    }
}
