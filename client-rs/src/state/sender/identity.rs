//! The producer id: asked for once, and again when its epochs are used up.

use std::time::{Duration, Instant};

use ottla_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use ottla_protocol::messages::init_producer_id_response::InitProducerIdResponse;
use ottla_protocol::{ApiKey, ErrorCode};

use super::queue::Numbering;
use crate::error::{Error, ErrorKind};
use crate::state::backoff::{Backoff, Random};
use crate::state::machine::{Lane, Reply, Request, Target, body};

/// What a person can do whom the cluster gives no producer id (KIP-679).
const NO_RIGHT: &str = "give the producer the right IdempotentWrite on the cluster, or Write on any topic; or set \
     `enable.idempotence` to false";

/// Whether an id may be had another time, after this code.
pub(crate) fn passes(code: ErrorCode) -> bool {
    // Until a broker is up it may answer what is not listed as passing.
    code.is_retriable() || code == ErrorCode::UNKNOWN_SERVER_ERROR
}

/// The producer id, or the way to it.
#[derive(Debug)]
pub(crate) struct Identity {
    state: State,
    backoff: Backoff,
    timeout: Duration,
    failures: u32,
    retry_at: Option<Instant>,
    last_error: Option<Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// None is needed.
    Off,
    Unknown,
    Asked(u64),
    Known {
        producer_id: i64,
        epoch: i16,
    },
}

impl Identity {
    pub(crate) fn new(idempotent: bool, backoff: Backoff, timeout: Duration) -> Self {
        let state = if idempotent { State::Unknown } else { State::Off };
        Self { state, backoff, timeout, failures: 0, retry_at: None, last_error: None }
    }

    /// Whom batches are numbered for.
    pub(crate) const fn numbering(&self) -> Numbering {
        match self.state {
            State::Off => Numbering::Off,
            State::Unknown | State::Asked(_) => Numbering::Unknown,
            State::Known { producer_id, epoch } => Numbering::By { producer_id, epoch },
        }
    }

    /// Why there is none yet.
    pub(crate) const fn last_error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }

    /// The epochs of this one are used up: asks for another.
    pub(crate) fn renew(&mut self) {
        if matches!(self.state, State::Known { .. }) {
            self.state = State::Unknown;
        }
    }

    /// The cluster is another one, where this id may be another producer's: asks for another.
    pub(crate) fn forget(&mut self) {
        if self.state != State::Off {
            self.state = State::Unknown;
        }
    }

    /// The request that is due, if one is; `token` is for its answer.
    pub(crate) fn poll_request(&mut self, token: u64, now: Instant) -> Option<Request> {
        if self.state != State::Unknown || self.retry_at.is_some_and(|at| at > now) {
            return None;
        }
        self.state = State::Asked(token);
        Some(Request {
            to: Target::Any,
            lane: Lane::Rest,
            token,
            timeout: self.timeout,
            body: body(ApiKey::InitProducerId, ApiKey::InitProducerId.served(), |frame| {
                frame.put(&InitProducerIdRequest {
                    transactional_id: None,
                    // Not looked at without a transactional id; Kafka's client sends this.
                    transaction_timeout_ms: i32::MAX,
                    ..InitProducerIdRequest::default()
                })
            }),
        })
    }

    /// When [`Identity::poll_request`] will have something.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at.filter(|_| self.state == State::Unknown)
    }

    /// Whether a token is that of the open request.
    pub(crate) fn is_asked(&self, token: u64) -> bool {
        self.state == State::Asked(token)
    }

    /// What the request was answered; an error if the producer cannot have an id at all.
    pub(crate) fn handle_response(
        &mut self,
        reply: &Reply,
        now: Instant,
        random: &mut Random,
    ) -> Result<(), Error> {
        self.state = State::Unknown;
        let error = match reply {
            Ok(answer) => match answer.decode::<InitProducerIdResponse>() {
                Ok(response)
                    if response.error_code.is_none()
                        && (response.producer_id < 0 || response.producer_epoch < 0) =>
                {
                    let text = "the broker's answer names no producer id";
                    Error::new(ErrorKind::Protocol, text).with_api(ApiKey::InitProducerId)
                }
                Ok(response) if response.error_code.is_none() => {
                    self.failures = 0;
                    self.last_error = None;
                    let (producer_id, epoch) = (response.producer_id, response.producer_epoch);
                    self.state = State::Known { producer_id, epoch };
                    return Ok(());
                }
                Ok(InitProducerIdResponse { error_code: code, .. }) => {
                    let error = Error::from_kafka(code, None).with_api(ApiKey::InitProducerId);
                    if code == ErrorCode::CLUSTER_AUTHORIZATION_FAILED {
                        return Err(error.with_hint(NO_RIGHT));
                    }
                    if !passes(code) {
                        return Err(error);
                    }
                    error
                }
                Err(error) => error,
            },
            Err(fault) if fault.error.kind() == ErrorKind::UnsupportedVersion => {
                let hint = "set `enable.idempotence` to false for this cluster";
                return Err(fault.error.clone().with_hint(hint));
            }
            Err(fault) => fault.error.clone(),
        };
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + self.backoff.pause(self.failures, random));
        self.last_error = Some(error);
        Ok(())
    }
}
