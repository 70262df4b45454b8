//! What tools ask of a broker: options, partitions, folders, producers, epochs.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use client::program::Program;
use client::{Client, batch, list_offsets_request, produce_request};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::messages::alter_configs_request as alter;
use ottla_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use ottla_protocol::messages::describe_configs_request::DescribeConfigsResource;
use ottla_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use ottla_protocol::messages::describe_producers_request as producers;
use ottla_protocol::messages::describe_topic_partitions_request as paging;
use ottla_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use ottla_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use ottla_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    DescribeClusterRequest, DescribeClusterResponse, DescribeConfigsRequest,
    DescribeConfigsResponse, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeProducersRequest, DescribeProducersResponse, DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse, FetchResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, ListConfigResourcesRequest, ListConfigResourcesResponse,
    ListOffsetsResponse, MetadataResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse, ProduceResponse,
};
use ottla_protocol::record::{BatchSeal, batches};
use ottla_protocol::{ApiKey, ErrorCode};

const OK: ErrorCode = ErrorCode::NONE;
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

fn broker() -> Broker {
    let broker = Broker::start(BrokerConfig::new()).expect("a broker in memory");
    broker.create_topic("orders", 2).expect("a topic");
    broker
}

/// An option as described: value, source, whether only a start changes it, its synonyms.
type Shown = (Option<String>, i8, bool, Vec<(String, String, i8)>);

fn described(
    client: &mut Client,
    version: i16,
    (kind, resource): (i8, &str),
    option: &str,
) -> Result<Shown, ErrorCode> {
    let resource = DescribeConfigsResource {
        resource_type: kind,
        resource_name: resource,
        configuration_keys: Some(vec![option]),
    };
    let request = DescribeConfigsRequest {
        resources: vec![resource],
        include_synonyms: true,
        include_documentation: version >= 3,
    };
    let answer = client.call(version, &request);
    let response = answer.decode::<DescribeConfigsResponse<'_>>();
    let result = &response.results[0];
    if result.error_code != OK {
        assert!(result.error_message.is_some_and(|message| !message.is_empty()));
        return Err(result.error_code);
    }
    let config = &result.configs[0];
    let told = config.documentation.is_some_and(|text| !text.is_empty());
    assert_eq!(told, version >= 3);
    let synonyms = config
        .synonyms
        .iter()
        .map(|one| (one.name.to_owned(), one.value.unwrap_or_default().to_owned(), one.source));
    let value = config.value.map(str::to_owned);
    Ok((value, config.config_source, config.read_only, synonyms.collect()))
}

fn value(client: &mut Client, resource: (i8, &str), option: &str) -> String {
    let (value, ..) = described(client, 4, resource, option).expect("an option");
    value.unwrap_or_default()
}

/// Changes one option: 0 set, 1 delete, 2 append, 3 subtract.
fn change(
    client: &mut Client,
    (kind, resource): (i8, &str),
    (name, operation, value): (&str, i8, Option<&str>),
) -> ErrorCode {
    let config = AlterableConfig { name, config_operation: operation, value };
    let resource = AlterConfigsResource {
        resource_type: kind,
        resource_name: resource,
        configs: vec![config],
    };
    let request =
        IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let answer = client.call(1, &request);
    let response = answer.decode::<IncrementalAlterConfigsResponse<'_>>();
    let told = &response.responses[0];
    let reason = told.error_message.is_some_and(|message| !message.is_empty());
    assert_eq!(reason, told.error_code != OK, "{told:?}");
    told.error_code
}

fn produced(client: &mut Client, value: &str) -> ErrorCode {
    let set = batch(&[value], &BatchSeal::default());
    let answer = client.call(9, &produce_request("orders", 0, -1, &set));
    answer.decode::<ProduceResponse<'_>>().responses[0].partition_responses[0].error_code
}

