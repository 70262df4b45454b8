//! A broker of one node and one topic that does with each Produce what its script says.

#![allow(dead_code, reason = "each story takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use ottla_protocol::frame::{decode_request, encode_response, frame_size};
use ottla_protocol::messages::api_versions_request::ApiVersionsRequest;
use ottla_protocol::messages::api_versions_response::{ApiVersion, ApiVersionsResponse};
use ottla_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use ottla_protocol::messages::init_producer_id_response::InitProducerIdResponse;
use ottla_protocol::messages::metadata_request::MetadataRequest;
use ottla_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_protocol::messages::produce_request::ProduceRequest;
use ottla_protocol::messages::produce_response::{
    PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use ottla_protocol::record::Batch;
use ottla_protocol::{ApiKey, ErrorCode, Response, Uuid, Writer};

pub(crate) const TOPIC: &str = "t";
const TOPIC_ID: Uuid = Uuid([5; 16]);

/// What happens to a Produce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is stored and answered.
    Store,
    /// It is stored, and the connection ends in the middle of the answer.
    StoreAndCut,
    /// It is not stored, and answered with this.
    Refuse(ErrorCode),
    /// It is not stored, and never answered.
    Ignore,
    /// It is not stored, and the connection ends.
    Drop,
}

/// A batch as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) partition: i32,
    pub(crate) epoch: i16,
    pub(crate) sequence: i32,
    pub(crate) bytes: Vec<u8>,
}

/// What the broker has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Values of each partition, in the order they were stored.
    pub(crate) stored: BTreeMap<i32, Vec<String>>,
    /// All batches that came, in order.
    pub(crate) came: Vec<Came>,
    /// Versions in which ApiVersions was asked.
    pub(crate) hellos: Vec<i16>,
    pub(crate) connections: usize,
    /// A Produce came while the broker was deaf.
    pub(crate) called: bool,
    /// Of how many Produce requests something came, on the connection that met it deaf.
    pub(crate) begun: Option<usize>,
    /// Base sequences stored, with the offset each got.
    offsets: BTreeMap<(i32, i16, i32), i64>,
}

/// What differs from story to story.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// What happens to the first Produce, the second, and so on; to the rest, [`Act::Store`].
    pub(crate) acts: Vec<Act>,
    pub(crate) partitions: i32,
    /// The newest ApiVersions it knows.
    pub(crate) hello_max: i16,
    /// The newest Produce it knows.
    pub(crate) produce_max: i16,
    /// Said to each connection instead of any answer.
    pub(crate) greeting: Option<&'static [u8]>,
}

impl Default for Script {
    fn default() -> Self {
        Self { acts: Vec::new(), partitions: 1, hello_max: 4, produce_max: 13, greeting: None }
    }
}

/// A running broker. It ends with the process.
#[derive(Debug)]
pub(crate) struct ScriptedBroker {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    ears: Arc<Mutex<()>>,
}

impl ScriptedBroker {
    pub(crate) fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Seen>>::default();
        let acts = Arc::new(Mutex::new(script.acts.clone().into_iter()));
        let shared = Arc::clone(&seen);
        let ears = Arc::<Mutex<()>>::default();
        let heard = Arc::clone(&ears);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                shared.lock().unwrap().connections += 1;
                let connection = Connection {
                    stream,
                    script: script.clone(),
                    acts: Arc::clone(&acts),
                    seen: Arc::clone(&shared),
                    ears: Arc::clone(&heard),
                    address,
                };
                // A connection that ends, by either side, is no fault here.
                thread::spawn(move || connection.serve().ok());
            }
        });
        Self { address, seen, ears }
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.address.to_string()
    }

    /// Until this is dropped, nothing of a Produce is read. Then what came is counted, and no more.
    pub(crate) fn deafen(&self) -> MutexGuard<'_, ()> {
        self.ears.lock().unwrap()
    }

    pub(crate) fn see<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock().unwrap())
    }

    pub(crate) fn stored(&self, partition: i32) -> Vec<String> {
        self.see(|seen| seen.stored.get(&partition).cloned().unwrap_or_default())
    }
}

