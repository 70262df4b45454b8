//! Fetch sessions (KIP-227): what clients fetch, remembered, so that a fetch names what changed and
//! its answer tells what changed.
//!
//! The rules are those of Kafka's `FetchSession` and `FetchManager`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::state::hash::HashMap;
use ottla_protocol::{ErrorCode, Uuid};

/// No session: an answer that says so is always allowed.
pub(crate) const NO_SESSION: i32 = 0;

/// The epoch of a fetch that begins a session, and that names all it wants.
const INITIAL_EPOCH: i32 = 0;

/// The epoch of a fetch that wants no session, or ends its own.
const FINAL_EPOCH: i32 = -1;

/// How long a session is left alone once it was used, and how old one must be before a larger one
/// may take its place. Kafka: `FetchSession.MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`.
pub(crate) const EVICTION: Duration = Duration::from_mins(2);

/// Partitions that all sessions together may remember, some 100 bytes each.
const PARTITIONS_MAX: usize = 500_000;

/// What a session calls a topic: from version 13 on by its id (KIP-516).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum TopicRef {
    /// By its name.
    Name(Arc<str>),
    /// By its id.
    Id(Uuid),
}

/// A partition as a session knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PartitionRef {
    /// Its topic.
    pub(crate) topic: TopicRef,
    /// Its index.
    pub(crate) index: i32,
}

/// What a client wants of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    /// From which offset.
    pub(crate) offset: i64,
    /// How many bytes at most.
    pub(crate) max_bytes: i32,
    /// The leader epoch that it knows; -1 for none.
    pub(crate) leader_epoch: i32,
}

/// What an answer tells of a partition, beside its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    /// Where committed records end.
    pub(crate) high_watermark: i64,
    /// Where the log starts.
    pub(crate) log_start: i64,
    /// NONE, or what is wrong.
    pub(crate) error: ErrorCode,
    /// Whether there are records for it.
    pub(crate) has_records: bool,
}

/// A fetch, as far as its session is concerned.
#[derive(Debug, Clone)]
pub(crate) struct SessionFetch {
    /// The session that it names.
    pub(crate) id: i32,
    /// Which of the session's fetches it is.
    pub(crate) epoch: i32,
    /// Whether it names topics by their ids.
    pub(crate) by_id: bool,
    /// What it asks for, or asks for anew.
    pub(crate) wants: Vec<(PartitionRef, Want)>,
    /// What it asks for no more.
    pub(crate) forgets: Vec<PartitionRef>,
}

/// What is to be fetched, and what becomes of its session with the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Begun {
    /// In the order in which it is to be read.
    pub(crate) wants: Vec<(PartitionRef, Want)>,
    /// What the answer is to.
    pub(crate) kind: Kind,
}

/// What an answer is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A fetch without a session.
    Sessionless,
    /// One that begins a session: all of it is answered.
    Full,
    /// One in a session: what changed is answered.
    Incremental {
        /// The session.
        id: i32,
        /// The epoch that the session has now.
        epoch: i32,
    },
}

/// The sessions of one broker.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    slots: usize,
    partitions_max: usize,
    sessions: HashMap<i32, Session>,
    /// Partitions of all sessions.
    partitions: usize,
}

#[derive(Debug)]
struct Session {
    by_id: bool,
    /// The epoch of the next fetch.
    epoch: i32,
    created: Instant,
    used: Instant,
    places: HashMap<PartitionRef, u64>,
    /// In the order in which they are read. What had records goes to the end, so that no partition
    /// starves behind a busy one.
    remembered: BTreeMap<u64, Remembered>,
    next_place: u64,
}

#[derive(Debug)]
struct Remembered {
    partition: PartitionRef,
    want: Want,
    high_watermark: i64,
    log_start: i64,
}

