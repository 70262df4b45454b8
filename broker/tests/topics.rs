//! Topics and producer ids from outside: created, refused, deleted, and there after a crash.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use client::program::Program;
use client::{Client, batch, produce_request};
use ottla_broker::{Broker, BrokerConfig, BrokerError};
use ottla_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use ottla_protocol::messages::delete_topics_request::DeleteTopicState;
use ottla_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, InitProducerIdRequest, InitProducerIdResponse,
    MetadataResponse, ProduceResponse,
};
use ottla_protocol::record::BatchSeal;
use ottla_protocol::{ErrorCode, Uuid};

fn broker() -> Broker {
    Broker::start(BrokerConfig::new()).expect("a broker in memory")
}

fn topic(name: &str, partitions: i32) -> CreatableTopic<'_> {
    CreatableTopic {
        name,
        num_partitions: partitions,
        replication_factor: 1,
        ..CreatableTopic::default()
    }
}

fn creating(topics: Vec<CreatableTopic<'_>>) -> CreateTopicsRequest<'_> {
    CreateTopicsRequest { topics, ..CreateTopicsRequest::default() }
}

/// The error of each topic asked for.
fn codes(client: &mut Client, version: i16, topics: Vec<CreatableTopic<'_>>) -> Vec<ErrorCode> {
    let answer = client.call(version, &creating(topics));
    let response = answer.decode::<CreateTopicsResponse<'_>>();
    for topic in &response.topics {
        let told = topic.error_message.is_some_and(|message| !message.is_empty());
        assert_eq!(told, topic.error_code != ErrorCode::NONE, "{topic:?}");
    }
    response.topics.iter().map(|topic| topic.error_code).collect()
}

fn partitions(client: &mut Client, name: &str) -> (Uuid, usize) {
    let answer = client.metadata(name, false);
    let response = answer.decode::<MetadataResponse<'_>>();
    (response.topics[0].topic_id, response.topics[0].partitions.len())
}

#[test]
fn every_version_creates_topics_that_can_be_produced_to_at_once() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    for version in 2..=7 {
        let name = format!("v{version}");
        let answer = client.call(version, &creating(vec![topic(&name, 3)]));
        let response = answer.decode::<CreateTopicsResponse<'_>>();
        let created = &response.topics[0];
        assert_eq!((created.error_code, created.name), (ErrorCode::NONE, name.as_str()));
        if version >= 5 {
            assert_eq!((created.num_partitions, created.replication_factor), (3, 1));
            let configs = created.configs.as_ref().expect("its options");
            let policy = configs.iter().find(|option| option.name == "cleanup.policy");
            let policy = policy.expect("one of Kafka's options");
            assert_eq!((policy.value, policy.config_source), (Some("delete"), 5));
        }
        client.produce(&name, &["first"]);
        let (id, count) = partitions(&mut client, &name);
        assert_eq!(count, 3);
        assert_eq!(created.topic_id, if version >= 7 { id } else { Uuid::ZERO });
    }
}

#[test]
fn topics_are_refused_each_for_itself_and_with_a_reason() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let option = |name, value| CreatableTopic {
        configs: vec![CreatableTopicConfig { name, value: Some(value) }],
        ..topic("configured", 1)
    };
    let copies = |replication_factor| CreatableTopic { replication_factor, ..topic("copies", 1) };
    let by_hand = |broker_ids| CreatableTopic {
        num_partitions: -1,
        replication_factor: -1,
        assignments: vec![CreatableReplicaAssignment { partition_index: 0, broker_ids }],
        ..topic("by-hand", 1)
    };
    let ok = ErrorCode::NONE;
    assert_eq!(codes(&mut client, 7, vec![topic("a.b", 1)]), [ok]);
    for (asked, expected) in [
        (topic("a.b", 1), ErrorCode::TOPIC_ALREADY_EXISTS),
        (topic("a_b", 1), ErrorCode::INVALID_TOPIC_EXCEPTION),
        (topic("a b", 1), ErrorCode::INVALID_TOPIC_EXCEPTION),
        (topic("none", 0), ErrorCode::INVALID_PARTITIONS),
        (copies(3), ErrorCode::INVALID_REPLICATION_FACTOR),
        (by_hand(vec![9]), ErrorCode::INVALID_REPLICA_ASSIGNMENT),
        (option("retention.mss", "1"), ErrorCode::INVALID_CONFIG),
        (option("retention.ms", "long"), ErrorCode::INVALID_CONFIG),
        (option("remote.storage.enable", "true"), ErrorCode::INVALID_CONFIG),
        (by_hand(vec![1]), ok),
        (option("max.message.bytes", "100"), ok),
    ] {
        let told = format!("{asked:?}");
        let beside = format!("beside-{}", told.len());
        let answered = codes(&mut client, 5, vec![asked, topic(&beside, 1)]);
        assert_eq!(answered[0], expected, "{told}");
    }
    let twice = codes(&mut client, 7, vec![topic("twice", 1), topic("twice", 2)]);
    assert_eq!(twice, [ErrorCode::INVALID_REQUEST]);
    let batch = batch(&[&"x".repeat(200)], &BatchSeal::default());
    let answer = client.call(9, &produce_request("configured", 0, -1, &batch));
    let response = answer.decode::<ProduceResponse<'_>>();
    let refused = response.responses[0].partition_responses[0].error_code;
    assert_eq!(refused, ErrorCode::MESSAGE_TOO_LARGE, "the topic's own option counts");
}

