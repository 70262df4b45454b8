//! Where replicas stand: for consumers, whose groups may share out by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::messages::metadata_response::MetadataResponse;

use crate::state::cluster::{Cluster, RackSet};
use crate::state::hash::HashMap;

/// Where each broker stands. One that is away for a while has not moved: where racks are kept for a
/// group, its restart is no reason to share out anew.
pub(super) fn told(
    known: &Cluster,
    response: &MetadataResponse<'_>,
    keeps: bool,
) -> BTreeMap<i32, String> {
    let mut racks = BTreeMap::new();
    if keeps && response.cluster_id == known.id.as_deref() {
        racks.clone_from(&known.racks);
    }
    for broker in &response.brokers {
        match broker.rack {
            Some(rack) => racks.insert(broker.node_id, rack.to_owned()),
            None => racks.remove(&broker.node_id),
        };
    }
    racks
}

/// The racks of a cluster's brokers, and the sets of them that its partitions stand in.
pub(super) struct Racks<'a> {
    brokers: &'a BTreeMap<i32, String>,
    sets: HashMap<Vec<&'a String>, RackSet>,
}

impl<'a> Racks<'a> {
    pub(super) fn new(brokers: &'a BTreeMap<i32, String>) -> Self {
        Self { brokers, sets: HashMap::default() }
    }

    /// Those of some replicas; the same ones are kept once.
    pub(super) fn of(&mut self, replicas: &[i32]) -> RackSet {
        let racks = replicas.iter().filter_map(|broker| self.brokers.get(broker));
        let mut racks: Vec<&String> = racks.filter(|rack| !rack.is_empty()).collect();
        racks.sort();
        racks.dedup();
        let named = |racks: &Vec<&String>| racks.iter().copied().cloned().collect();
        Arc::clone(self.sets.entry(racks).or_insert_with_key(named))
    }
}
