//! Even shares that move as little as they can.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Layout, Member, NO_GENERATION, Share, no_shares, readers};
use crate::record::TopicPartition;
use crate::state::hash::HashMap;

mod racks;

use racks::Near;

/// Leaves with each member what it has, gives the rest to whoever has least, and then moves
/// partitions until nobody could have two more than one who might take one of them. Where racks are
/// told, shares that are as even then come as near to their readers as they can.
pub(super) fn assign(members: &[&Member], layout: &Layout) -> Vec<Share> {
    let mut table = Table::new(members, layout);
    table.claim(members);
    table.give_out();
    table.level();
    if let Some(near) = table.near.take() {
        racks::align(&mut table, &near);
    }
    table.shares(members)
}

/// Takes out what another member still reads: it gives that up when it sees its share, and the
/// rebalance that follows hands it on (KIP-429). The places of those that have to.
pub(super) fn withhold_moving(members: &[&Member], shares: &mut [Share]) -> BTreeSet<usize> {
    let mut giving = BTreeSet::new();
    let mut owners: HashMap<&TopicPartition, Vec<usize>> = HashMap::default();
    for (place, member) in members.iter().enumerate() {
        for partition in &member.owned {
            owners.entry(partition).or_default().push(place);
        }
    }
    for (place, share) in shares.iter_mut().enumerate() {
        for (topic, partitions) in &mut share.topics {
            partitions.retain(|&partition| {
                let wanted = TopicPartition { topic: Arc::clone(topic), partition };
                let Some(owners) = owners.get(&wanted) else { return true };
                let keeps = owners.contains(&place);
                if !keeps {
                    giving.extend(owners);
                }
                keeps
            });
        }
        share.topics.retain(|_, partitions| !partitions.is_empty());
    }
    giving
}

/// A topic that somebody reads.
struct Topic {
    name: Arc<str>,
    readers: Vec<usize>,
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Default)]
struct Part {
    /// Who had it before, in the newest generation that anybody tells of.
    before: Option<usize>,
    told_in: i32,
    owner: Option<usize>,
}

/// Topics and members by their places in two lists.
struct Table {
    topics: Vec<Topic>,
    /// How many partitions each member has.
    loads: Vec<usize>,
    /// Which partitions of each topic each member has.
    held: Vec<BTreeMap<usize, Vec<usize>>>,
    /// Nothing if racks make no difference.
    near: Option<Near>,
}

impl Table {
    fn new(members: &[&Member], layout: &Layout) -> Self {
        let topic = |(name, count): (&Arc<str>, i32)| {
            let parts = vec![Part::default(); usize::try_from(count).unwrap_or(0)];
            let readers = readers(members, name);
            let wanted = !parts.is_empty() && !readers.is_empty();
            wanted.then(|| Topic { name: Arc::clone(name), readers, parts })
        };
        let topics: Vec<Topic> = layout.counts().filter_map(topic).collect();
        let near = Near::new(members, layout, &topics);
        let (loads, held) = (vec![0; members.len()], vec![BTreeMap::new(); members.len()]);
        Self { topics, loads, held, near }
    }

    /// Leaves what is still to be read with who reads it. Of two who say so the one of the newer
    /// generation is right; of two in one generation neither is known to be.
    fn claim(&mut self, members: &[&Member]) {
        let places: HashMap<Arc<str>, usize> =
            (0..).zip(&self.topics).map(|(at, topic)| (Arc::clone(&topic.name), at)).collect();
        for (place, member) in members.iter().enumerate() {
            for TopicPartition { topic, partition } in &member.owned {
                let topic = places.get(topic).and_then(|&at| self.topics.get_mut(at));
                let Some(topic) = topic.filter(|topic| topic.readers.contains(&place)) else {
                    continue;
                };
                let number = usize::try_from(*partition).unwrap_or(usize::MAX);
                let Some(part) = topic.parts.get_mut(number) else { continue };
                // The generation of a member that has none is below all others.
                let told_in = member.generation.max(NO_GENERATION).saturating_add(2);
                if told_in > part.told_in {
                    (part.before, part.told_in) = (Some(place), told_in);
                } else if told_in == part.told_in && part.before != Some(place) {
                    part.before = None;
                }
            }
        }
        for at in 0..self.topics.len() {
            for number in 0..self.topics.get(at).map_or(0, |topic| topic.parts.len()) {
                let before = self.part(at, number).and_then(|part| part.before);
                if let Some(place) = before {
                    self.put(at, number, place);
                }
            }
        }
    }