impl FetchSessions {
    /// No sessions yet, and so many at most: `max.incremental.fetch.session.cache.slots`.
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots, partitions_max: PARTITIONS_MAX, sessions: HashMap::default(), partitions: 0 }
    }

    /// How many sessions there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether a session has this id.
    pub(crate) fn has(&self, id: i32) -> bool {
        self.sessions.contains_key(&id)
    }

    /// Begins a fetch: what is to be read for it.
    pub(crate) fn begin(&mut self, fetch: SessionFetch, now: Instant) -> Result<Begun, ErrorCode> {
        if matches!(fetch.epoch, INITIAL_EPOCH | FINAL_EPOCH) {
            self.remove(fetch.id);
            let full = fetch.epoch == INITIAL_EPOCH;
            let kind = if full { Kind::Full } else { Kind::Sessionless };
            return Ok(Begun { wants: fetch.wants, kind });
        }
        let session = self.sessions.get_mut(&fetch.id);
        let session = session.ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.epoch != fetch.epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != fetch.by_id {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        let before = session.places.len();
        for (partition, want) in &fetch.wants {
            session.want(partition, *want);
        }
        for partition in &fetch.forgets {
            session.forget(partition);
        }
        let after = session.places.len();
        self.partitions = (self.partitions + after).saturating_sub(before);
        session.used = now;
        session.epoch = next_epoch(session.epoch);
        let epoch = session.epoch;
        if after == 0 {
            // Nothing is left of it.
            self.remove(fetch.id);
            return Ok(Begun { wants: fetch.wants, kind: Kind::Sessionless });
        }
        let wants = session.wants();
        if self.partitions > self.partitions_max {
            // Too much to remember: the client asks for all of it again, and gets no session.
            self.remove(fetch.id);
            return Ok(Begun { wants, kind: Kind::Sessionless });
        }
        Ok(Begun { wants, kind: Kind::Incremental { id: fetch.id, epoch } })
    }

    /// Remembers what was answered in full, under an id that no session has; [`NO_SESSION`] where
    /// there is no room for one more.
    pub(crate) fn create(
        &mut self,
        fresh: i32,
        by_id: bool,
        answered: Vec<(PartitionRef, Want, Told)>,
        now: Instant,
    ) -> i32 {
        let count = answered.len();
        let fits = |sessions: &Self| sessions.partitions + count <= sessions.partitions_max;
        let free = self.sessions.len() < self.slots || self.evict_one(count, now);
        if fresh <= NO_SESSION || self.has(fresh) || !free || !fits(self) {
            return NO_SESSION;
        }
        let mut session = Session {
            by_id,
            epoch: next_epoch(INITIAL_EPOCH),
            created: now,
            used: now,
            places: HashMap::default(),
            remembered: BTreeMap::new(),
            next_place: 0,
        };
        for (partition, want, told) in answered {
            session.want(&partition, want);
            session.note(&partition, told);
        }
        self.partitions += session.places.len();
        self.sessions.insert(fresh, session);
        fresh
    }

    /// What of an answer is to be sent: the partitions of which it tells something new.
    ///
    /// An error if another fetch of the session has come in between.
    pub(crate) fn answer(
        &mut self,
        id: i32,
        epoch: i32,
        found: &[(PartitionRef, Told)],
    ) -> Result<Vec<bool>, ErrorCode> {
        let session = self.sessions.get_mut(&id).filter(|session| session.epoch == epoch);
        let session = session.ok_or(ErrorCode::INVALID_FETCH_SESSION_EPOCH)?;
        let sent = found.iter().map(|(partition, told)| {
            let new = session.note(partition, *told);
            if told.has_records {
                session.move_to_the_end(partition);
            }
            new
        });
        Ok(sent.collect())
    }

    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions = self.partitions.saturating_sub(session.places.len());
        }
    }

    /// Gives a slot free: that of a session that nobody has used for long, or of an old one that is
    /// no larger than the one to come.
    fn evict_one(&mut self, partitions: usize, now: Instant) -> bool {
        let idle = |session: &Session| now.saturating_duration_since(session.used) > EVICTION;
        let stale = self.sessions.iter().min_by_key(|(id, session)| (session.used, **id));
        let stale = stale.filter(|(_, session)| idle(session)).map(|(id, _)| *id);
        let old = |session: &Session| now.saturating_duration_since(session.created) > EVICTION;
        let smallest = || {
            let old = self.sessions.iter().filter(|(_, session)| old(session));
            let smallest = old.min_by_key(|(id, session)| (session.places.len(), **id));
            smallest.filter(|(_, one)| one.places.len() <= partitions).map(|(id, _)| *id)
        };
        match stale.or_else(smallest) {
            Some(id) => {
                self.remove(id);
                true
            }
            None => false,
        }
    }
}

/// Epochs of a session count from 1 and never become what begins or ends one.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

impl Session {
    fn want(&mut self, partition: &PartitionRef, want: Want) {
        let known = self.places.get(partition).and_then(|place| self.remembered.get_mut(place));
        if let Some(known) = known {
            known.want = want;
            return;
        }
        let partition = partition.clone();
        // Nothing was told of it yet.
        let new = Remembered { partition, want, high_watermark: -1, log_start: -1 };
        self.put_last(new);
    }

    fn put_last(&mut self, remembered: Remembered) {
        self.places.insert(remembered.partition.clone(), self.next_place);
        self.remembered.insert(self.next_place, remembered);
        self.next_place += 1;
    }

    fn forget(&mut self, partition: &PartitionRef) {
        if let Some(place) = self.places.remove(partition) {
            self.remembered.remove(&place);
        }
    }

    fn move_to_the_end(&mut self, partition: &PartitionRef) {
        let place = self.places.get(partition);
        if let Some(remembered) = place.and_then(|place| self.remembered.remove(place)) {
            self.put_last(remembered);
        }
    }

    fn wants(&self) -> Vec<(PartitionRef, Want)> {
        self.remembered.values().map(|one| (one.partition.clone(), one.want)).collect()
    }

    /// Remembers what the client is told; true if any of it is new.
    fn note(&mut self, partition: &PartitionRef, told: Told) -> bool {
        let known = self.places.get(partition).and_then(|place| self.remembered.get_mut(place));
        let Some(known) = known else { return true };
        let new = told.has_records
            || told.error != ErrorCode::NONE
            || known.high_watermark != told.high_watermark
            || known.log_start != told.log_start;
        known.log_start = told.log_start;
        // When an error is over the client must be told, whatever it knew before.
        let failed = told.error != ErrorCode::NONE;
        known.high_watermark = if failed { -1 } else { told.high_watermark };
        new
    }
}
