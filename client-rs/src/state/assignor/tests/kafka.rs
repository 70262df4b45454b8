//! Groups as Kafka's own assignors share them out.

use super::*;
use crate::state::hash::HashMap;

/// What `cargo xtask interop vectors` had Kafka's classes write.
pub(super) const CASES: &str = include_str!("../../../../../conformance/vectors/assignors.txt");

/// A member as a line tells it: `id=topic,topic` or `id/instance=topic`.
pub(super) fn one(text: &str) -> Member {
    let (name, topics) = text.split_once('=').unwrap();
    let (id, instance_id) = match name.split_once('/') {
        Some((id, instance_id)) => (id, Some(instance_id)),
        None => (name, None),
    };
    let topics: Vec<&str> = topics.split(',').filter(|topic| !topic.is_empty()).collect();
    member(id, instance_id, &topics)
}

/// Shares as a line tells them.
pub(super) fn told(shares: &[Share]) -> String {
    let told = |share: &Share| {
        let rows = share.topics.iter().flat_map(|(topic, partitions)| {
            partitions.iter().map(move |partition| format!("{topic}-{partition}"))
        });
        format!("{}={}", share.member_id, rows.collect::<Vec<_>>().join(","))
    };
    let mut told: Vec<String> = shares.iter().map(told).collect();
    told.sort();
    told.join(";")
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

#[test]
fn ranges_and_turns_are_those_of_kafkas_own_assignors() {
    let mut seen: HashMap<&str, usize> = HashMap::default();
    for line in
        CASES.lines().filter(|line| line.starts_with("range ") || line.starts_with("roundrobin "))
    {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        let strategy = Strategy::from_name(name).unwrap();
        let mut layout = Layout::new(false);
        for row in words.next().unwrap().split(';') {
            let (topic, count) = row.split_once(':').unwrap();
            layout.insert(&topic.into(), count.parse().unwrap(), None);
        }
        let members: Vec<Member> = words.next().unwrap().split(';').map(one).collect();
        let wanted = words.next().unwrap();
        assert_eq!(told(&strategy.assign(&members, &layout)), wanted, "{line}");
        *seen.entry(name).or_default() += 1;
    }
    assert!(seen["range"] >= 100 && seen["roundrobin"] >= 100, "{seen:?}");
}

#[test]
fn a_member_tells_what_it_has_in_the_bytes_of_kafkas_own_client() {
    let topics: [Arc<str>; 2] = ["a".into(), "b".into()];
    let owned = [("a", 0), ("a", 2), ("b", 1)].map(|(topic, at)| TopicPartition::new(topic, at));
    let mut seen = 0;
    for line in CASES.lines().filter(|line| line.starts_with("subscription ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, name, kind, bytes] = words[..] else { panic!("{line}") };
        let strategy = Strategy::from_name(name).unwrap();
        let before = kind == "before";
        let subscription = Subscription {
            topics: &topics,
            owned: if before || !strategy.is_cooperative() { &[] } else { &owned },
            generation: if before { NO_GENERATION } else { 7 },
            assigned: if before { &[] } else { &owned },
            assigned_in: if before { NO_GENERATION } else { 7 },
            rack: (kind == "in-rack").then_some("east"),
        };
        let bytes = hex(bytes);
        assert_eq!(encode_subscription(strategy, &subscription).unwrap(), bytes, "{line}");
        let told = decode_subscription(strategy, &bytes).unwrap();
        let tells = !before && matches!(strategy, Strategy::Sticky | Strategy::CooperativeSticky);
        assert_eq!(told.owned, if tells { &owned[..] } else { &[] }, "{line}");
        assert_eq!(told.generation, if tells { 7 } else { NO_GENERATION }, "{line}");
        seen += 1;
    }
    assert_eq!(seen, 12);
}
