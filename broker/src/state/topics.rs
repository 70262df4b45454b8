//! Creating and deleting topics: what is allowed, and the records that do it.
//!
//! The rules are those of Kafka's `ReplicationControlManager` and `Topic.validate`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ottla_protocol::{ErrorCode, Uuid};

use super::metadata::{Image, MetadataRecord, PartitionState, Resource, TopicState};

/// Longest name of a topic: with index and suffixes it must still be a folder's name.
const NAME_MAX: usize = 249;

/// Most partitions that the topics of one request may have together.
///
/// Kafka: `ReplicationControlManager.MAX_PARTITIONS_PER_BATCH`.
const PARTITIONS_MAX: usize = 10_000;

/// The names that the broker uses itself.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";
const METADATA_TOPIC: &str = "__cluster_metadata";

/// Why a topic is not created or not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Kafka's error code.
    pub(crate) code: ErrorCode,
    /// The reason, for a person.
    pub(crate) message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.message, self.code.name())
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// A refusal with its reason.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// A topic that is to be created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TopicRequest {
    /// Its name.
    pub(crate) name: String,
    /// How many partitions; -1: the broker's default.
    pub(crate) partitions: i32,
    /// How many copies of each; -1: the broker's default.
    pub(crate) replication_factor: i16,
    /// Which brokers hold each partition, if the client wants to say so.
    pub(crate) assignments: Vec<(i32, Vec<i32>)>,
    /// Its own options.
    pub(crate) configs: Vec<(String, Option<String>)>,
}

/// What a new topic has where its request does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopicDefaults {
    /// Kafka: `num.partitions`.
    pub(crate) partitions: i32,
    /// Kafka: `default.replication.factor`.
    pub(crate) replication_factor: i16,
    /// How many partitions all topics may have together: `max.partitions`.
    pub(crate) partitions_in_all: usize,
}

/// An error if topics that are asked for together have more partitions than one request may ask
/// for. Kafka: `ReplicationControlManager.validateTotalNumberOfPartitions`.
pub(crate) fn check_request(
    requests: &[TopicRequest],
    defaults: TopicDefaults,
) -> Result<(), Refusal> {
    let partitions = requests.iter().map(|request| match request.partitions {
        -1 if request.assignments.is_empty() => usize::try_from(defaults.partitions).unwrap_or(0),
        -1 => request.assignments.len(),
        asked => usize::try_from(asked).unwrap_or(0),
    });
    let partitions = partitions.fold(0, usize::saturating_add);
    if partitions <= PARTITIONS_MAX {
        return Ok(());
    }
    let message = format!(
        "the topics of this request have {partitions} partitions together; one request may ask for \
         {PARTITIONS_MAX}"
    );
    Err(Refusal::new(ErrorCode::POLICY_VIOLATION, message))
}

/// A topic that can be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Creation {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Its id.
    pub(crate) id: Uuid,
    /// How many partitions it will have.
    pub(crate) partitions: i32,
    /// How many copies of each.
    pub(crate) replication_factor: i16,
    /// What does it.
    pub(crate) records: Vec<MetadataRecord>,
}

/// Judges a topic's options, given as name and value; says what is wrong with them.
pub(crate) type CheckOptions<'a> = dyn Fn(&[(&str, &str)]) -> Result<(), String> + 'a;

/// Decides whether a topic can be created.
///
/// `id` is a fresh one.
pub(crate) fn create(
    image: &Image,
    request: &TopicRequest,
    defaults: TopicDefaults,
    id: Uuid,
    check: &CheckOptions<'_>,
) -> Result<Creation, Refusal> {
    check_name(&request.name)?;
    check_own_name(image, &request.name)?;
    if image.topic(&request.name).is_some() {
        let message = format!("topic {:?} already exists", request.name);
        return Err(Refusal::new(ErrorCode::TOPIC_ALREADY_EXISTS, message));
    }
    check_collision(image, &request.name)?;
    let placed = if request.assignments.is_empty() {
        place(image, request, defaults)?
    } else {
        placed_by_hand(image, request)?
    };
    check_room(image, placed.len(), defaults.partitions_in_all)?;
    let copies = placed.first().map_or(0, Vec::len);
    let configs = check_configs(request, check)?;
    let name: Arc<str> = Arc::from(request.name.as_str());
    let mut records = vec![MetadataRecord::Topic { name: name.clone(), id }];
    // As Kafka: the options stand before the partitions, so that these begin with them.
    records.extend(configs.into_iter().map(|(option, value)| MetadataRecord::Config {
        resource: Resource::topic(&name),
        name: Arc::from(option),
        value: Some(Arc::from(value)),
    }));
    let partitions = i32::try_from(placed.len()).unwrap_or(i32::MAX);
    for (index, replicas) in (0..partitions).zip(placed) {
        let state = new_partition(image, replicas);
        records.push(MetadataRecord::Partition { topic_id: id, index, state });
    }
    let replication_factor = i16::try_from(copies).unwrap_or(i16::MAX);
    Ok(Creation { name, id, partitions, replication_factor, records })
}

