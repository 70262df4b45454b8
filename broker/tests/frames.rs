//! Frames that are none: the connection ends, and everybody else is served.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::io::Write as _;

use client::{Client, batch, fetch_request, produce_request, values};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::Writer;
use ottla_protocol::frame::encode_request;
use ottla_protocol::record::BatchSeal;

fn broker() -> Broker {
    Broker::start(BrokerConfig::new()).expect("a broker in memory")
}

/// A request of the test's making: size, key, version, correlation id, client id, body.
fn raw(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&key.to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&1_i32.to_be_bytes());
    frame.extend_from_slice(&(-1_i16).to_be_bytes());
    frame.extend_from_slice(body);
    let size = i32::try_from(frame.len()).expect("small");
    [&size.to_be_bytes()[..], &frame].concat()
}

/// 2 MB that would be 32 MB once decoded.
fn a_million_names_of_nothing() -> Vec<u8> {
    let count = 1_000_000_i32.to_be_bytes();
    [&count[..], &vec![0; 2_000_000]].concat()
}

#[test]
fn garbage_closes_its_connection_and_no_other() {
    let broker = broker();
    let mut good = Client::connect(broker.address());
    good.create("orders");
    let oversized = (101 * 1024 * 1024_i32).to_be_bytes().to_vec();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("negative size", (-1_i32).to_be_bytes().to_vec()),
        ("oversized", oversized),
        ("TLS hello", vec![0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00]),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("empty frame", vec![0, 0, 0, 0]),
        ("header cut short", vec![0, 0, 0, 3, 0, 18, 0]),
        ("unknown API", raw(999, 0, &[])),
        ("version above ours", raw(3, 99, &[])),
        ("version below ours", raw(0, 2, &[0; 16])),
        ("body cut short", raw(3, 1, &[0, 0])),
        ("bytes left over", raw(3, 1, &[0, 0, 0, 0, 9])),
        ("array of two thousand million", raw(3, 1, &[0x7f, 0xff, 0xff, 0xff])),
        ("string past the end", raw(3, 1, &[0, 0, 0, 1, 0x7f, 0xff, b'x'])),
        ("a million names of nothing", raw(3, 1, &a_million_names_of_nothing())),
    ];
    for (name, bytes) in cases {
        let mut bad = Client::connect(broker.address());
        bad.stream.write_all(&bytes).expect("sent");
        assert!(bad.is_closed(), "{name}");
        good.produce("orders", &[name]);
    }
    assert_eq!(good.fetch("orders", 0).len(), 14);
}

#[test]
fn half_a_frame_holds_nobody_up() {
    let broker = broker();
    let mut good = Client::connect(broker.address());
    good.create("orders");
    let mut writer = Writer::new();
    let set = batch(&["x"], &BatchSeal::default());
    let request = produce_request("orders", 0, -1, &set);
    encode_request(9, 1, Some("slow"), &request, &mut writer).expect("a request");
    let frame = writer.into_bytes();
    let mut halves: Vec<Client> = Vec::new();
    for cut in [1, 3, 4, 10, frame.len() - 1] {
        let mut slow = Client::connect(broker.address());
        slow.stream.write_all(&frame[..cut]).expect("sent");
        halves.push(slow);
    }
    // Announced and never sent: nothing is set aside for them.
    for _ in 0..20 {
        let mut liar = Client::connect(broker.address());
        liar.stream.write_all(&(40 * 1024 * 1024_i32).to_be_bytes()).expect("sent");
        halves.push(liar);
    }
    assert_eq!(good.produce("orders", &["meanwhile"]), 0);
    // The rest comes, a byte at a time.
    let mut last = halves.swap_remove(3);
    for byte in &frame[10..] {
        last.stream.write_all(&[*byte]).expect("sent");
    }
    last.receive(9);
    assert_eq!(good.fetch("orders", 0), ["meanwhile", "x"]);
}

#[test]
fn large_frames_within_the_limit_are_taken_in_pieces() {
    let config = BrokerConfig::new().set("message.max.bytes", "9000000").expect("an option");
    let broker = Broker::start(config).expect("a broker");
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let long = "z".repeat(8_000_000);
    for offset in 0..3 {
        assert_eq!(client.produce("orders", &[&long]), offset);
    }
    assert_eq!(client.fetch("orders", 2), [long.as_str()]);
}

