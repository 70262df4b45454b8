//! A cluster of one topic whose brokers do with each Produce what their script says.

#![allow(dead_code, reason = "each story takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "it notes when each batch came")]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

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
    LeaderIdAndEpoch, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use ottla_protocol::record::Batch;
use ottla_protocol::{ApiKey, ErrorCode, Response, Uuid, Writer};

pub(crate) const TOPIC: &str = "t";

/// What happens to a Produce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is stored and answered.
    Store,
    /// It is stored, and the connection ends in the middle of the answer.
    StoreAndCut,
    /// It is not stored, and answered with this; without acks the connection ends.
    Refuse(ErrorCode),
    /// It is not stored, and the answer says that this broker leads since this epoch (KIP-951).
    Hint(i32, i32),
    /// It is not stored, and never answered.
    Ignore,
    /// It is not stored, and the connection ends.
    Drop,
}

/// A batch as it came.
#[derive(Debug, Clone)]
pub(crate) struct Came {
    pub(crate) node: i32,
    pub(crate) partition: i32,
    pub(crate) epoch: i16,
    pub(crate) sequence: i32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) at: Instant,
}

/// What may change while the brokers run.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Who leads all partitions, and since which epoch.
    pub(crate) leader: (i32, i32),
    /// The same as metadata has it.
    pub(crate) told: (i32, i32),
    pub(crate) topic_id: Uuid,
    /// Whether brokers that do not lead say who does (KIP-951).
    pub(crate) hints: bool,
    /// So many of the next answers about metadata leave the topic out.
    pub(crate) hidden: usize,
    /// Said with the next answer to a Produce.
    pub(crate) throttle_ms: i32,
    /// The longest batch that is taken.
    pub(crate) batch_max: usize,
}

impl Stage {
    /// The broker leads from now on, and metadata says so.
    pub(crate) const fn lead(&mut self, node: i32, epoch: i32) {
        self.leader = (node, epoch);
        self.told = self.leader;
    }
}

impl Default for Stage {
    fn default() -> Self {
        let topic_id = Uuid([5; 16]);
        let (leader, told, batch_max) = ((1, 0), (1, 0), usize::MAX);
        Self { leader, told, topic_id, hints: true, hidden: 0, throttle_ms: 0, batch_max }
    }
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
    /// Brokers, numbered from 1.
    pub(crate) nodes: i32,
    /// So the names of further topics begin, which take all and keep nothing.
    pub(crate) others: &'static str,
    /// The newest ApiVersions it knows.
    pub(crate) hello_max: i16,
    /// The oldest Produce it knows.
    pub(crate) produce_min: i16,
    /// The newest Produce it knows.
    pub(crate) produce_max: i16,
    /// Where it says that it listens; without, where it does.
    pub(crate) advertised: Option<(&'static str, i32)>,
    /// Said to each connection instead of any answer.
    pub(crate) greeting: Option<&'static [u8]>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            acts: Vec::new(),
            partitions: 1,
            nodes: 1,
            others: "none",
            hello_max: 4,
            produce_min: 0,
            produce_max: 13,
            advertised: None,
            greeting: None,
        }
    }
}

/// What all connections share.
#[derive(Debug, Default)]
struct Shared {
    script: Script,
    addresses: Vec<SocketAddr>,
    acts: Mutex<std::vec::IntoIter<Act>>,
    seen: Mutex<Seen>,
    stage: Mutex<Stage>,
    ears: Mutex<()>,
}

/// Running brokers. They end with the process.
#[derive(Debug)]
pub(crate) struct ScriptedBroker(Arc<Shared>);

impl ScriptedBroker {
    pub(crate) fn start(script: Script) -> Self {
        let bind = |_| TcpListener::bind("127.0.0.1:0").unwrap();
        let listeners: Vec<TcpListener> = (0..script.nodes).map(bind).collect();
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let acts = Mutex::new(script.acts.clone().into_iter());
        let shared = Arc::new(Shared { script, addresses, acts, ..Shared::default() });
        for (node, listener) in (1..).zip(listeners) {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let Ok(stream) = stream else { return };
                    shared.seen.lock().unwrap().connections += 1;
                    let connection = Connection { stream, node, shared: Arc::clone(&shared) };
                    // A connection that ends, by either side, is no fault here.
                    thread::spawn(move || connection.serve().ok());
                }
            });
        }
        Self(shared)
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.0.addresses[0].to_string()
    }

    /// Changes what the brokers say from now on.
    pub(crate) fn stage(&self, change: impl FnOnce(&mut Stage)) {
        change(&mut self.0.stage.lock().unwrap());
    }

    /// Deletes the topic and makes it anew: its log is empty. Gives what was stored.
    pub(crate) fn recreate(&self, topic_id: Uuid) -> BTreeMap<i32, Vec<String>> {
        self.stage(|stage| stage.topic_id = topic_id);
        let mut seen = self.0.seen.lock().unwrap();
        seen.offsets.clear();
        std::mem::take(&mut seen.stored)
    }

    /// Until this is dropped, nothing of a Produce is read. Then what came is counted, and no more.
    pub(crate) fn deafen(&self) -> MutexGuard<'_, ()> {
        self.0.ears.lock().unwrap()
    }

    pub(crate) fn see<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.0.seen.lock().unwrap())
    }

    pub(crate) fn stored(&self, partition: i32) -> Vec<String> {
        self.see(|seen| seen.stored.get(&partition).cloned().unwrap_or_default())
    }
}