#[test]
fn an_option_of_a_topic_acts_as_soon_as_it_is_set() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let orders = (TOPIC, "orders");
    assert_eq!(produced(&mut client, &"x".repeat(200)), OK);
    assert_eq!(change(&mut client, orders, ("max.message.bytes", 0, Some("100"))), OK);
    assert_eq!(produced(&mut client, &"x".repeat(200)), ErrorCode::MESSAGE_TOO_LARGE);
    assert_eq!(change(&mut client, orders, ("max.message.bytes", 1, None)), OK);
    assert_eq!(produced(&mut client, &"x".repeat(200)), OK);
    let append_time = Some("LogAppendTime");
    assert_eq!(change(&mut client, orders, ("message.timestamp.type", 0, append_time)), OK);
    assert_eq!(produced(&mut client, "stamped"), OK);
    let answer = client.call(12, &client::fetch_request("orders", 2, 0, 1));
    let response = answer.decode::<FetchResponse<'_>>();
    let bytes = response.responses[0].partitions[0].records.bytes().expect("records");
    let header = batches(bytes).next().expect("a batch").expect("whole").header;
    assert!(header.max_timestamp > 1_000_000_000_000, "the broker's time, not 1000");
}

#[test]
fn changes_of_options_are_judged_one_by_one() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let invalid = ErrorCode::INVALID_CONFIG;
    let request = ErrorCode::INVALID_REQUEST;
    for (resource, change_asked, expected) in [
        ((TOPIC, "orders"), ("max.message.bytes", 0, Some("-5")), invalid),
        ((TOPIC, "orders"), ("max.message.bytes", 0, None), request),
        ((TOPIC, "orders"), ("max.message.bytes", 2, Some("5")), invalid),
        ((TOPIC, "orders"), ("max.message.bytes", 9, Some("5")), request),
        ((TOPIC, "orders"), ("nope", 0, Some("5")), invalid),
        ((TOPIC, "orders"), ("nope", 1, None), OK),
        ((TOPIC, "orders"), ("min.insync.replicas", 0, Some("2")), OK),
        ((TOPIC, "orders"), ("remote.storage.enable", 0, Some("true")), invalid),
        ((TOPIC, "orders"), ("min.cleanable.dirty.ratio", 0, Some("0.25")), OK),
        ((TOPIC, "orders"), ("leader.replication.throttled.replicas", 2, Some("0:1")), OK),
        ((TOPIC, "orders"), ("cleanup.policy", 2, Some("compact")), OK),
        ((TOPIC, "nowhere"), ("retention.ms", 0, Some("5")), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, "a b"), ("retention.ms", 0, Some("5")), ErrorCode::INVALID_TOPIC_EXCEPTION),
        ((BROKER, "1"), ("node.id", 0, Some("2")), request),
        ((BROKER, "1"), ("log.segment.bytes", 0, Some("x")), request),
        ((BROKER, "7"), ("message.max.bytes", 0, Some("5000")), request),
        ((BROKER, "x"), ("message.max.bytes", 0, Some("5000")), request),
        ((3, "x"), ("message.max.bytes", 0, Some("5000")), request),
    ] {
        assert_eq!(change(&mut client, resource, change_asked), expected, "{change_asked:?}");
    }
    assert_eq!(value(&mut client, (TOPIC, "orders"), "cleanup.policy"), "delete,compact");
    for operation in ["delete", "compact"] {
        let subtract = ("cleanup.policy", 3, Some(operation));
        assert_eq!(change(&mut client, (TOPIC, "orders"), subtract), OK);
    }
    assert_eq!(value(&mut client, (TOPIC, "orders"), "cleanup.policy"), "");
}

