//! A broker's life: start, stop, kill, and what a data folder keeps.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use client::program::Program;
use client::{Client, fetch_request};
use ottla_broker::{Broker, BrokerConfig, BrokerError};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_configs_request::DescribeConfigsResource;
use ottla_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse, FindCoordinatorRequest, MetadataResponse,
};

const DEADLINE: Duration = Duration::from_mins(1);

fn on_disk(dir: &Path) -> BrokerConfig {
    BrokerConfig::new().data_dir(dir)
}

#[test]
fn stopped_broker_comes_back_with_its_records() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = Broker::start(on_disk(dir.path())).expect("a broker");
    let cluster = first.cluster_id();
    let mut client = Client::connect(first.address());
    client.create("orders");
    client.produce("orders", &["a", "b"]);
    first.stop(DEADLINE).expect("a clean stop");
    first.stop(DEADLINE).expect("a second stop does nothing");
    assert!(dir.path().join(".kafka_cleanshutdown").exists());

    let second = Broker::start(on_disk(dir.path())).expect("a broker");
    assert_eq!(second.cluster_id(), cluster);
    assert!(!dir.path().join(".kafka_cleanshutdown").exists(), "a crash from here on is unclean");
    let mut client = Client::connect(second.address());
    assert_eq!(client.fetch("orders", 0), ["a", "b"]);
    assert_eq!(client.produce("orders", &["c"]), 2);
    assert_eq!(client.list_offset("orders", -1), 3);
}

#[test]
fn killed_program_comes_back_with_its_records() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let data = data.to_str().expect("text");
    let mut expected = Vec::new();
    for round in 0..3 {
        let program = Program::start(&["--data", data]);
        let mut client = Client::connect(program.address);
        assert_eq!(client.create("orders"), ErrorCode::NONE);
        assert_eq!(client.fetch("orders", 0), expected, "round {round}");
        for at in 0..10 {
            let value = format!("{round}-{at}");
            client.produce("orders", &[&value]);
            expected.push(value);
        }
        program.signal("-KILL");
        assert_eq!(program.wait(), None, "ended by the signal");
    }
}

#[test]
fn terminated_program_stops_cleanly_and_answers_waiting_fetches() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let program = Program::start(&["--data", data.to_str().expect("text")]);
    let mut client = Client::connect(program.address);
    client.create("orders");
    client.produce("orders", &["a"]);
    let mut waiting = Client::connect(program.address);
    waiting.call(12, &fetch_request("orders", 0, 0, 1));
    let id = waiting.send(12, &fetch_request("orders", 1, 60_000, 1));
    program.signal("-TERM");
    if let Ok(answer) = waiting.try_receive(12) {
        assert_eq!(answer.correlation_id(), id);
        assert!(client::values(&answer.decode()).is_empty());
    }
    assert_eq!(program.wait(), Some(0));
    assert!(data.join(".kafka_cleanshutdown").exists());
}

#[test]
fn folder_in_use_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = Broker::start(on_disk(dir.path())).expect("a broker");
    let error = Broker::start(on_disk(dir.path())).expect_err("in use here");
    assert_eq!(error, BrokerError::FolderInUse(dir.path().to_owned()));
    let (status, told) = refused(&["--data", dir.path().to_str().expect("text")]);
    assert_eq!(status, Some(1));
    assert!(told.contains("in use by another broker"), "{told}");
    drop(first);
    // A drop waits for a second at most, and the broker ends all the same.
    let again = std::iter::repeat_with(|| Broker::start(on_disk(dir.path())))
        .take(100_000)
        .find(|again| !matches!(again, Err(BrokerError::FolderInUse(_))));
    again.expect("free again after a drop").expect("a broker");
}

