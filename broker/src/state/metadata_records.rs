//! The records of `__cluster_metadata` in Kafka's form: a frame version, the type, its version, and
//! a flexible body.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use ottla_protocol::messages::leader_change_message::Voter as LeaderVoter;
use ottla_protocol::messages::register_broker_record::{BrokerEndpoint, BrokerFeature};
use ottla_protocol::messages::voters_record::{KRaftVersionFeature, Voter};
use ottla_protocol::messages::{
    BeginTransactionRecord, BrokerRegistrationChangeRecord, ConfigRecord, EndTransactionRecord,
    FeatureLevelRecord, KRaftVersionRecord, LeaderChangeMessage, NoOpRecord, PartitionChangeRecord,
    PartitionRecord, ProducerIdsRecord, RegisterBrokerRecord, RegisterControllerRecord,
    RemoveTopicRecord, TopicRecord, UnregisterBrokerRecord, VotersRecord,
};
use ottla_protocol::record::ControlKind;
use ottla_protocol::{DecodeError, EncodeError, KeyedMessage, Message, Reader, Uuid, Writer};

use super::metadata::{
    BrokerChange, BrokerRegistration, Endpoint, Feature, MetadataRecord, PartitionChange,
    PartitionState, Resource,
};

/// The frame version in front of every value.
const FRAME_VERSION: u32 = 1;

/// `PartitionChangeRecord.Leader`: as it was.
const SAME_LEADER: i32 = -2;

/// A record that cannot be read, or that a broker must not pass over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadMetadata {
    /// A record without a value.
    Empty,
    /// A frame of another version.
    Frame(u32),
    /// A type whose meaning this broker does not know: it cannot tell what it would miss.
    Type(u32),
    /// A version that does not exist.
    Version(u32),
    /// A broken body.
    Decode(DecodeError),
}

impl fmt::Display for BadMetadata {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => out.write_str("a metadata record has no value"),
            Self::Frame(version) => write!(out, "a metadata record has frame version {version}"),
            Self::Type(kind) => {
                write!(out, "metadata records of type {kind} are not known to this broker")
            }
            Self::Version(version) => write!(out, "a metadata record has version {version}"),
            Self::Decode(error) => write!(out, "a metadata record: {error}"),
        }
    }
}

impl std::error::Error for BadMetadata {}

impl From<DecodeError> for BadMetadata {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// The form of the quorum that keeps its voters in the log (KIP-853).
pub(crate) const KRAFT_VERSION: i16 = 1;

/// The control records that a quorum of one opens an epoch with: who leads, and, in the first
/// epoch, who votes.
pub(crate) fn opening_records(
    node_id: i32,
    directory_id: Uuid,
    first_epoch: bool,
) -> Result<Vec<(ControlKind, Vec<u8>)>, EncodeError> {
    let me = || LeaderVoter { voter_id: node_id, voter_directory_id: Uuid::ZERO };
    let leader = LeaderChangeMessage {
        version: 0,
        leader_id: node_id,
        voters: vec![me()],
        granting_voters: vec![me()],
    };
    let mut records = vec![(ControlKind::LeaderChange, control(&leader)?)];
    if first_epoch {
        let version = KRaftVersionRecord { version: 0, kraft_version: KRAFT_VERSION };
        let voter = Voter {
            voter_id: node_id,
            voter_directory_id: directory_id,
            // The one voter listens to no other.
            endpoints: Vec::new(),
            kraft_version_feature: KRaftVersionFeature {
                min_supported_version: 0,
                max_supported_version: KRAFT_VERSION,
            },
        };
        let voters = VotersRecord { version: 0, voters: vec![voter] };
        records.push((ControlKind::KraftVersion, control(&version)?));
        records.push((ControlKind::KraftVoters, control(&voters)?));
    }
    Ok(records)
}

/// The value of a control record; all of ours are of version 0.
fn control<'a, M: Message<'a>>(message: &M) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::new();
    message.encode(&mut writer, 0)?;
    Ok(writer.into_bytes())
}

