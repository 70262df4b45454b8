//! Records of the offsets topic, also as Kafka 4.4 wrote them.

use ottla_protocol::Uuid;

use super::*;

/// From an offsets partition of Apache Kafka 4.4.0: group `grp`, partition 1 of `orders`.
const KAFKA_OFFSET_KEY: &str = "0001 0003677270 00066f7264657273 00000001";
const KAFKA_OFFSET_VALUE: &str = "0004 0000000000000001 ffffffff 01 000001a22f36e680
    01 00 10 c336e2848c214e929cb4f799f054174b";

/// From the same partition: the group after its last member left.
const KAFKA_EMPTY_GROUP: &str =
    "0003 0008636f6e73756d6572 00000002 ffff ffff 000001a22f36e696 00000000";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(|digit| !digit.is_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| pair.iter().collect::<String>());
    pairs.map(|pair| u8::from_str_radix(&pair, 16).unwrap()).collect()
}

fn group(members: Vec<MemberValue>) -> GroupRecord {
    let value = GroupValue {
        protocol_type: Arc::from("consumer"),
        generation: 4,
        protocol: Some(Arc::from("range")),
        leader: Some(Arc::from("m-1")),
        state_ms: 1_796_088_456_073,
        members,
    };
    GroupRecord::Group { group: Arc::from("grp"), value: Some(value) }
}

fn member(instance_id: Option<&str>) -> MemberValue {
    MemberValue {
        id: Arc::from("m-1"),
        instance_id: instance_id.map(Arc::from),
        client_id: Arc::from("m"),
        client_host: Arc::from("/127.0.0.1"),
        rebalance_timeout_ms: 300_000,
        session_timeout_ms: 45_000,
        subscription: Bytes::from_static(b"what it wants"),
        assignment: Bytes::from_static(b"what it gets"),
    }
}

fn offset(expire_ms: Option<i64>, topic_id: Uuid) -> GroupRecord {
    let value = Committed {
        offset: i64::MAX,
        leader_epoch: if expire_ms.is_some() { -1 } else { 5 },
        metadata: Arc::from("noted"),
        commit_ms: 1_796_088_456_832,
        expire_ms,
        topic_id,
    };
    let partition = PartitionName { topic: Arc::from("orders"), index: 3 };
    GroupRecord::Offset { group: Arc::from("grp"), partition, value: Some(value) }
}

fn removed(record: GroupRecord) -> GroupRecord {
    match record {
        GroupRecord::Group { group, .. } => GroupRecord::Group { group, value: None },
        GroupRecord::Offset { group, partition, .. } => {
            GroupRecord::Offset { group, partition, value: None }
        }
    }
}

#[test]
fn records_come_back_as_they_were_written() {
    for record in [
        group(vec![]),
        group(vec![member(None), member(Some("i"))]),
        removed(group(vec![])),
        offset(None, Uuid([9; 16])),
        offset(None, Uuid::ZERO),
        offset(Some(17), Uuid::ZERO),
        removed(offset(None, Uuid::ZERO)),
    ] {
        let raw = encode(&record).unwrap();
        let read = decode(Some(&raw.key), raw.value.as_deref());
        assert_eq!(read, Ok(Some(record)));
    }
}

#[test]
fn an_offset_has_the_bytes_that_kafka_writes() {
    let topic_id: Uuid = "wzbihIwhTpKctPeZ8FQXSw".parse().unwrap();
    let partition = PartitionName { topic: Arc::from("orders"), index: 1 };
    let value = Committed {
        offset: 1,
        leader_epoch: -1,
        metadata: Arc::from(""),
        commit_ms: 1_796_088_456_832,
        expire_ms: None,
        topic_id,
    };
    let record = GroupRecord::Offset { group: Arc::from("grp"), partition, value: Some(value) };
    let raw = encode(&record).unwrap();
    assert_eq!(raw.key, hex(KAFKA_OFFSET_KEY));
    assert_eq!(raw.value, Some(hex(KAFKA_OFFSET_VALUE)));
}

#[test]
fn an_empty_group_has_the_bytes_that_kafka_writes() {
    let value = GroupValue {
        protocol_type: Arc::from("consumer"),
        generation: 2,
        protocol: None,
        leader: None,
        state_ms: 1_796_088_456_854,
        members: vec![],
    };
    let record = GroupRecord::Group { group: Arc::from("grp"), value: Some(value) };
    let raw = encode(&record).unwrap();
    assert_eq!(raw.key, hex("0002 0003 677270"));
    assert_eq!(raw.value, Some(hex(KAFKA_EMPTY_GROUP)));
}

#[test]
fn the_oldest_key_is_read_as_the_newer_one() {
    let raw = encode(&offset(None, Uuid::ZERO)).unwrap();
    let mut key = raw.key.clone();
    key[1] = 0;
    assert_eq!(decode(Some(&key), raw.value.as_deref()), Ok(Some(offset(None, Uuid::ZERO))));
}

#[test]
fn kinds_of_other_groups_are_passed_over() {
    for kind in [3_i16, 8, 10, 23, 99] {
        assert_eq!(decode(Some(&kind.to_be_bytes()), None), Ok(None));
    }
}

#[test]
fn broken_records_are_told_apart_from_unknown_ones() {
    assert_eq!(decode(None, None), Err(BadRecord::Key));
    assert_eq!(decode(Some(&[0xff, 0xff]), None), Err(BadRecord::Key));
    assert!(matches!(decode(Some(&[0]), None), Err(BadRecord::Decode(_))));
    let raw = encode(&group(vec![member(None)])).unwrap();
    let value = raw.value.unwrap();
    for cut in 0..value.len() {
        let read = decode(Some(&raw.key), value.get(..cut));
        assert!(matches!(read, Err(BadRecord::Decode(_))), "cut to {cut}: {read:?}");
    }
    assert!(matches!(decode(Some(&raw.key), Some(&[0, 9])), Err(BadRecord::Decode(_))));
}

#[test]
fn subscriptions_are_read_in_every_version() {
    let topics = |version: &str| {
        let body = "00000002 0001 61 0002 6262 ffffffff";
        subscribed_topics(&hex(&format!("{version}{body}")))
    };
    let expected = Some(vec![Arc::from("a"), Arc::from("bb")]);
    assert_eq!(topics("0000"), expected);
    let v1 = hex("0001 00000001 0001 61 ffffffff 00000000");
    assert_eq!(subscribed_topics(&v1), Some(vec![Arc::from("a")]));
    // A version after ours, with a field that we do not know.
    let v9 = hex("0009 00000001 0001 61 ffffffff 00000000 00000005 ffff 0102");
    assert_eq!(subscribed_topics(&v9), Some(vec![Arc::from("a")]));
    assert_eq!(subscribed_topics(b"connect has another form"), None);
    assert_eq!(subscribed_topics(b""), None);
}
