//! Where replicas stand: for consumers, whose groups may share out by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::messages::metadata_response::MetadataResponse;

use crate::state::cluster::{Cluster, RackSet};
use crate::state::hash::HashMap;

/// Of so many brokers that are away it is remembered where they stood; of more, of none.
const AWAY_MAX: usize = 1_000;

/// Where each broker stands. One that is away for a while has not moved: where racks are kept for a
/// group, its restart is no reason to share out anew.
pub(super) fn told(
    known: &Cluster,
    response: &MetadataResponse<'_>,
    keeps: bool,
) -> BTreeMap<i32, String> {
    let mut racks = BTreeMap::new();
    let most = response.brokers.len() + AWAY_MAX;
    if keeps && response.cluster_id == known.id.as_deref() && known.racks.len() <= most {
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

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::metadata_response::MetadataResponseBroker;

    use super::*;

    #[test]
    fn brokers_that_are_away_are_remembered_up_to_a_limit() {
        let mut known = Cluster::default();
        for round in 0..40 {
            let ids = round * 100..(round + 1) * 100;
            let broker =
                |node_id| MetadataResponseBroker { node_id, rack: Some("a"), ..Default::default() };
            let response = MetadataResponse {
                brokers: ids.clone().map(broker).collect(),
                ..Default::default()
            };
            let racks = told(&known, &response, true);
            assert!(ids.clone().all(|id| racks.contains_key(&id)));
            assert!(racks.len() <= AWAY_MAX + 200, "{}", racks.len());
            assert_eq!(racks.contains_key(&0), round <= 11, "{round}");
            assert_eq!(told(&known, &response, false).len(), 100);
            known.racks = racks;
        }
    }
}
