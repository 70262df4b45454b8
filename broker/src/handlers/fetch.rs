//! Fetch: reads below the high watermark, and waits for more where the client asks for it.

mod read;
#[cfg(test)]
mod tests;

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use ottla_protocol::messages::fetch_response as answer;
use ottla_protocol::messages::{FetchRequest, FetchResponse};
use ottla_protocol::{ErrorCode, Records};
use ottla_storage::Wait;

pub(super) use self::read::check_epoch;
use self::read::{AllFound, Found, Limits, Wanted, read, read_now, resolve};
use crate::driver::first::{First, first};
use crate::driver::folder::random_id;
use crate::driver::partition::{FetchWake, Partition};
use crate::node::Node;
use crate::server::connection::ConnectionInfo;
use crate::server::dispatch::RequestInfo;
use crate::server::hangup::Hangup;
use crate::server::outbox::Reply;
use crate::state::fetch_sessions::{
    FetchSessions, Kind, NO_SESSION, PartitionRef, SessionFetch, TopicRef, Want,
};
use crate::state::waiting::FetchToken;

/// From this version on topics have ids and no names (KIP-516).
const IDS_FROM: i16 = 13;

/// From this version on an answer says who leads where the client did not know (KIP-951).
const LEADERS_FROM: i16 = 16;

/// The isolation level at which a client sees committed transactions only.
const READ_COMMITTED: i8 = 1;

/// Answers if there is enough to read, an error to tell, or no time to wait; else gives the fetch
/// back, which then no longer needs its request.
pub(crate) fn handle(
    node: &Arc<Node>,
    info: RequestInfo<'_>,
    request: &FetchRequest<'_>,
    reply: Reply,
) -> Option<WaitingFetch> {
    let by_id = info.version >= IDS_FROM;
    let now = node.clock.now();
    let begun = match sessions(node).begin(session_fetch(request, by_id), now) {
        Ok(begun) => begun,
        Err(error_code) => {
            reply.answer(&FetchResponse { error_code, ..FetchResponse::default() });
            return None;
        }
    };
    let wanted = resolve(node, begun.wants);
    let replica_id = request.replica_id.max(request.replica_state.replica_id);
    let limits = Limits {
        // As in Kafka, other ids below zero read as consumers do.
        is_follower: replica_id >= 0,
        min_bytes: usize::try_from(request.min_bytes).unwrap_or(0),
        max_bytes: usize::try_from(request.max_bytes)
            .unwrap_or(0)
            .min(node.settings.fetch_max_bytes),
    };
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let found = read_now(&wanted, limits, Wait::No);
    let wanted = Arc::new(wanted);
    let fetch = Fetch {
        wanted,
        kind: begun.kind,
        by_id,
        committed: request.isolation_level == READ_COMMITTED,
        is_follower: limits.is_follower,
        connection: info.connection.clone(),
        reply,
    };
    if !found.cold && (found.is_enough(limits) || wait.is_zero()) {
        fetch.send(node, found);
        return None;
    }
    Some(WaitingFetch { fetch, limits, deadline: now + wait, found })
}

fn sessions(node: &Node) -> MutexGuard<'_, FetchSessions> {
    // After a panic a session may be half changed: clients can do without any of them.
    node.fetch_sessions.lock().unwrap_or_else(|poisoned| {
        node.fetch_sessions.clear_poison();
        let mut sessions = poisoned.into_inner();
        *sessions = FetchSessions::new(node.settings.fetch_session_slots);
        sessions
    })
}

/// What a request says to its session.
fn session_fetch(request: &FetchRequest<'_>, by_id: bool) -> SessionFetch {
    let topic_ref =
        |name: &str, id| if by_id { TopicRef::Id(id) } else { TopicRef::Name(name.into()) };
    let mut wants = Vec::new();
    for asked in &request.topics {
        let topic = topic_ref(asked.topic, asked.topic_id);
        wants.extend(asked.partitions.iter().map(|part| {
            let want = Want {
                offset: part.fetch_offset,
                max_bytes: part.partition_max_bytes,
                leader_epoch: part.current_leader_epoch,
            };
            (PartitionRef { topic: topic.clone(), index: part.partition }, want)
        }));
    }
    let mut forgets = Vec::new();
    for forgotten in &request.forgotten_topics_data {
        let topic = topic_ref(forgotten.topic, forgotten.topic_id);
        let indexes = forgotten.partitions.iter();
        forgets.extend(indexes.map(|index| PartitionRef { topic: topic.clone(), index: *index }));
    }
    SessionFetch { id: request.session_id, epoch: request.session_epoch, by_id, wants, forgets }
}