/// Every partition costs memory and files, so there is a limit for all of them.
pub(crate) fn check_room(image: &Image, more: usize, in_all: usize) -> Result<(), Refusal> {
    let there = image.partitions();
    if there.saturating_add(more) <= in_all {
        return Ok(());
    }
    let message = format!(
        "{more} more partitions beside the {there} that there are would be above the broker's \
         option max.partitions, which is {in_all}"
    );
    Err(Refusal::new(ErrorCode::POLICY_VIOLATION, message))
}

/// The records that create the offsets topic: `copies` are at most as many as there are brokers,
/// so that a lone broker never waits for others.
pub(crate) fn create_offsets_topic(
    image: &Image,
    partitions: i32,
    copies: i16,
    segment_bytes: i64,
    id: Uuid,
) -> Result<Creation, Refusal> {
    let name: Arc<str> = Arc::from(OFFSETS_TOPIC);
    let live: Vec<i32> = image.live_brokers().map(|broker| broker.id).collect();
    let copies = usize::try_from(copies).unwrap_or(1).clamp(1, live.len().max(1));
    let option = |option: &str, value: String| MetadataRecord::Config {
        resource: Resource::topic(&name),
        name: Arc::from(option),
        value: Some(Arc::from(value)),
    };
    if live.is_empty() {
        return Err(Refusal::new(ErrorCode::BROKER_NOT_AVAILABLE, "no broker is registered"));
    }
    let mut records = vec![
        MetadataRecord::Topic { name: name.clone(), id },
        option("compression.type", "producer".to_owned()),
        option("cleanup.policy", "compact".to_owned()),
        option("segment.bytes", segment_bytes.to_string()),
    ];
    for index in 0..partitions {
        let state = new_partition(image, striped(&live, index, copies));
        records.push(MetadataRecord::Partition { topic_id: id, index, state });
    }
    let replication_factor = i16::try_from(copies).unwrap_or(i16::MAX);
    Ok(Creation { name, id, partitions, replication_factor, records })
}

/// A topic that is to have more partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Its name.
    pub(crate) name: String,
    /// How many it is to have.
    pub(crate) count: i32,
    /// Which brokers hold each of the new ones, if the client wants to say so.
    pub(crate) assignments: Option<Vec<Vec<i32>>>,
}

/// Decides whether a topic can have more partitions.
///
/// Kafka: `ReplicationControlManager.createPartitions`.
pub(crate) fn grow(
    image: &Image,
    request: &Growth,
    in_all: usize,
) -> Result<Vec<MetadataRecord>, Refusal> {
    let topic = delete(image, &TopicKey::Name(request.name.clone()))?;
    let there = topic.partitions.len();
    let wanted = usize::try_from(request.count).unwrap_or(0);
    let invalid = |message| Err(Refusal::new(ErrorCode::INVALID_PARTITIONS, message));
    if wanted <= there {
        return invalid(format!(
            "topic {:?} has {there} partitions, and {} would be no more",
            request.name, request.count
        ));
    }
    let more = wanted - there;
    if more > PARTITIONS_MAX {
        return invalid(format!("a request asks for at most {PARTITIONS_MAX} partitions"));
    }
    check_room(image, more, in_all)?;
    let copies = topic.partitions.values().map(|state| state.replicas.len()).max().unwrap_or(1);
    let first = i32::try_from(there).unwrap_or(i32::MAX);
    let placed: Vec<Vec<i32>> = if let Some(by_hand) = &request.assignments {
        check_growth_by_hand(image, (first, more, copies), by_hand)?;
        by_hand.clone()
    } else {
        let live: Vec<i32> = image.live_brokers().map(|broker| broker.id).collect();
        if copies > live.len() {
            let message = format!("{copies} replicas cannot be placed: {} live", live.len());
            return Err(Refusal::new(ErrorCode::INVALID_REPLICATION_FACTOR, message));
        }
        (first..request.count).map(|index| striped(&live, index, copies)).collect()
    };
    let records = (first..).zip(placed).map(|(index, replicas)| {
        let state = new_partition(image, replicas);
        MetadataRecord::Partition { topic_id: topic.id, index, state }
    });
    Ok(records.collect())
}

