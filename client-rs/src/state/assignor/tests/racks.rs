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
