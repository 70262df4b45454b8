//! A static member that comes back to the share it had (KIP-345, KIP-814), and what changed meanwhile.

use super::*;

fn counts(partitions: i32) -> Layout {
    layout(&[("t", partitions)])
}

/// That of a member that reads `t` alone, which had two partitions.
fn basis() -> Basis {
    Basis::new(&counts(2)).of_member(&["t".into()], false)
}

/// Its first share after it has come back, which was made by that.
fn back(strategy: Strategy, topics: &[&str], leads: bool, basis: Option<Basis>) -> Member1 {
    let mut one = Member1::with(Some("i1"), &[strategy]);
    one.member.subscribe(topics.iter().map(|topic| Arc::from(*topic)).collect(), one.now);
    let (token, _) = one.ask().unwrap();
    let mut answer = joined(ErrorCode::NONE, "m1", 4);
    answer.strategy = strategy;
    if leads {
        (answer.leader, answer.skip_assignment) = ("m1".into(), true);
        answer.members = vec![Member {
            id: "m1".into(),
            instance_id: Some("i1".into()),
            topics: vec!["t".into()],
            owned: Vec::new(),
            generation: NO_GENERATION,
            rack: None,
        }];
    }
    one.member.handle_join(token, Ok(answer), one.now);
    let (token, ask) = one.ask().unwrap();
    assert!(matches!(ask, MemberAsk::Sync { shares, .. } if shares.is_empty()));
    let mut answer = synced(ErrorCode::NONE, &[0, 1]);
    answer.assigned.basis = basis;
    one.member.handle_sync(token, Ok(answer), one.now);
    one
}

/// It is about to join again, by way of which the group shares out anew.
fn joins_again(one: &mut Member1) -> bool {
    let events = one.events();
    if events.contains(&MemberEvent::Release(Which::All)) {
        one.member.handle_released(one.now);
    }
    matches!(one.ask(), Some((_, MemberAsk::Join { .. })))
}

#[test]
fn a_leader_that_comes_back_leaves_the_shares_as_they_are_while_they_hold() {
    let mut one = back(Strategy::Range, &["t"], true, Some(basis()));
    assert!(one.member.wants_layout());
    assert_eq!(one.member.led_topics().unwrap(), [Arc::from("t")]);
    one.member.handle_layout(counts(2), one.now);
    assert_eq!(one.events(), [assigned(4, &[0, 1], false)]);
    assert!(!one.member.wants_layout());
    assert_eq!(one.ask(), None, "nobody is disturbed");
    one.member.handle_layout(counts(3), one.now);
    assert!(joins_again(&mut one), "it watches what it leads");
}

#[test]
fn a_leader_that_comes_back_to_other_partitions_has_them_shared_out() {
    for now in [counts(3), counts(1), layout(&[]), layout(&[("u", 2)])] {
        let mut one = back(Strategy::CooperativeSticky, &["t"], true, Some(basis()));
        assert_eq!(one.ask(), None, "not before it knows");
        one.member.handle_layout(now.clone(), one.now);
        assert!(joins_again(&mut one), "{now:?}");
    }
}

#[test]
fn a_leader_that_comes_back_to_other_racks_has_them_shared_out_if_it_stands_in_one() {
    for (minds, now, anew) in [(true, "east", false), (true, "west", true), (false, "west", false)]
    {
        let basis = Basis::new(&in_rack("east", minds)).of_member(&["t".into()], false);
        let mut one = back(Strategy::Range, &["t"], true, Some(basis));
        one.member.handle_layout(in_rack(now, minds), one.now);
        assert_eq!(joins_again(&mut one), anew, "{minds} {now}");
    }
}

#[test]
fn a_leader_that_does_not_know_by_what_was_shared_out_has_it_done_anew() {
    let mut one = back(Strategy::Range, &["t"], true, None);
    one.member.handle_layout(counts(2), one.now);
    assert!(joins_again(&mut one));
}

#[test]
fn a_static_member_that_comes_back_to_other_topics_joins_again() {
    for strategy in [Strategy::Range, Strategy::CooperativeSticky] {
        for leads in [false, true] {
            let mut one = back(strategy, &["t", "u"], leads, Some(basis()));
            assert!(joins_again(&mut one), "{strategy:?}: one topic more");
            let mut one = back(strategy, &["t"], leads, Some(basis()));
            assert!(!joins_again(&mut one), "{strategy:?}: the same topics");
        }
        // From a leader of another kind only a topic too many is seen.
        let mut one = back(strategy, &["u"], false, None);
        let events: Vec<_> = one.events();
        assert_eq!(events.first(), Some(&assigned(4, &[], strategy.is_cooperative())));
        if !strategy.is_cooperative() {
            one.member.handle_released(one.now);
        }
        assert!(joins_again(&mut one), "{strategy:?}: others");
        let mut one = back(strategy, &["t"], false, None);
        assert!(!joins_again(&mut one));
    }
}

#[test]
fn a_static_member_that_was_gone_in_the_middle_of_a_move_has_the_move_completed() {
    let moving = basis().of_member(&["t".into()], true);
    let mut one = back(Strategy::CooperativeSticky, &["t"], false, Some(moving));
    assert!(joins_again(&mut one), "another waits for what it gave up");
}

#[test]
fn only_the_first_share_after_a_return_may_be_one_of_before() {
    let mut one = back(Strategy::CooperativeSticky, &["t", "u"], false, Some(basis()));
    one.events();
    one.join_and_sync(5, &[0, 1]);
    assert!(!joins_again(&mut one), "a leader that errs does not keep the group on the move");
}