struct Connection {
    stream: TcpStream,
    node: i32,
    shared: Arc<Shared>,
}

impl Connection {
    fn serve(mut self) -> io::Result<()> {
        if let Some(greeting) = self.shared.script.greeting {
            self.stream.write_all(greeting)?;
            return self.stream.shutdown(Shutdown::Write);
        }
        loop {
            let mut size = [0; 4];
            self.stream.read_exact(&mut size)?;
            let mut frame = vec![0; frame_size(size, 1 << 26).unwrap()];
            self.stream.read_exact(&mut frame[..2])?;
            let key = ApiKey::try_from(i16::from_be_bytes([frame[0], frame[1]])).unwrap();
            if key == ApiKey::Produce && self.shared.ears.try_lock().is_err() {
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
        self.shared.seen.lock().unwrap().called = true;
        drop(self.shared.ears.lock().unwrap());
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        let (mut begun, mut next) = (1, first - 2);
        while next < rest.len() {
            begun += 1;
            let Some(size) = rest.get(next..next + 4) else { break };
            next += 4 + usize::try_from(u32::from_be_bytes(size.try_into().unwrap())).unwrap();
        }
        self.shared.seen.lock().unwrap().begun = Some(begun);
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
        self.shared.seen.lock().unwrap().hellos.push(version);
        let known = [
            (ApiKey::ApiVersions, 0, self.shared.script.hello_max),
            (ApiKey::Metadata, 0, 12),
            (ApiKey::InitProducerId, 0, 4),
            (ApiKey::Produce, self.shared.script.produce_min, self.shared.script.produce_max),
        ];
        let listed = known.map(|(key, min_version, max_version)| ApiVersion {
            api_key: key.into(),
            min_version,
            max_version,
        });
        let mut response =
            ApiVersionsResponse { api_keys: listed.to_vec(), ..ApiVersionsResponse::default() };
        if version > self.shared.script.hello_max {
            // As Kafka does: in version 0, with its own range alone.
            response.error_code = ErrorCode::UNSUPPORTED_VERSION;
            response.api_keys.truncate(1);
            return self.answer(0, id, &response);
        }
        decode_request::<ApiVersionsRequest<'_>>(frame).unwrap();
        self.answer(version, id, &response)
    }

    fn metadata(&mut self, frame: &[u8]) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let (head, request) = decode_request::<MetadataRequest<'_>>(frame).unwrap();
        let hosts: Vec<String> = shared.addresses.iter().map(|at| at.ip().to_string()).collect();
        let brokers = (1..).zip(hosts.iter().zip(&shared.addresses));
        let advertised = shared.script.advertised;
        let brokers = brokers.map(|(node_id, (host, address))| {
            let own = (host.as_str(), i32::from(address.port()));
            let (host, port) = advertised.unwrap_or(own);
            MetadataResponseBroker { node_id, host, port, ..MetadataResponseBroker::default() }
        });
        let mut stage = shared.stage.lock().unwrap();
        let (leader_id, leader_epoch) = stage.told;
        let partitions = (0..shared.script.partitions).map(|partition_index| {
            let rest = MetadataResponsePartition::default();
            MetadataResponsePartition { partition_index, leader_id, leader_epoch, ..rest }
        });
        let partitions: Vec<_> = partitions.collect();
        let hidden = stage.hidden > 0;
        stage.hidden = stage.hidden.saturating_sub(1);
        let asked = request.topics.as_deref().unwrap_or_default();
        let asked = asked.iter().filter(|asked| !(hidden && asked.name == Some(TOPIC)));
        let topics = asked.map(|asked| {
            let ours = asked.name == Some(TOPIC);
            let known = ours || asked.name.unwrap().starts_with(shared.script.others);
            let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            MetadataResponseTopic {
                name: asked.name,
                error_code: if known { ErrorCode::NONE } else { code },
                topic_id: if ours && head.api_version >= 10 { stage.topic_id } else { Uuid::ZERO },
                partitions: if known { partitions.clone() } else { Vec::new() },
                ..MetadataResponseTopic::default()
            }
        });
        let response = MetadataResponse {
            brokers: brokers.collect(),
            topics: topics.collect(),
            ..MetadataResponse::default()
        };
        drop(stage);
        self.answer(head.api_version, head.correlation_id, &response)
    }

    /// Whether the connection goes on.
    fn produce(&mut self, frame: &[u8]) -> io::Result<bool> {
        let shared = Arc::clone(&self.shared);
        let (head, request) = decode_request::<ProduceRequest<'_>>(frame).unwrap();
        let (leader, hints, throttle_time_ms) = {
            let mut stage = shared.stage.lock().unwrap();
            (stage.leader, stage.hints, std::mem::take(&mut stage.throttle_ms))
        };
        let act = match leader {
            (node, _) if node == self.node => {
                shared.acts.lock().unwrap().next().unwrap_or(Act::Store)
            }
            (node, epoch) if hints => Act::Hint(node, epoch),
            _ => Act::Refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        };
        let mut topics = Vec::new();
        for topic in &request.topic_data {
            let mut partition_responses = Vec::new();
            for partition in &topic.partition_data {
                if topic.name.starts_with(shared.script.others) {
                    let (index, rest) = (partition.index, PartitionProduceResponse::default());
                    partition_responses.push(PartitionProduceResponse { index, ..rest });
                    continue;
                }
                let records = partition.records.bytes().unwrap();
                let current = topic.name == TOPIC || topic.topic_id == shared.topic_id();
                let act = if current { act } else { Act::Refuse(ErrorCode::UNKNOWN_TOPIC_ID) };
                partition_responses.push(self.take(partition.index, records, act));
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
            // As Kafka does, since nobody reads an answer.
            Act::Refuse(_) | Act::Hint(..) if request.acks == 0 => return Ok(false),
            _ if request.acks == 0 => return Ok(true),
            _ => {}
        }
        let rest = ProduceResponse::default();
        let response = ProduceResponse { responses: topics, throttle_time_ms, ..rest };
        let mut writer = Writer::new();
        encode_response(head.api_version, head.correlation_id, &response, &mut writer).unwrap();
        if act == Act::StoreAndCut {
            self.stream.write_all(&writer.bytes()[..writer.len() / 2])?;
            return Ok(false);
        }
        self.stream.write_all(writer.bytes())?;
        Ok(true)
    }

    fn take(&self, index: i32, records: &[u8], act: Act) -> PartitionProduceResponse<'static> {
        let batch_max = self.shared.stage.lock().unwrap().batch_max;
        let mut seen = self.shared.seen.lock().unwrap();
        let batch = Batch::parse(records).unwrap();
        batch.verify_crc().unwrap();
        let (epoch, sequence) = (batch.header.producer_epoch, batch.header.base_sequence);
        let (node, bytes, at) = (self.node, records.to_vec(), Instant::now());
        seen.came.push(Came { node, partition: index, epoch, sequence, bytes, at });
        let answer = |error_code, base_offset| PartitionProduceResponse {
            index,
            error_code,
            base_offset,
            log_append_time_ms: -1,
            ..PartitionProduceResponse::default()
        };
        match act {
            Act::Refuse(code) => return answer(code, -1),
            Act::Hint(leader_id, leader_epoch) => {
                let current_leader = LeaderIdAndEpoch { leader_id, leader_epoch };
                let refused = answer(ErrorCode::NOT_LEADER_OR_FOLLOWER, -1);
                return PartitionProduceResponse { current_leader, ..refused };
            }
            Act::Ignore | Act::Drop => return answer(ErrorCode::NONE, -1),
            Act::Store | Act::StoreAndCut => {}
        }
        if records.len() > batch_max {
            return PartitionProduceResponse {
                error_message: Some("larger than the topic takes"),
                ..answer(ErrorCode::MESSAGE_TOO_LARGE, -1)
            };
        }
        let key = (index, epoch, sequence);
        if let Some(&offset) = seen.offsets.get(&key).filter(|_| sequence >= 0) {
            return answer(ErrorCode::NONE, offset);
        }
        let values = seen.stored.entry(index).or_default();
        let offset = i64::try_from(values.len()).unwrap();
        if sequence >= 0 && epoch == 0 && i64::from(sequence) != offset {
            return answer(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, -1);
        }
        let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap().to_vec()).unwrap();
        let decoded = batch.records(1 << 26).unwrap();
        values.extend(decoded.iter().map(|record| text(record.unwrap().value)));
        seen.offsets.insert(key, offset);
        answer(ErrorCode::NONE, offset)
    }
}

impl Shared {
    fn topic_id(&self) -> Uuid {
        self.stage.lock().unwrap().topic_id
    }
}
