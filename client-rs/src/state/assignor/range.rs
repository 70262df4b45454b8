//! Every topic in ranges of neighbouring partitions, near ones first: Kafka's `RangeAssignor`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Layout, Member, Share, no_shares, readers};
use crate::state::cluster::RackSet;

/// Gives each member what stands in its rack, as far as even shares allow, and then the rest in
/// ranges; the first members have one partition more.
pub(super) fn assign(members: &[&Member], layout: &Layout) -> Vec<Share> {
    let topic = |(name, count)| Topic::new(members, layout, name, count);
    let mut topics: Vec<Topic<'_>> = layout.counts().filter_map(topic).collect();
    if topics.iter().any(|topic| topic.matters) {
        give_near(members, &mut topics);
    }
    let mut shares = no_shares(members);
    for topic in &mut topics {
        topic.give_rest();
        for (number, owner) in (0..).zip(&topic.owners) {
            if let Some(share) = owner.and_then(|place| shares.get_mut(place)) {
                share.topics.entry(Arc::clone(topic.name)).or_default().push(number);
            }
        }
    }
    shares
}

/// Topics of the same readers and of as many partitions are given out together, so that the same
/// numbers of all go to one member.
fn give_near(members: &[&Member], topics: &mut [Topic<'_>]) {
    let mut alike: BTreeMap<(Vec<usize>, usize), Vec<&mut Topic<'_>>> = BTreeMap::new();
    for topic in topics {
        alike.entry((topic.readers.clone(), topic.owners.len())).or_default().push(topic);
    }
    for ((readers, count), mut topics) in alike {
        match topics.as_mut_slice() {
            [topic] => topic.give_near(members),
            topics => {
                for number in 0..count {
                    let fits = |&turn: &usize| {
                        let fits = |topic: &&mut Topic<'_>| topic.fits(members, turn, number);
                        topics.iter().all(fits)
                    };
                    if let Some(turn) = (0..readers.len()).find(fits) {
                        for topic in topics.iter_mut() {
                            topic.give(turn, number);
                        }
                    }
                }
            }
        }
    }
}

struct Topic<'a> {
    name: &'a Arc<str>,
    /// The members that read it, by their places.
    readers: Vec<usize>,
    /// How many partitions each of them has.
    taken: Vec<usize>,
    /// Who has which partition.
    owners: Vec<Option<usize>>,
    /// What every reader may have at least, and how many may have one more.
    each: usize,
    extra: usize,
    /// Where its partitions stand.
    racks: Option<&'a [RackSet]>,
    /// Whether that makes a difference to its readers.
    matters: bool,
}

impl<'a> Topic<'a> {
    fn new(
        members: &[&Member],
        layout: &'a Layout,
        name: &'a Arc<str>,
        count: i32,
    ) -> Option<Self> {
        let readers = readers(members, name);
        let count = usize::try_from(count).ok()?;
        let each = count.checked_div(readers.len())?;
        let extra = count % readers.len();
        let racks = layout.racks(name);
        let matters = racks.is_some_and(|racks| {
            let all: BTreeSet<&String> = racks.iter().flat_map(|racks| racks.iter()).collect();
            let rack = |&place: &usize| members.get(place)?.rack.as_ref();
            let near = readers.iter().filter_map(rack).any(|rack| all.contains(rack));
            near && racks.iter().any(|racks| racks.len() < all.len())
        });
        let (taken, owners) = (vec![0; readers.len()], vec![None; count]);
        Some(Self { name, readers, taken, owners, each, extra, racks, matters })
    }

    /// How many partitions more a reader may have.
    fn room(&self, turn: usize) -> usize {
        let taken = self.taken.get(turn).copied().unwrap_or(usize::MAX);
        (self.each + usize::from(self.extra > 0)).saturating_sub(taken)
    }

    /// Whether a reader may have a partition, which is not known to be far from it.
    fn fits(&self, members: &[&Member], turn: usize, number: usize) -> bool {
        let member = self.readers.get(turn).and_then(|&place| members.get(place));
        let rack = member.and_then(|member| member.rack.as_ref());
        let racks = self.racks.and_then(|racks| racks.get(number));
        // All is as near as anything else to one that tells none.
        let near = |rack| racks.is_some_and(|racks| racks.contains(rack));
        self.room(turn) > 0 && rack.is_none_or(near)
    }

    fn give(&mut self, turn: usize, number: usize) {
        if let (Some(&place), Some(taken), Some(owner)) =
            (self.readers.get(turn), self.taken.get_mut(turn), self.owners.get_mut(number))
        {
            *owner = Some(place);
            *taken += 1;
            if *taken > self.each {
                self.extra = self.extra.saturating_sub(1);
            }
        }
    }

    fn is_free(&self, number: usize) -> bool {
        matches!(self.owners.get(number), Some(None))
    }

    fn give_near(&mut self, members: &[&Member]) {
        if !self.matters {
            return;
        }
        for turn in 0..self.readers.len() {
            for number in 0..self.owners.len() {
                if self.is_free(number) && self.fits(members, turn, number) {
                    self.give(turn, number);
                }
            }
        }
    }

    fn give_rest(&mut self) {
        let mut turn = 0;
        for number in 0..self.owners.len() {
            if self.is_free(number) {
                while turn < self.readers.len() && self.room(turn) == 0 {
                    turn += 1;
                }
                self.give(turn, number);
            }
        }
    }
}
