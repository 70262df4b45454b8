//! Tests of the strategies, and of their bytes.

use super::*;
use crate::state::backoff::Random;
use crate::state::cluster::RackSet;

mod kafka;
mod properties;
mod racks;

fn member(id: &str, instance_id: Option<&str>, topics: &[&str]) -> Member {
    Member {
        id: id.into(),
        instance_id: instance_id.map(Into::into),
        topics: topics.iter().map(|topic| Arc::from(*topic)).collect(),
        owned: Vec::new(),
        generation: NO_GENERATION,
        rack: None,
    }
}

fn owning(id: &str, generation: i32, partitions: &[i32]) -> Member {
    let mut member = member(id, None, &["t"]);
    member.generation = generation;
    member.owned = partitions.iter().map(|&number| TopicPartition::new("t", number)).collect();
    member
}

fn counts(rows: &[(&str, i32)]) -> Layout {
    let mut layout = Layout::new(false);
    for &(topic, count) in rows {
        layout.insert(&topic.into(), count, None);
    }
    layout
}

/// Adds a topic whose partitions stand in these racks, a letter each.
fn standing(layout: &mut Layout, topic: &str, partitions: &[&str]) {
    let racks: Vec<RackSet> =
        partitions.iter().map(|racks| racks.chars().map(String::from).collect()).collect();
    let count = i32::try_from(partitions.len()).unwrap();
    layout.insert(&topic.into(), count, Some(racks.into()));
}

fn shown(shares: &[Share]) -> Vec<String> {
    let topics = |share: &Share| {
        let rows = share.topics.iter().map(|(topic, numbers)| format!("{topic}{numbers:?}"));
        rows.collect::<Vec<_>>().concat()
    };
    shares.iter().map(|share| format!("{}:{}", share.member_id, topics(share))).collect()
}

fn shares(strategy: Strategy, members: &[Member], rows: &[(&str, i32)]) -> Vec<String> {
    shown(&strategy.assign(members, &counts(rows)))
}

#[test]
fn range_gives_the_first_members_one_more() {
    let two = [member("b", None, &["t"]), member("a", None, &["t"])];
    assert_eq!(shares(Strategy::Range, &two, &[("t", 3)]), ["a:t[0, 1]", "b:t[2]"]);
    assert_eq!(shares(Strategy::Range, &two, &[("t", 1)]), ["a:t[0]", "b:"]);
}

#[test]
fn static_members_come_first_by_instance_id() {
    let members = [
        member("a-dynamic", None, &["t"]),
        member("z", Some("i1"), &["t"]),
        member("y", Some("i2"), &["t"]),
    ];
    for strategy in Strategy::ALL {
        let shares = shares(strategy, &members, &[("t", 3)]);
        assert_eq!(shares, ["z:t[0]", "y:t[1]", "a-dynamic:t[2]"], "{}", strategy.name());
    }
}

#[test]
fn topics_without_partitions_or_readers_are_left_out() {
    let one = [member("a", None, &["gone", "t"])];
    for strategy in Strategy::ALL {
        let found = shares(strategy, &one, &[("t", 1), ("unread", 4), ("empty", 0)]);
        assert_eq!(found, ["a:t[0]"], "{}", strategy.name());
        assert!(strategy.assign(&[], &counts(&[("t", 1)])).is_empty());
    }
}

#[test]
fn a_member_that_comes_takes_of_those_who_have_most() {
    let members = [owning("a", 3, &[0, 2, 4, 5]), owning("b", 3, &[1, 3]), owning("c", -1, &[])];
    assert_eq!(
        shares(Strategy::Sticky, &members, &[("t", 6)]),
        ["a:t[0, 2]", "b:t[1, 3]", "c:t[4, 5]"]
    );
    assert_eq!(
        shares(Strategy::CooperativeSticky, &members, &[("t", 6)]),
        ["a:t[0, 2]", "b:t[1, 3]", "c:"],
        "what is still read is nobody's before it is given up"
    );
}

#[test]
fn the_member_of_the_newer_generation_has_what_two_claim() {
    let members = [owning("a", 4, &[0, 1]), owning("b", 5, &[1, 2])];
    let wanted = ["a:t[0]", "b:t[1, 2]"];
    assert_eq!(shares(Strategy::Sticky, &members, &[("t", 3)]), wanted);
    assert_eq!(shares(Strategy::CooperativeSticky, &members, &[("t", 3)]), wanted);
    let same = [owning("a", 5, &[0, 1]), owning("b", 5, &[1, 2]), owning("c", 5, &[])];
    let found = shares(Strategy::CooperativeSticky, &same, &[("t", 3)]);
    assert_eq!(found, ["a:t[0]", "b:t[2]", "c:"], "both give it up first");
}

