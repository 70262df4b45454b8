//! What a broker remembers of a consumer's fetches, so that only changes are told (KIP-227).

use std::sync::Arc;

use ottla_protocol::{ErrorCode, Uuid};

use super::FetchPart;
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

fn topic_of(part: &FetchPart) -> (&Arc<str>, Uuid) {
    (&part.partition.topic, part.leader.topic_id)
}

fn all_ids_known(parts: &[FetchPart]) -> bool {
    parts.iter().all(|part| !part.leader.topic_id.is_zero())
}

/// What was told last of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    topic_id: Uuid,
    leader_epoch: i32,
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
    told: HashMap<TopicPartition, (Told, u64)>,
    rounds: u64,
    topics: Arc<FetchTopics>,
}

impl Session {
    /// What to say so that the broker answers for these partitions and no others; of the partitions
    /// those are left that must be named.
    pub(super) fn ask(&mut self, parts: Vec<FetchPart>) -> (SessionAsk, Vec<FetchPart>) {
        let by_id = all_ids_known(&parts);
        if by_id != self.by_id {
            self.restart();
        }
        self.by_id = by_id;
        if self.epoch == NEW {
            self.told.clear();
        }
        self.rounds += 1;
        let round = self.rounds;
        let mut forgotten = Vec::new();
        let mut fresh = self.epoch == NEW;
        let changed: Vec<FetchPart> = parts
            .into_iter()
            .filter(|part| {
                let told = Told {
                    topic_id: part.leader.topic_id,
                    leader_epoch: part.leader.epoch,
                    offset: part.offset,
                    max_bytes: part.max_bytes,
                };
                let known = self.told.insert(part.partition.clone(), (told, round));
                if let Some((known, _)) = known.filter(|(it, _)| it.topic_id != told.topic_id) {
                    forgotten.push((part.partition.clone(), known.topic_id));
                }
                fresh |= known.is_none_or(|(known, _)| known.topic_id != told.topic_id);
                known.is_none_or(|(known, _)| known != told)
            })
            .collect();
        self.told.retain(|partition, (told, seen)| {
            if *seen != round {
                forgotten.push((partition.clone(), told.topic_id));
            }
            *seen == round
        });
        if fresh {
            let known = self.told.iter();
            let topics = known.map(|(partition, (told, _))| (&partition.topic, told.topic_id));
            self.topics = FetchTopics::of(topics);
        }
        forgotten.sort_unstable();
        let (id, epoch, topics) = (self.id, self.epoch, Arc::clone(&self.topics));
        (SessionAsk { id, epoch, forgotten, topics, by_id }, changed)
    }

    /// The request with that epoch was answered under this session.
    pub(super) fn handle_answer(&mut self, asked_epoch: i32, session: i32) {
        if asked_epoch != self.epoch {
            // Begun anew meanwhile.
            return;
        }
        if session <= 0 {
            // The broker keeps none, or no longer.
            *self = Self { by_id: self.by_id, rounds: self.rounds, ..Self::default() };
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
        let ended = std::mem::take(self);
        (ended.id != 0).then(|| SessionAsk { id: ended.id, by_id: true, ..SessionAsk::none(&[]) })
    }

    /// Says all again by the next request, and ends what the broker may still keep.
    pub(super) const fn restart(&mut self) {
        self.epoch = NEW;
    }
}
