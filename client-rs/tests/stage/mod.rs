//! Brokers that keep small logs and do with chosen requests what a case says.

#![allow(dead_code, reason = "each story takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "a broker measures how long it is left alone")]

mod answers;
mod records;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ottla_protocol::frame::{encode_response, frame_size};
use ottla_protocol::{ApiKey, ErrorCode, Response, Writer};

pub(crate) use records::pieces;

/// The one topic there is.
pub(crate) const TOPIC: &str = "t";

/// What a broker does with one request of an API, in place of what it would.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Answers all that is asked with this code.
    Refuse(ErrorCode),
    /// Names a broker that is nearer (KIP-392).
    Nearer(i32),
    /// Answers as ever, and asks to be left alone for so long (KIP-219).
    Throttle(Duration),
    /// Gives these bytes for the partition's records, whatever was asked.
    Records(i32, Vec<u8>),
    /// Closes the connection.
    Close,
    /// Answers another request than the one that came.
    Misdirect,
    /// Tells its own address as one that cannot be.
    Address(String, i32),
    /// Says that no partition has a leader.
    Leaderless,
}

/// A log: batches with base offset, next offset, and bytes.
pub(crate) type Log = Vec<(i64, i64, Vec<u8>)>;

/// All that the brokers have and have seen.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) logs: BTreeMap<i32, Log>,
    pub(crate) starts: BTreeMap<i32, i64>,
    pub(crate) leaders: BTreeMap<i32, i32>,
    pub(crate) committed: BTreeMap<i32, i64>,
    pub(crate) epoch: i32,
    pub(crate) topic_id: u8,
    /// What the member is to read from the next sync on.
    pub(crate) share: Vec<i32>,
    pub(crate) rebalance: bool,
    generation: i32,
    pub(crate) gone: Vec<i32>,
    pub(crate) acts: BTreeMap<(i16, i32), VecDeque<Act>>,
    /// Broker, partition and offset of each fetch that brought something, be it an error.
    pub(crate) fetched: Vec<(i32, i32, i64)>,
    /// Bytes of records sent.
    pub(crate) sent: usize,
    /// Topics that Metadata was asked about.
    pub(crate) described: Vec<String>,
    /// Requests to a broker that had asked to be left alone.
    pub(crate) impatient: Vec<String>,
    quiet_until: BTreeMap<i32, Instant>,
    addresses: BTreeMap<i32, SocketAddr>,
}

/// Running brokers. They end with the process.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    world: Arc<Mutex<World>>,
}

impl Stage {
    pub(crate) fn start(brokers: i32) -> Self {
        let world = World { epoch: 5, topic_id: 7, generation: 0, ..World::default() };
        let world = Arc::new(Mutex::new(world));
        for node in 1..=brokers {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            world.lock().unwrap().addresses.insert(node, listener.local_addr().unwrap());
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let Ok(stream) = stream else { return };
                    let connection = Connection { node, stream, world: Arc::clone(&world) };
                    // A connection that ends, by either side, is no fault here.
                    thread::spawn(move || connection.serve().ok());
                }
            });
        }
        Self { world }
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.with(|world| world.addresses[&1].to_string())
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.world.lock().unwrap())
    }
}

struct Connection {
    node: i32,
    stream: TcpStream,
    world: Arc<Mutex<World>>,
}

impl Connection {
    fn serve(mut self) -> io::Result<()> {
        loop {
            let mut size = [0; 4];
            self.stream.read_exact(&mut size)?;
            let mut frame = vec![0; frame_size(size, 1 << 26).unwrap()];
            self.stream.read_exact(&mut frame)?;
            let number = i16::from_be_bytes([frame[0], frame[1]]);
            let key = ApiKey::try_from(number).unwrap();
            let act = {
                let mut world = self.world.lock().unwrap();
                if world.gone.contains(&self.node) {
                    return self.stream.shutdown(Shutdown::Both);
                }
                world.note_patience(self.node, key);
                world.acts.get_mut(&(number, self.node)).and_then(VecDeque::pop_front)
            };
            if matches!(act, Some(Act::Close)) {
                return self.stream.shutdown(Shutdown::Both);
            }
            let answer = answers::answer(&self.world, self.node, key, &frame, act.as_ref());
            self.stream.write_all(&answer)?;
        }
    }
}

impl World {
    /// Heartbeats go on: the quota is not theirs.
    fn note_patience(&mut self, node: i32, key: ApiKey) {
        let quiet = self.quiet_until.get(&node).is_some_and(|until| *until > Instant::now());
        if quiet && matches!(key, ApiKey::Fetch | ApiKey::ListOffsets) {
            self.impatient.push(format!("{key} to broker {node}"));
        }
    }

    /// The next act of an API at a broker, and all after it.
    pub(crate) fn act(&mut self, key: ApiKey, node: i32, act: Act) {
        self.acts.entry((key.into(), node)).or_default().push_back(act);
    }
}

/// An answer's frame.
fn encoded<'a>(version: i16, id: i32, response: &impl Response<'a>) -> Vec<u8> {
    let mut writer = Writer::new();
    encode_response(version, id, response, &mut writer).unwrap();
    writer.bytes().to_vec()
}
