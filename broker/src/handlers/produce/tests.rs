//! Produces through the socket, where the test changes what no client can.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use ottla_protocol::frame::{decode_response, encode_request};
use ottla_protocol::record::{BatchBuilder, BatchSeal, NO_HEADERS};
use ottla_protocol::{Records, Writer};

use super::*;
use crate::{Broker, BrokerConfig};

/// Produces a record to partition 0 and shows the answer.
fn produce(
    stream: &mut TcpStream,
    version: i16,
    topic: &Topic,
    see: impl FnOnce(ProduceResponse<'_>),
) {
    let mut builder = BatchBuilder::default();
    builder.push(1000, None, Some(b"value"), NO_HEADERS).unwrap();
    let batch = builder.finish(&BatchSeal::default()).unwrap().to_vec();
    let data = PartitionProduceData { index: 0, records: Records::Inline(&batch) };
    let data = vec![data];
    let (name, topic_id) = (&*topic.name, topic.id);
    let topic_data = vec![TopicProduceData { name, topic_id, partition_data: data }];
    let request = ProduceRequest { acks: -1, topic_data, ..ProduceRequest::default() };
    let mut writer = Writer::new();
    encode_request(version, 1, Some("test"), &request, &mut writer).unwrap();
    stream.write_all(writer.bytes()).unwrap();
    let mut size = [0; 4];
    stream.read_exact(&mut size).unwrap();
    let mut frame = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
    stream.read_exact(&mut frame).unwrap();
    see(decode_response::<ProduceResponse<'_>>(&frame, version).unwrap().1);
}

#[test]
fn a_producer_that_is_wrong_about_the_leader_is_told_who_it_is_and_where() {
    let broker = Broker::start(BrokerConfig::new()).unwrap();
    broker.create_topic("orders", 1).unwrap();
    let topic = broker.node().topics.named("orders").unwrap();
    let partition = topic.partition(0).unwrap();
    partition.lead(3);
    partition.refuse_work();
    let mut stream = TcpStream::connect(broker.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let port = i32::from(broker.address().port());
    for version in [9, 10, 12, 13] {
        produce(&mut stream, version, &topic, |response| {
            let part = &response.responses[0].partition_responses[0];
            assert_eq!(part.error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER, "v{version}");
            let leader = (part.current_leader.leader_id, part.current_leader.leader_epoch);
            let at: Vec<_> = response.node_endpoints.iter().collect();
            if version < LEADERS_FROM {
                assert_eq!((leader, at.len()), ((-1, -1), 0), "v{version} has no words for it");
            } else {
                assert_eq!(leader, (1, 3), "v{version}");
                let at = (at[0].node_id, at[0].host, at[0].port);
                assert_eq!(at, (1, "127.0.0.1", port), "v{version}");
            }
        });
    }
}

#[test]
fn a_producer_to_a_topic_that_goes_meanwhile_is_told_that_there_is_none() {
    let broker = Broker::start(BrokerConfig::new()).unwrap();
    broker.create_topic("orders", 1).unwrap();
    let topic = broker.node().topics.named("orders").unwrap();
    topic.partition(0).unwrap().delete();
    let mut stream = TcpStream::connect(broker.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    produce(&mut stream, 12, &topic, |response| {
        let part = &response.responses[0].partition_responses[0];
        assert_eq!(part.error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        assert!(response.node_endpoints.is_empty());
    });
}
