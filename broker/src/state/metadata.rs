//! The cluster's metadata: what the records of `__cluster_metadata` come to.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ottla_protocol::Uuid;

/// One record of the metadata log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MetadataRecord {
    /// A broker has begun a life.
    RegisterBroker(BrokerRegistration),
    /// A broker is gone for good.
    UnregisterBroker {
        /// Which.
        id: i32,
        /// The life that ended.
        epoch: i64,
    },
    /// A broker's registration changed.
    BrokerChange(BrokerChange),
    /// A topic was created; its partitions follow.
    Topic {
        /// Its name.
        name: Arc<str>,
        /// Its id.
        id: Uuid,
    },
    /// A partition was created.
    Partition {
        /// Its topic.
        topic_id: Uuid,
        /// Its index.
        index: i32,
        /// What it begins as.
        state: PartitionState,
    },
    /// A partition changed.
    PartitionChange(PartitionChange),
    /// A topic was deleted, with its partitions and its options.
    RemoveTopic {
        /// Which.
        id: Uuid,
    },
    /// An option of a topic, a broker or all of them was set.
    Config {
        /// Whose.
        resource: Resource,
        /// The option.
        name: Arc<str>,
        /// Its value; none: back to the default.
        value: Option<Arc<str>>,
    },
    /// A feature's level was decided; 0 turns it off.
    FeatureLevel {
        /// Its name.
        name: Arc<str>,
        /// The level.
        level: i16,
    },
    /// A block of producer ids was given to a broker.
    ProducerIds {
        /// To which.
        broker_id: i32,
        /// In which of its lives.
        broker_epoch: i64,
        /// The first id that is still free.
        next: i64,
    },
    /// A record that changes nothing for a broker.
    Passed,
}

/// What options belong to. The numbers are Kafka's: 2 topic, 4 broker (empty name: all of them).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    /// The kind.
    pub(crate) kind: i8,
    /// The name.
    pub(crate) name: Arc<str>,
}

impl Resource {
    /// The kind of brokers.
    pub(crate) const BROKER: i8 = 4;

    /// The kind of topics.
    pub(crate) const TOPIC: i8 = 2;

    /// A broker, by its id; none: all of them.
    pub(crate) fn broker(id: Option<i32>) -> Self {
        let name = id.map_or_else(String::new, |id| id.to_string());
        Self { kind: Self::BROKER, name: Arc::from(name) }
    }

    /// A topic.
    pub(crate) fn topic(name: &Arc<str>) -> Self {
        Self { kind: Self::TOPIC, name: name.clone() }
    }
}

/// A broker, in one of its lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerRegistration {
    /// Its id.
    pub(crate) id: i32,
    /// Made new for each life.
    pub(crate) incarnation: Uuid,
    /// The offset of its registration: tells its lives apart.
    pub(crate) epoch: i64,
    /// Where it listens.
    pub(crate) endpoints: Vec<Endpoint>,
    /// What it could do.
    pub(crate) features: Vec<Feature>,
    /// Where it stands.
    pub(crate) rack: Option<Arc<str>>,
    /// Whether it must not lead yet.
    pub(crate) fenced: bool,
    /// Whether it is about to stop.
    pub(crate) in_controlled_shutdown: bool,
    /// Its data folders.
    pub(crate) directories: Vec<Uuid>,
}

/// An address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The listener's name.
    pub(crate) name: Arc<str>,
    /// Its host.
    pub(crate) host: Arc<str>,
    /// Its port.
    pub(crate) port: u16,
    /// 0 is plaintext.
    pub(crate) security_protocol: i16,
}

/// Levels of a feature that a broker knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Feature {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// From.
    pub(crate) min: i16,
    /// To.
    pub(crate) max: i16,
}

/// What changed at a broker; none: as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerChange {
    /// Which.
    pub(crate) id: i32,
    /// In which life.
    pub(crate) epoch: i64,
    /// Whether it must not lead.
    pub(crate) fenced: Option<bool>,
    /// Whether it is about to stop.
    pub(crate) in_controlled_shutdown: Option<bool>,
    /// Its data folders; empty: as they were.
    pub(crate) directories: Vec<Uuid>,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionState {
    /// The brokers that hold it, the preferred leader first.
    pub(crate) replicas: Vec<i32>,
    /// Those in sync.
    pub(crate) isr: Vec<i32>,
    /// Those that are to go.
    pub(crate) removing: Vec<i32>,
    /// Those that are to come.
    pub(crate) adding: Vec<i32>,
    /// The leader; -1 for none.
    pub(crate) leader: i32,
    /// 1 while a leader that lacked records is taken over from.
    pub(crate) recovery: i8,
    /// Rises with every new leader.
    pub(crate) leader_epoch: i32,
    /// Rises with every change.
    pub(crate) epoch: i32,
    /// The data folder of each replica.
    pub(crate) directories: Vec<Uuid>,
    /// Not in sync, but known to have every committed record.
    pub(crate) eligible: Vec<i32>,
    /// Who led last when there was nobody left.
    pub(crate) last_known: Vec<i32>,
}

