//! Produce: from batches in a frame to the partitions' inboxes, and one answer when all are stored.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, BytesMut};
use ottla_protocol::messages::ProduceRequest;
use ottla_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use ottla_protocol::messages::{ProduceResponse, produce_response as answer};
use ottla_protocol::record::BatchHeader;
use ottla_protocol::{DecodeError, ErrorCode, Uuid};
use ottla_storage::{Accepted, Appended, Incoming, Origin, Rejected, Wait, validate_set};

use crate::driver::aside::aside;
use crate::driver::partition::{Acks, Outcome, Partition, Submission};
use crate::node::{Node, Topic, TopicMap};
use crate::server::budget::Charge;
use crate::server::connection::ConnectionInfo;
use crate::server::dispatch::decode;
use crate::server::inbound::Frame;
use crate::server::outbox::Reply;

/// From this version on topics have ids and no names (KIP-516).
const IDS_FROM: i16 = 13;

/// From this version on an answer says who leads where the client did not know (KIP-951).
const LEADERS_FROM: i16 = 10;

/// Takes a request's batches out of its frame and submits them; gives the request back if it has to
/// wait for the disk.
///
/// An error only for a frame that cannot be decoded; `reply` is dropped with it.
pub(crate) fn handle(
    node: &Arc<Node>,
    connection: &ConnectionInfo,
    frame: Frame,
    body_at: usize,
    reply: Reply,
) -> Result<Option<ToOpen>, DecodeError> {
    submit(node, ToOpen { connection: connection.clone(), frame, body_at, reply }, Wait::No)
}

/// A request to a partition whose log is not open. Those behind it on its connection wait for it,
/// or a producer's batches could change their order.
pub(crate) struct ToOpen {
    connection: ConnectionInfo,
    frame: Frame,
    body_at: usize,
    reply: Reply,
}

impl ToOpen {
    /// Opens the logs and submits the batches, beside the network's threads.
    pub(crate) async fn finish(self, node: &Arc<Node>) -> Result<(), DecodeError> {
        let opening = node.clone();
        let work = move || submit(&opening, self, Wait::Disk).map(|_done| ());
        aside(work).await.unwrap_or_else(|error| {
            // The reply was dropped, which closes the connection.
            tracing::error!(%error, "a produce broke off");
            Ok(())
        })
    }
}

fn submit(node: &Arc<Node>, asked: ToOpen, may: Wait) -> Result<Option<ToOpen>, DecodeError> {
    let ToOpen { connection, frame, body_at, reply } = asked;
    let Frame { bytes, mut charge } = frame;
    let version = reply.version();
    let body = bytes.get(body_at..).unwrap_or_default();
    let request = decode::<ProduceRequest<'_>>(body, version)?;
    if may == Wait::No && has_unopened(node, version, &request) {
        drop(request);
        let frame = Frame { bytes, charge };
        return Ok(Some(ToOpen { connection, frame, body_at, reply }));
    }
    let acks = request.acks;
    let Plan { mut pending, cuts } = plan(node, version, &request, (&bytes, &mut charge));
    let wait = if acks == -1 { Acks::All } else { Acks::Leader };
    pending.silent = acks == 0;
    pending.asked = Some(Asked { node: node.clone(), connection, reply });
    pending.charge = Some(charge);
    pending.open = cuts.len();
    if cuts.is_empty() {
        pending.finish();
        return Ok(None);
    }
    let pending = Arc::new(Mutex::new(pending));
    let mut taken = Taken { rest: bytes, at: 0 };
    for cut in cuts {
        let log_start = cut.partition.log().map_or(-1, ottla_storage::LogReader::log_start);
        let waiting = pending.clone();
        let slot = cut.slot;
        let submission = Submission {
            batches: vec![Incoming {
                bytes: cut.rewritten.unwrap_or_else(|| taken.take(cut.range)),
                header: cut.header,
                origin: Origin::Client,
            }],
            acks: wait,
            done: Box::new(move |outcome| {
                let outcome = PartitionOutcome::of(outcome, log_start);
                waiting.lock().unwrap_or_else(PoisonError::into_inner).settle(slot, outcome);
            }),
        };
        if let Err(refused) = cut.partition.push(submission) {
            refused.finish();
        }
    }
    Ok(None)
}

