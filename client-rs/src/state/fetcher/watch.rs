//! No partition is silently stuck: one that should be read and gets no answer is begun anew.

use std::time::{Duration, Instant};

use super::{FetchEvent, Fetcher, Leaders, Part, Place};
use crate::record::TopicPartition;

/// How long a partition with records to read may be without an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

impl Fetcher {
    /// Begins anew what has been waiting too long, and says why it may have been.
    pub(crate) fn handle_timeout(&mut self, leaders: &impl Leaders, now: Instant) {
        if self.watch_at.is_none_or(|at| at > now) {
            return;
        }
        let (refill_below, crowded) = (self.refill_below(), self.free() == 0);
        let mut next = None;
        for partition in &self.order {
            let Some(part) = self.parts.get_mut(partition) else { continue };
            if crowded || part.buffered >= refill_below || !part.is_behind() {
                part.seen_at = now;
            }
            if now.saturating_duration_since(part.seen_at) >= PATIENCE {
                let reason = part.reason(partition, leaders);
                part.restart(now);
                for lanes in self.lanes.values_mut().filter(|lanes| lanes.main.is_none()) {
                    lanes.session.restart();
                }
                self.events.push_back(FetchEvent::Refresh);
                let partition = partition.clone();
                self.events.push_back(FetchEvent::Restarted { partition, reason });
            }
            next = next.min(Some(part.seen_at + PATIENCE)).or(Some(part.seen_at + PATIENCE));
        }
        self.watch_at = next;
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

    fn reason(&self, partition: &TopicPartition, leaders: &impl Leaders) -> String {
        let Some(leader) = leaders.leader(partition) else {
            return "the cluster names no leader for it".to_owned();
        };
        let node = self.replica.map_or(leader.node, |(node, _)| node);
        let what = match self.place {
            Place::Seeking { .. } => "where to begin",
            Place::Checking { .. } => "where the epoch of what was read ends",
            Place::Unknown | Place::At(_) => "for its records",
        };
        if self.cause.is_error() {
            format!("broker {node} was asked {what}, and last answered {}", self.cause)
        } else if self.asked.is_some() {
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