#[test]
fn a_move_may_lead_over_a_member_that_reads_both_topics() {
    let mut members =
        [member("a", None, &["x"]), member("b", None, &["x", "y"]), member("c", None, &["y"])];
    members[0].owned = (0..2).map(|number| TopicPartition::new("x", number)).collect();
    members[1].owned = (0..3).map(|number| TopicPartition::new("y", number)).collect();
    members[1].owned.push(TopicPartition::new("x", 2));
    let found = shares(Strategy::Sticky, &members, &[("x", 3), ("y", 3)]);
    assert_eq!(found, ["a:x[0, 1]", "b:x[2]y[0]", "c:y[1, 2]"]);
    members[0].owned = (0..4).map(|number| TopicPartition::new("x", number)).collect();
    members[1].owned = (0..2).map(|number| TopicPartition::new("y", number)).collect();
    members[2].owned.clear();
    let found = shares(Strategy::Sticky, &members, &[("x", 4), ("y", 2)]);
    assert_eq!(found, ["a:x[0, 1]", "b:x[2, 3]", "c:y[0, 1]"], "x moves to b since y can to c");
}

#[test]
fn what_a_member_had_before_is_the_last_to_be_passed_on() {
    let mut members =
        [member("a", None, &["y"]), member("b", None, &["y", "z"]), member("c", None, &["z"])];
    members[0].owned = vec![TopicPartition::new("y", 0)];
    members[1].owned = (0..4).map(|number| TopicPartition::new("z", number)).collect();
    // a takes what nobody had of y while b has more, and passes on of that when b has less.
    let found = shares(Strategy::Sticky, &members, &[("y", 3), ("z", 4)]);
    assert_eq!(found, ["a:y[0, 1]", "b:y[2]z[0, 1]", "c:z[2, 3]"]);
}

#[test]
fn a_generation_of_any_size_is_taken() {
    for generation in [i32::MIN, -2, i32::MAX] {
        let members = [owning("a", generation, &[0, 1]), owning("b", 0, &[1])];
        let found = shares(Strategy::Sticky, &members, &[("t", 2)]);
        assert_eq!(found, ["a:t[0]", "b:t[1]"]);
    }
}

fn told(strategy: Strategy, generation: i32, assigned_in: i32) -> (Vec<u8>, Vec<TopicPartition>) {
    let topics: [Arc<str>; 2] = ["a".into(), "b".into()];
    let owned =
        vec![TopicPartition::new("a", 0), TopicPartition::new("a", 2), TopicPartition::new("b", 1)];
    let subscription = Subscription {
        topics: &topics,
        owned: if strategy.is_cooperative() { &owned } else { &[] },
        generation,
        assigned: &owned,
        assigned_in,
        rack: None,
    };
    (encode_subscription(strategy, &subscription).unwrap(), owned)
}

#[test]
fn subscriptions_and_assignments_come_back_as_they_were() {
    for strategy in Strategy::ALL {
        let (bytes, owned) = told(strategy, 7, 6);
        let found = decode_subscription(strategy, &bytes).unwrap();
        assert_eq!(found.topics, [Arc::from("a"), Arc::from("b")]);
        let (wanted, generation) = match strategy {
            Strategy::Range | Strategy::RoundRobin => (Vec::new(), NO_GENERATION),
            Strategy::Sticky => (owned, 6),
            Strategy::CooperativeSticky => (owned, 7),
        };
        assert_eq!((found.owned, found.generation), (wanted, generation));
    }
    let share = Share {
        member_id: "m".into(),
        topics: [(Arc::from("a"), vec![0, 2]), (Arc::from("b"), vec![1])].into(),
        basis: None,
    };
    let found = decode_assignment(&encode_assignment(&share).unwrap()).unwrap();
    let partitions: Vec<String> = found.partitions.iter().map(ToString::to_string).collect();
    assert_eq!((partitions, found.basis), (["a-0", "a-2", "b-1"].map(String::from).into(), None));
    assert!(decode_assignment(&[]).unwrap().partitions.is_empty());
}

#[test]
fn a_static_members_share_tells_by_what_it_was_made() {
    let rows = [("a", 3), ("b", 1)];
    let members = [member("m1", Some("one"), &["a", "b"]), member("m2", None, &["a"])];
    let shares = Strategy::Range.assign(&members, &counts(&rows));
    assert_eq!(shares[1].basis, None, "one without a name has no share to come back to");
    let found = decode_assignment(&encode_assignment(&shares[0]).unwrap()).unwrap();
    let basis = found.basis.unwrap();
    assert!(!basis.is_unsettled());
    assert!(basis.is_of_layout(&counts(&rows)));
    for others in [&[("a", 3)][..], &[("a", 4), ("b", 1)], &[("a", 3), ("c", 1)]] {
        assert!(!basis.is_of_layout(&counts(others)), "{others:?}");
    }
    assert!(basis.is_of_topics(&["b".into(), "a".into()]), "in whichever order they are named");
    for others in [&["a"][..], &["ab"], &["a", "b", "c"], &["a", "c"]] {
        let others: Vec<Arc<str>> = others.iter().map(|topic| Arc::from(*topic)).collect();
        assert!(!basis.is_of_topics(&others), "{others:?}");
    }
}