/// Writes a record's value, in the versions that Kafka 4.4 writes.
pub(crate) fn encode(record: &MetadataRecord) -> Result<Vec<u8>, EncodeError> {
    match record {
        MetadataRecord::RegisterBroker(broker) => encode_broker(broker),
        MetadataRecord::UnregisterBroker { id, epoch } => {
            framed(&UnregisterBrokerRecord { broker_id: *id, broker_epoch: *epoch }, 0)
        }
        MetadataRecord::BrokerChange(change) => encode_broker_change(change),
        MetadataRecord::Topic { name, id } => framed(&TopicRecord { name, topic_id: *id }, 0),
        MetadataRecord::Partition { topic_id, index, state } => {
            let optional = |ids: &Vec<i32>| Some(ids.clone()).filter(|ids| !ids.is_empty());
            let message = PartitionRecord {
                partition_id: *index,
                topic_id: *topic_id,
                replicas: state.replicas.clone(),
                isr: state.isr.clone(),
                removing_replicas: state.removing.clone(),
                adding_replicas: state.adding.clone(),
                leader: state.leader,
                leader_recovery_state: state.recovery,
                leader_epoch: state.leader_epoch,
                partition_epoch: state.epoch,
                directories: state.directories.clone(),
                eligible_leader_replicas: optional(&state.eligible),
                last_known_elr: optional(&state.last_known),
            };
            framed(&message, 2)
        }
        MetadataRecord::PartitionChange(change) => encode_partition_change(change),
        MetadataRecord::RemoveTopic { id } => framed(&RemoveTopicRecord { topic_id: *id }, 0),
        MetadataRecord::Config { resource, name, value } => {
            let message = ConfigRecord {
                resource_type: resource.kind,
                resource_name: &resource.name,
                name,
                value: value.as_deref(),
            };
            framed(&message, 0)
        }
        MetadataRecord::FeatureLevel { name, level } => {
            framed(&FeatureLevelRecord { name, feature_level: *level }, 0)
        }
        MetadataRecord::ProducerIds { broker_id, broker_epoch, next } => {
            let message = ProducerIdsRecord {
                broker_id: *broker_id,
                broker_epoch: *broker_epoch,
                next_producer_id: *next,
            };
            framed(&message, 0)
        }
        MetadataRecord::Passed => framed(&NoOpRecord {}, 0),
    }
}

/// Reads a record's value.
pub(crate) fn decode(value: Option<&[u8]>) -> Result<MetadataRecord, BadMetadata> {
    let mut reader = Reader::new(value.ok_or(BadMetadata::Empty)?);
    let frame = reader.uvarint()?;
    if frame != FRAME_VERSION {
        return Err(BadMetadata::Frame(frame));
    }
    let kind = reader.uvarint()?;
    let version = reader.uvarint()?;
    let version = i16::try_from(version).map_err(|_| BadMetadata::Version(version))?;
    let record = decode_body(kind, &mut reader, version)?;
    reader.finish()?;
    Ok(record)
}