#[test]
fn address_in_use_is_refused_and_the_folder_left_free() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = Broker::start(BrokerConfig::new()).expect("a broker");
    let taken = first.address().to_string();
    let error = Broker::start(on_disk(dir.path()).listen(&taken)).expect_err("taken");
    assert!(matches!(error, BrokerError::Address { .. }), "{error}");
    assert!(error.to_string().contains("another program listens there"), "{error}");
    let bad = Broker::start(BrokerConfig::new().listen("nonsense")).expect_err("no address");
    assert!(bad.to_string().contains("nonsense"), "{bad}");
    assert!(bad.to_string().contains("it takes HOST:PORT"), "{bad}");
    Broker::start(on_disk(dir.path())).expect("the folder is free");
}

#[test]
fn folder_of_another_broker_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = Broker::start(on_disk(dir.path())).expect("a broker");
    first.stop(DEADLINE).expect("a clean stop");
    let config = on_disk(dir.path()).set("node.id", "7").expect("an option");
    let error = Broker::start(config).expect_err("another's");
    assert!(error.to_string().contains("node.id 1, not 7"), "{error}");
}

/// How the program ends that should not start, and what it says.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ottla-broker"))
        .args(["--listen", "127.0.0.1:0"])
        .args(arguments)
        .output()
        .expect("the program runs");
    assert!(output.stdout.is_empty(), "nothing is ready");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn unknown_option_is_refused_with_the_nearest_name() {
    let (status, told) = refused(&["--memory", "-c", "num.partition=3"]);
    assert_eq!(status, Some(1));
    assert!(told.contains("did you mean \"num.partitions\""), "{told}");
    let (_, told) = refused(&["--memory", "-c", "num.partitions"]);
    assert!(told.contains("KEY=VALUE"), "{told}");
    let (status, told) = refused(&["--memory", "--data", "/nowhere"]);
    assert_ne!(status, Some(0));
    assert!(told.contains("--data") && told.contains("--memory"), "{told}");
}

#[test]
fn ready_file_holds_the_address_once_the_broker_serves() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("ready");
    let program = Program::start(&["--memory", "--ready-file", file.to_str().expect("text")]);
    let mut text = String::new();
    std::fs::File::open(&file)
        .and_then(|mut file| file.read_to_string(&mut text))
        .expect("the file is there by then");
    assert_eq!(text, format!("{}\n", program.address));
    let mut client = Client::connect(program.address);
    assert_eq!(client.create("orders"), ErrorCode::NONE);
}

#[test]
fn a_stop_may_be_given_all_the_time_there_is() {
    let broker = Broker::start(BrokerConfig::new()).expect("a broker");
    broker.stop(Duration::MAX).expect("a clean stop");
}

#[test]
fn broker_starts_and_stops_inside_another_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let broker = Broker::start(BrokerConfig::new()).expect("a broker");
        broker.create_topic("orders", 1).expect("a topic");
        broker.stop(DEADLINE).expect("a clean stop");
    });
}

#[test]
fn killed_program_with_many_segments_comes_back_with_all_of_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let text = data.to_str().expect("text");
    let long = "s".repeat(400_000);
    let program = Program::start(&["--data", text, "-c", "log.segment.bytes=1048576"]);
    let mut client = Client::connect(program.address);
    client.create("orders");
    for offset in 0..12 {
        assert_eq!(client.produce("orders", &[&long]), offset);
    }
    program.signal("-KILL");
    program.wait();
    let segments = std::fs::read_dir(data.join("orders-0")).expect("the partition's folder");
    let segments = segments.filter_map(Result::ok).map(|entry| entry.file_name());
    let logs = segments.filter(|name| name.to_string_lossy().ends_with(".log")).count();
    assert_eq!(logs, 6, "two batches a segment");
    let program = Program::start(&["--data", text, "-c", "log.segment.bytes=1048576"]);
    let mut client = Client::connect(program.address);
    for offset in 0..12 {
        assert_eq!(client.fetch("orders", offset)[0].len(), long.len());
    }
    assert_eq!(client.produce("orders", &["next"]), 12);
}

