//! Groups as tools see them: described, listed, deleted, their offsets expired.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use client::Client;
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use ottla_protocol::messages::leave_group_request::MemberIdentity;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use ottla_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    FindCoordinatorRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    ListGroupsRequest, ListGroupsResponse, OffsetCommitRequest, OffsetCommitResponse,
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse,
    SyncGroupRequest,
};
use ottla_protocol::{ApiKey, ErrorCode};

const OK: ErrorCode = ErrorCode::NONE;

/// A subscription of version 0 to `orders`.
const TO_ORDERS: &[u8] = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff";

fn broker() -> Broker {
    let broker = Broker::start(BrokerConfig::new()).expect("a broker in memory");
    broker.create_topic("orders", 2).expect("a topic");
    broker.create_topic("old", 1).expect("a topic");
    broker
}

fn connect(broker: &Broker) -> Client {
    let mut client = Client::connect(broker.address());
    client.call(2, &FindCoordinatorRequest { key: "any", ..FindCoordinatorRequest::default() });
    client
}

/// Joins as the only member, and takes an assignment; its id.
fn work(client: &mut Client, group: &str) -> String {
    let protocol = JoinGroupRequestProtocol { name: "range", metadata: TO_ORDERS };
    let request = JoinGroupRequest {
        group_id: group,
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer",
        protocols: vec![protocol],
        ..JoinGroupRequest::default()
    };
    let answer = client.call(3, &request);
    let joined = answer.decode::<JoinGroupResponse<'_>>();
    assert_eq!(joined.error_code, OK);
    let id = joined.member_id.to_owned();
    let request = SyncGroupRequest {
        group_id: group,
        generation_id: joined.generation_id,
        member_id: &id,
        assignments: vec![SyncGroupRequestAssignment { member_id: &id, assignment: b"all" }],
        ..SyncGroupRequest::default()
    };
    client.call(3, &request);
    id
}

fn leave(client: &mut Client, group: &str, member: &str) {
    let members = vec![MemberIdentity { member_id: member, ..MemberIdentity::default() }];
    client.call(4, &LeaveGroupRequest { group_id: group, members, ..Default::default() });
}

/// Commits an offset without group use.
fn commit(client: &mut Client, group: &str, topic: &str) {
    assert_eq!(commit_as(client, group, (-1, ""), topic), OK);
}

fn commit_as(client: &mut Client, group: &str, member: (i32, &str), topic: &str) -> ErrorCode {
    let partition = OffsetCommitRequestPartition { committed_offset: 5, ..Default::default() };
    let topic = OffsetCommitRequestTopic {
        name: topic,
        partitions: vec![partition],
        ..OffsetCommitRequestTopic::default()
    };
    let request = OffsetCommitRequest {
        group_id: group,
        generation_id_or_member_epoch: member.0,
        member_id: member.1,
        topics: vec![topic],
        ..OffsetCommitRequest::default()
    };
    let answer = client.call(9, &request);
    answer.decode::<OffsetCommitResponse<'_>>().topics[0].partitions[0].error_code
}

/// How many offsets a group has.
fn offsets(client: &mut Client, group: &str) -> usize {
    let request = OffsetFetchRequest { group_id: group, topics: None, ..Default::default() };
    let answer = client.call(7, &request);
    answer.decode::<OffsetFetchResponse<'_>>().topics.len()
}

