//! Names of topics, at their edges: which are taken, which are refused and why, and that those taken
//! can be used, deleted, and found again.
#![allow(clippy::expect_used, reason = "a test that cannot go on ends here")]

mod client;

use std::path::Path;
use std::time::Duration;

use client::Client;
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_protocol::messages::delete_topics_request::DeleteTopicState;
use ottla_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
};

const STOP: Duration = Duration::from_mins(1);

fn on_disk(dir: &Path) -> Broker {
    Broker::start(BrokerConfig::new().data_dir(dir)).expect("a broker")
}

/// The code and the reason of a topic's creation, or of a check whether it could be.
fn create(client: &mut Client, name: &str, validate_only: bool) -> (ErrorCode, String) {
    let topic = CreatableTopic {
        name,
        num_partitions: 1,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    let topics = vec![topic];
    let request = CreateTopicsRequest { topics, validate_only, ..CreateTopicsRequest::default() };
    let answer = client.call(7, &request);
    let response = answer.decode::<CreateTopicsResponse<'_>>();
    let outcome = &response.topics[0];
    (outcome.error_code, outcome.error_message.unwrap_or_default().to_owned())
}

fn delete(client: &mut Client, name: &str) -> ErrorCode {
    let topics = vec![DeleteTopicState { name: Some(name), ..DeleteTopicState::default() }];
    let answer = client.call(6, &DeleteTopicsRequest { topics, ..DeleteTopicsRequest::default() });
    answer.decode::<DeleteTopicsResponse<'_>>().responses[0].error_code
}

/// A name is refused for a reason, by whatever way it comes.
fn refuses(client: &mut Client, name: &str, reason: &str) {
    for validate_only in [true, false] {
        let (code, told) = create(client, name, validate_only);
        assert_eq!(code, ErrorCode::INVALID_TOPIC_EXCEPTION, "{name:?}");
        assert!(told.contains(reason), "{name:?}: {told}");
    }
    assert_eq!(client.create(name), ErrorCode::INVALID_TOPIC_EXCEPTION, "{name:?} by metadata");
}

#[test]
fn of_names_that_metrics_mix_up_the_second_is_refused_by_whatever_way_it_comes() {
    let dir = tempfile::tempdir().expect("a folder");
    let broker = on_disk(dir.path());
    let mut client = Client::connect(broker.address());
    let ok = (ErrorCode::NONE, String::new());
    assert_eq!(create(&mut client, "a.b", true), ok);
    assert_eq!(create(&mut client, "a_b", true), ok, "a check takes no name");
    assert_eq!(create(&mut client, "a.b", false), ok);
    refuses(&mut client, "a_b", "collides with \"a.b\"");
    assert_eq!(client.create("first_by.metadata"), ErrorCode::NONE);
    refuses(&mut client, "first.by_metadata", "collides with \"first_by.metadata\"");
    assert_eq!(create(&mut client, "x.y_z", false), ok, "both in one name are fine");
    refuses(&mut client, "x_y.z", "collides with \"x.y_z\"");
    broker.stop(STOP).expect("a clean stop");

    let broker = on_disk(dir.path());
    let mut client = Client::connect(broker.address());
    refuses(&mut client, "a_b", "collides");
    assert_eq!(client.produce("x.y_z", &["there"]), 0);
    assert_eq!(delete(&mut client, "a.b"), ErrorCode::NONE);
    assert_eq!(create(&mut client, "a_b", false), ok, "the other is gone");
    assert_eq!(delete(&mut client, "x.y_z"), ErrorCode::NONE);
}

#[test]
fn a_name_is_as_long_as_its_folder_allows() {
    let longest = "n".repeat(249);
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join(format!("{longest}-0"));
    let broker = on_disk(dir.path());
    let mut client = Client::connect(broker.address());
    refuses(&mut client, &"n".repeat(250), "at most 249 characters, not 250");
    assert_eq!(create(&mut client, &longest, false).0, ErrorCode::NONE);
    assert_eq!(client.produce(&longest, &["a"]), 0);
    broker.stop(STOP).expect("a clean stop");

    let broker = on_disk(dir.path());
    let mut client = Client::connect(broker.address());
    assert_eq!(client.fetch(&longest, 0), ["a"]);
    assert!(folder.exists());
    assert_eq!(delete(&mut client, &longest), ErrorCode::NONE);
    assert_eq!(client.create(&longest), ErrorCode::NONE, "the name is free");
    assert_eq!(client.fetch(&longest, 0), [""; 0], "and begins anew");
    assert_eq!(delete(&mut client, &longest), ErrorCode::NONE);
    broker.stop(STOP).expect("a clean stop");
    assert!(!folder.exists());

    // What a crash leaves of a deletion is set aside, under a name that is no longer than may be.
    std::fs::create_dir(&folder).expect("a folder");
    let broker = on_disk(dir.path());
    assert!(!folder.exists(), "no topic has it");
    let names = std::fs::read_dir(dir.path()).expect("the data folder");
    let mut names = names.map(|entry| entry.expect("an entry").file_name());
    assert!(names.any(|name| name.to_string_lossy().ends_with("-stray")));
    let mut client = Client::connect(broker.address());
    assert_eq!(client.create(&longest), ErrorCode::NONE);
    assert_eq!(client.produce(&longest, &["b"]), 0);
}

#[test]
fn names_that_are_none_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().expect("a folder");
    let broker = on_disk(dir.path());
    let mut client = Client::connect(broker.address());
    for (name, reason) in [
        ("", "cannot be empty"),
        (".", "cannot be called \".\""),
        ("..", "cannot be called \"..\""),
        ("a/b", "not '/'"),
        ("ä", "not 'ä'"),
        ("a\nb", "not '\\n'"),
        ("../b", "not '/'"),
        ("a\0", "not '\\0'"),
    ] {
        refuses(&mut client, name, reason);
    }
    let names = std::fs::read_dir(dir.path()).expect("the data folder");
    let folders = names.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir());
    let folders: Vec<_> = folders.collect();
    assert_eq!(folders, [dir.path().join("__cluster_metadata-0")], "nothing was made");
}
