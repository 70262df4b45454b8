//! How the controller begins: it reads its log, tells it of the new leader, and registers this
//! broker for a new life.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use ottla_protocol::record::ControlRecord;
use ottla_storage::{Incoming, Origin};

use super::topics::publish;
use super::{Controller, Image, MetadataRecord, metadata_batch, read_image, replay_all, stored};
use crate::driver::folder::random_id;
use crate::driver::own_batch::{Content, own_batch};
use crate::driver::partition::{Acks, Submission};
use crate::node::Node;
use crate::state::metadata::{
    BrokerChange, BrokerRegistration, Endpoint, Feature, PartitionChange,
};

/// The level of Kafka 4.4, whose record versions we write.
const METADATA_VERSION: i16 = 33;

/// The first level with KRaft in production (Kafka 3.3).
const METADATA_VERSION_MIN: i16 = 7;

use crate::state::metadata_records::{KRAFT_VERSION, opening_records};
impl Controller {
    /// Reads the metadata log, begins this broker's life in it, and shows the topics.
    ///
    /// An error if the log cannot be read or written, or is not understood.
    pub(crate) fn load(&self, node: &Arc<Node>) -> Result<(), String> {
        let reader = node.metadata_log.log().map_err(|error| error.to_string())?;
        let mut image = read_image(node)?;
        let epoch = node.metadata_log.leader_epoch();
        let first = reader.log_end() == 0;
        let now_ms = node.clock.now_ms();
        let control = control_batch(node, first, now_ms)?;
        // The registration's own offset is its epoch: after the control records and the features.
        let mut records = Vec::new();
        if image.feature_level("metadata.version") != METADATA_VERSION {
            let name = Arc::from("metadata.version");
            records.push(MetadataRecord::FeatureLevel { name, level: METADATA_VERSION });
        }
        let before =
            i64::from(control.header.records_count) + i64::try_from(records.len()).unwrap_or(0);
        let broker_epoch = reader.log_end() + before;
        records.extend(registration(node, broker_epoch)?);
        if !node.folder.is_clean() {
            records.extend(new_leader_epochs(&image, node.node_id));
        }
        replay_all(&mut image, &records)?;
        let data = metadata_batch(&records, now_ms)?;
        append_and_wait(node, vec![control, data])?;
        self.broker_epoch.store(broker_epoch, Ordering::Release);
        set_strays_aside(node, &image);
        publish(node, image.topics(), &image);
        tracing::info!(epoch, broker_epoch, topics = image.topics().count(), "controller started");
        self.published.store(Arc::new(image.clone()));
        self.state().image = image;
        Ok(())
    }
}

/// The control records that open an epoch; the first one also names the voters.
fn control_batch(node: &Node, first_epoch: bool, now_ms: i64) -> Result<Incoming, String> {
    let directory = node.folder.directory_id();
    let opening = opening_records(node.node_id, directory, first_epoch);
    let opening = opening.map_err(|error| error.to_string())?;
    let keyed = opening.iter().map(|(kind, value)| (ControlRecord::of(*kind).key(), value));
    let keyed: Vec<_> = keyed.collect();
    let records = keyed.iter().map(|(key, value)| (Some(key.as_slice()), Some(value.as_slice())));
    let batch = own_batch(records, Content::Control, Origin::Raft, now_ms);
    batch.map_err(|error| error.to_string())
}

/// This broker's new life: registered and, since the controller is here, unfenced at once.
fn registration(node: &Node, epoch: i64) -> Result<[MetadataRecord; 2], String> {
    let incarnation = random_id().map_err(|error| format!("no incarnation id: {error:?}"))?;
    let (host, port) = node.settings.advertised.clone().unwrap_or_else(|| {
        // Unless one is set, every client is told the address that it came by.
        (node.listener.ip().to_string(), i32::from(node.listener.port()))
    });
    let feature = |name: &str, min, max| Feature { name: Arc::from(name), min, max };
    let broker = BrokerRegistration {
        id: node.node_id,
        incarnation,
        epoch,
        endpoints: vec![Endpoint {
            name: Arc::from("PLAINTEXT"),
            host: Arc::from(host),
            port: u16::try_from(port).unwrap_or(0),
            security_protocol: 0,
        }],
        features: vec![
            feature("metadata.version", METADATA_VERSION_MIN, METADATA_VERSION),
            feature("kraft.version", 0, KRAFT_VERSION),
        ],
        rack: None,
        fenced: true,
        in_controlled_shutdown: false,
        directories: vec![node.folder.directory_id()],
    };
    let unfenced = BrokerChange {
        id: node.node_id,
        epoch,
        fenced: Some(false),
        in_controlled_shutdown: None,
        directories: Vec::new(),
    };
    Ok([MetadataRecord::RegisterBroker(broker), MetadataRecord::BrokerChange(unfenced)])
}

/// After a crash records may be lost that consumers have seen, and others come in their place: a
/// new leader epoch tells the two apart (KIP-320).
fn new_leader_epochs(image: &Image, node_id: i32) -> Vec<MetadataRecord> {
    let mut changes = Vec::new();
    for topic in image.topics() {
        let led = topic.partitions.iter().filter(|(_, state)| state.replicas.contains(&node_id));
        changes.extend(led.map(|(index, _)| {
            MetadataRecord::PartitionChange(PartitionChange::leader(topic.id, *index, node_id))
        }));
    }
    changes
}

fn append_and_wait(node: &Arc<Node>, batches: Vec<Incoming>) -> Result<(), String> {
    let (tell, told) = mpsc::sync_channel(1);
    let done = Box::new(move |outcome| {
        // Nobody to tell: the start was given up.
        let _given_up = tell.send(outcome).is_err();
    });
    let submission = Submission { batches, acks: Acks::All, done };
    node.metadata_log.push(submission).map_err(|refused| refused.error.to_string())?;
    #[cfg(feature = "sim")]
    node.metadata_log.serve_here(node.clock);
    let outcome = told.recv().map_err(|_| "the log writer is gone".to_owned())?;
    stored(outcome).map_err(|why| format!("the metadata log cannot be written: {why}"))
}

/// Moves folders out of the way that no topic has: left by a deletion that a crash cut short.
fn set_strays_aside(node: &Node, image: &Image) {
    let has = |topic: &str, index: i32| {
        image.topic(topic).is_some_and(|topic| topic.partitions.contains_key(&index))
    };
    let strays: BTreeSet<_> = node.folder.partitions().into_iter().collect();
    for (topic, index) in strays {
        if topic != crate::node::METADATA_TOPIC && !has(&topic, index) {
            node.folder.set_aside(&topic, index);
        }
    }
}
