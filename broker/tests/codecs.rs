//! Batches in every codec, over a broker's port: as they came, and in the topic's own.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use client::{Client, fetch_request, produce_request, values};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use ottla_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, FetchResponse, ProduceResponse,
};
use ottla_protocol::record::{
    Batch, BatchBuilder, BatchSeal, Compression, HEADER_LEN, NO_HEADERS, batches,
};

fn broker(options: &[(&str, &str)]) -> Broker {
    let config = options
        .iter()
        .try_fold(BrokerConfig::new(), |config, (name, value)| config.set(name, value));
    Broker::start(config.expect("options")).expect("a broker in memory")
}

fn packed(codec: Compression, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    for (at, value) in (1000..).zip(values) {
        builder.push(at, None, Some(value.as_bytes()), NO_HEADERS).expect("a record");
    }
    builder.finish(&BatchSeal::default()).expect("a batch").to_vec()
}

/// Error, record at fault, and message of a produce of version 9.
fn produce(client: &mut Client, topic: &str, set: &[u8]) -> (ErrorCode, Option<i32>, String) {
    let answer = client.call(9, &produce_request(topic, 0, -1, set));
    let response = answer.decode::<ProduceResponse<'_>>();
    let partition = &response.responses[0].partition_responses[0];
    let record = partition.record_errors.first().map(|record| record.batch_index);
    (partition.error_code, record, partition.error_message.unwrap_or_default().to_owned())
}

fn create_with(client: &mut Client, topic: &str, options: &[(&str, &str)]) -> ErrorCode {
    let configs =
        options.iter().map(|&(name, value)| CreatableTopicConfig { name, value: Some(value) });
    let topic = CreatableTopic {
        name: topic,
        num_partitions: 1,
        replication_factor: 1,
        configs: configs.collect(),
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    client.call(5, &request).decode::<CreateTopicsResponse<'_>>().topics[0].error_code
}

/// The codecs of the batches that are stored.
fn stored(client: &mut Client, topic: &str) -> Vec<Compression> {
    let answer = client.call(12, &fetch_request(topic, 0, 0, 1));
    let response = answer.decode::<FetchResponse<'_>>();
    let bytes = response.responses[0].partitions[0].records.bytes().unwrap_or_default();
    batches(bytes)
        .map(|batch| batch.expect("whole").header.attributes.compression().expect("a codec"))
        .collect()
}

#[test]
fn batches_of_every_codec_are_stored_as_they_came() {
    for validation in ["fast", "strict"] {
        let broker = broker(&[("record.validation", validation)]);
        let mut client = Client::connect(broker.address());
        assert_eq!(client.create("orders"), ErrorCode::NONE);
        for codec in Compression::ALL {
            let refused = produce(&mut client, "orders", &packed(codec, &[codec.name(), "next"]));
            assert_eq!(refused.0, ErrorCode::NONE, "{codec}: {}", refused.2);
        }
        assert_eq!(stored(&mut client, "orders"), Compression::ALL);
        let read = client.fetch("orders", 0);
        let sent: Vec<&str> =
            Compression::ALL.iter().flat_map(|codec| [codec.name(), "next"]).collect();
        assert_eq!(read, sent);
    }
}

#[test]
fn zstd_before_produce_7_is_refused_by_its_own_code() {
    let broker = broker(&[]);
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let set = packed(Compression::Zstd, &["a"]);
    for (version, expected) in [
        (3, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE),
        (6, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE),
        (7, ErrorCode::NONE),
    ] {
        let answer = client.call(version, &produce_request("orders", 0, -1, &set));
        let response = answer.decode::<ProduceResponse<'_>>();
        let code = response.responses[0].partition_responses[0].error_code;
        assert_eq!(code, expected, "version {version}");
    }
    let mut unknown = packed(Compression::None, &["a"]);
    unknown[22] = 6;
    assert_eq!(produce(&mut client, "orders", &unknown).0, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
}

#[test]
fn a_topic_keeps_batches_in_its_own_codec() {
    let broker = broker(&[("compression.type", "lz4")]);
    let mut client = Client::connect(broker.address());
    client.create("as-the-broker");
    let names = ["uncompressed", "gzip", "snappy", "lz4", "zstd"];
    for (name, codec) in names.into_iter().zip(Compression::ALL) {
        let options = [("compression.type", name)];
        assert_eq!(create_with(&mut client, name, &options), ErrorCode::NONE);
        for sent in Compression::ALL {
            let value = format!("{sent} as {codec}").repeat(20);
            let refused = produce(&mut client, name, &packed(sent, &[&value]));
            assert_eq!(refused.0, ErrorCode::NONE, "{}", refused.2);
        }
        assert_eq!(stored(&mut client, name), [codec; 5], "{name}");
        let read = client.fetch(name, 0);
        let sent = Compression::ALL.map(|sent| format!("{sent} as {codec}").repeat(20));
        assert_eq!(read, sent);
    }
    produce(&mut client, "as-the-broker", &packed(Compression::Gzip, &["a"]));
    assert_eq!(stored(&mut client, "as-the-broker"), [Compression::Lz4]);
    let options = [("compression.type", "producer")];
    assert_eq!(create_with(&mut client, "as-sent", &options), ErrorCode::NONE);
    produce(&mut client, "as-sent", &packed(Compression::Gzip, &["a"]));
    assert_eq!(stored(&mut client, "as-sent"), [Compression::Gzip]);
    for bad in [("compression.type", "none"), ("compression.gzip.level", "0")] {
        assert_eq!(create_with(&mut client, "bad", &[bad]), ErrorCode::INVALID_CONFIG);
    }
}

#[test]
fn several_partitions_of_one_request_are_stored_each_in_its_form() {
    let broker = broker(&[]);
    let mut client = Client::connect(broker.address());
    create_with(&mut client, "plain", &[]);
    create_with(&mut client, "zstd", &[("compression.type", "zstd")]);
    let (first, second) = (packed(Compression::Lz4, &["a"]), packed(Compression::Zstd, &["b"]));
    let mut request = produce_request("plain", 0, -1, &first);
    for (topic, set) in [("zstd", &first), ("zstd", &second), ("plain", &second)] {
        request.topic_data.extend(produce_request(topic, 0, -1, set).topic_data);
    }
    client.call(9, &request);
    assert_eq!(stored(&mut client, "plain"), [Compression::Lz4, Compression::Zstd]);
    assert_eq!(stored(&mut client, "zstd"), [Compression::Zstd, Compression::Zstd]);
    for topic in ["plain", "zstd"] {
        let answer = client.call(12, &fetch_request(topic, 0, 0, 1));
        assert_eq!(values(&answer.decode()), ["a", "b"]);
    }
}

#[test]
fn a_broken_record_is_named_where_records_are_looked_at() {
    let mut set = packed(Compression::None, &["a", "b"]);
    let second = HEADER_LEN + (set.len() - HEADER_LEN) / 2;
    set[second] = 0x7e;
    let crc = ottla_protocol::record::crc::of(&set[21..]);
    set[17..21].copy_from_slice(&crc.to_be_bytes());
    assert!(Batch::parse(&set).expect("a batch").verify_crc().is_ok());
    for (validation, expected) in
        [("fast", (ErrorCode::NONE, None)), ("strict", (ErrorCode::INVALID_RECORD, Some(1)))]
    {
        let broker = broker(&[("record.validation", validation)]);
        let mut client = Client::connect(broker.address());
        client.create("orders");
        let (code, record, message) = produce(&mut client, "orders", &set);
        assert_eq!((code, record), expected, "{validation}: {message}");
    }
}
