//! Records in and out of a broker, over its port.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use client::{Client, batch, fetch_request, list_offsets_request, produce_request, values};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::messages::metadata_request::MetadataRequestTopic;
use ottla_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchResponse, ListOffsetsResponse, MetadataRequest,
    MetadataResponse, ProduceResponse,
};
use ottla_protocol::record::BatchSeal;
use ottla_protocol::{ApiKey, ErrorCode};

fn broker() -> Broker {
    Broker::start(BrokerConfig::new()).expect("a broker in memory")
}

#[test]
fn produced_records_are_fetched_in_order() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    assert_eq!(client.create("orders"), ErrorCode::NONE);
    assert_eq!(client.produce("orders", &["a", "b"]), 0);
    assert_eq!(client.produce("orders", &["c"]), 2);
    assert_eq!(client.fetch("orders", 0), ["a", "b", "c"]);
    assert_eq!(client.fetch("orders", 2), ["c"]);
    assert!(client.fetch("orders", 3).is_empty());
}

#[test]
fn every_version_of_produce_and_fetch_carries_records() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let answer = client.metadata("orders", false);
    let topic_id = answer.decode::<MetadataResponse<'_>>().topics[0].topic_id;
    assert!(!topic_id.is_zero());
    let set = batch(&["x"], &BatchSeal::default());
    let mut expected = 0;
    for version in ApiKey::Produce.served() {
        let mut request = produce_request("orders", 0, 1, &set);
        request.topic_data[0].topic_id = topic_id;
        if version >= 13 {
            request.topic_data[0].name = "";
        } else {
            request.topic_data[0].topic_id = ottla_protocol::Uuid::ZERO;
        }
        let answer = client.call(version, &request);
        let response = answer.decode::<ProduceResponse<'_>>();
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (ErrorCode::NONE, expected));
        expected += 1;
    }
    for version in ApiKey::Fetch.served() {
        let mut request = fetch_request("orders", expected - 1, 0, 1);
        if version >= 13 {
            request.topics[0].topic = "";
            request.topics[0].topic_id = topic_id;
        }
        if version >= 15 {
            // The field moved into a tagged one.
            request.replica_id = -1;
        }
        let answer = client.call(version, &request);
        assert_eq!(values(&answer.decode()), ["x"], "version {version}");
    }
}

#[test]
fn every_version_of_metadata_and_list_offsets_is_answered() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    client.produce("orders", &["a"]);
    for version in ApiKey::Metadata.served() {
        let topic = MetadataRequestTopic { name: Some("orders"), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
        let answer = client.call(version, &request);
        let response = answer.decode::<MetadataResponse<'_>>();
        assert_eq!(response.topics[0].partitions[0].leader_id, 1, "version {version}");
    }
    for version in ApiKey::ListOffsets.served() {
        for (timestamp, offset) in [(-1, 1), (-2, 0), (1000, 0), (2000, -1)] {
            let request = list_offsets_request("orders", timestamp);
            let answer = client.call(version, &request);
            let response = answer.decode::<ListOffsetsResponse<'_>>();
            let partition = &response.topics[0].partitions[0];
            assert_eq!(partition.error_code, ErrorCode::NONE);
            assert_eq!(partition.offset, offset, "version {version}, time {timestamp}");
        }
    }
}

