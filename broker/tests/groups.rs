//! Groups from outside: members join, work, leave, and find everything again after a restart.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use client::Client;
use client::program::Program;
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use ottla_protocol::messages::leave_group_request::MemberIdentity;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use ottla_protocol::messages::{
    FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, MetadataResponse,
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use ottla_protocol::{ErrorCode, Uuid};

const GROUP: &str = "flights";
const TOPIC: &str = "departures";
const DEADLINE: Duration = Duration::from_mins(1);

/// A member with a connection of its own.
struct Member {
    client: Client,
    id: String,
    generation: i32,
    /// The members it was told of, if it leads.
    leads: Vec<String>,
}

impl Member {
    /// A client that has asked where its group is.
    fn connect(address: SocketAddr) -> Self {
        let mut client = Client::connect(address);
        find_coordinator(&mut client);
        Self { client, id: String::new(), generation: -1, leads: Vec::new() }
    }

    fn send_join(&mut self, version: i16, session_ms: i32) {
        let protocol = JoinGroupRequestProtocol { name: "range", metadata: b"wants all" };
        let request = JoinGroupRequest {
            group_id: GROUP,
            session_timeout_ms: session_ms,
            rebalance_timeout_ms: if version == 0 { -1 } else { 60_000 },
            member_id: &self.id,
            protocol_type: "consumer",
            protocols: vec![protocol],
            ..JoinGroupRequest::default()
        };
        self.client.send(version, &request);
    }

    fn receive_join(&mut self, version: i16) -> ErrorCode {
        let answer = self.client.receive(version);
        let response = answer.decode::<JoinGroupResponse<'_>>();
        response.member_id.clone_into(&mut self.id);
        self.generation = response.generation_id;
        self.leads = response.members.iter().map(|one| one.member_id.to_owned()).collect();
        if response.error_code == ErrorCode::NONE {
            assert_eq!(response.protocol_name, Some("range"));
            assert_eq!(self.leads.is_empty(), response.leader != response.member_id);
        }
        response.error_code
    }

    /// Joins, with its id if it must come back for one.
    fn join(&mut self, version: i16) -> ErrorCode {
        self.send_join(version, 30_000);
        match self.receive_join(version) {
            ErrorCode::MEMBER_ID_REQUIRED => {
                assert!(self.id.starts_with("test-"), "{}", self.id);
                self.send_join(version, 30_000);
                self.receive_join(version)
            }
            error => error,
        }
    }

    fn send_sync(&mut self, version: i16) {
        let assignments = self
            .leads
            .iter()
            .map(|id| SyncGroupRequestAssignment { member_id: id, assignment: id.as_bytes() });
        let named = version >= 5;
        let request = SyncGroupRequest {
            group_id: GROUP,
            generation_id: self.generation,
            member_id: &self.id,
            protocol_type: named.then_some("consumer"),
            protocol_name: named.then_some("range"),
            assignments: assignments.collect(),
            ..SyncGroupRequest::default()
        };
        self.client.send(version, &request);
    }

    fn receive_sync(&mut self, version: i16) -> Result<String, ErrorCode> {
        let answer = self.client.receive(version);
        let response = answer.decode::<SyncGroupResponse<'_>>();
        if response.error_code == ErrorCode::NONE {
            Ok(String::from_utf8_lossy(response.assignment).into_owned())
        } else {
            Err(response.error_code)
        }
    }

    fn sync(&mut self, version: i16) -> Result<String, ErrorCode> {
        self.send_sync(version);
        self.receive_sync(version)
    }

    fn heartbeat(&mut self, version: i16) -> ErrorCode {
        let request = HeartbeatRequest {
            group_id: GROUP,
            generation_id: self.generation,
            member_id: &self.id,
            ..HeartbeatRequest::default()
        };
        self.client.call(version, &request).decode::<HeartbeatResponse>().error_code
    }

    fn leave(&mut self, version: i16) -> ErrorCode {
        let one = MemberIdentity { member_id: &self.id, ..MemberIdentity::default() };
        let many = version >= 3;
        let request = LeaveGroupRequest {
            group_id: GROUP,
            member_id: if many { "" } else { &self.id },
            members: if many { vec![one] } else { Vec::new() },
        };
        let answer = self.client.call(version, &request);
        let response = answer.decode::<LeaveGroupResponse<'_>>();
        response.members.first().map_or(response.error_code, |one| one.error_code)
    }

    fn commit(&mut self, version: i16, offset: i64) -> ErrorCode {
        let topic_id = if version >= 10 { topic_id(&mut self.client) } else { Uuid::ZERO };
        let (generation, id) = (self.generation, self.id.clone());
        commit(&mut self.client, version, (generation, &id), topic_id, offset)
    }
}

fn find_coordinator(client: &mut Client) {
    let request = FindCoordinatorRequest { key: GROUP, ..FindCoordinatorRequest::default() };
    let answer = client.call(2, &request);
    let response = answer.decode::<FindCoordinatorResponse<'_>>();
    assert_eq!(response.error_code, ErrorCode::NONE, "{:?}", response.error_message);
}

fn topic_id(client: &mut Client) -> Uuid {
    let answer = client.metadata(TOPIC, false);
    answer.decode::<MetadataResponse<'_>>().topics[0].topic_id
}

fn commit(
    client: &mut Client,
    version: i16,
    member: (i32, &str),
    topic_id: Uuid,
    offset: i64,
) -> ErrorCode {
    let partition = OffsetCommitRequestPartition {
        committed_offset: offset,
        committed_metadata: Some("noted"),
        ..OffsetCommitRequestPartition::default()
    };
    let request = OffsetCommitRequest {
        group_id: GROUP,
        generation_id_or_member_epoch: member.0,
        member_id: member.1,
        topics: vec![OffsetCommitRequestTopic {
            name: if version >= 10 { "" } else { TOPIC },
            topic_id,
            partitions: vec![partition],
        }],
        ..OffsetCommitRequest::default()
    };
    let answer = client.call(version, &request);
    answer.decode::<OffsetCommitResponse<'_>>().topics[0].partitions[0].error_code
}

/// The committed offset of the topic's first partition.
fn committed(client: &mut Client, version: i16) -> i64 {
    if version < 8 {
        let topic = OffsetFetchRequestTopic { name: TOPIC, partition_indexes: vec![0] };
        let request = OffsetFetchRequest {
            group_id: GROUP,
            topics: Some(vec![topic]),
            ..OffsetFetchRequest::default()
        };
        let answer = client.call(version, &request);
        let response = answer.decode::<OffsetFetchResponse<'_>>();
        assert_eq!(response.error_code, ErrorCode::NONE);
        let partition = &response.topics[0].partitions[0];
        assert_eq!(partition.error_code, ErrorCode::NONE);
        return partition.committed_offset;
    }
    let topic = OffsetFetchRequestTopics {
        name: if version >= 10 { "" } else { TOPIC },
        topic_id: if version >= 10 { topic_id(client) } else { Uuid::ZERO },
        partition_indexes: vec![0],
    };
    let group = OffsetFetchRequestGroup {
        group_id: GROUP,
        topics: Some(vec![topic]),
        ..OffsetFetchRequestGroup::default()
    };
    let request = OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() };
    let answer = client.call(version, &request);
    let response = answer.decode::<OffsetFetchResponse<'_>>();
    assert_eq!(response.groups[0].error_code, ErrorCode::NONE);
    let partition = &response.groups[0].topics[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::NONE);
    partition.committed_offset
}

