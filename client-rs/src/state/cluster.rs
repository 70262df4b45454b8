//! What is known of the cluster at one time.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::{ErrorCode, Uuid};

use crate::config::Address;
use crate::state::hash::HashMap;

/// Brokers and topics, as the last answers told. Never changed once published.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cluster {
    /// Grows with each change.
    pub(crate) version: u64,
    /// The cluster's id, if it has told one.
    pub(crate) id: Option<String>,
    /// The broker that takes what only a controller may do, if one was named.
    pub(crate) controller: Option<i32>,
    /// Where each broker listens.
    pub(crate) brokers: BTreeMap<i32, Address>,
    /// Where each broker stands, of those that tell.
    pub(crate) racks: BTreeMap<i32, String>,
    /// The topics asked about.
    pub(crate) topics: HashMap<Arc<str>, Arc<Topic>>,
}

impl Cluster {
    /// A topic without an error.
    pub(crate) fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name).filter(|topic| topic.error.is_none())
    }

    /// A partition of a topic without an error.
    pub(crate) fn partition(&self, topic: &str, partition: i32) -> Option<&Partition> {
        self.topic(topic)?.partitions.get(usize::try_from(partition).ok()?)
    }
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topic {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Its id; zero if the broker is too old to tell.
    pub(crate) id: Uuid,
    /// Why there is nothing to know of it, or none.
    pub(crate) error: ErrorCode,
    /// Its partitions, by number from 0 on without a gap.
    pub(crate) partitions: Vec<Partition>,
    /// Where the replicas of each of them stand, if any broker tells and it is to be known.
    pub(crate) racks: Option<Arc<[RackSet]>>,
}

/// Racks in order, each once.
pub(crate) type RackSet = Arc<[String]>;

/// A partition of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Partition {
    /// The broker that leads it, if one does.
    pub(crate) leader: Option<i32>,
    /// Since which election; −1 if that is not known.
    pub(crate) leader_epoch: i32,
}
