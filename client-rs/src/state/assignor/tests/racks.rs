//! Leaders that mind racks (KIP-881): beside Kafka's own, and by themselves.

use super::kafka::{CASES, one, told};
use super::*;

fn in_rack(id: &str, rack: &str, topics: &[&str]) -> Member {
    Member { rack: Some(rack.into()), ..member(id, None, topics) }
}

/// A group as a line of `interop/vectors/Racked.java` tells it, and its shares.
struct Case {
    layout: Layout,
    members: Vec<Member>,
    shares: &'static str,
}

fn cases(kind: &str) -> Vec<(&'static str, Case)> {
    let lines = CASES.lines().filter(|line| line.split(' ').next() == Some(kind));
    let case = |line: &'static str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, topics, members, shares] = words[..] else { panic!("{line}") };
        let mut layout = Layout::new(false);
        for topic in topics.split(';') {
            let (name, partitions) = topic.split_once(':').unwrap();
            standing(&mut layout, name, &partitions.split('/').collect::<Vec<_>>());
        }
        let members = members.split(';').map(racked).collect();
        (line, Case { layout, members, shares })
    };
    lines.map(case).collect()
}

fn racked(text: &str) -> Member {
    let (name, rest) = text.split_once('=').unwrap();
    let (name, rack) = name.split_once('@').map_or((name, None), |(name, rack)| (name, Some(rack)));
    let (topics, had) = rest.split_once('=').unwrap_or((rest, ""));
    let had = had.split(',').filter(|one| !one.is_empty());
    let owned: Vec<TopicPartition> = had
        .map(|one| one.split_once('-').unwrap())
        .map(|(topic, number)| TopicPartition::new(topic, number.parse().unwrap()))
        .collect();
    let generation = if owned.is_empty() { NO_GENERATION } else { 7 };
    let rack = rack.map(str::to_owned);
    Member { owned, generation, rack, ..one(&format!("{name}={topics}")) }
}

#[test]
fn ranges_are_those_of_kafkas_own_assignor_where_racks_are_told() {
    let cases = cases("racked-range");
    for (line, case) in &cases {
        let shares = Strategy::Range.assign(&case.members, &case.layout);
        assert_eq!(told(&shares), case.shares, "{line}");
    }
    assert!(cases.len() >= 150, "{}", cases.len());
}

/// Who has what, by places of members.
type Owners = BTreeMap<TopicPartition, usize>;

fn owners(members: &[Member], shares: &[Share]) -> Owners {
    let mut owners = Owners::new();
    for share in shares {
        let place = members.iter().position(|member| member.id == share.member_id).unwrap();
        for (topic, numbers) in &share.topics {
            for &number in numbers {
                let before = owners.insert(TopicPartition::new(Arc::clone(topic), number), place);
                assert_eq!(before, None, "{topic}-{number} went to two");
            }
        }
    }
    owners
}

/// How good shares are: how uneven, how many partitions not near, how many moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Grade {
    uneven: usize,
    far: usize,
    moved: usize,
}

fn is_near(layout: &Layout, member: &Member, at: &TopicPartition) -> bool {
    let racks = layout.racks(&at.topic).unwrap_or_default();
    let racks = racks.get(usize::try_from(at.partition).unwrap());
    racks.zip(member.rack.as_ref()).is_some_and(|(racks, rack)| racks.contains(rack))
}

fn grade(members: &[Member], layout: &Layout, owners: &Owners) -> Grade {
    let mut loads = vec![0; members.len()];
    let (mut far, mut moved) = (0, 0);
    for (at, &place) in owners {
        loads[place] += 1;
        far += usize::from(!is_near(layout, &members[place], at));
        moved += usize::from(!members[place].owned.contains(at));
    }
    Grade { uneven: loads.iter().map(|load| load * load).sum(), far, moved }
}

fn settle(members: &mut [Member], owners: &Owners, generation: i32) {
    for (place, member) in members.iter_mut().enumerate() {
        let owned = owners.iter().filter(|(_, owner)| **owner == place);
        member.owned = owned.map(|(at, _)| at.clone()).collect();
        member.generation = generation;
    }
}

/// Rebalances until all is read; the second must do.
fn at_rest(members: &[Member], layout: &Layout, all: usize) -> Owners {
    let mut members = members.to_vec();
    for generation in 8..10 {
        let shares = Strategy::CooperativeSticky.assign(&members, layout);
        let found = owners(&members, &shares);
        if found.len() == all {
            return found;
        }
        settle(&mut members, &found, generation);
    }
    panic!("what one rebalance takes the next gives: {members:?} {layout:?}");
}