#[test]
fn errors_are_told_in_every_version() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let answer = client.metadata("orders", false);
    let topic_id = answer.decode::<MetadataResponse<'_>>().topics[0].topic_id;
    let mut set = batch(&["x"], &BatchSeal::default());
    let last = set.len() - 1;
    set[last] ^= 1;
    for version in ApiKey::Produce.served() {
        let mut request = produce_request("orders", 0, -1, &set);
        if version >= 13 {
            request.topic_data[0].name = "";
            request.topic_data[0].topic_id = topic_id;
        }
        let answer = client.call(version, &request);
        let response = answer.decode::<ProduceResponse<'_>>();
        let code = response.responses[0].partition_responses[0].error_code;
        assert_eq!(code, ErrorCode::CORRUPT_MESSAGE, "version {version}");
    }
    for version in ApiKey::Fetch.served() {
        let mut request = fetch_request("nowhere", 5, 60_000, 1);
        if version >= 13 {
            request.topics[0].topic = "";
            request.topics[0].topic_id = ottla_protocol::Uuid([9; 16]);
        }
        let answer = client.call(version, &request);
        let response = answer.decode::<FetchResponse<'_>>();
        let code = response.responses[0].partitions[0].error_code;
        let expected = if version >= 13 {
            ErrorCode::UNKNOWN_TOPIC_ID
        } else {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        };
        assert_eq!(code, expected, "version {version}");
    }
    for version in ApiKey::ListOffsets.served() {
        let answer = client.call(version, &list_offsets_request("nowhere", -1));
        let response = answer.decode::<ListOffsetsResponse<'_>>();
        let code = response.topics[0].partitions[0].error_code;
        assert_eq!(code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "version {version}");
    }
}

#[test]
fn fetch_waits_for_a_record_and_is_woken_by_it() {
    let broker = broker();
    let mut consumer = Client::connect(broker.address());
    let mut producer = Client::connect(broker.address());
    producer.create("orders");
    let id = consumer.send(12, &fetch_request("orders", 0, 60_000, 1));
    producer.produce("orders", &["late"]);
    let answer = consumer.receive(12);
    assert_eq!(answer.correlation_id(), id);
    assert_eq!(values(&answer.decode()), ["late"]);
}

#[test]
fn fetch_is_answered_empty_when_its_time_is_over() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let answer = client.call(12, &fetch_request("orders", 0, 20, 1));
    assert!(values(&answer.decode()).is_empty());
}

#[test]
fn fetch_waits_until_there_is_as_much_as_it_asks_for() {
    let broker = broker();
    let mut consumer = Client::connect(broker.address());
    let mut producer = Client::connect(broker.address());
    producer.create("orders");
    let size = i32::try_from(batch(&["one"], &BatchSeal::default()).len()).expect("small");
    consumer.send(12, &fetch_request("orders", 0, 60_000, size + 1));
    producer.produce("orders", &["one"]);
    producer.produce("orders", &["two"]);
    assert_eq!(values(&consumer.receive(12).decode()), ["one", "two"]);
}

#[test]
fn fetch_does_not_wait_for_what_its_limits_leave_out() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    client.produce("orders", &["one"]);
    client.produce("orders", &["two"]);
    // Only whole batches are given: a second one would be more than is asked for.
    let size = i32::try_from(batch(&["one"], &BatchSeal::default()).len()).expect("small");
    let mut request = fetch_request("orders", 0, 600_000, size + 1);
    request.topics[0].partitions[0].partition_max_bytes = size + 1;
    assert_eq!(values(&client.call(12, &request).decode()), ["one"]);
    let mut request = fetch_request("orders", 0, 600_000, size + 1);
    request.max_bytes = size + 1;
    assert_eq!(values(&client.call(12, &request).decode()), ["one"]);
}

#[test]
fn answers_leave_in_the_order_of_the_requests() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let mut other = Client::connect(broker.address());
    client.create("orders");
    let set = batch(&["x"], &BatchSeal::default());
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push((client.send(9, &produce_request("orders", 0, -1, &set)), 9));
        ids.push((client.send(12, &MetadataRequest::default()), 12));
    }
    // Waits for the record of the other connection, and what follows waits behind it.
    ids.push((client.send(12, &fetch_request("orders", 20, 60_000, 1)), 12));
    ids.push((client.send(12, &MetadataRequest::default()), 12));
    let last = ids.split_off(40);
    for (id, version) in ids {
        assert_eq!(client.receive(version).correlation_id(), id);
    }
    other.produce("orders", &["y"]);
    for (id, version) in last {
        assert_eq!(client.receive(version).correlation_id(), id);
    }
}