fn decode_body(
    kind: u32,
    reader: &mut Reader<'_>,
    version: i16,
) -> Result<MetadataRecord, BadMetadata> {
    let number = i16::try_from(kind).map_err(|_| BadMetadata::Type(kind))?;
    Ok(match number {
        RegisterBrokerRecord::RECORD_KEY => decode_broker(reader, version)?,
        UnregisterBrokerRecord::RECORD_KEY => {
            let message = UnregisterBrokerRecord::decode(reader, version)?;
            let (id, epoch) = (message.broker_id, message.broker_epoch);
            MetadataRecord::UnregisterBroker { id, epoch }
        }
        BrokerRegistrationChangeRecord::RECORD_KEY => decode_broker_change(reader, version)?,
        TopicRecord::RECORD_KEY => {
            let message = TopicRecord::decode(reader, version)?;
            MetadataRecord::Topic { name: Arc::from(message.name), id: message.topic_id }
        }
        PartitionRecord::RECORD_KEY => decode_partition(reader, version)?,
        PartitionChangeRecord::RECORD_KEY => decode_partition_change(reader, version)?,
        RemoveTopicRecord::RECORD_KEY => {
            let message = RemoveTopicRecord::decode(reader, version)?;
            MetadataRecord::RemoveTopic { id: message.topic_id }
        }
        ConfigRecord::RECORD_KEY => {
            let message = ConfigRecord::decode(reader, version)?;
            let name = Arc::from(message.resource_name);
            MetadataRecord::Config {
                resource: Resource { kind: message.resource_type, name },
                name: Arc::from(message.name),
                value: message.value.map(Arc::from),
            }
        }
        FeatureLevelRecord::RECORD_KEY => {
            let message = FeatureLevelRecord::decode(reader, version)?;
            let (name, level) = (Arc::from(message.name), message.feature_level);
            MetadataRecord::FeatureLevel { name, level }
        }
        ProducerIdsRecord::RECORD_KEY => {
            let message = ProducerIdsRecord::decode(reader, version)?;
            MetadataRecord::ProducerIds {
                broker_id: message.broker_id,
                broker_epoch: message.broker_epoch,
                next: message.next_producer_id,
            }
        }
        NoOpRecord::RECORD_KEY => passed(NoOpRecord::decode(reader, version)?),
        RegisterControllerRecord::RECORD_KEY => {
            passed(RegisterControllerRecord::decode(reader, version)?)
        }
        // Kafka wraps its first records so. The log that is read here is committed to its end, so
        // what is begun is also ended; of an aborted one we would have to leave out all.
        BeginTransactionRecord::RECORD_KEY => {
            passed(BeginTransactionRecord::decode(reader, version)?)
        }
        EndTransactionRecord::RECORD_KEY => passed(EndTransactionRecord::decode(reader, version)?),
        _ => return Err(BadMetadata::Type(kind)),
    })
}

fn passed<T>(_message: T) -> MetadataRecord {
    MetadataRecord::Passed
}

fn framed<'a, M: KeyedMessage<'a>>(message: &M, version: i16) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::new();
    writer.uvarint(FRAME_VERSION);
    writer.uvarint(u32::from(M::RECORD_KEY.unsigned_abs()));
    writer.uvarint(u32::from(version.unsigned_abs()));
    message.encode(&mut writer, version)?;
    Ok(writer.into_bytes())
}

fn encode_broker(broker: &BrokerRegistration) -> Result<Vec<u8>, EncodeError> {
    let endpoints = broker.endpoints.iter().map(|endpoint| BrokerEndpoint {
        name: &endpoint.name,
        host: &endpoint.host,
        port: endpoint.port,
        security_protocol: endpoint.security_protocol,
    });
    let features = broker.features.iter().map(|feature| BrokerFeature {
        name: &feature.name,
        min_supported_version: feature.min,
        max_supported_version: feature.max,
    });
    let message = RegisterBrokerRecord {
        broker_id: broker.id,
        incarnation_id: broker.incarnation,
        broker_epoch: broker.epoch,
        end_points: endpoints.collect(),
        features: features.collect(),
        rack: broker.rack.as_deref(),
        fenced: broker.fenced,
        in_controlled_shutdown: broker.in_controlled_shutdown,
        log_dirs: broker.directories.clone(),
        ..RegisterBrokerRecord::default()
    };
    framed(&message, 4)
}

fn decode_broker(reader: &mut Reader<'_>, version: i16) -> Result<MetadataRecord, DecodeError> {
    let message = RegisterBrokerRecord::decode(reader, version)?;
    let endpoints = message.end_points.iter().map(|endpoint| Endpoint {
        name: Arc::from(endpoint.name),
        host: Arc::from(endpoint.host),
        port: endpoint.port,
        security_protocol: endpoint.security_protocol,
    });
    let features = message.features.iter().map(|feature| Feature {
        name: Arc::from(feature.name),
        min: feature.min_supported_version,
        max: feature.max_supported_version,
    });
    Ok(MetadataRecord::RegisterBroker(BrokerRegistration {
        id: message.broker_id,
        incarnation: message.incarnation_id,
        epoch: message.broker_epoch,
        endpoints: endpoints.collect(),
        features: features.collect(),
        rack: message.rack.map(Arc::from),
        fenced: message.fenced,
        in_controlled_shutdown: message.in_controlled_shutdown,
        directories: message.log_dirs,
    }))
}