#[test]
fn a_check_creates_nothing() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let request = CreateTopicsRequest { validate_only: true, ..creating(vec![topic("t", 2)]) };
    let answer = client.call(7, &request);
    let response = answer.decode::<CreateTopicsResponse<'_>>();
    let checked = &response.topics[0];
    assert_eq!((checked.error_code, checked.num_partitions), (ErrorCode::NONE, 2));
    assert!(checked.topic_id.is_zero());
    assert_eq!(partitions(&mut client, "t").1, 0);
    assert_eq!(codes(&mut client, 7, vec![topic("t", 2)]), [ErrorCode::NONE]);
}

fn delete(client: &mut Client, version: i16, key: (Option<&str>, Uuid)) -> ErrorCode {
    let one = DeleteTopicState { name: key.0, topic_id: key.1 };
    let by_state = version >= 6;
    let request = DeleteTopicsRequest {
        topics: if by_state { vec![one] } else { Vec::new() },
        topic_names: if by_state { Vec::new() } else { key.0.into_iter().collect() },
        ..DeleteTopicsRequest::default()
    };
    let answer = client.call(version, &request);
    answer.decode::<DeleteTopicsResponse<'_>>().responses[0].error_code
}

#[test]
fn a_deleted_topic_is_gone_and_its_name_begins_anew() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = BrokerConfig::new().data_dir(dir.path());
    let broker = Broker::start(config).expect("a broker");
    let mut client = Client::connect(broker.address());
    let mut ids = Vec::new();
    for version in 1..=6 {
        assert_eq!(codes(&mut client, 7, vec![topic("t", 1)]), [ErrorCode::NONE]);
        assert_eq!(client.produce("t", &["x"]), 0, "no record of its predecessor");
        let (id, _) = partitions(&mut client, "t");
        assert!(!ids.contains(&id));
        ids.push(id);
        assert_eq!(delete(&mut client, version, (Some("t"), Uuid::ZERO)), ErrorCode::NONE);
        assert_eq!(partitions(&mut client, "t").1, 0);
        let again = delete(&mut client, version, (Some("t"), Uuid::ZERO));
        assert_eq!(again, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    assert_eq!(codes(&mut client, 7, vec![topic("t", 1)]), [ErrorCode::NONE]);
    let (id, _) = partitions(&mut client, "t");
    assert_eq!(delete(&mut client, 6, (Some("t"), id)), ErrorCode::INVALID_REQUEST);
    assert_eq!(delete(&mut client, 6, (None, Uuid::ZERO)), ErrorCode::INVALID_REQUEST);
    assert_eq!(delete(&mut client, 6, (None, ids[0])), ErrorCode::UNKNOWN_TOPIC_ID);
    assert_eq!(delete(&mut client, 6, (None, id)), ErrorCode::NONE);
    drop(broker);
    let left = std::fs::read_dir(dir.path()).expect("the folder");
    let names: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with("t-")), "{names:?}");
}