struct Connection {
    stream: TcpStream,
    script: Script,
    acts: Arc<Mutex<std::vec::IntoIter<Act>>>,
    seen: Arc<Mutex<Seen>>,
    ears: Arc<Mutex<()>>,
    address: SocketAddr,
}

impl Connection {
    fn serve(mut self) -> io::Result<()> {
        if let Some(greeting) = self.script.greeting {
            self.stream.write_all(greeting)?;
            return self.stream.shutdown(Shutdown::Write);
        }
        loop {
            let mut size = [0; 4];
            self.stream.read_exact(&mut size)?;
            let mut frame = vec![0; frame_size(size, 1 << 26).unwrap()];
            self.stream.read_exact(&mut frame[..2])?;
            let key = ApiKey::try_from(i16::from_be_bytes([frame[0], frame[1]])).unwrap();
            if key == ApiKey::Produce && self.ears.try_lock().is_err() {
                return self.count_begun(frame.len());
            }
            self.stream.read_exact(&mut frame[2..])?;
            match key {
                ApiKey::ApiVersions => self.hello(&frame)?,
                ApiKey::Metadata => self.metadata(&frame)?,
                ApiKey::InitProducerId => {
                    let (head, _) = decode_request::<InitProducerIdRequest<'_>>(&frame).unwrap();
                    let rest = InitProducerIdResponse::default();
                    let response = InitProducerIdResponse { producer_id: 7, ..rest };
                    self.answer(head.api_version, head.correlation_id, &response)?;
                }
                ApiKey::Produce => {
                    if !self.produce(&frame)? {
                        return self.stream.shutdown(Shutdown::Both);
                    }
                }
                other => panic!("{other} was not expected"),
            }
        }
    }

    /// Counts the requests that came, of which the first is of this size, its key read.
    fn count_begun(&mut self, first: usize) -> io::Result<()> {
        self.seen.lock().unwrap().called = true;
        drop(self.ears.lock().unwrap());
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        let (mut begun, mut next) = (1, first - 2);
        while next < rest.len() {
            begun += 1;
            let Some(size) = rest.get(next..next + 4) else { break };
            next += 4 + usize::try_from(u32::from_be_bytes(size.try_into().unwrap())).unwrap();
        }
        self.seen.lock().unwrap().begun = Some(begun);
        Ok(())
    }