#[test]
fn a_brokers_option_is_the_default_of_its_topics_at_once_and_after_a_kill() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().to_str().expect("a path");
    let program = Program::start(&["--data", data]);
    let mut client = Client::connect(program.address);
    client.create("orders");
    assert_eq!(change(&mut client, (BROKER, ""), ("message.max.bytes", 0, Some("300"))), OK);
    assert_eq!(change(&mut client, (BROKER, "1"), ("message.max.bytes", 0, Some("100"))), OK);
    assert_eq!(change(&mut client, (TOPIC, "orders"), ("retention.ms", 0, Some("77"))), OK);
    assert_eq!(produced(&mut client, &"x".repeat(200)), ErrorCode::MESSAGE_TOO_LARGE);
    program.signal("-KILL");
    program.wait();
    let program = Program::start(&["--data", data]);
    let mut client = Client::connect(program.address);
    assert_eq!(produced(&mut client, &"x".repeat(200)), ErrorCode::MESSAGE_TOO_LARGE);
    let option = described(&mut client, 4, (TOPIC, "orders"), "max.message.bytes");
    let synonyms = [("100", 2), ("300", 3), ("1048588", 5)];
    let synonyms =
        synonyms.map(|(value, source)| ("message.max.bytes".to_owned(), value.to_owned(), source));
    assert_eq!(option, Ok((Some("100".to_owned()), 2, false, synonyms.to_vec())));
    assert_eq!(value(&mut client, (TOPIC, "orders"), "retention.ms"), "77");
    assert_eq!(change(&mut client, (BROKER, "1"), ("message.max.bytes", 1, None)), OK);
    assert_eq!(produced(&mut client, &"x".repeat(200)), OK);
}

#[test]
fn every_version_describes_options_and_says_where_they_come_from() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    for version in ApiKey::DescribeConfigs.served() {
        let topic = described(&mut client, version, (TOPIC, "orders"), "retention.ms");
        let (value, source, read_only, _) = topic.expect("an option");
        assert_eq!((value.as_deref(), source, read_only), (Some("604800000"), 5, false));
        let (value, source, read_only, _) =
            described(&mut client, version, (BROKER, "1"), "node.id").expect("an option");
        assert_eq!((value.as_deref(), source, read_only), (Some("1"), 5, true));
    }
    for (resource, expected) in [
        ((TOPIC, "nowhere"), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, ""), ErrorCode::INVALID_TOPIC_EXCEPTION),
        ((BROKER, "7"), ErrorCode::INVALID_REQUEST),
        ((99, "x"), ErrorCode::INVALID_REQUEST),
    ] {
        assert_eq!(described(&mut client, 4, resource, "retention.ms"), Err(expected));
    }
}

#[test]
fn alter_configs_replaces_what_was_set_and_a_check_changes_nothing() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let orders = (TOPIC, "orders");
    assert_eq!(change(&mut client, orders, ("retention.ms", 0, Some("5"))), OK);
    for (version, validate_only) in [(0, true), (1, false), (2, false)] {
        let config = alter::AlterableConfig { name: "segment.ms", value: Some("9") };
        let resource = alter::AlterConfigsResource {
            resource_type: TOPIC,
            resource_name: "orders",
            configs: vec![config],
        };
        let request = AlterConfigsRequest { resources: vec![resource], validate_only };
        let answer = client.call(version, &request);
        let response = answer.decode::<AlterConfigsResponse<'_>>();
        assert_eq!(response.responses[0].error_code, OK);
        let expected = if validate_only { ("5", "604800000") } else { ("604800000", "9") };
        assert_eq!(value(&mut client, orders, "retention.ms"), expected.0);
        assert_eq!(value(&mut client, orders, "segment.ms"), expected.1);
    }
    let twice = alter::AlterConfigsResource {
        resource_type: TOPIC,
        resource_name: "orders",
        ..alter::AlterConfigsResource::default()
    };
    let request =
        AlterConfigsRequest { resources: vec![twice.clone(), twice], validate_only: false };
    let answer = client.call(2, &request);
    let response = answer.decode::<AlterConfigsResponse<'_>>();
    assert!(response.responses.iter().all(|one| one.error_code == ErrorCode::INVALID_REQUEST));
}

fn grow(client: &mut Client, version: i16, topic: CreatePartitionsTopic<'_>) -> ErrorCode {
    let request = CreatePartitionsRequest { topics: vec![topic], ..Default::default() };
    let answer = client.call(version, &request);
    answer.decode::<CreatePartitionsResponse<'_>>().results[0].error_code
}