#[test]
fn racks_are_in_what_static_members_are_told_only_if_they_are_minded() {
    let basis = |minds, racks: Option<&[&str]>| {
        let mut layout = Layout::new(minds);
        match racks {
            Some(racks) => standing(&mut layout, "t", racks),
            None => layout.insert(&"t".into(), 2, None),
        }
        Basis::new(&layout)
    };
    let plain = basis(false, None);
    assert_eq!(plain, basis(true, None));
    assert_eq!(plain, basis(false, Some(&["a", "b"])), "as it was before leaders knew racks");
    let ways: [&[&str]; 5] = [&["a", "b"], &["ab", ""], &["", "ab"], &["b", "a"], &["ab", "b"]];
    for (at, racks) in ways.iter().enumerate() {
        let basis_here = basis(true, Some(racks));
        assert_ne!(basis_here, plain);
        for other in &ways[..at] {
            assert_ne!(basis_here, basis(true, Some(other)), "{racks:?} {other:?}");
        }
    }
}

#[test]
fn a_static_member_that_gives_up_what_another_waits_for_is_told_so() {
    let owner = Member { instance_id: Some("one".into()), ..owning("m1", 1, &[0, 1]) };
    let comes = Member { instance_id: Some("two".into()), ..owning("m2", NO_GENERATION, &[]) };
    let shares = Strategy::CooperativeSticky.assign(&[owner, comes], &counts(&[("t", 2)]));
    let unsettled = shares.iter().map(|share| share.basis.unwrap().is_unsettled());
    assert_eq!(unsettled.collect::<Vec<_>>(), [true, false]);
    let found = decode_assignment(&encode_assignment(&shares[0]).unwrap()).unwrap();
    assert_eq!(found.basis, shares[0].basis);
}

#[test]
fn what_other_clients_say_beside_a_share_is_passed_over() {
    let basis = Basis::new(&counts(&[("t", 1)])).of_member(&["t".into()], true);
    let share = Share { member_id: "m".into(), topics: BTreeMap::new(), basis: Some(basis) };
    let bytes = encode_assignment(&share).unwrap();
    assert_eq!(decode_assignment(&bytes).unwrap().basis, Some(basis));
    let tag = bytes.windows(5).position(|tag| tag == b"ottla").unwrap();
    let mut others = bytes.clone();
    others[tag] = b'O';
    assert_eq!(decode_assignment(&others).unwrap().basis, None, "another tag");
    let mut longer = bytes;
    longer[tag - 1] += 1;
    longer.push(0);
    assert_eq!(decode_assignment(&longer).unwrap().basis, None, "a form to come");
}

#[test]
fn a_subscription_of_an_old_or_a_future_member_is_read() {
    // Version 0: topics and user data alone, as kafka-python writes it.
    let old = [0, 0, 0, 0, 0, 1, 0, 1, b't', 0xff, 0xff, 0xff, 0xff];
    for strategy in Strategy::ALL {
        let found = decode_subscription(strategy, &old).unwrap();
        assert_eq!(found.topics, [Arc::from("t")]);
        assert_eq!((found.owned.len(), found.generation), (0, NO_GENERATION));
    }
    let (mut future, owned) = told(Strategy::CooperativeSticky, 7, 7);
    future.extend_from_slice(&[1, 2, 3]);
    future[1] = 9;
    let found = decode_subscription(Strategy::CooperativeSticky, &future).unwrap();
    assert_eq!(found.owned, owned);
    assert!(decode_subscription(Strategy::Range, &[0]).is_err());
    assert!(decode_assignment(&[0, 1, 0x7f, 0xff, 0xff, 0xff]).is_err());
}

#[test]
fn user_data_that_cannot_be_read_cost_moves_and_nothing_else() {
    let (bytes, _) = told(Strategy::Sticky, 7, 6);
    let mut random = Random::new(5);
    for _ in 0..20_000 {
        let mut harmed = bytes.clone();
        let at = usize::try_from(random.number() % 1_000).unwrap() % harmed.len();
        harmed[at] ^= u8::try_from(random.number() % 255).unwrap() + 1;
        for strategy in Strategy::ALL {
            if let Ok(found) = decode_subscription(strategy, &harmed) {
                assert!(found.owned.iter().all(|owned| owned.partition >= 0));
            }
        }
    }
}
