//! Groups: listed, described, deleted.

use std::sync::Arc;

use ottla_protocol::ApiKey;
use ottla_protocol::messages::delete_groups_request::DeleteGroupsRequest;
use ottla_protocol::messages::delete_groups_response::DeleteGroupsResponse;
use ottla_protocol::messages::describe_groups_request::DescribeGroupsRequest;
use ottla_protocol::messages::describe_groups_response::{
    DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};
use ottla_protocol::messages::list_groups_request::ListGroupsRequest;
use ottla_protocol::messages::list_groups_response::ListGroupsResponse;

use super::ask::{Ask, outcome};
use super::{Admin, Call, Results};
use crate::error::Error;
use crate::promise::Promise;
use crate::record::TopicPartition;
use crate::state::admin::Route;
use crate::state::assignor::{Assigned, PROTOCOL_TYPE, decode_assignment};
use crate::state::machine::body;

/// The first version of ListGroups that knows states (KIP-518).
const STATES_FROM: i16 = 4;
/// The first version of ListGroups that knows types (KIP-848).
const TYPES_FROM: i16 = 5;

/// A group as it stands in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupListing {
    /// Its id.
    pub group_id: String,
    /// What its members are: `consumer`, or another word; empty if it only has offsets.
    pub protocol_type: String,
    /// `Stable`, `Empty`, `PreparingRebalance`, …; empty if the broker is too old to tell.
    pub group_state: String,
    /// `classic`, `consumer`, …; empty if the broker is too old to tell.
    pub group_type: String,
}

/// The groups of a cluster, as far as its brokers answered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GroupListings {
    /// The groups of the brokers that answered, by id.
    pub valid: Vec<GroupListing>,
    /// What became of the other brokers: their ids, and why there is no answer.
    pub errors: Vec<(i32, Error)>,
}

impl GroupListings {
    /// All groups, or the first error.
    pub fn all(self) -> Result<Vec<GroupListing>, Error> {
        match self.errors.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(self.valid),
        }
    }
}

/// What can be said of a call that lists groups.
#[derive(Debug, Clone, Default)]
pub struct ListGroupsOptions {
    states: Vec<String>,
    types: Vec<String>,
}

impl<T: Clone> Call<T, ListGroupsOptions> {
    /// Only groups in one of these states. Default: in any. Kafka: `inGroupStates`.
    pub fn in_states(self, states: &[&str]) -> Self {
        self.with(|options| options.states = states.iter().map(|&one| one.to_owned()).collect())
    }

    /// Only groups of one of these types. Default: of any. Kafka: `withTypes`.
    pub fn with_types(self, types: &[&str]) -> Self {
        self.with(|options| options.types = types.iter().map(|&one| one.to_owned()).collect())
    }
}

/// A group whose members share out partitions by the classic protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassicGroupDescription {
    /// Its id.
    pub group_id: String,
    /// What its members are: `consumer`, or another word; empty if it only has offsets.
    pub protocol: String,
    /// How they share: the name of an assignor; empty while they have not agreed.
    pub protocol_data: String,
    /// `Stable`, `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Dead`.
    pub state: String,
    /// Its members.
    pub members: Vec<MemberDescription>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberDescription {
    /// Its id, given by the coordinator.
    pub member_id: String,
    /// Its fixed name, if it has one (KIP-345).
    pub group_instance_id: Option<String>,
    /// Its `client.id`.
    pub client_id: String,
    /// Where it connected from.
    pub host: String,
    /// The partitions that are its own; empty if the group is not one of consumers.
    pub assignment: Vec<TopicPartition>,
}

impl Admin {
    /// The groups of all brokers, those that only have offsets too.
    pub fn list_groups(&self) -> Call<GroupListings, ListGroupsOptions> {
        Call::new(self, move |options: ListGroupsOptions| {
            let promise: Arc<Promise<GroupListings>> = Promise::new();
            let to = Arc::clone(&promise);
            let work = list(options).into_work_with(move |ended| {
                to.resolve(ended.map(GroupListings::of));
            });
            (work, promise)
        })
    }

    /// Groups with their members and what each reads.
    ///
    /// One that does not exist is told as `Dead` by brokers before Kafka 4.0, and by later ones as
    /// an error, `NotFound`.
    pub fn describe_classic_groups(
        &self,
        groups: &[&str],
    ) -> Call<Results<String, ClassicGroupDescription>> {
        let groups = owned(groups);
        self.each(move |()| describe(groups))
    }