#[test]
fn a_broker_that_deletes_no_topics_says_so() {
    let config = BrokerConfig::new().set("delete.topic.enable", "false").expect("an option");
    let broker = Broker::start(config).expect("a broker");
    let mut client = Client::connect(broker.address());
    client.create("t");
    let key = (Some("t"), Uuid::ZERO);
    assert_eq!(delete(&mut client, 2, key), ErrorCode::INVALID_REQUEST);
    assert_eq!(delete(&mut client, 6, key), ErrorCode::TOPIC_DELETION_DISABLED);
    assert_eq!(partitions(&mut client, "t").1, 1);
}

#[test]
fn topics_and_their_options_are_there_after_a_kill() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().to_str().expect("a path");
    let first = Program::start(&["--data", data]);
    let mut client = Client::connect(first.address);
    let small = CreatableTopicConfig { name: "max.message.bytes", value: Some("100") };
    let small = CreatableTopic { configs: vec![small], ..topic("small", 4) };
    assert_eq!(codes(&mut client, 7, vec![small, topic("gone", 1)]), [ErrorCode::NONE; 2]);
    assert_eq!(delete(&mut client, 6, (Some("gone"), Uuid::ZERO)), ErrorCode::NONE);
    let before = partitions(&mut client, "small");
    first.signal("-KILL");
    first.wait();
    // As a deletion that the crash cut short leaves it.
    std::fs::create_dir_all(dir.path().join("gone-0")).expect("a stray folder");
    let second = Program::start(&["--data", data]);
    let mut client = Client::connect(second.address);
    assert_eq!(partitions(&mut client, "small"), before);
    assert_eq!(partitions(&mut client, "gone").1, 0);
    assert!(!dir.path().join("gone-0").exists(), "it is set aside");
    let batch = batch(&[&"x".repeat(200)], &BatchSeal::default());
    let answer = client.call(9, &produce_request("small", 0, -1, &batch));
    let response = answer.decode::<ProduceResponse<'_>>();
    let refused = response.responses[0].partition_responses[0].error_code;
    assert_eq!(refused, ErrorCode::MESSAGE_TOO_LARGE);
    assert_eq!(codes(&mut client, 7, vec![topic("gone", 1)]), [ErrorCode::NONE]);
}

#[test]
fn a_crash_begins_a_new_leader_epoch_and_a_clean_stop_does_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().to_str().expect("a path");
    let epoch = |client: &mut Client| {
        let answer = client.metadata("t", true);
        answer.decode::<MetadataResponse<'_>>().topics[0].partitions[0].leader_epoch
    };
    let mut seen = Vec::new();
    for end in ["-TERM", "-KILL", "-TERM"] {
        let program = Program::start(&["--data", data]);
        seen.push(epoch(&mut Client::connect(program.address)));
        program.signal(end);
        program.wait();
    }
    assert_eq!(seen, [0, 0, 1]);
}

fn producer_id(client: &mut Client, version: i16) -> i64 {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        ..InitProducerIdRequest::default()
    };
    let answer = client.call(version, &request);
    let response = answer.decode::<InitProducerIdResponse>();
    assert_eq!((response.error_code, response.producer_epoch), (ErrorCode::NONE, 0));
    response.producer_id
}

#[test]
fn no_producer_id_is_given_twice_not_even_after_a_kill() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().to_str().expect("a path");
    let mut given = Vec::new();
    for _ in 0..2 {
        let program = Program::start(&["--data", data]);
        let mut client = Client::connect(program.address);
        // More than one block of ids.
        for at in 0..1003_i16 {
            given.push(producer_id(&mut client, at % 6));
        }
        program.signal("-KILL");
        program.wait();
    }
    let count = given.len();
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), count);
}

#[test]
fn a_producer_that_names_its_id_gets_a_new_one() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let first = producer_id(&mut client, 4);
    let mut ask = |producer_id, producer_epoch| {
        let request = InitProducerIdRequest {
            transactional_id: None,
            producer_id,
            producer_epoch,
            ..InitProducerIdRequest::default()
        };
        let answer = client.call(4, &request);
        let response = answer.decode::<InitProducerIdResponse>();
        (response.error_code, response.producer_id, response.producer_epoch)
    };
    assert_eq!(ask(first, 3), (ErrorCode::NONE, first + 1, 0));
    assert_eq!(ask(first, -1), (ErrorCode::INVALID_REQUEST, -1, -1));
    assert_eq!(ask(-1, 0), (ErrorCode::INVALID_REQUEST, -1, -1));
}

