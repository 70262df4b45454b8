//! A small blocking client that speaks in frames, for tests of the broker from outside.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

pub(crate) mod program;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ottla_protocol::frame::{decode_response, encode_request};
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use ottla_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use ottla_protocol::messages::metadata_request::MetadataRequestTopic;
use ottla_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use ottla_protocol::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest,
    MetadataResponse, ProduceRequest, ProduceResponse,
};
use ottla_protocol::record::{BatchBuilder, BatchSeal, DecodedBatch, NO_HEADERS, batches};
use ottla_protocol::{ErrorCode, Records, Request, Response, Writer};

/// Long enough for a busy machine, short enough for a test that hangs to be noticed.
const PATIENCE: Duration = Duration::from_mins(2);

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    next_id: i32,
}

/// An answer as it came.
pub(crate) struct Answer {
    frame: Vec<u8>,
    version: i16,
}

impl Answer {
    pub(crate) fn correlation_id(&self) -> i32 {
        ottla_protocol::frame::peek_correlation_id(&self.frame).expect("a correlation id")
    }

    /// All of it, header and body.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.frame
    }

    pub(crate) fn decode<'a, R: Response<'a>>(&'a self) -> R {
        decode_response::<R>(&self.frame, self.version).expect("an answer of this version").1
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the broker listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, next_id: 1 }
    }

    /// Sends a request and returns its correlation id.
    pub(crate) fn send<'a, R: Request<'a>>(&mut self, version: i16, request: &R) -> i32 {
        self.try_send(version, request).expect("sent")
    }

    /// The same over a connection that the broker may have closed.
    pub(crate) fn try_send<'a, R: Request<'a>>(
        &mut self,
        version: i16,
        request: &R,
    ) -> io::Result<i32> {
        let id = self.next_id;
        self.next_id += 1;
        let mut writer = Writer::new();
        encode_request(version, id, Some("test"), request, &mut writer).expect("a request");
        self.stream.write_all(writer.bytes())?;
        Ok(id)
    }

    /// The next answer, whatever request it belongs to.
    pub(crate) fn receive(&mut self, version: i16) -> Answer {
        self.try_receive(version).expect("an answer")
    }

    pub(crate) fn try_receive(&mut self, version: i16) -> io::Result<Answer> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(size)).expect("a size")];
        self.stream.read_exact(&mut frame)?;
        Ok(Answer { frame, version })
    }

    pub(crate) fn call<'a, R: Request<'a>>(&mut self, version: i16, request: &R) -> Answer {
        let id = self.send(version, request);
        let answer = self.receive(version);
        assert_eq!(answer.correlation_id(), id);
        answer
    }

    /// Whether the broker has closed this connection, once it has.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0; 1]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    /// Asks for a topic as a producer does; it is there afterwards.
    pub(crate) fn create(&mut self, topic: &str) -> ErrorCode {
        let answer = self.metadata(topic, true);
        let response = answer.decode::<MetadataResponse<'_>>();
        response.topics[0].error_code
    }

    pub(crate) fn metadata(&mut self, topic: &str, create: bool) -> Answer {
        let topic = MetadataRequestTopic { name: Some(topic), ..MetadataRequestTopic::default() };
        let request = MetadataRequest {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: create,
            ..MetadataRequest::default()
        };
        self.call(12, &request)
    }

    /// Produces one batch with acks=all; the offset of its first record.
    pub(crate) fn produce(&mut self, topic: &str, values: &[&str]) -> i64 {
        let batch = batch(values, &BatchSeal::default());
        let answer = self.call(9, &produce_request(topic, 0, -1, &batch));
        let response = answer.decode::<ProduceResponse<'_>>();
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, ErrorCode::NONE, "{:?}", partition.error_message);
        partition.base_offset
    }

    /// The values from an offset on, without waiting.
    pub(crate) fn fetch(&mut self, topic: &str, offset: i64) -> Vec<String> {
        let answer = self.call(12, &fetch_request(topic, offset, 0, 1));
        values(&answer.decode())
    }

    pub(crate) fn list_offset(&mut self, topic: &str, timestamp: i64) -> i64 {
        let answer = self.call(7, &list_offsets_request(topic, timestamp));
        let response = answer.decode::<ListOffsetsResponse<'_>>();
        let partition = &response.topics[0].partitions[0];
        assert_eq!(partition.error_code, ErrorCode::NONE);
        partition.offset
    }
}

/// A batch of records without keys; the first at time 1000, each later one a ms after.
pub(crate) fn batch(values: &[&str], seal: &BatchSeal) -> Vec<u8> {
    let mut builder = BatchBuilder::default();
    for (at, value) in (1000..).zip(values) {
        builder.push(at, None, Some(value.as_bytes()), NO_HEADERS).expect("a record");
    }
    builder.finish(seal).expect("a batch").to_vec()
}

pub(crate) fn produce_request<'a>(
    topic: &'a str,
    partition: i32,
    acks: i16,
    batch: &'a [u8],
) -> ProduceRequest<'a> {
    let data = PartitionProduceData { index: partition, records: Records::Inline(batch) };
    ProduceRequest {
        acks,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: topic,
            partition_data: vec![data],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

pub(crate) fn fetch_request(
    topic: &str,
    offset: i64,
    max_wait_ms: i32,
    min_bytes: i32,
) -> FetchRequest<'_> {
    FetchRequest {
        replica_id: -1,
        max_wait_ms,
        min_bytes,
        max_bytes: 50 << 20,
        topics: vec![FetchTopic {
            topic,
            partitions: vec![FetchPartition {
                fetch_offset: offset,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

pub(crate) fn list_offsets_request(topic: &str, timestamp: i64) -> ListOffsetsRequest<'_> {
    let partition = ListOffsetsPartition { timestamp, ..ListOffsetsPartition::default() };
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic { name: topic, partitions: vec![partition] }],
        ..ListOffsetsRequest::default()
    }
}

/// The values in the first partition of an answer.
pub(crate) fn values(response: &FetchResponse<'_>) -> Vec<String> {
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::NONE);
    let bytes = partition.records.bytes().unwrap_or_default();
    let mut values = Vec::new();
    for batch in batches(bytes) {
        let batch = batch.expect("whole batches");
        batch.verify_crc().expect("unharmed batches");
        let bytes = bytes::Bytes::copy_from_slice(batch.bytes);
        let decoded = DecodedBatch::decode(&bytes, 16 << 20).expect("a readable batch");
        for record in &decoded {
            let record = record.expect("a readable record");
            let value = record.value.expect("a value").to_vec();
            values.push(String::from_utf8(value).expect("text"));
        }
    }
    values
}
