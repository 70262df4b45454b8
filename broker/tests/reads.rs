//! By which way records come out of their files.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::fs::File;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use client::{Client, batch, fetch_request, produce_request, values};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use ottla_protocol::messages::{
    DescribeLogDirsRequest, DescribeLogDirsResponse, FetchRequest, FetchResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, ProduceResponse,
};
use ottla_protocol::record::BatchSeal;
use rustix::fs::{Advice, fadvise};

fn on_disk(dir: &Path) -> Broker {
    let config = BrokerConfig::new().data_dir(dir).set("log.segment.bytes", "4194304");
    Broker::start(config.expect("an option")).expect("a broker")
}

/// Fills a topic with records that tell one from another; returns their number.
fn fill(client: &mut Client, topic: &str, records: usize, bytes: usize) -> Vec<String> {
    client.create(topic);
    let record = |at: usize| format!("{at:08}").repeat(bytes / 8);
    let all: Vec<_> = (0..records).map(record).collect();
    for record in &all {
        client.produce(topic, &[record]);
    }
    all
}

fn wide(topic: &str, offset: i64, bytes: i32) -> FetchRequest<'_> {
    let mut request = fetch_request(topic, offset, 0, 1);
    request.topics[0].partitions[0].partition_max_bytes = bytes;
    request
}

/// Reads a topic from its start to its end.
fn read_all(client: &mut Client, topic: &str, bytes: i32, records: usize) -> Vec<String> {
    let mut read = Vec::new();
    while read.len() < records {
        let offset = i64::try_from(read.len()).expect("small");
        let answer = client.call(12, &wide(topic, offset, bytes));
        let more = values(&answer.decode::<FetchResponse<'_>>());
        assert!(!more.is_empty(), "nothing at {offset}");
        read.extend(more);
    }
    read
}

#[test]
fn reader_that_catches_up_gets_its_bytes_by_sendfile() {
    let dir = tempfile::tempdir().expect("a folder");
    let broker = on_disk(dir.path());
    let mut client = Client::connect(broker.address());
    let all = fill(&mut client, "orders", 160, 100_000);
    assert!(read_all(&mut client, "orders", 1 << 20, 160) == all, "the same records");
    let stats = broker.read_stats();
    let total = stats.sendfile_bytes + stats.copied_bytes;
    assert!(total >= 16_000_000, "{stats:?}");
    assert!(stats.sendfile_bytes * 100 >= total * 95, "{stats:?}");
}

#[test]
fn small_answers_and_logs_in_memory_are_copied() {
    let dir = tempfile::tempdir().expect("a folder");
    for broker in [on_disk(dir.path()), Broker::start(BrokerConfig::new()).expect("a broker")] {
        let mut client = Client::connect(broker.address());
        let all = fill(&mut client, "orders", 5, 8_000);
        assert!(read_all(&mut client, "orders", 1, 5) == all, "one a fetch");
        let stats = broker.read_stats();
        assert_eq!(stats.sendfile_bytes, 0);
        assert!(stats.copied_bytes >= 40_000, "{stats:?}");
    }
}

#[test]
fn bytes_that_are_on_the_disk_only_are_read_by_other_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    let broker = on_disk(dir.path());
    let mut client = Client::connect(broker.address());
    let all = fill(&mut client, "orders", 70, 100_000);
    read_all(&mut client, "orders", 1 << 20, 70);
    // How much of the rest is still in memory is the system's affair.
    assert!(broker.read_stats().cold_reads >= 1, "the index of the sealed segment was never read");
    for (bytes, least) in [(1 << 20, 2), (1, 2)] {
        drop_from_memory(&dir.path().join("orders-0"));
        let before = broker.read_stats().cold_reads;
        assert!(read_all(&mut client, "orders", bytes, 70) == all, "the same records");
        let cold = broker.read_stats().cold_reads - before;
        assert!(cold >= least, "{cold} of {bytes} bytes");
    }
}

/// Leaves a partition's files on the disk only.
fn drop_from_memory(partition: &Path) {
    let files = std::fs::read_dir(partition).expect("a folder");
    for path in files.map(|entry| entry.expect("a file").path()) {
        let file = File::open(path).expect("a file");
        file.sync_all().expect("synced");
        fadvise(&file, 0, None, Advice::DontNeed).expect("dropped from memory");
    }
}

