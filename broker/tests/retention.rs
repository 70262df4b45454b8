//! Old records go, from outside: by age, by size, and because somebody asked for it.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::path::Path;
use std::time::{Duration, Instant};

use client::program::Program;
use client::{Client, batch, fetch_request, produce_request};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use ottla_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use ottla_protocol::messages::delete_topics_request::DeleteTopicState;
use ottla_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteTopicsRequest, FetchResponse, ProduceResponse,
};
use ottla_protocol::record::BatchSeal;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// Looks for old segments all the time, and removes their files at once.
fn quick(dir: &Path) -> BrokerConfig {
    let set = |config: BrokerConfig, (name, value)| config.set(name, value).expect("an option");
    [
        ("log.retention.check.interval.ms", "20"),
        ("log.segment.delete.delay.ms", "0"),
        ("log.segment.bytes", "1048576"),
        ("log.retention.ms", "-1"),
    ]
    .into_iter()
    .fold(BrokerConfig::new().data_dir(dir), set)
}

fn start(config: BrokerConfig) -> (Broker, Client) {
    let broker = Broker::start(config).expect("a broker");
    let client = Client::connect(broker.address());
    (broker, client)
}

/// The program on this folder, which may be killed.
fn start_program(data: &Path) -> (Program, Client) {
    let program = Program::start(&["--data", data.to_str().expect("text")]);
    let client = Client::connect(program.address);
    (program, client)
}

/// The same on a new folder, with three records in `orders`.
fn with_three_orders(data: &Path) -> (Program, Client) {
    let (program, mut client) = start_program(data);
    client.create("orders");
    client.produce("orders", &["a", "b", "c"]);
    (program, client)
}

fn create(client: &mut Client, name: &str, configs: &[(&str, &str)]) {
    let configs =
        configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) });
    let topic = CreatableTopic {
        name,
        num_partitions: 1,
        replication_factor: 1,
        configs: configs.collect(),
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    let answer = client.call(7, &request);
    let response = answer.decode::<CreateTopicsResponse<'_>>();
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE, "{:?}", response.topics[0]);
}

/// Asks again and again until the answer is as wanted.
#[allow(clippy::disallowed_methods, reason = "a deadline for a test that would hang")]
fn until<T: PartialEq + std::fmt::Debug>(wanted: &T, mut ask: impl FnMut() -> T) {
    let deadline = Instant::now() + Duration::from_mins(2);
    loop {
        let found = ask();
        if found == *wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{found:?} in place of {wanted:?}");
        std::thread::yield_now();
    }
}

fn files(dir: &Path, topic: &str, ending: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join(format!("{topic}-0"))).expect("a folder");
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(ending));
    names.sort();
    names
}

/// The answer for the one partition: its log start, or an error.
fn delete_records(client: &mut Client, topic: &str, offset: i64) -> Result<i64, ErrorCode> {
    let partition = DeleteRecordsPartition { partition_index: 0, offset };
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic { name: topic, partitions: vec![partition] }],
        timeout_ms: 30_000,
    };
    let answer = client.call(2, &request);
    let response = answer.decode::<DeleteRecordsResponse<'_>>();
    let part = &response.topics[0].partitions[0];
    match part.error_code {
        ErrorCode::NONE => Ok(part.low_watermark),
        error => {
            assert_eq!(part.low_watermark, -1);
            Err(error)
        }
    }
}

#[test]
fn records_older_than_their_topic_allows_go_also_from_the_active_segment() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_broker, mut client) = start(quick(dir.path()));
    create(&mut client, "kept", &[]);
    create(&mut client, "old", &[("retention.ms", "3600000")]);
    // Their time is of 1970.
    let long = "s".repeat(400_000);
    for topic in ["kept", "old"] {
        for _ in 0..5 {
            client.produce(topic, &[&long]);
        }
    }
    until(&5, || client.list_offset("old", EARLIEST));
    assert_eq!(client.list_offset("old", LATEST), 5);
    assert_eq!(client.list_offset("old", 0), -1, "no record is of that time or later");
    assert_eq!(client.list_offset("kept", EARLIEST), 0);
    let only = vec!["00000000000000000005.log".to_owned()];
    until(&(only, Vec::new()), || {
        (files(dir.path(), "old", ".log"), files(dir.path(), "old", ".deleted"))
    });
    let answer = client.call(12, &fetch_request("old", 4, 0, 1));
    let response = answer.decode::<FetchResponse<'_>>();
    let part = &response.responses[0].partitions[0];
    assert_eq!((part.error_code, part.log_start_offset), (ErrorCode::OFFSET_OUT_OF_RANGE, -1));
    assert_eq!(client.produce("old", &["next"]), 5);
}

#[test]
fn a_partition_keeps_no_more_bytes_than_its_topic_allows() {
    let dir = tempfile::tempdir().expect("a folder");
    let (broker, mut client) = start(quick(dir.path()));
    create(&mut client, "orders", &[("retention.bytes", "1000000")]);
    let long = "s".repeat(400_000);
    for _ in 0..9 {
        client.produce("orders", &[&long]);
    }
    // Two batches a segment and one in the last: without the fourth segment too few would stay.
    until(&6, || client.list_offset("orders", EARLIEST));
    assert_eq!(client.fetch("orders", 6)[0].len(), long.len());
    broker.stop(Duration::from_mins(1)).expect("a clean stop");
    let (_broker, mut client) = start(quick(dir.path()));
    assert_eq!(client.list_offset("orders", EARLIEST), 6);
}

