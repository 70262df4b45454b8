//! The coordinator when an append fails.

use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::Uuid;

use super::*;
use crate::state::group::{MemberSetup, Protocol};
use crate::state::groups::CommitOffset;
use crate::state::offsets::PartitionName;
use crate::{Broker, BrokerConfig};

const GROUP: &str = "flights";
/// A client without group use.
const NOBODY: (&str, i32) = ("", -1);

const PATIENCE: Duration = Duration::from_secs(30);

fn broker() -> Broker {
    let broker = Broker::start(BrokerConfig::new()).unwrap();
    let (tell, told) = mpsc::channel();
    let node = broker.node();
    node.controller.create_offsets_topic(node, Box::new(move |done| tell.send(done).unwrap()));
    told.recv_timeout(PATIENCE).unwrap().unwrap();
    broker
}

fn partition() -> PartitionName {
    PartitionName { topic: Arc::from("t"), index: 0 }
}

fn commit(broker: &Broker, member: (&str, i32), offset: i64) -> Result<Vec<ErrorCode>, ErrorCode> {
    let request = CommitRequest {
        member_id: member.0,
        instance_id: None,
        generation: member.1,
        retention_ms: None,
        offsets: vec![CommitOffset {
            partition: partition(),
            topic_id: Uuid::ZERO,
            offset,
            leader_epoch: -1,
            metadata: "",
        }],
    };
    let (tell, told) = mpsc::channel();
    let node = broker.node();
    let done = Box::new(move |codes| tell.send(codes).unwrap());
    node.coordinator.commit(node, GROUP, &request, done);
    told.recv_timeout(PATIENCE).unwrap()
}

fn committed(broker: &Broker) -> Result<Option<i64>, ErrorCode> {
    let (tell, told) = mpsc::channel();
    let node = broker.node();
    let read = |offsets: &Offsets| offsets.get(GROUP, &partition()).map(|value| value.offset);
    node.coordinator.offsets(node, GROUP, read, Box::new(move |seen| tell.send(seen).unwrap()));
    told.recv_timeout(PATIENCE).unwrap()
}

#[test]
fn an_offset_that_the_log_refuses_was_never_committed() {
    let broker = broker();
    assert_eq!(commit(&broker, NOBODY, 5), Ok(vec![ErrorCode::NONE]));
    assert_eq!(committed(&broker), Ok(Some(5)));
    let index = usize::try_from(partition_of(GROUP, 50)).unwrap();
    offsets_partition(broker.node(), index).unwrap().fail("the disk is gone".into());
    assert_eq!(commit(&broker, NOBODY, 6), Err(ErrorCode::NOT_COORDINATOR));
    assert_eq!(committed(&broker), Ok(Some(5)), "the log is read again");
}

#[test]
fn members_that_wait_are_sent_away_when_an_append_fails() {
    let broker = broker();
    let node = broker.node();
    let protocols = [Protocol { name: Arc::from("range"), metadata: Bytes::new() }];
    let ask = |fresh| {
        let request = JoinRequest {
            member_id: "",
            member: MemberSetup {
                instance_id: None,
                client_id: "c",
                client_host: "/127.0.0.1",
                rebalance_timeout_ms: 60_000,
                session_timeout_ms: 30_000,
                protocols: &protocols,
            },
            protocol_type: "consumer",
            id_required: false,
            can_skip_assignment: true,
            fresh,
        };
        let (tell, told) = mpsc::channel();
        let done = Box::new(move |answer| tell.send(answer).unwrap());
        node.coordinator.join(node, GROUP, &request, done);
        told
    };
    let first = ask("1").recv_timeout(PATIENCE).unwrap();
    assert!(matches!(first, Ok(Answer::Join(join)) if join.error == ErrorCode::NONE));
    let waiting = ask("2");
    let index = usize::try_from(partition_of(GROUP, 50)).unwrap();
    offsets_partition(node, index).unwrap().fail("the disk is gone".into());
    assert!(waiting.try_recv().is_err(), "it waits for the first member to come back");
    assert_eq!(commit(&broker, ("c-1", 1), 5), Err(ErrorCode::NOT_COORDINATOR));
    let sent_away = waiting.recv_timeout(PATIENCE).unwrap();
    let Ok(Answer::Join(join)) = sent_away else { panic!("{sent_away:?}") };
    assert_eq!((join.error, &*join.member_id), (ErrorCode::NOT_COORDINATOR, "c-2"));
}

#[test]
fn a_panic_over_groups_costs_what_was_half_done_and_nothing_that_is_in_the_log() {
    let broker = broker();
    assert_eq!(commit(&broker, NOBODY, 7), Ok(vec![ErrorCode::NONE]));
    let node = broker.node();
    let (index, _, _) = node.coordinator.shard_of(node, GROUP).unwrap();
    let half_done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        node.coordinator.in_running(node, index, |running| {
            let lost = crate::state::groups::GroupRecord::Offset {
                group: Arc::from(GROUP),
                partition: partition(),
                value: None,
            };
            running.groups.replay(&lost);
            panic!("in the middle of a decision")
        });
    }));
    assert!(half_done.is_err());
    assert_eq!(committed(&broker), Ok(Some(7)), "as the log says");
    assert_eq!(commit(&broker, NOBODY, 8), Ok(vec![ErrorCode::NONE]));
}
