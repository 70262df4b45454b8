//! Brokers that take records: producers' ids and sequences are held as Kafka holds them.

use ottla_protocol::frame::decode_request;
use ottla_protocol::messages::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use ottla_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProduceRequest};
use ottla_protocol::record::{Batch, BatchHeader, stamp};
use ottla_protocol::{ErrorCode, Uuid};

use super::answers::Asked;
use super::{Act, World, encoded};

/// Batches of a producer that a partition remembers.
const REMEMBERED: usize = 5;

/// A batch as it came.
#[derive(Debug, Clone)]
pub(crate) struct Came {
    pub(crate) node: i32,
    pub(crate) partition: i32,
    pub(crate) header: BatchHeader,
    bytes: Vec<u8>,
}

impl World {
    /// Notes the batches of a Produce, whatever becomes of them.
    pub(super) fn note_produce(&mut self, node: i32, frame: &[u8]) {
        let (_, request) = decode_request::<ProduceRequest<'_>>(frame).unwrap();
        for row in request.topic_data.iter().flat_map(|topic| &topic.partition_data) {
            let bytes = row.records.bytes().unwrap().to_vec();
            let batch = Batch::parse(&bytes).unwrap();
            batch.verify_crc().unwrap();
            assert_eq!(batch.header.size(), bytes.len(), "one batch a partition");
            let header = batch.header;
            let changed = self.came.iter().find(|came| {
                header.has_producer()
                    && came.partition == row.index
                    && came.header.records_count == header.records_count
                    && identity(&came.header) == identity(&header)
                    && came.bytes != bytes
            });
            if changed.is_some() {
                self.changed.push(format!("sequence {} of {}", header.base_sequence, row.index));
            }
            self.came.push(Came { node, partition: row.index, header, bytes });
        }
    }

    /// The values in a partition's log, in order.
    pub(crate) fn values(&self, partition: i32) -> Vec<String> {
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let of_batch = |bytes: &[u8]| {
            let records = Batch::parse(bytes).unwrap().records(1 << 26).unwrap();
            records.iter().map(|record| text(record.unwrap().value.unwrap())).collect()
        };
        let log = self.logs[&partition].iter();
        log.flat_map(|(.., bytes)| -> Vec<String> { of_batch(bytes) }).collect()
    }

    fn leader(&self, partition: i32) -> i32 {
        self.leaders.get(&partition).copied().unwrap_or(1)
    }

    /// A broker leads a partition from now on. Who tells: metadata, answers to the wrong broker
    /// (KIP-951), or both.
    pub(crate) fn lead(&mut self, partition: i32, node: i32, told_by: &str) {
        let before = (self.leader(partition), self.epoch);
        match told_by {
            "answers" => drop(self.told.entry(partition).or_insert(before)),
            _ => drop(self.told.remove(&partition)),
        }
        self.hints = told_by != "metadata";
        self.epoch += 1;
        self.leaders.insert(partition, node);
    }

    /// Deletes the topic and creates it anew: its logs are empty.
    pub(crate) fn recreate(&mut self) {
        self.topic_id += 1;
        self.logs.values_mut().for_each(Vec::clear);
    }

    /// The last batches of a producer in a partition's log, the newest first.
    fn of_producer(&self, partition: i32, producer_id: i64) -> Vec<BatchHeader> {
        let start = self.start(partition);
        let log = self.logs[&partition].iter().filter(|(_, next, _)| *next > start);
        let headers = log.map(|(.., bytes)| BatchHeader::parse(bytes).unwrap());
        let mut mine: Vec<_> = headers.filter(|batch| batch.producer_id == producer_id).collect();
        mine.reverse();
        mine
    }

    /// Appends a batch, unless it stands in the log already; its base offset.
    fn append(&mut self, at: i32, bytes: &[u8]) -> Result<i64, ErrorCode> {
        let header = BatchHeader::parse(bytes).unwrap();
        if header.has_producer() {
            let known = self.of_producer(at, header.producer_id);
            let same =
                known.iter().take_while(|batch| batch.producer_epoch == header.producer_epoch);
            let twin = same.take(REMEMBERED).find(|batch| {
                (batch.base_sequence, batch.last_sequence())
                    == (header.base_sequence, header.last_sequence())
            });
            if let Some(twin) = twin {
                return Ok(twin.base_offset);
            }
            if let Some(last) = known.first() {
                follows(last, &header)?;
            }
        }
        let (offset, mut bytes) = (self.end(at), bytes.to_vec());
        stamp(&mut bytes, offset, self.epoch).unwrap();
        let next = offset + i64::from(header.last_offset_delta) + 1;
        self.logs.get_mut(&at).unwrap().push((offset, next, bytes));
        Ok(offset)
    }
}

fn identity(header: &BatchHeader) -> (i64, i16, i32) {
    (header.producer_id, header.producer_epoch, header.base_sequence)
}