fn to(name: &str, count: i32) -> CreatePartitionsTopic<'_> {
    CreatePartitionsTopic { name, count, assignments: None }
}

#[test]
fn topics_grow_and_the_new_partitions_work_also_after_a_kill() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().to_str().expect("a path");
    let program = Program::start(&["--data", data, "-c", "max.partitions=20"]);
    let mut client = Client::connect(program.address);
    client.create("orders");
    for version in ApiKey::CreatePartitions.served() {
        assert_eq!(grow(&mut client, version, to("orders", 2 + i32::from(version))), OK);
    }
    let by_hand = |brokers: Vec<Vec<i32>>| {
        let assignments =
            brokers.into_iter().map(|broker_ids| CreatePartitionsAssignment { broker_ids });
        CreatePartitionsTopic { assignments: Some(assignments.collect()), ..to("orders", 6) }
    };
    for (asked, expected) in [
        (to("orders", 5), ErrorCode::INVALID_PARTITIONS),
        (to("orders", 4), ErrorCode::INVALID_PARTITIONS),
        (to("orders", -1), ErrorCode::INVALID_PARTITIONS),
        (to("orders", 21), ErrorCode::POLICY_VIOLATION),
        (to("orders", i32::MAX), ErrorCode::INVALID_PARTITIONS),
        (to("nowhere", 5), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        (by_hand(vec![vec![1], vec![1]]), ErrorCode::INVALID_REPLICA_ASSIGNMENT),
        (by_hand(vec![vec![9]]), ErrorCode::INVALID_REPLICA_ASSIGNMENT),
        (by_hand(vec![vec![1]]), OK),
    ] {
        assert_eq!(grow(&mut client, 3, asked.clone()), expected, "{asked:?}");
    }
    let set = batch(&["x"], &BatchSeal::default());
    let produce = produce_request("orders", 5, -1, &set);
    let check = |client: &mut Client| {
        let answer = client.call(9, &produce);
        let response = answer.decode::<ProduceResponse<'_>>();
        assert_eq!(response.responses[0].partition_responses[0].error_code, OK);
    };
    check(&mut client);
    program.signal("-KILL");
    program.wait();
    let program = Program::start(&["--data", data]);
    check(&mut Client::connect(program.address));
}

#[test]
fn the_cluster_is_this_broker() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    for version in ApiKey::DescribeCluster.served() {
        let request = DescribeClusterRequest {
            include_cluster_authorized_operations: true,
            ..DescribeClusterRequest::default()
        };
        let answer = client.call(version, &request);
        let response = answer.decode::<DescribeClusterResponse<'_>>();
        assert_eq!((response.error_code, response.cluster_id), (OK, &*broker.cluster_id()));
        assert_eq!(response.cluster_authorized_operations & 1 << 5, 1 << 5, "create");
        let one = &response.brokers[0];
        assert_eq!((one.broker_id, one.host, one.is_fenced), (1, "127.0.0.1", false));
        assert_eq!(one.port, i32::from(broker.address().port()));
    }
    for (endpoint_type, expected) in
        [(2, ErrorCode::MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode::UNSUPPORTED_ENDPOINT_TYPE)]
    {
        let request = DescribeClusterRequest { endpoint_type, ..Default::default() };
        let answer = client.call(1, &request);
        assert_eq!(answer.decode::<DescribeClusterResponse<'_>>().error_code, expected);
    }
}

