//! Brokers that keep small logs and do with chosen requests what a case says.

#![allow(dead_code, unused_imports, reason = "each story takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]
#![allow(clippy::disallowed_methods, reason = "a broker measures how long it is left alone")]

mod acts;
mod answers;
mod headers;
mod produce;
mod records;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ottla_protocol::frame::{encode_response, frame_size};
use ottla_protocol::{ApiKey, Response, Writer};

pub(crate) use acts::{Act, api};
pub(crate) use headers::{Headers, headers};
pub(crate) use produce::Came;
pub(crate) use records::pieces;

/// The one topic there is.
pub(crate) const TOPIC: &str = "t";

/// A log: batches with base offset, next offset, and bytes.
pub(crate) type Log = Vec<(i64, i64, Vec<u8>)>;

/// All that the brokers have and have seen.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) logs: BTreeMap<i32, Log>,
    pub(crate) starts: BTreeMap<i32, i64>,
    pub(crate) leaders: BTreeMap<i32, i32>,
    pub(crate) committed: BTreeMap<i32, i64>,
    /// What was committed since a case said what is.
    pub(crate) commits: Vec<(i32, i64)>,
    pub(crate) epoch: i32,
    /// Leader and epoch that metadata tells in place of the true ones.
    told: BTreeMap<i32, (i32, i32)>,
    /// Whether a broker that does not lead says who does (KIP-951).
    hints: bool,
    pub(crate) topic_id: u8,
    /// So many further topics there are, each with the partitions of the one.
    pub(crate) others: usize,
    /// The longest batch that the topic takes.
    pub(crate) batch_max: usize,
    /// The newest versions of APIs, where they are not ours.
    pub(crate) newest: BTreeMap<i16, i16>,
    /// Producers that have got an id.
    producers: i64,
    /// The batches that came, in order.
    pub(crate) came: Vec<Came>,
    /// Batches that came again as other bytes.
    pub(crate) changed: Vec<String>,
    /// API, version and broker of each request.
    pub(crate) asked: Vec<(ApiKey, i16, i32)>,
    /// What the member is to read from the next sync on.
    pub(crate) share: Vec<i32>,
    pub(crate) rebalance: bool,
    pub(crate) generation: i32,
    pub(crate) gone: Vec<i32>,
    /// Brokers that are there, and that metadata does not tell of.
    pub(crate) hidden: Vec<i32>,
    /// Brokers that do nothing with what comes until they go on.
    pub(crate) held: Vec<i32>,
    pub(crate) acts: BTreeMap<(i16, i32), VecDeque<Act>>,
    /// Broker, partition and offset of each fetch that brought something, be it an error.
    pub(crate) fetched: Vec<(i32, i32, i64)>,
    /// Bytes of records sent.
    pub(crate) sent: usize,
    /// Topics that Metadata was asked about.
    pub(crate) described: Vec<String>,
    /// Bytes of answers about metadata.
    pub(crate) told_bytes: usize,
    /// Requests to a broker that had asked to be left alone.
    pub(crate) impatient: Vec<String>,
    /// Heartbeats to such a broker.
    pub(crate) beats: usize,
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
        let (epoch, hints, topic_id, batch_max) = (5, true, 7, usize::MAX);
        let world = World { epoch, hints, topic_id, batch_max, ..World::default() };
        let world = Arc::new(Mutex::new(world));
        for node in 1..=brokers {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            world.lock().unwrap().addresses.insert(node, listener.local_addr().unwrap());
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let Ok(stream) = stream else { return };
                    let (quiet_until, world) = (None, Arc::clone(&world));
                    let connection = Connection { node, stream, quiet_until, world };
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
    /// Nothing may come by it before (KIP-219).
    quiet_until: Option<Instant>,
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
            while self.world.lock().unwrap().held.contains(&self.node) {
                thread::park_timeout(Duration::from_millis(1));
            }
            let act = {
                let mut world = self.world.lock().unwrap();
                if world.gone.contains(&self.node) {
                    return self.stream.shutdown(Shutdown::Both);
                }
                world.note_patience(self.node, key);
                if self.quiet_until.is_some_and(|until| until > Instant::now()) {
                    world.impatient.push(format!("{key} by a connection of broker {}", self.node));
                }
                world.asked.push((key, i16::from_be_bytes([frame[2], frame[3]]), self.node));
                if key == ApiKey::Produce {
                    world.note_produce(self.node, &frame);
                }
                world.acts.get_mut(&(number, self.node)).and_then(VecDeque::pop_front)
            };
            match act {
                Some(Act::Close) => return self.stream.shutdown(Shutdown::Both),
                Some(Act::Swallow) => continue,
                _ => {}
            }
            let answer = answers::answer(&self.world, self.node, key, &frame, act.as_ref());
            let Some(answer) = answer else { return self.stream.shutdown(Shutdown::Both) };
            if let Some(Act::Throttle(throttle)) = &act {
                self.quiet_until = Some(Instant::now() + *throttle);
            }
            if key == ApiKey::Metadata {
                self.world.lock().unwrap().told_bytes += answer.len();
            }
            match act {
                Some(Act::Mute) => {}
                Some(Act::Cut) => {
                    self.stream.write_all(&answer[..answer.len() / 2])?;
                    return self.stream.shutdown(Shutdown::Both);
                }
                _ => self.stream.write_all(&answer)?,
            }
        }
    }
}

impl World {
    /// Heartbeats go on: the quota is not theirs.
    fn note_patience(&mut self, node: i32, key: ApiKey) {
        let quiet = self.quiet_until.get(&node).is_some_and(|until| *until > Instant::now());
        match key {
            ApiKey::Fetch | ApiKey::ListOffsets | ApiKey::Produce if quiet => {
                self.impatient.push(format!("{key} to broker {node}"));
            }
            ApiKey::Heartbeat if quiet => self.beats += 1,
            _ => {}
        }
    }

    /// Acts for an API that no request has met.
    pub(crate) fn acts_left(&self, key: ApiKey) -> usize {
        let number = i16::from(key);
        let of_key = self.acts.iter().filter(|((api, _), _)| *api == number);
        of_key.map(|(_, acts)| acts.len()).sum()
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
