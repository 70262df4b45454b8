//! Shares near their members (KIP-881): as even as they were, with as many partitions as can be in
//! the racks of those who read them, and with as few moves as that takes.

use super::{Layout, Member, Table, Topic};
use crate::state::hash::HashMap;

/// What a partition near its reader is worth; one that stays with its reader is worth 1, and all
/// that could stay are worth less than one that comes near.
const NEAR: i64 = 1 << 32;
/// Nothing can be passed on this way.
const NO_WAY: i64 = i64::MIN;
/// So many ways are looked at; shares that are not all near by then stay as they are.
const STEPS_MAX: usize = 1 << 27;

/// Which partitions stand in the racks of which members.
pub(super) struct Near {
    /// The number of each member's rack, if it tells one.
    racks: Vec<Option<usize>>,
    /// For each partition of each topic a row of `sets`.
    parts: Vec<Vec<usize>>,
    /// Whether each rack is in a set that partitions stand in.
    sets: Vec<Vec<bool>>,
}

impl Near {
    /// Nothing if it makes no difference who reads what.
    pub(super) fn new(members: &[&Member], layout: &Layout, topics: &[Topic]) -> Option<Self> {
        let mut numbers: HashMap<&String, usize> = HashMap::default();
        let mut racks = Vec::with_capacity(members.len());
        for member in members {
            let next = numbers.len();
            racks.push(member.rack.as_ref().map(|rack| *numbers.entry(rack).or_insert(next)));
        }
        let mut known: HashMap<Vec<bool>, usize> = HashMap::default();
        let mut parts = Vec::with_capacity(topics.len());
        for topic in topics {
            let stands = layout.racks(&topic.name).unwrap_or_default();
            let mut row = Vec::with_capacity(topic.parts.len());
            for number in 0..topic.parts.len() {
                let mut set = vec![false; numbers.len()];
                for rack in stands.get(number).into_iter().flat_map(|racks| racks.iter()) {
                    if let Some(is_in) = numbers.get(rack).and_then(|&rack| set.get_mut(rack)) {
                        *is_in = true;
                    }
                }
                let next = known.len();
                row.push(*known.entry(set).or_insert(next));
            }
            parts.push(row);
        }
        let mut sets = vec![Vec::new(); known.len()];
        for (set, at) in known {
            if let Some(place) = sets.get_mut(at) {
                *place = set;
            }
        }
        let near = Self { racks, parts, sets };
        near.differs(topics).then_some(near)
    }

    /// Whether some partition is near one that may read it, and some partition is not.
    fn differs(&self, topics: &[Topic]) -> bool {
        let mut seen = [false; 2];
        for (at, topic) in topics.iter().enumerate() {
            for number in 0..topic.parts.len() {
                for &place in &topic.readers {
                    let [far, near] = &mut seen;
                    *if self.is(at, number, place) { near } else { far } = true;
                }
                if seen == [true; 2] {
                    return true;
                }
            }
        }
        false
    }

    /// Whether a partition stands in a member's rack.
    pub(super) fn is(&self, at: usize, number: usize, place: usize) -> bool {
        self.is_in(self.set(at, number), place)
    }

    fn set(&self, at: usize, number: usize) -> &[bool] {
        let set = self.parts.get(at).and_then(|row| row.get(number));
        set.and_then(|&set| self.sets.get(set)).map_or(&[][..], Vec::as_slice)
    }

    fn is_in(&self, set: &[bool], place: usize) -> bool {
        let rack = self.racks.get(place).copied().flatten();
        rack.and_then(|rack| set.get(rack).copied()).unwrap_or(false)
    }
}

/// A partition that is passed on: topic, number, giver and taker.
type Pass = (usize, usize, usize, usize);

/// Passes partitions round, so that everybody has as many as before, or one that had one more takes
/// the place of another. Each round is a gain, so this ends.
pub(super) fn align(table: &mut Table, near: &Near) {
    let size = table.loads.len();
    let mut gains: Vec<Vec<i64>> = (0..size).map(|giver| row(table, near, giver)).collect();
    let mut steps = 0;
    swap(table, near, &mut gains, &mut steps);
    while steps < STEPS_MAX {
        let rounds = rounds(table, &gains, &mut steps);
        if rounds.is_empty() {
            return;
        }
        for round in rounds {
            pass_round(table, near, &mut gains, &round);
        }
    }
}

/// Has each two members swap while it is a gain. Most rounds are of two, which need no search.
fn swap(table: &mut Table, near: &Near, gains: &mut [Vec<i64>], steps: &mut usize) {
    let size = gains.len();
    let gain = |gains: &[Vec<i64>], giver: usize, taker: usize| {
        gains.get(giver).and_then(|row| row.get(taker)).copied().filter(|&gain| gain != NO_WAY)
    };
    for one in 0..size {
        for other in one + 1..size {
            while let (Some(there), Some(back)) = (gain(gains, one, other), gain(gains, other, one))
                && there + back > 0
                && *steps < STEPS_MAX
            {
                pass_round(table, near, gains, &[(one, other), (other, one)]);
                *steps += size * (table.load(one) + table.load(other));
            }
        }
    }
}

