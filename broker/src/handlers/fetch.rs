//! Fetch: reads below the high watermark, and waits for more where the client asks for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::messages::fetch_response as answer;
use ottla_protocol::messages::{FetchRequest, FetchResponse};
use ottla_protocol::{ErrorCode, Records, Uuid};
use ottla_storage::{ReadError, ReadRange};

use crate::driver::first::{First, first};
use crate::driver::partition::{FetchWake, Partition};
use crate::node::Node;
use crate::server::hangup::Hangup;
use crate::server::outbox::Reply;
use crate::state::waiting::FetchToken;

/// From this version on topics have ids and no names (KIP-516).
const IDS_FROM: i16 = 13;

/// The isolation level at which a client sees committed transactions only.
const READ_COMMITTED: i8 = 1;

/// Answers if there is enough to read, an error to tell, or no time to wait; else gives the fetch
/// back, which then no longer needs its request.
pub(crate) fn handle(
    node: &Arc<Node>,
    version: i16,
    request: &FetchRequest<'_>,
    reply: Reply,
) -> Option<WaitingFetch> {
    // We never open a session (KIP-227), so a session's id is one of another life of this broker.
    if request.session_id != 0 {
        let error_code = ErrorCode::FETCH_SESSION_ID_NOT_FOUND;
        reply.answer(&FetchResponse { error_code, ..FetchResponse::default() });
        return None;
    }
    let (topics, wanted) = asked(node, version, request);
    let limits = Limits {
        min_bytes: usize::try_from(request.min_bytes).unwrap_or(0),
        max_bytes: usize::try_from(request.max_bytes)
            .unwrap_or(0)
            .min(node.settings.fetch_max_bytes),
    };
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let found = read(&wanted, limits);
    let committed = request.isolation_level == READ_COMMITTED;
    let fetch = Fetch { topics, wanted, committed, reply };
    if found.is_enough(limits) || wait.is_zero() || fetch.wanted.is_empty() {
        fetch.send(found);
        return None;
    }
    Some(WaitingFetch { fetch, limits, deadline: node.clock.now() + wait, found })
}

/// A fetch that found too little.
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
            First::B(()) => read(wanted, limits),
        };
        fetch.send(found);
    }
}

/// What a fetch asks for and how it is answered.
struct Fetch {
    topics: Vec<Asked>,
    wanted: Vec<Wanted>,
    /// The client sees committed transactions only.
    committed: bool,
    reply: Reply,
}

/// A topic as it was asked for, and how many of the wanted partitions are its.
struct Asked {
    name: Arc<str>,
    id: Uuid,
    partitions: usize,
}

/// How much a fetch may wait for and take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    min_bytes: usize,
    max_bytes: usize,
}

/// One partition of a request.
struct Wanted {
    partition: Result<Arc<Partition>, ErrorCode>,
    index: i32,
    offset: i64,
    max_bytes: usize,
}

/// What one partition had.
struct Found {
    error: ErrorCode,
    high_watermark: i64,
    log_start: i64,
    range: Option<ReadRange>,
}

/// What all of them had.
struct AllFound {
    parts: Vec<Found>,
    bytes: usize,
    failed: bool,
}

impl AllFound {
    fn is_enough(&self, limits: Limits) -> bool {
        self.failed || self.bytes >= limits.min_bytes
    }
}

