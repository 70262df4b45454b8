//! Fetches in sessions, through the socket, where the test changes what no client can.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use ottla_protocol::frame::{decode_response, encode_request};
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use ottla_protocol::{Uuid, Writer};

use super::*;
use crate::{Broker, BrokerConfig};

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a fetch and shows its answer.
fn fetch(
    stream: &mut TcpStream,
    version: i16,
    request: &FetchRequest<'_>,
    see: impl FnOnce(FetchResponse<'_>),
) {
    let mut writer = Writer::new();
    encode_request(version, 1, Some("test"), request, &mut writer).unwrap();
    stream.write_all(writer.bytes()).unwrap();
    let mut size = [0; 4];
    stream.read_exact(&mut size).unwrap();
    let mut frame = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
    stream.read_exact(&mut frame).unwrap();
    see(decode_response::<FetchResponse<'_>>(&frame, version).unwrap().1);
}

fn full(topic_id: Uuid, leader_epoch: i32) -> FetchRequest<'static> {
    let partition = FetchPartition {
        current_leader_epoch: leader_epoch,
        partition_max_bytes: 1000,
        ..FetchPartition::default()
    };
    let topic = FetchTopic { topic_id, partitions: vec![partition], ..FetchTopic::default() };
    FetchRequest { max_bytes: 1000, session_epoch: 0, topics: vec![topic], ..Default::default() }
}

fn next(session_id: i32, session_epoch: i32) -> FetchRequest<'static> {
    FetchRequest { max_bytes: 1000, session_id, session_epoch, ..FetchRequest::default() }
}

#[test]
fn a_session_keeps_the_leader_epoch_that_its_client_knows() {
    let broker = Broker::start(BrokerConfig::new()).unwrap();
    broker.create_topic("orders", 1).unwrap();
    let topic = broker.node().topics.named("orders").unwrap();
    let partition = topic.partition(0).unwrap();
    partition.lead(3);
    let mut stream = TcpStream::connect(broker.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut session = 0;
    fetch(&mut stream, 18, &full(topic.id, 3), |response| {
        session = response.session_id;
        assert_eq!(response.responses[0].partitions[0].error_code, ErrorCode::NONE);
    });
    assert_ne!(session, 0);
    fetch(&mut stream, 18, &next(session, 1), |response| {
        assert_eq!((response.session_id, response.responses.len()), (session, 0));
    });
    partition.lead(4);
    // KAFKA-9338: the fetch names no partition, and its client still knows the old leader only.
    fetch(&mut stream, 18, &next(session, 2), |response| {
        let data = &response.responses[0].partitions[0];
        assert_eq!(data.error_code, ErrorCode::FENCED_LEADER_EPOCH);
        let leader = &data.current_leader;
        assert_eq!((leader.leader_id, leader.leader_epoch), (1, 4), "KIP-951");
        let there = &response.node_endpoints[0];
        assert_eq!((there.node_id, there.host), (1, "127.0.0.1"));
        assert_eq!(there.port, i32::from(broker.address().port()));
    });
    let mut told = full(topic.id, 4);
    (told.session_id, told.session_epoch) = (session, 3);
    fetch(&mut stream, 18, &told, |response| {
        assert_eq!(response.responses[0].partitions[0].error_code, ErrorCode::NONE, "it is over");
    });
}