#[test]
fn frame_above_the_request_limit_is_refused() {
    let config = BrokerConfig::new().set("socket.request.max.bytes", "1000").expect("an option");
    let broker = Broker::start(config).expect("a broker");
    let mut client = Client::connect(broker.address());
    client.create("orders");
    client.produce("orders", &["short"]);
    let set = batch(&["x".repeat(2000).as_str()], &BatchSeal::default());
    client.send(9, &produce_request("orders", 0, -1, &set));
    assert!(client.is_closed());
}

#[test]
fn batch_above_the_topics_limit_is_refused_and_the_connection_kept() {
    let broker = broker();
    let mut client = Client::connect(broker.address());
    client.create("orders");
    let set = batch(&["x".repeat(1_100_000).as_str()], &BatchSeal::default());
    let answer = client.call(9, &produce_request("orders", 0, -1, &set));
    let response = answer.decode::<ottla_protocol::messages::ProduceResponse<'_>>();
    let code = response.responses[0].partition_responses[0].error_code;
    assert_eq!(code, ottla_protocol::ErrorCode::MESSAGE_TOO_LARGE);
    assert_eq!(client.produce("orders", &["short"]), 0);
}

#[test]
fn client_that_takes_no_answers_holds_up_nobody_but_itself() {
    let broker = broker();
    let mut good = Client::connect(broker.address());
    good.create("orders");
    let long = "w".repeat(500_000);
    for _ in 0..4 {
        good.produce("orders", &[&long]);
    }
    let mut lazy = Client::connect(broker.address());
    // 400 answers of 1 MB each: far more than all sockets between us can hold.
    let ids: Vec<_> = (0..400).map(|_| lazy.send(12, &fetch_request("orders", 0, 0, 1))).collect();
    assert_eq!(good.fetch("orders", 3), [long.as_str()]);
    for id in ids {
        let answer = lazy.receive(12);
        assert_eq!(answer.correlation_id(), id);
        assert_eq!(values(&answer.decode()).len(), 2, "as many batches as fit into 1 MiB");
    }
}

/// A broker with little room for requests: 768 KiB for large ones, 256 KiB for small ones.
fn cramped() -> Broker {
    let config = BrokerConfig::new().set("queued.max.request.bytes", "1048576");
    Broker::start(config.expect("an option")).expect("a broker")
}

#[test]
fn large_requests_that_arrive_side_by_side_do_not_wait_for_each_other_for_ever() {
    let broker = cramped();
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(broker.address())).collect();
    clients[0].create("orders");
    let set = batch(&["x".repeat(700_000).as_str()], &BatchSeal::default());
    let mut writer = Writer::new();
    let request = produce_request("orders", 0, -1, &set);
    encode_request(9, 1, Some("large"), &request, &mut writer).expect("a request");
    let (first, rest) = writer.bytes().split_at(400_000);
    // Two halves fill the budget, so that none of the requests can come whole.
    for client in &mut clients {
        client.stream.write_all(first).expect("sent");
    }
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                client.stream.write_all(rest).expect("sent");
                client.receive(9);
            });
        }
    });
    assert_eq!(clients[0].list_offset("orders", -1), 4);
}

#[test]
fn fetches_that_wait_leave_the_budget_to_others() {
    let broker = cramped();
    let mut good = Client::connect(broker.address());
    good.create("orders");
    let mut request = fetch_request("orders", 0, 60_000, 1);
    let part = request.topics[0].partitions[0].clone();
    // About 60 KB each: eight would be more than small requests have together.
    request.topics[0].partitions = vec![part; 1_700];
    let mut waiting: Vec<Client> = (0..8).map(|_| Client::connect(broker.address())).collect();
    for client in &mut waiting {
        client.send(11, &request);
    }
    assert_eq!(good.produce("orders", &["x"]), 0);
    for client in &mut waiting {
        client.receive(11);
    }
}

#[test]
fn client_that_hangs_up_while_its_fetch_waits_is_let_go() {
    let broker = broker();
    let mut good = Client::connect(broker.address());
    good.create("orders");
    for pipelined in [false, true] {
        let mut gone = Client::connect(broker.address());
        let id = gone.send(12, &fetch_request("orders", 0, i32::MAX, 1));
        if pipelined {
            gone.send(12, &fetch_request("orders", 0, 0, 1));
        }
        // It sends no more, and still reads: so the test sees what becomes of it.
        gone.stream.shutdown(std::net::Shutdown::Write).expect("shut");
        assert_eq!(gone.receive(12).correlation_id(), id);
        if pipelined {
            gone.receive(12);
        }
        assert!(gone.is_closed());
    }
}
