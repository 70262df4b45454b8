//! Damage in a log: the partition goes offline, the others serve on, and a command mends it.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use client::program::Program;
use client::{Client, batch, fetch_request, list_offsets_request, produce_request};
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::{FetchResponse, ListOffsetsResponse, ProduceResponse};
use ottla_protocol::record::{BatchSeal, batches};

const DEADLINE: Duration = Duration::from_mins(1);

/// How a command ends, and what it says.
fn command(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ottla-broker")).args(arguments).output();
    let output = output.expect("the program runs");
    let told = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&told).into_owned())
}

fn segment(data: &Path, topic: &str) -> PathBuf {
    data.join(format!("{topic}-0/00000000000000000000.log"))
}

/// Changes a byte of the batch of this number; gives where the batch begins.
fn damage(data: &Path, topic: &str, number: usize, byte: usize) -> usize {
    let path = segment(data, topic);
    let mut bytes = fs::read(&path).expect("a segment");
    let before = batches(&bytes).take(number).map(|batch| batch.expect("good").bytes.len());
    let begin: usize = before.sum();
    bytes[begin + byte] ^= 0x10;
    fs::write(&path, bytes).expect("written");
    begin
}

fn fetch_error(client: &mut Client, topic: &str, offset: i64) -> ErrorCode {
    let answer = client.call(12, &fetch_request(topic, offset, 0, 1));
    answer.decode::<FetchResponse<'_>>().responses[0].partitions[0].error_code
}

fn produce_error(client: &mut Client, topic: &str) -> ErrorCode {
    let batch = batch(&["x"], &BatchSeal::default());
    let answer = client.call(9, &produce_request(topic, 0, -1, &batch));
    answer.decode::<ProduceResponse<'_>>().responses[0].partition_responses[0].error_code
}

fn fill(client: &mut Client, topic: &str) {
    assert_eq!(client.create(topic), ErrorCode::NONE);
    for value in ["a", "b", "c", "d", "e"] {
        client.produce(topic, &[value, value]);
    }
}

#[test]
fn damage_that_a_reader_finds_takes_its_partition_offline_until_it_is_repaired() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let text = data.to_str().expect("text");
    let config = || BrokerConfig::new().data_dir(&data);
    let broker = Broker::start(config()).expect("a broker");
    let mut client = Client::connect(broker.address());
    for topic in ["orders", "others"] {
        fill(&mut client, topic);
    }
    broker.stop(DEADLINE).expect("a clean stop");
    assert_eq!(command(&["check", "--data", text]).0, Some(0));
    // In the length, which a reader goes by. After a clean stop nobody looks at it before.
    let begin = damage(&data, "orders", 2, 9);

    let broker = Broker::start(config()).expect("a broker");
    let mut client = Client::connect(broker.address());
    let mut waiting = Client::connect(broker.address());
    // For longer than this test has patience.
    waiting.send(12, &fetch_request("orders", 10, i32::MAX, 1));
    assert_eq!(fetch_error(&mut client, "orders", 5), ErrorCode::KAFKA_STORAGE_ERROR);
    let answer = waiting.receive(12);
    let told = answer.decode::<FetchResponse<'_>>().responses[0].partitions[0].error_code;
    assert_eq!(told, ErrorCode::KAFKA_STORAGE_ERROR, "who waits at the end is told");
    assert_eq!(fetch_error(&mut client, "orders", 0), ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(produce_error(&mut client, "orders"), ErrorCode::KAFKA_STORAGE_ERROR);
    let answer = client.call(7, &list_offsets_request("orders", -1));
    let answer = answer.decode::<ListOffsetsResponse<'_>>();
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(client.fetch("others", 0).len(), 10, "the others serve on");
    assert_eq!(client.produce("others", &["f"]), 10);
    let (status, told) = command(&["repair", "--data", text, "--yes"]);
    assert_eq!(status, Some(2), "{told}");
    assert!(told.contains("in use"), "{told}");
    drop((client, waiting));
    broker.stop(DEADLINE).expect_err("no clean stop with a partition offline");

    let before = fs::read(segment(&data, "orders")).expect("a segment");
    let (status, told) = command(&["check", "--data", text]);
    assert_eq!(status, Some(1), "{told}");
    let line = format!("byte {begin}, offsets 4 to 5");
    assert!(told.contains("orders-0") && told.contains(&line), "{told}");
    assert!(told.contains("ottla-broker repair"), "{told}");
    let (status, told) = command(&["repair", "--data", text, "--partition", "orders-0"]);
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("would drop") && told.contains("nothing was changed"), "{told}");
    assert_eq!(fs::read(segment(&data, "orders")).expect("a segment"), before);
    assert_eq!(command(&["repair", "--data", text, "--partition", "others-0"]).0, Some(0));
    assert_eq!(command(&["repair", "--data", text, "--partition", "none-7"]).0, Some(2));
    let (status, told) = command(&["repair", "--data", text, "--yes"]);
    assert_eq!(status, Some(0), "{told}");
    let aside = segment(&data, "orders").with_extension(format!("log.{begin}.damaged"));
    let kept = fs::read(aside).expect("the dropped bytes");
    assert!(before.windows(kept.len()).any(|window| window == kept), "they are kept");
    assert_eq!(command(&["check", "--data", text]).0, Some(0));

    let broker = Broker::start(config()).expect("a broker");
    let mut client = Client::connect(broker.address());
    assert_eq!(client.fetch("orders", 0), ["a", "a", "b", "b", "d", "d", "e", "e"]);
    assert_eq!(client.produce("orders", &["f"]), 10, "offsets stay");
    assert_eq!(client.fetch("others", 0).len(), 11);
}

