//! The image is what its records say, however they come to it.

use proptest::prelude::*;

use super::*;
use crate::state::metadata_records::{decode, encode};

fn id(number: u8) -> Uuid {
    Uuid([number; 16])
}

fn name(number: u8) -> Arc<str> {
    Arc::from(format!("topic-{number}"))
}

fn state(leader: i32) -> PartitionState {
    PartitionState {
        replicas: vec![leader, 7],
        isr: vec![leader],
        removing: vec![],
        adding: vec![],
        leader,
        recovery: 0,
        leader_epoch: 4,
        epoch: 9,
        directories: vec![id(1), id(2)],
        eligible: vec![],
        last_known: vec![],
    }
}

fn broker(number: i32, fenced: bool) -> BrokerRegistration {
    BrokerRegistration {
        id: number,
        incarnation: id(8),
        epoch: 12,
        endpoints: vec![Endpoint {
            name: Arc::from("PLAINTEXT"),
            host: Arc::from("localhost"),
            port: 9092,
            security_protocol: 0,
        }],
        features: vec![Feature { name: Arc::from("metadata.version"), min: 7, max: 33 }],
        rack: Some(Arc::from("r")),
        fenced,
        in_controlled_shutdown: false,
        directories: vec![id(3)],
    }
}

#[test]
fn a_topic_comes_changes_and_goes() {
    let mut image = Image::default();
    let mut replay = |record| image.replay(&record).unwrap();
    replay(MetadataRecord::Topic { name: name(1), id: id(1) });
    replay(MetadataRecord::Partition { topic_id: id(1), index: 0, state: state(1) });
    let resource = Resource::topic(&name(1));
    let set = |value: Option<&str>| MetadataRecord::Config {
        resource: resource.clone(),
        name: Arc::from("retention.ms"),
        value: value.map(Arc::from),
    };
    replay(set(Some("1")));
    replay(MetadataRecord::PartitionChange(PartitionChange::leader(id(1), 0, 1)));
    let topic = image.topic("topic-1").unwrap().clone();
    let partition = &topic.partitions[&0];
    assert_eq!((partition.leader, partition.leader_epoch, partition.epoch), (1, 5, 10));
    assert!(image.topic_overrides(&topic.name).is_some());
    image.replay(&MetadataRecord::RemoveTopic { id: id(1) }).unwrap();
    assert_eq!(image, Image::default(), "its options go with it");
}

#[test]
fn a_change_of_the_isr_begins_no_leader_epoch() {
    let mut partition = state(1);
    let change = PartitionChange {
        leader: None,
        isr: Some(vec![1, 7]),
        ..PartitionChange::leader(id(1), 0, 1)
    };
    partition.apply(&change);
    assert_eq!((partition.leader_epoch, partition.epoch), (4, 10), "KAFKA-15021");
    assert_eq!(partition.isr, [1, 7]);
}

#[test]
fn a_broker_is_live_once_it_is_unfenced_until_it_stops() {
    let mut image = Image::default();
    image.replay(&MetadataRecord::RegisterBroker(broker(1, true))).unwrap();
    assert_eq!(image.live_brokers().count(), 0);
    let change = |fenced, in_controlled_shutdown| {
        MetadataRecord::BrokerChange(BrokerChange {
            id: 1,
            epoch: 12,
            fenced,
            in_controlled_shutdown,
            directories: vec![],
        })
    };
    image.replay(&change(Some(false), None)).unwrap();
    assert_eq!(image.live_brokers().count(), 1);
    assert_eq!(image.broker(1).unwrap().directories, [id(3)]);
    image.replay(&change(None, Some(true))).unwrap();
    assert_eq!(image.live_brokers().count(), 0);
    image.replay(&MetadataRecord::UnregisterBroker { id: 1, epoch: 12 }).unwrap();
    assert!(image.broker(1).is_none());
}