fn check_growth_by_hand(
    image: &Image,
    (first, more, copies): (i32, usize, usize),
    by_hand: &[Vec<i32>],
) -> Result<(), Refusal> {
    let wrong = |message| Refusal::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message);
    if by_hand.len() != more {
        let given = by_hand.len();
        return Err(wrong(format!("{more} partitions are to come, and {given} are assigned")));
    }
    for (index, replicas) in (first..).zip(by_hand) {
        check_replicas(image, index, replicas).map_err(wrong)?;
        if replicas.len() != copies {
            return Err(wrong(format!("partition {index}: the topic has {copies} replicas each")));
        }
    }
    Ok(())
}

/// Which topic is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TopicKey {
    /// By its name.
    Name(String),
    /// By its id.
    Id(Uuid),
}

/// Decides whether a topic can be deleted.
pub(crate) fn delete(image: &Image, key: &TopicKey) -> Result<Arc<TopicState>, Refusal> {
    let topic = match key {
        TopicKey::Name(name) => image.topic(name).ok_or_else(|| {
            let message = format!("there is no topic {name:?}");
            Refusal::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message)
        }),
        TopicKey::Id(id) => image.topic_of_id(*id).ok_or_else(|| {
            let message = format!("there is no topic with the id {id}");
            Refusal::new(ErrorCode::UNKNOWN_TOPIC_ID, message)
        }),
    }?;
    if *topic.name == *OFFSETS_TOPIC {
        let message = format!("{OFFSETS_TOPIC} holds the groups' offsets and stays");
        return Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    Ok(topic.clone())
}

/// Whether a topic may have this name. Kafka: `Topic.validate`.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let reason = if name.is_empty() {
        "a topic's name cannot be empty".to_owned()
    } else if name == "." || name == ".." {
        format!("a topic cannot be called {name:?}")
    } else if name.len() > NAME_MAX {
        format!("a topic's name has at most {NAME_MAX} characters, not {}", name.len())
    } else if let Some(other) = name.chars().find(|c| !allowed(*c)) {
        format!("a topic's name has only ASCII letters, digits, '.', '_' and '-', not {other:?}")
    } else {
        return Ok(());
    };
    Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, reason))
}

/// Names that the broker gives topics itself; one of them that is there is refused as any other.
fn check_own_name(image: &Image, name: &str) -> Result<(), Refusal> {
    let code = match name {
        METADATA_TOPIC => ErrorCode::INVALID_REQUEST,
        OFFSETS_TOPIC if image.topic(name).is_none() => ErrorCode::INVALID_TOPIC_EXCEPTION,
        _ => return Ok(()),
    };
    Err(Refusal::new(code, format!("{name} is made by the broker itself when it is needed")))
}

/// Metrics write `.` as `_`, so two names that differ in that alone would be mixed up.
fn check_collision(image: &Image, name: &str) -> Result<(), Refusal> {
    let Some(other) = image.alike_in_metrics(name) else { return Ok(()) };
    let message =
        format!("topic {name:?} collides with {other:?}: in metrics '.' and '_' are the same");
    Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message))
}

/// The brokers of each partition, striped over those that are live.
fn place(
    image: &Image,
    request: &TopicRequest,
    defaults: TopicDefaults,
) -> Result<Vec<Vec<i32>>, Refusal> {
    let partitions = match request.partitions {
        -1 => defaults.partitions,
        asked => asked,
    };
    let count = usize::try_from(partitions).unwrap_or(0);
    if count == 0 || count > PARTITIONS_MAX {
        let message =
            format!("a topic has 1 to {PARTITIONS_MAX} partitions, not {partitions}; -1: default");
        return Err(Refusal::new(ErrorCode::INVALID_PARTITIONS, message));
    }
    let factor = match request.replication_factor {
        -1 => defaults.replication_factor,
        asked => asked,
    };
    let live: Vec<i32> = image.live_brokers().map(|broker| broker.id).collect();
    let copies = usize::try_from(factor).unwrap_or(0);
    if copies == 0 {
        let message = format!("the replication factor is at least 1, not {factor}; -1: default");
        return Err(Refusal::new(ErrorCode::INVALID_REPLICATION_FACTOR, message));
    }
    if copies > live.len() {
        let option = if request.replication_factor == -1 {
            " (the broker's option default.replication.factor)"
        } else {
            ""
        };
        let message = format!(
            "replication factor {factor}{option} cannot be reached: {} broker(s) are live",
            live.len()
        );
        return Err(Refusal::new(ErrorCode::INVALID_REPLICATION_FACTOR, message));
    }
    Ok((0..partitions).map(|index| striped(&live, index, copies)).collect())
}