#[test]
fn more_requests_than_may_be_open_are_all_answered() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let set = batch(&["x"], &BatchSeal::default());
    let ids: Vec<_> =
        (0..300).map(|_| client.send(9, &produce_request("orders", 0, 1, &set))).collect();
    for (id, offset) in ids.into_iter().zip(0..) {
        let answer = client.receive(9);
        assert_eq!(answer.correlation_id(), id);
        let response = answer.decode::<ProduceResponse<'_>>();
        assert_eq!(response.responses[0].partition_responses[0].base_offset, offset);
    }
}

#[test]
fn acks_0_has_no_answer_and_ends_the_connection_on_an_error() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let set = batch(&["x"], &BatchSeal::default());
    client.send(9, &produce_request("orders", 0, 0, &set));
    assert_eq!(client.produce("orders", &["y"]), 1, "the next answer is the next request's");
    client.send(9, &produce_request("nowhere", 0, 0, &set));
    assert!(client.is_closed());
}

#[test]
fn broken_sets_are_refused_with_their_reason_and_the_others_stored() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let mut broken = batch(&["x"], &BatchSeal::default());
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let answer = client.call(9, &produce_request("orders", 0, -1, &broken));
    let response = answer.decode::<ProduceResponse<'_>>();
    let partition = &response.responses[0].partition_responses[0];
    assert_eq!(partition.error_code, ErrorCode::CORRUPT_MESSAGE);
    assert!(partition.error_message.is_some());
    assert_eq!(client.produce("orders", &["fine"]), 0);
}

#[test]
fn repeated_batch_of_an_idempotent_producer_is_stored_once() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let seal =
        BatchSeal { producer_id: 7, producer_epoch: 0, base_sequence: 0, ..BatchSeal::default() };
    let set = batch(&["a", "b"], &seal);
    for _ in 0..3 {
        let answer = client.call(9, &produce_request("orders", 0, -1, &set));
        let response = answer.decode::<ProduceResponse<'_>>();
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (ErrorCode::NONE, 0));
    }
    assert_eq!(client.fetch("orders", 0), ["a", "b"]);
}

#[test]
fn first_batch_of_a_fetch_comes_whole_whatever_the_limits() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let long = "x".repeat(5000);
    client.produce("orders", &[&long]);
    client.produce("orders", &["next"]);
    let mut request = fetch_request("orders", 0, 0, 1);
    request.max_bytes = 10;
    request.topics[0].partitions[0].partition_max_bytes = 10;
    let answer = client.call(12, &request);
    assert_eq!(values(&answer.decode()), [long.as_str()]);
}

#[test]
fn answer_larger_than_any_buffer_arrives_whole() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let long = "y".repeat(200_000);
    for _ in 0..5 {
        client.produce("orders", &[&long]);
    }
    let fetched = client.fetch("orders", 0);
    assert_eq!(fetched.len(), 5);
    assert!(fetched.iter().all(|value| *value == long));
}

#[test]
fn fetch_outside_the_log_and_of_unknown_topics_says_so_at_once() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    for (topic, offset, code) in [
        ("orders", 1, ErrorCode::OFFSET_OUT_OF_RANGE),
        ("orders", -1, ErrorCode::OFFSET_OUT_OF_RANGE),
        ("nowhere", 0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    ] {
        let answer = client.call(12, &fetch_request(topic, offset, 60_000, 1));
        let response = answer.decode::<FetchResponse<'_>>();
        assert_eq!(response.responses[0].partitions[0].error_code, code, "{topic} {offset}");
    }
    let mut request = fetch_request("orders", 0, 60_000, 1);
    request.topics[0].partitions[0].current_leader_epoch = 1_000;
    let answer = client.call(12, &request);
    let response = answer.decode::<FetchResponse<'_>>();
    let code = response.responses[0].partitions[0].error_code;
    assert_eq!(code, ErrorCode::UNKNOWN_LEADER_EPOCH);
}