/// What changed at a partition; none: as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionChange {
    /// Its topic.
    pub(crate) topic_id: Uuid,
    /// Its index.
    pub(crate) index: i32,
    /// The replicas in sync.
    pub(crate) isr: Option<Vec<i32>>,
    /// The leader. Naming one, even the same, begins a new leader epoch.
    pub(crate) leader: Option<i32>,
    /// The brokers that hold it.
    pub(crate) replicas: Option<Vec<i32>>,
    /// Those that are to go.
    pub(crate) removing: Option<Vec<i32>>,
    /// Those that are to come.
    pub(crate) adding: Option<Vec<i32>>,
    /// See [`PartitionState::recovery`].
    pub(crate) recovery: Option<i8>,
    /// The data folder of each replica.
    pub(crate) directories: Option<Vec<Uuid>>,
    /// See [`PartitionState::eligible`].
    pub(crate) eligible: Option<Vec<i32>>,
    /// See [`PartitionState::last_known`].
    pub(crate) last_known: Option<Vec<i32>>,
}

impl PartitionChange {
    /// The change that only begins a new leader epoch.
    pub(crate) fn leader(topic_id: Uuid, index: i32, leader: i32) -> Self {
        Self {
            topic_id,
            index,
            isr: None,
            leader: Some(leader),
            replicas: None,
            removing: None,
            adding: None,
            recovery: None,
            directories: None,
            eligible: None,
            last_known: None,
        }
    }
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicState {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Its id.
    pub(crate) id: Uuid,
    /// Its partitions by index.
    pub(crate) partitions: BTreeMap<i32, PartitionState>,
}

/// The options set for one resource.
pub(crate) type Overrides = BTreeMap<Arc<str>, Arc<str>>;

/// All that the metadata log says. Cheap to clone: what did not change is shared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Image {
    features: BTreeMap<Arc<str>, i16>,
    brokers: BTreeMap<i32, Arc<BrokerRegistration>>,
    topics: BTreeMap<Arc<str>, Arc<TopicState>>,
    names: BTreeMap<Uuid, Arc<str>>,
    configs: BTreeMap<Resource, Arc<Overrides>>,
    next_producer_id: i64,
    /// Partitions of all topics.
    partitions: usize,
    /// Topics with `.` or `_` in their names, by what metrics make of these.
    in_metrics: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

/// A record that does not fit what the log said before: the log is damaged, or not from Kafka.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// It speaks of a topic that is not there.
    Topic(Uuid),
    /// It speaks of a partition that is not there.
    Partition(Uuid, i32),
    /// It speaks of a broker that is not registered.
    Broker(i32),
}

impl fmt::Display for Misfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(id) => write!(out, "the metadata log speaks of an unknown topic id {id}"),
            Self::Partition(id, index) => {
                write!(out, "the metadata log speaks of an unknown partition {index} of topic {id}")
            }
            Self::Broker(id) => write!(out, "the metadata log speaks of an unknown broker {id}"),
        }
    }
}

impl std::error::Error for Misfit {}

impl Image {
    /// The topic of a name.
    pub(crate) fn topic(&self, name: &str) -> Option<&Arc<TopicState>> {
        self.topics.get(name)
    }

    /// The topic of an id.
    pub(crate) fn topic_of_id(&self, id: Uuid) -> Option<&Arc<TopicState>> {
        self.topics.get(self.names.get(&id)?)
    }