/// Whether a batch comes right after the last one of its producer.
fn follows(last: &BatchHeader, header: &BatchHeader) -> Result<(), ErrorCode> {
    let next = i32::try_from((i64::from(last.last_sequence()) + 1) % (1 << 31)).unwrap();
    match header.producer_epoch.cmp(&last.producer_epoch) {
        std::cmp::Ordering::Less => Err(ErrorCode::INVALID_PRODUCER_EPOCH),
        std::cmp::Ordering::Equal if header.base_sequence == next => Ok(()),
        std::cmp::Ordering::Greater if header.base_sequence == 0 => Ok(()),
        _ => Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER),
    }
}

/// Each producer gets an id of its own.
pub(super) fn name_producer(world: &mut World, asked: &Asked<'_>) -> Vec<u8> {
    decode_request::<InitProducerIdRequest<'_>>(asked.frame).unwrap();
    let mut response = InitProducerIdResponse { throttle_time_ms: 0, ..Default::default() };
    if let Some(Act::Refuse(code)) = asked.act {
        response.error_code = *code;
    } else {
        world.producers += 1;
        response.producer_id = world.producers;
        response.producer_epoch = match asked.act {
            Some(Act::Epoch(epoch)) => *epoch,
            _ => 0,
        };
    }
    encoded(asked.version, asked.id, &response)
}

/// An answer, empty without acks; none where the connection is to be closed.
pub(super) fn produce(world: &mut World, asked: &Asked<'_>) -> Option<Vec<u8>> {
    let (_, request) = decode_request::<ProduceRequest<'_>>(asked.frame).unwrap();
    let mut responses = Vec::new();
    for topic in &request.topic_data {
        let current = asked.version < 13 || topic.topic_id == Uuid([world.topic_id; 16]);
        let rows = topic.partition_data.iter().map(|row| {
            let records = row.records.bytes().unwrap();
            take(world, asked, row.index, if current { Some(records) } else { None })
        });
        let mut partition_responses: Vec<_> = rows.collect();
        if matches!(asked.act, Some(Act::Omit)) {
            partition_responses.clear();
        }
        let (name, topic_id) = (topic.name, topic.topic_id);
        responses.push(TopicProduceResponse { name, topic_id, partition_responses });
    }
    let rows = responses.iter().flat_map(|topic| &topic.partition_responses);
    if request.acks == 0 {
        // As Kafka does, since nobody reads an answer.
        let refused = rows.into_iter().any(|row| row.error_code.is_error());
        return (!refused).then(Vec::new);
    }
    let leaders: Vec<i32> = rows.map(|row| row.current_leader.leader_id).collect();
    let hosts: Vec<_> = world
        .addresses
        .iter()
        .filter(|(node, _)| leaders.contains(node))
        .map(|(&node, address)| (node, address.ip().to_string(), i32::from(address.port())))
        .collect();
    let endpoints = hosts.iter().map(|(node_id, host, port)| NodeEndpoint {
        node_id: *node_id,
        host,
        port: *port,
        ..Default::default()
    });
    let response = ProduceResponse {
        responses,
        throttle_time_ms: world.throttle(asked),
        node_endpoints: endpoints.collect(),
    };
    Some(encoded(asked.version, asked.id, &response))
}

/// What becomes of a partition's batch; without one, the topic was another.
fn take(
    world: &mut World,
    asked: &Asked<'_>,
    index: i32,
    records: Option<&[u8]>,
) -> PartitionProduceResponse<'static> {
    let answer = |error_code, base_offset| PartitionProduceResponse {
        index,
        error_code,
        base_offset,
        log_append_time_ms: -1,
        ..Default::default()
    };
    let moved = |leader_id, leader_epoch| PartitionProduceResponse {
        current_leader: LeaderIdAndEpoch { leader_id, leader_epoch },
        ..answer(ErrorCode::NOT_LEADER_OR_FOLLOWER, -1)
    };
    let leader = world.leader(index);
    match asked.act {
        Some(Act::Refuse(code)) => return answer(*code, -1),
        Some(Act::Hint(leader, epoch)) => return moved(*leader, *epoch),
        Some(Act::Omit) => return answer(ErrorCode::NONE, -1),
        _ if leader != asked.node && world.hints => return moved(leader, world.epoch),
        _ if leader != asked.node => return answer(ErrorCode::NOT_LEADER_OR_FOLLOWER, -1),
        _ => {}
    }
    let Some(records) = records else { return answer(ErrorCode::UNKNOWN_TOPIC_ID, -1) };
    if records.len() > world.batch_max {
        return PartitionProduceResponse {
            error_message: Some("larger than the topic takes"),
            ..answer(ErrorCode::MESSAGE_TOO_LARGE, -1)
        };
    }
    match (world.append(index, records), asked.act) {
        (_, Some(Act::Deny(code))) => answer(*code, -1),
        (Ok(offset), _) => answer(ErrorCode::NONE, offset),
        (Err(code), _) => answer(code, -1),
    }
}
