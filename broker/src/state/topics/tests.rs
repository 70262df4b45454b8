//! Which topics can be created, and what creating them writes.

use super::*;
use crate::state::metadata::BrokerRegistration;

const DIRECTORY: Uuid = Uuid([4; 16]);
const ID: Uuid = Uuid([5; 16]);

fn image(brokers: &[i32]) -> Image {
    let mut image = Image::default();
    for id in brokers {
        let broker = BrokerRegistration {
            id: *id,
            incarnation: Uuid([6; 16]),
            epoch: 3,
            endpoints: vec![],
            features: vec![],
            rack: None,
            fenced: false,
            in_controlled_shutdown: false,
            directories: vec![DIRECTORY],
        };
        image.replay(&MetadataRecord::RegisterBroker(broker)).unwrap();
    }
    image
}

/// Partitions and their brokers.
type Assigned<'a> = &'a [(i32, &'a [i32])];

fn asking(name: &str, partitions: i32, replication_factor: i16) -> TopicRequest {
    TopicRequest {
        name: name.to_owned(),
        partitions,
        replication_factor,
        ..TopicRequest::default()
    }
}

fn decide(image: &Image, request: &TopicRequest) -> Result<Creation, Refusal> {
    let defaults =
        TopicDefaults { partitions: 3, replication_factor: 1, partitions_in_all: 20_000 };
    let check = |own: &[(&str, &str)]| match own.iter().find(|(name, _)| *name == "bad") {
        Some(_) => Err("no such option".to_owned()),
        None => Ok(()),
    };
    create(image, request, defaults, ID, &check)
}

fn code(image: &Image, request: &TopicRequest) -> ErrorCode {
    decide(image, request).map_or_else(|refused| refused.code, |_| ErrorCode::NONE)
}

fn with(image: &Image, name: &str) -> Image {
    let mut image = image.clone();
    for record in decide(&image, &asking(name, 1, 1)).unwrap().records {
        image.replay(&record).unwrap();
    }
    image
}

#[test]
fn names_are_kept_to_kafkas_rules() {
    let image = with(&with(&image(&[1]), "a.b"), "plain");
    let longest = "x".repeat(249);
    let longer = "x".repeat(250);
    let invalid = ErrorCode::INVALID_TOPIC_EXCEPTION;
    for (name, expected) in [
        ("orders", ErrorCode::NONE),
        ("A-Z_0.9", ErrorCode::NONE),
        (longest.as_str(), ErrorCode::NONE),
        (longer.as_str(), invalid),
        ("", invalid),
        (".", invalid),
        ("..", invalid),
        ("...", ErrorCode::NONE),
        ("a b", invalid),
        ("größe", invalid),
        ("a/b", invalid),
        ("a_b", invalid),
        ("a.b", ErrorCode::TOPIC_ALREADY_EXISTS),
        ("plain", ErrorCode::TOPIC_ALREADY_EXISTS),
        ("__consumer_offsets", invalid),
        ("__cluster_metadata", ErrorCode::INVALID_REQUEST),
    ] {
        assert_eq!(code(&image, &asking(name, 1, 1)), expected, "{name:?}");
    }
    let collision = decide(&image, &asking("a_b", 1, 1)).unwrap_err();
    assert!(collision.message.contains("\"a.b\""), "{collision}");
}

#[test]
fn numbers_are_checked_and_minus_one_is_the_default() {
    let image = image(&[1]);
    let partitions = ErrorCode::INVALID_PARTITIONS;
    let factor = ErrorCode::INVALID_REPLICATION_FACTOR;
    for (asked, copies, expected) in [
        (-1, -1, ErrorCode::NONE),
        (1, 1, ErrorCode::NONE),
        (10_000, 1, ErrorCode::NONE),
        (10_001, 1, partitions),
        (0, 1, partitions),
        (-2, 1, partitions),
        (1, 0, factor),
        (1, -2, factor),
        (1, 2, factor),
    ] {
        assert_eq!(code(&image, &asking("t", asked, copies)), expected, "{asked} {copies}");
    }
    let created = decide(&image, &asking("t", -1, -1)).unwrap();
    assert_eq!((created.partitions, created.replication_factor), (3, 1));
    let refused = decide(&image, &asking("t", 1, 3)).unwrap_err();
    assert!(refused.message.contains("1 broker(s) are live"), "{refused}");
}

#[test]
fn a_new_partition_is_led_by_its_first_replica() {
    let created = decide(&image(&[1, 2, 3]), &asking("t", 3, 2)).unwrap();
    let states: Vec<_> = created
        .records
        .iter()
        .filter_map(|record| match record {
            MetadataRecord::Partition { index, state, .. } => Some((*index, state)),
            _ => None,
        })
        .collect();
    let replicas: Vec<_> = states.iter().map(|(_, state)| state.replicas.clone()).collect();
    assert_eq!(replicas, [vec![1, 2], vec![2, 3], vec![3, 1]]);
    for (_, state) in states {
        assert_eq!(Some(&state.leader), state.replicas.first());
        assert_eq!((&state.isr, state.leader_epoch, state.epoch), (&state.replicas, 0, 0));
        assert_eq!(state.directories, [DIRECTORY; 2]);
    }
}

#[test]
fn assignments_by_hand_are_checked() {
    let image = image(&[1, 2]);
    let wrong = ErrorCode::INVALID_REPLICA_ASSIGNMENT;
    let rows: [(Assigned<'_>, ErrorCode); 9] = [
        (&[(0, &[1])], ErrorCode::NONE),
        (&[(1, &[1, 2]), (0, &[2, 1])], ErrorCode::NONE),
        (&[(0, &[])], wrong),
        (&[(0, &[9])], wrong),
        (&[(0, &[1, 1])], wrong),
        (&[(0, &[1]), (0, &[2])], wrong),
        (&[(0, &[1]), (2, &[2])], wrong),
        (&[(-1, &[1])], wrong),
        (&[(0, &[1]), (1, &[1, 2])], wrong),
    ];
    for (assigned, expected) in rows {
        let assignments = assigned.iter().map(|(index, ids)| (*index, ids.to_vec())).collect();
        let request = TopicRequest { assignments, ..asking("t", -1, -1) };
        assert_eq!(code(&image, &request), expected, "{assigned:?}");
        let request = TopicRequest { partitions: 1, ..request };
        assert_eq!(code(&image, &request), ErrorCode::INVALID_REQUEST);
        let request = TopicRequest { partitions: -1, replication_factor: 1, ..request };
        assert_eq!(code(&image, &request), ErrorCode::INVALID_REQUEST);
    }
}

#[test]
fn options_are_checked_and_stored() {
    let image = image(&[1]);
    let set = |configs: &[(&str, Option<&str>)]| {
        let own = |value: &&str| (*value).to_owned();
        let configs = configs.iter().map(|(name, value)| (own(name), value.as_ref().map(own)));
        TopicRequest { configs: configs.collect(), ..asking("t", 1, 1) }
    };
    let invalid = ErrorCode::INVALID_CONFIG;
    assert_eq!(code(&image, &set(&[("bad", Some("1"))])), invalid);
    assert_eq!(code(&image, &set(&[("retention.ms", None)])), invalid);
    assert_eq!(code(&image, &set(&[("x", Some("1")), ("x", Some("2"))])), invalid);
    let created = decide(&image, &set(&[("retention.ms", Some("5"))])).unwrap();
    let mut image = image;
    for record in &created.records {
        image.replay(record).unwrap();
    }
    let overrides = image.topic_overrides(&Arc::from("t")).unwrap();
    assert_eq!(overrides.get("retention.ms").map(|value| &**value), Some("5"));
}

#[test]
fn the_offsets_topic_never_asks_for_more_brokers_than_there_are() {
    let created = create_offsets_topic(&image(&[1]), 50, 3, 1 << 20, ID).unwrap();
    assert_eq!((created.partitions, created.replication_factor), (50, 1));
    let created = create_offsets_topic(&image(&[1, 2]), 4, 3, 1 << 20, ID).unwrap();
    assert_eq!(created.replication_factor, 2);
    let refused = create_offsets_topic(&image(&[]), 4, 3, 1 << 20, ID).unwrap_err();
    assert_eq!(refused.code, ErrorCode::BROKER_NOT_AVAILABLE);
}

#[test]
fn only_topics_of_users_that_are_there_can_be_deleted() {
    let mut image = with(&image(&[1]), "t");
    for record in create_offsets_topic(&image, 1, 1, 1 << 20, Uuid([9; 16])).unwrap().records {
        image.replay(&record).unwrap();
    }
    let by_name = |name: &str| {
        let key = TopicKey::Name(name.to_owned());
        delete(&image, &key).map_or_else(|refused| refused.code, |_| ErrorCode::NONE)
    };
    assert_eq!(by_name("t"), ErrorCode::NONE);
    assert_eq!(by_name("u"), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(by_name(OFFSETS_TOPIC), ErrorCode::INVALID_TOPIC_EXCEPTION);
    assert_eq!(delete(&image, &TopicKey::Id(ID)).unwrap().name, Arc::from("t"));
    let unknown = delete(&image, &TopicKey::Id(Uuid([1; 16]))).unwrap_err();
    assert_eq!(unknown.code, ErrorCode::UNKNOWN_TOPIC_ID);
}

#[test]
fn a_name_is_free_in_metrics_again_when_its_topic_is_gone() {
    let mut image = image(&[1]);
    for record in decide(&image, &asking("a.b", 1, 1)).unwrap().records {
        image.replay(&record).unwrap();
    }
    let refused = decide(&image, &asking("a_b", 1, 1)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::INVALID_TOPIC_EXCEPTION);
    assert_eq!(image.partitions(), 1);
    image.replay(&MetadataRecord::RemoveTopic { id: ID }).unwrap();
    assert!(decide(&image, &asking("a_b", 1, 1)).is_ok());
    assert_eq!(image.partitions(), 0);
}