#[test]
fn partitions_of_the_offsets_topic_get_folders_on_first_use() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let text = data.to_str().expect("text");
    let offsets_folders = || {
        let entries = std::fs::read_dir(&data).expect("the data folder").filter_map(Result::ok);
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("__consumer_offsets")).count()
    };
    for _ in 0..2 {
        let program = Program::start(&["--data", text]);
        let mut client = Client::connect(program.address);
        let request = FindCoordinatorRequest { key: "readers", ..Default::default() };
        // Creates the topic where it is not there yet.
        client.call(3, &request);
        assert!(offsets_folders() <= 1);
        program.signal("-KILL");
        program.wait();
    }
    assert!(offsets_folders() <= 1, "nor by the check after a crash");
}

/// The number of a field in the vote.
fn voted(data: &Path) -> i64 {
    let text = std::fs::read_to_string(data.join("__cluster_metadata-0/quorum-state"));
    let text = text.expect("a vote");
    let (_, after) = text.split_once("\"leaderEpoch\":").expect("an epoch");
    after.split(',').next().and_then(|epoch| epoch.parse().ok()).expect("a number")
}

#[test]
fn no_epoch_of_the_quorum_is_used_twice_even_where_the_vote_was_not_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let vote = dir.path().join("__cluster_metadata-0/quorum-state");
    let mut last = 0;
    let first = Broker::start(on_disk(dir.path())).expect("a broker");
    first.create_topic("orders", 1).expect("a topic");
    first.stop(DEADLINE).expect("a clean stop");
    let old = std::fs::read(&vote).expect("the vote");
    for lost in [false, true, false] {
        let epoch = voted(dir.path());
        assert!(epoch > last, "{epoch} after {last}");
        last = epoch;
        // As a process leaves it that is killed in the first moments of its start.
        if lost {
            std::fs::remove_file(&vote).expect("the vote is there");
        } else {
            std::fs::write(&vote, &old).expect("an older vote");
        }
        let broker = Broker::start(on_disk(dir.path())).expect("a broker");
        let mut client = Client::connect(broker.address());
        client.produce("orders", &["x"]);
        broker.stop(DEADLINE).expect("a clean stop");
    }
    assert!(voted(dir.path()) > last);
}

#[test]
fn a_file_of_options_is_read_and_the_command_line_goes_before_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("server.properties");
    let data = dir.path().join("data");
    let text = format!(
        "# as Kafka's own\nnum.partitions=3\nlisteners=PLAINTEXT://127.0.0.1:1\n\
         log.dirs={}\nauto.create.topics.enable : \\\n  true\n",
        data.display()
    );
    std::fs::write(&file, text).expect("written");
    let config = file.to_str().expect("text");
    let count = |program: &Program| {
        let mut client = Client::connect(program.address);
        client.create("orders");
        let answer = client.metadata("orders", false);
        let response = answer.decode::<MetadataResponse<'_>>();
        response.topics[0].partitions.len()
    };
    let program = Program::start(&["--config", config, "--memory"]);
    assert_eq!(count(&program), 3);
    assert!(!data.exists(), "--memory");
    drop(program);
    let program = Program::start(&["--config", config, "-c", "num.partitions=2"]);
    assert_eq!(count(&program), 2);
    assert!(data.join("orders-1").exists(), "log.dirs");
    drop(program);
    std::fs::write(&file, "num.partition=3\nssl.key.password=x\n").expect("written");
    let (status, told) = refused(&["--config", config]);
    assert_eq!(status, Some(1));
    assert!(told.contains("line 1") && told.contains("\"num.partitions\""), "{told}");
    assert!(told.contains("line 2") && told.contains("ssl.key.password"), "{told}");
}

