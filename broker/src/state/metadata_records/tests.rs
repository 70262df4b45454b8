//! Records of the metadata log, held against those that Kafka 4.4 wrote.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn id(text: &str) -> Uuid {
    text.parse().unwrap()
}

#[allow(clippy::too_many_lines, reason = "a table of records")]
/// Values from a metadata log of Apache Kafka 4.4.0, and what they say.
fn from_kafka() -> Vec<(&'static str, MetadataRecord)> {
    let orders = id("wzbihIwhTpKctPeZ8FQXSw");
    let directory = id("hJHfYkIrSrevnxYvQauXNA");
    let config = |kind, resource: &str, name: &str, value: &str| MetadataRecord::Config {
        resource: Resource { kind, name: Arc::from(resource) },
        name: Arc::from(name),
        value: Some(Arc::from(value)),
    };
    vec![
        (
            "010c00116d657461646174612e76657273696f6e002100",
            MetadataRecord::FeatureLevel { name: Arc::from("metadata.version"), level: 33 },
        ),
        (
            "0104000401146d696e2e696e73796e632e7265706c69636173023100",
            config(4, "", "min.insync.replicas", "1"),
        ),
        (
            "01040002076f72646572730d726574656e74696f6e2e6d730731303030303000",
            config(2, "orders", "retention.ms", "100000"),
        ),
        (
            "010200076f7264657273c336e2848c214e929cb4f799f054174b00",
            MetadataRecord::Topic { name: Arc::from("orders"), id: orders },
        ),
        (
            "01030200000000c336e2848c214e929cb4f799f054174b0200000001020000000101010000000100000000\
             00000000028491df62422b4ab7af9f162f41ab973400",
            MetadataRecord::Partition {
                topic_id: orders,
                index: 0,
                state: PartitionState {
                    replicas: vec![1],
                    isr: vec![1],
                    removing: vec![],
                    adding: vec![],
                    leader: 1,
                    recovery: 0,
                    leader_epoch: 0,
                    epoch: 0,
                    directories: vec![directory],
                    eligible: vec![],
                    last_known: vec![],
                },
            },
        ),
        (
            "010502000000006eff44f3035b40549d2085cea2071df2040001010104ffffffff0605020000000107050200\
             000001",
            MetadataRecord::PartitionChange(PartitionChange {
                isr: Some(vec![]),
                eligible: Some(vec![1]),
                last_known: Some(vec![1]),
                ..PartitionChange::leader(id("bv9E8wNbQFSdIIXOogcd8g"), 0, -1)
            }),
        ),
        (
            "0109006229a49dcd63464aad40b672d1fd589000",
            MetadataRecord::RemoveTopic { id: id("Yimknc1jRkqtQLZy0f1YkA") },
        ),
        (
            "01110000000001000000000000000e010001ff",
            MetadataRecord::BrokerChange(BrokerChange {
                id: 1,
                epoch: 14,
                fenced: Some(false),
                in_controlled_shutdown: None,
                directories: vec![],
            }),
        ),
        (
            "01110100000001000000000000000e01010101",
            MetadataRecord::BrokerChange(BrokerChange {
                id: 1,
                epoch: 14,
                fenced: None,
                in_controlled_shutdown: Some(true),
                directories: vec![],
            }),
        ),
        ("01140000", MetadataRecord::Passed),
    ]
}

#[test]
fn records_have_the_bytes_that_kafka_writes() {
    for (bytes, record) in from_kafka() {
        let bytes = hex(&bytes.replace(' ', ""));
        assert_eq!(decode(Some(&bytes)).as_ref(), Ok(&record));
        assert_eq!(encode(&record).unwrap(), bytes, "{record:?}");
    }
}

/// The registration of an Apache Kafka 4.4.0 broker.
const KAFKA_BROKER: &str = "0100040000000100174ec45360f54f8583d5a71c87496961000000000000000e020a50\
    4c41494e544558540a3132372e302e302e314b5c00000008116d657461646174612e76657273696f6e0007002100\
    21656c696769626c652e6c65616465722e7265706c696361732e76657273696f6e0000000100147472616e736163\
    74696f6e2e76657273696f6e00000002001073747265616d732e76657273696f6e00000001000e67726f75702e76\
    657273696f6e00000001000e6b726166742e76657273696f6e00000001000e73686172652e76657273696f6e0000\
    000200000100010011028491df62422b4ab7af9f162f41ab9734";

#[test]
fn a_registration_is_read_and_written_as_kafka_does() {
    let bytes = hex(&KAFKA_BROKER.replace(' ', ""));
    let record = decode(Some(&bytes)).unwrap();
    let MetadataRecord::RegisterBroker(broker) = &record else { panic!("{record:?}") };
    assert_eq!((broker.id, broker.epoch, broker.fenced), (1, 14, true));
    assert_eq!((&*broker.endpoints[0].host, broker.endpoints[0].port), ("127.0.0.1", 19_292));
    assert_eq!(broker.features.len(), 7);
    assert_eq!(broker.directories, [id("hJHfYkIrSrevnxYvQauXNA")]);
    assert_eq!(encode(&record).unwrap(), bytes);
}

#[test]
fn records_that_only_frame_or_inform_are_passed() {
    for bytes in [
        // "Bootstrap records", and the end of it.
        "01170001001212426f6f747374726170207265636f726473",
        "01180000",
    ] {
        assert_eq!(decode(Some(&hex(bytes))), Ok(MetadataRecord::Passed));
    }
}

#[test]
fn what_must_not_be_missed_stops_the_reading() {
    assert_eq!(decode(None), Err(BadMetadata::Empty));
    assert_eq!(decode(Some(&hex("020c00"))), Err(BadMetadata::Frame(2)));
    // An ACL, an aborted transaction, and a type of a later Kafka.
    for (bytes, kind) in [("011200", 18), ("01190000", 25), ("01fe0700", 1022)] {
        assert_eq!(decode(Some(&hex(bytes))), Err(BadMetadata::Type(kind)), "{bytes}");
    }
    for bytes in ["", "01", "010c", "010c09", "010c000161", "01140000ff"] {
        assert!(matches!(decode(Some(&hex(bytes))), Err(BadMetadata::Decode(_))), "{bytes}");
    }
}

#[test]
fn a_block_of_producer_ids_comes_back() {
    let record = MetadataRecord::ProducerIds { broker_id: 1, broker_epoch: 3, next: 2000 };
    assert_eq!(decode(Some(&encode(&record).unwrap())), Ok(record));
    let record = MetadataRecord::UnregisterBroker { id: 1, epoch: 3 };
    assert_eq!(decode(Some(&encode(&record).unwrap())), Ok(record));
}

#[test]
fn an_epoch_is_opened_as_kafka_opens_it() {
    let directory = id("hJHfYkIrSrevnxYvQauXNA");
    let opening = opening_records(1, directory, true).unwrap();
    let leader = hex("00000000000102000000010002000000010000");
    assert_eq!(opening[0], (ControlKind::LeaderChange, leader.clone()));
    assert_eq!(opening[1], (ControlKind::KraftVersion, hex("0000000100")));
    // As Kafka's, but that our one voter has no address for others.
    let voters = hex("00000200000001 8491df62422b4ab7af9f162f41ab9734 01 0000000100 0000"
        .replace(' ', "")
        .as_str());
    assert_eq!(opening[2], (ControlKind::KraftVoters, voters));
    let later = opening_records(1, directory, false).unwrap();
    assert_eq!(later, [(ControlKind::LeaderChange, leader)]);
}
