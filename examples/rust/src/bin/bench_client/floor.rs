//! The floor: what produce and consume cost when a single thread does no more than it must.
//!
//! To produce: encode into one batch a partition, checksum, sequence, one vectored write, five
//! requests in flight. To consume: one fetch after the other, checksum, each record once. No second
//! thread, no budget, no retries, nothing to wait for, one broker. It uses our protocol crate, so
//! what a client costs above it is the client's own.

use std::collections::VecDeque;
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ottla_protocol::frame::{MAX_FRAME, decode_response, encode_request, frame_size};
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::fetch_response::FetchResponse;
use ottla_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use ottla_protocol::messages::init_producer_id_response::InitProducerIdResponse;
use ottla_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use ottla_protocol::messages::produce_response::ProduceResponse;
use ottla_protocol::record::{
    Attributes, BatchSeal, BatchSpan, Compression, HEADER_LEN, NO_HEADERS, NewRecord, batches, crc,
    seal,
};
use ottla_protocol::{Records, Request, Writer};

use crate::settings::{Settings, Values};
use crate::{Outcome, Stretch, now};

const PRODUCE_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 12;
const INIT_VERSION: i16 = 4;
const IN_FLIGHT: usize = 5;
/// Records between two looks at the clock.
const CHUNK: u64 = 1_000;

/// A connection, and memory for what it reads.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
    asked: i32,
}

impl Connection {
    fn open(settings: &Settings) -> Outcome<Self> {
        let stream = TcpStream::connect(settings.word("address")?)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, answer: Vec::new(), asked: 0 })
    }

    /// Writes a request, with the bytes that belong into its cuts.
    fn ask<'a, R: Request<'a>>(
        &mut self,
        version: i16,
        request: &R,
        detached: &[&[u8]],
    ) -> Outcome {
        self.asked += 1;
        let mut writer = Writer::new();
        encode_request(version, self.asked, Some("floor"), request, &mut writer)?;
        let (bytes, cuts) = writer.into_parts();
        let (mut rest, mut written) = (bytes.as_slice(), 0);
        let mut slices = Vec::with_capacity(2 * cuts.len() + 1);
        for (cut, detached) in cuts.iter().zip(detached) {
            let (before, after) = rest.split_at(cut.at - written);
            slices.extend([IoSlice::new(before), IoSlice::new(detached)]);
            (rest, written) = (after, cut.at);
        }
        slices.push(IoSlice::new(rest));
        let mut slices = slices.as_mut_slice();
        while !slices.is_empty() {
            let count = self.stream.write_vectored(slices)?;
            IoSlice::advance_slices(&mut slices, count);
        }
        Ok(())
    }

    /// Reads the next answer, whole.
    fn answer(&mut self) -> Outcome<&[u8]> {
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix)?;
        let size = frame_size(prefix, MAX_FRAME)?;
        if self.answer.len() < size {
            self.answer.resize(size, 0);
        }
        let answer = self.answer.get_mut(..size).unwrap_or_default();
        self.stream.read_exact(answer)?;
        Ok(answer)
    }
}

/// A partition's open batch: room for its header, then records.
#[derive(Debug)]
struct Open {
    bytes: Vec<u8>,
    span: BatchSpan,
}

/// What is on its way: for each partition, its batch's memory.
type Sent = Vec<(usize, Open)>;

#[derive(Debug)]
struct Floor {
    connection: Connection,
    topic: String,
    acks: i16,
    codec: Compression,
    batch_bytes: usize,
    producer: (i64, i16),
    sequences: Vec<i32>,
    open: Vec<Open>,
    ready: Sent,
    in_flight: VecDeque<Sent>,
    spare: Vec<Vec<u8>>,
}

pub(crate) fn produce(settings: &Settings) -> Outcome {
    let mut floor = Floor::new(settings)?;
    let mut values = settings.values()?;
    let warm = floor.send_for(&mut values, settings.time("warm")?)?;
    let stretch = Stretch::begin();
    let sent = floor.send_for(&mut values, settings.time("seconds")?)?;
    stretch.end(&format!("warm={warm} records={sent}"));
    Ok(())
}

