//! No partition is silently stuck: one that should be read and gets no answer is begun anew.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::parts::{Asked, Lanes, Part};
use super::{FetchEvent, Fetcher, Leaders, Place};
use crate::record::TopicPartition;

/// How long a partition with records to read may be without an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest time between two looks at all partitions.
const PAUSE: Duration = Duration::from_secs(1);

impl Fetcher {
    /// Begins anew what has been waiting too long, and says why it may have been.
    pub(crate) fn handle_timeout(&mut self, leaders: &impl Leaders, now: Instant) {
        if self.watch_at.is_none_or(|at| at > now) {
            return;
        }
        let (refill_below, crowded) = (self.refill_below(), self.free() == 0);
        let (mut next, mut stuck) = (None, Vec::new());
        for (partition, part) in self.parts.iter_mut() {
            if crowded || part.buffered >= refill_below || !part.is_behind() {
                part.seen_at = now;
            }
            let seen_at = part.seen_at(&self.lanes);
            if now.saturating_duration_since(seen_at) >= PATIENCE {
                stuck.push((partition.clone(), part.reason(partition, leaders, &self.lanes)));
                part.restart(now);
            }
            let until = part.seen_at.max(seen_at) + PATIENCE;
            next = next.min(Some(until)).or(Some(until));
        }
        if !stuck.is_empty() {
            for lanes in self.lanes.values_mut().filter(|lanes| lanes.main.is_none()) {
                lanes.session.restart();
            }
        }
        for (partition, reason) in stuck {
            self.touch(&partition);
            self.events.push_back(FetchEvent::Refresh);
            self.events.push_back(FetchEvent::Restarted { partition, reason });
        }
        // All are looked at, so not more often, however their times are spread.
        self.watch_at = next.map(|next| next.max(now + PAUSE));
    }
}

impl Part {
    /// Whether there may be something that it does not get.
    fn is_behind(&self) -> bool {
        let there = match self.place {
            // The owner has to say where it begins.
            Place::Unknown => false,
            Place::At(offset) => self.end.is_none_or(|end| end > offset),
            Place::Seeking { .. } | Place::Checking { .. } => true,
        };
        there && !self.paused
    }

    fn reason(
        &self,
        partition: &TopicPartition,
        leaders: &impl Leaders,
        lanes: &BTreeMap<i32, Lanes>,
    ) -> String {
        let Some(leader) = leaders.leader(partition) else {
            return "the cluster names no leader for it".to_owned();
        };
        let node = self.replica.map_or(leader.node, |(node, _)| node);
        let what = match self.place {
            Place::Seeking { .. } => "where to begin",
            Place::Checking { .. } => "where the epoch of what was read ends",
            Place::Unknown | Place::At(_) => "for its records",
        };
        let is_under_way = match self.asked {
            Some(Asked::Main(node)) => lanes.get(&node).is_some_and(|lanes| lanes.main.is_some()),
            Some(Asked::Spare(_)) => true,
            None => false,
        };
        if self.cause.is_error() {
            format!("broker {node} was asked {what}, and last answered {}", self.cause)
        } else if is_under_way {
            format!("broker {node} was asked {what}, and has not answered")
        } else {
            format!("broker {node} could not be asked {what}")
        }
    }

    /// As if it was new at its place.
    fn restart(&mut self, now: Instant) {
        match &mut self.place {
            Place::Seeking { asked, .. } | Place::Checking { asked, .. } => *asked = None,
            Place::Unknown | Place::At(_) => {}
        }
        (self.asked, self.retry_at, self.attempt) = (None, None, 0);
        (self.replica, self.urgent, self.seen_at) = (None, true, now);
    }
}