fn asked(node: &Node, version: i16, request: &FetchRequest<'_>) -> (Vec<Asked>, Vec<Wanted>) {
    let known = node.topics.load();
    let mut topics = Vec::with_capacity(request.topics.len());
    let mut wanted = Vec::new();
    for asked in &request.topics {
        let topic = if version >= IDS_FROM {
            known.of_id(asked.topic_id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)
        } else {
            known.named(asked.topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
        };
        topics.push(Asked {
            name: topic.map_or_else(|_| Arc::from(asked.topic), |topic| topic.name.clone()),
            id: asked.topic_id,
            partitions: asked.partitions.len(),
        });
        for part in &asked.partitions {
            let partition = topic.and_then(|topic| {
                let partition = topic.partition(part.partition);
                let partition = partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
                check_epoch(part.current_leader_epoch, partition.leader_epoch())?;
                Ok(partition.clone())
            });
            wanted.push(Wanted {
                partition,
                index: part.partition,
                offset: part.fetch_offset,
                max_bytes: usize::try_from(part.partition_max_bytes).unwrap_or(0),
            });
        }
    }
    (topics, wanted)
}

/// Whether the client knows the leader that we are (KIP-320).
pub(super) fn check_epoch(known: i32, ours: i32) -> Result<(), ErrorCode> {
    match known {
        -1 => Ok(()),
        known if known < ours => Err(ErrorCode::FENCED_LEADER_EPOCH),
        known if known > ours => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
        _ => Ok(()),
    }
}

fn read(wanted: &[Wanted], limits: Limits) -> AllFound {
    let mut all = AllFound { parts: Vec::with_capacity(wanted.len()), bytes: 0, failed: false };
    for part in wanted {
        let left = limits.max_bytes.saturating_sub(all.bytes);
        // KIP-74: the first batch of an answer comes whole whatever its size, or a consumer with
        // small limits would never get past it.
        let found = read_one(part, left, all.bytes == 0);
        all.failed |= found.error != ErrorCode::NONE;
        all.bytes += found.range.as_ref().map_or(0, |range| range.len);
        all.parts.push(found);
    }
    all
}

fn read_one(part: &Wanted, left: usize, first_batch_whole: bool) -> Found {
    let failed = |error| Found { error, high_watermark: -1, log_start: -1, range: None };
    let partition = match &part.partition {
        Ok(partition) => partition,
        Err(error) => return failed(*error),
    };
    let log = match partition.log() {
        Ok(log) => log,
        Err(error) => return failed(error.code()),
    };
    // Before the read: what comes later moves the high watermark, and the fetch then reads again.
    let high_watermark = partition.high_watermark();
    let log_start = log.log_start();
    let max_bytes = part.max_bytes.min(left);
    let found = |error, range| Found { error, high_watermark, log_start, range };
    if part.offset > high_watermark || part.offset < log_start {
        return found(ErrorCode::OFFSET_OUT_OF_RANGE, None);
    }
    match log.read(part.offset, max_bytes, high_watermark, first_batch_whole) {
        Ok(range) => found(ErrorCode::NONE, (!range.is_empty()).then_some(range)),
        Err(ReadError::OutOfRange { .. }) => found(ErrorCode::OFFSET_OUT_OF_RANGE, None),
        Err(error) => {
            let (topic, index) = (partition.topic(), partition.index());
            tracing::error!(%topic, index, offset = part.offset, %error, "a fetch cannot read");
            let code = match error {
                ReadError::Corrupt(_) => ErrorCode::CORRUPT_MESSAGE,
                _ => ErrorCode::KAFKA_STORAGE_ERROR,
            };
            found(code, None)
        }
    }
}

/// Reads again whenever a high watermark rises, until there is enough or no more time.
async fn wait_for_more(
    node: &Node,
    wanted: &[Wanted],
    limits: Limits,
    deadline: Instant,
    mut found: AllFound,
) -> AllFound {
    let wake = Arc::new(FetchWake::new());
    loop {
        let parked = Parked::park(wanted, &found, &wake);
        if let Some(parked) = parked {
            let risen = first(wake.notified(), node.stopping());
            let in_time = node.clock.until(deadline, risen).await.is_ok();
            drop(parked);
            found = read(wanted, limits);
            if !in_time || node.is_stopping() || found.is_enough(limits) {
                return found;
            }
        } else {
            found = read(wanted, limits);
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
    fn send(self, found: AllFound) {
        let mut ranges = Vec::new();
        let mut parts = self.wanted.iter().zip(found.parts).map(|(part, found)| {
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
                partition_index: part.index,
                error_code: found.error,
                high_watermark: found.high_watermark,
                // Without transactions nothing is held back.
                last_stable_offset: found.high_watermark,
                log_start_offset: found.log_start,
                aborted_transactions: self.committed.then(Vec::new),
                records,
                ..answer::PartitionData::default()
            }
        });
        let responses = self.topics.iter().map(|asked| answer::FetchableTopicResponse {
            topic: &asked.name,
            topic_id: asked.id,
            partitions: parts.by_ref().take(asked.partitions).collect(),
        });
        let response = FetchResponse { responses: responses.collect(), ..FetchResponse::default() };
        drop(parts);
        self.reply.answer_with(&response, ranges);
    }
}
