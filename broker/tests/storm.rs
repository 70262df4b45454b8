//! Kill -9 under load, again and again: what was acknowledged is there, once.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Sender};
use std::thread;

use client::program::Program;
use client::{Client, batch, produce_request};
use ottla_protocol::ErrorCode;
use ottla_protocol::frame::{decode_response, encode_request};
use ottla_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProduceResponse};
use ottla_protocol::record::BatchSeal;

const KILLS: u64 = 10;
const PRODUCERS: usize = 3;
const TOPIC: &str = "storm";
const VERSION: i16 = 9;

/// Numbers by a seed, so that a failure comes again.
fn dice(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 31)
}

/// An idempotent producer that outlives the broker.
struct Producer {
    number: usize,
    id: i64,
    epoch: i16,
    sequence: i32,
    /// Acknowledged values, in order.
    acked: Vec<String>,
    /// Sent, and no answer seen: sent again with the same sequence.
    waiting: Option<String>,
}

impl Producer {
    fn new(client: &mut Client, number: usize) -> Self {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            ..InitProducerIdRequest::default()
        };
        let answer = client.call(4, &request);
        let given = answer.decode::<InitProducerIdResponse>();
        assert_eq!(given.error_code, ErrorCode::NONE);
        let (id, epoch) = (given.producer_id, given.producer_epoch);
        Self { number, id, epoch, sequence: 0, acked: Vec::new(), waiting: None }
    }

    /// Sends batch after batch until the connection breaks, or for so many.
    fn run(mut self, address: SocketAddr, most: usize, acks: &Sender<()>) -> Self {
        let Ok(stream) = TcpStream::connect(address) else { return self };
        stream.set_nodelay(true).expect("no delay");
        for _ in 0..most {
            let value = self.waiting.take().unwrap_or_else(|| {
                let number = self.acked.len();
                // Long enough for segments to roll, of a length that differs.
                let fill = "x".repeat(3_000 + number * 37 % 5_000);
                format!("{}-{number}-{fill}", self.number)
            });
            match self.send(&stream, &value) {
                Ok(code) => {
                    assert_eq!(code, ErrorCode::NONE, "producer {}", self.number);
                    self.acked.push(value);
                    self.sequence += 1;
                    // The one who counts may have seen enough.
                    let _enough = acks.send(()).is_err();
                }
                Err(_broken) => {
                    self.waiting = Some(value);
                    return self;
                }
            }
        }
        self
    }

    fn send(&self, mut stream: &TcpStream, value: &str) -> io::Result<ErrorCode> {
        let seal = BatchSeal {
            producer_id: self.id,
            producer_epoch: self.epoch,
            base_sequence: self.sequence,
            ..BatchSeal::default()
        };
        let bytes = batch(&[value], &seal);
        let mut writer = ottla_protocol::Writer::new();
        let request = produce_request(TOPIC, 0, -1, &bytes);
        encode_request(VERSION, 1, Some("storm"), &request, &mut writer).expect("a request");
        stream.write_all(writer.bytes())?;
        let mut size = [0; 4];
        io::Read::read_exact(&mut stream, &mut size)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(size)).expect("a size")];
        io::Read::read_exact(&mut stream, &mut frame)?;
        let (_, answer) =
            decode_response::<ProduceResponse<'_>>(&frame, VERSION).expect("an answer");
        Ok(answer.responses[0].partition_responses[0].error_code)
    }
}

/// All values of the topic, in order.
fn all(client: &mut Client) -> Vec<String> {
    let end = client.list_offset(TOPIC, -1);
    let mut values = Vec::new();
    loop {
        let offset = i64::try_from(values.len()).expect("few");
        if offset == end {
            return values;
        }
        let more = client.fetch(TOPIC, offset);
        assert!(!more.is_empty(), "nothing at {offset} of {end}");
        values.extend(more);
    }
}

/// Each producer's acknowledged records are there once and in order; of one that was not
/// acknowledged there may be one more, at the end.
fn verify(client: &mut Client, producers: &[Producer], round: u64) {
    let stored = all(client);
    let mut others = stored.len();
    for producer in producers {
        let prefix = format!("{}-", producer.number);
        let own: Vec<_> = stored.iter().filter(|value| value.starts_with(&prefix)).collect();
        others -= own.len();
        let acked = producer.acked.len();
        assert!(own.len() >= acked, "round {round}: {} of {acked} records", own.len());
        let (there, more) = own.split_at(acked);
        assert!(there.iter().zip(&producer.acked).all(|(a, b)| *a == b), "round {round}: order");
        let allowed: Vec<_> = producer.waiting.iter().collect();
        assert!(more.is_empty() || more == allowed, "round {round}: {} more", more.len());
    }
    assert_eq!(others, 0, "round {round}: records of nobody");
}

#[test]
fn acknowledged_records_are_there_once_whenever_the_program_is_killed() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let text = data.to_str().expect("text");
    let start = || Program::start(&["--data", text, "-c", "log.segment.bytes=1048576"]);
    let mut producers: Vec<Producer> = Vec::new();
    for round in 0..KILLS {
        let program = start();
        let mut client = Client::connect(program.address);
        if round == 0 {
            assert_eq!(client.create(TOPIC), ErrorCode::NONE);
            producers = (0..PRODUCERS).map(|number| Producer::new(&mut client, number)).collect();
        }
        verify(&mut client, &producers, round);
        let (acks, counted) = mpsc::channel();
        let threads: Vec<_> = producers
            .into_iter()
            .map(|producer| {
                let (acks, address) = (acks.clone(), program.address);
                thread::spawn(move || producer.run(address, usize::MAX, &acks))
            })
            .collect();
        for _ in 0..=dice(round) % 150 {
            counted.recv().expect("somebody sends");
        }
        program.signal("-KILL");
        program.wait();
        producers = threads.into_iter().map(|one| one.join().expect("no refusal")).collect();
    }
    let program = start();
    let (acks, _counted) = mpsc::channel();
    // What had no answer is sent again, and is stored once all the same.
    let producers: Vec<_> =
        producers.into_iter().map(|producer| producer.run(program.address, 1, &acks)).collect();
    assert!(producers.iter().all(|producer| producer.waiting.is_none()));
    let mut client = Client::connect(program.address);
    verify(&mut client, &producers, KILLS);
    let acked: usize = producers.iter().map(|producer| producer.acked.len()).sum();
    assert_eq!(all(&mut client).len(), acked);
    println!("{acked} records, {KILLS} kills");
}
