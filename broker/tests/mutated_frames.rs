//! Thousands of frames that were harmed at random: the broker serves everybody else meanwhile.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{Client, batch, fetch_request, list_offsets_request, produce_request};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::frame::encode_request;
use ottla_protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, DescribeGroupsRequest, HeartbeatRequest,
    JoinGroupRequest, MetadataRequest, OffsetFetchRequest,
};
use ottla_protocol::record::BatchSeal;
use ottla_protocol::{Request, Writer};

/// How many harmed frames are sent.
const FRAMES: u64 = 3_000;
/// After so many, somebody else is served.
const TURN: u64 = 100;
/// What the broker may hold for requests; the harmed frames announce far more.
const BUDGET: &str = "8388608";
/// What the process may grow by: the budget, the sockets' buffers, and what an allocator keeps.
const GROWTH_KIB: u64 = 256 * 1024;

/// A small generator of numbers (SplitMix64): a run is told again by its seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).expect("small");
        usize::try_from(self.next() % end).expect("small")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

fn frame<'a, R: Request<'a>>(version: i16, request: &R) -> Vec<u8> {
    let mut writer = Writer::new();
    encode_request(version, 1, Some("mutant"), request, &mut writer).expect("a request");
    writer.into_bytes().clone()
}

/// Good frames, old and new forms.
fn seeds() -> Vec<Vec<u8>> {
    let set = batch(&["one", "two"], &BatchSeal::default());
    let mut all = Vec::new();
    for version in [3, 7, 9, 12] {
        all.push(frame(version, &produce_request("orders", 0, -1, &set)));
    }
    for version in [4, 11, 12] {
        all.push(frame(version, &fetch_request("orders", 0, 1, 1)));
    }
    for version in [1, 5, 7, 11] {
        all.push(frame(version, &list_offsets_request("orders", -1)));
    }
    for version in [1, 8, 12] {
        all.push(frame(version, &MetadataRequest::default()));
        all.push(frame(version.clamp(2, 7), &CreateTopicsRequest::default()));
    }
    let join = JoinGroupRequest {
        group_id: "g",
        session_timeout_ms: 6_000,
        rebalance_timeout_ms: 6_000,
        protocol_type: "consumer",
        ..JoinGroupRequest::default()
    };
    for version in [0, 5, 9] {
        all.push(frame(version, &join));
        all.push(frame(version.min(6), &DescribeGroupsRequest::default()));
        all.push(frame(version.min(4), &HeartbeatRequest::default()));
        all.push(frame(version.clamp(1, 7), &OffsetFetchRequest::default()));
        all.push(frame(version.min(3), &ApiVersionsRequest::default()));
    }
    all
}

/// Harms a frame in one to four places. Its size is right most of the time, or nothing behind it
/// would ever be looked at.
fn harm(frame: &mut Vec<u8>, numbers: &mut Numbers) {
    for _ in 0..=numbers.below(4) {
        let at = 4 + numbers.below(frame.len().saturating_sub(4));
        match numbers.below(6) {
            0 => frame[at] ^= 1 << numbers.below(8),
            1 => frame[at] = numbers.byte(),
            2 => frame.truncate(at.max(5)),
            3 => frame.insert(at, numbers.byte()),
            4 => {
                let end = (at + 4).min(frame.len());
                let value = [0x7f, 0xff, 0x80, 0x00][numbers.below(4)];
                frame[at..end].fill(value);
            }
            _ => {
                let copy = frame[at..(at + 16).min(frame.len())].to_vec();
                frame.extend(copy);
            }
        }
    }
    let size = match numbers.below(16) {
        0 => i32::from_le_bytes([numbers.byte(), numbers.byte(), numbers.byte(), numbers.byte()]),
        _ => i32::try_from(frame.len() - 4).expect("small"),
    };
    frame[..4].copy_from_slice(&size.to_be_bytes());
}

/// Sends a frame and no more, and takes what is answered until the broker closes.
fn send(address: SocketAddr, frame: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("the broker listens");
    stream.set_read_timeout(Some(Duration::from_mins(2))).expect("a limit");
    // It may be closed at the first bytes already.
    if stream.write_all(frame).is_ok() && stream.shutdown(Shutdown::Write).is_ok() {
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the connection is neither answered nor closed: {error}"),
        }
    }
}

/// Counts panics on any thread: one in a connection's task would end that connection alone, and
/// nobody would notice.
static PANICS: AtomicU64 = AtomicU64::new(0);

fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        before(panic);
    }));
}

/// The memory of this process, with the broker in it, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn frames_harmed_at_random_hold_up_nobody_and_cost_no_memory() {
    count_panics();
    let seed = std::env::var("OTTLA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let mut numbers = Numbers(seed);
    let config = BrokerConfig::new().set("queued.max.request.bytes", BUDGET).expect("an option");
    let broker = Broker::start(config).expect("a broker");
    let mut good = Client::connect(broker.address());
    good.create("orders");
    good.create("good");
    let seeds = seeds();
    let before = resident_kib();
    for count in 0..FRAMES {
        let mut frame = seeds[numbers.below(seeds.len())].clone();
        harm(&mut frame, &mut numbers);
        send(broker.address(), &frame);
        if count % TURN == 0 {
            let offset = i64::try_from(count / TURN).expect("small");
            assert_eq!(good.produce("good", &["still here"]), offset, "seed {seed}");
            assert_eq!(good.fetch("good", offset), ["still here"], "seed {seed}");
        }
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB, "{grown} KiB more than before, seed {seed}");
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "panics, seed {seed}");
    broker.stop(Duration::from_mins(1)).expect("a clean stop");
}
