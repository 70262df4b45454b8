//! The records of `__consumer_offsets` in Kafka's form: a key that tells the kind, and a value with
//! its version in front.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::messages::group_metadata_value::MemberMetadata;
use ottla_protocol::messages::{
    ConsumerProtocolSubscription, GroupMetadataKey, GroupMetadataValue, OffsetCommitKey,
    OffsetCommitValue,
};
use ottla_protocol::{DecodeError, EncodeError, KeyedMessage, Message, Reader, Writer};

use super::group::{GroupValue, MemberValue};
use super::groups::GroupRecord;
use super::offsets::{Committed, PartitionName};

/// The kind of an offset's key before Kafka 0.9; the same fields.
const OLD_OFFSET_KEY: i16 = 0;

/// The version of a group's value that Kafka 4 writes; 4 exists but only tools write it.
const GROUP_VALUE_VERSION: i16 = 3;

/// The version of an offset's value that Kafka writes since 4.1.
const OFFSET_VALUE_VERSION: i16 = 4;

/// The only version that has a time of the client's own at which the offset goes.
const EXPIRING_OFFSET_VALUE_VERSION: i16 = 1;

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadRecord {
    /// No key, or one of a kind that this log does not hold.
    Key,
    /// Broken key or value.
    Decode(DecodeError),
}

impl fmt::Display for BadRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => out.write_str("a record of an offsets partition has no readable key"),
            Self::Decode(error) => write!(out, "a record of an offsets partition: {error}"),
        }
    }
}

impl std::error::Error for BadRecord {}

impl From<DecodeError> for BadRecord {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// A record's key and value as they are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawRecord {
    /// The key.
    pub(crate) key: Vec<u8>,
    /// The value; none removes what the key names.
    pub(crate) value: Option<Vec<u8>>,
}

/// Writes a record; an error if a text is too long for the format.
pub(crate) fn encode(record: &GroupRecord) -> Result<RawRecord, EncodeError> {
    match record {
        GroupRecord::Group { group, value } => {
            let key = keyed(&GroupMetadataKey { group })?;
            let value = value.as_ref().map(encode_group).transpose()?;
            Ok(RawRecord { key, value })
        }
        GroupRecord::Offset { group, partition, value } => {
            let key =
                OffsetCommitKey { group, topic: &partition.topic, partition: partition.index };
            let value = value.as_ref().map(encode_offset).transpose()?;
            Ok(RawRecord { key: keyed(&key)?, value })
        }
    }
}

/// Reads a record; none if its kind is one that we have no use for.
pub(crate) fn decode(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Result<Option<GroupRecord>, BadRecord> {
    let mut reader = Reader::new(key.ok_or(BadRecord::Key)?);
    let kind = reader.i16()?;
    match kind {
        OLD_OFFSET_KEY | OffsetCommitKey::RECORD_KEY => {
            let key = OffsetCommitKey::decode(&mut reader, 0)?;
            let partition = PartitionName { topic: Arc::from(key.topic), index: key.partition };
            let value = value.map(decode_offset).transpose()?;
            Ok(Some(GroupRecord::Offset { group: Arc::from(key.group), partition, value }))
        }
        GroupMetadataKey::RECORD_KEY => {
            let key = GroupMetadataKey::decode(&mut reader, 0)?;
            let value = value.map(decode_group).transpose()?;
            Ok(Some(GroupRecord::Group { group: Arc::from(key.group), value }))
        }
        kind if kind < 0 => Err(BadRecord::Key),
        _ => Ok(None),
    }
}

/// The topics that a consumer's metadata names; none if it is not of the consumer protocol.
pub(crate) fn subscribed_topics(subscription: &[u8]) -> Option<Vec<Arc<str>>> {
    let mut reader = Reader::new(subscription);
    let version = reader.i16().ok()?;
    if version < 0 {
        return None;
    }
    // Later versions only append fields, and are read as the latest known.
    let known = version.min(*ConsumerProtocolSubscription::VERSIONS.end());
    let subscription = ConsumerProtocolSubscription::decode(&mut reader, known).ok()?;
    Some(subscription.topics.into_iter().map(Arc::from).collect())
}

/// A key: the kind, then the fields.
fn keyed<'a, K: KeyedMessage<'a>>(key: &K) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::new();
    writer.i16(K::RECORD_KEY);
    key.encode(&mut writer, 0)?;
    Ok(writer.into_bytes())
}

/// A value: its version, then the fields.
fn versioned<'a, V: Message<'a>>(value: &V, version: i16) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::new();
    writer.i16(version);
    value.encode(&mut writer, version)?;
    Ok(writer.into_bytes())
}

fn encode_group(value: &GroupValue) -> Result<Vec<u8>, EncodeError> {
    let members = value.members.iter().map(|member| MemberMetadata {
        member_id: &member.id,
        group_instance_id: member.instance_id.as_deref(),
        client_id: &member.client_id,
        client_host: &member.client_host,
        rebalance_timeout: member.rebalance_timeout_ms,
        session_timeout: member.session_timeout_ms,
        subscription: &member.subscription,
        assignment: &member.assignment,
    });
    let message = GroupMetadataValue {
        protocol_type: &value.protocol_type,
        generation: value.generation,
        protocol: value.protocol.as_deref(),
        leader: value.leader.as_deref(),
        current_state_timestamp: value.state_ms,
        members: members.collect(),
    };
    versioned(&message, GROUP_VALUE_VERSION)
}

fn decode_group(bytes: &[u8]) -> Result<GroupValue, BadRecord> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16()?;
    let value = GroupMetadataValue::decode(&mut reader, version)?;
    let members = value.members.into_iter().map(|member| MemberValue {
        id: Arc::from(member.member_id),
        instance_id: member.group_instance_id.map(Arc::from),
        client_id: Arc::from(member.client_id),
        client_host: Arc::from(member.client_host),
        // Version 0 has one timeout for both.
        rebalance_timeout_ms: if member.rebalance_timeout < 0 {
            member.session_timeout
        } else {
            member.rebalance_timeout
        },
        session_timeout_ms: member.session_timeout,
        subscription: Bytes::copy_from_slice(member.subscription),
        assignment: Bytes::copy_from_slice(member.assignment),
    });
    Ok(GroupValue {
        protocol_type: Arc::from(value.protocol_type),
        generation: value.generation,
        protocol: value.protocol.map(Arc::from),
        leader: value.leader.map(Arc::from),
        state_ms: value.current_state_timestamp,
        members: members.collect(),
    })
}

fn encode_offset(value: &Committed) -> Result<Vec<u8>, EncodeError> {
    let message = OffsetCommitValue {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: &value.metadata,
        commit_timestamp: value.commit_ms,
        expire_timestamp: value.expire_ms.unwrap_or(-1),
        topic_id: value.topic_id,
    };
    let expires = value.expire_ms.is_some();
    let version = if expires { EXPIRING_OFFSET_VALUE_VERSION } else { OFFSET_VALUE_VERSION };
    versioned(&message, version)
}

fn decode_offset(bytes: &[u8]) -> Result<Committed, BadRecord> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16()?;
    let value = OffsetCommitValue::decode(&mut reader, version)?;
    Ok(Committed {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: Arc::from(value.metadata),
        commit_ms: value.commit_timestamp,
        expire_ms: Some(value.expire_timestamp).filter(|at| *at >= 0),
        topic_id: value.topic_id,
    })
}