#[test]
fn offsets_are_listed_by_place_and_by_time() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    assert_eq!(client.list_offset("orders", -1), 0);
    assert_eq!(client.list_offset("orders", -3), -1, "no record, no newest");
    client.produce("orders", &["a", "b", "c"]);
    assert_eq!(client.list_offset("orders", -2), 0);
    assert_eq!(client.list_offset("orders", -1), 3);
    assert_eq!(client.list_offset("orders", -3), 2);
    assert_eq!(client.list_offset("orders", 1001), 1);
    assert_eq!(client.list_offset("orders", 5000), -1);
}

#[test]
fn topic_is_created_only_when_the_client_asks_for_it() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let answer = client.metadata("orders", false);
    let response = answer.decode::<MetadataResponse<'_>>();
    assert_eq!(response.topics[0].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(client.create("orders"), ErrorCode::NONE);
    assert_eq!(client.create("not a name"), ErrorCode::INVALID_TOPIC_EXCEPTION);
    let config = BrokerConfig::new().set("auto.create.topics.enable", "false").expect("an option");
    let strict = Broker::start(config).expect("a broker");
    let mut client = Client::connect(strict.address());
    assert_eq!(client.create("orders"), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn metadata_names_the_address_that_the_client_came_by() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let request = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
    let answer = client.call(12, &request);
    let response = answer.decode::<MetadataResponse<'_>>();
    assert_eq!(response.brokers[0].host, "127.0.0.1");
    assert_eq!(response.brokers[0].port, i32::from(broker.address().port()));
    assert!(response.topics.is_empty(), "none asked for");
    let config = BrokerConfig::new()
        .set("advertised.listeners", "PLAINTEXT://kafka.example:9094")
        .expect("an option");
    let mapped = Broker::start(config).expect("a broker");
    let mut client = Client::connect(mapped.address());
    let answer = client.call(12, &request);
    let response = answer.decode::<MetadataResponse<'_>>();
    assert_eq!((response.brokers[0].host, response.brokers[0].port), ("kafka.example", 9094));
}

#[test]
fn metadata_log_is_not_shown_as_a_topic() {
    let broker = broker();
    broker.create_topic("orders", 3).expect("a topic");
    let mut client = Client::connect(broker.address());
    let answer = client.call(12, &MetadataRequest { topics: None, ..MetadataRequest::default() });
    let response = answer.decode::<MetadataResponse<'_>>();
    let names: Vec<_> = response.topics.iter().filter_map(|topic| topic.name).collect();
    assert!(names.contains(&"orders") && !names.contains(&"__cluster_metadata"), "{names:?}");
    let orders = response.topics.iter().find(|topic| topic.name == Some("orders"));
    assert_eq!(orders.map(|topic| topic.partitions.len()), Some(3));
}

#[test]
fn unknown_version_of_api_versions_is_answered_in_the_oldest_form() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    // The version of the header, right after size and key.
    let mut writer = ottla_protocol::Writer::new();
    let request = ApiVersionsRequest {
        client_software_name: "test",
        client_software_version: "1",
        ..ApiVersionsRequest::default()
    };
    ottla_protocol::frame::encode_request(3, 77, Some("test"), &request, &mut writer)
        .expect("a request");
    let mut frame = writer.into_bytes();
    frame[6..8].copy_from_slice(&99_i16.to_be_bytes());
    std::io::Write::write_all(&mut client.stream, &frame).expect("sent");
    let answer = client.receive(0);
    assert_eq!(answer.correlation_id(), 77);
    let response = answer.decode::<ApiVersionsResponse<'_>>();
    assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_VERSION);
    assert!(response.api_keys.iter().any(|api| api.api_key == 18));
    let answer = client.call(4, &request);
    let response = answer.decode::<ApiVersionsResponse<'_>>();
    assert_eq!(response.error_code, ErrorCode::NONE);
    let produce = response.api_keys.iter().find(|api| api.api_key == 0);
    assert_eq!(produce.map(|api| (api.min_version, api.max_version)), Some((0, 13)));
}

#[test]
fn min_insync_replicas_asks_for_no_more_replicas_than_there_are() {
    let config = BrokerConfig::new().set("min.insync.replicas", "2").expect("an option");
    let broker = Broker::start(config).expect("a broker");
    let mut client = Client::connect(broker.address());
    client.create("orders");
    assert_eq!(client.produce("orders", &["x"]), 0);
    assert_eq!(client.fetch("orders", 0), ["x"]);
}