#[test]
fn offsets_of_times_that_only_the_disk_knows_are_found_by_other_threads() {
    const NEWEST: i64 = -3;
    let dir = tempfile::tempdir().expect("a folder");
    let broker = on_disk(dir.path());
    let mut client = Client::connect(broker.address());
    fill(&mut client, "orders", 1200, 8_000);
    // How much stays in memory is the system's affair: what is asserted is what cannot be there.
    let mut look = |time| {
        let before = broker.read_stats().cold_reads;
        assert_eq!(client.list_offset("orders", time), 0, "all are of one time");
        broker.read_stats().cold_reads - before
    };
    assert!(look(1000) >= 1, "the index of the sealed segment was never read");
    for time in [1000, NEWEST] {
        drop_from_memory(&dir.path().join("orders-0"));
        assert!(look(time) >= 1, "at {time}");
    }
}

#[test]
fn log_that_nobody_has_used_since_the_start_is_opened_by_another_thread() {
    let dir = tempfile::tempdir().expect("a folder");
    let broker = on_disk(dir.path());
    let mut client = Client::connect(broker.address());
    let topics = ["fetched", "listed", "produced", "asked", "seen"];
    for topic in topics {
        client.create(topic);
        client.produce(topic, &["a"]);
    }
    broker.stop(Duration::from_mins(1)).expect("a clean stop");
    // A build with assertions panics where a thread that serves connections opens a log.
    let broker = on_disk(dir.path());
    let mut client = Client::connect(broker.address());
    assert_eq!(client.fetch("fetched", 0), ["a"]);
    let fetched = broker.read_stats().cold_reads;
    assert!(fetched >= 1);
    assert_eq!(client.list_offset("listed", -1), 1);
    assert!(broker.read_stats().cold_reads > fetched);
    // Those behind it are appended behind it.
    let batches = ["b", "c", "d"].map(|value| batch(&[value], &BatchSeal::default()));
    for batch in &batches {
        client.send(9, &produce_request("produced", 0, -1, batch));
    }
    for offset in 1..=3 {
        let answer = client.receive(9);
        let response = answer.decode::<ProduceResponse<'_>>();
        assert_eq!(response.responses[0].partition_responses[0].base_offset, offset);
    }
    assert_eq!(client.fetch("produced", 1), ["b", "c", "d"]);
    let partition = OffsetForLeaderPartition { leader_epoch: 0, ..Default::default() };
    let topic = OffsetForLeaderTopic { topic: "asked", partitions: vec![partition] };
    let request = OffsetForLeaderEpochRequest { replica_id: -1, topics: vec![topic] };
    let answer = client.call(4, &request);
    let response = answer.decode::<OffsetForLeaderEpochResponse<'_>>();
    assert_eq!(response.topics[0].partitions[0].end_offset, 1);
    let answer = client.call(4, &DescribeLogDirsRequest { topics: None });
    let response = answer.decode::<DescribeLogDirsResponse<'_>>();
    let seen = response.results[0].topics.iter().find(|topic| topic.name == "seen");
    assert!(seen.expect("the topic").partitions[0].partition_size > 0);
}

#[test]
fn reader_that_takes_nothing_holds_up_no_other_and_keeps_its_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let broker = on_disk(dir.path());
    let mut client = Client::connect(broker.address());
    let all = fill(&mut client, "orders", 120, 100_000);
    let mut slow = Client::connect(broker.address());
    let id = slow.send(12, &wide("orders", 0, 4 << 20));
    // It has its answer on the way, of which it takes no more than the first bytes.
    let mut first = [0; 8];
    slow.stream.read_exact(&mut first).expect("an answer begins");
    assert_eq!(first[4..], id.to_be_bytes());
    assert!(read_all(&mut client, "orders", 1 << 20, 120) == all, "others read on");
    for name in ["00000000000000000000.log", "00000000000000000000.index"] {
        std::fs::remove_file(dir.path().join("orders-0").join(name)).expect("the oldest segment");
    }
    let size = usize::try_from(i32::from_be_bytes([first[0], first[1], first[2], first[3]]));
    let mut rest = vec![0; size.expect("a size") - 4];
    read_whole(&mut slow.stream, &mut rest);
    assert!(rest.len() > 3 << 20, "{}", rest.len());
    let last = format!("{:08}", 30).repeat(100);
    assert!(rest.windows(800).any(|window| window == last.as_bytes()), "the bytes of the file");
}

fn read_whole(stream: &mut TcpStream, into: &mut [u8]) {
    stream.read_exact(into).expect("the rest of the answer");
}