impl Floor {
    fn new(settings: &Settings) -> Outcome<Self> {
        let mut connection = Connection::open(settings)?;
        let partitions: usize = settings.number("partitions")?;
        let acks = if settings.word("option.acks")? == "all" { -1 } else { 1 };
        let codec = settings.word("option.compression.type")?;
        let codec = Compression::ALL.into_iter().find(|known| known.name() == codec);
        let mut producer = (-1, -1);
        if acks == -1 {
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: 60_000,
                ..InitProducerIdRequest::default()
            };
            connection.ask(INIT_VERSION, &request, &[])?;
            let frame = connection.answer()?;
            let (_, made) = decode_response::<InitProducerIdResponse>(frame, INIT_VERSION)?;
            if !made.error_code.is_none() {
                return Err(format!("InitProducerId: {:?}", made.error_code).into());
            }
            producer = (made.producer_id, made.producer_epoch);
        }
        let mut floor = Self {
            connection,
            topic: settings.word("topic")?.to_owned(),
            acks,
            codec: codec.ok_or("no such codec")?,
            batch_bytes: settings.number("option.batch.size")?,
            producer,
            sequences: vec![0; partitions],
            open: Vec::new(),
            ready: Vec::new(),
            in_flight: VecDeque::new(),
            spare: Vec::new(),
        };
        floor.open = (0..partitions).map(|_| floor.fresh()).collect();
        Ok(floor)
    }

    fn fresh(&mut self) -> Open {
        let mut bytes =
            self.spare.pop().unwrap_or_else(|| Vec::with_capacity(self.batch_bytes + 4_096));
        bytes.clear();
        bytes.resize(HEADER_LEN, 0);
        Open { bytes, span: BatchSpan::new(now_ms()) }
    }

    /// Sends for so long, record by record to the next partition, and reads all answers.
    fn send_for(&mut self, values: &mut Values, span: Duration) -> Outcome<u64> {
        let (mut sent, mut turn, end) = (0, 0, now() + span);
        let partitions = self.open.len();
        while now() < end {
            let time = now_ms();
            for _ in 0..CHUNK {
                self.put(turn, time, values)?;
                turn = if turn + 1 < partitions { turn + 1 } else { 0 };
            }
            sent += CHUNK;
        }
        for partition in 0..partitions {
            self.close(partition);
        }
        self.send()?;
        while !self.in_flight.is_empty() {
            self.settle()?;
        }
        Ok(sent)
    }

    fn put(&mut self, partition: usize, time: i64, values: &mut Values) -> Outcome {
        let each = values.each();
        let open = self.open.get_mut(partition).ok_or("no such partition")?;
        let record = NewRecord {
            offset_delta: open.span.next_delta(),
            timestamp_delta: open.span.timestamp_delta(time),
            key: None,
            value: Some(values.next()),
            headers: NO_HEADERS,
        };
        record.measure()?.encode(&mut open.bytes);
        open.span.add(time);
        // A record's own fields take up to 30 bytes beside its value.
        if open.bytes.len() + each + 30 > self.batch_bytes {
            self.close(partition);
            // As many to a request as become full together.
            if self.ready.len() == self.open.len() {
                self.send()?;
            }
        }
        Ok(())
    }

    fn close(&mut self, partition: usize) {
        let mut fresh = self.fresh();
        if let Some(open) = self.open.get_mut(partition)
            && open.span.records_count > 0
        {
            std::mem::swap(open, &mut fresh);
            self.ready.push((partition, fresh));
        } else {
            self.spare.push(fresh.bytes);
        }
    }

    /// Sends what is ready, when fewer than five requests are on their way.
    fn send(&mut self) -> Outcome {
        while self.in_flight.len() >= IN_FLIGHT {
            self.settle()?;
        }
        let mut ready = std::mem::take(&mut self.ready);
        let mut partition_data = Vec::with_capacity(ready.len());
        for (partition, open) in &mut ready {
            self.seal(*partition, open)?;
            partition_data.push(PartitionProduceData {
                index: i32::try_from(*partition)?,
                records: Records::Detached(open.bytes.len()),
            });
        }
        let request = ProduceRequest {
            acks: self.acks,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: &self.topic,
                partition_data,
                ..TopicProduceData::default()
            }],
            transactional_id: None,
        };
        let detached: Vec<&[u8]> = ready.iter().map(|(_, open)| open.bytes.as_slice()).collect();
        self.connection.ask(PRODUCE_VERSION, &request, &detached)?;
        self.in_flight.push_back(ready);
        Ok(())
    }

    fn seal(&mut self, partition: usize, open: &mut Open) -> Outcome {
        if self.codec != Compression::None {
            let mut packed = self.spare.pop().unwrap_or_default();
            packed.clear();
            packed.resize(HEADER_LEN, 0);
            let body = open.bytes.get(HEADER_LEN..).unwrap_or_default();
            self.codec.compress([body], &mut packed)?;
            self.spare.push(std::mem::replace(&mut open.bytes, packed));
        }
        let (producer_id, producer_epoch) = self.producer;
        let sequence = self.sequences.get_mut(partition).ok_or("no such partition")?;
        let fields = BatchSeal {
            attributes: Attributes::default().with_compression(self.codec),
            producer_id,
            producer_epoch,
            base_sequence: if producer_id < 0 { -1 } else { *sequence },
            ..BatchSeal::default()
        };
        *sequence = sequence.wrapping_add(open.span.records_count) & i32::MAX;
        let body = open.bytes.get(HEADER_LEN..).unwrap_or_default();
        let (len, sum) = (body.len(), crc::of(body));
        let header = open.bytes.first_chunk_mut().ok_or("no room for a header")?;
        Ok(seal(header, &fields, &open.span, len, sum)?)
    }

    /// Reads one answer; what it is about is stored.
    fn settle(&mut self) -> Outcome {
        let frame = self.connection.answer()?;
        let (_, response) = decode_response::<ProduceResponse<'_>>(frame, PRODUCE_VERSION)?;
        let answers = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        for answer in answers {
            if !answer.error_code.is_none() {
                return Err(format!("Produce: {:?}", answer.error_code).into());
            }
        }
        let settled = self.in_flight.pop_front().unwrap_or_default();
        self.spare.extend(settled.into_iter().map(|(_, open)| open.bytes));
        Ok(())
    }
}