#[test]
fn features_are_told_with_their_levels_and_none_that_begins_with_zero_to_old_clients() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    for version in ApiKey::ApiVersions.served() {
        let request = ApiVersionsRequest {
            client_software_name: "test",
            client_software_version: "1",
            ..ApiVersionsRequest::default()
        };
        let answer = client.call(version, &request);
        let response = answer.decode::<ApiVersionsResponse<'_>>();
        let supported = response.supported_features.iter();
        let supported: Vec<_> = supported.map(|one| (one.name, one.min_version)).collect();
        let finalized = response.finalized_features.iter();
        let finalized: Vec<_> = finalized.map(|one| (one.name, one.max_version_level)).collect();
        if version < 3 {
            assert!(supported.is_empty() && finalized.is_empty(), "no place for them");
            continue;
        }
        assert!(response.finalized_features_epoch >= 0, "or they would not count");
        assert_eq!(finalized, [("metadata.version", 33), ("kraft.version", 1)]);
        let expected: &[_] = if version == 3 {
            &[("metadata.version", 7)]
        } else {
            &[("metadata.version", 7), ("kraft.version", 0)]
        };
        assert_eq!(supported, expected, "version {version}");
    }
}

/// KIP-1242: an address may by now be another broker's, or another cluster's.
#[test]
fn a_client_that_means_another_broker_is_told_so() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let cluster = broker.cluster_id();
    let version = *ApiKey::ApiVersions.served().end();
    let meant = [
        (None, -1, ErrorCode::NONE),
        (Some(&*cluster), 1, ErrorCode::NONE),
        (Some(&*cluster), 7, ErrorCode::REBOOTSTRAP_REQUIRED),
        (Some("another"), 1, ErrorCode::REBOOTSTRAP_REQUIRED),
        (Some(&*cluster), -1, ErrorCode::INVALID_REQUEST),
        (None, 1, ErrorCode::INVALID_REQUEST),
    ];
    for (cluster_id, node_id, expected) in meant {
        let request = ApiVersionsRequest {
            client_software_name: "test",
            client_software_version: "1",
            cluster_id,
            node_id,
        };
        let answer = client.call(version, &request);
        let response = answer.decode::<ApiVersionsResponse<'_>>();
        assert_eq!(response.error_code, expected, "{cluster_id:?} {node_id}");
        assert_eq!(response.api_keys.is_empty(), expected.is_error());
    }
}

/// A lone broker has no followers: who says to be one is in the wrong place, and is told so in place
/// of records (KIP-903 moved the field).
#[test]
fn a_fetch_that_says_it_is_a_brokers_gets_no_records_in_any_version() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    client.produce("orders", &["x"]);
    let known = client.metadata("orders", false);
    let topic_id = known.decode::<MetadataResponse<'_>>().topics[0].topic_id;
    for version in ApiKey::Fetch.served() {
        for (replica_id, expected) in [
            (-1, ErrorCode::NONE),
            (0, ErrorCode::NOT_LEADER_OR_FOLLOWER),
            (1, ErrorCode::NOT_LEADER_OR_FOLLOWER),
            (7, ErrorCode::NOT_LEADER_OR_FOLLOWER),
        ] {
            let mut request = fetch_request("orders", 0, 0, 1);
            if version >= 13 {
                request.topics[0].topic = "";
                request.topics[0].topic_id = topic_id;
            }
            if version >= 15 {
                request.replica_id = -1;
                request.replica_state.replica_id = replica_id;
            } else {
                request.replica_id = replica_id;
            }
            let answer = client.call(version, &request);
            let response = answer.decode::<FetchResponse<'_>>();
            let partition = &response.responses[0].partitions[0];
            assert_eq!(partition.error_code, expected, "version {version}, id {replica_id}");
            let bytes = partition.records.bytes().unwrap_or_default();
            assert_eq!(bytes.is_empty(), expected.is_error());
        }
    }
}
