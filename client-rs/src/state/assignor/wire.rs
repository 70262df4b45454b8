//! Subscriptions and assignments as the bytes that a group's coordinator passes on unread.

use std::sync::Arc;

use ottla_protocol::messages::consumer_protocol_assignment::TopicPartition as AssignedTopic;
use ottla_protocol::messages::consumer_protocol_subscription::TopicPartition as OwnedTopic;
use ottla_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use ottla_protocol::{DecodeError, EncodeError, Message, Reader, Writer};

use super::{Basis, NO_GENERATION, Share, Strategy};
use crate::record::TopicPartition;

/// Newest version of both schemas.
const VERSION: i16 = 3;
/// Fewest bytes of a topic with its partitions: two lengths.
const TOPIC_MIN: usize = 6;

/// What a member tells of itself, to be joined with under one strategy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subscription<'a> {
    pub(crate) topics: &'a [Arc<str>],
    /// What it goes on reading while it joins, sorted.
    pub(crate) owned: &'a [TopicPartition],
    /// The generation it is in; [`NO_GENERATION`] if none.
    pub(crate) generation: i32,
    /// What it was assigned last, sorted, and in which generation.
    pub(crate) assigned: &'a [TopicPartition],
    pub(crate) assigned_in: i32,
    /// Where it stands, if that is known: a leader that minds racks reads it (KIP-881).
    pub(crate) rack: Option<&'a str>,
}

/// What the leader reads in a member's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) topics: Vec<Arc<str>>,
    pub(crate) owned: Vec<TopicPartition>,
    pub(crate) generation: i32,
    pub(crate) rack: Option<String>,
}

/// The metadata a member joins with.
pub(crate) fn encode_subscription(
    strategy: Strategy,
    told: &Subscription<'_>,
) -> Result<Vec<u8>, EncodeError> {
    let user_data = match strategy {
        Strategy::Range | Strategy::RoundRobin => None,
        // Nothing was assigned yet, and so Kafka's assignor has nothing to say either.
        Strategy::Sticky if told.assigned_in == NO_GENERATION => None,
        Strategy::Sticky => Some(sticky_data(told)?),
        Strategy::CooperativeSticky => Some(told.assigned_in.to_be_bytes().to_vec()),
    };
    let owned = by_topic(told.owned);
    let owned = owned.into_iter().map(|(topic, partitions)| OwnedTopic { topic, partitions });
    encode(&ConsumerProtocolSubscription {
        topics: told.topics.iter().map(|topic| &**topic).collect(),
        user_data: user_data.as_deref(),
        owned_partitions: owned.collect(),
        generation_id: told.generation,
        rack_id: told.rack,
    })
}

/// What the `sticky` strategy alone says, in the form of Kafka's `StickyAssignor`.
fn sticky_data(told: &Subscription<'_>) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::new();
    let form = ottla_protocol::Form::Classic;
    writer.array_as(form, &by_topic(told.assigned), |writer, (topic, partitions)| {
        writer.string(topic)?;
        writer.array_as(form, partitions, |writer, &partition| {
            writer.i32(partition);
            Ok(())
        })
    })?;
    writer.i32(told.assigned_in);
    Ok(writer.into_bytes())
}