/// `copies` brokers, beginning with another one for each partition.
fn striped(live: &[i32], index: i32, copies: usize) -> Vec<i32> {
    let start = usize::try_from(index).unwrap_or(0).checked_rem(live.len()).unwrap_or(0);
    live.iter().cycle().skip(start).take(copies).copied().collect()
}

/// The brokers of each partition as the client wants them.
fn placed_by_hand(image: &Image, request: &TopicRequest) -> Result<Vec<Vec<i32>>, Refusal> {
    let invalid = |message: &str| Refusal::new(ErrorCode::INVALID_REQUEST, message);
    if request.replication_factor != -1 {
        return Err(invalid("with an assignment by hand the replication factor must be -1"));
    }
    if request.partitions != -1 {
        return Err(invalid("with an assignment by hand the number of partitions must be -1"));
    }
    let wrong = |message| Refusal::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message);
    let mut by_index = BTreeMap::new();
    for (index, replicas) in &request.assignments {
        check_replicas(image, *index, replicas).map_err(wrong)?;
        if by_index.insert(*index, replicas.clone()).is_some() {
            return Err(wrong(format!("partition {index} is assigned twice")));
        }
    }
    let count = i32::try_from(by_index.len()).unwrap_or(i32::MAX);
    if by_index.len() > PARTITIONS_MAX {
        let message = format!("a topic has at most {PARTITIONS_MAX} partitions, not {count}");
        return Err(Refusal::new(ErrorCode::INVALID_PARTITIONS, message));
    }
    if !by_index.keys().copied().eq(0..count) {
        return Err(wrong("the partitions must be numbered from 0 without gaps".to_owned()));
    }
    let placed: Vec<_> = by_index.into_values().collect();
    let copies = placed.first().map_or(0, Vec::len);
    if placed.iter().any(|replicas| replicas.len() != copies) {
        return Err(wrong("all partitions must have the same number of replicas".to_owned()));
    }
    Ok(placed)
}

fn check_replicas(image: &Image, index: i32, replicas: &[i32]) -> Result<(), String> {
    if replicas.is_empty() {
        return Err(format!("partition {index} has no replica"));
    }
    for (at, replica) in replicas.iter().enumerate() {
        if image.broker(*replica).is_none() {
            return Err(format!("partition {index}: broker {replica} is not registered"));
        }
        if replicas.iter().skip(at + 1).any(|other| other == replica) {
            return Err(format!("partition {index}: broker {replica} stands there twice"));
        }
    }
    Ok(())
}

fn check_configs<'a>(
    request: &'a TopicRequest,
    check: &CheckOptions<'_>,
) -> Result<BTreeMap<&'a str, &'a str>, Refusal> {
    let invalid = |message| Refusal::new(ErrorCode::INVALID_CONFIG, message);
    let mut configs = BTreeMap::new();
    for (name, value) in &request.configs {
        let Some(value) = value else {
            return Err(invalid(format!("the option {name:?} has no value")));
        };
        if configs.insert(name.as_str(), value.as_str()).is_some() {
            return Err(invalid(format!("the option {name:?} is set twice")));
        }
    }
    let own: Vec<_> = configs.iter().map(|(name, value)| (*name, *value)).collect();
    check(&own).map_err(invalid)?;
    Ok(configs)
}

/// A partition at its beginning: all replicas are in sync, since there is nothing to know.
fn new_partition(image: &Image, replicas: Vec<i32>) -> PartitionState {
    let directory = |id: &i32| {
        let broker = image.broker(*id);
        broker.and_then(|broker| broker.directories.first().copied()).unwrap_or(Uuid::ZERO)
    };
    let live = |id: &&i32| image.live_brokers().any(|broker| broker.id == **id);
    let isr: Vec<i32> = replicas.iter().filter(live).copied().collect();
    PartitionState {
        directories: replicas.iter().map(directory).collect(),
        leader: isr.first().copied().unwrap_or(-1),
        isr,
        replicas,
        removing: Vec::new(),
        adding: Vec::new(),
        recovery: 0,
        leader_epoch: 0,
        epoch: 0,
        eligible: Vec::new(),
        last_known: Vec::new(),
    }
}