#[test]
fn a_metadata_log_that_has_lost_its_beginning_is_refused_and_no_folder_set_aside() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = Broker::start(on_disk(dir.path())).expect("a broker");
    let mut client = Client::connect(first.address());
    client.create("orders");
    client.produce("orders", &["a"]);
    drop(client);
    first.stop(DEADLINE).expect("a clean stop");
    let starts = dir.path().join("log-start-offset-checkpoint");
    std::fs::write(&starts, "0\n1\n__cluster_metadata 0 4\n").expect("written");
    let error = Broker::start(on_disk(dir.path())).expect_err("topics would be missing");
    assert!(error.to_string().contains("begins with offset 4"), "{error}");
    std::fs::remove_file(&starts).expect("removed");
    let again = Broker::start(on_disk(dir.path())).expect("a broker");
    assert_eq!(Client::connect(again.address()).fetch("orders", 0), ["a"], "it is where it was");
}

/// A folder of Kafka's whose metadata log begins long after its first record.
fn trimmed_by_kafka(to: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/logs/kafka-4.4/trimmed");
    for folder in ["", "__cluster_metadata-0"] {
        std::fs::create_dir_all(to.join(folder)).expect("a folder");
        for entry in std::fs::read_dir(from.join(folder)).expect("committed") {
            let entry = entry.expect("a name");
            if entry.file_type().expect("a kind").is_file() {
                let copy = to.join(folder).join(entry.file_name());
                std::fs::copy(entry.path(), copy).expect("a copy");
            }
        }
    }
}

/// How many partitions a topic has; 0 where there is none.
fn partitions(client: &mut Client, topic: &str) -> usize {
    let answer = client.metadata(topic, false);
    answer.decode::<MetadataResponse<'_>>().topics[0].partitions.len()
}

#[test]
fn a_folder_of_kafkas_whose_metadata_log_was_trimmed_is_served_from_its_snapshot() {
    let dir = tempfile::tempdir().expect("a folder");
    trimmed_by_kafka(dir.path());
    for round in 0..2 {
        let broker = Broker::start(on_disk(dir.path())).expect("a broker");
        let mut client = Client::connect(broker.address());
        assert_eq!(partitions(&mut client, "snap"), 2);
        assert_eq!(partitions(&mut client, "last"), 3);
        assert_eq!(partitions(&mut client, "ours"), round, "what came after is there, too");
        let resource = DescribeConfigsResource {
            resource_type: 2,
            resource_name: "snap",
            configuration_keys: Some(vec!["retention.ms"]),
        };
        let resources = vec![resource];
        let request = DescribeConfigsRequest { resources, ..DescribeConfigsRequest::default() };
        let answer = client.call(4, &request);
        let described = answer.decode::<DescribeConfigsResponse<'_>>();
        assert_eq!(described.results[0].configs[0].value, Some("777"));
        assert_eq!(client.create("ours"), ErrorCode::NONE);
        assert_eq!(client.produce("snap", &["a"]), i64::try_from(round).expect("small"));
        broker.stop(DEADLINE).expect("a clean stop");
    }
}

#[test]
fn without_the_snapshot_of_what_was_trimmed_nothing_is_served_and_nothing_is_set_aside() {
    let name = "00000000000000001349-0000000001.checkpoint";
    let damages: [fn(&Path); 2] = [
        |snapshot| std::fs::remove_file(snapshot).expect("removed"),
        |snapshot| {
            let mut bytes = std::fs::read(snapshot).expect("a snapshot");
            bytes[700] ^= 1;
            std::fs::write(snapshot, bytes).expect("written");
        },
    ];
    for (damage, told) in damages.into_iter().zip(["there is none", "at byte"]) {
        let dir = tempfile::tempdir().expect("a folder");
        trimmed_by_kafka(dir.path());
        std::fs::create_dir(dir.path().join("snap-0")).expect("a folder");
        damage(&dir.path().join("__cluster_metadata-0").join(name));
        let error = Broker::start(on_disk(dir.path())).expect_err("no start").to_string();
        assert!(error.contains("begins with offset 1346") && error.contains(told), "{error}");
        assert!(dir.path().join("snap-0").exists());
    }
}