#[test]
fn transactions_are_refused_for_good() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let request =
        FindCoordinatorRequest { key: "tx", key_type: 1, ..FindCoordinatorRequest::default() };
    let answer = client.call(3, &request);
    let found = answer.decode::<FindCoordinatorResponse<'_>>();
    assert_eq!((found.error_code, found.node_id), (ErrorCode::NONE, 1), "no endless search");
    for version in 0..=5 {
        let request = InitProducerIdRequest {
            transactional_id: Some("tx"),
            transaction_timeout_ms: 60_000,
            ..InitProducerIdRequest::default()
        };
        let answer = client.call(version, &request);
        let response = answer.decode::<InitProducerIdResponse>();
        assert_eq!(response.error_code, ErrorCode::INVALID_TRANSACTION_TIMEOUT);
        assert!(!response.error_code.is_retriable());
    }
}

#[test]
fn the_embedding_face_creates_topics_by_the_same_rules() {
    let broker = broker();
    broker.create_topic("orders", 3).expect("a topic");
    let mut client = Client::connect(broker.address());
    assert_eq!(partitions(&mut client, "orders").1, 3);
    for name in ["orders", "a b", ""] {
        let error = broker.create_topic(name, 1).expect_err("refused");
        assert!(matches!(error, BrokerError::Topic { .. }), "{error}");
    }
}

#[test]
fn a_request_asks_for_so_many_partitions_and_no_more_also_when_it_only_checks() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    for validate_only in [true, false] {
        let asked = vec![topic("a", 5_000), topic("b", 5_001)];
        let request = CreateTopicsRequest { validate_only, ..creating(asked) };
        let answer = client.call(7, &request);
        let response = answer.decode::<CreateTopicsResponse<'_>>();
        for refused in &response.topics {
            assert_eq!(refused.error_code, ErrorCode::POLICY_VIOLATION);
            let told = refused.error_message.unwrap_or_default();
            assert!(told.contains("10001"), "{told}");
        }
        let request =
            CreateTopicsRequest { validate_only: true, ..creating(vec![topic("a", 10_000)]) };
        let answer = client.call(7, &request);
        let response = answer.decode::<CreateTopicsResponse<'_>>();
        assert_eq!(response.topics[0].error_code, ErrorCode::NONE);
    }
}

#[test]
fn all_topics_together_have_so_many_partitions_and_no_more() {
    let config = BrokerConfig::new().set("max.partitions", "5").expect("an option");
    let broker = Broker::start(config).expect("a broker");
    let mut client = Client::connect(broker.address());
    let (ok, refused) = (ErrorCode::NONE, ErrorCode::POLICY_VIOLATION);
    let asked = vec![topic("a", 2), topic("b", 2), topic("c", 2), topic("d", 1)];
    assert_eq!(codes(&mut client, 7, asked), [ok, ok, refused, ok]);
    assert_eq!(client.create("by-a-producer"), refused);
    assert_eq!(delete(&mut client, 5, (Some("d"), Uuid::ZERO)), ok);
    assert_eq!(codes(&mut client, 7, vec![topic("e", 1)]), [ok]);
}

#[test]
fn thousands_of_names_in_one_request_are_each_answered() {
    use ottla_protocol::messages::MetadataRequest;
    use ottla_protocol::messages::metadata_request::MetadataRequestTopic;
    let broker = broker();
    let mut client = Client::connect(broker.address());
    let bad: Vec<String> = (0..20_000).map(|at| format!("no name {at}")).collect();
    let good: Vec<String> = (0..20).map(|at| format!("name-{at}")).collect();
    let names = bad.iter().chain(&good).chain(bad.first());
    let topics = names.map(|name| MetadataRequestTopic {
        name: Some(name.as_str()),
        ..MetadataRequestTopic::default()
    });
    let request = MetadataRequest {
        topics: Some(topics.collect()),
        allow_auto_topic_creation: true,
        ..MetadataRequest::default()
    };
    let answer = client.call(12, &request);
    let response = answer.decode::<MetadataResponse<'_>>();
    assert_eq!(response.topics.len(), 20_020, "the one that is named twice is answered once");
    for topic in &response.topics {
        let good = topic.name.is_some_and(|name| name.starts_with("name"));
        let expected = if good { ErrorCode::NONE } else { ErrorCode::INVALID_TOPIC_EXCEPTION };
        assert_eq!(topic.error_code, expected, "{:?}", topic.name);
    }
}
