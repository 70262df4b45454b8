//! Requests of one connection, sent without waiting: each sees what those before it have done.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::io::Write as _;
use std::net::SocketAddr;

use client::{Client, batch, fetch_request, list_offsets_request, produce_request, values};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, FetchResponse, FindCoordinatorRequest,
    ListGroupsRequest, ListGroupsResponse, ListOffsetsResponse, MetadataResponse,
    OffsetCommitRequest, ProduceResponse,
};
use ottla_protocol::record::BatchSeal;

/// Often enough for a request that does not wait to be seen.
const ROUNDS: i64 = 50;

fn broker() -> (Broker, Client) {
    let broker = Broker::start(BrokerConfig::new()).expect("a broker in memory");
    let mut client = Client::connect(broker.address());
    client.create("orders");
    (broker, client)
}

#[test]
fn what_is_sent_behind_a_produce_sees_its_records() {
    let (_broker, mut client) = broker();
    let large = "x".repeat(500_000);
    let set = batch(&[&large], &BatchSeal::default());
    for round in 0..ROUNDS {
        for acks in [-1, 1, 0] {
            client.send(9, &produce_request("orders", 0, acks, &set));
        }
        client.send(7, &list_offsets_request("orders", -1));
        client.send(9, &produce_request("orders", 0, -1, &batch(&["y"], &BatchSeal::default())));
        client.send(12, &fetch_request("orders", 4 * round + 3, 0, 1));
        for offset in [0, 1] {
            let answer = client.receive(9);
            let response = answer.decode::<ProduceResponse<'_>>();
            let part = &response.responses[0].partition_responses[0];
            assert_eq!(part.base_offset, 4 * round + offset, "produces are in order");
        }
        let answer = client.receive(7);
        let listed = answer.decode::<ListOffsetsResponse<'_>>();
        assert_eq!(listed.topics[0].partitions[0].offset, 4 * round + 3, "also with acks=0");
        client.receive(9);
        let answer = client.receive(12);
        assert_eq!(values(&answer.decode::<FetchResponse<'_>>()), ["y"]);
    }
}

#[test]
fn what_is_sent_behind_a_change_sees_it() {
    let (_broker, mut client) = broker();
    let find = FindCoordinatorRequest { key: "g", ..FindCoordinatorRequest::default() };
    client.call(2, &find);
    for round in 0..ROUNDS {
        let name = format!("topic-{round}");
        let topic = CreatableTopic {
            name: &name,
            num_partitions: 1,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let create = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 30_000,
            ..CreateTopicsRequest::default()
        };
        let delete = DeleteTopicsRequest {
            topic_names: vec![&name],
            timeout_ms: 30_000,
            ..DeleteTopicsRequest::default()
        };
        let group = format!("group-{round}");
        let partition = OffsetCommitRequestPartition::default();
        let commit = OffsetCommitRequest {
            group_id: &group,
            topics: vec![OffsetCommitRequestTopic {
                name: "orders",
                partitions: vec![partition],
                ..OffsetCommitRequestTopic::default()
            }],
            ..OffsetCommitRequest::default()
        };
        client.send(4, &create);
        client.send(9, &produce_request(&name, 0, -1, &batch(&["a"], &BatchSeal::default())));
        client.send(4, &delete);
        client.send(7, &list_offsets_request(&name, -1));
        client.send(7, &commit);
        client.send(4, &ListGroupsRequest::default());
        client.receive(4);
        let answer = client.receive(9);
        let response = answer.decode::<ProduceResponse<'_>>();
        let part = &response.responses[0].partition_responses[0];
        assert_eq!(part.error_code, ErrorCode::NONE, "a produce behind a creation");
        client.receive(4);
        let answer = client.receive(7);
        let listed = answer.decode::<ListOffsetsResponse<'_>>();
        let code = listed.topics[0].partitions[0].error_code;
        assert_eq!(code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "a look behind a deletion");
        client.receive(7);
        let answer = client.receive(4);
        let groups = answer.decode::<ListGroupsResponse<'_>>();
        let known = groups.groups.iter().any(|one| one.group_id == group);
        assert!(known, "a list behind a commit");
    }
}

#[test]
fn what_came_before_bytes_that_are_no_request_is_answered() {
    let (broker, mut client) = broker();
    for round in 0..ROUNDS {
        let mut other = Client::connect(broker.address());
        other.send(9, &produce_request("orders", 0, -1, &batch(&["a"], &BatchSeal::default())));
        other.stream.write_all(&[0, 0, 0, 3, 0, 18, 0]).expect("sent");
        let answer = other.receive(9);
        let response = answer.decode::<ProduceResponse<'_>>();
        assert_eq!(response.responses[0].partition_responses[0].base_offset, round);
        assert!(other.is_closed());
    }
    assert_eq!(client.list_offset("orders", -1), ROUNDS);
}

#[test]
fn a_client_that_sends_no_more_has_all_it_sent_answered_in_order() {
    let (broker, _client) = broker();
    let large = "x".repeat(500_000);
    let set = batch(&[&large], &BatchSeal::default());
    for round in 0..ROUNDS {
        let mut other = Client::connect(broker.address());
        other.send(9, &produce_request("orders", 0, -1, &set));
        other.send(7, &list_offsets_request("orders", -1));
        other.stream.shutdown(std::net::Shutdown::Write).expect("half closed");
        other.receive(9);
        let answer = other.receive(7);
        let listed = answer.decode::<ListOffsetsResponse<'_>>();
        assert_eq!(listed.topics[0].partitions[0].offset, round + 1);
        assert!(other.is_closed());
    }
}

/// Fetches a topic for longer than this test has patience, and deletes it by way of another
/// connection; what is said of it.
fn fetched_and_deleted(address: SocketAddr, client: &mut Client, version: i16) -> ErrorCode {
    let mut other = Client::connect(address);
    assert_eq!(other.create("orders"), ErrorCode::NONE);
    let answer = other.metadata("orders", false);
    let mut request = fetch_request("orders", 0, i32::MAX, 1);
    request.topics[0].topic_id = answer.decode::<MetadataResponse<'_>>().topics[0].topic_id;
    client.send(version, &request);
    let delete = DeleteTopicsRequest {
        topic_names: vec!["orders"],
        timeout_ms: 30_000,
        ..DeleteTopicsRequest::default()
    };
    other.call(4, &delete);
    let answer = client.receive(version);
    answer.decode::<FetchResponse<'_>>().responses[0].partitions[0].error_code
}

#[test]
fn a_fetch_that_waits_is_answered_when_its_topic_goes() {
    let (broker, mut client) = broker();
    for version in [12, 13] {
        // A deletion may overtake the fetch, which then waits for nothing: one by id is told so.
        let overtaken = |code: &ErrorCode| *code == ErrorCode::UNKNOWN_TOPIC_ID;
        let mut rounds =
            (0..1000).map(|_| fetched_and_deleted(broker.address(), &mut client, version));
        let code = rounds.find(|code| !overtaken(code));
        assert_eq!(code, Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), "v{version}");
    }
}