/// Whether a log has to be opened for this request.
fn has_unopened(node: &Node, version: i16, request: &ProduceRequest<'_>) -> bool {
    let topics = node.topics.load();
    request.topic_data.iter().any(|data| {
        let topic = find_topic(&topics, version, data).ok();
        let sets = data.partition_data.iter();
        let mut partitions = sets.filter_map(|set| topic?.partition(set.index));
        partitions.any(|partition| partition.log_within(Wait::No).is_none())
    })
}

fn find_topic<'a>(
    topics: &'a TopicMap,
    version: i16,
    data: &TopicProduceData<'_>,
) -> Result<&'a Arc<Topic>, ErrorCode> {
    if version >= IDS_FROM {
        topics.of_id(data.topic_id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)
    } else {
        topics.named(data.name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    }
}

/// A valid set of batches and where it lies in the frame.
struct Cut {
    slot: usize,
    partition: Arc<Partition>,
    header: BatchHeader,
    range: Range<usize>,
    /// The batch as it is stored, if that is not as it came.
    rewritten: Option<BytesMut>,
}

struct Plan {
    pending: Pending,
    cuts: Vec<Cut>,
}

/// Judges each partition's set; what fails is settled at once.
fn plan(
    node: &Node,
    version: i16,
    request: &ProduceRequest<'_>,
    (frame, charge): (&[u8], &mut Charge),
) -> Plan {
    let topics = node.topics.load();
    let mut pending = Pending::default();
    let mut cuts = Vec::new();
    let mut held = frame.len();
    for data in &request.topic_data {
        let topic = find_topic(&topics, version, data);
        let first = pending.slots.len();
        for set in &data.partition_data {
            let slot = pending.slots.len();
            let judged = topic
                .map_err(PartitionOutcome::error)
                .and_then(|topic| judge(node, version, request, topic, set))
                .and_then(|judged| charged(judged, &mut held, charge));
            let outcome = match judged {
                Ok((partition, Accepted { header, rewritten })) => {
                    let range = place(frame, set.records.bytes().unwrap_or_default());
                    cuts.push(Cut { slot, partition, header, range, rewritten });
                    None
                }
                Err(outcome) => Some(outcome),
            };
            pending.slots.push(Slot { index: set.index, outcome });
        }
        pending.topics.push(answered_topic(data, topic.ok(), first..pending.slots.len()));
    }
    Plan { pending, cuts }
}

fn answered_topic(
    data: &TopicProduceData<'_>,
    topic: Option<&Arc<Topic>>,
    slots: Range<usize>,
) -> AnsweredTopic {
    let name = topic.map_or_else(|| Arc::from(data.name), |topic| topic.name.clone());
    AnsweredTopic { name, id: data.topic_id, slots }
}

