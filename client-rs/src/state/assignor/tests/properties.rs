//! What holds of every assignment, over groups drawn at random.

use super::*;

struct Dice(Random);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.0.number() % u64::try_from(limit).unwrap()).unwrap()
    }
}

fn laid_out(counts: &BTreeMap<Arc<str>, i32>) -> Layout {
    let mut layout = Layout::new(false);
    for (name, &count) in counts {
        layout.insert(name, count, None);
    }
    layout
}

type Owners = BTreeMap<(Arc<str>, i32), usize>;

fn owners(members: &[Member], shares: &[Share]) -> Owners {
    let mut owners = Owners::new();
    for share in shares {
        let place = members.iter().position(|member| member.id == share.member_id).unwrap();
        for (topic, partitions) in &share.topics {
            assert!(members[place].topics.contains(topic), "nobody reads what it did not want");
            for &partition in partitions {
                let before = owners.insert((Arc::clone(topic), partition), place);
                assert_eq!(before, None, "{topic}-{partition} went to two");
            }
        }
    }
    owners
}

fn loads(members: &[Member], owners: &Owners) -> Vec<usize> {
    let mut loads = vec![0; members.len()];
    for &place in owners.values() {
        loads[place] += 1;
    }
    loads
}

fn readable(members: &[Member], counts: &BTreeMap<Arc<str>, i32>) -> usize {
    let read = |topic: &Arc<str>| members.iter().any(|member| member.topics.contains(topic));
    let sizes = counts.iter().filter(|(topic, _)| read(topic));
    sizes.map(|(_, &count)| usize::try_from(count).unwrap()).sum()
}

/// A group of members with the same topics, or with some of them each.
fn group(dice: &mut Dice, same: bool) -> (Vec<Member>, BTreeMap<Arc<str>, i32>) {
    let names: Vec<Arc<str>> =
        (0..=dice.below(5)).map(|number| Arc::from(format!("t{number}"))).collect();
    let counts = names
        .iter()
        .map(|name| (Arc::clone(name), i32::try_from(dice.below(9)).unwrap()))
        .collect();
    let mut members = Vec::new();
    for number in 0..=dice.below(6) {
        let mut one = member(&format!("m{number}"), None, &[]);
        one.topics = names.iter().filter(|_| same || dice.below(2) == 0).cloned().collect();
        members.push(one);
    }
    (members, counts)
}

fn settle(members: &mut [Member], owners: &Owners, generation: i32) {
    for (place, member) in members.iter_mut().enumerate() {
        member.generation = generation;
        member.owned = owners
            .iter()
            .filter(|(_, owner)| **owner == place)
            .map(|((topic, partition), _)| TopicPartition::new(Arc::clone(topic), *partition))
            .collect();
    }
}

/// Members and topics come, go and grow.
fn change(
    dice: &mut Dice,
    same: bool,
    members: &mut Vec<Member>,
    counts: &mut BTreeMap<Arc<str>, i32>,
) {
    match dice.below(3) {
        0 if members.len() > 1 => {
            members.remove(dice.below(members.len()));
        }
        1 => {
            let mut one = member(&format!("n{}", dice.0.number()), None, &[]);
            let all: Vec<Arc<str>> = counts.keys().cloned().collect();
            one.topics = if same { members[0].topics.clone() } else { all };
            members.push(one);
        }
        _ => {
            if let Some(count) = counts.values_mut().next() {
                *count += 1;
            }
        }
    }
}

#[test]
fn every_partition_goes_to_one_member_that_reads_it() {
    let mut dice = Dice(Random::new(1));
    for round in 0..2_000 {
        let (members, counts) = group(&mut dice, round % 2 == 0);
        for strategy in Strategy::ALL {
            let found = owners(&members, &strategy.assign(&members, &laid_out(&counts)));
            assert_eq!(found.len(), readable(&members, &counts), "{}", strategy.name());
        }
    }
}

