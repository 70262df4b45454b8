//! Errors that a broker may answer with, in the place of an answer or of what was asked.

mod refused;

use ottla_protocol::frame::{RequestHeader, decode_request, decode_response, encode_response};
use ottla_protocol::messages::metadata_response::MetadataResponse;
use ottla_protocol::messages::produce_request::ProduceRequest;
use ottla_protocol::messages::produce_response::{PartitionProduceResponse, ProduceResponse};
use ottla_protocol::{ApiKey, ErrorCode, Reader, Response, Writer};

use super::dice::Dice;

/// A request on its way, as far as the network must know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    correlation_id: i32,
    pub(crate) is_answered: bool,
}

use ErrorCode as Code;

/// What a request may be answered with in the place of being done; asked again it may succeed.
const REFUSED: &[(ApiKey, &[ErrorCode])] = &[
    (
        ApiKey::Produce,
        &[
            Code::NOT_LEADER_OR_FOLLOWER,
            Code::NOT_ENOUGH_REPLICAS,
            Code::LEADER_NOT_AVAILABLE,
            Code::KAFKA_STORAGE_ERROR,
            Code::CORRUPT_MESSAGE,
            Code::UNKNOWN_TOPIC_OR_PARTITION,
            Code::UNKNOWN_TOPIC_ID,
            Code::REQUEST_TIMED_OUT,
        ],
    ),
    (
        ApiKey::InitProducerId,
        &[
            Code::COORDINATOR_LOAD_IN_PROGRESS,
            Code::COORDINATOR_NOT_AVAILABLE,
            Code::NOT_COORDINATOR,
            Code::CONCURRENT_TRANSACTIONS,
            Code::REQUEST_TIMED_OUT,
        ],
    ),
    (
        ApiKey::Fetch,
        &[
            Code::NOT_LEADER_OR_FOLLOWER,
            Code::REPLICA_NOT_AVAILABLE,
            Code::LEADER_NOT_AVAILABLE,
            Code::KAFKA_STORAGE_ERROR,
            Code::UNKNOWN_TOPIC_OR_PARTITION,
            Code::UNKNOWN_TOPIC_ID,
            Code::INCONSISTENT_TOPIC_ID,
            Code::OFFSET_NOT_AVAILABLE,
            Code::FENCED_LEADER_EPOCH,
            Code::UNKNOWN_LEADER_EPOCH,
            Code::UNKNOWN_SERVER_ERROR,
            Code::FETCH_SESSION_ID_NOT_FOUND,
            Code::INVALID_FETCH_SESSION_EPOCH,
            Code::FETCH_SESSION_TOPIC_ID_ERROR,
        ],
    ),
    (
        ApiKey::ListOffsets,
        &[
            Code::NOT_LEADER_OR_FOLLOWER,
            Code::REPLICA_NOT_AVAILABLE,
            Code::LEADER_NOT_AVAILABLE,
            Code::KAFKA_STORAGE_ERROR,
            Code::UNKNOWN_TOPIC_OR_PARTITION,
            Code::OFFSET_NOT_AVAILABLE,
            Code::FENCED_LEADER_EPOCH,
            Code::UNKNOWN_LEADER_EPOCH,
            Code::REQUEST_TIMED_OUT,
        ],
    ),
    (
        ApiKey::OffsetForLeaderEpoch,
        &[
            Code::NOT_LEADER_OR_FOLLOWER,
            Code::REPLICA_NOT_AVAILABLE,
            Code::LEADER_NOT_AVAILABLE,
            Code::KAFKA_STORAGE_ERROR,
            Code::UNKNOWN_TOPIC_OR_PARTITION,
            Code::OFFSET_NOT_AVAILABLE,
            Code::FENCED_LEADER_EPOCH,
            Code::UNKNOWN_LEADER_EPOCH,
            Code::UNKNOWN_SERVER_ERROR,
        ],
    ),
    (
        ApiKey::FindCoordinator,
        &[Code::COORDINATOR_NOT_AVAILABLE, Code::COORDINATOR_LOAD_IN_PROGRESS],
    ),
    (
        ApiKey::JoinGroup,
        &[
            Code::COORDINATOR_NOT_AVAILABLE,
            Code::COORDINATOR_LOAD_IN_PROGRESS,
            Code::NOT_COORDINATOR,
            Code::REBALANCE_IN_PROGRESS,
            Code::UNKNOWN_MEMBER_ID,
        ],
    ),
    (
        ApiKey::SyncGroup,
        &[
            Code::COORDINATOR_NOT_AVAILABLE,
            Code::COORDINATOR_LOAD_IN_PROGRESS,
            Code::NOT_COORDINATOR,
            Code::REBALANCE_IN_PROGRESS,
            Code::ILLEGAL_GENERATION,
            Code::UNKNOWN_MEMBER_ID,
        ],
    ),
    (
        ApiKey::Heartbeat,
        &[
            Code::COORDINATOR_NOT_AVAILABLE,
            Code::COORDINATOR_LOAD_IN_PROGRESS,
            Code::NOT_COORDINATOR,
            Code::REBALANCE_IN_PROGRESS,
            Code::ILLEGAL_GENERATION,
            Code::UNKNOWN_MEMBER_ID,
        ],
    ),
    (
        ApiKey::LeaveGroup,
        &[
            Code::COORDINATOR_NOT_AVAILABLE,
            Code::COORDINATOR_LOAD_IN_PROGRESS,
            Code::NOT_COORDINATOR,
        ],
    ),
    (
        ApiKey::OffsetCommit,
        &[
            Code::COORDINATOR_NOT_AVAILABLE,
            Code::COORDINATOR_LOAD_IN_PROGRESS,
            Code::NOT_COORDINATOR,
            Code::REQUEST_TIMED_OUT,
            Code::UNKNOWN_TOPIC_OR_PARTITION,
            Code::UNKNOWN_TOPIC_ID,
            Code::REBALANCE_IN_PROGRESS,
            Code::ILLEGAL_GENERATION,
            Code::UNKNOWN_MEMBER_ID,
        ],
    ),
    (
        ApiKey::OffsetFetch,
        &[
            Code::COORDINATOR_NOT_AVAILABLE,
            Code::COORDINATOR_LOAD_IN_PROGRESS,
            Code::NOT_COORDINATOR,
            Code::UNSTABLE_OFFSET_COMMIT,
            Code::UNKNOWN_TOPIC_ID,
        ],
    ),
];
/// The leader has the records, and does not vouch for them.
const PRODUCE_UNSURE: &[ErrorCode] = &[
    Code::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code::REQUEST_TIMED_OUT,
    Code::NOT_LEADER_OR_FOLLOWER,
];
const TOPIC_ERRORS: &[ErrorCode] = &[Code::LEADER_NOT_AVAILABLE, Code::UNKNOWN_TOPIC_OR_PARTITION];