/// Whether a set may be submitted, and to whom.
fn judge(
    node: &Node,
    version: i16,
    request: &ProduceRequest<'_>,
    topic: &Arc<Topic>,
    set: &PartitionProduceData<'_>,
) -> Result<(Arc<Partition>, Accepted), PartitionOutcome> {
    if !matches!(request.acks, -1..=1) {
        return Err(PartitionOutcome::error(ErrorCode::INVALID_REQUIRED_ACKS));
    }
    if topic.internal {
        let message = format!("clients cannot produce to the internal topic {}", topic.name);
        return Err(PartitionOutcome::explained(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    let partition = topic
        .partition(set.index)
        .ok_or_else(|| PartitionOutcome::error(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))?;
    let log = partition
        .log()
        .map_err(|error| PartitionOutcome::explained(error.code(), error.to_string()))?;
    let bytes = set.records.bytes().unwrap_or_default();
    let accepted = validate_set(bytes, &topic.config.rules, version, node.clock.now_ms())
        .map_err(|rejected| PartitionOutcome::rejected(rejected, log.log_start()))?;
    Ok((partition.clone(), accepted))
}

/// A set whose memory is accounted for: a batch in another form stands beside its frame, and a
/// small frame can hold many that grow.
fn charged(
    judged: (Arc<Partition>, Accepted),
    held: &mut usize,
    charge: &mut Charge,
) -> Result<(Arc<Partition>, Accepted), PartitionOutcome> {
    let Some(rewritten) = &judged.1.rewritten else { return Ok(judged) };
    let wanted = held.saturating_add(rewritten.len());
    if charge.try_reach(wanted) {
        *held = wanted;
        return Ok(judged);
    }
    let message = "there is no room now for the batch in the form it is to be stored in; see the \
                   broker's option queued.max.request.bytes";
    // As a full queue in Kafka: to be tried again.
    Err(PartitionOutcome::explained(ErrorCode::REQUEST_TIMED_OUT, message.to_owned()))
}

/// Where a slice of the frame lies in it.
fn place(frame: &[u8], slice: &[u8]) -> Range<usize> {
    let start = slice.as_ptr().addr().saturating_sub(frame.as_ptr().addr());
    start..start + slice.len()
}

/// A frame from whose front pieces are taken without copying.
struct Taken {
    rest: BytesMut,
    /// How much of the frame lies before the rest.
    at: usize,
}

impl Taken {
    fn take(&mut self, range: Range<usize>) -> BytesMut {
        debug_assert!(self.at <= range.start, "sets lie in the frame in the order of the request");
        self.rest.advance((range.start - self.at).min(self.rest.len()));
        self.at = range.end;
        self.rest.split_to(range.len().min(self.rest.len()))
    }
}

/// A request whose sets are not all settled.
#[derive(Default)]
struct Pending {
    topics: Vec<AnsweredTopic>,
    slots: Vec<Slot>,
    open: usize,
    /// acks=0: no answer.
    silent: bool,
    /// None once it was answered.
    asked: Option<Asked>,
    charge: Option<Charge>,
}

/// Who asked, and whom.
struct Asked {
    node: Arc<Node>,
    connection: ConnectionInfo,
    reply: Reply,
}

struct AnsweredTopic {
    name: Arc<str>,
    id: Uuid,
    slots: Range<usize>,
}

struct Slot {
    index: i32,
    outcome: Option<PartitionOutcome>,
}

/// What one partition's part of the answer says.
struct PartitionOutcome {
    error: ErrorCode,
    base_offset: i64,
    append_time: i64,
    log_start: i64,
    message: Option<String>,
    /// The record at fault in its batch.
    record: Option<i32>,
}

impl PartitionOutcome {
    fn error(error: ErrorCode) -> Self {
        Self { error, base_offset: -1, append_time: -1, log_start: -1, message: None, record: None }
    }

    fn explained(error: ErrorCode, message: String) -> Self {
        Self { message: Some(message), ..Self::error(error) }
    }

    /// As Kafka's ReplicaManager: the log's start is told with what the records are refused for,
    /// and not with what says that they never came to be records.
    fn rejected(rejected: Rejected, log_start: i64) -> Self {
        let Rejected { code, message, batch_index } = rejected;
        let unread = [
            ErrorCode::CORRUPT_MESSAGE,
            ErrorCode::MESSAGE_TOO_LARGE,
            ErrorCode::RECORD_LIST_TOO_LARGE,
            ErrorCode::INVALID_TXN_STATE,
        ];
        let log_start = if unread.contains(&code) { -1 } else { log_start };
        Self { record: batch_index, log_start, ..Self::explained(code, message) }
    }

    /// The outcome of a submission of one batch.
    fn of(outcome: Outcome, log_start: i64) -> Self {
        match outcome.map(|results| results.into_iter().next()) {
            Ok(Some(Ok(Appended { base_offset, timestamp, .. }))) => Self {
                base_offset,
                append_time: timestamp,
                log_start,
                ..Self::error(ErrorCode::NONE)
            },
            Ok(Some(Err(rejected))) => Self::rejected(rejected, log_start),
            Ok(None) => Self::error(ErrorCode::UNKNOWN_SERVER_ERROR),
            Err(error) => Self::explained(error.code(), error.to_string()),
        }
    }

    fn answer(&self, index: i32) -> answer::PartitionProduceResponse<'_> {
        let record = self.record.map(|batch_index| answer::BatchIndexAndErrorMessage {
            batch_index,
            batch_index_error_message: self.message.as_deref(),
        });
        answer::PartitionProduceResponse {
            index,
            error_code: self.error,
            base_offset: self.base_offset,
            log_append_time_ms: self.append_time,
            log_start_offset: self.log_start,
            record_errors: record.into_iter().collect(),
            error_message: self.message.as_deref(),
            ..answer::PartitionProduceResponse::default()
        }
    }
}

impl Pending {
    fn settle(&mut self, slot: usize, outcome: PartitionOutcome) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.outcome = Some(outcome);
        }
        self.open -= 1;
        if self.open == 0 {
            self.finish();
        }
    }

    /// Answers, and gives the frame's bytes back to the budget.
    fn finish(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        if self.silent {
            let reply = asked.reply;
            let outcomes = self.slots.iter().filter_map(|slot| slot.outcome.as_ref());
            let failed =
                outcomes.map(|outcome| outcome.error).find(|code| *code != ErrorCode::NONE);
            match failed {
                // Kafka: a closed connection is all that tells an acks=0 producer to look again.
                Some(code) => reply.close(format!("a produce with acks=0 failed: {}", code.name())),
                None => reply.none(),
            }
        } else {
            let outcomes = self.slots.iter().filter_map(|slot| slot.outcome.as_ref());
            let mut errors = outcomes.map(|outcome| outcome.error);
            let unsure = asked.reply.version() >= LEADERS_FROM
                && errors.any(|error| error == ErrorCode::NOT_LEADER_OR_FOLLOWER);
            let advertised = unsure.then(|| asked.connection.advertised(&asked.node));
            let mut response = self.response();
            if let Some((host, port)) = &advertised {
                name_leaders(&asked.node, (host, *port), &mut response);
            }
            asked.reply.answer(&response);
        }
        self.charge = None;
    }

    fn response(&self) -> ProduceResponse<'_> {
        // As Kafka: a topic of which no partition is named is not answered.
        let named = self.topics.iter().filter(|topic| !topic.slots.is_empty());
        let topics = named.map(|topic| {
            let slots = self.slots.get(topic.slots.clone()).unwrap_or_default();
            let settled =
                slots.iter().filter_map(|slot| Some((slot.index, slot.outcome.as_ref()?)));
            answer::TopicProduceResponse {
                name: &topic.name,
                topic_id: topic.id,
                partition_responses: settled
                    .map(|(index, outcome)| outcome.answer(index))
                    .collect(),
            }
        });
        ProduceResponse { responses: topics.collect(), ..ProduceResponse::default() }
    }
}

/// Says who leads the partitions that this answer does not find led here.
fn name_leaders<'a>(node: &Node, (host, port): (&'a str, i32), response: &mut ProduceResponse<'a>) {
    let topics = node.topics.load();
    for topic in &mut response.responses {
        for part in &mut topic.partition_responses {
            if part.error_code != ErrorCode::NOT_LEADER_OR_FOLLOWER {
                continue;
            }
            let known = topics.of_id(topic.topic_id).or_else(|| topics.named(topic.name));
            let Some(partition) = known.and_then(|topic| topic.partition(part.index)) else {
                continue;
            };
            part.current_leader.leader_id = node.node_id;
            part.current_leader.leader_epoch = partition.leader_epoch();
            response.node_endpoints = vec![answer::NodeEndpoint {
                node_id: node.node_id,
                host,
                port,
                ..answer::NodeEndpoint::default()
            }];
        }
    }
}
