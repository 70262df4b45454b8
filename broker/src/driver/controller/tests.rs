//! The controller when its log fails.

use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::{Broker, BrokerConfig};

fn create(broker: &Broker, name: &str) -> Result<(), Refusal> {
    let (tell, told) = mpsc::channel();
    let name = name.to_owned();
    let topic = NewTopic { name, partitions: 1, replication_factor: 1, configs: Vec::new() };
    let node = broker.node();
    node.controller.create_topic(node, topic, Box::new(move |outcome| tell.send(outcome).unwrap()));
    told.recv_timeout(Duration::from_secs(30)).unwrap()
}

#[test]
fn what_the_log_refuses_was_never_decided() {
    let broker = Broker::start(BrokerConfig::new()).unwrap();
    let node = broker.node();
    create(&broker, "before").unwrap();
    let image = node.controller.image();
    node.metadata_log.fail("the disk is gone".into());
    for _ in 0..2 {
        let refused = create(&broker, "after").unwrap_err();
        assert_eq!(refused.code, ErrorCode::KAFKA_STORAGE_ERROR, "and not that it exists");
        assert!(refused.message.contains("the disk is gone"), "{refused}");
    }
    assert_eq!(node.controller.image(), image);
    assert!(node.topics.named("before").is_some());
    assert!(node.topics.named("after").is_none());
}

#[test]
fn who_waits_for_producer_ids_is_told_when_there_are_none() {
    let broker = Broker::start(BrokerConfig::new()).unwrap();
    let node = broker.node();
    node.metadata_log.fail("the disk is gone".into());
    let (tell, told) = mpsc::channel();
    for _ in 0..3 {
        let tell = tell.clone();
        node.controller.producer_id(node, Box::new(move |id| tell.send(id).unwrap()));
    }
    for _ in 0..3 {
        let id = told.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(id.unwrap_err().code, ErrorCode::KAFKA_STORAGE_ERROR);
    }
}

#[test]
fn many_who_ask_at_once_get_different_ids_of_several_blocks() {
    let broker = Broker::start(BrokerConfig::new()).unwrap();
    let node = broker.node();
    let (tell, told) = mpsc::channel();
    let count = 2500;
    for _ in 0..count {
        let tell = tell.clone();
        node.controller.producer_id(node, Box::new(move |id| tell.send(id.unwrap()).unwrap()));
    }
    let patience = Duration::from_secs(30);
    let given: BTreeSet<i64> = (0..count).map(|_| told.recv_timeout(patience).unwrap()).collect();
    assert_eq!(given.len(), count);
    let next = node.controller.image().next_producer_id();
    assert!(given.last().is_some_and(|last| *last < next));
}