/// All errors that a set of runs must have answered with.
pub(crate) fn all() -> impl Iterator<Item = String> {
    let refused =
        REFUSED.iter().flat_map(|(api, codes)| codes.iter().map(|code| name(*api, *code)));
    refused.chain([name(ApiKey::Produce, Code::NOT_ENOUGH_REPLICAS_AFTER_APPEND)])
}

/// An error of an API, as it is counted.
pub(crate) fn name(api: ApiKey, code: ErrorCode) -> String {
    format!("{} answers {}", api.name(), code.name())
}

/// The first version of an API in which brokers answer with an error: topics have ids from some
/// version on, and so have fetches a session.
const fn first_with(api: ApiKey, code: ErrorCode) -> i16 {
    match (api, code) {
        (ApiKey::Produce, Code::UNKNOWN_TOPIC_ID)
        | (
            ApiKey::Fetch,
            Code::UNKNOWN_TOPIC_ID
            | Code::INCONSISTENT_TOPIC_ID
            | Code::FETCH_SESSION_TOPIC_ID_ERROR,
        ) => 13,
        (ApiKey::OffsetCommit | ApiKey::OffsetFetch, Code::UNKNOWN_TOPIC_ID) => 10,
        (ApiKey::Fetch, Code::FETCH_SESSION_ID_NOT_FOUND | Code::INVALID_FETCH_SESSION_EPOCH) => 7,
        _ => 0,
    }
}

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

    /// The answer to a request that is not done; none if it has none that would be true.
    pub(crate) fn refused(self, frame: &[u8], dice: &mut Dice) -> Option<(ErrorCode, Vec<u8>)> {
        if !self.is_answered {
            return None;
        }
        let (_, codes) = REFUSED.iter().find(|(api, _)| *api == self.api)?;
        let known = codes.iter().filter(|&&code| self.version >= first_with(self.api, code));
        let known: Vec<ErrorCode> = known.copied().collect();
        let code = dice.pick(&known);
        Some((code, refused::answer(self, frame, code)?))
    }

    /// Whether [`Self::altered`] knows how.
    pub(crate) const fn can_be_altered(self) -> bool {
        matches!(self.api, ApiKey::Produce | ApiKey::Metadata) && self.is_answered
    }

    /// The broker's answer with errors in some places, and the error if it is one.
    pub(crate) fn altered(
        self,
        answer: &[u8],
        dice: &mut Dice,
    ) -> Option<(Option<ErrorCode>, Vec<u8>)> {
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
                Some((Some(code), self.write(&response)?))
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
                Some((None, self.write(&response)?))
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
