//! Limits that are on by default, seen with small values.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use client::program::Program;
use client::{Client, fetch_request};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::{
    DeleteGroupsRequest, FindCoordinatorRequest, JoinGroupRequest, JoinGroupResponse,
    MetadataRequest, OffsetCommitRequest, OffsetCommitResponse, SyncGroupRequest,
    SyncGroupResponse,
};

fn broker(options: &[(&str, &str)]) -> Broker {
    let config = options
        .iter()
        .try_fold(BrokerConfig::new(), |config, (name, value)| config.set(name, value));
    Broker::start(config.expect("options")).expect("a broker in memory")
}

/// A connection that has been served.
fn served(address: SocketAddr) -> Client {
    // One that says nothing at first is let go, and this thread may be held up for as long.
    let first = (0..20).find_map(|_| {
        let mut client = Client::connect(address);
        client.try_send(12, &MetadataRequest::default()).ok()?;
        client.try_receive(12).ok().map(|_| client)
    });
    let mut client = first.expect("an answer");
    assert_eq!(client.create("orders"), ErrorCode::NONE);
    client
}

/// Longer than a thread of a test is held up.
const IDLE: (&str, &str) = ("connections.max.idle.ms", "2000");
/// More than twice as long, in ms.
const QUIET: i32 = 5000;

#[test]
fn connections_beyond_the_limit_are_closed_and_a_place_that_is_free_is_given_again() {
    for option in ["max.connections", "max.connections.per.ip"] {
        let broker = broker(&[(option, "3")]);
        let mut clients: Vec<_> = (0..3).map(|_| served(broker.address())).collect();
        assert!(Client::connect(broker.address()).is_closed(), "{option}");
        for client in &mut clients {
            assert_eq!(client.create("orders"), ErrorCode::NONE);
        }
        clients.pop();
        // It is free as soon as the broker has seen the end.
        loop {
            let mut next = Client::connect(broker.address());
            let sent = next.try_send(12, &MetadataRequest::default());
            if sent.and_then(|_| next.try_receive(12)).is_ok() {
                break;
            }
        }
    }
}

#[test]
fn a_connection_that_sends_nothing_is_let_go_and_one_that_waits_is_not() {
    let broker = broker(&[IDLE]);
    let mut idle = served(broker.address());
    assert!(idle.is_closed());
    let mut waiting = served(broker.address());
    let id = waiting.send(12, &fetch_request("orders", 0, QUIET, 1));
    assert_eq!(waiting.receive(12).correlation_id(), id, "more than twice as long");
}

/// Joins the group `g`, with this id; the answer is another's to read.
fn send_join(client: &mut Client, member_id: &str) {
    let protocol = JoinGroupRequestProtocol { name: "range", metadata: b"" };
    let request = JoinGroupRequest {
        group_id: "g",
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        member_id,
        protocol_type: "consumer",
        protocols: vec![protocol],
        ..JoinGroupRequest::default()
    };
    client.send(3, &request);
}

/// The member's id, and the generation.
fn joined(client: &mut Client) -> (String, i32) {
    let answer = client.receive(3);
    let response = answer.decode::<JoinGroupResponse<'_>>();
    assert_eq!(response.error_code, ErrorCode::NONE);
    (response.member_id.to_owned(), response.generation_id)
}

fn send_sync(client: &mut Client, member_id: &str, generation_id: i32) {
    let request =
        SyncGroupRequest { group_id: "g", generation_id, member_id, ..SyncGroupRequest::default() };
    client.send(3, &request);
}

#[test]
fn a_connection_whose_answer_is_open_is_not_idle() {
    let broker = broker(&[IDLE]);
    let (mut leader, mut other) = (served(broker.address()), served(broker.address()));
    let any = FindCoordinatorRequest { key: "g", ..FindCoordinatorRequest::default() };
    leader.call(2, &any);
    send_join(&mut leader, "");
    let (first, _) = joined(&mut leader);
    send_join(&mut other, "");
    // A join that waits stops its connection's reading; the leader's comes back until both are in.
    let mut generation = 1;
    while generation == 1 {
        send_join(&mut leader, &first);
        (_, generation) = joined(&mut leader);
    }
    let (second, _) = joined(&mut other);
    send_sync(&mut other, &second, generation);
    // Longer than an idle connection lives.
    let id = leader.send(12, &fetch_request("orders", 0, QUIET, 1));
    assert_eq!(leader.receive(12).correlation_id(), id);
    send_sync(&mut leader, &first, generation);
    for client in [&mut leader, &mut other] {
        let answer = client.receive(3);
        let code = answer.decode::<SyncGroupResponse<'_>>().error_code;
        assert_eq!(code, ErrorCode::NONE);
    }
    assert_eq!(other.create("orders"), ErrorCode::NONE, "it is still there");
}

#[test]
fn a_connection_whose_first_request_does_not_come_is_let_go() {
    let broker = broker(&[("connections.first.request.max.ms", "2000")]);
    assert!(Client::connect(broker.address()).is_closed());
    let mut quiet = served(broker.address());
    let id = quiet.send(12, &fetch_request("orders", 0, 3000, 1));
    assert_eq!(quiet.receive(12).correlation_id(), id, "it is no new one any more");
    // Who comes later, and says nothing, is gone before: this one may be quiet for longer.
    assert!(Client::connect(broker.address()).is_closed());
    assert_eq!(quiet.create("orders"), ErrorCode::NONE);
}