/// What a member's metadata say under a strategy, of whichever version it wrote.
pub(crate) fn decode_subscription(strategy: Strategy, bytes: &[u8]) -> Result<Told, DecodeError> {
    let message: ConsumerProtocolSubscription<'_> = decode(bytes)?;
    let topics = message.topics.iter().map(|topic| Arc::from(*topic)).collect();
    let user_data = message.user_data.unwrap_or_default();
    let (owned, generation) = match strategy {
        Strategy::Range | Strategy::RoundRobin => (Vec::new(), NO_GENERATION),
        // An eager member has given all up by now: only its user data tell what it had. What
        // cannot be read there costs moves, and no more.
        Strategy::Sticky => {
            read_sticky_data(user_data).unwrap_or_else(|_| (Vec::new(), NO_GENERATION))
        }
        Strategy::CooperativeSticky => {
            let owned = message.owned_partitions.iter();
            let owned = owned.flat_map(|topic| partitions(topic.topic, &topic.partitions));
            // Members of before version 2 tell their generation in the user data.
            let told = <[u8; 4]>::try_from(user_data).map_or(NO_GENERATION, i32::from_be_bytes);
            let generation = if message.generation_id >= 0 { message.generation_id } else { told };
            (owned.collect(), generation)
        }
    };
    let rack = message.rack_id.filter(|rack| !rack.is_empty()).map(str::to_owned);
    Ok(Told { topics, owned, generation, rack })
}

fn read_sticky_data(bytes: &[u8]) -> Result<(Vec<TopicPartition>, i32), DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut owned = Vec::new();
    for _ in 0..reader.array_len(TOPIC_MIN)?.unwrap_or(0) {
        let topic = reader.string()?;
        let numbers = reader.array_as(ottla_protocol::Form::Classic, 4, Reader::i32)?;
        owned.extend(partitions(topic, &numbers));
    }
    // The first version of the form ends here.
    let generation = if reader.remaining() == 0 { NO_GENERATION } else { reader.i32()? };
    Ok((owned, generation))
}

/// A share as the leader sends it.
pub(crate) fn encode_assignment(share: &Share) -> Result<Vec<u8>, EncodeError> {
    let assigned_partitions = share
        .topics
        .iter()
        .map(|(topic, partitions)| AssignedTopic { topic, partitions: partitions.clone() })
        .collect();
    let user_data = share.basis.map(Basis::to_bytes);
    encode(&ConsumerProtocolAssignment { assigned_partitions, user_data: user_data.as_deref() })
}

/// What a member reads in its share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Assigned {
    /// Sorted.
    pub(crate) partitions: Vec<TopicPartition>,
    /// Nothing for a dynamic member, or from a leader of another kind.
    pub(crate) basis: Option<Basis>,
}

/// The partitions in an assignment, and by what it was made; no bytes are no partitions.
pub(crate) fn decode_assignment(bytes: &[u8]) -> Result<Assigned, DecodeError> {
    if bytes.is_empty() {
        return Ok(Assigned::default());
    }
    let message: ConsumerProtocolAssignment<'_> = decode(bytes)?;
    let assigned = message.assigned_partitions.iter();
    let mut found: Vec<_> =
        assigned.flat_map(|topic| partitions(topic.topic, &topic.partitions)).collect();
    found.sort();
    found.dedup();
    let basis = message.user_data.and_then(Basis::from_bytes);
    Ok(Assigned { partitions: found, basis })
}

fn partitions(topic: &str, numbers: &[i32]) -> impl Iterator<Item = TopicPartition> {
    let topic: Arc<str> = Arc::from(topic);
    let valid = numbers.iter().filter(|&&number| number >= 0);
    valid.map(move |&partition| TopicPartition { topic: Arc::clone(&topic), partition })
}

fn by_topic(sorted: &[TopicPartition]) -> Vec<(&str, Vec<i32>)> {
    let of_topic = sorted.chunk_by(|one, other| one.topic == other.topic);
    let rows = of_topic.filter_map(|rows| {
        let numbers = rows.iter().map(|row| row.partition).collect();
        Some((&*rows.first()?.topic, numbers))
    });
    rows.collect()
}

fn encode<'a, M: Message<'a>>(message: &M) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::new();
    writer.i16(VERSION);
    message.encode(&mut writer, VERSION)?;
    Ok(writer.into_bytes())
}

/// A newer version only adds fields at the end, which are left unread (KIP-429).
fn decode<'a, M: Message<'a>>(bytes: &'a [u8]) -> Result<M, DecodeError> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16()?;
    M::decode(&mut reader, version.clamp(0, VERSION))
}
