//! Produce requests: what goes out, and what each batch is answered.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use ottla_protocol::messages::produce_response::{PartitionProduceResponse, ProduceResponse};
use ottla_protocol::{ApiKey, EncodeError, Records, Uuid};

use super::verdict::{self, Verdict};
use crate::error::{Error, ErrorKind};
use crate::state::machine::{Body, Frame};

/// The first version that names topics by their ids (KIP-516).
const BY_ID: i16 = 13;

/// A batch in a request.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) topic: Arc<str>,
    pub(crate) topic_id: Uuid,
    pub(crate) partition: i32,
    /// Number of the batch.
    pub(crate) batch: u64,
    /// The sending machine's number of the partition.
    pub(crate) key: usize,
}

/// A Produce request.
#[derive(Debug)]
pub(crate) struct ProduceBody {
    acks: i16,
    timeout_ms: i32,
    /// Sorted by topic.
    parts: Vec<(Arc<str>, Uuid, i32)>,
    pieces: Vec<Vec<Bytes>>,
}

impl ProduceBody {
    /// Of parts that are sorted by topic, with the bytes of each.
    pub(crate) fn new(acks: i16, timeout_ms: i32, parts: &[Part], pieces: Vec<Vec<Bytes>>) -> Self {
        let parts =
            parts.iter().map(|part| (Arc::clone(&part.topic), part.topic_id, part.partition));
        Self { acks, timeout_ms, parts: parts.collect(), pieces }
    }
}

impl Body for ProduceBody {
    fn key(&self) -> ApiKey {
        ApiKey::Produce
    }

    fn versions(&self) -> RangeInclusive<i16> {
        let (min, max) = (*ApiKey::Produce.served().start(), *ApiKey::Produce.served().end());
        // A cluster that mixes old and new brokers does not tell the id of each topic.
        let named = self.parts.iter().any(|(_, id, _)| id.is_zero());
        min..=if named { max.min(BY_ID - 1) } else { max }
    }

    fn encode(&self, frame: &mut Frame<'_>) -> Result<(), EncodeError> {
        let by_id = frame.version >= BY_ID;
        let mut topics: Vec<TopicProduceData<'_>> = Vec::new();
        let mut last: Option<&Arc<str>> = None;
        for ((topic, topic_id, index), pieces) in self.parts.iter().zip(&self.pieces) {
            if last != Some(topic) {
                topics.push(TopicProduceData {
                    name: if by_id { "" } else { topic },
                    topic_id: if by_id { *topic_id } else { Uuid::ZERO },
                    partition_data: Vec::new(),
                });
                last = Some(topic);
            }
            if let Some(topic) = topics.last_mut() {
                let len = pieces.iter().map(Bytes::len).sum();
                let records = Records::Detached(len);
                topic.partition_data.push(PartitionProduceData { index: *index, records });
            }
        }
        frame.put(&ProduceRequest {
            transactional_id: None,
            acks: self.acks,
            timeout_ms: self.timeout_ms,
            topic_data: topics,
        })
    }

    fn detached(&self, cut: usize) -> &[Bytes] {
        self.pieces.get(cut).map_or(&[], Vec::as_slice)
    }

    fn is_answered(&self) -> bool {
        self.acks != 0
    }
}

/// The answer for one part; `hint` is the place where it is expected.
pub(crate) fn find<'a, 'b>(
    response: &'a ProduceResponse<'b>,
    part: &Part,
    hint: &mut (usize, usize),
) -> Option<&'a PartitionProduceResponse<'b>> {
    // Brokers answer in the order asked, so the next one is nearly always the one.
    if let Some(found) = next(response, part, hint) {
        return Some(found);
    }
    let mut topics = response.responses.iter();
    let topic = topics.find(|topic| names(topic.name, topic.topic_id, part))?;
    topic.partition_responses.iter().find(|found| found.index == part.partition)
}

fn next<'a, 'b>(
    response: &'a ProduceResponse<'b>,
    part: &Part,
    hint: &mut (usize, usize),
) -> Option<&'a PartitionProduceResponse<'b>> {
    let mut topic = response.responses.get(hint.0)?;
    if hint.1 >= topic.partition_responses.len() {
        *hint = (hint.0 + 1, 0);
        topic = response.responses.get(hint.0)?;
    }
    let found = topic.partition_responses.get(hint.1)?;
    hint.1 += 1;
    let same = names(topic.name, topic.topic_id, part) && found.index == part.partition;
    same.then_some(found)
}

fn names(name: &str, id: Uuid, part: &Part) -> bool {
    if id.is_zero() { *name == *part.topic } else { id == part.topic_id }
}

/// What an answer means for its batch.
pub(crate) fn verdict(part: &Part, answer: Option<&PartitionProduceResponse<'_>>) -> Verdict {
    let Some(answer) = answer else {
        let text = "the broker's answer does not name the partition";
        let error = Error::new(ErrorKind::Protocol, text)
            .with_topic(&part.topic)
            .with_partition(part.partition)
            .with_api(ApiKey::Produce);
        return Verdict::Lost { error, written: true };
    };
    if answer.error_code.is_none() {
        return Verdict::Stored {
            base_offset: answer.base_offset,
            append_time: answer.log_append_time_ms,
        };
    }
    let of_record = answer.record_errors.first();
    let text = of_record.and_then(|record| record.batch_index_error_message);
    let error = Error::from_kafka(answer.error_code, text.or(answer.error_message))
        .with_topic(&part.topic)
        .with_partition(part.partition)
        .with_api(ApiKey::Produce);
    verdict::of_code(answer.error_code, error)
}