#[test]
fn logs_that_nobody_uses_are_looked_at_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let (broker, mut client) = start(quick(dir.path()));
    create(&mut client, "orders", &[]);
    client.produce("orders", &["a"]);
    broker.stop(Duration::from_mins(1)).expect("a clean stop");
    let config = quick(dir.path()).set("log.retention.ms", "0").expect("an option");
    let _broker = Broker::start(config).expect("a broker");
    let only = vec!["00000000000000000001.log".to_owned()];
    until(&only, || files(dir.path(), "orders", ".log"));
}

#[test]
fn deleted_records_stay_deleted_after_a_crash() {
    let dir = tempfile::tempdir().expect("a folder");
    let (program, mut client) = with_three_orders(dir.path());
    client.produce("orders", &["d"]);
    assert_eq!(delete_records(&mut client, "orders", 5), Err(ErrorCode::OFFSET_OUT_OF_RANGE));
    assert_eq!(delete_records(&mut client, "orders", -2), Err(ErrorCode::OFFSET_OUT_OF_RANGE));
    let unknown = Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(delete_records(&mut client, "nowhere", 0), unknown);
    assert_eq!(delete_records(&mut client, "orders", 2), Ok(2));
    assert_eq!(delete_records(&mut client, "orders", 1), Ok(2), "never back");
    assert_eq!(client.list_offset("orders", EARLIEST), 2);
    program.signal("-KILL");
    program.wait();
    let (program, mut client) = start_program(dir.path());
    assert_eq!(client.list_offset("orders", EARLIEST), 2);
    assert_eq!(client.list_offset("orders", 0), 2, "nor by time");
    assert_eq!(client.produce("orders", &["e"]), 4);
    assert_eq!(delete_records(&mut client, "orders", -1), Ok(5), "all that is there");
    assert_eq!(client.fetch("orders", 5), [""; 0]);
    until(&vec!["00000000000000000005.log".to_owned()], || files(dir.path(), "orders", ".log"));
    program.signal("-KILL");
    program.wait();
    let (_program, mut client) = start_program(dir.path());
    assert_eq!(client.list_offset("orders", EARLIEST), 5);
    assert_eq!(client.produce("orders", &["f"]), 5);
}

#[test]
fn topic_made_anew_does_not_begin_where_its_forerunner_did() {
    let dir = tempfile::tempdir().expect("a folder");
    let (program, mut client) = with_three_orders(dir.path());
    assert_eq!(delete_records(&mut client, "orders", 3), Ok(3));
    let topics = vec![DeleteTopicState { name: Some("orders"), ..DeleteTopicState::default() }];
    client.call(6, &DeleteTopicsRequest { topics, ..DeleteTopicsRequest::default() });
    until(&ErrorCode::NONE, || client.create("orders"));
    assert_eq!(client.produce("orders", &["d", "e"]), 0);
    program.signal("-KILL");
    program.wait();
    let (_program, mut client) = start_program(dir.path());
    assert_eq!(client.fetch("orders", 0), ["d", "e"]);
}

#[test]
fn compacted_topic_takes_only_records_with_a_key_and_no_deletion_of_records() {
    let broker = Broker::start(BrokerConfig::new()).expect("a broker");
    let mut client = Client::connect(broker.address());
    create(&mut client, "state", &[("cleanup.policy", "compact")]);
    create(&mut client, "both", &[("cleanup.policy", "compact,delete")]);
    let keyless = batch(&["a", "b"], &BatchSeal::default());
    for topic in ["state", "both"] {
        let answer = client.call(9, &produce_request(topic, 0, -1, &keyless));
        let response = answer.decode::<ProduceResponse<'_>>();
        let part = &response.responses[0].partition_responses[0];
        assert_eq!(part.error_code, ErrorCode::INVALID_RECORD);
        assert_eq!(part.record_errors[0].batch_index, 0);
        let told = part.record_errors[0].batch_index_error_message.unwrap_or_default();
        assert!(told.contains("key"), "{told}");
    }
    assert_eq!(delete_records(&mut client, "state", 0), Err(ErrorCode::POLICY_VIOLATION));
    assert_eq!(delete_records(&mut client, "both", 0), Ok(0));
}

#[test]
fn high_watermarks_are_noted_while_the_broker_runs() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = BrokerConfig::new().data_dir(dir.path());
    let config = config.set("replica.high.watermark.checkpoint.interval.ms", "10");
    let broker = Broker::start(config.expect("an option")).expect("a broker");
    let mut client = Client::connect(broker.address());
    let noted = || {
        let file = dir.path().join("replication-offset-checkpoint");
        std::fs::read_to_string(file).unwrap_or_default()
    };
    for topic in ["orders", "others"] {
        create(&mut client, topic, &[]);
        client.produce(topic, &["a", "b"]);
    }
    until(&"0\n2\norders 0 2\nothers 0 2\n".to_owned(), noted);
    client.produce("orders", &["c"]);
    until(&"0\n2\norders 0 3\nothers 0 2\n".to_owned(), noted);
    let topics = vec![DeleteTopicState { name: Some("others"), ..DeleteTopicState::default() }];
    let request = DeleteTopicsRequest { topics, ..DeleteTopicsRequest::default() };
    client.call(6, &request);
    until(&"0\n1\norders 0 3\n".to_owned(), noted);
}