    fn answer<'a>(
        &mut self,
        version: i16,
        id: i32,
        response: &impl Response<'a>,
    ) -> io::Result<()> {
        let mut writer = Writer::new();
        encode_response(version, id, response, &mut writer).unwrap();
        self.stream.write_all(writer.bytes())
    }

    fn hello(&mut self, frame: &[u8]) -> io::Result<()> {
        let version = i16::from_be_bytes([frame[2], frame[3]]);
        let id = i32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]);
        self.seen.lock().unwrap().hellos.push(version);
        let known = [
            (ApiKey::ApiVersions, 0, self.script.hello_max),
            (ApiKey::Metadata, 0, 12),
            (ApiKey::InitProducerId, 0, 4),
            (ApiKey::Produce, 0, self.script.produce_max),
        ];
        let listed = known.map(|(key, min_version, max_version)| ApiVersion {
            api_key: key.into(),
            min_version,
            max_version,
        });
        let mut response =
            ApiVersionsResponse { api_keys: listed.to_vec(), ..ApiVersionsResponse::default() };
        if version > self.script.hello_max {
            // As Kafka does: in version 0, with its own range alone.
            response.error_code = ErrorCode::UNSUPPORTED_VERSION;
            response.api_keys.truncate(1);
            return self.answer(0, id, &response);
        }
        decode_request::<ApiVersionsRequest<'_>>(frame).unwrap();
        self.answer(version, id, &response)
    }

    fn metadata(&mut self, frame: &[u8]) -> io::Result<()> {
        let (head, request) = decode_request::<MetadataRequest<'_>>(frame).unwrap();
        let host = self.address.ip().to_string();
        let broker = MetadataResponseBroker {
            node_id: 1,
            host: &host,
            port: i32::from(self.address.port()),
            ..MetadataResponseBroker::default()
        };
        let partitions = (0..self.script.partitions).map(|partition_index| {
            let rest = MetadataResponsePartition::default();
            MetadataResponsePartition { partition_index, leader_id: 1, leader_epoch: 0, ..rest }
        });
        let partitions: Vec<_> = partitions.collect();
        let asked = request.topics.as_deref().unwrap_or_default();
        let topics = asked.iter().map(|asked| {
            let known = asked.name == Some(TOPIC);
            let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            MetadataResponseTopic {
                name: asked.name,
                error_code: if known { ErrorCode::NONE } else { code },
                topic_id: if known && head.api_version >= 10 { TOPIC_ID } else { Uuid::ZERO },
                partitions: if known { partitions.clone() } else { Vec::new() },
                ..MetadataResponseTopic::default()
            }
        });
        let response = MetadataResponse {
            brokers: vec![broker],
            topics: topics.collect(),
            ..MetadataResponse::default()
        };
        self.answer(head.api_version, head.correlation_id, &response)
    }

    /// Whether the connection goes on.
    fn produce(&mut self, frame: &[u8]) -> io::Result<bool> {
        let (head, request) = decode_request::<ProduceRequest<'_>>(frame).unwrap();
        let act = self.acts.lock().unwrap().next().unwrap_or(Act::Store);
        let mut topics = Vec::new();
        for topic in &request.topic_data {
            assert!(topic.name == TOPIC || topic.topic_id == TOPIC_ID);
            let mut partition_responses = Vec::new();
            for partition in &topic.partition_data {
                let records = partition.records.bytes().unwrap();
                let (code, base_offset) = self.take(partition.index, records, act);
                partition_responses.push(PartitionProduceResponse {
                    index: partition.index,
                    error_code: code,
                    base_offset,
                    log_append_time_ms: -1,
                    ..PartitionProduceResponse::default()
                });
            }
            topics.push(TopicProduceResponse {
                name: topic.name,
                topic_id: topic.topic_id,
                partition_responses,
            });
        }
        match act {
            Act::Drop => return Ok(false),
            Act::Ignore => return Ok(true),
            _ if request.acks == 0 => return Ok(true),
            _ => {}
        }
        let response = ProduceResponse { responses: topics, ..ProduceResponse::default() };
        let mut writer = Writer::new();
        encode_response(head.api_version, head.correlation_id, &response, &mut writer).unwrap();
        if act == Act::StoreAndCut {
            self.stream.write_all(&writer.bytes()[..writer.len() / 2])?;
            return Ok(false);
        }
        self.stream.write_all(writer.bytes())?;
        Ok(true)
    }

    fn take(&self, partition: i32, records: &[u8], act: Act) -> (ErrorCode, i64) {
        let mut seen = self.seen.lock().unwrap();
        let batch = Batch::parse(records).unwrap();
        batch.verify_crc().unwrap();
        let (epoch, sequence) = (batch.header.producer_epoch, batch.header.base_sequence);
        seen.came.push(Came { partition, epoch, sequence, bytes: records.to_vec() });
        match act {
            Act::Refuse(code) => return (code, -1),
            Act::Ignore | Act::Drop => return (ErrorCode::NONE, -1),
            Act::Store | Act::StoreAndCut => {}
        }
        let key = (partition, epoch, sequence);
        if let Some(&offset) = seen.offsets.get(&key).filter(|_| sequence >= 0) {
            return (ErrorCode::NONE, offset);
        }
        let values = seen.stored.entry(partition).or_default();
        let offset = i64::try_from(values.len()).unwrap();
        if sequence >= 0 && epoch == 0 && i64::from(sequence) != offset {
            return (ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, -1);
        }
        let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap().to_vec()).unwrap();
        let decoded = batch.records(1 << 26).unwrap();
        values.extend(decoded.iter().map(|record| text(record.unwrap().value)));
        seen.offsets.insert(key, offset);
        (ErrorCode::NONE, offset)
    }
}