/// Has each giver of a round pass on what brings most, and looks anew at what these members have.
fn pass_round(table: &mut Table, near: &Near, gains: &mut [Vec<i64>], round: &[(usize, usize)]) {
    let best = |&(giver, taker): &(usize, usize)| best(table, near, giver, taker);
    let passes: Vec<Pass> = round.iter().filter_map(best).collect();
    for (at, number, giver, taker) in passes {
        table.hand(at, number, giver, taker);
    }
    for &place in round.iter().flat_map(|(giver, taker)| [giver, taker]) {
        if let Some(gains) = gains.get_mut(place) {
            *gains = row(table, near, place);
        }
    }
}

/// What it brings that a member has a partition.
fn worth(table: &Table, near: &Near, at: usize, number: usize, place: usize) -> i64 {
    let stays = table.part(at, number).is_some_and(|part| part.before == Some(place));
    i64::from(stays) + if near.is(at, number, place) { NEAR } else { 0 }
}

/// What the best of a member's partitions would bring with each other member.
fn row(table: &Table, near: &Near, giver: usize) -> Vec<i64> {
    let mut row = vec![NO_WAY; table.loads.len()];
    for (&at, numbers) in table.held.get(giver).into_iter().flatten() {
        let readers = table.topics.get(at).map_or(&[][..], |topic| &topic.readers);
        for &number in numbers {
            let now = worth(table, near, at, number, giver);
            let set = near.set(at, number);
            for &taker in readers {
                if let Some(gain) = row.get_mut(taker) {
                    *gain = (*gain).max(if near.is_in(set, taker) { NEAR - now } else { -now });
                }
            }
            let home = table.part(at, number).and_then(|part| part.before);
            if let Some(home) = home.filter(|home| readers.contains(home))
                && let Some(gain) = row.get_mut(home)
            {
                *gain = (*gain).max(worth(table, near, at, number, home) - now);
            }
        }
    }
    if let Some(gain) = row.get_mut(giver) {
        *gain = NO_WAY;
    }
    row
}

/// The partition that brings most if one member gives it to another.
fn best(table: &Table, near: &Near, giver: usize, taker: usize) -> Option<Pass> {
    let mut best: Option<(i64, Pass)> = None;
    for (&at, numbers) in table.held.get(giver)? {
        if !table.topics.get(at).is_some_and(|topic| topic.readers.contains(&taker)) {
            continue;
        }
        for &number in numbers {
            let gain =
                worth(table, near, at, number, taker) - worth(table, near, at, number, giver);
            if best.is_none_or(|(most, _)| gain > most) {
                best = Some((gain, (at, number, giver, taker)));
            }
        }
    }
    best.map(|(_, pass)| pass)
}

/// Rounds of givers and takers, no member in two, each of which is a gain; none if there is no such
/// round. Found by Bellman and Ford's way: what a chain of passes brings is told on from member to
/// member, until a chain comes back to where it was.
fn rounds(table: &Table, gains: &[Vec<i64>], steps: &mut usize) -> Vec<Vec<(usize, usize)>> {
    let size = table.loads.len();
    // Behind the members stands each load: a chain that ends with one who has so many may go on with
    // one who has one more, since then these two have only changed places.
    let mut loads = table.loads.clone();
    loads.sort_unstable();
    loads.dedup();
    let nodes = size + loads.len();
    let mut chain = vec![0_i64; nodes];
    let mut came: Vec<Option<usize>> = vec![None; nodes];
    let mut news = vec![true; nodes];
    for _ in 0..=nodes {
        let mut moved = false;
        for node in 0..nodes {
            if !news.get_mut(node).is_some_and(std::mem::take) {
                continue;
            }
            let so_far = chain.get(node).copied().unwrap_or(0);
            let mut tell = |to: usize, gain: i64| {
                if let (Some(chain), Some(came), Some(news)) =
                    (chain.get_mut(to), came.get_mut(to), news.get_mut(to))
                    && so_far + gain > *chain
                {
                    (*chain, *came, *news) = (so_far + gain, Some(node), true);
                    moved = true;
                }
            };
            if let Some(row) = gains.get(node) {
                for (to, &gain) in row.iter().enumerate().filter(|(_, gain)| **gain != NO_WAY) {
                    tell(to, gain);
                }
                if let Ok(load) = loads.binary_search(&table.load(node)) {
                    tell(size + load, 0);
                }
            } else if let Some(&load) = loads.get(node - size) {
                let more = (0..size).filter(|&place| table.load(place) == load + 1);
                more.for_each(|place| tell(place, 0));
            }
            *steps += size;
        }
        if !moved {
            break;
        }
        let found = closed(&came, size);
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// The chains that come back to where they were, as pairs of members.
fn closed(came: &[Option<usize>], size: usize) -> Vec<Vec<(usize, usize)>> {
    let mut found = Vec::new();
    // In which walk each was met.
    let mut met = vec![0; came.len()];
    for start in 0..came.len() {
        let mut node = start;
        while met.get(node) == Some(&0) {
            if let Some(met) = met.get_mut(node) {
                *met = start + 1;
            }
            let Some(from) = came.get(node).copied().flatten() else { break };
            node = from;
            if met.get(node) == Some(&(start + 1)) {
                let mut round = Vec::new();
                let first = node;
                while let Some(from) = came.get(node).copied().flatten() {
                    if from < size && node < size {
                        round.push((from, node));
                    }
                    node = from;
                    if node == first {
                        break;
                    }
                }
                found.push(round);
                break;
            }
        }
    }
    found
}