#[test]
fn members_of_the_same_topics_differ_by_one_partition_at_most() {
    let mut dice = Dice(Random::new(2));
    for _ in 0..2_000 {
        let (mut members, mut counts) = group(&mut dice, true);
        for generation in 0..4 {
            let found = owners(&members, &Strategy::Sticky.assign(&members, &laid_out(&counts)));
            let loads = loads(&members, &found);
            assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{loads:?}");
            settle(&mut members, &found, generation);
            change(&mut dice, true, &mut members, &mut counts);
        }
    }
}

/// The fewest moves from these loads to even ones, with those counted that nobody has.
fn fewest_moves(before: &[usize], total: usize) -> usize {
    let (each, extra) = (total / before.len(), total % before.len());
    let mut loads = before.to_vec();
    loads.sort_unstable_by(|a, b| b.cmp(a));
    let kept = loads.iter().enumerate().map(|(at, &load)| load.min(each + usize::from(at < extra)));
    total - kept.sum::<usize>()
}

#[test]
fn no_partition_moves_that_need_not() {
    let mut dice = Dice(Random::new(3));
    for _ in 0..3_000 {
        let (mut members, mut counts) = group(&mut dice, true);
        for generation in 0..4 {
            let before: Owners = (0..)
                .zip(&members)
                .flat_map(|(place, member)| {
                    let owned = member.owned.iter();
                    owned.map(move |owned| ((Arc::clone(&owned.topic), owned.partition), place))
                })
                .collect();
            let found = owners(&members, &Strategy::Sticky.assign(&members, &laid_out(&counts)));
            let moves = found.iter().filter(|(at, place)| before.get(*at) != Some(place)).count();
            let total = readable(&members, &counts);
            assert_eq!(moves, fewest_moves(&loads(&members, &before), total));
            settle(&mut members, &found, generation);
            change(&mut dice, true, &mut members, &mut counts);
        }
    }
}

/// No member could have two partitions more than one who might take one of them, be it by way of
/// others; and what is so even already stays as it is.
#[test]
fn members_of_different_topics_get_shares_that_no_move_makes_more_even() {
    let mut dice = Dice(Random::new(4));
    for _ in 0..2_000 {
        let (mut members, mut counts) = group(&mut dice, false);
        for generation in 0..3 {
            let found = owners(&members, &Strategy::Sticky.assign(&members, &laid_out(&counts)));
            let loads = loads(&members, &found);
            for from in 0..members.len() {
                let mut reached = BTreeSet::from([from]);
                let mut queue = vec![from];
                while let Some(place) = queue.pop() {
                    for ((topic, _), _) in found.iter().filter(|(_, owner)| **owner == place) {
                        for (other, member) in members.iter().enumerate() {
                            if member.topics.contains(topic) && reached.insert(other) {
                                queue.push(other);
                            }
                        }
                    }
                }
                for other in reached {
                    assert!(loads[from] <= loads[other] + 1, "{from} to {other}: {loads:?}");
                }
            }
            settle(&mut members, &found, generation);
            let again = owners(&members, &Strategy::Sticky.assign(&members, &laid_out(&counts)));
            assert_eq!(again, found, "nothing has changed");
            change(&mut dice, false, &mut members, &mut counts);
        }
    }
}

#[test]
fn a_cooperative_group_comes_to_rest_and_never_has_two_readers_of_a_partition() {
    let mut dice = Dice(Random::new(6));
    for round in 0..1_000 {
        let (mut members, mut counts) = group(&mut dice, round % 2 == 0);
        for generation in 0..4 {
            let mut rounds = 0;
            loop {
                let found = owners(
                    &members,
                    &Strategy::CooperativeSticky.assign(&members, &laid_out(&counts)),
                );
                for ((topic, partition), &place) in &found {
                    let wanted = TopicPartition::new(Arc::clone(topic), *partition);
                    let others = members.iter().enumerate().filter(|(at, _)| *at != place);
                    let read = others.filter(|(_, member)| member.owned.contains(&wanted)).count();
                    assert_eq!(read, 0, "{wanted} is still read");
                }
                let whole = found.len() == readable(&members, &counts);
                settle(&mut members, &found, generation);
                if whole {
                    break;
                }
                rounds += 1;
                assert!(rounds < 3, "what one rebalance takes the next gives");
            }
            change(&mut dice, round % 2 == 0, &mut members, &mut counts);
        }
    }
}