fn broker() -> Broker {
    Broker::start(BrokerConfig::new()).expect("a broker in memory")
}

/// Two members of generation 2, both with their assignment.
fn two_at_work(address: SocketAddr) -> (Member, Member) {
    let mut leader = Member::connect(address);
    leader.client.create(TOPIC);
    let mut other = Member::connect(address);
    assert_eq!(leader.join(9), ErrorCode::NONE);
    other.send_join(3, 30_000);
    // The newcomer waits for the member that is there, which learns of it by its heartbeat.
    while leader.heartbeat(4) != ErrorCode::REBALANCE_IN_PROGRESS {}
    assert_eq!(leader.join(9), ErrorCode::NONE);
    assert_eq!(other.receive_join(3), ErrorCode::NONE);
    assert_eq!((leader.generation, other.generation), (2, 2));
    assert_eq!(leader.leads.len(), 2);
    other.send_sync(3);
    assert_eq!(leader.sync(5).as_ref(), Ok(&leader.id));
    assert_eq!(other.receive_sync(3).as_ref(), Ok(&other.id));
    (leader, other)
}

#[test]
fn two_members_share_a_group_and_its_offsets() {
    let broker = broker();
    let (mut leader, mut other) = two_at_work(broker.address());
    assert_eq!(leader.heartbeat(4), ErrorCode::NONE);
    assert_eq!(other.commit(9, 42), ErrorCode::NONE);
    assert_eq!(committed(&mut leader.client, 9), 42);
    assert_eq!(other.leave(5), ErrorCode::NONE);
    assert_eq!(leader.heartbeat(4), ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(leader.join(9), ErrorCode::NONE);
    assert_eq!((leader.generation, leader.leads.len()), (3, 1));
    assert_eq!(leader.sync(5).as_ref(), Ok(&leader.id));
    assert_eq!(leader.leave(0), ErrorCode::NONE);
    assert_eq!(committed(&mut other.client, 1), 42, "offsets outlive the members");
}

#[test]
fn every_version_of_the_group_apis_is_answered() {
    let broker = broker();
    let mut probe = Client::connect(broker.address());
    probe.create(TOPIC);
    for join in 0..=9 {
        let mut member = Member::connect(broker.address());
        let (sync, heartbeat) = (join.min(5), join.min(4));
        assert_eq!(member.join(join), ErrorCode::NONE, "join {join}");
        assert_eq!(member.sync(sync).as_ref(), Ok(&member.id), "sync {sync}");
        assert_eq!(member.heartbeat(heartbeat), ErrorCode::NONE, "heartbeat {heartbeat}");
        let commit = (join + 2).min(10);
        assert_eq!(member.commit(commit, i64::from(join)), ErrorCode::NONE, "commit {commit}");
        for fetch in 1..=10 {
            assert_eq!(committed(&mut probe, fetch), i64::from(join), "fetch {fetch}");
        }
        assert_eq!(member.leave(sync), ErrorCode::NONE, "leave {sync}");
        assert_eq!(member.leave(sync), ErrorCode::UNKNOWN_MEMBER_ID, "leave {sync} again");
    }
}

#[test]
fn every_version_of_find_coordinator_names_this_broker() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    for version in 0..=6 {
        let many = version >= 4;
        let request = FindCoordinatorRequest {
            key: if many { "" } else { GROUP },
            coordinator_keys: if many { vec![GROUP, "other"] } else { Vec::new() },
            ..FindCoordinatorRequest::default()
        };
        let answer = client.call(version, &request);
        let response = answer.decode::<FindCoordinatorResponse<'_>>();
        let port = i32::from(broker.address().port());
        if many {
            assert_eq!(response.coordinators.len(), 2);
            for one in &response.coordinators {
                assert_eq!(one.error_code, ErrorCode::NONE);
                assert_eq!((one.node_id, one.host, one.port), (1, "127.0.0.1", port));
            }
        } else {
            assert_eq!(response.error_code, ErrorCode::NONE);
            let found = (response.node_id, response.host, response.port);
            assert_eq!(found, (1, "127.0.0.1", port));
        }
    }
    let request =
        FindCoordinatorRequest { key: "x", key_type: 7, ..FindCoordinatorRequest::default() };
    let answer = client.call(3, &request);
    let response = answer.decode::<FindCoordinatorResponse<'_>>();
    assert_eq!((response.error_code, response.node_id), (ErrorCode::INVALID_REQUEST, -1));
    assert!(response.error_message.is_some_and(|message| message.contains('7')));
}