/// 1 turns it on, -1 turns it off, 0 leaves it as it is.
fn switch(turned: Option<bool>) -> i8 {
    turned.map_or(0, |on| if on { 1 } else { -1 })
}

fn switched(value: i8) -> Option<bool> {
    (value != 0).then_some(value > 0)
}

fn encode_broker_change(change: &BrokerChange) -> Result<Vec<u8>, EncodeError> {
    let message = BrokerRegistrationChangeRecord {
        broker_id: change.id,
        broker_epoch: change.epoch,
        fenced: switch(change.fenced),
        in_controlled_shutdown: switch(change.in_controlled_shutdown),
        log_dirs: change.directories.clone(),
        ..BrokerRegistrationChangeRecord::default()
    };
    // As Kafka: the lowest version that can say it.
    let stops = change.in_controlled_shutdown.is_some();
    let version = if change.directories.is_empty() { i16::from(stops) } else { 2 };
    framed(&message, version)
}

fn decode_broker_change(
    reader: &mut Reader<'_>,
    version: i16,
) -> Result<MetadataRecord, DecodeError> {
    let message = BrokerRegistrationChangeRecord::decode(reader, version)?;
    Ok(MetadataRecord::BrokerChange(BrokerChange {
        id: message.broker_id,
        epoch: message.broker_epoch,
        fenced: switched(message.fenced),
        in_controlled_shutdown: switched(message.in_controlled_shutdown),
        directories: message.log_dirs,
    }))
}

fn decode_partition(reader: &mut Reader<'_>, version: i16) -> Result<MetadataRecord, DecodeError> {
    let message = PartitionRecord::decode(reader, version)?;
    Ok(MetadataRecord::Partition {
        topic_id: message.topic_id,
        index: message.partition_id,
        state: PartitionState {
            replicas: message.replicas,
            isr: message.isr,
            removing: message.removing_replicas,
            adding: message.adding_replicas,
            leader: message.leader,
            recovery: message.leader_recovery_state,
            leader_epoch: message.leader_epoch,
            epoch: message.partition_epoch,
            directories: message.directories,
            eligible: message.eligible_leader_replicas.unwrap_or_default(),
            last_known: message.last_known_elr.unwrap_or_default(),
        },
    })
}

fn encode_partition_change(change: &PartitionChange) -> Result<Vec<u8>, EncodeError> {
    let message = PartitionChangeRecord {
        partition_id: change.index,
        topic_id: change.topic_id,
        isr: change.isr.clone(),
        leader: change.leader.unwrap_or(SAME_LEADER),
        replicas: change.replicas.clone(),
        removing_replicas: change.removing.clone(),
        adding_replicas: change.adding.clone(),
        leader_recovery_state: change.recovery.unwrap_or(-1),
        directories: change.directories.clone(),
        eligible_leader_replicas: change.eligible.clone(),
        last_known_elr: change.last_known.clone(),
    };
    framed(&message, 2)
}

fn decode_partition_change(
    reader: &mut Reader<'_>,
    version: i16,
) -> Result<MetadataRecord, DecodeError> {
    let message = PartitionChangeRecord::decode(reader, version)?;
    Ok(MetadataRecord::PartitionChange(PartitionChange {
        topic_id: message.topic_id,
        index: message.partition_id,
        isr: message.isr,
        leader: Some(message.leader).filter(|leader| *leader != SAME_LEADER),
        replicas: message.replicas,
        removing: message.removing_replicas,
        adding: message.adding_replicas,
        recovery: Some(message.leader_recovery_state).filter(|state| *state >= 0),
        directories: message.directories,
        eligible: message.eligible_leader_replicas,
        last_known: message.last_known_elr,
    }))
}
