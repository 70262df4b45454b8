//! What has changed of partitions, brought to where it is needed: who stands in which broker's
//! fetches, and who is to be asked for next.
//!
//! Each change of a partition ends with [`Fetcher::touch`], which notes where it is to be found.
//! With whom it is to be fetched is decided at the next poll, when the leaders are at hand. So a turn
//! costs as much as there are partitions with news, however many rest at their ends.

use std::time::Instant;

use super::parts::{Asked, Lanes, Part};
use super::{FetchEvent, Fetcher, Leaders, Place};
use crate::record::TopicPartition;

impl Fetcher {
    /// Changes a partition, if it is there.
    pub(super) fn change(&mut self, partition: &TopicPartition, change: impl FnOnce(&mut Part)) {
        if let Some(part) = self.parts.get_mut(partition) {
            change(part);
            part.file(partition, &mut self.lanes, &mut self.desk);
        }
    }

    /// Something is different about a partition.
    pub(super) fn touch(&mut self, partition: &TopicPartition) {
        self.change(partition, |_| {});
    }

    /// Something is different that may concern every partition.
    pub(super) fn touch_all(&mut self) {
        for (partition, part) in self.parts.iter_mut() {
            part.file(partition, &mut self.lanes, &mut self.desk);
        }
    }

    /// Ends the pauses that are over, and what replicas were to be read for.
    pub(super) fn tick(&mut self, now: Instant) {
        while let Some(partition) = self.desk.pop_timer(now) {
            self.change(&partition, |part| {
                part.retry_at = part.retry_at.filter(|&at| at > now);
                part.replica = part.replica.filter(|&(_, until)| until > now);
            });
        }
    }

    /// Decides for each partition with news where it is to be fetched.
    pub(super) fn sort_news(&mut self, leaders: &impl Leaders, now: Instant) {
        self.tick(now);
        let terms = (self.refill_below(), self.part_bytes_max());
        if std::mem::replace(&mut self.terms, terms) != terms {
            self.touch_all();
        }
        while let Some(partition) = self.desk.news.pop_first() {
            self.sort_one(&partition, leaders, now);
        }
        self.forget_gone();
    }

    /// Keeps nothing of brokers that the cluster has no more, once nothing is awaited of them.
    fn forget_gone(&mut self) {
        let lanes = &mut self.lanes;
        self.gone.retain(|node| {
            let used = lanes.get(node).is_some_and(Lanes::is_used);
            if !used {
                lanes.remove(node);
            }
            used
        });
    }

    fn sort_one(&mut self, partition: &TopicPartition, leaders: &impl Leaders, now: Instant) {
        let (refill_below, max_bytes) = self.terms;
        let Some(part) = self.parts.get_mut(partition) else { return };
        let asked = part.asked;
        let stands_at = part.stands_at();
        let wanted = part.wanted(refill_below);
        let placed = matches!(part.place, Place::At(_));
        // What is asked for aside is looked at when that is answered.
        let aside = matches!(asked, Some(Asked::Spare(_)));
        if aside || (stands_at.is_none() && wanted.is_none()) {
            if !placed {
                // Until its place is found it holds up nobody.
                self.feed(partition);
            }
            return;
        }
        let Some((offset, leader)) = wanted.zip(leaders.leader(partition)) else {
            match stands_at {
                Some(node) => self.leave(partition, node),
                None => self.handle_leaderless(partition, now),
            }
            return;
        };
        if part.turns_to_check(leader) || part.asked != asked {
            return self.touch(partition);
        }
        let node = part.source(leader, leaders, now);
        match stands_at {
            Some(at) if at != node => self.leave(partition, at),
            Some(_) => {
                let lanes = self.lanes.entry(node).or_default();
                if !lanes.session.has_told(partition, leader, offset, max_bytes) {
                    lanes.review.insert(partition.clone());
                }
            }
            None => {
                part.filed.ready_at = Some(node);
                let lanes = self.lanes.entry(node).or_default();
                let ready = if part.urgent { &mut lanes.urgent } else { &mut lanes.ready };
                ready.insert(partition.clone());
            }
        }
    }

    /// Takes a partition out of a broker's fetches, once no answer is awaited there.
    fn leave(&mut self, partition: &TopicPartition, node: i32) {
        let lanes = self.lanes.entry(node).or_default();
        if lanes.main.is_some() {
            lanes.review.insert(partition.clone());
        } else {
            self.change(partition, |part| part.asked = None);
        }
    }

    /// Asks about a partition that nobody leads, and leaves it alone for a while.
    pub(super) fn handle_leaderless(&mut self, partition: &TopicPartition, now: Instant) {
        if let Some(part) = self.parts.get_mut(partition) {
            part.pause(&mut self.pace, now);
        }
        self.events.push_back(FetchEvent::Refresh);
        self.feed(partition);
        self.touch(partition);
    }
}