fn as_owners(members: &[Member], told: &str) -> Owners {
    let mut owners = Owners::new();
    for share in told.split(';') {
        let (id, partitions) = share.split_once('=').unwrap();
        let place = members.iter().position(|member| member.id == id).unwrap();
        for one in partitions.split(',').filter(|one| !one.is_empty()) {
            let (topic, number) = one.split_once('-').unwrap();
            owners.insert(TopicPartition::new(topic, number.parse().unwrap()), place);
        }
    }
    owners
}

#[test]
fn sticky_shares_are_as_even_as_kafkas_own_and_no_farther() {
    let mut seen = 0;
    for kind in ["racked-sticky", "racked-cooperative-sticky"] {
        for (line, Case { layout, members, shares }) in cases(kind) {
            let theirs = as_owners(&members, shares);
            let ours = if kind == "racked-sticky" {
                owners(&members, &Strategy::Sticky.assign(&members, &layout))
            } else {
                at_rest(&members, &layout, theirs.len())
            };
            assert_eq!(ours.len(), theirs.len(), "{line}");
            let [ours, theirs] = [ours, theirs].map(|owners| grade(&members, &layout, &owners));
            assert!(
                (ours.uneven, ours.far) <= (theirs.uneven, theirs.far),
                "{ours:?} {theirs:?} {line}"
            );
            seen += 1;
        }
    }
    assert!(seen >= 300, "{seen}");
}

struct Dice(Random);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.0.number() % u64::try_from(limit).unwrap()).unwrap()
    }

    fn rack(&mut self) -> String {
        ["x", "y", "z", ""][self.below(4)].into()
    }

    fn layout(&mut self, topics: usize, most: usize) -> Layout {
        let mut layout = Layout::new(false);
        for topic in 0..topics {
            let mut draw = |_| (0..=self.below(2)).map(|_| self.rack()).collect::<String>();
            let partitions: Vec<String> = (0..most).map(&mut draw).collect();
            let count = self.below(most + 1);
            let partitions: Vec<&str> = partitions.iter().take(count).map(String::as_str).collect();
            standing(&mut layout, &format!("t{topic}"), &partitions);
        }
        layout
    }

    fn member(&mut self, name: usize, topics: usize, same: bool) -> Member {
        let rack = Some(self.rack()).filter(|rack| !rack.is_empty());
        let mut one = Member { rack, ..member(&format!("m{name}"), None, &[]) };
        let names = (0..topics).map(|topic| Arc::from(format!("t{topic}")));
        one.topics = names.filter(|_| same || self.below(3) > 0).collect();
        one
    }
}

fn partitions(members: &[Member], layout: &Layout) -> Vec<TopicPartition> {
    let read = |name: &Arc<str>| members.iter().any(|member| member.topics.contains(name));
    let topics = layout.counts().filter(|(name, _)| read(name));
    topics
        .flat_map(|(name, count)| {
            (0..count).map(|number| TopicPartition::new(Arc::clone(name), number))
        })
        .collect()
}

/// The best grade that any shares could have, found by trying all.
fn best(members: &[Member], layout: &Layout, all: &[TopicPartition]) -> Grade {
    let mut best: Option<Grade> = None;
    let mut owners = Owners::new();
    try_all(members, layout, all, &mut owners, &mut best);
    best.unwrap()
}

fn try_all(
    members: &[Member],
    layout: &Layout,
    rest: &[TopicPartition],
    owners: &mut Owners,
    best: &mut Option<Grade>,
) {
    let Some((first, rest)) = rest.split_first() else {
        let grade = grade(members, layout, owners);
        *best = Some(best.map_or(grade, |best| best.min(grade)));
        return;
    };
    for (place, member) in members.iter().enumerate() {
        if member.topics.contains(&first.topic) {
            owners.insert(first.clone(), place);
            try_all(members, layout, rest, owners, best);
        }
    }
}

/// Whether racks make a difference: else shares are as they were before leaders knew them.
fn differs(members: &[Member], layout: &Layout, all: &[TopicPartition]) -> bool {
    let pairs = all.iter().flat_map(|at| {
        let readers = members.iter().filter(|member| member.topics.contains(&at.topic));
        readers.map(|member| is_near(layout, member, at))
    });
    let near: BTreeSet<bool> = pairs.collect();
    near.len() == 2
}