    /// Deletes groups with their offsets. `InUse` if one has members, `NotFound` if there is none.
    pub fn delete_consumer_groups(&self, groups: &[&str]) -> Call<Results<String, ()>> {
        let groups = owned(groups);
        self.each(move |()| delete(groups))
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// A group as an item of its coordinator's.
pub(super) fn to_coordinator(group: &str) -> Route {
    Route::Coordinator(Arc::from(group))
}

impl GroupListings {
    fn of(results: Vec<(i32, Result<Vec<GroupListing>, Error>)>) -> Self {
        let mut listings = Self { valid: Vec::new(), errors: Vec::new() };
        for (broker, result) in results {
            match result {
                Ok(groups) => listings.valid.extend(groups),
                Err(error) => listings.errors.push((broker, error)),
            }
        }
        // While a group moves, two brokers may name it.
        listings.valid.sort_by(|one, two| one.group_id.cmp(&two.group_id));
        listings.valid.dedup_by(|one, two| one.group_id == two.group_id);
        listings
    }
}

fn list(options: ListGroupsOptions) -> Ask<i32, Vec<GroupListing>> {
    let build = move || {
        let ListGroupsOptions { states, types } = options.clone();
        let served = ApiKey::ListGroups.served();
        let first = match (states.is_empty(), types.is_empty()) {
            (_, false) => TYPES_FROM,
            (false, true) => STATES_FROM,
            (true, true) => *served.start(),
        };
        body(ApiKey::ListGroups, first..=*served.end(), move |frame| {
            frame.put(&ListGroupsRequest {
                states_filter: states.iter().map(String::as_str).collect(),
                types_filter: types.iter().map(String::as_str).collect(),
            })
        })
    };
    Ask::of_each_broker(ApiKey::ListGroups, build, |answer, asked| {
        let response = answer.decode::<ListGroupsResponse<'_>>()?;
        let listed = outcome(response.error_code, None, || {
            let rows = response.groups.iter().map(|row| GroupListing {
                group_id: row.group_id.to_owned(),
                protocol_type: row.protocol_type.to_owned(),
                group_state: row.group_state.to_owned(),
                group_type: row.group_type.to_owned(),
            });
            rows.collect()
        });
        Ok(asked.only(response.throttle_time_ms, listed))
    })
}

fn describe(groups: Vec<String>) -> Ask<String, ClassicGroupDescription> {
    let items: Vec<_> = groups.iter().map(|group| (group.clone(), to_coordinator(group))).collect();
    let build = move |items: &[usize], _| {
        let groups = super::pick(&groups, items);
        body(ApiKey::DescribeGroups, ApiKey::DescribeGroups.served(), move |frame| {
            frame.put(&DescribeGroupsRequest {
                groups: groups.iter().map(String::as_str).collect(),
                include_authorized_operations: false,
            })
        })
    };
    Ask::new(ApiKey::DescribeGroups, items, build, |answer, asked| {
        let response = answer.decode::<DescribeGroupsResponse<'_>>()?;
        let mut rows = Vec::with_capacity(response.groups.len());
        for row in &response.groups {
            let value = || ClassicGroupDescription::of(row);
            rows.push((row.group_id, outcome(row.error_code, row.error_message, value)));
        }
        Ok(asked.named(response.throttle_time_ms, rows))
    })
}

impl ClassicGroupDescription {
    fn of(row: &DescribedGroup<'_>) -> Self {
        let of_consumers = row.protocol_type == PROTOCOL_TYPE;
        Self {
            group_id: row.group_id.to_owned(),
            protocol: row.protocol_type.to_owned(),
            protocol_data: row.protocol_data.to_owned(),
            state: row.group_state.to_owned(),
            members: row
                .members
                .iter()
                .map(|member| MemberDescription::of(member, of_consumers))
                .collect(),
        }
    }
}

impl MemberDescription {
    fn of(row: &DescribedGroupMember<'_>, of_consumers: bool) -> Self {
        let bytes = if of_consumers { row.member_assignment } else { &[] };
        let assigned = decode_assignment(bytes).unwrap_or_else(|error| {
            tracing::warn!(member = row.member_id, %error, "an assignment cannot be read");
            Assigned::default()
        });
        Self {
            member_id: row.member_id.to_owned(),
            group_instance_id: row.group_instance_id.map(str::to_owned),
            client_id: row.client_id.to_owned(),
            host: row.client_host.to_owned(),
            assignment: assigned.partitions,
        }
    }
}

fn delete(groups: Vec<String>) -> Ask<String, ()> {
    let items: Vec<_> = groups.iter().map(|group| (group.clone(), to_coordinator(group))).collect();
    let build = move |items: &[usize], _| {
        let groups = super::pick(&groups, items);
        body(ApiKey::DeleteGroups, ApiKey::DeleteGroups.served(), move |frame| {
            let groups_names = groups.iter().map(String::as_str).collect();
            frame.put(&DeleteGroupsRequest { groups_names })
        })
    };
    let ask = Ask::new(ApiKey::DeleteGroups, items, build, |answer, asked| {
        let response = answer.decode::<DeleteGroupsResponse<'_>>()?;
        let rows = response
            .results
            .iter()
            .map(|row| (row.group_id, outcome(row.error_code, row.error_message, || ())));
        Ok(asked.named(response.throttle_time_ms, rows))
    });
    ask.changing()
}
