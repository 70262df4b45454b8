//! What an answer tells of a topic, beside what is known of it.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::metadata_response::{
    MetadataResponsePartition, MetadataResponseTopic,
};

use super::passes;
use super::racks::Racks;
use crate::state::cluster::{Partition, RackSet, Topic};

/// A topic as an answer tells it, unless what is known is newer; with the racks, if they are kept.
pub(super) fn merge(
    known: Option<&Arc<Topic>>,
    name: &Arc<str>,
    found: &MetadataResponseTopic<'_>,
    mut kept: Option<&mut Racks<'_>>,
) -> Arc<Topic> {
    if let Some(known) = known {
        // A broker that lags may not have heard of it yet.
        if passes(found.error_code) && known.error.is_none() {
            return Arc::clone(known);
        }
    }
    let same = known.filter(|known| known.id == found.topic_id && known.error.is_none());
    let count = found.partitions.len();
    let mut partitions = vec![Partition { leader: None, leader_epoch: -1 }; count];
    let mut racks = vec![RackSet::default(); if kept.is_some() { count } else { 0 }];
    for partition in &found.partitions {
        let index = usize::try_from(partition.partition_index).ok();
        let Some((index, place)) =
            index.and_then(|index| Some((index, partitions.get_mut(index)?)))
        else {
            continue;
        };
        let older = same.and_then(|known| known.partitions.get(index)).copied();
        *place = newer(older, partition);
        if let (Some(kept), Some(racks)) = (&mut kept, racks.get_mut(index)) {
            let older = same.filter(|_| is_older(partition, older));
            let older = older.and_then(|known| known.racks.as_ref()?.get(index));
            *racks = older.cloned().unwrap_or_else(|| kept.of(&partition.replica_nodes));
        }
    }
    Arc::new(Topic {
        name: Arc::clone(name),
        id: found.topic_id,
        error: if count == 0 && found.error_code.is_none() {
            ErrorCode::LEADER_NOT_AVAILABLE
        } else {
            found.error_code
        },
        partitions,
        racks: racks.iter().any(|racks| !racks.is_empty()).then(|| racks.into()),
    })
}

fn newer(known: Option<Partition>, found: &MetadataResponsePartition) -> Partition {
    let fresh = Partition {
        leader: Some(found.leader_id).filter(|&leader| leader >= 0),
        leader_epoch: found.leader_epoch,
    };
    known.filter(|_| is_older(found, known)).unwrap_or(fresh)
}

/// KIP-320: an epoch before the one known tells of the past.
fn is_older(found: &MetadataResponsePartition, known: Option<Partition>) -> bool {
    known.is_some_and(|known| found.leader_epoch >= 0 && found.leader_epoch < known.leader_epoch)
}
