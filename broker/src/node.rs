//! What every handler and driver of one broker shares.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use ottla_protocol::Uuid;
use tokio::sync::watch;

use crate::config::{Settings, TopicConfig};
use crate::driver::clock::Clock;
use crate::driver::controller::Controller;
use crate::driver::coordinator::Coordinator;
use crate::driver::folder::DataFolder;
use crate::driver::partition::{Partition, PartitionSetup};
use crate::driver::upkeep::Upkeep;
use crate::driver::writer::ReadyList;
use crate::server::budget::RequestBudget;
use crate::server::buffers::Buffers;
use crate::server::counts::ReadCounts;
use crate::server::outbox::HeldBytes;
use crate::state::fetch_sessions::FetchSessions;
use crate::state::hash::HashMap;

/// The name of the offsets topic, which clients may see but not produce to.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The name of the metadata log, which is never shown to clients as a topic.
pub(crate) const METADATA_TOPIC: &str = "__cluster_metadata";

/// One running broker: its settings, its topics and the machines behind its handlers.
#[derive(Debug)]
#[allow(clippy::struct_field_names, reason = "Kafka's name of the id is node.id")]
pub(crate) struct Node {
    /// The options as given, with Kafka's defaults for the rest.
    pub(crate) settings: Settings,
    /// This broker's id, `node.id`.
    pub(crate) node_id: i32,
    /// The cluster's id as `meta.properties` keeps it.
    pub(crate) cluster_id: Arc<str>,
    /// The address that it listens on.
    pub(crate) listener: SocketAddr,
    /// The one source of time.
    pub(crate) clock: Clock,
    /// The data folder, or memory.
    pub(crate) folder: Arc<DataFolder>,
    /// The topics that clients can see, internal ones included.
    pub(crate) topics: Topics,
    /// `__cluster_metadata-0`; synced before it answers.
    pub(crate) metadata_log: Arc<Partition>,
    /// Decides about topics and producer ids, and writes the metadata log.
    pub(crate) controller: Controller,
    /// The classic groups and their offsets.
    pub(crate) coordinator: Coordinator,
    /// What clients fetch, as far as they left it to us to remember (KIP-227).
    pub(crate) fetch_sessions: Mutex<FetchSessions>,
    /// What is to be done in the data folder.
    pub(crate) upkeep: Upkeep,
    /// Bytes of requests that may be in memory at a time.
    pub(crate) requests: RequestBudget,
    /// Bytes of answers that are in memory.
    pub(crate) answers: HeldBytes,
    /// By which ways records were sent.
    pub(crate) reads: ReadCounts,
    /// Buffers that connections borrow to send.
    pub(crate) buffers: Buffers,
    /// Where the broker is in its life; tasks that wait also wait for this.
    pub(crate) phase: watch::Receiver<Phase>,
}

/// Where a broker is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Accepts and answers.
    Running,
    /// Takes no new request, answers what is open.
    Stopping,
}

impl Node {
    /// Whether the broker has begun to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.phase.borrow() != Phase::Running
    }

    /// Returns once the broker begins to stop.
    pub(crate) async fn stopping(&self) {
        let mut phase = self.phase.clone();
        // An error means that the owner is gone, which is a stop as well.
        let _gone = phase.wait_for(|phase| *phase != Phase::Running).await.is_err();
    }
}

/// A topic as published: what it is called and where its partitions are.
#[derive(Debug)]
pub(crate) struct Topic {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Its id, which outlives no deletion.
    pub(crate) id: Uuid,
    /// Whether it belongs to the broker (`__consumer_offsets`).
    pub(crate) internal: bool,
    /// Its options: the broker's defaults with the topic's own over them.
    pub(crate) config: Arc<TopicConfig>,
    /// Its partitions by index.
    pub(crate) partitions: Vec<Arc<Partition>>,
}

impl Topic {
    /// The partition of an index that came from a client.
    pub(crate) fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::try_from(index).ok()?)
    }
}

/// A topic that the metadata log has just told about.
#[derive(Debug, Clone)]
pub(crate) struct TopicSetup {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Its id.
    pub(crate) id: Uuid,
    /// Its options, resolved.
    pub(crate) config: Arc<TopicConfig>,
    /// The leader epoch of each partition by index; its length is the number of partitions.
    pub(crate) leader_epochs: Vec<i32>,
}

/// The published topics: read without a lock, changed by the controller alone.
#[derive(Debug)]
pub(crate) struct Topics {
    map: ArcSwap<TopicMap>,
    folder: Arc<DataFolder>,
    ready: Arc<ReadyList>,
}

/// One state of the published topics.
#[derive(Debug, Default, Clone)]
pub(crate) struct TopicMap {
    by_name: HashMap<Arc<str>, Arc<Topic>>,
    by_id: HashMap<Uuid, Arc<Topic>>,
}

impl TopicMap {
    /// The topic of a name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    /// The topic of an id.
    pub(crate) fn of_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// All topics, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }
}

impl Topics {
    /// No topics yet.
    pub(crate) fn new(folder: Arc<DataFolder>, ready: Arc<ReadyList>) -> Self {
        Self { map: ArcSwap::default(), folder, ready }
    }

    /// The present state, for as many questions as a request has.
    pub(crate) fn load(&self) -> Arc<TopicMap> {
        self.map.load_full()
    }

    /// The topic of a name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Topic>> {
        self.map.load().named(name).cloned()
    }

    /// Publishes topics, creating or extending them; logs are opened on first use.
    ///
    /// A topic that is there with the same id keeps its partitions, which take its options, and
    /// gains what is new. Called by
    /// the controller alone, one call at a time.
    pub(crate) fn publish(&self, setups: &[TopicSetup]) {
        let mut map = TopicMap::clone(&self.map.load());
        for setup in setups {
            let internal = &*setup.name == OFFSETS_TOPIC;
            let config = setup.config.clone();
            let known = map.by_id.get(&setup.id).cloned();
            let mut partitions =
                known.as_ref().map_or_else(Vec::new, |topic| topic.partitions.clone());
            for partition in &partitions {
                partition.configure(config.clone());
            }
            let same = known.as_ref().is_some_and(|topic| topic.config == config);
            if config.rules.compacted && !internal && !same {
                tracing::warn!(topic = %setup.name, "cleanup.policy has compact: keys are asked \
                    for, but nothing is compacted in this version, and the log keeps growing");
            }
            for (index, leader_epoch) in
                setup.leader_epochs.iter().enumerate().skip(partitions.len())
            {
                partitions.push(Partition::new(PartitionSetup {
                    topic: setup.name.clone(),
                    topic_id: setup.id,
                    index: i32::try_from(index).unwrap_or(i32::MAX),
                    leader_epoch: *leader_epoch,
                    config: config.clone(),
                    is_metadata: false,
                    folder: self.folder.clone(),
                    ready: self.ready.clone(),
                }));
            }
            let topic = Arc::new(Topic {
                name: setup.name.clone(),
                id: setup.id,
                internal,
                config,
                partitions,
            });
            map.by_name.insert(topic.name.clone(), topic.clone());
            map.by_id.insert(topic.id, topic);
        }
        self.map.store(Arc::new(map));
    }

    /// Takes a topic out of sight and deletes its partitions' folders in the background.
    pub(crate) fn remove(&self, id: Uuid) {
        let mut map = TopicMap::clone(&self.map.load());
        let Some(topic) = map.by_id.remove(&id) else { return };
        map.by_name.remove(&topic.name);
        self.map.store(Arc::new(map));
        for partition in &topic.partitions {
            partition.delete();
        }
    }
}
