//! A member that goes on reading while its group rebalances (KIP-429).

use super::*;

fn these(partitions: &[i32]) -> Which {
    Which::These(synced(ErrorCode::NONE, partitions).assigned.partitions.into_iter().collect())
}

fn owned(ask: &MemberAsk) -> (Vec<i32>, i32) {
    let MemberAsk::Join { holdings, .. } = ask else { panic!("{ask:?}") };
    (holdings.owned.iter().map(|owned| owned.partition).collect(), holdings.generation)
}

fn stable(generation: i32, partitions: &[i32]) -> Member1 {
    let mut one = Member1::with(None, &[Strategy::CooperativeSticky]);
    one.member.subscribe(vec!["t".into()], one.now);
    one.join_and_sync(generation, partitions);
    one.events();
    one
}

#[test]
fn nothing_is_given_up_to_join_anew() {
    let mut one = stable(1, &[0, 1]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(one.events(), [], "it reads on");
    assert_eq!(one.member.identity().unwrap().generation, 1, "and commits");
    let (token, ask) = one.ask().expect("it joins at once");
    assert_eq!(owned(&ask), (vec![0, 1], 1));
    assert_eq!(one.member.identity().unwrap().generation, 1, "until all have joined");
    one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    assert_eq!(one.member.identity(), None, "the coordinator takes no commit now");
    let (token, _) = one.ask().unwrap();
    one.member.handle_sync(token, Ok(synced(ErrorCode::NONE, &[0, 1])), one.now);
    assert_eq!(one.events(), [assigned(2, &[0, 1], true)]);
    one.pass(Duration::ZERO);
    assert_eq!(one.ask(), None, "nothing went, so nothing is left to be shared out");
}

#[test]
fn what_goes_is_released_before_what_comes_is_taken_and_then_it_joins_again() {
    let mut one = stable(1, &[0, 1]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    one.join_and_sync(2, &[1, 2]);
    assert_eq!(one.events(), [MemberEvent::Release(these(&[0]))]);
    assert_eq!(one.member.identity().unwrap().generation, 2, "what is finished is committed");
    one.beat(ErrorCode::NONE);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(one.events(), [], "the release goes on first");
    one.member.handle_released(one.now);
    assert_eq!(one.events(), [assigned(2, &[1, 2], true)]);
    let (_, ask) = one.ask().expect("another can have what went only by a rebalance");
    assert_eq!(owned(&ask), (vec![1, 2], 2));
}

#[test]
fn a_rebalance_upon_a_rebalance_costs_no_partition() {
    let mut one = stable(1, &[0, 1]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    let (token, _) = one.ask().unwrap();
    one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    let (token, _) = one.ask().unwrap();
    let answer = synced(ErrorCode::REBALANCE_IN_PROGRESS, &[]);
    one.member.handle_sync(token, Ok(answer), one.now);
    assert_eq!(one.events(), []);
    assert_eq!(one.member.identity().unwrap().generation, 2, "the newest it has been in");
    let (_, ask) = one.ask().unwrap();
    assert_eq!(owned(&ask), (vec![0, 1], 2));
}

#[test]
fn who_has_missed_a_generation_has_lost_all_since_another_may_have_read_it() {
    let mut one = stable(1, &[0, 1]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    one.join_and_sync(3, &[1]);
    assert_eq!(one.events(), [MemberEvent::Lost(Which::All), assigned(3, &[1], true)]);
    let (_, ask) = one.ask().expect("another can have what it claimed only by a rebalance");
    assert_eq!(owned(&ask), (vec![1], 3));
}

#[test]
fn a_commit_that_comes_too_late_for_its_generation_waits_for_the_next() {
    let mut one = stable(1, &[0]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    let (token, _) = one.ask().unwrap();
    one.member.handle_fenced(ErrorCode::ILLEGAL_GENERATION, 1, one.now);
    assert_eq!(one.events(), [], "nothing is lost by that");
    assert_eq!(one.member.identity(), None);
    one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    let (token, _) = one.ask().unwrap();
    one.member.handle_sync(token, Ok(synced(ErrorCode::NONE, &[0])), one.now);
    assert_eq!(one.member.identity().unwrap().generation, 2);
}

#[test]
fn a_member_the_group_forgot_loses_all_that_it_went_on_reading() {
    for (code, told) in [
        (ErrorCode::UNKNOWN_MEMBER_ID, vec![MemberEvent::Lost(Which::All)]),
        (ErrorCode::NOT_COORDINATOR, vec![MemberEvent::CoordinatorLost]),
    ] {
        let mut one = stable(1, &[0]);
        one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
        let (token, _) = one.ask().unwrap();
        one.member.handle_join(token, Ok(joined(code, "", -1)), one.now);
        assert_eq!(one.events(), told, "{code}");
        let (_, ask) = one.ask().unwrap();
        let lost = code == ErrorCode::UNKNOWN_MEMBER_ID;
        assert_eq!(owned(&ask), if lost { (vec![], -1) } else { (vec![0], 1) }, "{code}");
    }
}

#[test]
fn who_is_forgotten_while_it_is_about_to_leave_comes_back_as_a_new_member() {
    let mut one = stable(1, &[0]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    let (token, _) = one.ask().unwrap();
    one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    let (token, _) = one.ask().unwrap();
    one.member.subscribe(Vec::new(), one.now);
    assert_eq!(one.events(), [MemberEvent::Release(Which::All)], "what is in hand is waited for");
    one.member.subscribe(vec!["t".into()], one.now);
    let answer = synced(ErrorCode::NOT_COORDINATOR, &[]);
    one.member.handle_sync(token, Ok(answer), one.now);
    one.events();
    let (token, _) = one.ask().expect("it is a member until that is done");
    one.member.handle_join(token, Ok(joined(ErrorCode::UNKNOWN_MEMBER_ID, "", -1)), one.now);
    assert_eq!(one.events(), [MemberEvent::Lost(Which::All)]);
    let (_, ask) = one.ask().expect("no answer is waited for that has come");
    let MemberAsk::Join { member_id, .. } = &ask else { panic!("{ask:?}") };
    assert_eq!((member_id.as_str(), owned(&ask)), ("", (vec![], -1)));
}

#[test]
fn topics_unsubscribed_from_are_given_up_before_the_join() {
    let mut one = stable(1, &[0]);
    one.member.subscribe(vec!["t".into(), "u".into()], one.now);
    assert_eq!(one.events(), [], "a topic more takes nothing away");
    assert_eq!(owned(&one.ask().unwrap().1), (vec![0], 1));
    let mut one = stable(1, &[0]);
    one.member.subscribe(vec!["u".into()], one.now);
    assert_eq!(one.events(), [MemberEvent::Release(these(&[0]))]);
    assert_eq!(one.ask(), None);
    one.member.handle_released(one.now);
    assert_eq!(owned(&one.ask().unwrap().1), (vec![], 1));
}

#[test]
fn unsubscribing_in_the_middle_of_a_join_drops_what_the_old_topics_bring() {
    let mut one = stable(1, &[0]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    let (token, _) = one.ask().unwrap();
    one.member.subscribe(vec!["u".into()], one.now);
    one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    let (token, _) = one.ask().unwrap();
    one.member.handle_sync(token, Ok(synced(ErrorCode::NONE, &[0, 1])), one.now);
    assert_eq!(one.events(), [MemberEvent::Release(these(&[0]))]);
    one.member.handle_released(one.now);
    assert_eq!(one.events(), [assigned(2, &[], true)]);
    assert_eq!(owned(&one.ask().unwrap().1), (vec![], 2));
}

#[test]
fn leaving_in_the_middle_of_a_join_commits_first_and_does_not_wait_for_the_answer() {
    let mut one = stable(1, &[0]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    let (join, _) = one.ask().unwrap();
    one.member.subscribe(Vec::new(), one.now);
    assert_eq!(one.events(), [MemberEvent::Release(Which::All)]);
    assert_eq!(one.member.identity().unwrap().generation, 1);
    one.member.handle_released(one.now);
    let (leave, ask) = one.ask().unwrap();
    assert_eq!(ask, MemberAsk::Leave { member_id: "m1".into() });
    one.member.handle_join(join, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    one.member.handle_leave(leave, one.now);
    assert!(one.member.is_out());
    assert_eq!(one.events(), []);
}

#[test]
fn a_member_that_leaves_takes_no_partition_on() {
    let mut one = stable(1, &[0]);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    let (token, _) = one.ask().unwrap();
    one.member.subscribe(Vec::new(), one.now);
    one.events();
    one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    let (token, _) = one.ask().unwrap();
    one.member.handle_sync(token, Ok(synced(ErrorCode::NONE, &[0, 1])), one.now);
    assert_eq!(one.events(), []);
    assert_eq!(one.member.identity().unwrap().generation, 2, "commits go through again");
    one.member.handle_released(one.now);
    assert!(matches!(one.ask().unwrap().1, MemberAsk::Leave { .. }));
}

#[test]
fn a_late_poll_in_the_middle_of_a_join_gives_all_up() {
    let mut one = stable(1, &[0]);
    one.member.handle_app(App::Busy { since: one.now });
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    one.ask().unwrap();
    one.pass(POLL.saturating_sub(BEAT));
    assert_eq!(
        one.events(),
        [MemberEvent::PollMissed { after: POLL }, MemberEvent::Release(Which::All)]
    );
    one.member.handle_released(one.now);
    assert!(matches!(one.ask().unwrap().1, MemberAsk::Leave { .. }));
}

#[test]
fn what_is_not_given_up_in_time_is_lost_and_the_rest_is_read_on() {
    let mut one = stable(1, &[0, 1]);
    one.member.handle_app(App::Waiting);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    one.join_and_sync(2, &[1]);
    one.events();
    one.pass(POLL);
    assert_eq!(one.events(), [MemberEvent::Lost(these(&[0])), assigned(2, &[1], true)]);
    assert_eq!(owned(&one.ask().unwrap().1), (vec![1], 2));
}

#[test]
fn with_a_strategy_beside_that_does_not_allow_it_all_is_given_up() {
    let both = [Strategy::CooperativeSticky, Strategy::Range];
    let mut one = Member1::with(None, &both);
    one.member.subscribe(vec!["t".into()], one.now);
    let (token, _) = one.ask().unwrap();
    let mut answer = joined(ErrorCode::NONE, "m1", 1);
    answer.strategy = Strategy::CooperativeSticky;
    one.member.handle_join(token, Ok(answer), one.now);
    let (token, ask) = one.ask().unwrap();
    assert!(matches!(ask, MemberAsk::Sync { strategy: Strategy::CooperativeSticky, .. }));
    one.member.handle_sync(token, Ok(synced(ErrorCode::NONE, &[0])), one.now);
    one.events();
    // The next generation may be one of ranges, which go to others at once.
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(one.events(), [MemberEvent::Release(Which::All)]);
    one.member.handle_released(one.now);
    assert_eq!(owned(&one.ask().unwrap().1), (vec![], 1));
}

#[test]
fn what_is_given_up_beside_what_goes_already_has_no_more_time() {
    let mut one = stable(1, &[0, 1]);
    one.member.handle_app(App::Waiting);
    one.beat(ErrorCode::REBALANCE_IN_PROGRESS);
    let (token, _) = one.ask().unwrap();
    one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    let (token, _) = one.ask().unwrap();
    one.member.handle_sync(token, Ok(synced(ErrorCode::NONE, &[0])), one.now);
    assert_eq!(one.events(), [MemberEvent::Release(these(&[1]))]);
    one.pass(POLL / 2);
    one.member.subscribe(vec!["u".into()], one.now);
    assert_eq!(one.events(), [MemberEvent::Release(these(&[0, 1]))]);
    one.pass(POLL / 2);
    assert_eq!(one.events()[0], MemberEvent::Lost(these(&[0, 1])));
}

#[test]
fn what_was_unsubscribed_from_while_others_were_given_up_is_not_taken_on() {
    let mut one = stable(1, &[0]);
    one.member.subscribe(vec!["t".into(), "u".into()], one.now);
    let (token, _) = one.ask().expect("it joins for both");
    one.member.handle_join(token, Ok(joined(ErrorCode::NONE, "m1", 2)), one.now);
    let (token, _) = one.ask().unwrap();
    let mut answer = synced(ErrorCode::NONE, &[1]);
    answer.assigned.partitions.push(TopicPartition::new("u", 0));
    one.member.handle_sync(token, Ok(answer), one.now);
    assert_eq!(one.events(), [MemberEvent::Release(these(&[0]))]);
    one.member.subscribe(vec!["t".into()], one.now);
    one.member.handle_released(one.now);
    assert_eq!(one.events(), [assigned(2, &[1], true)]);
}