#[test]
fn a_silent_member_makes_room_when_its_session_ends() {
    let config = BrokerConfig::new().set("group.min.session.timeout.ms", "1").expect("an option");
    let broker = Broker::start(config).expect("a broker");
    let mut silent = Member::connect(broker.address());
    // A session that ends before this thread comes to the second request is too short.
    let mut session_ms = 200;
    loop {
        silent.send_join(3, session_ms);
        assert_eq!(silent.receive_join(3), ErrorCode::NONE);
        match silent.sync(3) {
            Err(ErrorCode::UNKNOWN_MEMBER_ID) if session_ms < 20_000 => {
                silent.id.clear();
                session_ms *= 2;
            }
            synced => break assert_eq!(synced.as_ref(), Ok(&silent.id)),
        }
    }
    let mut other = Member::connect(broker.address());
    assert_eq!(other.join(9), ErrorCode::NONE, "answered by the silent one's end");
    assert_eq!(other.leads.len(), 1);
    assert!(other.generation > silent.generation, "{}", other.generation);
    assert_eq!(silent.heartbeat(3), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_join_that_waits_is_answered_when_the_broker_stops() {
    let broker = broker();
    let (mut leader, _other) = two_at_work(broker.address());
    let mut third = Member::connect(broker.address());
    third.send_join(3, 30_000);
    // That it has come is seen by those that are there.
    while leader.heartbeat(4) != ErrorCode::REBALANCE_IN_PROGRESS {}
    broker.stop(DEADLINE).expect("a clean stop");
    assert_eq!(third.receive_join(3), ErrorCode::COORDINATOR_NOT_AVAILABLE);
}

/// What is there of a group after its broker was ended and started again.
fn goes_on(dir: &Path, before: (Member, Member), address: SocketAddr) {
    let (mut leader, mut other) = before;
    leader.client = Client::connect(address);
    other.client = Client::connect(address);
    assert_eq!(leader.heartbeat(4), ErrorCode::NONE, "{}", dir.display());
    assert_eq!(other.heartbeat(4), ErrorCode::NONE);
    assert_eq!(other.sync(5).as_ref(), Ok(&other.id), "its assignment is kept");
    assert_eq!(committed(&mut leader.client, 8), 42);
    assert_eq!(leader.commit(10, 43), ErrorCode::NONE);
    other.generation = 1;
    assert_eq!(other.heartbeat(4), ErrorCode::ILLEGAL_GENERATION);
}

#[test]
fn a_stopped_broker_finds_its_groups_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = || BrokerConfig::new().data_dir(dir.path());
    let first = Broker::start(config()).expect("a broker");
    let mut members = two_at_work(first.address());
    assert_eq!(members.0.commit(9, 42), ErrorCode::NONE);
    first.stop(DEADLINE).expect("a clean stop");
    let second = Broker::start(config()).expect("a broker again");
    goes_on(dir.path(), members, second.address());
}

#[test]
fn a_killed_program_finds_its_groups_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().to_str().expect("a path");
    let first = Program::start(&["--data", data]);
    let mut members = two_at_work(first.address);
    assert_eq!(members.0.commit(9, 42), ErrorCode::NONE);
    first.signal("-KILL");
    assert_eq!(first.wait(), None);
    let second = Program::start(&["--data", data]);
    goes_on(dir.path(), members, second.address);
}