/// A fetch that found too little, or has to wait for the disk.
pub(crate) struct WaitingFetch {
    fetch: Fetch,
    limits: Limits,
    deadline: Instant,
    found: AllFound,
}

impl WaitingFetch {
    /// Answers once there is enough, or with what there is when the time is over, the broker stops
    /// or the client is gone.
    pub(crate) async fn finish(self, node: &Node, hangup: &Hangup<'_>) {
        let Self { fetch, limits, deadline, found } = self;
        let wanted = &fetch.wanted;
        let waiting = wait_for_more(node, wanted, limits, deadline, found);
        let found = match first(waiting, hangup.noticed()).await {
            First::A(found) => found,
            // Not left unanswered: a client that only sends no more may still read.
            First::B(()) => read(node, wanted, limits).await,
        };
        fetch.send(node, found);
    }
}

/// What a fetch asks for and how it is answered.
struct Fetch {
    wanted: Arc<Vec<Wanted>>,
    /// What it is to its session.
    kind: Kind,
    /// Topics have ids in place of names.
    by_id: bool,
    /// The client sees committed transactions only.
    committed: bool,
    /// The client is another broker, or says so.
    is_follower: bool,
    connection: ConnectionInfo,
    reply: Reply,
}

/// Reads again whenever a high watermark rises, until there is enough or no more time.
async fn wait_for_more(
    node: &Node,
    wanted: &Arc<Vec<Wanted>>,
    limits: Limits,
    deadline: Instant,
    mut found: AllFound,
) -> AllFound {
    if found.cold {
        found = read(node, wanted, limits).await;
        if node.clock.now() >= deadline || found.is_enough(limits) {
            return found;
        }
    }
    let wake = Arc::new(FetchWake::new());
    loop {
        let parked = Parked::park(wanted, &found, &wake);
        if let Some(parked) = parked {
            let risen = first(wake.notified(), node.stopping());
            let in_time = node.clock.until(deadline, risen).await.is_ok();
            drop(parked);
            found = read(node, wanted, limits).await;
            if !in_time || node.is_stopping() || found.is_enough(limits) {
                return found;
            }
        } else {
            found = read(node, wanted, limits).await;
            if node.clock.now() >= deadline || found.is_enough(limits) {
                return found;
            }
        }
    }
}

/// A fetch's places among those who wait; given up when dropped.
struct Parked<'a> {
    places: Vec<(&'a Partition, FetchToken)>,
}

impl<'a> Parked<'a> {
    /// None if a high watermark has risen since the read.
    fn park(wanted: &'a [Wanted], found: &AllFound, wake: &Arc<FetchWake>) -> Option<Self> {
        let mut parked = Self { places: Vec::with_capacity(wanted.len()) };
        for (part, found) in wanted.iter().zip(&found.parts) {
            if let Ok(partition) = &part.partition {
                let token = partition.park_fetch(found.high_watermark, wake)?;
                parked.places.push((partition, token));
            }
        }
        Some(parked)
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        for (partition, token) in &self.places {
            partition.forget_fetch(*token);
        }
    }
}