#[test]
fn records_about_nothing_known_are_misfits() {
    let mut image = Image::default();
    let topic = MetadataRecord::Partition { topic_id: id(1), index: 0, state: state(1) };
    assert_eq!(image.replay(&topic), Err(Misfit::Topic(id(1))));
    let change = MetadataRecord::PartitionChange(PartitionChange::leader(id(1), 0, 1));
    assert_eq!(image.replay(&change), Err(Misfit::Topic(id(1))));
    image.replay(&MetadataRecord::Topic { name: name(1), id: id(1) }).unwrap();
    assert_eq!(image.replay(&change), Err(Misfit::Partition(id(1), 0)));
    let gone = MetadataRecord::UnregisterBroker { id: 5, epoch: 1 };
    assert_eq!(image.replay(&gone), Err(Misfit::Broker(5)));
}

#[test]
fn producer_ids_only_rise() {
    let mut image = Image::default();
    for (next, expected) in [(1000, 1000), (2000, 2000), (1500, 2000)] {
        let block = MetadataRecord::ProducerIds { broker_id: 1, broker_epoch: 3, next };
        image.replay(&block).unwrap();
        assert_eq!(image.next_producer_id(), expected);
    }
}

fn record() -> impl Strategy<Value = MetadataRecord> {
    let number = 0..4_u8;
    let ids = prop::collection::vec(0..5_i32, 1..4);
    let optional = || prop::option::of(prop::collection::vec(0..5_i32, 0..3));
    prop_oneof![
        3 => number.clone().prop_map(|n| MetadataRecord::Topic { name: name(n), id: id(n) }),
        3 => (number.clone(), 0..3_i32, ids, 0..3_i32).prop_map(|(n, index, replicas, leader)| {
            let state = PartitionState { replicas, ..state(leader) };
            MetadataRecord::Partition { topic_id: id(n), index, state }
        }),
        2 => (number.clone(), 0..3_i32, prop::option::of(-1..3_i32), optional(), optional(), optional())
            .prop_map(|(n, index, leader, isr, eligible, replicas)| {
                let change = PartitionChange {
                    isr, leader, replicas, eligible, ..PartitionChange::leader(id(n), index, 0)
                };
                MetadataRecord::PartitionChange(change)
            }),
        1 => number.clone().prop_map(|n| MetadataRecord::RemoveTopic { id: id(n) }),
        2 => (number, 0..2_u8, prop::option::of("[a-z]{1,3}")).prop_map(|(n, option, value)| {
            MetadataRecord::Config {
                resource: Resource::topic(&name(n)),
                name: name(option),
                value: value.map(Arc::from),
            }
        }),
        1 => (0..3_i32, any::<bool>()).prop_map(|(n, fenced)| {
            MetadataRecord::RegisterBroker(broker(n, fenced))
        }),
        1 => (0..3_i32, prop::option::of(any::<bool>()), prop::option::of(Just(true))).prop_map(
            |(id, fenced, in_controlled_shutdown)| {
                let directories = vec![];
                MetadataRecord::BrokerChange(BrokerChange {
                    id, epoch: 12, fenced, in_controlled_shutdown, directories,
                })
            }
        ),
        1 => (0..2_u8, 0..3_i16).prop_map(|(n, level)| {
            MetadataRecord::FeatureLevel { name: name(n), level }
        }),
        1 => (0..5_i64).prop_map(|blocks| MetadataRecord::ProducerIds {
            broker_id: 1, broker_epoch: 2, next: blocks * 1000,
        }),
        1 => Just(MetadataRecord::Passed),
    ]
}

proptest! {
    #[test]
    fn the_log_replayed_is_the_image_that_runs(records in prop::collection::vec(record(), 0..60)) {
        let mut running = Image::default();
        let mut log = Vec::new();
        for record in &records {
            // What a controller would never write is left out; it changes nothing.
            let before = running.clone();
            if running.replay(record).is_err() {
                prop_assert_eq!(&before, &running);
                continue;
            }
            log.push(encode(record).unwrap());
        }
        let mut replayed = Image::default();
        for value in &log {
            replayed.replay(&decode(Some(value)).unwrap()).unwrap();
        }
        prop_assert_eq!(replayed, running);
    }
}
