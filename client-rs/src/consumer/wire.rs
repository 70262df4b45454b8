//! The consumer's questions and answers as Kafka's messages, in whichever version is agreed on.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use ottla_protocol::messages::find_coordinator_response::FindCoordinatorResponse;
use ottla_protocol::messages::heartbeat_request::HeartbeatRequest;
use ottla_protocol::messages::heartbeat_response::HeartbeatResponse;
use ottla_protocol::messages::join_group_request::{JoinGroupRequest, JoinGroupRequestProtocol};
use ottla_protocol::messages::join_group_response::JoinGroupResponse;
use ottla_protocol::messages::leave_group_request::{LeaveGroupRequest, MemberIdentity};
use ottla_protocol::messages::leave_group_response::LeaveGroupResponse;
use ottla_protocol::messages::sync_group_request::{SyncGroupRequest, SyncGroupRequestAssignment};
use ottla_protocol::messages::sync_group_response::SyncGroupResponse;
use ottla_protocol::{ApiKey, ErrorCode};

use crate::error::{Error, ErrorKind};
use crate::record::TopicPartition;
use crate::state::assignor::{
    self, Assigned, Member, PROTOCOL_TYPE, Share, Strategy, Subscription,
};
use crate::state::coordinator::CoordinatorAnswer;
use crate::state::hash::HashMap;
use crate::state::machine::{Answer, Body, body};
use crate::state::membership::{Holdings, Identity, JoinAnswer, SyncAnswer};

pub(super) mod fetch;
pub(super) mod offsets;

/// Under which names a member speaks to its group.
#[derive(Debug, Clone)]
pub(super) struct GroupNames {
    pub(super) group: Arc<str>,
    pub(super) instance_id: Option<Arc<str>>,
}

/// Coordinators are asked for one kind of thing here: groups.
const KEY_TYPE_GROUP: i8 = 0;

pub(super) fn find_coordinator(names: &GroupNames) -> Box<dyn Body> {
    let group = Arc::clone(&names.group);
    body(ApiKey::FindCoordinator, ApiKey::FindCoordinator.served(), move |frame| {
        let mut request = FindCoordinatorRequest {
            key_type: KEY_TYPE_GROUP,
            ..FindCoordinatorRequest::default()
        };
        if frame.version >= 4 {
            request.coordinator_keys = vec![&group];
        } else {
            request.key = &group;
        }
        frame.put(&request)
    })
}

/// The answer, and where the coordinator listens.
pub(super) fn found_coordinator(
    answer: &Answer,
) -> Result<(CoordinatorAnswer, String, i32), Error> {
    let response = answer.decode::<FindCoordinatorResponse<'_>>()?;
    if answer.version < 4 {
        let found = CoordinatorAnswer { error: response.error_code, node: response.node_id };
        return Ok((found, response.host.to_owned(), response.port));
    }
    let row = response.coordinators.first().ok_or_else(|| {
        Error::new(ErrorKind::Protocol, "the broker's answer names no coordinator")
            .with_api(ApiKey::FindCoordinator)
    })?;
    let found = CoordinatorAnswer { error: row.error_code, node: row.node_id };
    Ok((found, row.host.to_owned(), row.port))
}

/// What a JoinGroup says beside the member's own words.
#[derive(Debug, Clone, Copy)]
pub(super) struct JoinTerms<'a> {
    pub(super) session: Duration,
    pub(super) rebalance: Duration,
    pub(super) strategies: &'a [Strategy],
    /// `client.rack`; empty if not set.
    pub(super) rack: &'a str,
}

pub(super) fn join(
    names: &GroupNames,
    terms: JoinTerms<'_>,
    member_id: String,
    topics: &[Arc<str>],
    holdings: &Holdings,
) -> Result<Box<dyn Body>, Error> {
    let names = names.clone();
    let subscription = Subscription {
        topics,
        owned: &holdings.owned,
        generation: holdings.generation,
        assigned: &holdings.assigned,
        assigned_in: holdings.assigned_in,
        rack: Some(terms.rack).filter(|rack| !rack.is_empty()),
    };
    let mut protocols = Vec::with_capacity(terms.strategies.len());
    for &strategy in terms.strategies {
        let metadata = assignor::encode_subscription(strategy, &subscription);
        protocols.push((strategy.name(), metadata.map_err(unwritable)?));
    }
    let (session, rebalance) = (millis(terms.session), millis(terms.rebalance));
    Ok(body(ApiKey::JoinGroup, versions(ApiKey::JoinGroup, 5, &names), move |frame| {
        let protocols = protocols
            .iter()
            .map(|&(name, ref metadata)| JoinGroupRequestProtocol { name, metadata });
        frame.put(&JoinGroupRequest {
            group_id: &names.group,
            session_timeout_ms: session,
            rebalance_timeout_ms: rebalance,
            member_id: &member_id,
            group_instance_id: names.instance_id.as_deref(),
            protocol_type: PROTOCOL_TYPE,
            protocols: protocols.collect(),
            ..JoinGroupRequest::default()
        })
    }))
}

