//! Errors that a broker may answer with, in the place of an answer or of what was asked.

use ottla_protocol::frame::{RequestHeader, decode_request, decode_response, encode_response};
use ottla_protocol::messages::init_producer_id_response::InitProducerIdResponse;
use ottla_protocol::messages::metadata_response::MetadataResponse;
use ottla_protocol::messages::produce_request::ProduceRequest;
use ottla_protocol::messages::produce_response::{
    PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use ottla_protocol::{ApiKey, ErrorCode, Reader, Response, Writer};

use super::dice::Dice;

/// A request on its way, as far as the network must know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) api: ApiKey,
    version: i16,
    correlation_id: i32,
    pub(crate) is_answered: bool,
}

/// Nothing was done, and it may be asked again.
const PRODUCE_REFUSED: &[ErrorCode] = &[
    ErrorCode::NOT_LEADER_OR_FOLLOWER,
    ErrorCode::NOT_ENOUGH_REPLICAS,
    ErrorCode::LEADER_NOT_AVAILABLE,
    ErrorCode::KAFKA_STORAGE_ERROR,
    ErrorCode::CORRUPT_MESSAGE,
    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode::REQUEST_TIMED_OUT,
];
/// The leader has the records, and does not vouch for them.
const PRODUCE_UNSURE: &[ErrorCode] = &[
    ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode::REQUEST_TIMED_OUT,
    ErrorCode::NOT_LEADER_OR_FOLLOWER,
];
const ID_REFUSED: &[ErrorCode] = &[
    ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode::COORDINATOR_NOT_AVAILABLE,
    ErrorCode::NOT_COORDINATOR,
    ErrorCode::CONCURRENT_TRANSACTIONS,
    ErrorCode::REQUEST_TIMED_OUT,
];
const TOPIC_ERRORS: &[ErrorCode] =
    &[ErrorCode::LEADER_NOT_AVAILABLE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION];

impl Asked {
    /// Reads a request's header, and of a Produce whether it has an answer.
    pub(crate) fn read(frame: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader).map_err(|error| error.to_string())?;
        let api = ApiKey::try_from(header.api_key).map_err(|_| "an unknown API".to_owned())?;
        let mut asked = Self {
            api,
            version: header.api_version,
            correlation_id: header.correlation_id,
            is_answered: true,
        };
        if api == ApiKey::Produce {
            let request = decode_request::<ProduceRequest<'_>>(frame);
            asked.is_answered = request.map_err(|error| error.to_string())?.1.acks != 0;
        }
        Ok(asked)
    }

    /// Its API's name.
    pub(crate) fn name(self) -> &'static str {
        match self.api {
            ApiKey::Produce => "Produce",
            ApiKey::Fetch => "Fetch",
            ApiKey::Metadata => "Metadata",
            ApiKey::InitProducerId => "InitProducerId",
            ApiKey::ApiVersions => "ApiVersions",
            _ => "another request",
        }
    }

    /// The answer to a request that is not done; none if it has none that would be true.
    pub(crate) fn refused(self, frame: &[u8], dice: &mut Dice) -> Option<Vec<u8>> {
        match self.api {
            ApiKey::Produce if self.is_answered => {
                let (_, request) = decode_request::<ProduceRequest<'_>>(frame).ok()?;
                let code = dice.pick(PRODUCE_REFUSED);
                let topics = request.topic_data.iter().map(|topic| TopicProduceResponse {
                    name: topic.name,
                    topic_id: topic.topic_id,
                    partition_responses: topic
                        .partition_data
                        .iter()
                        .map(|partition| failed(partition.index, code))
                        .collect(),
                });
                let responses = topics.collect();
                self.write(&ProduceResponse { responses, ..ProduceResponse::default() })
            }
            ApiKey::InitProducerId => self.write(&InitProducerIdResponse {
                error_code: dice.pick(ID_REFUSED),
                producer_id: -1,
                producer_epoch: -1,
                ..InitProducerIdResponse::default()
            }),
            _ => None,
        }
    }

    /// Whether [`Self::altered`] knows how.
    pub(crate) const fn can_be_altered(self) -> bool {
        matches!(self.api, ApiKey::Produce | ApiKey::Metadata) && self.is_answered
    }

    /// The broker's answer with errors in some places.
    pub(crate) fn altered(self, answer: &[u8], dice: &mut Dice) -> Option<Vec<u8>> {
        let frame = answer.get(4..)?;
        match self.api {
            ApiKey::Produce => {
                let (_, mut response) =
                    decode_response::<ProduceResponse<'_>>(frame, self.version).ok()?;
                let code = dice.pick(PRODUCE_UNSURE);
                for topic in &mut response.responses {
                    for partition in &mut topic.partition_responses {
                        if dice.flip() {
                            *partition = failed(partition.index, code);
                        }
                    }
                }
                self.write(&response)
            }
            ApiKey::Metadata => {
                let (_, mut response) =
                    decode_response::<MetadataResponse<'_>>(frame, self.version).ok()?;
                match dice.between(0, 2) {
                    0 => response.topics.clear(),
                    1 => response.topics.iter_mut().for_each(|topic| {
                        topic.error_code = dice.pick(TOPIC_ERRORS);
                        topic.partitions.clear();
                    }),
                    _ => response.topics.iter_mut().for_each(|topic| {
                        for partition in &mut topic.partitions {
                            partition.error_code = ErrorCode::LEADER_NOT_AVAILABLE;
                            partition.leader_id = -1;
                        }
                    }),
                }
                self.write(&response)
            }
            _ => None,
        }
    }

    fn write<'a, R: Response<'a>>(self, response: &R) -> Option<Vec<u8>> {
        let mut writer = Writer::new();
        encode_response(self.version, self.correlation_id, response, &mut writer).ok()?;
        Some(writer.into_parts().0)
    }
}

fn failed<'a>(index: i32, error_code: ErrorCode) -> PartitionProduceResponse<'a> {
    PartitionProduceResponse {
        index,
        error_code,
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        ..PartitionProduceResponse::default()
    }
}
