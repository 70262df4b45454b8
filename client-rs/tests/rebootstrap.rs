//! A client that finds none of the brokers it knows asks at the addresses of its options (KIP-899).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod clients;
mod patience;

use std::net::TcpListener;
use std::path::Path;

use clients::{producer, reserved};
use ottla::{Producer, Record};
use ottla_broker::{Broker, BrokerConfig};
use patience::{LIMIT, wait_until, within_limit};

/// The cluster's one broker, for now at this address.
fn broker(folder: &Path, address: &str) -> Broker {
    let config = BrokerConfig::new().data_dir(folder).listen(address);
    Broker::start(config.set("num.partitions", "1").unwrap()).unwrap()
}

/// A producer that has two addresses, and a record stored by the broker at the second; that broker
/// is gone now.
fn left_alone(folder: &Path, addresses: [&str; 2], more: &[(&str, &str)]) -> Producer {
    let pairs = [("retry.backoff.ms", "5"), ("reconnect.backoff.ms", "5")];
    let pairs = pairs.iter().chain([&("reconnect.backoff.max.ms", "20")]).chain(more);
    let pairs: Vec<_> = pairs.copied().collect();
    let first = broker(folder, addresses[1]);
    let producer = producer(&addresses.join(","), &pairs);
    assert_eq!(stored(&producer, "before"), 0);
    first.stop(LIMIT).unwrap();
    producer
}

/// The offset at which a record sent now is stored.
fn stored(producer: &Producer, value: &str) -> i64 {
    let sent = producer.send(&Record::to("orders").value(value)).unwrap();
    sent.wait(LIMIT).unwrap().offset
}

#[test]
fn a_cluster_whose_known_brokers_are_all_gone_is_found_at_another_address_of_the_options() {
    within_limit(|| {
        let folder = tempfile::tempdir().unwrap();
        let ((there, _kept), (here, _kept_too)) = (reserved(), reserved());
        let producer = left_alone(folder.path(), [&there, &here], &[]);
        let moved = broker(folder.path(), &there);
        assert_eq!(stored(&producer, "after"), 1, "in the log where the first one is");
        producer.close(LIMIT).unwrap();
        moved.stop(LIMIT).unwrap();
    });
}

#[test]
fn a_client_told_not_to_looks_for_no_cluster_anew_and_waits_for_the_brokers_it_knows() {
    within_limit(|| {
        let folder = tempfile::tempdir().unwrap();
        let ((there, _kept), (here, _kept_too)) = (reserved(), reserved());
        let options = [
            ("metadata.recovery.strategy", "none"),
            // Nor by what else sends a client there (KIP-1102).
            ("metadata.recovery.rebootstrap.trigger.ms", "0"),
        ];
        let producer = left_alone(folder.path(), [&there, &here], &options);
        let moved = broker(folder.path(), &there);
        let nobody = TcpListener::bind(&here).unwrap();
        nobody.set_nonblocking(true).unwrap();
        let sent = producer.send(&Record::to("orders").value("after")).unwrap();
        let mut attempts = 0;
        wait_until("attempts to reach the broker where it was", || {
            assert!(sent.result().is_none(), "the client looked elsewhere: {:?}", sent.result());
            attempts += usize::from(nobody.accept().is_ok());
            attempts == 20
        });
        moved.stop(LIMIT).unwrap();
        drop(nobody);
        let back = broker(folder.path(), &here);
        assert_eq!(sent.wait(LIMIT).unwrap().offset, 1);
        producer.close(LIMIT).unwrap();
        back.stop(LIMIT).unwrap();
    });
}