#[test]
fn damage_that_a_start_after_a_kill_finds_takes_its_partition_offline() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let text = data.to_str().expect("text");
    let program = Program::start(&["--data", text]);
    let mut client = Client::connect(program.address);
    for topic in ["orders", "others"] {
        fill(&mut client, topic);
    }
    program.signal("-KILL");
    program.wait();
    // In the records: only the checksum tells.
    damage(&data, "orders", 1, 75);
    let before = fs::read(segment(&data, "orders")).expect("a segment");
    let program = Program::start(&["--data", text]);
    let mut client = Client::connect(program.address);
    assert_eq!(fetch_error(&mut client, "orders", 0), ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(produce_error(&mut client, "orders"), ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(client.fetch("others", 0).len(), 10, "the others serve on");
    program.signal("-KILL");
    program.wait();
    assert_eq!(fs::read(segment(&data, "orders")).expect("a segment"), before, "nothing is cut");
    let (status, told) = command(&["repair", "--data", text, "--yes"]);
    assert_eq!(status, Some(0), "{told}");
    let program = Program::start(&["--data", text]);
    let mut client = Client::connect(program.address);
    assert_eq!(client.fetch("orders", 0), ["a", "a", "c", "c", "d", "d", "e", "e"]);
}

#[test]
fn a_folder_that_no_broker_has_used_is_not_called_undamaged() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("letter.txt"), "dear").expect("written");
    let (empty, none) = (dir.path().join("empty"), dir.path().join("none"));
    fs::create_dir(&empty).expect("a folder");
    let file = dir.path().join("letter.txt");
    for (folder, words) in [
        (dir.path(), "is no data folder"),
        (&*empty, "is no data folder"),
        (&*none, "cannot be read: No such file"),
        (&*file, "cannot be read: Not a directory"),
    ] {
        let text = folder.to_str().expect("text");
        for name in ["check", "repair"] {
            let (status, told) = command(&[name, "--data", text]);
            assert_eq!(status, Some(2), "{told}");
            assert!(told.contains(text) && told.contains(words), "{told}");
        }
    }
    assert_eq!(fs::read_dir(&empty).expect("a folder").count(), 0, "nothing was left there");
    let data = dir.path().join("data");
    let broker = Broker::start(BrokerConfig::new().data_dir(&data)).expect("a broker");
    broker.stop(DEADLINE).expect("a clean stop");
    assert_eq!(command(&["check", "--data", data.to_str().expect("text")]).0, Some(0));
}