#[test]
fn a_long_log_of_offsets_is_read_back_while_clients_wait() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = || BrokerConfig::new().data_dir(dir.path()).set("num.partitions", "600");
    let first = Broker::start(config().expect("an option")).expect("a broker");
    let mut client = Client::connect(first.address());
    find_coordinator(&mut client);
    client.create(TOPIC);
    let noted = "x".repeat(4000);
    let partitions = (0..600).map(|partition_index| OffsetCommitRequestPartition {
        partition_index,
        committed_offset: 7,
        committed_metadata: Some(&noted),
        ..OffsetCommitRequestPartition::default()
    });
    let topic = OffsetCommitRequestTopic {
        name: TOPIC,
        partitions: partitions.collect(),
        ..OffsetCommitRequestTopic::default()
    };
    let request = OffsetCommitRequest {
        group_id: GROUP,
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..OffsetCommitRequest::default()
    };
    let answer = client.call(9, &request);
    let response = answer.decode::<OffsetCommitResponse<'_>>();
    let stored = response.topics[0].partitions.iter().all(|one| one.error_code == ErrorCode::NONE);
    assert!(stored);
    first.stop(DEADLINE).expect("a clean stop");
    let second = Broker::start(config().expect("an option")).expect("a broker again");
    let mut client = Client::connect(second.address());
    let request =
        OffsetFetchRequest { group_id: GROUP, topics: None, ..OffsetFetchRequest::default() };
    loop {
        let answer = client.call(7, &request);
        let response = answer.decode::<OffsetFetchResponse<'_>>();
        if response.error_code == ErrorCode::COORDINATOR_LOAD_IN_PROGRESS {
            continue;
        }
        assert_eq!(response.error_code, ErrorCode::NONE);
        assert_eq!(response.topics[0].partitions.len(), 600);
        return;
    }
}