#[test]
fn topics_are_paged_from_the_cursor_on() {
    let broker = broker();
    broker.create_topic("arrivals", 3).expect("a topic");
    let mut client = Client::connect(broker.address());
    let mut cursor: Option<(String, i32)> = None;
    let mut seen = Vec::new();
    // Three pages; a cursor that does not move must not keep the test.
    for _ in 0..10 {
        let request = DescribeTopicPartitionsRequest {
            response_partition_limit: 2,
            cursor: cursor.as_ref().map(|(topic_name, partition_index)| paging::Cursor {
                topic_name,
                partition_index: *partition_index,
            }),
            ..DescribeTopicPartitionsRequest::default()
        };
        let answer = client.call(0, &request);
        let response = answer.decode::<DescribeTopicPartitionsResponse<'_>>();
        for topic in &response.topics {
            assert_eq!(topic.error_code, OK);
            let name = topic.name.expect("a name").to_owned();
            seen.extend(topic.partitions.iter().map(|one| (name.clone(), one.partition_index)));
        }
        let Some(next) = &response.next_cursor else { break };
        cursor = Some((next.topic_name.to_owned(), next.partition_index));
    }
    let expected =
        [("arrivals", 0), ("arrivals", 1), ("arrivals", 2), ("orders", 0), ("orders", 1)];
    assert_eq!(seen, expected.map(|(name, index)| (name.to_owned(), index)));
    let names = ["orders", "nowhere", "a b"];
    let topics = names.map(|name| paging::TopicRequest { name }).to_vec();
    let request = DescribeTopicPartitionsRequest { topics, ..Default::default() };
    let answer = client.call(0, &request);
    let response = answer.decode::<DescribeTopicPartitionsResponse<'_>>();
    let codes: Vec<_> = response.topics.iter().map(|one| (one.name, one.error_code)).collect();
    let expected = [
        (Some("a b"), ErrorCode::INVALID_TOPIC_EXCEPTION),
        (Some("nowhere"), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        (Some("orders"), OK),
    ];
    assert_eq!(codes, expected);
}

#[test]
fn the_folder_tells_what_each_partition_takes_of_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let broker = Broker::start(BrokerConfig::new().data_dir(dir.path())).expect("a broker");
    broker.create_topic("orders", 2).expect("a topic");
    let mut client = Client::connect(broker.address());
    client.produce("orders", &["x"]);
    let size = i64::try_from(batch(&["x"], &BatchSeal::default()).len()).expect("small");
    for version in ApiKey::DescribeLogDirs.served() {
        let answer = client.call(version, &DescribeLogDirsRequest::default());
        let all = answer.decode::<DescribeLogDirsResponse<'_>>();
        assert_eq!(all.results[0].log_dir, dir.path().to_string_lossy());
        if version >= 4 {
            assert!(all.results[0].total_bytes >= all.results[0].usable_bytes);
            assert!(all.results[0].usable_bytes > 0);
        }
        let wanted = DescribableLogDirTopic { topic: "orders", partitions: vec![0, 7] };
        let request = DescribeLogDirsRequest { topics: Some(vec![wanted]) };
        let answer = client.call(version, &request);
        let response = answer.decode::<DescribeLogDirsResponse<'_>>();
        let topic = &response.results[0].topics[0];
        let found: Vec<_> =
            topic.partitions.iter().map(|one| (one.partition_index, one.partition_size)).collect();
        assert_eq!((topic.name, found), ("orders", vec![(0, size)]));
    }
}