#[test]
fn no_shares_are_more_even_or_nearer_or_move_less() {
    let mut dice = Dice(Random::new(881));
    let mut seen = 0;
    for round in 0..3_000 {
        let topics = 1 + dice.below(3);
        let size = 1 + dice.below(3);
        let mut members: Vec<Member> =
            (0..size).map(|name| dice.member(name, topics, round % 2 == 0)).collect();
        for generation in 0..3 {
            let layout = dice.layout(topics, 4);
            let all = partitions(&members, &layout);
            if all.len() > 7 || !differs(&members, &layout, &all) {
                continue;
            }
            let found = owners(&members, &Strategy::Sticky.assign(&members, &layout));
            assert_eq!(found.len(), all.len());
            let reached = grade(&members, &layout, &found);
            assert_eq!(reached, best(&members, &layout, &all), "{members:?} {layout:?}");
            seen += 1;
            settle(&mut members, &found, generation);
            let again = owners(&members, &Strategy::Sticky.assign(&members, &layout));
            assert_eq!(again, found, "nothing has changed");
            let change = dice.below(members.len());
            members[change] = Member {
                owned: members[change].owned.clone(),
                generation,
                ..dice.member(change, topics, round % 2 == 0)
            };
        }
    }
    assert!(seen > 2_000, "{seen}");
}

#[test]
fn a_cooperative_group_in_racks_comes_to_rest_where_a_sticky_one_would() {
    let mut dice = Dice(Random::new(429));
    for round in 0..1_000 {
        let topics = 1 + dice.below(4);
        let size = 1 + dice.below(6);
        let mut members: Vec<Member> =
            (0..size).map(|name| dice.member(name, topics, round % 2 == 0)).collect();
        for generation in 0..3 {
            let layout = dice.layout(topics, 9);
            let all = partitions(&members, &layout).len();
            let sticky = owners(&members, &Strategy::Sticky.assign(&members, &layout));
            let found = at_rest(&members, &layout, all);
            let [sticky, grade] = [&sticky, &found].map(|found| grade(&members, &layout, found));
            assert_eq!((grade.uneven, grade.far), (sticky.uneven, sticky.far));
            settle(&mut members, &found, generation);
            members.push(dice.member(size + usize::try_from(generation).unwrap(), topics, true));
        }
    }
}

#[test]
fn what_moves_to_a_new_member_is_what_stands_near_it() {
    let mut members = [in_rack("a", "x", &["t"]), in_rack("b", "y", &["t"])];
    members[0].owned = (0..4).map(|number| TopicPartition::new("t", number)).collect();
    members[0].generation = 1;
    let mut layout = Layout::new(false);
    standing(&mut layout, "t", &["y", "x", "y", "xy"]);
    for strategy in [Strategy::Sticky, Strategy::CooperativeSticky] {
        let found = shown(&strategy.assign(&members, &layout));
        let b = if strategy.is_cooperative() { "b:" } else { "b:t[0, 2]" };
        assert_eq!(found, ["a:t[1, 3]", b]);
    }
}

#[test]
fn a_range_is_what_stands_near_first() {
    let members = [in_rack("a", "x", &["t"]), in_rack("b", "y", &["t"])];
    let mut layout = Layout::new(false);
    standing(&mut layout, "t", &["y", "xy", "x", "y"]);
    assert_eq!(shown(&Strategy::Range.assign(&members, &layout)), ["a:t[1, 2]", "b:t[0, 3]"]);
    let nobody = [member("a", None, &["t"]), member("b", None, &["t"])];
    assert_eq!(shown(&Strategy::Range.assign(&nobody, &layout)), ["a:t[0, 1]", "b:t[2, 3]"]);
}

#[test]
fn topics_of_as_many_partitions_are_given_out_together() {
    let members = [in_rack("a", "x", &["t", "u"]), in_rack("b", "y", &["t", "u"])];
    let mut layout = Layout::new(false);
    standing(&mut layout, "t", &["y", "xy", "x", "x"]);
    standing(&mut layout, "u", &["y", "x", "x", "y"]);
    let shares = Strategy::Range.assign(&members, &layout);
    assert_eq!(shown(&shares), ["a:t[1, 2]u[1, 2]", "b:t[0, 3]u[0, 3]"]);
}

#[test]
fn turns_do_not_mind_racks() {
    let members = [in_rack("a", "x", &["t"]), in_rack("b", "y", &["t"])];
    let mut layout = Layout::new(false);
    standing(&mut layout, "t", &["y", "x"]);
    assert_eq!(shown(&Strategy::RoundRobin.assign(&members, &layout)), ["a:t[0]", "b:t[1]"]);
}