/// Reads the whole topic once: records, and bytes of their values.
pub(crate) fn read_all(settings: &Settings) -> Outcome<(u64, usize)> {
    let mut connection = Connection::open(settings)?;
    let expected: u64 = settings.number("records")?;
    let mut positions = vec![0_i64; settings.number("partitions")?];
    let (mut read, mut bytes) = (0, 0);
    while read < expected {
        let partitions = positions.iter().zip(0..).map(|(&fetch_offset, partition)| {
            let partition_max_bytes = 1 << 20;
            FetchPartition { partition, fetch_offset, partition_max_bytes, ..Default::default() }
        });
        let topic = settings.word("topic")?;
        let topics =
            vec![FetchTopic { topic, partitions: partitions.collect(), ..Default::default() }];
        let request = FetchRequest {
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 16 << 20,
            topics,
            ..FetchRequest::default()
        };
        connection.ask(FETCH_VERSION, &request, &[])?;
        let frame = connection.answer()?;
        let (_, response) = decode_response::<FetchResponse<'_>>(frame, FETCH_VERSION)?;
        for partition in response.responses.iter().flat_map(|topic| &topic.partitions) {
            if !partition.error_code.is_none() {
                return Err(format!("Fetch: {:?}", partition.error_code).into());
            }
            let index = usize::try_from(partition.partition_index)?;
            let position = positions.get_mut(index).ok_or("a partition that was not asked for")?;
            for batch in batches(partition.records.bytes().unwrap_or_default()) {
                let batch = batch?;
                batch.verify_crc()?;
                for record in &batch.records(MAX_FRAME)? {
                    let record = record?;
                    if record.offset >= *position {
                        read += 1;
                        bytes += record.value.map_or(0, <[u8]>::len);
                    }
                }
                *position = batch.header.next_offset();
            }
        }
    }
    Ok((read, bytes))
}

/// Milliseconds since the epoch.
#[expect(clippy::disallowed_methods, reason = "records bear the time")]
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