#[test]
fn a_request_that_does_not_come_whole_is_given_up() {
    let broker = broker(&[("socket.request.max.ms", "500")]);
    for part in [&[0_u8][..], &[0, 0, 0, 30], &[0, 0, 0, 30, 0, 3], &[0, 16, 0, 0, 0]] {
        let mut slow = served(broker.address());
        slow.stream.write_all(part).expect("sent");
        assert!(slow.is_closed(), "{part:?}");
    }
    assert_eq!(served(broker.address()).create("orders"), ErrorCode::NONE);
}

/// Joins a group as its first member.
fn join(client: &mut Client, group_id: &str) -> ErrorCode {
    let request = JoinGroupRequest {
        group_id,
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer",
        protocols: vec![JoinGroupRequestProtocol { name: "range", metadata: b"" }],
        ..JoinGroupRequest::default()
    };
    client.call(3, &request).decode::<JoinGroupResponse<'_>>().error_code
}

/// Commits an offset for a group without members.
fn commit(client: &mut Client, group_id: &str) -> ErrorCode {
    let topic = OffsetCommitRequestTopic {
        name: "orders",
        partitions: vec![OffsetCommitRequestPartition::default()],
        ..OffsetCommitRequestTopic::default()
    };
    let request =
        OffsetCommitRequest { group_id, topics: vec![topic], ..OffsetCommitRequest::default() };
    let answer = client.call(7, &request);
    answer.decode::<OffsetCommitResponse<'_>>().topics[0].partitions[0].error_code
}

#[test]
fn so_many_groups_there_are_and_no_more_until_one_goes() {
    let dir = tempfile::tempdir().expect("a folder");
    let limited = || {
        let config = BrokerConfig::new().data_dir(dir.path()).set("max.groups", "3");
        Broker::start(config.expect("an option")).expect("a broker")
    };
    let broker = limited();
    let mut client = served(broker.address());
    client.call(2, &FindCoordinatorRequest { key: "g", ..FindCoordinatorRequest::default() });
    // In offsets partitions of their own.
    assert_eq!(join(&mut client, "members"), ErrorCode::NONE);
    assert_eq!(commit(&mut client, "offsets"), ErrorCode::NONE);
    assert_eq!(join(&mut client, ""), ErrorCode::INVALID_GROUP_ID, "which takes no place");
    assert_eq!(commit(&mut client, "third"), ErrorCode::NONE);
    assert_eq!(join(&mut client, "fourth"), ErrorCode::POLICY_VIOLATION);
    assert_eq!(commit(&mut client, "fourth"), ErrorCode::POLICY_VIOLATION);
    for known in ["offsets", "third"] {
        assert_eq!(commit(&mut client, known), ErrorCode::NONE);
    }
    assert_eq!(join(&mut client, "third"), ErrorCode::NONE, "it is counted once");
    let delete = |client: &mut Client, group| {
        let request = DeleteGroupsRequest { groups_names: vec![group] };
        client.call(2, &request);
    };
    delete(&mut client, "offsets");
    assert_eq!(commit(&mut client, "fourth"), ErrorCode::NONE, "in the place of one that went");
    drop(client);
    broker.stop(Duration::from_mins(1)).expect("a clean stop");

    let broker = limited();
    let mut client = served(broker.address());
    assert_eq!(join(&mut client, "fifth"), ErrorCode::NONE, "beside two that have offsets");
    assert_eq!(join(&mut client, "sixth"), ErrorCode::POLICY_VIOLATION, "those on disk count");
}

/// The program with so many descriptors and no limit of connections.
fn starved(descriptors: usize) -> Program {
    let limited = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    Program::ready(
        Command::new("sh")
            .args(["-c", &limited, env!("CARGO_BIN_EXE_ottla-broker")])
            .args(["--listen", "127.0.0.1:0", "--memory", "-c", "max.connections=100000"])
            // Nobody makes room by saying nothing.
            .args(["-c", "connections.first.request.max.ms=600000"]),
    )
}

#[test]
fn without_descriptors_who_comes_is_sent_away_and_who_is_there_is_served() {
    let program = starved(64);
    let mut first = served(program.address);
    let mut crowd: Vec<_> = (0..100).map(|_| Client::connect(program.address)).collect();
    assert!(crowd.last_mut().expect("a hundred").is_closed(), "not left to wait");
    assert_eq!(first.create("orders"), ErrorCode::NONE);
    assert_eq!(first.produce("orders", &["x"]), 0);
    crowd.clear();
    // Their descriptors come back.
    loop {
        let mut next = Client::connect(program.address);
        let sent = next.try_send(12, &fetch_request("orders", 0, 0, 1));
        if let Ok(answer) = sent.and_then(|_| next.try_receive(12)) {
            assert_eq!(client::values(&answer.decode()), ["x"]);
            break;
        }
    }
}