#[test]
fn commits_are_refused_for_what_is_no_partition() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    find_coordinator(&mut client);
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(commit(&mut client, 9, (-1, ""), Uuid::ZERO, 1), unknown);
    client.create(TOPIC);
    assert_eq!(commit(&mut client, 9, (-1, ""), Uuid::ZERO, 1), ErrorCode::NONE);
    let other = Uuid([7; 16]);
    assert_eq!(commit(&mut client, 10, (-1, ""), other, 1), ErrorCode::UNKNOWN_TOPIC_ID);
    // A group of offsets alone has no members.
    assert_eq!(commit(&mut client, 9, (4, "m"), Uuid::ZERO, 1), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn many_groups_are_asked_about_at_once_and_all_topics_of_each() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    find_coordinator(&mut client);
    client.create(TOPIC);
    assert_eq!(commit(&mut client, 9, (-1, ""), Uuid::ZERO, 5), ErrorCode::NONE);
    let group = |group_id| OffsetFetchRequestGroup {
        group_id,
        topics: None,
        ..OffsetFetchRequestGroup::default()
    };
    for version in [8, 9, 10] {
        let groups = vec![group("nobody"), group(GROUP), group("grp")];
        let request = OffsetFetchRequest { groups, ..OffsetFetchRequest::default() };
        let answer = client.call(version, &request);
        let response = answer.decode::<OffsetFetchResponse<'_>>();
        let found: Vec<_> =
            response.groups.iter().map(|one| (one.group_id, one.topics.len())).collect();
        assert_eq!(found, [("nobody", 0), (GROUP, 1), ("grp", 0)], "version {version}");
        let partition = &response.groups[1].topics[0].partitions[0];
        assert_eq!((partition.committed_offset, partition.metadata), (5, Some("noted")));
    }
    let request =
        OffsetFetchRequest { group_id: GROUP, topics: None, ..OffsetFetchRequest::default() };
    let answer = client.call(7, &request);
    let response = answer.decode::<OffsetFetchResponse<'_>>();
    assert_eq!(response.topics[0].partitions[0].committed_offset, 5);
}

#[test]
fn requests_before_the_coordinator_is_asked_for_are_sent_there() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let request =
        HeartbeatRequest { group_id: GROUP, member_id: "m", ..HeartbeatRequest::default() };
    let answer = client.call(4, &request);
    assert_eq!(answer.decode::<HeartbeatResponse>().error_code, ErrorCode::NOT_COORDINATOR);
}

#[test]
fn offsets_of_a_deleted_topic_are_gone() {
    use ottla_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
    let broker = broker();
    let mut client = Client::connect(broker.address());
    find_coordinator(&mut client);
    client.create(TOPIC);
    assert_eq!(commit(&mut client, 9, (-1, ""), Uuid::ZERO, 5), ErrorCode::NONE);
    let request =
        DeleteTopicsRequest { topic_names: vec![TOPIC], ..DeleteTopicsRequest::default() };
    let answer = client.call(5, &request);
    let response = answer.decode::<DeleteTopicsResponse<'_>>();
    assert_eq!(response.responses[0].error_code, ErrorCode::NONE);
    assert_eq!(committed(&mut client, 7), -1);
}