impl Fetch {
    fn send(self, node: &Node, found: AllFound) {
        let mut parts: Vec<_> = self.wanted.iter().zip(found.parts).collect();
        // As in Kafka, what is not there comes after what is.
        parts.sort_by_key(|(wanted, _)| wanted.partition.is_err());
        let session_id = match self.settle(node, &mut parts) {
            Ok(session_id) => session_id,
            Err((session_id, error_code)) => {
                let refused = FetchResponse { error_code, session_id, ..FetchResponse::default() };
                self.reply.answer(&refused);
                return;
            }
        };
        let (host, port) = self.connection.advertised(node);
        let unsure = |code| {
            matches!(code, ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH)
        };
        let mut response = FetchResponse { session_id, ..FetchResponse::default() };
        let mut ranges = Vec::new();
        let mut last = None;
        for (wanted, found) in parts {
            let error = found.error;
            // As Kafka, which has an empty list where there is no partition.
            let listed = self.committed || wanted.partition.is_err();
            let mut data = partition_data(wanted.asked.index, found, listed, &mut ranges);
            if self.reply.version() >= LEADERS_FROM
                && unsure(error)
                && let Ok(partition) = &wanted.partition
            {
                data.current_leader.leader_id = node.node_id;
                data.current_leader.leader_epoch = partition.leader_epoch();
                // As in Kafka, brokers know each other's addresses.
                if !self.is_follower {
                    response.node_endpoints = vec![answer::NodeEndpoint {
                        node_id: node.node_id,
                        host: &host,
                        port,
                        ..answer::NodeEndpoint::default()
                    }];
                }
            }
            if last != Some(&wanted.asked.topic) {
                response.responses.push(topic_data(&wanted.asked.topic));
                last = Some(&wanted.asked.topic);
            }
            if let Some(topic) = response.responses.last_mut() {
                topic.partitions.push(data);
            }
        }
        self.reply.answer_with(&response, ranges);
    }

    /// Tells the session what is answered, and leaves out what its client knows.
    fn settle(
        &self,
        node: &Node,
        parts: &mut Vec<(&Wanted, Found)>,
    ) -> Result<i32, (i32, ErrorCode)> {
        match self.kind {
            Kind::Sessionless => Ok(NO_SESSION),
            Kind::Full => {
                let answered = parts
                    .iter()
                    .map(|(wanted, found)| (wanted.asked.clone(), wanted.want, found.told()));
                let answered = answered.collect();
                let mut sessions = sessions(node);
                let fresh = fresh_id(&sessions);
                Ok(sessions.create(fresh, self.by_id, answered, node.clock.now()))
            }
            Kind::Incremental { id, epoch } => {
                let told = parts.iter().map(|(wanted, found)| (wanted.asked.clone(), found.told()));
                let told: Vec<_> = told.collect();
                let sent = sessions(node).answer(id, epoch, &told).map_err(|error| (id, error))?;
                let mut sent = sent.into_iter();
                parts.retain(|_| sent.next().unwrap_or(true));
                Ok(id)
            }
        }
    }
}

/// An id that no session has; none if there are no random numbers.
fn fresh_id(sessions: &FetchSessions) -> i32 {
    loop {
        let Ok(random) = random_id() else { return NO_SESSION };
        let [a, b, c, d, ..] = random.0;
        // Ids are above zero.
        let id = i32::from_be_bytes([a & 0x7f, b, c, d]);
        if id != NO_SESSION && !sessions.has(id) {
            return id;
        }
    }
}

fn topic_data(topic: &TopicRef) -> answer::FetchableTopicResponse<'_> {
    let mut data = answer::FetchableTopicResponse::default();
    match topic {
        TopicRef::Name(name) => data.topic = name,
        TopicRef::Id(id) => data.topic_id = *id,
    }
    data
}

fn partition_data(
    index: i32,
    found: Found,
    lists_aborted: bool,
    ranges: &mut Vec<ottla_storage::ReadRange>,
) -> answer::PartitionData<'static> {
    let records = match found.range {
        Some(range) => {
            let records = Records::Detached(range.len);
            ranges.push(range);
            records
        }
        // Old clients take null for a broken answer.
        None => Records::Inline(&[]),
    };
    answer::PartitionData {
        partition_index: index,
        error_code: found.error,
        high_watermark: found.high_watermark,
        // Without transactions nothing is held back.
        last_stable_offset: found.high_watermark,
        log_start_offset: found.log_start,
        aborted_transactions: lists_aborted.then(Vec::new),
        records,
        ..answer::PartitionData::default()
    }
}