fn listed(client: &mut Client, version: i16, request: &ListGroupsRequest<'_>) -> Vec<[String; 4]> {
    let answer = client.call(version, request);
    let response = answer.decode::<ListGroupsResponse<'_>>();
    assert_eq!(response.error_code, OK);
    let rows = response.groups.iter().map(|group| {
        [group.group_id, group.protocol_type, group.group_state, group.group_type]
            .map(str::to_owned)
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    rows
}

#[test]
fn groups_are_listed_by_state_and_type() {
    let broker = broker();
    let mut probe = Client::connect(broker.address());
    assert!(listed(&mut probe, 5, &ListGroupsRequest::default()).is_empty(), "none yet");
    let mut client = connect(&broker);
    work(&mut client, "busy");
    commit(&mut client, "simple", "orders");
    let all = [
        ["busy", "consumer", "Stable", "classic"].map(str::to_owned),
        ["simple", "", "Empty", "classic"].map(str::to_owned),
    ];
    for version in ApiKey::ListGroups.served() {
        let rows = listed(&mut client, version, &ListGroupsRequest::default());
        let shown = |row: &[String; 4]| {
            let mut row = row.clone();
            if version < 5 {
                row[3].clear();
            }
            if version < 4 {
                row[2].clear();
            }
            row
        };
        assert_eq!(rows, all.iter().map(shown).collect::<Vec<_>>(), "version {version}");
    }
    for (states, types, expected) in [
        (vec!["STABLE"], vec![], vec![&all[0]]),
        (vec!["Empty", "Dead"], vec![], vec![&all[1]]),
        (vec!["PreparingRebalance"], vec![], vec![]),
        (vec![], vec!["Classic"], vec![&all[0], &all[1]]),
        (vec![], vec!["consumer"], vec![]),
    ] {
        let request = ListGroupsRequest { states_filter: states, types_filter: types };
        let rows = listed(&mut client, 5, &request);
        assert_eq!(rows.iter().collect::<Vec<_>>(), expected, "{request:?}");
    }
}

#[test]
fn groups_are_described_and_who_is_not_there_is_dead_or_an_error() {
    let broker = broker();
    let mut client = connect(&broker);
    let member = work(&mut client, "busy");
    commit(&mut client, "simple", "orders");
    for version in ApiKey::DescribeGroups.served() {
        let request = DescribeGroupsRequest {
            groups: vec!["busy", "nobody", "simple"],
            include_authorized_operations: version >= 3,
        };
        let answer = client.call(version, &request);
        let response = answer.decode::<DescribeGroupsResponse<'_>>();
        let busy = &response.groups[0];
        let seen = (busy.group_state, busy.protocol_type, busy.protocol_data);
        assert_eq!(seen, ("Stable", "consumer", "range"));
        let one = &busy.members[0];
        assert_eq!((one.member_id, one.client_id), (member.as_str(), "test"));
        assert_eq!((one.client_host, one.member_metadata), ("/127.0.0.1", TO_ORDERS));
        assert_eq!(one.member_assignment, b"all");
        assert_eq!(busy.authorized_operations == i32::MIN, version < 3);
        let nobody = &response.groups[1];
        let expected = if version >= 6 { ErrorCode::GROUP_ID_NOT_FOUND } else { OK };
        assert_eq!((nobody.error_code, nobody.group_state), (expected, "Dead"), "KIP-1043");
        assert_eq!(nobody.error_message.is_some(), version >= 6);
        assert_eq!(response.groups[2].group_state, "Empty");
    }
}

fn delete(client: &mut Client, version: i16, groups: Vec<&str>) -> Vec<ErrorCode> {
    let answer = client.call(version, &DeleteGroupsRequest { groups_names: groups });
    let response = answer.decode::<DeleteGroupsResponse<'_>>();
    for result in &response.results {
        let told = result.error_message.is_some_and(|message| !message.is_empty());
        assert_eq!(told, version >= 3 && result.error_code != OK, "{result:?}");
    }
    response.results.iter().map(|result| result.error_code).collect()
}

#[test]
fn a_group_without_members_is_deleted_with_its_offsets_and_stays_away() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = || BrokerConfig::new().data_dir(dir.path());
    let broker = Broker::start(config()).expect("a broker");
    broker.create_topic("orders", 1).expect("a topic");
    let mut client = connect(&broker);
    for version in ApiKey::DeleteGroups.served() {
        let member = work(&mut client, "busy");
        commit(&mut client, "simple", "orders");
        let codes = delete(&mut client, version, vec!["busy", "simple", "nobody"]);
        assert_eq!(codes, [ErrorCode::NON_EMPTY_GROUP, OK, ErrorCode::GROUP_ID_NOT_FOUND]);
        leave(&mut client, "busy", &member);
        assert_eq!(delete(&mut client, version, vec!["busy"]), [OK]);
        assert!(listed(&mut client, 4, &ListGroupsRequest::default()).is_empty());
        assert_eq!(offsets(&mut client, "simple"), 0);
    }
    broker.stop(std::time::Duration::from_mins(1)).expect("a clean stop");
    let broker = Broker::start(config()).expect("a broker again");
    let mut client = connect(&broker);
    assert!(listed(&mut client, 4, &ListGroupsRequest::default()).is_empty(), "tombstones");
}

#[test]
fn offsets_are_deleted_but_for_topics_that_members_read() {
    let broker = broker();
    let mut client = connect(&broker);
    commit(&mut client, "busy", "orders");
    commit(&mut client, "busy", "old");
    let ask = |client: &mut Client, group: &str, topics: &[&str]| {
        let topics = topics.iter().map(|name| OffsetDeleteRequestTopic {
            name,
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
        });
        let request = OffsetDeleteRequest { group_id: group, topics: topics.collect() };
        let answer = client.call(0, &request);
        let response = answer.decode::<OffsetDeleteResponse<'_>>();
        let codes = response.topics.iter().map(|topic| topic.partitions[0].error_code);
        (response.error_code, codes.collect::<Vec<_>>())
    };
    let absent = ErrorCode::GROUP_ID_NOT_FOUND;
    assert_eq!(ask(&mut client, "nobody", &["orders"]), (absent, vec![]));
    let member = work(&mut client, "busy");
    let (read, unknown) =
        (ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let codes = ask(&mut client, "busy", &["orders", "nowhere", "old"]);
    assert_eq!(codes, (OK, vec![read, unknown, OK]));
    assert_eq!(offsets(&mut client, "busy"), 1);
    leave(&mut client, "busy", &member);
    assert_eq!(ask(&mut client, "busy", &["orders"]), (OK, vec![OK]));
    assert_eq!(offsets(&mut client, "busy"), 0);
}

/// Asks again until it is so; a broker that never comes to it fails the test.
fn until(mut is_so: impl FnMut() -> bool) {
    assert!((0..200_000).any(|_| is_so()), "it never came");
}

/// A broker that looks for old offsets all the time, and finds all of them old.
fn forgetful() -> Broker {
    let config = BrokerConfig::new()
        .set("offsets.retention.check.interval.ms", "10")
        .and_then(|config| config.set("offsets.retention.ms", "1"))
        .expect("options");
    let broker = Broker::start(config).expect("a broker");
    broker.create_topic("orders", 1).expect("a topic");
    broker.create_topic("old", 1).expect("a topic");
    broker
}

#[test]
fn offsets_and_groups_that_nobody_uses_go_by_themselves() {
    let broker = forgetful();
    let mut client = connect(&broker);
    commit(&mut client, "simple", "orders");
    let member = work(&mut client, "left");
    leave(&mut client, "left", &member);
    // Nothing but the sweep takes them away, however often it is asked.
    until(|| listed(&mut client, 4, &ListGroupsRequest::default()).is_empty());
    assert_eq!(offsets(&mut client, "simple"), 0);
}

#[test]
fn a_group_at_work_keeps_the_offsets_of_what_it_reads() {
    let broker = forgetful();
    let mut client = connect(&broker);
    let member = work(&mut client, "busy");
    assert_eq!(commit_as(&mut client, "busy", (1, &member), "orders"), OK);
    assert_eq!(commit_as(&mut client, "busy", (1, &member), "old"), OK);
    until(|| offsets(&mut client, "busy") == 1);
    let request = OffsetFetchRequest { group_id: "busy", topics: None, ..Default::default() };
    let answer = client.call(7, &request);
    assert_eq!(answer.decode::<OffsetFetchResponse<'_>>().topics[0].name, "orders");
}