    /// All topics by name.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &Arc<TopicState>> {
        self.topics.values()
    }

    /// How many partitions all topics have together.
    pub(crate) fn partitions(&self) -> usize {
        self.partitions
    }

    /// A topic whose name cannot be told from this one in metrics, which write `.` as `_`.
    pub(crate) fn alike_in_metrics(&self, name: &str) -> Option<&Arc<str>> {
        self.in_metrics.get(&*in_metrics(name)?)?.first()
    }

    /// A registered broker.
    pub(crate) fn broker(&self, id: i32) -> Option<&BrokerRegistration> {
        self.brokers.get(&id).map(|broker| &**broker)
    }

    /// The brokers that may lead, by id.
    pub(crate) fn live_brokers(&self) -> impl Iterator<Item = &BrokerRegistration> {
        let live = self.brokers.values().map(|broker| &**broker);
        live.filter(|broker| !broker.fenced && !broker.in_controlled_shutdown)
    }

    /// The options set for a topic.
    pub(crate) fn topic_overrides(&self, name: &Arc<str>) -> Option<&Arc<Overrides>> {
        self.configs.get(&Resource::topic(name))
    }

    /// The options set for a resource.
    pub(crate) fn overrides(&self, resource: &Resource) -> Option<&Arc<Overrides>> {
        self.configs.get(resource)
    }

    /// The level decided for a feature; 0 if there is none.
    pub(crate) fn feature_level(&self, name: &str) -> i16 {
        self.features.get(name).copied().unwrap_or(0)
    }

    /// The features that are turned on, with their levels.
    pub(crate) fn features(&self) -> impl Iterator<Item = (&Arc<str>, i16)> {
        self.features.iter().map(|(name, level)| (name, *level))
    }

    /// The first producer id that was never given out.
    pub(crate) fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// Takes over what a record says.
    pub(crate) fn replay(&mut self, record: &MetadataRecord) -> Result<(), Misfit> {
        match record {
            MetadataRecord::RegisterBroker(broker) => {
                self.brokers.insert(broker.id, Arc::new(broker.clone()));
            }
            MetadataRecord::UnregisterBroker { id, .. } => {
                self.brokers.remove(id).ok_or(Misfit::Broker(*id))?;
            }
            MetadataRecord::BrokerChange(change) => {
                let broker = self.brokers.get_mut(&change.id);
                Arc::make_mut(broker.ok_or(Misfit::Broker(change.id))?).apply(change);
            }
            MetadataRecord::Topic { name, id } => {
                let partitions = BTreeMap::new();
                let topic = TopicState { name: name.clone(), id: *id, partitions };
                self.names.insert(*id, name.clone());
                if let Some(plain) = in_metrics(name) {
                    let alike = self.in_metrics.entry(Arc::from(plain)).or_default();
                    alike.insert(name.clone());
                }
                self.topics.insert(name.clone(), Arc::new(topic));
            }
            MetadataRecord::Partition { topic_id, index, state } => {
                let before = self.topic_mut(*topic_id)?.partitions.insert(*index, state.clone());
                self.partitions += usize::from(before.is_none());
            }
            MetadataRecord::PartitionChange(change) => {
                let (topic, index) = (change.topic_id, change.index);
                let partition = self.topic_mut(topic)?.partitions.get_mut(&index);
                partition.ok_or(Misfit::Partition(topic, index))?.apply(change);
            }
            MetadataRecord::RemoveTopic { id } => {
                let name = self.names.remove(id).ok_or(Misfit::Topic(*id))?;
                self.configs.remove(&Resource::topic(&name));
                let topic = self.topics.remove(&name);
                let partitions = topic.map_or(0, |topic| topic.partitions.len());
                self.partitions = self.partitions.saturating_sub(partitions);
                self.forget_in_metrics(&name);
            }
            MetadataRecord::Config { resource, name, value } => {
                self.set_option(resource, name, value.as_ref());
            }
            MetadataRecord::FeatureLevel { name, level: 0 } => {
                self.features.remove(name);
            }
            MetadataRecord::FeatureLevel { name, level } => {
                self.features.insert(name.clone(), *level);
            }
            MetadataRecord::ProducerIds { next, .. } => {
                self.next_producer_id = self.next_producer_id.max(*next);
            }
            MetadataRecord::Passed => {}
        }
        Ok(())
    }

    fn forget_in_metrics(&mut self, name: &Arc<str>) {
        let Some(plain) = in_metrics(name) else { return };
        let Some(alike) = self.in_metrics.get_mut(&*plain) else { return };
        alike.remove(name);
        if alike.is_empty() {
            self.in_metrics.remove(&*plain);
        }
    }

    fn topic_mut(&mut self, id: Uuid) -> Result<&mut TopicState, Misfit> {
        let name = self.names.get(&id).ok_or(Misfit::Topic(id))?;
        self.topics.get_mut(name).map(Arc::make_mut).ok_or(Misfit::Topic(id))
    }

    fn set_option(&mut self, resource: &Resource, name: &Arc<str>, value: Option<&Arc<str>>) {
        let Some(value) = value else {
            let Some(options) = self.configs.get_mut(resource) else { return };
            Arc::make_mut(options).remove(name);
            if options.is_empty() {
                self.configs.remove(resource);
            }
            return;
        };
        let options = self.configs.entry(resource.clone()).or_default();
        Arc::make_mut(options).insert(name.clone(), value.clone());
    }
}

/// A topic's name as metrics write it, if that differs for any name that looks the same there.
fn in_metrics(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}

impl BrokerRegistration {
    fn apply(&mut self, change: &BrokerChange) {
        self.fenced = change.fenced.unwrap_or(self.fenced);
        let stops = change.in_controlled_shutdown.unwrap_or(self.in_controlled_shutdown);
        self.in_controlled_shutdown = stops;
        if !change.directories.is_empty() {
            self.directories.clone_from(&change.directories);
        }
    }
}

impl PartitionState {
    fn apply(&mut self, change: &PartitionChange) {
        fn set<T: Clone>(field: &mut T, value: Option<&T>) {
            if let Some(value) = value {
                field.clone_from(value);
            }
        }
        set(&mut self.isr, change.isr.as_ref());
        set(&mut self.replicas, change.replicas.as_ref());
        set(&mut self.removing, change.removing.as_ref());
        set(&mut self.adding, change.adding.as_ref());
        set(&mut self.recovery, change.recovery.as_ref());
        set(&mut self.directories, change.directories.as_ref());
        set(&mut self.eligible, change.eligible.as_ref());
        set(&mut self.last_known, change.last_known.as_ref());
        if let Some(leader) = change.leader {
            self.leader = leader;
            self.leader_epoch = self.leader_epoch.wrapping_add(1);
        }
        self.epoch = self.epoch.wrapping_add(1);
    }
}