    /// Gives what nobody has to whoever has least of those who may have it; first of the topics
    /// that fewest may have.
    fn give_out(&mut self) {
        let mut order: Vec<usize> = (0..self.topics.len()).collect();
        order.sort_by_key(|&at| self.topics.get(at).map(|topic| topic.readers.len()));
        for at in order {
            for number in 0..self.topics.get(at).map_or(0, |topic| topic.parts.len()) {
                if self.part(at, number).is_some_and(|part| part.owner.is_some()) {
                    continue;
                }
                let readers = self.topics.get(at).map_or(&[][..], |topic| &topic.readers);
                let near = self.near.as_ref();
                let far = |place| near.is_some_and(|near| !near.is(at, number, place));
                let least = |&&place: &&usize| (self.load(place), far(place));
                if let Some(&place) = readers.iter().min_by_key(least) {
                    self.put(at, number, place);
                }
            }
        }
    }

    /// Moves partitions from who has most, one at a time, until no move makes the shares more even.
    fn level(&mut self) {
        let mut stuck = vec![false; self.loads.len()];
        let mut moved = false;
        loop {
            let free = stuck.iter().enumerate().filter(|(_, stuck)| !**stuck);
            let most = free.map(|(place, _)| place).max_by_key(|&at| (self.load(at), Reverse(at)));
            match most {
                Some(place) if self.relieve(place) => moved = true,
                Some(place) => {
                    if let Some(stuck) = stuck.get_mut(place) {
                        *stuck = true;
                    }
                }
                // Each move evens the shares out, so this ends.
                None if std::mem::take(&mut moved) => stuck.fill(false),
                None => return,
            }
        }
    }

    /// Moves one partition from a member towards one that has at least two fewer, by way of others
    /// if it must be. Whether there is such a way.
    fn relieve(&mut self, from: usize) -> bool {
        let mut seen_topics = vec![false; self.topics.len()];
        let mut came: Vec<Option<(usize, usize)>> = vec![None; self.loads.len()];
        let mut queue = VecDeque::from([from]);
        let mut best = from;
        while let Some(place) = queue.pop_front() {
            if self.load(place) < self.load(best) {
                best = place;
            }
            for &at in self.held.get(place).into_iter().flat_map(BTreeMap::keys) {
                if seen_topics.get_mut(at).is_none_or(|seen| std::mem::replace(seen, true)) {
                    continue;
                }
                for &reader in self.topics.get(at).into_iter().flat_map(|topic| &topic.readers) {
                    if let Some(way @ None) = came.get_mut(reader).filter(|_| reader != from) {
                        *way = Some((place, at));
                        queue.push_back(reader);
                    }
                }
            }
        }
        if self.load(from) < self.load(best) + 2 {
            return false;
        }
        let mut to = best;
        while let Some((giver, at)) = came.get(to).copied().flatten() {
            self.pass(at, giver, to);
            to = giver;
        }
        true
    }

    /// Passes one partition of a topic on: best one that comes home, then one that was not at home.
    fn pass(&mut self, at: usize, giver: usize, taker: usize) {
        let before = |number: usize| self.part(at, number).and_then(|part| part.before);
        let rank = |number: usize| match before(number) {
            Some(home) if home == taker => 2,
            Some(home) if home == giver => 0,
            _ => 1,
        };
        let held = self.held.get(giver).and_then(|held| held.get(&at));
        let chosen = held.and_then(|held| held.iter().copied().max_by_key(|&n| (rank(n), n)));
        if let Some(number) = chosen {
            self.hand(at, number, giver, taker);
        }
    }

    fn hand(&mut self, at: usize, number: usize, giver: usize, taker: usize) {
        if let Some(held) = self.held.get_mut(giver)
            && let Some(numbers) = held.get_mut(&at)
        {
            numbers.retain(|&other| other != number);
            if numbers.is_empty() {
                held.remove(&at);
            }
        }
        if let Some(load) = self.loads.get_mut(giver) {
            *load -= 1;
        }
        self.put(at, number, taker);
    }

    fn put(&mut self, at: usize, number: usize, place: usize) {
        let part = self.topics.get_mut(at).and_then(|topic| topic.parts.get_mut(number));
        if let (Some(part), Some(load), Some(held)) =
            (part, self.loads.get_mut(place), self.held.get_mut(place))
        {
            part.owner = Some(place);
            *load += 1;
            held.entry(at).or_default().push(number);
        }
    }

    fn part(&self, at: usize, number: usize) -> Option<&Part> {
        self.topics.get(at)?.parts.get(number)
    }

    fn load(&self, place: usize) -> usize {
        self.loads.get(place).copied().unwrap_or(usize::MAX)
    }

    fn shares(&self, members: &[&Member]) -> Vec<Share> {
        let mut shares = no_shares(members);
        for topic in &self.topics {
            for (number, part) in (0..).zip(&topic.parts) {
                let share = part.owner.and_then(|place| shares.get_mut(place));
                if let Some(share) = share {
                    share.topics.entry(Arc::clone(&topic.name)).or_default().push(number);
                }
            }
        }
        shares
    }
}
