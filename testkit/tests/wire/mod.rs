//! A simulated broker, and a client that speaks to it in frames.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

use std::future::Future;

use bytes::BytesMut;
use ottla_broker::BrokerConfig;
use ottla_broker::sim::{SimBroker, SimDisk, SimLink, SimWorld, enter};
use ottla_protocol::frame::{decode_response, encode_request};
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use ottla_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use ottla_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use ottla_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, ListOffsetsRequest, ListOffsetsResponse,
    ProduceRequest, ProduceResponse,
};
use ottla_protocol::record::{BatchBuilder, BatchSeal, NO_HEADERS};
use ottla_protocol::{ErrorCode, Records, Request, Response, Writer};

pub(crate) const EARLIEST: i64 = -2;
pub(crate) const NEWEST: i64 = -3;

/// Runs a story in a world whose clock on the wall begins at `wall_ms`, and whose time is that of a
/// runtime that sleeps through it.
pub(crate) fn in_world<F: Future>(wall_ms: i64, story: impl FnOnce(SimWorld) -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async { story(enter(7, wall_ms)).await })
}

pub(crate) fn start(disk: &SimDisk, options: &[(&str, &str)]) -> SimBroker {
    let config = options.iter().fold(BrokerConfig::new(), |config, (name, value)| {
        config.set(name, value).expect("an option")
    });
    let address = "10.0.0.1:9092".parse().expect("an address");
    let mut broker = SimBroker::start(&config, disk, address).expect("a broker");
    broker.keep_folder();
    broker
}

/// An answer as it came.
pub(crate) struct Answer(Vec<u8>, i16);

impl Answer {
    pub(crate) fn decode<'a, R: Response<'a>>(&'a self) -> R {
        decode_response::<R>(&self.0, self.1).expect("an answer of this version").1
    }
}

/// One connection.
pub(crate) struct Wire {
    link: SimLink,
    next_id: i32,
}

impl Wire {
    pub(crate) fn connect(broker: &mut SimBroker) -> Self {
        let peer = "10.0.0.2:40000".parse().expect("an address");
        Self { link: broker.accept(peer), next_id: 1 }
    }

    pub(crate) fn send<'a, R: Request<'a>>(&mut self, version: i16, request: &R) {
        let mut writer = Writer::new();
        encode_request(version, self.next_id, Some("test"), request, &mut writer)
            .expect("a request");
        self.next_id += 1;
        let frame = BytesMut::from(&writer.bytes()[4..]);
        self.link.requests.send(frame).expect("the connection is open");
    }

    pub(crate) async fn receive(&mut self, version: i16) -> Answer {
        let answer = self.link.answers.recv().await.expect("an answer");
        Answer(answer[4..].to_vec(), version)
    }

    pub(crate) async fn call<'a, R: Request<'a>>(&mut self, version: i16, request: &R) -> Answer {
        self.send(version, request);
        self.receive(version).await
    }

    pub(crate) async fn create(&mut self, name: &str, configs: &[(&str, &str)]) {
        let configs =
            configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) });
        let topic = CreatableTopic {
            name,
            num_partitions: 1,
            replication_factor: 1,
            configs: configs.collect(),
            ..CreatableTopic::default()
        };
        let topics = vec![topic];
        let request = CreateTopicsRequest { topics, ..CreateTopicsRequest::default() };
        let answer = self.call(7, &request).await;
        let response = answer.decode::<CreateTopicsResponse<'_>>();
        assert_eq!(response.topics[0].error_code, ErrorCode::NONE, "{:?}", response.topics[0]);
    }

    /// Produces a batch of records of these times; the code, the record at fault and the reason.
    pub(crate) async fn produce(
        &mut self,
        topic: &str,
        times: &[i64],
        value: &[u8],
    ) -> (ErrorCode, Option<i32>, String) {
        let mut builder = BatchBuilder::default();
        for time in times {
            builder.push(*time, None, Some(value), NO_HEADERS).expect("a record");
        }
        let batch = builder.finish(&BatchSeal::default()).expect("a batch").to_vec();
        let data = PartitionProduceData { index: 0, records: Records::Inline(&batch) };
        let topic = TopicProduceData {
            name: topic,
            partition_data: vec![data],
            ..TopicProduceData::default()
        };
        let topic_data = vec![topic];
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 30_000,
            topic_data,
            ..ProduceRequest::default()
        };
        let answer = self.call(9, &request).await;
        let response = answer.decode::<ProduceResponse<'_>>();
        let part = &response.responses[0].partition_responses[0];
        let record = part.record_errors.first().map(|error| error.batch_index);
        (part.error_code, record, part.error_message.unwrap_or_default().to_owned())
    }

    /// Offset and time of what a time asks for.
    pub(crate) async fn list(&mut self, topic: &str, timestamp: i64) -> (i64, i64) {
        let partition = ListOffsetsPartition { timestamp, ..ListOffsetsPartition::default() };
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic { name: topic, partitions: vec![partition] }],
            ..ListOffsetsRequest::default()
        };
        let answer = self.call(7, &request).await;
        let response = answer.decode::<ListOffsetsResponse<'_>>();
        let partition = &response.topics[0].partitions[0];
        assert_eq!(partition.error_code, ErrorCode::NONE);
        (partition.offset, partition.timestamp)
    }
}

pub(crate) const STORED: (ErrorCode, Option<i32>, String) = (ErrorCode::NONE, None, String::new());
