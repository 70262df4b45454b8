//! Answers to a Fetch in all versions, byte by byte as Apache Kafka's classes write them
//! (`conformance/vectors/fetch.txt`).
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::fs;
use std::path::Path;

use client::{Client, fetch_request};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::messages::MetadataResponse;
use ottla_protocol::{ApiKey, Uuid};

/// From this version on topics have ids and no names (KIP-516).
const IDS_FROM: i16 = 13;
/// From this version on a header ends with tagged fields (KIP-482).
const FLEXIBLE_FROM: i16 = 12;
/// The id of the topic in the samples.
const SAMPLE_ID: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

/// The body that Kafka's classes wrote, with the topic's id in the place of the sample's.
fn golden(version: i16, kind: &str, id: Uuid) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/vectors/fetch.txt");
    let text = fs::read_to_string(path).expect("the samples");
    let begin = format!("FetchResponse {version} {kind} ");
    let hex = text.lines().find_map(|line| line.strip_prefix(&begin)).expect("the sample");
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16).expect("hex")).collect();
    let bytes = digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]));
    let mut bytes: Vec<u8> = bytes.map(|byte| byte.expect("a byte")).collect();
    let named = bytes.windows(16).position(|window| window == SAMPLE_ID);
    assert_eq!(named.is_some(), version >= IDS_FROM, "{version}");
    if let Some(at) = named {
        bytes[at..at + 16].copy_from_slice(&id.0);
    }
    bytes
}

#[test]
fn an_answer_without_records_is_what_kafka_writes_in_every_version() {
    let broker = Broker::start(BrokerConfig::new()).expect("a broker");
    let mut client = Client::connect(broker.address());
    client.create("orders");
    client.produce("orders", &["a", "b", "c", "d", "e"]);
    let answer = client.metadata("orders", false);
    let id = answer.decode::<MetadataResponse<'_>>().topics[0].topic_id;
    let mut seen = 0;
    for version in ApiKey::Fetch.served() {
        // 0: all records, without a list of aborted transactions; 1: committed ones, with the list.
        for (isolation_level, kind) in
            [(0, "aborted-null-records-empty"), (1, "aborted-empty-records-empty")]
        {
            let mut request = fetch_request("orders", 5, 0, 1);
            request.isolation_level = isolation_level;
            request.topics[0].topic_id = id;
            // No session, which an old client does not have either.
            request.session_epoch = -1;
            let answer = client.call(version, &request);
            let header = if version >= FLEXIBLE_FROM { 5 } else { 4 };
            let body = &answer.bytes()[header..];
            assert_eq!(body, golden(version, kind, id), "version {version}, {kind}");
            seen += 1;
        }
    }
    assert_eq!(seen, 2 * 15, "versions 4 to 18");
}
