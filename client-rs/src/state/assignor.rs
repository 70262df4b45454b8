//! Who reads which partition: Kafka's strategies, which the leader of a classic group follows.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::record::TopicPartition;

mod basis;
mod layout;
mod range;
mod sticky;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use basis::Basis;
pub(crate) use layout::Layout;
pub(crate) use wire::{
    Assigned, Subscription, decode_assignment, decode_subscription, encode_assignment,
    encode_subscription,
};

/// The kind of group on the wire.
pub(crate) const PROTOCOL_TYPE: &str = "consumer";
/// The generation of a member that was in none.
pub(crate) const NO_GENERATION: i32 = -1;

/// How a group shares its partitions out; `partition.assignment.strategy` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Each topic in ranges of neighbouring partitions.
    Range,
    /// All partitions in turn.
    RoundRobin,
    /// Even shares, and as few moves as that takes.
    Sticky,
    /// The same; what moves is given up in one rebalance and taken in the next (KIP-429).
    CooperativeSticky,
}

impl Strategy {
    /// All of them.
    pub(crate) const ALL: [Self; 4] =
        [Self::Range, Self::RoundRobin, Self::Sticky, Self::CooperativeSticky];

    /// Its name on the wire and in options.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::RoundRobin => "roundrobin",
            Self::Sticky => "sticky",
            Self::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// The strategy of that name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }

    /// Whether members may keep what they have while they join.
    pub(crate) const fn is_cooperative(self) -> bool {
        matches!(self, Self::CooperativeSticky)
    }

    /// Shares the partitions of these topics out. Topics that are not there are left out; every
    /// member has a share, which may be empty.
    pub(crate) fn assign(self, members: &[Member], layout: &Layout) -> Vec<Share> {
        let mut ordered: Vec<&Member> = members.iter().collect();
        ordered.sort_by(|a, b| member_order(a, b));
        let mut unsettled = BTreeSet::new();
        let mut shares = match self {
            Self::Range => range::assign(&ordered, layout),
            Self::RoundRobin => round_robin(&ordered, layout),
            Self::Sticky => sticky::assign(&ordered, layout),
            Self::CooperativeSticky => {
                let mut shares = sticky::assign(&ordered, layout);
                unsettled = sticky::withhold_moving(&ordered, &mut shares);
                shares
            }
        };
        tell_basis(&ordered, layout, &unsettled, &mut shares);
        shares
    }
}

/// One member of a group, as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) topics: Vec<Arc<str>>,
    /// What it reads, or read before this rebalance.
    pub(crate) owned: Vec<TopicPartition>,
    /// In which generation it got that; [`NO_GENERATION`] if it does not tell.
    pub(crate) generation: i32,
    /// Where it stands, if it tells (KIP-881).
    pub(crate) rack: Option<String>,
}

/// What one member is to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) member_id: String,
    pub(crate) topics: BTreeMap<Arc<str>, Vec<i32>>,
    /// For a static member alone.
    pub(crate) basis: Option<Basis>,
}

/// Notes by what the shares of static members were made; some give up what is still to be handed on.
fn tell_basis(
    members: &[&Member],
    layout: &Layout,
    unsettled: &BTreeSet<usize>,
    shares: &mut [Share],
) {
    let basis = Basis::new(layout);
    for (place, (member, share)) in members.iter().zip(shares).enumerate() {
        debug_assert_eq!(member.id, share.member_id, "shares stand in the order of the members");
        let is_static = member.instance_id.is_some();
        let gives = unsettled.contains(&place);
        share.basis = is_static.then(|| basis.of_member(&member.topics, gives));
    }
}

fn no_shares(members: &[&Member]) -> Vec<Share> {
    let share = |member: &&Member| Share {
        member_id: member.id.clone(),
        topics: BTreeMap::new(),
        basis: None,
    };
    members.iter().map(share).collect()
}

/// The places of the members that read a topic.
fn readers(members: &[&Member], topic: &Arc<str>) -> Vec<usize> {
    let reads = |&(_, member): &(usize, &&Member)| member.topics.contains(topic);
    members.iter().enumerate().filter(reads).map(|(place, _)| place).collect()
}

/// One partition after the other to the next member that reads its topic: Kafka's
/// `RoundRobinAssignor`.
fn round_robin(members: &[&Member], layout: &Layout) -> Vec<Share> {
    let mut shares = no_shares(members);
    let mut turn = 0;
    for (topic, count) in layout.counts() {
        let readers = readers(members, topic);
        for partition in 0..count {
            let next = readers.iter().find(|&&place| place >= turn).or_else(|| readers.first());
            let Some(&place) = next else { break };
            if let Some(share) = shares.get_mut(place) {
                share.topics.entry(Arc::clone(topic)).or_default().push(partition);
            }
            turn = place + 1;
        }
    }
    shares
}

/// KIP-345: static members come first, by instance id, so that a restart moves nothing.
fn member_order(a: &Member, b: &Member) -> Ordering {
    match (&a.instance_id, &b.instance_id) {
        (Some(a), Some(b)) => utf16_order(a, b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => utf16_order(&a.id, &b.id),
    }
}

/// The order of Java's strings, so that every leader of a mixed group finds the same ranges.
fn utf16_order(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}
