//! Members of a group put out of it: some by their fixed names, or all.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ottla_protocol::messages::describe_groups_request::DescribeGroupsRequest;
use ottla_protocol::messages::describe_groups_response::{
    DescribeGroupsResponse, DescribedGroupMember,
};
use ottla_protocol::messages::leave_group_request::{LeaveGroupRequest, MemberIdentity};
use ottla_protocol::messages::leave_group_response::LeaveGroupResponse;
use ottla_protocol::{ApiKey, ErrorCode};

use super::ask::twice;
use super::groups::to_coordinator;
use super::{Admin, Call, Results};
use crate::error::{Error, ErrorKind};
use crate::promise::Promise;
use crate::state::admin::{Reading, Routes, Verdict, Work};
use crate::state::machine::{Answer, Body, body};

/// The first version of LeaveGroup in which members are named by others (KIP-345).
const MANY_FROM: i16 = 3;
/// What a broker's log has of why members were put out. Kafka: `JoinGroupRequest`.
const REASON_CHARS_MAX: usize = 255;
const REASON: &str = "put out by an admin client";

/// What can be said of a call that puts members out of a group.
#[derive(Debug, Clone, Default)]
pub struct RemoveMembersOptions {
    reason: Option<String>,
}

impl<T: Clone> Call<T, RemoveMembersOptions> {
    /// Why, for the broker's log: 255 characters at most, else `InvalidArgument`. Brokers before
    /// Kafka 3.2 are not told (KIP-800).
    pub fn reason(self, reason: &str) -> Self {
        self.with(|options| options.reason = Some(reason.to_owned()))
    }
}

impl Admin {
    /// Puts members out of a group by their `group.instance.id`, whose sessions go on else for as
    /// long as `session.timeout.ms` after they have ended (KIP-345). The others share out anew.
    ///
    /// `NotFound` for a member that the group does not have, `InvalidArgument` for an empty name and
    /// for one that is named twice. One that still runs is told that it is
    /// none any more, and joins anew.
    pub fn remove_members_from_consumer_group(
        &self,
        group: &str,
        instance_ids: &[&str],
    ) -> Call<Results<String, ()>, RemoveMembersOptions> {
        let ids: Vec<String> = instance_ids.iter().map(|&id| id.to_owned()).collect();
        self.remove(group, Some(ids))
    }

    /// Puts all members out of a group that it has when the call begins. Each has its result by its
    /// `group.instance.id`, or by its member id where it has none; one that has gone by itself
    /// meanwhile is out too.
    ///
    /// Kafka: `removeMembersFromConsumerGroup` without members. One that still runs joins anew.
    pub fn remove_all_members_from_consumer_group(
        &self,
        group: &str,
    ) -> Call<Results<String, ()>, RemoveMembersOptions> {
        self.remove(group, None)
    }

    fn remove(
        &self,
        group: &str,
        instance_ids: Option<Vec<String>>,
    ) -> Call<Results<String, ()>, RemoveMembersOptions> {
        let group: Arc<str> = Arc::from(group);
        Call::new(self, move |options: RemoveMembersOptions| {
            let promise = Promise::new();
            let work = Removal::new(group, instance_ids, options.reason, &promise);
            let work: Box<dyn Work> = Box::new(work);
            (work, promise)
        })
    }
}

/// A member that is to be put out.
#[derive(Debug)]
struct Member {
    /// Empty where the instance id names it.
    id: String,
    instance_id: Option<String>,
    result: Option<Result<(), Error>>,
}

impl Member {
    fn of(row: &DescribedGroupMember<'_>) -> Self {
        let instance_id = row.group_instance_id.map(str::to_owned);
        // Its instance id alone names a static member, also if another has taken its place since.
        let id = if instance_id.is_some() { "" } else { row.member_id };
        Self { id: id.to_owned(), instance_id, result: None }
    }

    fn is(&self, id: &str, instance_id: Option<&str>) -> bool {
        match &self.instance_id {
            Some(own) => instance_id == Some(own),
            None => self.id == id,
        }
    }

    fn name(self) -> String {
        self.instance_id.unwrap_or(self.id)
    }
}

/// The work of it: one item, since the group's coordinator is told all at once.
struct Removal {
    group: Arc<str>,
    /// `None` while the coordinator is still to be asked who they are.
    members: Option<Vec<Member>>,
    /// Whether it was.
    all: bool,
    reason: Arc<str>,
    /// Why it ended, or cannot begin.
    fault: Option<Error>,
    promise: Arc<Promise<Results<String, ()>>>,
}

impl fmt::Debug for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {:?}", self.api(), self.group, self.members)
    }
}

impl Removal {
    fn new(
        group: Arc<str>,
        instance_ids: Option<Vec<String>>,
        reason: Option<String>,
        promise: &Arc<Promise<Results<String, ()>>>,
    ) -> Self {
        let reason = reason.unwrap_or_else(|| REASON.to_owned());
        let chars = reason.chars().count();
        let fault = (chars > REASON_CHARS_MAX).then(|| {
            let text = format!("a reason of {chars} characters: {REASON_CHARS_MAX} at most");
            Error::new(ErrorKind::InvalidArgument, text)
        });
        let all = instance_ids.is_none();
        let (reason, promise) = (Arc::from(reason), Arc::clone(promise));
        Self { group, members: instance_ids.map(named), all, reason, fault, promise }
    }