#[test]
fn producers_that_a_partition_remembers_are_shown() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let seal =
        BatchSeal { producer_id: 7, producer_epoch: 3, base_sequence: 0, ..BatchSeal::default() };
    let set = batch(&["a", "b"], &seal);
    client.call(9, &produce_request("orders", 0, -1, &set));
    let topic = producers::TopicRequest { name: "orders", partition_indexes: vec![0, 1, 9] };
    let request = DescribeProducersRequest { topics: vec![topic] };
    let answer = client.call(0, &request);
    let response = answer.decode::<DescribeProducersResponse<'_>>();
    let partitions = &response.topics[0].partitions;
    let one = &partitions[0].active_producers[0];
    assert_eq!((one.producer_id, one.producer_epoch, one.last_sequence), (7, 3, 1));
    assert_eq!(one.current_txn_start_offset, -1);
    assert!(partitions[1].active_producers.is_empty());
    assert_eq!(partitions[2].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

/// The end of an epoch: error, epoch, offset.
fn end_of(client: &mut Client, version: i16, current: i32, epoch: i32) -> (ErrorCode, i32, i64) {
    let partition = OffsetForLeaderPartition {
        partition: 0,
        current_leader_epoch: current,
        leader_epoch: epoch,
    };
    let topic = OffsetForLeaderTopic { topic: "orders", partitions: vec![partition] };
    let request = OffsetForLeaderEpochRequest { topics: vec![topic], ..Default::default() };
    let answer = client.call(version, &request);
    let response = answer.decode::<OffsetForLeaderEpochResponse<'_>>();
    let one = &response.topics[0].partitions[0];
    (one.error_code, one.leader_epoch, one.end_offset)
}

#[test]
fn the_end_of_each_leader_epoch_is_known() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().to_str().expect("a path");
    for life in 0..2 {
        let program = Program::start(&["--data", data]);
        let mut client = Client::connect(program.address);
        client.create("orders");
        client.produce("orders", &["a", "b"]);
        if life == 0 {
            // A crash begins a new epoch.
            program.signal("-KILL");
            program.wait();
            continue;
        }
        for version in ApiKey::OffsetForLeaderEpoch.served() {
            assert_eq!(end_of(&mut client, version, -1, 0), (OK, 0, 2));
            assert_eq!(end_of(&mut client, version, 1, 1), (OK, 1, 4));
            assert_eq!(end_of(&mut client, version, 1, 9), (OK, -1, -1));
            let fenced = (ErrorCode::FENCED_LEADER_EPOCH, -1, -1);
            assert_eq!(end_of(&mut client, version, 0, 0), fenced);
            let unknown = (ErrorCode::UNKNOWN_LEADER_EPOCH, -1, -1);
            assert_eq!(end_of(&mut client, version, 5, 0), unknown);
        }
    }
}

#[test]
fn what_has_options_is_listed() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let list = |client: &mut Client, version: i16, types: &[i8]| {
        let request = ListConfigResourcesRequest { resource_types: types.to_vec() };
        let answer = client.call(version, &request);
        let response = answer.decode::<ListConfigResourcesResponse<'_>>();
        let all = response.config_resources.iter();
        let all = all.map(|one| (one.resource_name.to_owned(), one.resource_type));
        (response.error_code, all.collect::<Vec<_>>())
    };
    assert_eq!(list(&mut client, 0, &[]), (OK, vec![]));
    let (topic, one) = (("orders".to_owned(), TOPIC), ("1".to_owned(), BROKER));
    assert_eq!(list(&mut client, 1, &[]), (OK, vec![topic.clone(), one]));
    assert_eq!(list(&mut client, 1, &[TOPIC]), (OK, vec![topic]));
    assert_eq!(list(&mut client, 1, &[5]), (ErrorCode::UNSUPPORTED_VERSION, vec![]));
}

#[test]
fn special_times_are_answered_from_the_version_that_has_them_on() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.produce("orders", &["a", "b"]);
    for version in ApiKey::ListOffsets.served() {
        for (time, since, offset) in [
            (-1, 1, 2),
            (-2, 1, 0),
            (-3, 7, 1),
            (-4, 8, 0),
            (-5, 9, -1),
            (-6, 11, -1),
            (-7, 99, -1),
        ] {
            let answer = client.call(version, &list_offsets_request("orders", time));
            let response = answer.decode::<ListOffsetsResponse<'_>>();
            let found = &response.topics[0].partitions[0];
            let expected =
                if version >= since { (OK, offset) } else { (ErrorCode::UNSUPPORTED_VERSION, -1) };
            let told = (found.error_code, found.offset);
            assert_eq!(told, expected, "time {time} in version {version}");
        }
    }
    let answer = client.metadata("orders", false);
    let response = answer.decode::<MetadataResponse<'_>>();
    assert_eq!(response.topics[0].topic_authorized_operations, i32::MIN, "not asked for");
}