/// The answer; the group must have chosen one of the strategies that were offered.
pub(super) fn joined(answer: &Answer, strategies: &[Strategy]) -> Result<JoinAnswer, Error> {
    let response = answer.decode::<JoinGroupResponse<'_>>()?;
    let mut error = response.error_code;
    let chosen = response.protocol_name.and_then(Strategy::from_name);
    let chosen = chosen.filter(|chosen| strategies.contains(chosen));
    if error.is_none() && chosen.is_none() {
        error = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
    }
    // Without one there is an error, and no member to read.
    let strategy = chosen.unwrap_or(Strategy::Range);
    let mut members = Vec::with_capacity(response.members.len());
    for member in &response.members {
        let told = assignor::decode_subscription(strategy, member.metadata).map_err(|fault| {
            let text = format!("what member {} subscribes to cannot be read", member.member_id);
            Error::new(ErrorKind::Protocol, text).with_source(fault)
        })?;
        members.push(Member {
            id: member.member_id.to_owned(),
            instance_id: member.group_instance_id.map(str::to_owned),
            topics: told.topics,
            owned: told.owned,
            generation: told.generation,
            rack: told.rack,
        });
    }
    Ok(JoinAnswer {
        error,
        identity: Identity {
            member_id: response.member_id.to_owned(),
            generation: response.generation_id,
        },
        strategy,
        leader: response.leader.to_owned(),
        skip_assignment: response.skip_assignment,
        members,
    })
}

pub(super) fn sync(
    names: &GroupNames,
    identity: Identity,
    strategy: Strategy,
    shares: &[Share],
) -> Result<Box<dyn Body>, Error> {
    let names = names.clone();
    let mut assignments = Vec::with_capacity(shares.len());
    for share in shares {
        let bytes = assignor::encode_assignment(share).map_err(unwritable)?;
        assignments.push((share.member_id.clone(), bytes));
    }
    Ok(body(ApiKey::SyncGroup, versions(ApiKey::SyncGroup, 3, &names), move |frame| {
        let assignments = assignments
            .iter()
            .map(|(member_id, assignment)| SyncGroupRequestAssignment { member_id, assignment });
        frame.put(&SyncGroupRequest {
            group_id: &names.group,
            generation_id: identity.generation,
            member_id: &identity.member_id,
            group_instance_id: names.instance_id.as_deref(),
            protocol_type: Some(PROTOCOL_TYPE),
            protocol_name: Some(strategy.name()),
            assignments: assignments.collect(),
        })
    }))
}

pub(super) fn synced(answer: &Answer) -> Result<SyncAnswer, Error> {
    let response = answer.decode::<SyncGroupResponse<'_>>()?;
    let assigned = if response.error_code.is_none() {
        assignor::decode_assignment(response.assignment).map_err(|fault| {
            Error::new(ErrorKind::Protocol, "the assignment cannot be read").with_source(fault)
        })?
    } else {
        Assigned::default()
    };
    Ok(SyncAnswer { error: response.error_code, assigned })
}

pub(super) fn heartbeat(names: &GroupNames, identity: Identity) -> Box<dyn Body> {
    let names = names.clone();
    body(ApiKey::Heartbeat, versions(ApiKey::Heartbeat, 3, &names), move |frame| {
        frame.put(&HeartbeatRequest {
            group_id: &names.group,
            generation_id: identity.generation,
            member_id: &identity.member_id,
            group_instance_id: names.instance_id.as_deref(),
        })
    })
}

pub(super) fn heard(answer: &Answer) -> Result<ErrorCode, Error> {
    Ok(answer.decode::<HeartbeatResponse>()?.error_code)
}

pub(super) fn leave(names: &GroupNames, member_id: String) -> Box<dyn Body> {
    let names = names.clone();
    body(ApiKey::LeaveGroup, ApiKey::LeaveGroup.served(), move |frame| {
        let mut request =
            LeaveGroupRequest { group_id: &names.group, ..LeaveGroupRequest::default() };
        if frame.version >= 3 {
            let member_id = member_id.as_str();
            request.members = vec![MemberIdentity { member_id, ..MemberIdentity::default() }];
        } else {
            request.member_id = &member_id;
        }
        frame.put(&request)
    })
}

/// What became of the member's wish to leave.
pub(super) fn left(answer: &Answer) -> Result<ErrorCode, Error> {
    let response = answer.decode::<LeaveGroupResponse<'_>>()?;
    let own = response.members.iter().map(|member| member.error_code);
    let mut codes = std::iter::once(response.error_code).chain(own);
    Ok(codes.find(|code| code.is_error()).unwrap_or(ErrorCode::NONE))
}

/// A static member needs a version that carries its instance id (KIP-345).
fn versions(key: ApiKey, with_instance: i16, names: &GroupNames) -> std::ops::RangeInclusive<i16> {
    let served = key.served();
    if names.instance_id.is_some() { with_instance..=*served.end() } else { served }
}

fn unwritable(fault: ottla_protocol::EncodeError) -> Error {
    Error::new(ErrorKind::Internal, "the group's metadata cannot be written").with_source(fault)
}

/// Whole milliseconds, as requests count them.
pub(super) fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// A topic, and what belongs to each of its partitions.
pub(super) type OfTopic<T> = (Arc<str>, Vec<(i32, T)>);

/// What belongs to one topic each, topics and partitions in the order in which they first come.
pub(super) fn by_topic<T>(items: impl IntoIterator<Item = (TopicPartition, T)>) -> Vec<OfTopic<T>> {
    let mut topics: Vec<OfTopic<T>> = Vec::new();
    let mut places: HashMap<Arc<str>, usize> = HashMap::default();
    for (partition, item) in items {
        let place = *places.entry(Arc::clone(&partition.topic)).or_insert_with(|| {
            topics.push((Arc::clone(&partition.topic), Vec::new()));
            topics.len() - 1
        });
        if let Some((_, rows)) = topics.get_mut(place) {
            rows.push((partition.partition, item));
        }
    }
    topics
}