    /// Who is in the group.
    fn read_members(&mut self, answer: &Answer) -> Result<Reading, Error> {
        let response = answer.decode::<DescribeGroupsResponse<'_>>()?;
        let throttle_ms = response.throttle_time_ms;
        let group = response.groups.iter().find(|row| row.group_id == &*self.group);
        let items = group.map(|group| {
            if group.error_code.is_error() {
                let text = group.error_message.map(str::to_owned);
                return (0, Verdict::Refused(group.error_code, text));
            }
            let members: Vec<Member> = group.members.iter().map(Member::of).collect();
            let verdict = if members.is_empty() { Verdict::Done } else { Verdict::Partly };
            self.members = Some(members);
            (0, verdict)
        });
        Ok(Reading { throttle_ms, items: items.into_iter().collect() })
    }

    /// Who is out.
    fn read_removed(&mut self, answer: &Answer) -> Result<Reading, Error> {
        let response = answer.decode::<LeaveGroupResponse<'_>>()?;
        let throttle_ms = response.throttle_time_ms;
        let members = self.members.as_deref_mut().unwrap_or_default();
        let mut open = members.iter_mut().filter(|member| member.result.is_none());
        if response.error_code == ErrorCode::UNKNOWN_MEMBER_ID {
            // There is no such group.
            open.by_ref().for_each(|member| {
                member.result = Some(outcome(response.error_code, self.all, answer));
            });
        } else if response.error_code.is_error() {
            let refused = Verdict::Refused(response.error_code, None);
            return Ok(Reading { throttle_ms, items: vec![(0, refused)] });
        }
        for row in &response.members {
            let mut open = members.iter_mut().filter(|member| member.result.is_none());
            let named = open.find(|member| member.is(row.member_id, row.group_instance_id));
            if let Some(member) = named {
                member.result = Some(outcome(row.error_code, self.all, answer));
            }
        }
        // Who is not named is told of again.
        let whole = members.iter().all(|member| member.result.is_some());
        let items = whole.then_some((0, Verdict::Done)).into_iter().collect();
        Ok(Reading { throttle_ms, items })
    }
}

/// Members by their fixed names; one without, or named twice, has its result already.
fn named(instance_ids: Vec<String>) -> Vec<Member> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for id in &instance_ids {
        *times.entry(id.clone()).or_default() += 1;
    }
    let member = |id: String| {
        let fault = if id.is_empty() {
            let text = "an empty text is no group.instance.id";
            Some(Error::new(ErrorKind::InvalidArgument, text))
        } else {
            times.get(&id).filter(|&&times| times > 1).map(|_| twice(&id))
        };
        Member { id: String::new(), instance_id: Some(id), result: fault.map(Err) }
    };
    instance_ids.into_iter().map(member).collect()
}

/// What became of a member.
fn outcome(code: ErrorCode, all: bool, answer: &Answer) -> Result<(), Error> {
    match code {
        ErrorCode::NONE => Ok(()),
        // It was there when the call began.
        ErrorCode::UNKNOWN_MEMBER_ID if all => Ok(()),
        ErrorCode::UNKNOWN_MEMBER_ID => {
            let text = "the group has no member of this group.instance.id";
            Err(Error::from_kafka_for_admin(code, Some(text)).with_kind(ErrorKind::NotFound))
        }
        code => Err(Error::from_kafka_for_admin(code, None)),
    }
    .map_err(|error| error.with_api(ApiKey::LeaveGroup).with_broker(&answer.broker))
}

impl Work for Removal {
    fn api(&self) -> ApiKey {
        if self.members.is_some() { ApiKey::LeaveGroup } else { ApiKey::DescribeGroups }
    }

    fn changes(&self) -> bool {
        self.members.is_some()
    }

    fn routes(&mut self) -> Routes {
        let is_open = |member: &Member| member.result.is_none();
        // Of nobody nobody need be asked.
        let asked = self.members.as_ref().is_none_or(|members| members.iter().any(is_open));
        let route = asked.then(|| match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(to_coordinator(&self.group)),
        });
        Routes::Each(route.into_iter().collect())
    }

    fn body(&self, _items: &[usize], _timeout_ms: i32) -> Box<dyn Body> {
        let group = Arc::clone(&self.group);
        let Some(members) = &self.members else {
            return body(ApiKey::DescribeGroups, ApiKey::DescribeGroups.served(), move |frame| {
                frame.put(&DescribeGroupsRequest {
                    groups: vec![&group],
                    include_authorized_operations: false,
                })
            });
        };
        let open = members.iter().filter(|member| member.result.is_none());
        let open = open.map(|member| (member.id.clone(), member.instance_id.clone()));
        let (open, reason): (Vec<_>, _) = (open.collect(), Arc::clone(&self.reason));
        let versions = MANY_FROM..=*ApiKey::LeaveGroup.served().end();
        body(ApiKey::LeaveGroup, versions, move |frame| {
            let members = open.iter().map(|(member_id, instance_id)| MemberIdentity {
                member_id,
                group_instance_id: instance_id.as_deref(),
                reason: Some(&reason),
            });
            frame.put(&LeaveGroupRequest {
                group_id: &group,
                members: members.collect(),
                ..LeaveGroupRequest::default()
            })
        })
    }

    fn read(&mut self, _items: &[usize], answer: &Answer) -> Result<Reading, Error> {
        if self.members.is_some() { self.read_removed(answer) } else { self.read_members(answer) }
    }

    fn fail(&mut self, _item: usize, error: Error) {
        self.fault = Some(error);
    }

    fn finish(self: Box<Self>, fault: Option<Error>) {
        let Self { members, fault: own, promise, .. } = *self;
        let missing = || Error::new(ErrorKind::Internal, "the call ended without a result");
        let fault = fault.or(own).unwrap_or_else(missing);
        let Some(members) = members else { return promise.resolve(Err(fault)) };
        let results = members.into_iter().map(|mut member| {
            let result = member.result.take().unwrap_or_else(|| Err(fault.clone()));
            (member.name(), result)
        });
        promise.resolve(Ok(Results(results.collect())));
    }
}
